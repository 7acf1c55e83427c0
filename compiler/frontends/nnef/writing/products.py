"""Writes matrix products, convolutions, transposed convolutions, batch normalization."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnefc.frontends.nnef.writing.data_movement import MODES
from nnefc.frontends.nnef.writing.document import Document, Unsayable
from nnefc.frontends.nnef.writing.rules import aligned, reshaped, says, shape_of
from nnefc.operators.base import dtype_of
from nnefc.operators.math.matrix import Gemm, MatMul
from nnefc.operators.nn.convolution import Convolution, TransposedConvolution
from nnefc.operators.nn.normalization import BatchNormalization
from nnefc.operators.nn.window import Window
from nnefc.symbolic.dims import is_known

__all__ = ["window_arguments"]


def window_arguments(window: Window) -> dict[str, Any]:
    """The attributes of a window but for its size."""
    if not is_known(*(amount for pair in window.padding for amount in pair)):
        raise Unsayable("the padding of the window depends on a dynamic size")
    return {"padding": list(window.padding), "stride": list(window.stride), "dilation": list(window.dilation)}


def _bias(document: Document, bias: Any) -> dict[str, Any]:
    """A row of a number for each channel."""
    if bias is None:
        return {}
    return {"bias": reshaped(document, bias, (1, math.prod(shape_of(bias))))}


@says(Convolution)
def _convolution(document: Document, operator: Convolution, x: Any, w: Any, bias: Any = None) -> Any:
    _check_sums(operator, x)
    return document.call(
        "conv",
        input=document.tensor(x),
        filter=document.tensor(w),
        border=MODES[operator.border],
        groups=operator.groups,
        **window_arguments(operator.window),
        **_bias(document, bias),
    )


def _check_sums(operator: Convolution, x: Any) -> None:
    if operator.sums not in (None, dtype_of(x)):
        raise Unsayable(f"NNEF convolves reals, here {dtype_of(x)} is summed in {operator.sums}")


@says(TransposedConvolution)
def _transposed_convolution(
    document: Document, operator: TransposedConvolution, x: Any, w: Any, bias: Any = None
) -> Any:
    shape = operator.shape(shape_of(x), shape_of(w))
    fixed = {"output_shape": list(shape)} if any(operator.beyond) else {}
    return document.call(
        "deconv",
        input=document.tensor(x),
        filter=document.tensor(w),
        border=MODES[operator.border],
        groups=operator.groups,
        **fixed,
        **window_arguments(operator.window),
        **_bias(document, bias),
    )


@says(MatMul)
def _matmul(document: Document, operator: MatMul, a: Any, b: Any) -> Any:
    """Operands of one rank, at least two; vectors are rows and columns."""
    result = operator.shape(shape_of(a), shape_of(b))
    flags = {"transposeA": operator.transpose_a, "transposeB": operator.transpose_b}
    if len(shape_of(a)) == 1:
        a, flags["transposeA"] = reshaped(document, a, (1, *shape_of(a))), False
    if len(shape_of(b)) == 1:
        b, flags["transposeB"] = reshaped(document, b, (*shape_of(b), 1)), False
    if len(shape_of(b)) == 2 and len(shape_of(a)) > 2 and not flags["transposeA"]:
        return _rows_matmul(document, a, b, flags["transposeB"], result)
    a, b = (_of_rank(document, x, max(len(shape_of(a)), len(shape_of(b)))) for x in (a, b))
    made = document.call("matmul", A=document.tensor(a), B=document.tensor(b), **flags)
    return reshaped(document, made, result)


def _rows_matmul(document: Document, a: Any, b: Any, transpose_b: bool, result: Any) -> Any:
    """All rows of a stack of matrices times one matrix: one product."""
    *batch, rows, inner = shape_of(a)
    try:
        flat = reshaped(document, a, (math.prod(batch) * rows, inner))
        made = document.call("matmul", A=document.tensor(flat), B=document.tensor(b), transposeB=transpose_b)
        return reshaped(document, made, result)
    except Unsayable:  # several sizes are open
        stacked = _of_rank(document, b, len(batch) + 2)
        made = document.call("matmul", A=document.tensor(a), B=document.tensor(stacked), transposeB=transpose_b)
        return reshaped(document, made, result)


def _of_rank(document: Document, x: Any, rank: int) -> Any:
    missing = rank - len(shape_of(x))
    if not missing:
        return x
    if isinstance(x, np.ndarray):
        return x.reshape((1,) * missing + x.shape)
    return document.call("unsqueeze", input=x, axes=list(range(missing)))


@says(Gemm)
def _gemm(document: Document, operator: Gemm, a: Any, b: Any, c: Any = None) -> Any:
    """A linear layer where it is one, else a product and a sum."""
    if operator.beta == 0:
        c = None
    is_matmul = len(shape_of(a)) == len(shape_of(b)) == 2 and operator.alpha == operator.beta == 1
    if is_matmul and operator.transpose_b and not operator.transpose_a:
        outputs = shape_of(b)[0]
        if c is None or shape_of(c) in ((), (1,), (outputs,), (1, 1), (1, outputs)):
            bias = {} if c is None else {"bias": reshaped(document, c, (1, math.prod(shape_of(c))))}
            return document.call("linear", input=document.tensor(a), filter=document.tensor(b), **bias)
    made = _matmul(
        document, MatMul(operator.transpose_a, operator.transpose_b), a, _scaled(document, b, operator.alpha)
    )
    if c is None:
        return made
    made, summand = aligned(document, (made, _scaled(document, c, operator.beta)))
    return document.call("add", x=made, y=summand)


def _scaled(document: Document, x: Any, factor: float) -> Any:
    if factor == 1:
        return x
    if isinstance(x, np.ndarray):
        return np.asarray(x * np.asarray(factor, x.dtype), x.dtype)  # of rank 0 the product is no array
    return document.call("mul", x=x, y=float(factor))


@says(BatchNormalization)
def _batch_normalization(
    document: Document,
    operator: BatchNormalization,
    x: Any,
    mean: Any,
    variance: Any,
    scale: Any = None,
    offset: Any = None,
) -> Any:
    parameters = {"mean": mean, "variance": variance, "offset": offset, "scale": scale}
    rank = len(shape_of(x))
    given = {
        name: {"offset": 0.0, "scale": 1.0}[name] if value is None else _of_channels(document, value, rank)
        for name, value in parameters.items()
    }
    return document.call("batch_normalization", input=document.tensor(x), epsilon=float(operator.epsilon), **given)


def _of_channels(document: Document, x: Any, rank: int) -> Any:
    """Constants of channels in the shape `[1, C]`; what has fewer dimensions than the input gets them before."""
    if not isinstance(x, np.ndarray):
        return _of_rank(document, x, rank)
    shape = (1,) * (rank - x.ndim) + x.shape
    return x.reshape(shape[:2] if rank >= 2 and all(size == 1 for size in shape[2:]) else shape)
