"""ConvInteger and its kin: exact in integers, whatever the types and zero points."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from exact_products import EXACT_PRODUCTS
from onnx_operator_cases import SAMPLE_AND_ALL, Case, by_onnxruntime, by_reference, check, compiled, sample

from nnefc.support.diagnostics import CompileError


def whole_range(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def conv_integer(
    x: np.ndarray,
    w: np.ndarray,
    x_zero: int,
    w_zero: np.ndarray,
    pads: list[int],
    strides: list[int],
    dilations: list[int],
    group: int,
) -> np.ndarray:
    """The sum of products, element by element, in Python's integers."""
    rank = x.ndim - 2
    centred = x.astype(np.int64) - x_zero
    weights = w.astype(np.int64) - np.reshape(w_zero.astype(np.int64), (-1, *[1] * (rank + 1)))
    padded = np.pad(centred, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    sizes = [(e - r) // s + 1 for e, r, s in zip(padded.shape[2:], reach, strides, strict=True)]
    result = np.zeros((x.shape[0], w.shape[0], *sizes), np.int64)
    inputs, filters = w.shape[1], w.shape[0] // group
    for o in range(w.shape[0]):
        channels = padded[:, o // filters * inputs : (o // filters + 1) * inputs]
        for position in np.ndindex(*sizes):
            starts = [p * s for p, s in zip(position, strides, strict=True)]
            part = tuple(slice(b, b + r, d) for b, r, d in zip(starts, reach, dilations, strict=True))
            result[(slice(None), o, *position)] = (channels[(slice(None), slice(None), *part)] * weights[o]).sum(
                axis=tuple(range(1, rank + 2))
            )
    return result.astype(np.int32)


@SAMPLE_AND_ALL
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.sample(1)
def test_convolutions_of_integers_are_exact_in_every_mix_of_types(rank: int, whole: bool) -> None:
    rng = np.random.default_rng(rank)
    cases, wanted = [], []
    for x_type, w_type, per_channel, group in product(("int8", "uint8"), ("int8", "uint8"), (False, True), (1, 2)):
        x = whole_range(rng, (2, 4, *(rng.integers(5, 8, rank))), x_type)
        w = whole_range(rng, (6, 4 // group, *(rng.integers(1, 4, rank))), w_type)
        x_zero = whole_range(rng, (), x_type)
        w_zero = whole_range(rng, (6,) if per_channel else (), w_type)
        pads, strides = rng.integers(0, 3, 2 * rank).tolist(), rng.integers(1, 3, rank).tolist()
        dilations = rng.integers(1, 3, rank).tolist()
        attributes = {"pads": pads, "strides": strides, "dilations": dilations, "group": group}
        # Filters are constants in one half, inputs of the network in the other.
        constant = frozenset({1, 3} if group == 1 else ())
        cases.append(Case("ConvInteger", [x, w, np.array(x_zero), np.array(w_zero)], attributes, constant))
        wanted.append([conv_integer(x, w, int(x_zero), np.array(w_zero), pads, strides, dilations, group)])
    chosen = sample(cases, whole)
    cases, wanted = [cases[index] for index in chosen], [wanted[index] for index in chosen]
    check(cases, compiled(cases, 10), wanted)


def test_zero_points_may_be_left_out() -> None:
    rng = np.random.default_rng(4)
    x, w = whole_range(rng, (1, 2, 5, 5), "uint8"), whole_range(rng, (3, 2, 2, 2), "int8")
    zero = np.array(7, np.uint8)
    none = np.zeros((), np.int8)
    defaults = {"pads": [0] * 4, "strides": [1, 1], "dilations": [1, 1], "group": 1}
    cases = [Case("ConvInteger", [x, w]), Case("ConvInteger", [x, w, zero]), Case("ConvInteger", [x, w, None, none])]
    wanted = [[conv_integer(x, w, z, none, **defaults)] for z in (0, 7, 0)]
    check(cases, compiled(cases, 10), wanted)


@SAMPLE_AND_ALL
def test_automatic_padding_is_worth_the_zero_point(whole: bool) -> None:
    rng = np.random.default_rng(5)
    cases, wanted = [], []
    for auto, stride, kernel, size in product(("SAME_UPPER", "SAME_LOWER", "VALID"), (1, 2), (2, 3), (5, 6)):
        x, w = whole_range(rng, (1, 2, size, size), "uint8"), whole_range(rng, (2, 2, kernel, kernel), "uint8")
        zero = whole_range(rng, (), "uint8")
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0) if auto != "VALID" else 0
        before = total // 2 if auto == "SAME_UPPER" else total - total // 2
        pads = [before, before, total - before, total - before]
        cases.append(Case("ConvInteger", [x, w, np.array(zero)], {"auto_pad": auto, "strides": [stride, stride]}))
        none = np.zeros((), np.uint8)
        wanted.append([conv_integer(x, w, int(zero), none, pads, [stride, stride], [1, 1], 1)])
    chosen = range(len(cases)) if whole else range(0, len(cases), 5)  # each padding, stride and kernel
    cases, wanted = [cases[index] for index in chosen], [wanted[index] for index in chosen]
    check(cases, compiled(cases, 10), wanted)


@pytest.mark.parametrize(
    ("x", "w", "x_zero", "w_zero", "attributes", "message"),
    [
        ((1, 3, 5, 5), (2, 2, 3, 3), (), (), {}, "does not fit the input"),
        ((1, 2, 5, 5), (2, 2, 3, 3), (2,), (), {}, "not that of a scalar"),
        ((1, 2, 5, 5), (2, 2, 3, 3), (), (3,), {}, r"should be a scalar or \[2\]"),
        ((1, 2, 5, 5), (2, 2, 3, 3), (), (), {"kernel_shape": [2, 2]}, "'kernel_shape' is"),
        ((1, 2, 5, 5), (2, 2, 3, 3), (), (), {"auto_pad": "SAME"}, "'auto_pad' is 'SAME'"),
        ((1, 2, 5, 5), (2, 2, 3, 3), (), (), {"strides": [0, 1]}, "below 1"),
        ((1, 2, 2, 2), (2, 2, 3, 3), (), (), {}, "the window covers 3 positions"),
    ],
)
def test_what_does_not_fit_is_refused(
    x: tuple[int, ...],
    w: tuple[int, ...],
    x_zero: tuple[int, ...],
    w_zero: tuple[int, ...],
    attributes: dict[str, object],
    message: str,
) -> None:
    arrays = [np.zeros(shape, np.uint8) for shape in (x, w, x_zero, w_zero)]
    with pytest.raises(CompileError, match=message):
        compiled([Case("ConvInteger", arrays, attributes)], 10)


def test_integer_matrix_products_are_exact() -> None:
    rng = np.random.default_rng(6)
    cases, exact = [], []
    for a_type, b_type in product(("uint8", "int8"), ("uint8", "int8")):
        a, b = whole_range(rng, (2, 3, 7), a_type), whole_range(rng, (2, 7, 5), b_type)
        points = whole_range(rng, (), a_type), whole_range(rng, (), b_type)
        cases.append(Case("MatMulInteger", [a, b, *points]))
        cases.append(Case("MatMulInteger", [a[0], b[0]]))
        wide = a.astype(np.int32), b.astype(np.int32)
        exact += [
            [(wide[0] - points[0].astype(np.int32)) @ (wide[1] - points[1].astype(np.int32))],
            [wide[0][0] @ wide[1][0]],
        ]
    check(cases, compiled(cases, 10), exact)  # onnxruntime saturates some of these sums on AVX2


def test_zero_points_of_rows_and_columns() -> None:
    rng = np.random.default_rng(7)
    a, b = whole_range(rng, (3, 7), "uint8"), whole_range(rng, (7, 5), "int8")
    rows, columns = whole_range(rng, (3,), "uint8"), whole_range(rng, (5,), "int8")
    wanted = (a.astype(np.int32) - rows[:, None].astype(np.int32)) @ (b.astype(np.int32) - columns.astype(np.int32))
    cases = [Case("MatMulInteger", [a, b, rows, columns])]
    check(cases, compiled(cases, 10), [[wanted]])


@EXACT_PRODUCTS
def test_quantized_convolutions_and_products_agree_with_the_reference() -> None:
    rng = np.random.default_rng(8)

    def scale(*shape: int) -> np.ndarray:
        return np.asarray(rng.random(shape) * 0.02 + 0.005, np.float32)

    def zero(dtype: str, *shape: int) -> np.ndarray:
        return np.asarray(rng.integers(0, 20, shape), dtype)

    x, w, bias = (
        whole_range(rng, (2, 4, 7, 6), "uint8"),
        whole_range(rng, (6, 2, 3, 3), "int8"),
        rng.integers(-500, 500, 6),
    )
    conv = [
        x,
        scale(),
        zero("uint8"),
        w,
        scale(6),
        np.zeros(6, np.int8),
        np.asarray(scale() * 50),
        zero("uint8"),
        bias.astype(np.int32),
    ]
    a, b = whole_range(rng, (2, 3, 8), "uint8"), whole_range(rng, (2, 8, 5), "uint8")
    product_ = [a, scale(), zero("uint8"), b, scale(), zero("uint8"), np.asarray(scale() * 50), zero("uint8")]
    cases = [
        Case("QLinearConv", conv, {"group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]}),
        Case("QLinearMatMul", product_),
    ]
    found, wanted = compiled(cases, 10), by_onnxruntime(cases, 10)
    for one, other in zip(found, wanted, strict=True):
        # Both round real quotients: they may differ where one lies on the border of two integers.
        assert np.abs(one[0].astype(int) - other[0].astype(int)).max() <= 1
        assert (one[0] != other[0]).mean() < 0.01


@SAMPLE_AND_ALL
def test_quantization_per_tensor_axis_and_block_agrees_with_the_reference(whole: bool) -> None:
    rng = np.random.default_rng(9)
    x = (rng.standard_normal((3, 4, 6)) * 4).astype(np.float32)
    cases = []
    for dtype in ("int8", "uint8", "int16", "uint16"):
        whole = [x, np.float32(0.03), np.array(3, dtype)]
        cases.append(Case("QuantizeLinear", [np.asarray(element) for element in whole]))
        axis = [x, (rng.random(4) * 0.1 + 0.01).astype(np.float32), rng.integers(0, 9, 4).astype(dtype)]
        cases.append(Case("QuantizeLinear", axis, {"axis": -2}))
        blocks = (rng.random((3, 4, 3)) * 0.1 + 0.01).astype(np.float32)
        zeros = rng.integers(0, 9, (3, 4, 3)).astype(dtype)
        cases.append(Case("QuantizeLinear", [x, blocks, zeros], {"axis": 2, "block_size": 2}))
        q = whole_range(rng, (3, 4, 6), dtype)
        cases += [Case("DequantizeLinear", [q, *case.inputs[1:]], case.attributes) for case in cases[-3:]]
    cases = [cases[index] for index in sample(cases, whole)]
    check(cases, compiled(cases, 21), by_reference(cases, 21))


def test_dynamic_quantization_agrees_with_onnxruntime() -> None:
    rng = np.random.default_rng(10)
    shapes = [(3, 5), (7,), (2, 3, 4)]
    cases = [
        Case("DynamicQuantizeLinear", [(rng.standard_normal(shape) + shift).astype(np.float32)], outputs=3)
        for shape, shift in zip(shapes, (0, 5, -5), strict=True)
    ]
    cases += [Case("DynamicQuantizeLinear", [np.zeros(shape, np.float32)], outputs=3) for shape in ((2, 2), (0, 3))]
    check(cases, compiled(cases, 11), by_onnxruntime(cases, 11))
