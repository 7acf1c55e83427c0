"""Results whose rank depends on sizes: dimensions of 1 that are left out, by branches or by `Squeeze` without axes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc
from nnefc.support.diagnostics import ModelWarning

RNG = np.random.default_rng(9)


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), outputs.split(), **attributes)


def squeezed(x: str, result: str, opposite: bool = False) -> list[onnx.NodeProto]:
    """`x.squeeze(1)` as PyTorch's exporters write it, perhaps with the branches exchanged."""
    branches = [
        helper.make_graph([node("Squeeze", f"{x} one", "a")], "t", [], [onnx.ValueInfoProto(name="a")]),
        helper.make_graph([node("Identity", x, "b")], "e", [], [onnx.ValueInfoProto(name="b")]),
    ]
    then, other = branches[::-1] if opposite else branches
    nodes = [node("Shape", x, f"{result}s", start=1, end=2), node("Equal", f"{result}s one", f"{result}e")]
    nodes += [node("Not", f"{result}e", f"{result}n")] if opposite else []
    condition = f"{result}n" if opposite else f"{result}e"
    return [*nodes, node("If", condition, result, then_branch=then, else_branch=other)]


def model(nodes: Sequence[onnx.NodeProto], shape: Sequence[Any], outputs: str = "y") -> onnx.ModelProto:
    """A model of one input."""
    constants = {"one": [1], "row": [-1, 4], "w": RNG.standard_normal((4, 6)).astype(np.float32), "two": np.float32(2)}
    constants["k"] = RNG.standard_normal((2, 4, 3)).astype(np.float32)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=name) for name in outputs.split()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def check(made: onnx.ModelProto, shapes: Sequence[tuple[int, ...]], **options: Any) -> None:
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        artifact = nnefc.compile(made, **options)
    with artifact.load(threads=1) as library:
        for shape in shapes:
            x = RNG.standard_normal(shape).astype(np.float32)
            for found, expected in zip(library.run({"x": x}).values(), session.run(None, {"x": x}), strict=True):
                assert np.shape(found) == expected.shape, shape
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opposite", [False, True])
@pytest.mark.sample(1)
def test_a_squeezed_dimension_is_left_out_in_runs_in_which_it_is_one(opposite: bool) -> None:
    nodes = [*squeezed("x", "y", opposite), node("Relu", "y", "z")]
    check(model(nodes, ["n", "m", 4], "y z"), [(2, 3, 4), (2, 1, 4), (5, 1, 4), (1, 1, 4), (1, 7, 4)])


def test_what_reads_a_squeezed_tensor_computes_with_its_rank() -> None:
    nodes = [
        *squeezed("x", "s"),
        node("MatMul", "s w", "p"),
        node("Mul", "s two", "d"),
        node("Reshape", "d row", "r"),
    ]
    check(model(nodes, ["n", "m", 4], "p r"), [(2, 3, 4), (2, 1, 4), (1, 1, 4)])


def test_a_size_that_is_given_has_no_other_program() -> None:
    made = model(squeezed("x", "y"), ["n", "m", 4])
    check(made, [(2, 1, 4)], shape={"m": 1})
    check(made, [(2, 2, 4), (2, 64, 4)], shape={"m": "2..64"})


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        (["n", 1], [(1, 1), (3, 1)]),
        (["n", 1, "m"], [(1, 1, 1), (1, 1, 5), (3, 1, 1), (3, 1, 5)]),
        (["n", 1, 4], [(1, 1, 4), (3, 1, 4), (0, 1, 4)]),
    ],
)
@pytest.mark.sample(1)
def test_squeeze_without_axes_leaves_out_what_is_one_in_a_run(
    shape: list[Any], sizes: Sequence[tuple[int, ...]]
) -> None:
    check(model([node("Squeeze", "x", "y")], shape), sizes)


def test_a_rank_that_what_follows_does_not_take_has_no_program() -> None:
    """A convolution of `[n, 4, 8]`, as `Squeeze` leaves `[n, 1, 4, 8]` but for a batch of one."""
    made = model([node("Squeeze", "x", "s"), node("Conv", "s k", "y")], ["n", 1, 4, 8])
    check(made, [(2, 1, 4, 8), (3, 1, 4, 8)])
