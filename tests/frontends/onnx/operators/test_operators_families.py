"""Operators over random shapes, axes and attributes, compared with onnxruntime; each family in one compilation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from onnx_operator_cases import SAMPLE_AND_ALL, Case, by_onnxruntime, check, compiled, sample

Cases = list[Case]
OPSET = 21


def real(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def ints(*elements: int) -> np.ndarray:
    return np.array(elements, np.int64)


def elementwise(rng: np.random.Generator) -> Cases:
    cases = []
    for op in (
        "Abs",
        "Neg",
        "Exp",
        "Tanh",
        "Sigmoid",
        "Erf",
        "Sin",
        "Cos",
        "Floor",
        "Ceil",
        "Round",
        "Sign",
        "Softsign",
    ):
        cases.append(Case(op, [real(rng, 3, 1, 17) * 2]))
    for op in ("Sinh", "Cosh", "Atan", "Asinh", "Elu", "Selu", "Celu", "Softplus", "Mish", "HardSwish", "HardSigmoid"):
        cases.append(Case(op, [real(rng, 2, 16) * 2]))
    for op, left, right in product(("Add", "Sub", "Mul", "Div", "Max", "Min"), ((3, 1, 5), (5,)), ((1, 4, 5), (4, 1))):
        cases.append(Case(op, [real(rng, *left), real(rng, *right)]))
    for dtype in ("int32", "int64"):
        a, b = (rng.integers(-50, 50, (4, 5)).astype(dtype) for _ in range(2))
        b = np.where(b == 0, 7, b).astype(dtype)
        cases += [Case(op, [a, b]) for op in ("Div", "Add", "Mul", "Max", "Min", "Mod", "Less", "Equal")]
        cases.append(Case("Mod", [a, b], {"fmod": 1}))
    cases.append(Case("Mod", [real(rng, 4, 5), real(rng, 4, 5)], {"fmod": 1}))
    cases.append(Case("Pow", [np.abs(real(rng, 3, 4)), real(rng, 4)]))
    cases += [Case("Pow", [real(rng, 3, 4), np.array([p], np.float32)], {}, frozenset({1})) for p in (1, 2, 3)]
    cases.append(Case("Where", [rng.random((3, 1)) < 0.5, real(rng, 1, 4), real(rng, 3, 4)]))
    cases.append(Case("Clip", [real(rng, 3, 4), np.array(-0.5, np.float32), np.array(0.7, np.float32)]))
    cases.append(Case("Clip", [real(rng, 3, 4), None, np.array(0.7, np.float32)], {}, frozenset({2})))
    cases += [Case(op, [real(rng, 3, 4), real(rng, 4), real(rng, 3, 1)]) for op in ("Sum", "Mean", "Max", "Min")]
    cases.append(Case("PRelu", [real(rng, 2, 3, 4), real(rng, 3, 1)]))
    cases.append(Case("Gelu", [real(rng, 3, 4)], {"approximate": "tanh"}))
    bits = rng.integers(0, 255, (9,)).astype(np.uint8)
    cases += [Case("BitShift", [bits, bits % 9 % 8], {"direction": d}) for d in ("LEFT", "RIGHT")]
    return cases


def windows(rng: np.random.Generator) -> Cases:
    cases = []
    for rank, group in product((1, 2, 3), (1, 2)):
        sizes = rng.integers(6, 10, rank).tolist()
        x, w = real(rng, 2, 4, *sizes), real(rng, 6, 4 // group, *rng.integers(1, 4, rank).tolist())
        attributes = {
            "group": group,
            "pads": rng.integers(0, 2, 2 * rank).tolist(),
            "strides": rng.integers(1, 3, rank).tolist(),
            "dilations": rng.integers(1, 3, rank).tolist(),
        }
        cases.append(Case("Conv", [x, w, real(rng, 6)], attributes, frozenset({1, 2})))
        cases.append(Case("Conv", [x, w], {"group": group, "auto_pad": "SAME_LOWER"}))
        transposed = real(rng, 4, 3, *[3] * rank)
        cases.append(
            Case("ConvTranspose", [x, transposed], {"group": group, "strides": [2] * rank, "pads": [1] * 2 * rank})
        )
        if group == 2:
            continue  # poolings have no groups
        pool = {"kernel_shape": [3] * rank, "strides": [2] * rank, "pads": [1] * 2 * rank}
        cases.append(Case("MaxPool", [x], pool))
        cases.append(Case("MaxPool", [x], {**pool, "ceil_mode": 1}, outputs=2))
        cases.append(Case("AveragePool", [x], {**pool, "count_include_pad": 1}))
        cases.append(Case("AveragePool", [x], {**pool, "ceil_mode": 1}))
        cases.append(Case("LpPool", [x], {**pool, "p": 2}))
        smaller = real(rng, 1, 2, *[2] * rank)  # than the window, which is a last one that is not whole
        alone = {"kernel_shape": [3] * rank, "strides": [2] * rank, "ceil_mode": 1}
        cases.append(Case("MaxPool", [smaller], alone, outputs=2))
        cases += [Case("AveragePool", [smaller], {**alone, "count_include_pad": count}) for count in (0, 1)]
        cases.append(Case("LpPool", [smaller], {**alone, "p": 2}))
    pooled, positions = real(rng, 2, 1, 2, 2), ints(0, 7, 14, 11, 21, 18, 24, 31).reshape(2, 1, 2, 2)
    pooled[0, 0, 0, 1] = -np.inf
    cases.append(Case("MaxUnpool", [pooled, positions], {"kernel_shape": [2, 2], "strides": [2, 2]}))
    cases += [Case(op, [real(rng, 2, 3, 5, 4)]) for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")]
    return cases


def matrices(rng: np.random.Generator) -> Cases:
    cases = []
    for a, b in (((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((4,), (4, 5)), ((3, 4), (4,))):
        cases.append(Case("MatMul", [real(rng, *a), real(rng, *b)]))
        cases.append(Case("MatMul", [real(rng, *a), real(rng, *b)], {}, frozenset({1})))
    for a, b in product((0, 1), (0, 1)):
        left, right = real(rng, *((4, 3) if a else (3, 4))), real(rng, *((5, 4) if b else (4, 5)))
        attributes = {"transA": a, "transB": b, "alpha": 0.5, "beta": 2.0}
        cases.append(Case("Gemm", [left, right, real(rng, 5)], attributes, frozenset({1, 2})))
        cases.append(Case("Gemm", [left, right, real(rng, 3, 1)], attributes))
    for equation, shapes in (
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("...ij,jk", [(2, 2, 3, 4), (4, 5)]),
        ("ii->i", [(4, 4)]),
        ("ij->", [(3, 4)]),
        ("bhid,bhjd->bhij", [(2, 2, 3, 4), (2, 2, 5, 4)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ebj,eji,be->bi", [(2, 3, 4), (2, 4, 5), (3, 2)]),
        ("ij,jk,kl,lm->im", [(2, 7), (7, 3), (3, 6), (6, 2)]),
        ("...ij,jk,i->...k", [(2, 3, 4), (4, 5), (3,)]),
        ("ii,ij,j->", [(3, 3), (3, 4), (4,)]),
    ):
        cases.append(Case("Einsum", [real(rng, *shape) for shape in shapes], {"equation": equation}))
    cases += [
        Case("Trilu", [real(rng, 2, 4, 5), ints(k).reshape(())], {"upper": u}, frozenset({1}))
        for k, u in ((1, 1), (-1, 0))
    ]
    cases.append(Case("Det", [real(rng, 3, 4, 4)]))
    return cases


def reductions(rng: np.random.Generator) -> Cases:
    cases = []
    names = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp")
    for name, (axes, keep) in product(names, (((1,), 1), ((0, -1), 0), ((), 1))):
        given = [ints(*axes)] if axes else []
        cases.append(Case(f"Reduce{name}", [real(rng, 3, 4, 5), *given], {"keepdims": keep}, frozenset({1})))
    for axis, last in product((0, -1), (0, 1)):
        x = rng.integers(0, 3, (4, 6)).astype(np.float32)
        cases += [Case(op, [x], {"axis": axis, "select_last_index": last}) for op in ("ArgMax", "ArgMin")]
        cases += [Case(op, [real(rng, 4, 6)], {"axis": axis}) for op in ("Softmax", "LogSoftmax", "Hardmax")]
    for reverse, exclusive in product((0, 1), (0, 1)):
        attributes = {"reverse": reverse, "exclusive": exclusive}
        cases.append(Case("CumSum", [real(rng, 3, 7), ints(1).reshape(())], attributes, frozenset({1})))
    for largest, k, axis in ((1, 3, -1), (0, 7, 1), (1, 1, 0)):
        x = rng.integers(0, 9, (4, 7)).astype(np.float32)
        attributes = {"axis": axis, "largest": largest}
        cases.append(Case("TopK", [x, ints(k)], attributes, frozenset({1}), outputs=2))
    return cases


def shapes(rng: np.random.Generator) -> Cases:
    x = real(rng, 2, 3, 4, 6)

    def fixed(op: str, *inputs: np.ndarray | None, outputs: int = 1, **attributes: object) -> Case:
        return Case(op, [x, *inputs], attributes, frozenset(range(1, len(inputs) + 1)), outputs)

    cases = [
        fixed("Reshape", ints(0, -1, 2)),
        fixed("Transpose", perm=[2, 0, 3, 1]),
        fixed("Flatten", axis=2),
        fixed("Unsqueeze", ints(0, -1)),
        fixed("Slice", ints(1, -1), ints(-1, -9), ints(2, 3), ints(1, -2)),
        fixed("Split", ints(1, 2), axis=1, outputs=2),
        fixed("Split", axis=1, num_outputs=2, outputs=2),
        fixed("Tile", ints(1, 2, 1, 3)),
        fixed("Expand", ints(2, 1, 3, 1, 1)),
        fixed("DepthToSpace", blocksize=1),
        fixed("SpaceToDepth", blocksize=2),
        fixed("Gather", ints(1, -1, 0), axis=2),
        fixed("Shape", start=1),
    ]
    for mode in ("constant", "reflect", "edge", "wrap"):
        cases.append(fixed("Pad", ints(0, 1, 2, 1, 0, 1, 0, 3), mode=mode))
    cases.append(fixed("Pad", ints(-1, 2), np.array(5, np.float32), ints(3)))
    depth = real(rng, 1, 8, 2, 3)
    cases += [Case("DepthToSpace", [depth], {"blocksize": 2, "mode": mode}) for mode in ("DCR", "CRD")]
    cases.append(Case("Concat", [real(rng, 2, 3), real(rng, 2, 1), real(rng, 2, 4)], {"axis": -1}))
    cases.append(Case("GatherElements", [real(rng, 3, 4), rng.integers(-3, 3, (2, 4))], {"axis": 0}))
    cases.append(Case("GatherND", [real(rng, 2, 3, 4), rng.integers(-3, 3, (2, 5, 1))], {"batch_dims": 1}))
    cases.append(Case("ScatterND", [real(rng, 4, 3), rng.permutation(4)[:2, None], real(rng, 2, 3)]))
    cases.append(Case("OneHot", [rng.integers(-4, 4, (3,)), ints(4), real(rng, 2)], {}, frozenset({1})))
    cases.append(Case("ReverseSequence", [real(rng, 5, 3), ints(2, 5, 1)], {"time_axis": 0, "batch_axis": 1}))
    return cases


def normalizations(rng: np.random.Generator) -> Cases:
    x, vector = real(rng, 2, 4, 5, 3), [real(rng, 4) for _ in range(3)]
    variance = np.abs(real(rng, 4)) + 0.5
    return [
        Case("BatchNormalization", [x, *vector, variance], {}, frozenset({1, 2, 3, 4})),
        Case("BatchNormalization", [x, *vector, variance], {"epsilon": 0.1}),
        Case("BatchNormalization", [x[0, :, 0, 0], *(each[:1] for each in (*vector, variance))]),
        Case("InstanceNormalization", [x, *vector[:2]]),
        Case("LayerNormalization", [x, real(rng, 5, 3), real(rng, 5, 3)], {"axis": 2}, outputs=3),
        Case("LayerNormalization", [x, real(rng, 3)], {"epsilon": 0.1}),
        Case("GroupNormalization", [x, *vector[:2]], {"num_groups": 2}),
        Case("LRN", [x], {"size": 3, "alpha": 0.1}),
        Case("LpNormalization", [x], {"axis": 1, "p": 1}),
        Case("MeanVarianceNormalization", [x]),
        Case("Dropout", [x]),
    ]


def recurrent(rng: np.random.Generator) -> Cases:
    cases = []
    for (op, gates), direction in product(
        (("RNN", 1), ("GRU", 3), ("LSTM", 4)), ("forward", "reverse", "bidirectional")
    ):
        count, time, batch, width, hidden = 2 if direction == "bidirectional" else 1, 4, 3, 5, 6
        inputs: list[np.ndarray | None] = [
            real(rng, time, batch, width),
            real(rng, count, gates * hidden, width),
            real(rng, count, gates * hidden, hidden),
            real(rng, count, 2 * gates * hidden),
            np.array([4, 2, 3], np.int32),
            real(rng, count, batch, hidden),
        ]
        outputs = 2
        if op == "LSTM":
            inputs += [real(rng, count, batch, hidden), real(rng, count, 3 * hidden)]
            outputs = 3
        extra = {"clip": 1.5} if op == "LSTM" else {"linear_before_reset": 1} if op == "GRU" else {}
        attributes = {"direction": direction, "hidden_size": hidden}
        constant = frozenset({1, 2, 3} if direction == "forward" else ())
        cases.append(Case(op, inputs, attributes, constant, outputs))
        cases.append(Case(op, inputs[:4], {**attributes, **extra}, constant, outputs))
    return cases


def images(rng: np.random.Generator) -> Cases:
    x = real(rng, 1, 2, 5, 6)
    cases = []
    modes = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    for mode, coordinates in product(("nearest", "linear", "cubic"), modes):
        attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
        if coordinates != "align_corners":  # onnxruntime rounds the scaled length first, the reference does not
            scales = np.array([1, 1, 1.7, 0.6], np.float32)
            cases.append(Case("Resize", [x, None, scales], attributes, frozenset({2})))
        cases.append(Case("Resize", [x, None, None, ints(1, 2, 3, 11)], attributes, frozenset({3})))
    cases.append(
        Case(
            "Resize",
            [x, None, np.array([1, 1, 0.6, 0.5], np.float32)],
            {"mode": "linear", "antialias": 1},
            frozenset({2}),
        )
    )
    grid = (rng.random((1, 4, 3, 2)) * 2.4 - 1.2).astype(np.float32)
    for mode, padding, aligned in product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (0, 1)):
        attributes = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
        cases.append(Case("GridSample", [x, grid], attributes))
    rois, batches = np.array([[0, 0, 4, 4], [1, 0.5, 5, 3]], np.float32), ints(0, 0)
    # onnxruntime warns that its maximum over several samples is wrong.
    attributes = {"mode": "avg", "output_height": 2, "output_width": 3, "sampling_ratio": 2}
    cases.append(Case("RoiAlign", [x, rois, batches], attributes))
    cases.append(Case("RoiAlign", [x, rois, batches], {**attributes, "sampling_ratio": 0, "spatial_scale": 0.5}))
    beyond = np.array([[-30, -20, 60, 50], [2, 1, 300, 2], [4, 3, 1, 1]], np.float32)
    for half_pixel in ("half_pixel", "output_half_pixel"):
        given = {**attributes, "sampling_ratio": 0, "coordinate_transformation_mode": half_pixel}
        cases.append(Case("RoiAlign", [x, beyond, ints(0, 0, 0)], given))
    whole = np.array([[0, 0, 0, 3, 4], [0, 2.4, 1.6, 11, 3], [0, -3, 2, 1, 2], [0, 7, 7, 9, 9]], np.float32)
    cases.append(Case("MaxRoiPool", [x, whole], {"pooled_shape": [2, 3]}))
    cases.append(Case("MaxRoiPool", [x, whole * 2], {"pooled_shape": [3, 7], "spatial_scale": 0.25}))
    return cases


def signals(rng: np.random.Generator) -> Cases:
    def number(value: int | None) -> np.ndarray | None:
        return None if value is None else ints(value).reshape(())

    x, spectrum = real(rng, 2, 7, 5, 1), real(rng, 2, 7, 5, 2)
    cases = [
        Case("DFT", [x, number(length), number(axis)], {"onesided": onesided}, frozenset({1, 2}))
        for length, axis, onesided in ((None, 1, 0), (6, 1, 1), (9, -2, 1), (4, -2, 0))
    ]
    cases += [
        Case("DFT", [spectrum, None, number(axis)], {"inverse": inverse}, frozenset({2}))
        for axis, inverse in ((1, 1), (2, 0))
    ]
    for onesided, window in product((0, 1), (None, real(rng, 6))):
        operands = [real(rng, 2, 20, 1), number(3), window, None if window is not None else number(6)]
        cases.append(Case("STFT", operands, {"onesided": onesided}, frozenset({1, 3})))
    return cases


@SAMPLE_AND_ALL
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.uint8])
@pytest.mark.sample(1)
def test_the_largest_and_smallest_of_a_line_are_as_numpy_sorts_them(dtype: type[np.generic], whole: bool) -> None:
    """NaN is larger than all numbers; of equal elements the first comes first."""
    rng = np.random.default_rng(2)
    x = rng.integers(0, 9, (3, 50)).astype(dtype)
    if x.dtype.kind == "f":
        x[rng.random(x.shape) < 0.2] = np.nan
    cases = [
        Case("TopK", [x, ints(k)], {"largest": largest}, frozenset({1}), outputs=2)
        for largest, k in (product((0, 1), (1, 2, 7, 50)) if whole else ((0, 1), (1, 7), (0, 50)))
    ]
    keys = np.where(np.isnan(x), 10, x).astype(np.float64)
    wanted = []
    for case in cases:
        given = case.inputs[1]
        assert given is not None
        order = np.argsort(-keys if case.attributes["largest"] else keys, kind="stable")[:, : given[0]]
        wanted.append([np.take_along_axis(x, order, 1), order])
    check(cases, compiled(cases, OPSET), wanted)


FAMILIES = [signals, windows, reductions, elementwise, shapes, normalizations, recurrent, images, matrices]
"""`tests/operators/test_every_operator.py` computes each operator in any case; `make test` takes the first and last."""


def some_of(family: Callable[[np.random.Generator], Cases], seed: int, whole: bool) -> Cases:
    cases = family(np.random.default_rng(seed))
    return [cases[index] for index in sample(cases, whole)]


@SAMPLE_AND_ALL
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
@pytest.mark.sample(2)
def test_a_family_of_operators_agrees_with_onnxruntime(
    family: Callable[[np.random.Generator], Cases], whole: bool
) -> None:
    cases = some_of(family, 0, whole)
    check(cases, compiled(cases, OPSET), by_onnxruntime(cases, OPSET), tolerance=2e-4)


@SAMPLE_AND_ALL
@pytest.mark.parametrize("family", [shapes, elementwise, matrices, reductions], ids=lambda family: family.__name__)
@pytest.mark.sample(1)
def test_constants_give_the_same_as_values_of_the_run(
    family: Callable[[np.random.Generator], Cases], whole: bool
) -> None:
    cases = some_of(family, 1, whole)
    fixed = [replace(case, constant=frozenset(range(len(case.inputs)))) for case in cases]
    check(cases, compiled(fixed, OPSET), by_onnxruntime(cases, OPSET), tolerance=2e-4)
