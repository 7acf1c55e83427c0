"""What moves elements: of arrays at compile time and of expressions, by one shape rule, as NumPy does it."""

from __future__ import annotations

import numpy as np
import pytest
from relax_programs import Case, Graph, Value, build, summary, target
from tvm import relax, tirx
from virtual_machine import run_in_virtual_machine

from nnefc.operators.base import Emitter, Operator, shape_of
from nnefc.operators.nn.contributed import CropAndResize
from nnefc.operators.nn.experts import MixtureOfExperts
from nnefc.operators.nn.training import Momentum
from nnefc.operators.tensor.channel_shuffles import ChannelShuffle, DepthToSpace, SpaceToDepth
from nnefc.operators.tensor.concatenation import Concat, Split, Stack, Unstack
from nnefc.operators.tensor.indexing import AdvancedIndex, Gather, GatherElements, OneHot, ReverseSequence
from nnefc.operators.tensor.scatter import TensorScatter
from nnefc.operators.tensor.shape import (
    Diagonal,
    Expand,
    RepeatElements,
    Reshape,
    Roll,
    Slice,
    Squeeze,
    Tile,
    Transpose,
    Unsqueeze,
)
from nnefc.passes.graph.algorithms.fast_algorithms import FastAlgorithms
from nnefc.passes.graph.layout.assign_layouts import assign_layouts
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Range, Size, ranges

RNG = np.random.default_rng(7)
X = RNG.standard_normal((3, 4, 6)).astype(np.float32)
Y = RNG.standard_normal((3, 5, 6)).astype(np.float32)
IMAGE = RNG.standard_normal((2, 8, 3, 5)).astype(np.float32)
MATRIX = RNG.standard_normal((4, 7)).astype(np.float32)
INDICES = np.array([[5, -1], [2, 9]])
HOT = np.full((2, 6, 2), 2.0)
HOT[0, 5] = HOT[1, 2, 0] = 7.0  # 9 has no position

MOVEMENTS: list[tuple[Operator, tuple[np.ndarray, ...], np.ndarray]] = [
    (Reshape((2, -1, 3)), (X,), X.reshape(2, -1, 3)),
    (Unsqueeze((0, 2)), (X,), X[None, :, None]),
    (Squeeze((1,)), (X[:, 2:3],), X[:, 2]),
    (Transpose((2, 0, 1)), (X,), X.transpose(2, 0, 1)),
    (Transpose((0, 1, 2)), (X,), X),
    (Slice({1: (1, 2, 2)}), (X,), X[:, 1:4:2]),
    (Slice({0: (2, 3, -1), 2: (5, 3, -2), 1: (0, 2, 1)}), (X,), X[::-1, :2, 5::-2]),
    (Slice({1: (3, 1, -1)}), (X,), X[:, 3:]),
    (Slice({1: (2, 0, 1)}), (X,), X[:, :0]),
    (Tile((1, 3, 2)), (X,), np.tile(X, (1, 3, 2))),
    (Tile((1, 0, 2)), (X,), np.tile(X, (1, 0, 2))),
    (RepeatElements(3, 1), (X,), np.repeat(X, 3, 1)),
    (Expand((2, 3, 4, 6)), (X[:, :1],), np.broadcast_to(X[:, :1], (2, 3, 4, 6))),
    (Roll((0, 5, -2)), (X,), np.roll(X, (0, 5, -2), (0, 1, 2))),
    (Diagonal(2), (MATRIX,), np.diagonal(MATRIX, 2)),
    (Diagonal(-3), (MATRIX,), np.diagonal(MATRIX, -3)),
    (Diagonal(-1), (MATRIX.T,), np.diagonal(MATRIX.T, -1)),
    (DepthToSpace(2), (IMAGE,), IMAGE.reshape(2, 2, 2, 2, 3, 5).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 10)),
    (SpaceToDepth(2), (MATRIX[None, None, :, :6],),
     MATRIX[:, :6].reshape(2, 2, 3, 2).transpose(1, 3, 0, 2).reshape(1, 4, 2, 3)),
    (ChannelShuffle(4), (IMAGE,), IMAGE[:, [0, 2, 4, 6, 1, 3, 5, 7]]),
    (Concat(1), (X, Y, X), np.concatenate([X, Y, X], 1)),
    (Concat(1), (X[:, :0], Y), Y),
    (Stack(1), (X, -X), np.stack([X, -X], 1)),
    (Gather(1, "clip"), (X, INDICES), X[:, [[3, 0], [2, 3]]]),
    (Gather(1, "wrap"), (X, INDICES.astype(np.int32)), np.take(X, INDICES, 1, mode="wrap")),
    (GatherElements(0, "clip"), (MATRIX, INDICES), MATRIX[[[3, 0], [2, 3]], [[0, 1]]]),
]  # fmt: skip

