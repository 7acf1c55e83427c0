"""Chooses the number of channels in a block: as many as a vector has lanes, or more for narrow types.

A tile of a matrix unit reads 64 bytes of a pixel at once: 32 channels in bfloat16, or 64 bytes. Where bytes are
multiplied by lanes of a vector, one of 16 bytes is loaded at once. Each group of a convolution begins a block. What
fills up the last block costs time too, as much in operations that have no use for this: that with the fewest cycles
in all is chosen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import tvm
from tvm import relax

from nnefc.ir.dataflow import bindings_of
from nnefc.passes.compute.blocked import blocks
from nnefc.passes.compute.dot.dot_product import Multiplication, multiplication_of
from nnefc.passes.compute.dot.matrix_units import unit_of_product
from nnefc.passes.compute.tile_sizes import loaded_together
from nnefc.passes.graph.layout.rules.convolution import result_sizes, sliding_of
from nnefc.passes.graph.layout.rules.group_reads import groups_in_a_block
from nnefc.passes.graph.layout.rules.low_precision_convolution import fills_blocks
from nnefc.passes.graph.quantized.packed_operands import NARROW
from nnefc.passes.graph.rewriter import is_call, shape_of
from nnefc.support.element_types import bits_of
from nnefc.symbolic.dims import Dimension, element_count, size_hint
from nnefc.targets.machine.cpu.target import Target

__all__ = ["channels_of_a_block"]

_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
_SHARING = 0.02  # of the time: what sharing constants among the levels of a library may cost one of them


def channels_of_a_block(mod: tvm.IRModule, target: Target) -> int:
    """Returns the channels of a block, the same for all blocked tensors of a module."""
    lanes = _lanes(mod, target)
    if target.summed_bytes:
        return min(
            (lanes, target.summed_bytes),
            key=lambda size: sum(_summed_cycles(call, size, lanes) for call in _convolutions(mod)),
        )
    if target.vectors.by_lane:
        wide = target.lanes("int8") // max(1, target.vectors.scale)  # an element of a vector's 128 bits
        sizes = [lanes, max(lanes, wide)] if _multiplies_bytes(mod, target) else [lanes]
        sizes += [target.lanes("float16")] * (target.lanes("float16") > lanes and _multiplies(mod, ["float16"]))
        sizes += [target.lanes("float32")] * _may_be_one_vector(mod, target)
        return min(sizes, key=lambda size: sum(_cycles_by_lane(call, size, target) for call in _convolutions(mod)))
    if target.vectors.group > 1:
        sizes = [lanes, target.lanes("float16")] if _multiplies(mod, NARROW) else [lanes]
        return min(sizes, key=lambda size: sum(_cycles_in_groups(call, size, target) for call in _convolutions(mod)))
    calls = [call for call in _convolutions(mod) if target.tiles]
    widest = max((_tile_bytes(call, target) * 8 // bits_of(_type(call)) for call in calls), default=0)
    sizes = [size for size in (lanes, 2 * lanes, 4 * lanes) if size <= max(widest, lanes)]
    return min(sizes, key=lambda size: (sum(_cycles(call, size, lanes, target) for call in calls), -size))


def _lanes(mod: tvm.IRModule, target: Target) -> int:
    """Returns the lanes of full vectors that all ISA levels of a library share, unless that takes much longer."""
    own, shared = (max(lanes, 8) for lanes in (target.lanes("float32"), target.block_lanes("float32")))
    if own == shared:
        return own
    works = [sum(_filled_up(call, size) for call in _convolutions(mod)) for size in (own, shared)]
    return shared if works[1] <= works[0] * (1 + _SHARING) else own


def _filled_up(call: relax.Call, size: int) -> int:
    """Returns the products of a convolution with blocks of `size` channels, padding of the last blocks included.

    Nothing fills up the last block of the data, but kernels that read a part of a block take about as long.
    """
    weights = call.args[1]
    outputs, inputs, *kernel = map(_number, shape_of(weights))
    batch, _, *sizes = shape_of(call.args[0])
    results = result_sizes(sizes, (outputs, inputs, *kernel)[2:], sliding_of(call, len(kernel)))
    across = blocks(inputs, size) * size if inputs > size else inputs
    return _number(element_count((batch, *results, *kernel))) * blocks(outputs, size) * size * across


def _convolutions(mod: tvm.IRModule) -> Iterator[relax.Call]:
    yield from (binding.value for binding in bindings_of(mod["main"]) if is_call(binding.value, *_CONVOLUTIONS))


def _type(call: relax.Call) -> str:
    return str(call.args[1].ty.dtype)


def _is_depthwise(call: relax.Call) -> bool:
    return int(call.attrs.groups) > 1 and shape_of(call.args[1])[1] == 1


def _tile_bytes(call: relax.Call, target: Target) -> int:
    """Returns the bytes of a pixel that the matrix unit reads together; 0 where it does not compute the call."""
    data = str(call.args[0].ty.dtype)
    if _type(call) not in NARROW or data not in NARROW or _is_depthwise(call):
        return 0
    unit = unit_of_product(multiplication_of(target, data, _type(call)), target)
    return 0 if unit is None else unit.block_bytes


def _cycles(call: relax.Call, size: int, lanes: int, target: Target) -> float:
    """Estimates the cycles of a convolution with blocks of `size` channels: one row of a tile per pixel and cycle."""
    data, weights = call.args
    outputs, inputs, *kernel = map(_number, shape_of(weights))
    batch, _, *sizes = shape_of(data)
    results = result_sizes(sizes, (outputs, inputs, *kernel)[2:], sliding_of(call, len(kernel)))
    steps = _number(element_count((batch, *results, *kernel)))
    vectors: int = blocks(outputs, size) * (size // lanes)
    if _is_depthwise(call):
        return steps * vectors * target.costs.loops.tap_cycles
    if not _tile_bytes(call, target):
        return steps * vectors * inputs / target.costs.multiply_adds
    return steps * vectors * blocks(inputs, size)


def _summed_cycles(call: relax.Call, size: int, lanes: int) -> float:
    """Estimates the cycles where one instruction sums up the products of a block's bytes; with blocks of `lanes` it
    takes one instruction too.
    """
    outputs, inputs, *kernel = map(_number, shape_of(call.args[1]))
    batch, _, *sizes = shape_of(call.args[0])
    steps = _number(element_count((batch, *result_sizes(sizes, kernel, sliding_of(call, len(kernel))), *kernel)))
    vectors = blocks(outputs, size) * size
    if _is_depthwise(call):
        return steps * vectors
    return steps * vectors * (blocks(inputs, size) if _type(call) in NARROW else inputs)


def _multiplies_bytes(mod: tvm.IRModule, target: Target) -> bool:
    """Whether a convolution is one of bytes, four of which are multiplied in a lane."""
    return any(_terms(call, target) == target.lanes("int8") // target.lanes("int32") for call in _convolutions(mod))


def _multiplies(mod: tvm.IRModule, dtypes: Collection[str]) -> bool:
    return any(_type(call) in dtypes for call in _convolutions(mod))


def _may_be_one_vector(mod: tvm.IRModule, target: Target) -> bool:
    """Whether blocks of one float32 vector are an option: for groups that would leave much of longer ones empty, if no
    type is narrower and the library has no further ISA levels with longer vectors.
    """
    calls = list(_convolutions(mod))
    if target.block_lanes("float32") != target.lanes("float32") or any(_type(call) in NARROW for call in calls):
        return False
    return any(int(call.attrs.groups) > 1 and not _is_depthwise(call) for call in calls)


def _terms(call: relax.Call, target: Target) -> int:
    """Returns the number of products that are one step of a sum."""
    if _type(call) not in NARROW or _is_depthwise(call):
        return 1
    return _multiplication(call, target).terms


def _multiplication(call: relax.Call, target: Target) -> Multiplication:
    return multiplication_of(target, str(call.args[0].ty.dtype), _type(call))


def _cycles_by_lane(call: relax.Call, size: int, target: Target) -> float:
    """Estimates the cycles where vectors are multiplied by lanes: each vector of a block is loaded once for
    each pixel.
    """
    outputs, inputs, *kernel = map(_number, shape_of(call.args[1]))
    batch, _, *sizes = shape_of(call.args[0])
    steps = _number(element_count((batch, *result_sizes(sizes, kernel, sliding_of(call, len(kernel))), *kernel)))
    element = "float16" if _type(call) == "float16" else "int32"
    columns, terms = max(1, size // target.lanes(element)), _terms(call, target)
    lanes = target.lanes("float32") // max(1, target.vectors.scale)
    if _is_depthwise(call):
        return steps * blocks(outputs, size) * columns * target.costs.loops.tap_cycles
    groups = int(call.attrs.groups)
    if groups > 1:  # several small ones fill a block with zeros between them; data are read in whole ones
        merged = groups_in_a_block(outputs // groups, groups, size)
        groups //= merged
        inputs = blocks(inputs * merged, size) * size
    elif _type(call) in NARROW and fills_blocks(_multiplication(call, target), inputs, size, target):
        inputs = blocks(inputs, size) * size
    vectors = steps * groups * blocks(outputs // groups, size) * columns
    loads = 1 / (columns * min(lanes, size // terms))
    together = loaded_together(target) if element == "int32" and terms == 1 else 1
    return vectors * -(-inputs // terms) * (1 + loads / together)


def _cycles_in_groups(call: relax.Call, size: int, target: Target) -> float:
    """Estimates the cycles where a vector is a group of registers, or a smaller group if its elements are narrow."""
    outputs, inputs, *kernel = map(_number, shape_of(call.args[1]))
    batch, _, *sizes = shape_of(call.args[0])
    steps = _number(element_count((batch, *result_sizes(sizes, kernel, sliding_of(call, len(kernel))), *kernel)))
    if _is_depthwise(call):
        return steps * blocks(outputs, size) * size / target.lanes("float32") * target.costs.loops.tap_cycles
    lane = "float16" if _type(call) in NARROW else "float32"
    columns = max(
        1, target.lanes(lane) // size
    )  # of a tile: as many as make a whole group, which an element is loaded for
    return steps * blocks(outputs, size) * inputs * max(1, size // target.lanes(lane)) * (1 + 1 / columns)


def _number(size: Dimension) -> int:
    """Returns a size, or the size hint of a dynamic one."""
    return int(size_hint(size))
