"""What inputs that a network uses as positions must be below: found through what moves, converts and clamps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import NodeProto, TensorProto, helper, numpy_helper
from tvm import relax

import nnefc
from nnefc.cli import main
from nnefc.driver.formats import load_network
from nnefc.ir.network import Network
from nnefc.passes.graph.index_bounds import index_limits
from nnefc.targets.description.library_file import read_metadata

TYPES = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "b": TensorProto.BOOL}


def node(op: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), output.split(), **attributes)


def saved(folder: Path, nodes: list[NodeProto], inputs: dict[str, tuple[str, list[int]]], **constants: Any) -> Path:
    """A model that returns y."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, TYPES[kind], shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info("y", TYPES["f"], None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx")
    return folder / "m.onnx"


def table(rows: int) -> np.ndarray:
    return np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)


def limits(folder: Path, nodes: list[NodeProto], inputs: dict[str, tuple[str, list[int]]], **constants: Any) -> Any:
    return index_limits(load_network(saved(folder, nodes, inputs, **constants)))


IDS = {"ids": ("i", [1, 5])}


def test_through_conversions_and_moves(tmp_path: Path) -> None:
    nodes = [
        node("Cast", "ids", "a", to=TensorProto.INT32),
        node("Transpose", "a", "b"),
        node("Concat", "b b", "c", axis=0),
        node("Slice", "c two nine", "d"),
        node("Gather", "w d", "y"),
    ]
    found = limits(tmp_path, nodes, IDS, w=table(7), two=np.array([2]), nine=np.array([9]))
    assert found == {"ids": 7}


def test_the_narrowest_use_counts_and_other_inputs_have_none(tmp_path: Path) -> None:
    nodes = [
        node("Gather", "w ids", "a"),
        node("Gather", "v ids", "b"),
        node("Cast", "mask", "m", to=TensorProto.FLOAT),
        node("Add", "a b", "c"),
        node("Mul", "c m", "y"),
    ]
    found = limits(tmp_path, nodes, IDS | {"mask": ("i", [1, 5, 1])}, w=table(9), v=table(4))
    assert found == {"ids": 4}


@pytest.mark.parametrize("op", ["GatherElements", "GatherND", "ScatterElements"])
def test_other_operators_of_positions(tmp_path: Path, op: str) -> None:
    nodes, inputs = {
        "GatherElements": ([node("GatherElements", "w ids", "y", axis=0)], {"ids": ("i", [3, 2])}),
        "GatherND": ([node("GatherND", "w ids", "y")], {"ids": ("i", [3, 1])}),
        "ScatterElements": ([node("ScatterElements", "w ids u", "y", axis=0)], {"ids": ("i", [3, 2])}),
    }[op]
    assert limits(tmp_path, nodes, inputs, w=table(6), u=table(3)) == {"ids": 6}


def test_in_the_branches_of_a_choice(tmp_path: Path) -> None:
    branches = {
        f"{name}_branch": helper.make_graph(
            [node("Gather", f"{weights} ids", f"r_{name}")],
            name,
            [],
            [helper.make_tensor_value_info(f"r_{name}", TensorProto.FLOAT, [1, 5, 2])],
        )
        for name, weights in (("then", "w"), ("else", "v"))
    }
    nodes = [helper.make_node("If", ["c"], ["y"], **branches)]
    assert limits(tmp_path, nodes, IDS | {"c": ("b", [])}, w=table(9), v=table(8)) == {"ids": 8}


def test_relax_take_and_no_integers() -> None:
    x, ids = relax.Var("x", relax.TensorType((4, 3), "float32")), relax.Var("ids", relax.TensorType((2,), "int64"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, ids]):
        with builder.dataflow():
            made = builder.emit_output(relax.Tuple([builder.emit(relax.op.take(x, ids, axis=1))]))
        builder.emit_func_output(made)
    assert index_limits(Network("n", builder.get(), ("x", "ids"), ("y",))) == {"ids": 3}


def test_random_values_are_positions_and_the_library_says_so(tmp_path: Path) -> None:
    path = saved(tmp_path, [node("Gather", "w ids", "y")], {"ids": ("i", [200])}, w=table(3))
    nnefc.compile(path).export(tmp_path / "m.so")
    metadata = read_metadata(tmp_path / "m.so")
    assert metadata is not None and metadata.description.index_limits == (("ids", 3),)
    result = CliRunner().invoke(main, ["run", str(tmp_path / "m.so"), "--random", "0", "--output", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert sorted(set(np.load(tmp_path / "y.npy")[:, 0])) == [0, 2, 4]  # all rows of the table, and no others
    assert "indices    ids: 0 to 2" in CliRunner().invoke(main, ["inspect", str(tmp_path / "m.so")]).stdout