MIXED: list[tuple[Operator, tuple[np.ndarray, ...], np.ndarray]] = [
    (AdvancedIndex((0, 2)), (X, INDICES[:, :1] - 4, INDICES[0]), X[[[1], [1]], :, [[5, 5], [5, 5]]]),
    (AdvancedIndex((1, 2)), (X, INDICES[:1] - 2, INDICES), X[:, [[3, 1], [3, 1]], [[5, 5], [2, 5]]]),
    (OneHot(6, 1), (np.array([2.0, 7.0], np.float32), INDICES), HOT),
    (ReverseSequence(1, 0), (X, np.array([4, 2, 0])), np.stack([X[0, ::-1], X[1, [1, 0, 2, 3]], X[2]])),
]  # fmt: skip


def computed(cases: list[tuple[Operator, tuple[np.ndarray, ...], np.ndarray]]) -> list[np.ndarray]:
    """The results of operators on tensors that are known at run time, in one program."""
    arrays = [array for _, operands, _ in cases for array in operands]
    params = [relax.Var(f"p{i}", relax.TensorType(array.shape, str(array.dtype))) for i, array in enumerate(arrays)]
    builder, tail = relax.BlockBuilder(), iter(params)
    with builder.function("main", params):
        with builder.dataflow():
            ctx = Emitter(builder)
            ctx.hint = "moved"
            made = [ctx.apply(operator, *(next(tail) for _ in operands)) for operator, operands, _ in cases]
            result = builder.emit_output(relax.Tuple([ctx.expr(operand) for operand in made]))
        builder.emit_func_output(result)
    return run_in_virtual_machine(builder.finalize(), arrays)


def test_expressions_agree_with_numpy_and_with_the_shape_rule() -> None:
    cases = MOVEMENTS + MIXED
    for (operator, operands, expected), found in zip(cases, computed(cases), strict=True):
        np.testing.assert_array_equal(found, expected, err_msg=str(operator))
        assert operator.shape(*(array.shape for array in operands)) == expected.shape, operator


@pytest.mark.parametrize(("operator", "operands", "expected"), MOVEMENTS, ids=lambda element: type(element).__name__)
def test_arrays_stay_arrays(operator: Operator, operands: tuple[np.ndarray, ...], expected: np.ndarray) -> None:
    made = operator.lower(Emitter(relax.BlockBuilder()), *operands)
    assert isinstance(made, np.ndarray)
    np.testing.assert_array_equal(made, expected)


def test_parts_of_arrays_and_of_expressions_are_numpys() -> None:
    expected = [*np.split(X, [1, 4], 2), *X.transpose(1, 0, 2)]
    ctx = Emitter(relax.BlockBuilder())
    found = [*Split(2, (1, 3, 2)).lower(ctx, X), *Unstack(1).lower(ctx, X)]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    parts = Split(2, (1, 3, 2)).shape(X.shape) + Unstack(1).shape(X.shape)
    assert parts == tuple(array.shape for array in expected)


