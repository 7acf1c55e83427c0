"""Recovers operators of the library from calls of Relax operators.

R.nn.conv2d(x, w, strides=[2, 2], …)      Convolution(Window(…), groups), (x, w)
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import tvm
from tvm import relax

from nnefc.frontends.nnef.writing.document import Unsayable
from nnefc.operators.base import Operator, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Clip, Elementwise, Where
from nnefc.operators.math.functions import FUNCTIONS
from nnefc.operators.math.matrix import MatMul
from nnefc.operators.math.reduction import Maximum, Mean, Minimum, Sum
from nnefc.operators.nn.activation import Gelu, LeakyRelu, Relu, Silu, Softmax
from nnefc.operators.nn.convolution import Convolution, TransposedConvolution
from nnefc.operators.nn.pooling import AveragePool, MaxPool, keeps_nan
from nnefc.operators.nn.window import Window
from nnefc.operators.tensor.concatenation import Concat, Split
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.padding import Pad
from nnefc.operators.tensor.shape import Expand, RepeatElements, Reshape, Slice, Tile, Transpose
from nnefc.symbolic.dims import dimensions

__all__ = ["operator_of"]

Read = Callable[[relax.Call], "tuple[Operator, tuple[Any, ...]]"]

_FUNCTIONS = {function.relax.__name__: name for name, function in FUNCTIONS.items() if function.relax is not None} | {
    "square": "square"
}


def operator_of(call: relax.Call) -> tuple[Operator, tuple[Any, ...]]:
    """The operator of the library, and its operands.

    Raises:
        Unsayable: the library has none.
    """
    if not isinstance(call.op, tvm.ir.Op):
        raise Unsayable("NNEF has no calls of functions", no_rule=True)
    name = call.op.name.removeprefix("relax.")
    if name in _READERS:
        return _READERS[name](call)
    if name in _FUNCTIONS:
        return Elementwise(_FUNCTIONS[name]), tuple(call.args)
    if name == "call_dps_packed":
        raise Unsayable("NNEF has no branches and loops, and the network chooses or repeats here")
    kernel = f" the kernel '{call.args[0].name_hint}'" if name == "call_tir" else f" '{name}' of Relax"
    raise Unsayable(f"NNEF has no operation for{kernel}", no_rule=True)


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _axes(call: relax.Call) -> tuple[int, ...]:
    rank = len(shape_of(call.args[0]))
    axes = range(rank) if call.attrs.axis is None else _ints(call.attrs.axis)
    return tuple(sorted(axis % rank for axis in axes))


def _axis(call: relax.Call) -> int:
    field = call.args[0].fields[0] if isinstance(call.args[0], relax.Tuple) else call.args[0]
    return int(call.attrs.axis) % max(1, len(shape_of(field)))


def _reduction(kind: Callable[..., Operator]) -> Read:
    return lambda call: (kind(_axes(call), bool(call.attrs.keepdims)), (call.args[0],))


def _window(call: relax.Call, size: Any) -> Window:
    padding, rank = _ints(call.attrs.padding), len(size)
    pairs = tuple(zip(padding[:rank], padding[rank:], strict=True))
    return Window(_ints(size), _ints(call.attrs.strides), _ints(call.attrs.dilation), pairs)


def _convolution(call: relax.Call) -> tuple[Operator, tuple[Any, ...]]:
    window = _window(call, shape_of(call.args[1])[2:])
    wide = str(call.attrs.out_dtype or "")
    sums = wide if wide not in ("", "void", "None") else None
    return Convolution(window, int(call.attrs.groups), sums=sums), tuple(call.args)


def _transposed(call: relax.Call) -> tuple[Operator, tuple[Any, ...]]:
    window = _window(call, shape_of(call.args[1])[2:])
    return TransposedConvolution(window, int(call.attrs.groups), _ints(call.attrs.output_padding)), tuple(call.args)


def _max_pool(call: relax.Call) -> tuple[Operator, tuple[Any, ...]]:
    window = _window(call, call.attrs.pool_size)
    return MaxPool(window, bool(call.attrs.ceil_mode), keeps_nan(call)), tuple(call.args)


def _average_pool(call: relax.Call) -> tuple[Operator, tuple[Any, ...]]:
    window, attrs = _window(call, call.attrs.pool_size), call.attrs
    return AveragePool(window, bool(attrs.ceil_mode), bool(attrs.count_include_pad)), tuple(call.args)


def _clip(call: relax.Call) -> tuple[Operator, tuple[Any, ...]]:
    x, low, high = call.args
    return Clip(), (x, *(np.array(bound.value, np.float32) for bound in (low, high)))


def _split(call: relax.Call) -> tuple[Operator, tuple[Any, ...]]:
    (x,), axis = call.args, _axis(call)
    size, boundaries = shape_of(x)[axis], call.attrs.indices_or_sections
    if not hasattr(boundaries, "__iter__"):
        return Split(axis, (size // int(boundaries),) * int(boundaries)), (x,)
    cuts = [0, *_ints(boundaries), size]
    return Split(axis, tuple(b - a for a, b in pairwise(cuts))), (x,)


def _strided_slice(call: relax.Call) -> tuple[Operator, tuple[Any, ...]]:
    x, axes, begin, end, *tail = call.args
    sizes = shape_of(x)
    steps = dimensions(tail[0].fields) if tail else (1,) * len(axes.fields)
    ranges = {}
    for axis, first, last, step in zip(
        dimensions(axes.fields), dimensions(begin.fields), dimensions(end.fields), steps, strict=True
    ):
        size = sizes[axis]
        if isinstance(first, int) and isinstance(last, int) and isinstance(size, int) and isinstance(step, int):
            taken = range(*slice(first, last, step).indices(size))
            ranges[axis] = (taken.start, len(taken), taken.step)
        else:
            ranges[axis] = (first, (last - first + step - 1) // step, step)
    return Slice(ranges), (x,)


def _flip(call: relax.Call) -> tuple[Operator, tuple[Any, ...]]:
    axis = _axis(call)
    size = shape_of(call.args[0])[axis]
    return Slice({axis: (size - 1, size, -1)}), (call.args[0],)


def _pad(call: relax.Call) -> tuple[Operator, tuple[Any, ...]]:
    widths = _ints(call.attrs.pad_width)
    pairs = tuple(zip(widths[::2], widths[1::2], strict=True))
    mode = str(call.attrs.pad_mode)
    if mode != "constant":
        raise Unsayable(f"NNEF has no operation for 'nn.pad' of Relax with '{mode}'")
    return Pad(pairs, "constant", float(call.attrs.pad_value)), (call.args[0],)


_READERS: dict[str, Read] = {
    "nn.relu": lambda call: (Relu(), tuple(call.args)),
    "nn.leakyrelu": lambda call: (LeakyRelu(float(call.attrs.alpha)), tuple(call.args)),
    "nn.silu": lambda call: (Silu(), tuple(call.args)),
    "nn.gelu": lambda call: (Gelu(), tuple(call.args)),
    "nn.gelu_tanh": lambda call: (Gelu(approximate=True), tuple(call.args)),
    "nn.softmax": lambda call: (Softmax((_axis(call),)), tuple(call.args)),
    "nn.log_softmax": lambda call: (Softmax((_axis(call),), logarithm=True), tuple(call.args)),
    "clip": _clip,
    "where": lambda call: (Where(), tuple(call.args)),
    "astype": lambda call: (Cast(str(call.attrs.dtype)), tuple(call.args)),
    "sum": _reduction(Sum),
    "mean": _reduction(Mean),
    "max": _reduction(Maximum),
    "min": _reduction(Minimum),
    "matmul": lambda call: (MatMul(), tuple(call.args)),
    "permute_dims": lambda call: (Transpose(_order(call)), tuple(call.args)),
    "reshape": lambda call: (Reshape(dimensions(call.args[1].values)), (call.args[0],)),
    "squeeze": lambda call: (Reshape(dimensions(call.ty.shape)), (call.args[0],)),
    "expand_dims": lambda call: (Reshape(dimensions(call.ty.shape)), (call.args[0],)),
    "broadcast_to": lambda call: (Expand(dimensions(call.args[1].values)), (call.args[0],)),
    "concat": lambda call: (Concat(_axis(call)), tuple(call.args[0].fields)),
    "split": _split,
    "strided_slice": _strided_slice,
    "flip": _flip,
    "tile": lambda call: (Tile(_ints(call.attrs.repeats)), (call.args[0],)),
    "repeat": lambda call: (RepeatElements(int(call.attrs.repeats), _axis(call)), (call.args[0],)),
    "take": lambda call: (Gather(_axis(call), "clip"), tuple(call.args)),
    "nn.pad": _pad,
    **{f"nn.conv{rank}d": _convolution for rank in (1, 2, 3)},
    **{f"nn.conv{rank}d_transpose": _transposed for rank in (1, 2, 3)},
    **{f"nn.max_pool{rank}d": _max_pool for rank in (1, 2, 3)},
    **{f"nn.avg_pool{rank}d": _average_pool for rank in (1, 2, 3)},
}


def _order(call: relax.Call) -> tuple[int, ...]:
    rank = len(shape_of(call.args[0]))
    return tuple(reversed(range(rank))) if call.attrs.axes is None else tuple(a % rank for a in _ints(call.attrs.axes))
