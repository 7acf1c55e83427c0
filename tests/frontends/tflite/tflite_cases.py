"""Networks of single operators of TFLite, with odd sizes and random attributes, by family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from tflite_models import OUT, QO, RNG, C, Case, F, Q, T

__all__ = ["FAMILIES"]

FAMILIES: dict[str, list[Case]] = {}


def _family(make: Callable[[], list[Case]]) -> None:
    FAMILIES[make.__name__.strip("_")] = make()


_BYTES = ("int8", "uint8")
_ALL = ("int8", "uint8", "int16")
_FUSED = {"fused_activation_function": 1}


_UNARY = ("ABS", "COS", "EXP", "FLOOR", "HARD_SWISH", "LOGISTIC", "NEG", "RELU", "RELU6", "RELU_N1_TO_1", "SIGN", "SIN")
_UNARY += ("SQUARE", "TANH", "RELU_0_TO_1")


@_family
def _unary() -> list[Case]:
    positive = {"low": 0.1, "high": 4.0}
    cases = [Case(name, [F((3, 5))], [OUT]) for name in _UNARY]
    cases += [Case(name, [F((3, 5), **positive)], [OUT]) for name in ("LOG", "SQRT", "RSQRT")]
    cases += [Case("GELU", [F((3, 5))], [OUT], "GeluOptions", {"approximate": k}) for k in (False, True)]
    cases += [Case("LEAKY_RELU", [F((3, 5))], [OUT], "LeakyReluOptions", {"alpha": 0.3})]
    cases += [Case("PRELU", [F((2, 3, 4, 5)), C(np.linspace(-1, 1, 5).reshape(1, 1, 5), "float32")], [OUT])]
    cases += [Case("SOFTMAX", [F((2, 3, 7))], [OUT], "SoftmaxOptions", {"beta": 0.7})]
    cases += [Case("LOG_SOFTMAX", [F((3, 7))], [OUT])]
    cases += [Case("LOGICAL_NOT", [F((3, 5), "bool")], [T((), "bool")])]
    cases += [Case(name, [F((3, 5), "int32", low=-99, high=99)], [T((), "int32")]) for name in ("ABS", "NEG")]
    cases += [Case("L2_NORMALIZATION", [F((3, 7))], [OUT], "L2NormOptions")]
    narrow, out = F((3, 5), "float16"), T((), "float16")
    names = ("COS", "FLOOR", "LOGISTIC", "NEG", "SIN", "TANH")
    cases += [Case(name, [narrow], [out], tolerance=1e-3) for name in names]
    cases += [Case("GELU", [narrow], [out], "GeluOptions", {"approximate": False}, tolerance=1e-3)]
    cases += [Case("SOFTMAX", [narrow], [out], "SoftmaxOptions", {"beta": 1.0}, tolerance=2e-3)]
    cases += [Case("NEG", [F((9,), dtype, low=-99, high=99)], [T((), dtype)]) for dtype in ("int8", "int16")]
    return cases


@_family
def _quantized_unary() -> list[Case]:
    cases = []
    for dtype in _BYTES:
        zero = {"int8": -128, "uint8": 0}[dtype]
        middle = {"int8": 0, "uint8": 128}[dtype]
        cases += [Case("LOGISTIC", [Q(300, dtype=dtype)], [QO(dtype, 1 / 256, zero)])]
        cases += [Case("TANH", [Q(300, dtype=dtype)], [QO(dtype, 1 / 128, middle)])]
        cases += [Case("HARD_SWISH", [Q(300, dtype=dtype, scale=s)], [QO(dtype, 0.04)]) for s in (0.03, 0.11)]
        cases += [Case(n, [Q(300, dtype=dtype)], [QO(dtype, 0.02)]) for n in ("RELU", "RELU6", "RELU_N1_TO_1")]
        cases += [Case("LEAKY_RELU", [Q(300, dtype=dtype)], [QO(dtype)], "LeakyReluOptions", {"alpha": 0.21})]
        cases += [Case("SOFTMAX", [Q(9, 11, dtype=dtype)], [QO(dtype, 1 / 256, zero)], "SoftmaxOptions", {"beta": 0.9})]
        cases += [Case("GELU", [Q(300, dtype=dtype)], [QO(dtype)], "GeluOptions", {"approximate": k}) for k in (0, 1)]
        alpha = C(np.arange(5) * 9 + 60, dtype, scale=0.011, zero=70)
        cases += [Case("PRELU", [Q(4, 3, 7, 5, dtype=dtype), alpha], [QO(dtype)])]
        for shape in ((40, 7), (400, 1)):  # of one element there are norms of 0 and 1
            cases += [Case("L2_NORMALIZATION", [Q(*shape, dtype=dtype)], [QO(dtype, 1 / 128, middle)], "L2NormOptions")]
    cases += [Case("EXP", [Q(300)], [QO(scale=0.2, zero=-120)])]
    cases += [Case("LOG", [Q(300, scale=0.1, zero=-128)], [QO()])]
    cases += [Case("ABS", [Q(300)], [QO(scale=0.04)])]
    cases += [Case("RSQRT", [Q(300, zero=-128)], [QO(scale=0.1, zero=-128)])]
    cases += [Case("LOGISTIC", [Q(900, dtype="int16", scale=s)], [QO("int16", 1 / 32768)]) for s in (1 / 4096, 0.0003)]
    cases += [Case("TANH", [Q(900, dtype="int16", scale=s)], [QO("int16", 1 / 32768)]) for s in (1 / 4096, 0.0003)]
    cases += [Case("LEAKY_RELU", [Q(900, dtype="int16")], [QO("int16")], "LeakyReluOptions", {"alpha": 0.21})]
    for scale in (0.0003, 0.00002):
        x = Q(30, 13, dtype="int16", scale=scale)
        cases += [Case("SOFTMAX", [x], [QO("int16", 1 / 32768)], "SoftmaxOptions", {"beta": 0.8})]
    cases += [Case("RELU", [Q(900, dtype="int16")], [QO("int16")])]
    for name in ("EXP", "LOG", "SQRT", "RSQRT", "GELU"):
        low, high = (1, 32767) if "SQRT" in name else (-32768, 32767)
        x = T((900,), "int16", scale=0.0003, zero=0, low=low, high=high)
        options = ("GeluOptions", {"approximate": True}) if name == "GELU" else ()
        cases += [Case(name, [x], [QO("int16", 0.00045)], *options)]
    cases += [Case("SQRT", [Q(300, zero=-128)], [QO()]), Case("LOG", [Q(300)], [QO()])]
    alpha = C(np.arange(5) * 40 - 90, "int8", scale=0.011, zero=0)
    return [*cases, Case("PRELU", [Q(4, 3, 7, 5, dtype="int16"), alpha], [QO("int16")])]


@_family
def _without_reference_kernels() -> list[Case]:
    cases = [Case(name, [F((3, 5))], [OUT]) for name in ("CEIL", "ELU", "ROUND")]
    fields = {"radius": 2, "bias": 1.5, "alpha": 0.3, "beta": 0.6}
    lrn = Case("LOCAL_RESPONSE_NORMALIZATION", [F((2, 3, 4, 9))], [OUT], "LocalResponseNormalizationOptions", fields)
    cases += [replace(lrn, tolerance=2e-5), Case("BROADCAST_TO", [F((3, 1)), C([2, 3, 4])], [OUT])]
    cases += [Case("SEGMENT_SUM", [F((4, 3)), C([0, 0, 1, 1])], [OUT])]
    return [*cases, Case("ELU", [Q(300)], [QO()])]


@_family
def _binary() -> list[Case]:
    pair = [F((2, 3, 1)), F((3, 5))]
    cases = [Case(n, pair, [OUT], f"{n.capitalize()}Options", _FUSED) for n in ("ADD", "SUB", "MUL")]
    cases += [Case("DIV", [F((2, 3)), F((2, 3), low=1.0)], [OUT], "DivOptions", {"fused_activation_function": 3})]
    cases += [Case(n, pair, [OUT]) for n in ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE")]
    cases += [Case("ATAN2", [F((3, 5)), F((3, 5))], [OUT])]
    narrow = [F((2, 3, 1), "float16"), F((3, 5), "float16")]
    cases += [Case(n, narrow, [T((), "float16")], tolerance=1e-3) for n in ("MAXIMUM", "MINIMUM")]
    cases += [Case("ATAN2", [narrow[1], narrow[1]], [T((), "float16")], tolerance=1e-3)]
    cases += [Case(n, narrow, [T((), "float16")], f"{n.capitalize()}Options", tolerance=1e-3) for n in ("ADD", "MUL")]
    cases += [Case("POW", [F((3, 5), low=0.2), F((3, 5))], [OUT])]
    cases += [Case(n, [F((4, 5)), F((4, 5), low=0.5)], [OUT]) for n in ("FLOOR_DIV", "FLOOR_MOD")]
    cases[-1] = replace(cases[-1], tolerance=1e-5)
    whole = [F((3, 5), "int32", low=-20, high=20), F((3, 5), "int32", low=1, high=9)]
    cases += [
        Case(n, whole, [T((), "int32")])
        for n in ["MAXIMUM", "MINIMUM", "FLOOR_DIV", "FLOOR_MOD", "SQUARED_DIFFERENCE", "BITWISE_XOR", "RIGHT_SHIFT"]
    ]
    cases += [Case(n, whole, [T((), "int32")], f"{n.capitalize()}Options") for n in ("ADD", "SUB", "MUL")]
    cases += [
        Case(n, operands, [T((), "bool")])
        for n in ["LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL", "EQUAL", "NOT_EQUAL"]
        for operands in (pair, [whole[1], whole[1]])
    ]
    truths = [F((3, 5), "bool"), F((5,), "bool")]
    cases += [Case(n, truths, [T((), "bool")]) for n in ("LOGICAL_AND", "LOGICAL_OR")]
    cases += [Case("ADD_N", [F((3, 5))] * 3, [OUT])]
    cases += [Case("SELECT_V2", [F((3, 1), "bool"), F((3, 5)), F((5,))], [OUT])]
    cases += [Case("SELECT", [F((3,), "bool"), F((3, 5)), F((3, 5))], [OUT])]
    casts = [("float32", "int32"), ("int32", "float32"), ("float32", "bool"), ("int8", "float32"), ("int32", "int64")]
    for dtype in ("float32", "float16", "uint8", "int16", "uint64", "bool"):
        same = [F((3, 5), dtype, low=0, high=9)] * 2
        names = ("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM")
        cases += [Case(f"STABLEHLO_{n}", same, [T((), dtype)], tolerance=1e-3) for n in names]
    cases += [Case("BITCAST", [F((3, 5))], [T((3, 5), "int32")])]
    for a, b in (("float32", "int8"), ("float64", "int32"), ("uint8", "float32"), ("uint16", "int64")):
        cases += [Case("BITCAST", [F((3, 4), a, low=0, high=99)], [T((), b)])]
    cases += [Case("MUL", [F((5,), "uint32", low=0, high=70000)] * 2, [T((), "uint32")], "MulOptions")]
    cases += [Case(n, narrow, [T((), "bool")]) for n in ("LESS", "NOT_EQUAL")]
    return cases + [Case("CAST", [F((3, 5), a)], [T((), b)]) for a, b in casts]


@_family
def _quantized_binary() -> list[Case]:
    cases = []
    for dtype in _ALL:
        pair = [Q(4, 3, 7, dtype=dtype), Q(3, 7, dtype=dtype, scale=0.017, zero=0 if dtype == "int16" else 9)]
        for name in ("ADD", "SUB", "MUL"):
            fields = {} if name == "MUL" else {"pot_scale_int16": False}
            for number in (0, 1, 3):
                fused = {"fused_activation_function": number}
                cases += [Case(name, pair, [QO(dtype, 0.07)], f"{name.capitalize()}Options", fields | fused)]
    for dtype in _BYTES:
        pair = [Q(4, 3, 7, dtype=dtype), Q(3, 7, dtype=dtype, scale=0.017, zero=9)]
        cases += [Case(n, pair, [T((), "bool")]) for n in ("LESS", "GREATER_EQUAL", "EQUAL")]
        same = [Q(3, 7, dtype=dtype)] * 2
        cases += [Case(n, same, [replace(same[0], shape=())]) for n in ("MAXIMUM", "MINIMUM")]
        ties = [Q(60, 70, dtype=dtype, scale=0.25), Q(60, 1, dtype=dtype, scale=0.5)]
        cases += [Case(n, ties, [QO(dtype, 1.0)], f"{n.capitalize()}Options") for n in ("ADD", "SUB")]
    cases += [Case("SQUARED_DIFFERENCE", [Q(3, 7), Q(3, 7, scale=0.017, zero=9)], [QO(scale=0.3)])]
    for low, high in ((0, 99), (101, 255)):  # of quotients by zero LiteRT's are arbitrary
        divisor = T((50,), "uint8", scale=0.03, zero=100, low=low, high=high)
        fused = {"fused_activation_function": int(low > 0)}
        cases += [Case("DIV", [Q(40, 50, dtype="uint8"), divisor], [QO("uint8", 0.004)], "DivOptions", fused)]
    for dtype in _ALL:  # of quotients that are shifted by more than 31 bits, too
        divisor = T((50,), dtype, scale=1.7, zero=Q(dtype=dtype).zero)
        divisor = replace(divisor, low=divisor.zero + 1, high=np.iinfo(dtype).max)
        cases += [Case("DIV", [Q(40, 50, dtype=dtype, scale=1e-3), divisor], [QO(dtype, 0.4)], "DivOptions")]
    divisor = T((50,), "int16", scale=0.0007, zero=0, low=-30000, high=-1)
    cases += [Case("DIV", [Q(40, 50, dtype="int16"), divisor], [QO("int16", 0.004)], "DivOptions", _FUSED)]
    fractions = [Q(300, dtype="int16")] * 2  # whose scales do not count
    return cases + [Case("MUL", fractions, [QO(dtype)], "MulOptions", _FUSED) for dtype in _BYTES]


def _conv(dtype: str, channels: int, outputs: int, size: tuple[int, ...], single: bool) -> tuple[T, T, T]:
    """Weights of a convolution, their bias, and the result's type."""
    shape = (outputs, *size, channels)
    scales = 0.004 if single else RNG.uniform(0.002, 0.01, outputs).astype(np.float32)
    zero = 117 if dtype == "uint8" else 0
    kind = "uint8" if dtype == "uint8" else "int8"
    w = RNG.integers(0 if zero else -127, 127, shape).astype(kind)
    wide = "int64" if dtype == "int16" else "int32"
    bias = C(RNG.integers(-900, 900, outputs), wide, scale=np.float32(0.03) * np.float32(scales))
    return C(w, kind, scale=scales, zero=zero), bias, QO(dtype, 0.31)


