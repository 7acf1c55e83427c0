"""Programs that do the same at the same positions whatever numbers there are, which modules of WebAssembly run
early."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from small_networks import Net

import nnefc


def convolutions(net: Net) -> str:
    x = net.convolution(net.floats(1, 3, 13, 11), 3, 8, stride=2)
    return net.classified(net.do("Pad", x, net.constant(np.array([0, 0, 1, 2, 0, 0, 0, 1]))), 8)


def attention(net: Net) -> str:
    x = net.floats(1, 2, 13, 8)
    scores = net.do("MatMul", x, net.do("Transpose", x, perm=[0, 1, 3, 2]))
    return net.do("MatMul", net.do("Softmax", scores, axis=-1), x)


def rounded(net: Net) -> str:
    """Integers as values."""
    x = net.do("Cast", net.floats(1, 3, 13, 11), to=TensorProto.INT32)
    return net.do("Cast", net.do("Add", x, x), to=TensorProto.FLOAT)


def looked_up(net: Net) -> str:
    table = net.constant(np.random.default_rng(0).standard_normal((7, 5), np.float32))
    positions = net.do("ArgMax", net.floats(1, 7, 13), axis=1, keepdims=0)
    return net.do("Gather", table, positions, axis=0)


def scattered(net: Net) -> str:
    x = net.floats(5, 7)
    values, positions = net.several("TopK", 2, x, net.constant(np.array([2])), axis=1)
    return net.do("ScatterElements", x, positions, values, axis=1)


def branched(net: Net) -> str:
    x = net.floats(1, 9)
    total = net.do("Greater", net.do("ReduceSum", x, keepdims=0), net.constant(np.float32(0)))
    branches = [
        helper.make_graph(
            [helper.make_node(op, [x], [op])], op, [], [helper.make_tensor_value_info(op, TensorProto.FLOAT, [1, 9])]
        )
        for op in ("Neg", "Exp")
    ]
    return net.do("If", total, then_branch=branches[0], else_branch=branches[1])


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (convolutions, True),
        (attention, True),
        (rounded, True),
        (looked_up, False),
        (scattered, False),
        (branched, False),
    ],
)
@pytest.mark.sample(3)
def test_programs_whose_positions_and_steps_no_tensor_tells(
    write: Callable[[Net], str], expected: bool, tmp_path: Path
) -> None:
    net = Net(3)
    onnx.save(net.model([write(net)]), tmp_path / "m.onnx")
    assert nnefc.compile(tmp_path / "m.onnx", "wasm32-wasi").description.warms_up is expected


@pytest.mark.parametrize("options", [{}, {"target": "wasm32-wasi", "small": True}])
@pytest.mark.sample(1)
def test_other_libraries_do_not_run_early(options: dict[str, Any], tmp_path: Path) -> None:
    net = Net(3)
    onnx.save(net.model([convolutions(net)]), tmp_path / "m.onnx")
    assert not nnefc.compile(tmp_path / "m.onnx", **options).description.warms_up
