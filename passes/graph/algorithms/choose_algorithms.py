"""Chooses the convolutions and matrix products of a network that use algorithms with larger constants."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import tvm
from tvm import relax

from nnefc.ir.dataflow import bindings_of
from nnefc.passes.compute.blocked import blocks
from nnefc.passes.compute.dot.dot_product import multiplication_of, pair_speed, sums_in_float16
from nnefc.passes.compute.dot.matrix_units import in_tiles
from nnefc.passes.compute.dot.quad_pairs import has_quad_pairs
from nnefc.passes.compute.winograd import Tile, points_of
from nnefc.passes.graph.algorithms.choose_convolution import (
    FLOAT16_TILES,
    INTEGER_SPEEDS,
    INTEGER_TILES,
    NARROW_TILES,
    TILES,
    Shape,
    winograd_bytes,
    winograd_saving,
)
from nnefc.passes.graph.algorithms.choose_matmul import (
    constant_factor,
    multiplied_type,
    strassen_bytes,
    strassen_saving,
)
from nnefc.passes.graph.algorithms.fast_algorithms import Candidate, FastAlgorithms, best_saving
from nnefc.passes.graph.layout.rules.convolution import Sliding, result_sizes, sliding_of
from nnefc.passes.graph.layout.rules.deconvolution import geometry_of
from nnefc.passes.graph.precision.use_16bit_floats import narrowable
from nnefc.passes.graph.rewriter import array_of, is_call, is_constant, operands, shape_of
from nnefc.passes.graph.stored_weights import weights_of
from nnefc.support.element_types import element_bytes
from nnefc.symbolic.dims import element_count, is_known, size_hint
from nnefc.targets.machine.cpu.target import Target

__all__ = ["SMALL_NETWORK", "choose_algorithms"]

SMALL_NETWORK = 8 << 20
"""Smaller networks count as if their constants had this many bytes: growth of these is small compared with the rest of
a library.
"""


_SHARING, _SHARING_OF_OLD = 0.02, 0.05
"""The share of its time that an older ISA level may lose by a newer level's choice, so that both share constants; the
second is for levels without fused multiply-add (processors before 2013).
"""

_Form = tuple[int, Tile | None, bool]


def choose_algorithms(
    modules: Sequence[tvm.IRModule], target: Target, budget: float, levels: Sequence[Target] = ()
) -> FastAlgorithms:
    """Chooses the algorithm of each contraction in all modules of a network.

    Args:
        modules: the network's and those of all bodies in it.
        budget: what the constants may grow to, as a factor of their size, or if these are larger, of `SMALL_NETWORK`,
            or of the data and the result of one contraction, which the network has in memory anyway.
        levels: all kinds of processors that the library has code for, from the oldest on, `target` among them. From the
            newest on, each takes what a newer one has chosen, the newest that costs it little, or else what is best
            for itself.
    """
    sizes: dict[int, int] = {}
    for module in modules:
        for expr in _constants(module):
            array = array_of(expr)
            sizes[array.ctypes.data] = array.size * np.dtype(multiplied_type(array, target)).itemsize
    size = sum(sizes.values())
    base = max(size, SMALL_NETWORK, *map(_largest_data, modules))
    allowance = (budget - 1) * base if size else 0.0  # the budget may be infinite
    made: list[list[Candidate]] = []
    choice: list[Candidate] = []
    for level in reversed(levels[list(levels).index(target) :] if levels else (target,)):
        forms = _forms(modules, size, level)
        best = best_saving(_saving(forms), allowance)
        minimum = _saved(best, forms) - (_SHARING if level.vectors.fused else _SHARING_OF_OLD) * _cycles(modules, level)
        shared = (theirs for theirs in made if _saved(theirs, forms) >= minimum)
        choice = next(shared, best)
        if choice is best:
            made.append(best)
    return FastAlgorithms.of(choice)


def _forms(modules: Sequence[tvm.IRModule], size: int, target: Target) -> dict[_Form, Candidate]:
    """Returns the forms that constants of so many bytes in all may have, and what each form saves all their readers."""
    found: dict[_Form, Candidate] = {}
    rate = target.costs.bytes_per_cycle(size)
    for module in modules:
        for candidate in _candidates(module, rate, target):
            form = _form(candidate)
            same = found.setdefault(form, candidate)
            if same is not candidate:
                found[form] = replace(same, saved=same.saved + candidate.saved)
    return found


def _form(candidate: Candidate) -> _Form:
    return candidate.constant, candidate.tile, candidate.narrow


def _saving(forms: Mapping[_Form, Candidate]) -> list[Candidate]:
    return [candidate for candidate in forms.values() if candidate.saved > 0]


def _saved(chosen: Sequence[Candidate], forms: Mapping[_Form, Candidate]) -> float:
    """Returns the cycles that a choice saves on a target with these forms; negative if the target lacks one of the
    forms.
    """
    own = (forms.get(_form(candidate)) for candidate in chosen)
    return sum(-math.inf if candidate is None else candidate.saved for candidate in own)


def _cycles(modules: Sequence[tvm.IRModule], target: Target) -> float:
    """Returns a lower bound of the cycles of all contractions by the direct algorithm."""
    calls = (value for module in modules for _, value in _bindings(module) if is_call(value, "matmul", *_CONVOLUTIONS))
    return sum(map(_products, calls)) / target.lanes("float32") / target.costs.multiply_adds


def _largest_data(module: tvm.IRModule) -> int:
    """Returns the largest size in bytes of the data and the result of a contraction in a module."""
    calls = (value for _, value in _bindings(module) if is_call(value, "matmul", *_CONVOLUTIONS))
    return max((_data_bytes(call.args[0]) + _data_bytes(call) for call in calls), default=0)


def _data_bytes(tensor: relax.Expr) -> int:
    return int(size_hint(element_count(shape_of(tensor)))) * element_bytes(str(tensor.ty.dtype))


def _products(call: relax.Call) -> int:
    data, weights = map(shape_of, call.args)
    if is_call(call, "matmul"):
        return int(size_hint(element_count(shape_of(call)))) * int(size_hint(data[-1]))
    around = data if is_call(call, "nn.conv2d_transpose") else shape_of(call)
    return int(size_hint(element_count(around))) * int(size_hint(element_count(weights[1:])))


def _constants(module: tvm.IRModule) -> Iterator[relax.Expr]:
    """Returns the compile-time constants that the calls of a module read."""
    for _, value in _bindings(module):
        if isinstance(value, relax.Call):
            yield from filter(is_constant, operands(value))


def _bindings(module: tvm.IRModule) -> Iterator[tuple[relax.Var, relax.Expr]]:
    for binding in bindings_of(module["main"]):
        yield binding.var, binding.value


def _candidates(module: tvm.IRModule, rate: float, target: Target) -> Iterator[Candidate]:
    """Returns the gain of each computation of a module by other algorithms, if constants are read at this rate, in
    bytes per cycle. It may be negative: a constant has one form for all its readers, so one that is read by a float32
    computation is not converted for the others."""
    definitions = dict(_bindings(module))
    bindings = bindings_of(module["main"])
    half = {binding.var for binding in narrowable(bindings, target.keep_wide)} if target.float16_type else set()
    wide = {
        array_of(value.args[1]).ctypes.data
        for var, value in definitions.items()
        if half and var not in half and is_call(value, *_CONVOLUTIONS) and is_constant(value.args[1])
    }
    for var, value in definitions.items():
        speed = pair_speed(target) if var in half else 1.0
        for candidate in _of_call(value, definitions, rate, speed, target):
            if not candidate.narrow or candidate.constant not in wide:
                yield candidate


_CONVOLUTIONS = ("nn.conv2d", "nn.conv2d_transpose")


def _of_call(
    value: relax.Expr, definitions: Mapping[relax.Var, relax.Expr], rate: float, speed: float, target: Target
) -> Iterator[Candidate]:
    if is_call(value, "nn.conv2d"):
        yield from _convolution(value, definitions, rate, speed, target)
    elif is_call(value, "nn.conv2d_transpose"):
        yield from _deconvolution(value, definitions, rate, speed, target)
    elif is_call(value, "matmul"):
        yield from _product(value, definitions, target)


def _convolution(
    call: relax.Call, definitions: Mapping[relax.Var, relax.Expr], rate: float, speed: float, target: Target
) -> Iterator[Candidate]:
    data, weights = call.args
    if str(weights.ty.dtype) == "int8" and is_constant(weights) and has_quad_pairs(target):
        yield from _of_bytes(
            array_of(weights), shape_of(data), sliding_of(call, len(shape_of(weights)) - 2), rate, target
        )
        return
    filters = _float32_filters(weights, definitions, target)
    if filters is None or {str(data.ty.dtype), str(weights.ty.dtype)} != {"float32"}:
        return
    shape = shape_of(weights)
    yield from _by_winograd(filters, shape_of(data), shape, sliding_of(call, len(shape) - 2), rate, speed, target)


def _of_bytes(
    filters: np.ndarray, data: Sequence[int], sliding: Sliding, rate: float, target: Target
) -> Iterator[Candidate]:
    """Returns the cycles that Winograd's algorithm in int16 saves, compared with products of quads of bytes."""
    for tile in INTEGER_TILES:
        shape = _shape(data, filters.shape, sliding, max(target.block_lanes("float32"), 8))
        saved = winograd_saving(shape, tile, rate, target, INTEGER_SPEEDS, target.costs.loops.exposed_share)
        added = 2 * points_of(tile) * filters[..., 0, 0].size - filters.nbytes
        yield Candidate(filters.ctypes.data, tile, saved, added, narrow=True)


