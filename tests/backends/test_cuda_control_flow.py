"""What the host has a part in: choices and loops of networks for GPUs, copies, and kernels that no GPU is good at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
import pytest
from emulated_networks import agree
from onnx import TensorProto, helper, numpy_helper

from nnefc.backends import cuda
from nnefc.passes.schedule.gpu.fallback import FallbackRule
from nnefc.targets.codegen.cuda.code import CudaCode
from nnefc.targets.machine.cuda.capabilities import default_gpu
from nnefc.targets.machine.cuda.target import CudaTarget

Tensor = tuple[str, int, list[int]]


def _branch(node: onnx.NodeProto, output: str) -> onnx.GraphProto:
    return helper.make_graph([node], output, [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)])


def _saved(
    folder: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[Tensor],
    shape: list[int],
    known: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(array, name) for name, array in known.items()],
    )
    path = folder / "network.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()
    )
    return path


def _loop(folder: Path, count: str, inputs: list[Tensor]) -> Path:
    step = helper.make_graph(
        [helper.make_node("Add", ["s", "s"], ["t"]), helper.make_node("Identity", ["c"], ["d"])],
        "step",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, [3]),
        ],
        [
            helper.make_tensor_value_info("d", TensorProto.BOOL, []),
            helper.make_tensor_value_info("t", TensorProto.FLOAT, [3]),
        ],
    )
    return _saved(folder, [helper.make_node("Loop", [count, "", "x"], ["y"], body=step)], inputs, [3])


X = np.array([1, -2, 3], np.float32)


def test_a_choice_waits_for_its_condition(tmp_path: Path) -> None:
    branches = {
        "then_branch": _branch(helper.make_node("Neg", ["x"], ["p"]), "p"),
        "else_branch": _branch(helper.make_node("Exp", ["x"], ["q"]), "q"),
    }
    node = helper.make_node("If", ["c"], ["y"], **branches)
    path = _saved(tmp_path, [node], [("x", TensorProto.FLOAT, [3]), ("c", TensorProto.BOOL, [])], [3])
    made = agree(path, {"x": X, "c": np.array(False)}, checks=True)
    assert isinstance(made.code, CudaCode)
    assert ".capturable = 0," in made.code.launches


def test_a_loop_whose_length_is_an_input_waits_for_it(tmp_path: Path) -> None:
    path = _loop(tmp_path, "n", [("x", TensorProto.FLOAT, [3]), ("n", TensorProto.INT64, [])])
    made = agree(path, {"x": X, "n": np.array(4, np.int64)}, checks=True)
    assert isinstance(made.code, CudaCode)
    assert ".capturable = 0," in made.code.launches


def test_the_elements_of_a_scan_may_begin_anywhere(tmp_path: Path) -> None:
    step = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Mul", ["t", "t"], ["u"])],
        "step",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [5]) for name in ("s", "e")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [5]) for name in ("t", "u")],
    )
    node = helper.make_node("Scan", ["x", "v"], ["last", "y"], body=step, num_scan_inputs=1)
    path = _saved(tmp_path, [node], [("x", TensorProto.FLOAT, [5]), ("v", TensorProto.FLOAT, [6, 5])], [6, 5])
    rng = np.random.default_rng(2)
    made = agree(
        path,
        {"x": rng.standard_normal(5, np.float32), "v": rng.standard_normal((6, 5), np.float32)},
        checks=True,
    )
    assert isinstance(made.code, CudaCode)
    assert ".capturable = 1," in made.code.launches


def test_parts_that_begin_at_odd_positions_are_copied(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Split", ["v"], ["a", "b"], axis=0, num_outputs=2),
        helper.make_node("Exp", ["a"], ["p"]),
        helper.make_node("Neg", ["b"], ["q"]),
        helper.make_node("Concat", ["p", "q", "a"], ["y"], axis=0),
    ]
    path = _saved(tmp_path, nodes, [("v", TensorProto.FLOAT, [6, 5])], [9, 5])
    made = agree(path, {"v": np.random.default_rng(4).standard_normal((6, 5), np.float32)}, checks=True)
    assert isinstance(made.code, CudaCode)
    assert len(made.code.kernels.launches) == 2


def test_much_work_for_one_thread_is_left_to_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CudaTarget, "gpu", replace(default_gpu(80), serial_trip_count=10))
    monkeypatch.setattr(cuda, "CUDA_RULES", (FallbackRule(),))
    nodes = [
        helper.make_node("Exp", ["v"], ["e"]),
        helper.make_node("CumSum", ["e", "axis"], ["c"]),
        helper.make_node("TopK", ["c", "k"], ["t", ""], axis=1),
        helper.make_node("Neg", ["t"], ["y"]),
    ]
    known = {"axis": np.array(1, np.int64), "k": np.array([3], np.int64)}
    path = _saved(tmp_path, nodes, [("v", TensorProto.FLOAT, [4, 9])], [4, 3], known)
    made = agree(path, {"v": np.random.default_rng(6).standard_normal((4, 9), np.float32)}, checks=True)
    assert isinstance(made.code, CudaCode)
    assert "nnefc_cuda_host_step(&host_kernels[0]" in made.code.launches
    assert ".capturable = 1," in made.code.launches