@pytest.mark.parametrize(
    ("operator", "shapes", "message"),
    [
        (Reshape((5, -1)), [(2, 3)], "cannot take the shape"),
        (Reshape((-1, -1)), [(2, 3)], "cannot take the shape"),
        (Squeeze((0,)), [(2, 1)], "only dimensions of size 1"),
        (Transpose((0, 0)), [(2, 3)], "not a permutation"),
        (Expand((3,)), [(2,)], "cannot be expanded"),
        (Tile((1 << 31, 2)), [(2, 3)], "a tensor may have"),
        (Concat(0), [(2, 3), (2, 4)], "must agree"),
        (Slice({1: (1, 3, 1)}), [(2, 3)], "no positions from 1 to 3"),
        (Slice({0: (1, 3, -1)}), [(2, 3)], "no positions from 1 to -1"),
        (Split(0, (1, 2)), [(2, 3)], "cannot be split"),
        (DepthToSpace(3), [(1, 4, 2, 2)], "blocks of 3"),
        (Gather(0), [(0, 3), (2,)], "nothing to take"),
        (GatherElements(0), [(4, 3), (2, 4)], "do not fit"),
        (OneHot(3, 0), [(1,), (4,)], "are not two"),
        (TensorScatter(1), [(2, 4, 3), (1, 2, 3)], "does not fit"),
        (TensorScatter(1), [(2, 4, 3), (2, 2, 3), (1,)], "not one for each batch element"),
        (Momentum(0.0, 0.9, 1.0, False), [(), (), (2, 3), (2, 4), (2, 3)], r"other shapes: \[2, 4\], \[2, 3\]"),
        (MixtureOfExperts(2, "relu"), [(5, 4), (5, 4), (3, 8, 4)], "not those of the 4 experts"),
        (CropAndResize((2, 2)), [(1, 3, 8, 8), (2, 4), ()], "do not fit"),
    ],
)
def test_what_does_not_fit_is_refused(operator: Operator, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        operator.shape(*shapes)


def test_indices_of_a_byte_reach_the_end_of_a_longer_dimension() -> None:
    table = np.arange(300)
    made = Gather().lower(Emitter(relax.BlockBuilder()), table, np.array([-1, 100], np.int8))
    np.testing.assert_array_equal(made, [299, 100])


def test_chosen_channels_stay_in_the_layout_of_convolutions() -> None:
    weights = RNG.standard_normal((16, 16, 1, 1)).astype(np.float32)
    order = RNG.permutation(16)

    def make(graph: Graph, x: Value) -> Value:
        inner = graph.convolve(x, weights)
        ctx = Emitter(graph._builder)
        ctx.hint = "chosen"
        chosen = graph.emit(Gather(1).lower(ctx, inner.expr, order - 16), inner.array[:, order])
        return graph.convolve(chosen, weights)

    case = Case([RNG.standard_normal((1, 16, 4, 4)).astype(np.float32)], make)
    after = summary(assign_layouts(build([case]).network.module, target("llvm -mcpu=x86-64-v3"), FastAlgorithms()))
    assert (after.count(" block("), after.count("unblock(")) == (1, 1)


def test_slices_of_dynamic_sizes_have_the_sizes_that_they_are_reported_to_have() -> None:
    n = tirx.Var("n", "int64")
    with ranges({n: Range(1, 1000, 64)}):
        size, builder = Size(n), relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((n,), "float32"))
        parts = [(size % 7, size - size % 7, 1), (size - size % 7, size % 7, 1), (0, (size + 1) // 2, 2)]
        with builder.function("main", [x]):
            with builder.dataflow():
                made = [builder.emit_output(Slice({0: part}).lower(Emitter(builder), x)) for part in parts]
            builder.emit_func_output(made)
        assert [shape_of(result) for result in made] == [(count,) for _, count, _ in parts]
        assert "if_then_else" not in str(builder.get())