def _float32_filters(
    weights: relax.Expr, definitions: Mapping[relax.Var, relax.Expr], target: Target
) -> np.ndarray | None:
    """Returns constant filters that are packed in float32, as the network stores them: others stay narrow."""
    filters = weights_of(weights, lambda expr: definitions.get(expr, expr))
    return filters if filters is not None and multiplied_type(filters, target) == "float32" else None


def _narrow_tiles(target: Target) -> tuple[Tile, ...]:
    """Returns the tiles whose products may be in the 16-bit float: any that vectors compute with, or that has the range
    of float32.
    """
    dtype = target.float16_type
    if dtype == "float16" and sums_in_float16(target):
        return FLOAT16_TILES
    pairs = dtype == "bfloat16" and not in_tiles(multiplication_of(target, dtype, dtype), target)
    return NARROW_TILES if pairs else ()


def _deconvolution(
    call: relax.Call, definitions: Mapping[relax.Var, relax.Expr], rate: float, speed: float, target: Target
) -> Iterator[Candidate]:
    geometry = geometry_of(call, shape_of(call.args[0])[2:], max(target.block_lanes("float32"), 8))
    constant = _float32_filters(call.args[1], definitions, target)
    if geometry is None or constant is None:
        return
    filters = (geometry.channels, shape_of(call.args[1])[0], *geometry.taps)
    data = shape_of(call.args[0])
    yield from _by_winograd(constant, data, filters, geometry.sliding, rate, speed, target)