@_family
def _convolution() -> list[Case]:
    cases, options = [], "Conv2DOptions"
    w, bias = C(RNG.uniform(-1, 1, (5, 3, 2, 3)), "float32"), C(RNG.uniform(-1, 1, 5), "float32")
    for padding, stride, dilation in ((0, 1, 1), (0, 2, 1), (1, 2, 1), (0, 1, 2)):
        fields = {"padding": padding, "stride_w": stride, "stride_h": stride, "dilation_h_factor": dilation}
        cases += [Case("CONV_2D", [F((2, 7, 9, 3)), w, bias], [OUT], options, fields | _FUSED)]
        depth = {**fields, "depth_multiplier": 2}
        filters = [C(RNG.uniform(-1, 1, (1, 3, 3, 6)), "float32"), C(RNG.uniform(-1, 1, 6), "float32")]
        cases += [Case("DEPTHWISE_CONV_2D", [F((1, 7, 9, 3)), *filters], [OUT], "DepthwiseConv2DOptions", depth)]
    letters = {"padding": 0, "stride_w": 1, "stride_h": 1}
    grouped = C(RNG.uniform(-1, 1, (6, 3, 3, 2)), "float32")
    cases += [Case("CONV_2D", [F((1, 5, 6, 4)), grouped, C(np.zeros(6), "float32")], [OUT], options, letters)]
    deep = {"padding": 0, "stride_d": 1, "stride_w": 2, "stride_h": 1}
    w3 = C(RNG.uniform(-1, 1, (2, 3, 2, 3, 4)), "float32")
    cases += [Case("CONV_3D", [F((1, 4, 5, 6, 3)), w3], [OUT], "Conv3DOptions", deep)]
    filters = C(RNG.uniform(-1, 1, (2, 3, 2, 4, 3)), "float32")
    cases += [
        Case(
            "CONV_3D_TRANSPOSE",
            [C([1, 4, 10, 6, 4]), filters, F((1, 4, 5, 6, 3))],
            [OUT],
            "Conv3DOptions",
            deep | {"stride_w": 1, "stride_h": 2},
        )
    ]
    for padding, size, step in ((0, (8, 9), 2), (1, (9, 11), 2), (0, (4, 5), 1)):
        columns = C(RNG.uniform(-1, 1, (5, 3, 3, 4)), "float32")
        fields = {"padding": padding, "stride_w": step, "stride_h": step}
        shape = C([1, *size, 5])
        inner = [-(-size[k] // step) if padding == 0 else (size[k] - 3) // step + 1 for k in (0, 1)]
        cases += [
            Case("TRANSPOSE_CONV", [shape, columns, F((1, *inner, 4)), *extra], [OUT], "TransposeConvOptions", fields)
            for extra in ([], [C(RNG.uniform(-1, 1, 5), "float32")])
        ]
    return cases


@_family
def _quantized_convolution() -> list[Case]:
    cases = []
    for dtype in _ALL:
        for single in (True, False):
            if dtype == "uint8" and not single:
                continue
            for padding, stride in ((0, 1), (1, 2)):
                fields = {"padding": padding, "stride_w": stride, "stride_h": stride, "fused_activation_function": 3}
                x = Q(2, 7, 9, 3, dtype=dtype)
                w, bias, out = _conv(dtype, 3, 5, (3, 2), single)
                cases += [Case("CONV_2D", [x, w, bias], [out], "Conv2DOptions", fields)]
                w, bias, out = _conv(dtype, 1, 6, (3, 3), single)
                filters = replace(w, value=np.moveaxis(w.value, 0, 3).reshape(1, 3, 3, 6), axis=3)
                deep = fields | {"depth_multiplier": 2}
                cases += [Case("DEPTHWISE_CONV_2D", [x, filters, bias], [out], "DepthwiseConv2DOptions", deep)]
            w, bias, out = _conv(dtype, 4, 5, (3, 3), single)
            fields = {"padding": 0, "stride_w": 2, "stride_h": 2}
            operands = [C([1, 8, 9, 5]), w, Q(1, 4, 5, 4, dtype=dtype), bias]
            cases += [Case("TRANSPOSE_CONV", operands, [out], "TransposeConvOptions", fields)]
    return cases


@_family
def _hybrid() -> list[Case]:
    """Real inputs and integer weights."""
    cases, letters = [], {"padding": 0, "stride_w": 1, "stride_h": 1}
    for single in (True, False):
        w, _, _ = _conv("int8", 3, 5, (3, 2), single)
        real = C(RNG.uniform(-1, 1, 5), "float32")
        cases += [Case("CONV_2D", [F((2, 7, 9, 3)), w, real], [OUT], "Conv2DOptions", letters)]
    w, _, _ = _conv("int8", 1, 6, (3, 3), False)
    filters = replace(w, value=np.moveaxis(w.value, 0, 3).reshape(1, 3, 3, 6), axis=3)
    real = C(RNG.uniform(-1, 1, 6), "float32")
    deep = letters | {"depth_multiplier": 2}
    cases += [Case("DEPTHWISE_CONV_2D", [F((2, 7, 9, 3)), filters, real], [OUT], "DepthwiseConv2DOptions", deep)]
    matrix = RNG.integers(-127, 127, (6, 11)).astype(np.int8)
    for asymmetric in (False, True):
        fields = {"asymmetric_quantize_inputs": asymmetric}
        cases += [
            Case(
                "FULLY_CONNECTED",
                [F((5, 11)), C(matrix, "int8", scale=0.01), real],
                [OUT],
                "FullyConnectedOptions",
                fields,
            )
        ]
    scales = RNG.uniform(0.002, 0.01, 6)
    cases += [
        Case("FULLY_CONNECTED", [F((5, 11)), C(matrix, "int8", scale=scales), real], [OUT], "FullyConnectedOptions")
    ]
    cases += [
        Case("FULLY_CONNECTED", [F((5, 11)), C(matrix // 16, "int4", scale=0.1), real], [OUT], "FullyConnectedOptions")
    ]
    table = RNG.integers(0, 256, (6, 11)).astype(np.uint8)  # old files declare signed bytes so
    old = C(table, "uint8", scale=0.01)
    cases += [Case("FULLY_CONNECTED", [F((5, 11)), old, real], [OUT], "FullyConnectedOptions")]
    cases += [Case("EMBEDDING_LOOKUP", [F((4,), "int32", low=0, high=5), old], [OUT])]
    letters = {"padding": 0, "stride_w": 2, "stride_h": 2}
    for single in (True, False):
        w, _, _ = _conv("int8", 4, 6, (3, 3), single)
        operands = [C([2, 8, 9, 6]), w, F((2, 4, 5, 4)), real]
        cases += [Case("TRANSPOSE_CONV", operands, [OUT], "TransposeConvOptions", letters)]
    stack = C(RNG.integers(-127, 127, (2, 6, 11)), "int8", scale=0.01)
    for asymmetric in (False, True):
        fields = {"asymmetric_quantize_inputs": asymmetric, "adj_y": True}
        cases += [Case("BATCH_MATMUL", [F((2, 3, 11)), stack], [OUT], "BatchMatMulOptions", fields)]
    return [replace(case, tolerance=1e-5) for case in cases]


@_family
def _matrix() -> list[Case]:
    cases = [Case("BATCH_MATMUL", [Q(2, 3, 4), Q(2, 4, 5)], [T((), "int32", scale=0.1)], "BatchMatMulOptions")]
    long = [Q(90, 11, dtype="int16"), Q(6, 11, dtype="int16", scale=0.001), None]
    cases += [Case("FULLY_CONNECTED", long, [QO("int16", 0.9)], "FullyConnectedOptions")]
    w, bias = C(RNG.uniform(-1, 1, (6, 11)), "float32"), C(RNG.uniform(-1, 1, 6), "float32")
    for keeps in (False, True):
        fields = {"keep_num_dims": keeps, "fused_activation_function": 1}
        cases += [Case("FULLY_CONNECTED", [F((2, 3, 11)), w, bias], [OUT], "FullyConnectedOptions", fields)]
    cases += [Case("FULLY_CONNECTED", [F((4, 11)), w, None], [OUT], "FullyConnectedOptions")]
    cases += [Case("BATCH_MATMUL", [F((2, 3, 4)), F((2, 4, 5))], [OUT], "BatchMatMulOptions")]
    cases += [Case("BATCH_MATMUL", [F((2, 4, 3)), F((5, 4))], [OUT], "BatchMatMulOptions", {"adj_x": 1, "adj_y": 1})]
    cases += [
        Case("BATCH_MATMUL", [Q(2, 3, 4), Q(2, 4, 5, scale=0.02, zero=-3)], [QO(scale=0.2)], "BatchMatMulOptions")
    ]
    wide = [Q(2, 30, 4, dtype="int16"), Q(2, 4, 50, dtype="int16", scale=0.02)]
    cases += [Case("BATCH_MATMUL", wide, [QO("int16", scale=90.0)], "BatchMatMulOptions")]
    for dtype in _ALL:
        for single in (True, False):
            if dtype == "uint8" and not single:
                continue
            w, bias, out = _conv(dtype, 11, 6, (), single)
            fields = {"fused_activation_function": 1}
            cases += [
                Case("FULLY_CONNECTED", [Q(90, 11, dtype=dtype), w, bias], [out], "FullyConnectedOptions", fields)
            ]
    return cases


@_family
def _pooling() -> list[Case]:
    cases = []
    for padding, stride in ((0, 1), (1, 2), (0, 2)):
        fields = {"padding": padding, "stride_w": stride, "stride_h": stride, "filter_width": 3, "filter_height": 2}
        for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"):
            cases += [Case(name, [F((2, 7, 9, 3))], [OUT], "Pool2DOptions", fields)]
        for dtype in _ALL:
            for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
                x = Q(2, 7, 9, 3, dtype=dtype)
                same = replace(x, shape=())
                cases += [Case(name, [x], [same], "Pool2DOptions", fields | {"fused_activation_function": 3})]
                whole = F((1, 5, 4, 3), dtype)  # integers without a scale
                cases += [Case(name, [whole], [replace(whole, shape=())], "Pool2DOptions", fields)]
    return cases


@_family
def _left_out_activations() -> list[Case]:
    """TANH and SIGN_BIT, which only products of reals with integer weights compute, and others leave out."""
    cases, letters = [], {"padding": 0, "stride_w": 1, "stride_h": 1}
    w = C(RNG.uniform(-1, 1, (5, 3, 2, 3)), "float32"), C(RNG.uniform(-1, 1, 5), "float32")
    narrow, bias, out = _conv("int8", 3, 5, (3, 2), True)
    matrix = C(RNG.integers(-127, 127, (6, 11)), "int8", scale=0.002)
    for number in (4, 5):
        fused = {"fused_activation_function": number}
        cases += [Case("CONV_2D", [F((1, 5, 4, 3)), *w], [OUT], "Conv2DOptions", letters | fused)]
        cases += [Case("CONV_2D", [Q(1, 5, 4, 3), narrow, bias], [out], "Conv2DOptions", letters | fused)]
        cases += [Case("ADD", [F((3, 5)), F((3, 5))], [OUT], "AddOptions", fused)]
        cases += [Case("MUL", [Q(3, 5), Q(3, 5)], [QO()], "MulOptions", fused)]
        cases += [Case("FULLY_CONNECTED", [F((5, 11)), matrix], [OUT], "FullyConnectedOptions", fused)]
    return [replace(case, tolerance=1e-5) for case in cases]


@_family
def _resize() -> list[Case]:
    cases = []
    for corners, centres in ((0, 0), (1, 0), (0, 1)):
        fields = {"align_corners": corners, "half_pixel_centers": centres}
        for size in ((9, 5), (3, 13)):
            cases += [Case("RESIZE_BILINEAR", [F((2, 4, 7, 3)), C(size)], [OUT], "ResizeBilinearOptions", fields)]
            options = "ResizeNearestNeighborOptions"
            cases += [Case("RESIZE_NEAREST_NEIGHBOR", [F((2, 4, 7, 3)), C(size)], [OUT], options, fields)]
            for dtype in ("float16", "uint16", "int32", "bool"):
                x = F((2, 4, 7, 3), dtype, low=0, high=9)
                cases += [Case("RESIZE_NEAREST_NEIGHBOR", [x, C(size)], [replace(x, shape=())], options, fields)]
            for dtype in _ALL:
                x = Q(1, 4, 7, 3, dtype=dtype)
                made = Case("RESIZE_BILINEAR", [x, C(size)], [replace(x, shape=())], "ResizeBilinearOptions", fields)
                cases += [replace(made, apart=dtype == "uint8")]  # which LiteRT computes in float32
    return [replace(case, tolerance=2e-5) for case in cases]


@_family
def _movement() -> list[Case]:
    x = F((2, 3, 4, 5))
    strided = {"begin_mask": 1, "end_mask": 2, "shrink_axis_mask": 4}
    cases = [
        Case("RESHAPE", [x, C([6, -1])], [OUT], "ReshapeOptions", {"new_shape": [6, -1]}),
        Case("SQUEEZE", [F((1, 3, 1, 5))], [OUT], "SqueezeOptions", {"squeeze_dims": [0, 2]}),
        Case("EXPAND_DIMS", [x, C(-1)], [OUT]),
        Case("TRANSPOSE", [x, C([2, 0, 3, 1])], [OUT]),
        Case("CONCATENATION", [x, F((2, 3, 1, 5))], [OUT], "ConcatenationOptions", {"axis": -2}),
        Case("PACK", [x, x], [OUT], "PackOptions", {"axis": 1, "values_count": 2}),
        Case("UNPACK", [F((3, 2))], [OUT, OUT], "UnpackOptions", {"axis": 1, "num": 2}),
        Case("SPLIT", [C(3), F((2, 3, 6, 4))], [OUT, OUT], "SplitOptions", {"num_splits": 2}),
        Case("SPLIT_V", [x, C([1, -1, 2]), C(2)], [OUT] * 3, "SplitVOptions", {"num_splits": 3}),
        Case("SLICE", [x, C([0, 1, 0, 2]), C([1, -1, 4, 2])], [OUT]),
        Case(
            "STRIDED_SLICE",
            [x, C([1, 0, 2, 4]), C([2, 2, 3, 0]), C([1, 1, 1, -2])],
            [OUT],
            "StridedSliceOptions",
            strided,
        ),
        Case("STRIDED_SLICE", [x, C([0, 0]), C([0, 3]), C([1, 2])], [OUT], "StridedSliceOptions", {"ellipsis_mask": 1}),
        Case("STRIDED_SLICE", [x, C([0, 1]), C([0, 2]), C([1, 1])], [OUT], "StridedSliceOptions", {"new_axis_mask": 1}),
        Case("TILE", [F((2, 3)), C([2, 3])], [OUT]),
        Case("BROADCAST_ARGS", [C([2, 1, 4]), C([3, 1])], [T((), "int32")]),
        Case("PAD", [x, C([[0, 1], [2, 0], [0, 0], [1, 1]])], [OUT]),
        Case("PADV2", [x, C([[0, 1], [2, 0], [0, 0], [1, 1]]), C(1.5, "float32")], [OUT]),
        Case("MIRROR_PAD", [x, C([[0, 0], [2, 1], [0, 2], [1, 1]])], [OUT], "MirrorPadOptions", {"mode": 0}),
        Case("MIRROR_PAD", [x, C([[0, 0], [2, 1], [0, 2], [1, 1]])], [OUT], "MirrorPadOptions", {"mode": 1}),
        Case("REVERSE_V2", [x, C([1])], [OUT]),
        Case("SPACE_TO_DEPTH", [F((1, 4, 6, 3))], [OUT], "SpaceToDepthOptions", {"block_size": 2}),
        Case("DEPTH_TO_SPACE", [F((1, 2, 3, 8))], [OUT], "DepthToSpaceOptions", {"block_size": 2}),
        Case("SPACE_TO_BATCH_ND", [F((2, 5, 6, 3)), C([2, 3]), C([[1, 0], [0, 0]])], [OUT]),
        Case("BATCH_TO_SPACE_ND", [F((12, 3, 2, 3)), C([2, 3]), C([[1, 0], [0, 2]])], [OUT]),
        Case("FILL", [C([2, 3]), F(())], [OUT]),
        Case("ZEROS_LIKE", [F((2, 3))], [OUT]),
        Case("SHAPE", [F((2, 3))], [T((), "int32")], "ShapeOptions", {"out_type": 2}),
        Case("RANK", [F((2, 3))], [T((), "int32")]),
        Case("RANGE", [C(2), C(11), C(3)], [T((), "int32")]),
        Case(
            "REVERSE_SEQUENCE",
            [F((4, 3, 5)), C([1, 4, 3])],
            [OUT],
            "ReverseSequenceOptions",
            {"seq_dim": 0, "batch_dim": 1},
        ),
        Case("DYNAMIC_UPDATE_SLICE", [F((4, 5)), F((2, 3)), C([1, 1])], [OUT]),
        Case("DYNAMIC_UPDATE_SLICE", [F((4, 5)), F((2, 3)), F((2,), "int32", low=-2, high=4)], [OUT]),
    ]
    around = {"edge_padding_low": [1, 0], "edge_padding_high": [0, 2], "interior_padding": [0, 0]}
    zero = C(0.5, "float32")
    cases += [Case("STABLEHLO_PAD", [F((3, 4)), zero], [OUT], "StablehloPadOptions", around)]
    between = {"edge_padding_low": [1, 0], "edge_padding_high": [0, 2], "interior_padding": [0, 2]}
    cases += [Case("STABLEHLO_PAD", [F((3, 4)), zero], [OUT], "StablehloPadOptions", between)]
    cases += [Case("DILATE", [F((3, 4)), C([2, 3]), zero], [OUT])]
    q = Q(2, 3, 4, 5)
    same = replace(q, shape=())
    cases += [
        Case("PAD", [q, C([[0, 1], [2, 0], [0, 0], [1, 1]])], [same]),
        Case("TRANSPOSE", [q, C([2, 0, 3, 1])], [same]),
        Case("RESHAPE", [q, C([6, -1])], [same]),
        Case("CONCATENATION", [q, q], [same], "ConcatenationOptions", {"axis": 3}),
    ]
    apart = [Q(2, 3, dtype="uint8"), Q(4, 3, dtype="uint8", scale=0.02, zero=100)]
    return [*cases, Case("CONCATENATION", apart, [QO("uint8")], "ConcatenationOptions", {"axis": 0})]


@_family
def _reduction() -> list[Case]:
    cases = []
    for keeps in (False, True):
        fields = {"keep_dims": keeps}
        for name in ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"):
            cases += [
                Case(name, [F((2, 3, 4, 5)), C(axes)], [OUT], "ReducerOptions", fields) for axes in ([1, 2], [-1])
            ]
        for name in ("REDUCE_ANY", "REDUCE_ALL", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"):
            cases += [Case(name, [F((4, 3), "bool"), C([1])], [T((), "bool")], "ReducerOptions", fields)]
        for dtype in _ALL:
            for name in (
                ("MEAN", "SUM") if dtype == "uint8" else ("MEAN",)
            ):  # LiteRT's sums of the others do not rescale
                x, out = Q(2, 7, 9, 5, dtype=dtype), QO(dtype, 0.031 if name == "MEAN" else 1.7)
                cases += [Case(name, [x, C([1, 2])], [out], "ReducerOptions", fields)]
    for axes, scale in (([1, 2], 0.02), ([-1], 0.5), ([0, 2], 0.3)):
        for dtype in ("int8", "int16"):
            x = Q(3, 2, 4, dtype=dtype, scale=1 / 64 if dtype == "int8" else 1 / 16384)
            cases += [
                Case("REDUCE_PROD", [x, C(axes)], [QO(dtype, scale / 16)], "ReducerOptions", {"keep_dims": False})
            ]
    for name in ("ARG_MAX", "ARG_MIN"):
        cases += [
            Case(name, [F((3, 7)), C(1)], [T((), "int64")], f"Arg{name[4:].capitalize()}Options", {"output_type": 4})
        ]
        cases += [
            Case(name, [Q(3, 7), C(0)], [T((), "int32")], f"Arg{name[4:].capitalize()}Options", {"output_type": 2})
        ]
    for exclusive, reverse in ((0, 0), (1, 0), (0, 1)):
        fields = {"exclusive": exclusive, "reverse": reverse}
        cases += [Case("CUMSUM", [F((3, 7)), C(1)], [OUT], "CumsumOptions", fields)]
    return [replace(case, tolerance=1e-5) for case in cases]


@_family
def _indexing() -> list[Case]:
    rows = F((2, 3), "int32", low=0, high=4)
    return [
        Case("GATHER", [F((5, 4)), rows], [OUT], "GatherOptions", {"axis": 0}),
        Case("GATHER", [F((2, 3, 5, 4)), rows], [OUT], "GatherOptions", {"axis": 2, "batch_dims": 1}),
        Case("GATHER_ND", [F((5, 4)), C([[1, 2], [4, 0], [3, 3]])], [OUT]),
        Case("EMBEDDING_LOOKUP", [F((6,), "int32", low=0, high=4), F((5, 4))], [OUT]),
        *(
            Case(
                "EMBEDDING_LOOKUP_SPARSE",
                [
                    C([3, 0, 3, 1]),
                    C([[0, 0], [0, 2], [2, 0], [2, 1]]),
                    C([3, 4]),
                    C([0.5, -2, 1, 1.5], "float32"),
                    F((5, 2)),
                ],
                [OUT],
                "EmbeddingLookupSparseOptions",
                {"combiner": k},
            )
            for k in range(3)
        ),
        Case("ONE_HOT", [rows, C(5), C(2.0, "float32"), C(-1.0, "float32")], [OUT], "OneHotOptions", {"axis": -1}),
        Case("ONE_HOT", [rows, C(5), C(2.0, "float32"), C(-1.0, "float32")], [OUT], "OneHotOptions", {"axis": 0}),
        Case("TOPK_V2", [F((3, 9)), C(4)], [OUT, T((), "int32")]),
        *(Case("SCATTER_ND", [C([[1], [3], [1]]), F((3, 4), t), C([5, 4])], [T((), t)]) for t in ("float32", "bool")),
        Case("SPARSE_TO_DENSE", [C([[0, 1], [2, 3]]), C([3, 4]), C([1.5, 2.5], "float32"), C(-1.0, "float32")], [OUT]),
        *(
            Case(f"UNSORTED_SEGMENT_{name}", [F((5, 3)), C([0, 2, 0, -1, 1]), C(4)], [OUT])
            for name in ("SUM", "PROD", "MAX", "MIN")
        ),
        Case("MATRIX_DIAG", [F((2, 4))], [OUT]),
        Case("MATRIX_SET_DIAG", [F((2, 4, 5)), F((2, 4))], [OUT]),
        *(
            Case("BUCKETIZE", [F((3, 5), t)], [T((), "int32")], "BucketizeOptions", {"boundaries": [-1.0, 0.0, 0.5]})
            for t in ("float32", "float64")
        ),
        Case("HASHTABLE_LOOKUP", [C([4, 2, 9]), C([1, 2, 4, 7]), F((4, 3))], [OUT, T((), "uint8")]),
        Case("WHERE", [F((3, 4), "bool")], [T((), "int64")]),
        Case("UNIQUE", [F((9,), "int32", low=0, high=4)], [T((), "int32"), T((), "int32")], "UniqueOptions"),
    ]


@_family
def _quantization() -> list[Case]:
    cases = [Case("QUANTIZE", [F((3, 90))], [QO(dtype)]) for dtype in _ALL]
    cases += [Case("QUANTIZE", [C(np.arange(-20, 20) / 8, "float32")], [QO(scale=0.25)])]
    cases += [
        Case("QUANTIZE", [Q(300, dtype=a)], [QO(b)])
        for a in _ALL
        for b in _ALL
        if (a, b) not in (("uint8", "int16"), ("int16", "uint8"))
    ]
    cases += [Case("QUANTIZE", [Q(300, dtype="int16")], [T((), "int32", scale=0.003)])]
    cases += [Case("DEQUANTIZE", [Q(300, dtype=dtype)], [OUT]) for dtype in _ALL]
    cases += [Case("DEQUANTIZE", [C(np.linspace(-3, 3, 9), "float16")], [OUT])]
    fields = {"min": -1.2, "max": 2.3, "num_bits": 8}
    return [*cases, Case("FAKE_QUANT", [F((3, 50))], [OUT], "FakeQuantOptions", fields)]


@_family
def _stablehlo() -> list[Case]:
    cases = []
    rows = {"offset_dims": [1], "collapsed_slice_dims": [0], "start_index_map": [0], "index_vector_dim": 1,
            "slice_sizes": [1, 7]}  # fmt: skip
    squares = {"offset_dims": [2, 3], "collapsed_slice_dims": [0], "start_index_map": [1, 0], "index_vector_dim": 2,
               "slice_sizes": [1, 2, 2]}  # fmt: skip
    parts = {"offset_dims": [0, 2], "collapsed_slice_dims": [], "start_index_map": [1], "index_vector_dim": 0,
             "slice_sizes": [2, 3]}  # fmt: skip
    for dtype in ("int32", "int64"):
        cases += [
            Case("STABLEHLO_GATHER", [F((5, 7)), F((4,), dtype, low=0, high=4)], [F((4, 7))],
                 "StablehloGatherOptions", rows),
            Case("STABLEHLO_GATHER", [F((3, 4, 2)), F((2, 3, 2), dtype, low=-1, high=3)], [F((2, 3, 2, 2))],
                 "StablehloGatherOptions", squares),
            Case("STABLEHLO_GATHER", [F((5, 7)), F((1, 4), dtype, low=0, high=6)], [F((2, 4, 3))],
                 "StablehloGatherOptions", parts),
        ]  # fmt: skip
    for function in range(1, 5):
        windows = [C([2, 3], "int64"), C([2, 1], "int64"), C([1, 2], "int64")]
        first = C(1.5, "float32")
        fields = {"reduce_function": function}
        cases += [Case("REDUCE_WINDOW", [F((5, 7)), first, *windows], [OUT], "ReduceWindowOptions", fields)]
    for function in (5, 6):
        windows = [C([2, 2], "int64"), C([1, 3], "int64"), C([1, 1], "int64")]
        first = C(function == 5, "bool")
        fields = {"reduce_function": function}
        cases += [Case("REDUCE_WINDOW", [F((5, 7), "bool"), first, *windows], [F((), "bool")], "ReduceWindowOptions",
                       fields)]  # fmt: skip
    return cases