def _by_winograd(
    constant: np.ndarray,
    data: Sequence[int],
    filters: Sequence[int],
    sliding: Sliding,
    rate: float,
    speed: float,
    target: Target,
) -> Iterator[Candidate]:
    """Yields the algorithms for a convolution of data `[N, C, H, W]` and a filter `[O, C / groups, h, w]`.

    Args:
        constant: what the filter is computed from.
        speed: the speed of the direct sum, as in :func:`winograd_saving`.
    """
    size = max(target.block_lanes("float32"), 8)
    shape = _shape(data, filters, sliding, size)
    forms = [(tile, 1.0) for tile in TILES]
    if speed > 1:
        forms += [(tile, speed) for tile in _narrow_tiles(target)]
    for tile, of_tiles in forms:
        saved = winograd_saving(shape, tile, rate, target, (speed, of_tiles))
        added = winograd_bytes(shape, tile, size, of_tiles)
        yield Candidate(constant.ctypes.data, tile, saved, added, narrow=of_tiles > 1)


def _shape(data: Sequence[int], filters: Sequence[int], sliding: Sliding, size: int) -> Shape:
    """Returns the shape of a convolution in blocks of `size` channels."""
    outputs, inputs, *kernel = filters
    height, width = result_sizes(data[2:], kernel, sliding)
    counts = blocks(inputs, size), blocks(outputs, size)
    return Shape(
        size_hint(data[0]),
        size_hint(height),
        size_hint(width),
        inputs,
        *counts,
        tuple(kernel),
        sliding.strides,
        sliding.dilation,
        sliding.groups,
    )


def _product(call: relax.Call, definitions: Mapping[relax.Var, relax.Expr], target: Target) -> Iterator[Candidate]:
    left, right = call.args
    factor = constant_factor(right, len(shape_of(left)), lambda expr: definitions.get(expr, expr))
    if factor is None or 0 in shape_of(left):
        return
    dtype = multiplied_type(factor, target)
    if dtype != str(left.ty.dtype):
        return
    depth, columns = factor.shape
    known = is_known(*shape_of(left))  # if not, no other product with the factor uses the algorithm either
    saved = strassen_saving(shape_of(left), depth, columns, dtype, target) if known else -math.inf
    yield Candidate(factor.ctypes.data, None, saved, strassen_bytes(factor, dtype))
