"""Computes the dimensions of a program: those that follow from its dynamic dimensions, and data-dependent ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

from tvm import tirx
from tvm.ir import PointerType, PrimType

from nnefc.passes.plan.memory import Counts, MemoryPlan
from nnefc.passes.plan.program import Buffer, IfStep, LoopStep, Program, kernel_stages
from nnefc.passes.plan.symbols import SIZES, exported
from nnefc.passes.tir.common.expressions import in_floats, int64
from nnefc.passes.tir.common.lower_kernel import with_dynamic_shapes
from nnefc.symbolic.dims import (
    MAX_ELEMENTS,
    Dimension,
    bounds,
    dimensions,
    element_count,
    expression,
    substituted,
    widest,
)

__all__ = ["data_dependent_sizes", "output_parts", "sizes_function"]


def data_dependent_sizes(program: Program) -> list[tuple[int, int]]:
    """Returns the data-dependent dimensions of outputs, each as the number of the output and the axis."""
    counts = Counts(program.limits, program.parts)
    return [
        (number, axis)
        for number, output in enumerate(program.outputs)
        for axis, size in enumerate(output.shape)
        if counts.tell(size)
    ]


def output_parts(program: Program) -> tuple[int, ...]:
    """Return, for each output, the index of the workspace part after which the output's maximum size is known."""
    limits = program.limits
    counts = Counts(limits, program.parts)
    return tuple(
        max((counts.part(widest(size, limits)) for size in output.shape), default=0) for output in program.outputs
    )


def sizes_function(
    program: Program,
    plan: MemoryPlan,
    dynamic_dimensions: Sequence[tirx.Var],
    max_elements: int = MAX_ELEMENTS,
    symbol: str = SIZES,
) -> tirx.PrimFunc:
    """Returns the function that computes what follows from the values of the dynamic dimensions.

        nnefc_network_sizes(int64 *open, int64 *derived) -> int32

    `derived` becomes the bytes of each storage of the plan, the shapes of all outputs, and for each part of the
    workspace the smallest dimension of any of its tensors, which is negative where sizes are too small for the network,
    and the maximum elements of those, within kernels too, that might have more than `max_elements`. What is too large
    for 63 bits is the largest int64.
    """
    limits = program.limits
    derived = [storage.bytes for storage in plan.storages]
    derived += [widest(size, limits) for tensor in program.outputs for size in tensor.shape]
    values, results = (tirx.Var(name, PointerType(PrimType("int64"))) for name in ("open", "derived"))
    parts = program.parts
    made = tirx.decl_buffer((len(derived) + 2 + 2 * len(parts),), "int64", name="derived", data=results)
    body = [*_read(values, dynamic_dimensions), tirx.DeclBuffer(made, data=results)]

    def largest(shape: Sequence[Dimension]) -> tuple[Dimension, ...]:
        return tuple(widest(size, limits) for size in shape)

    shapes = dict.fromkeys(largest(tensor.shape) for tensor in _tensors(program))
    always = dict.fromkeys(largest(tensor.shape) for tensor in _tensors(program, in_choices=False))
    inner = map(largest, _inner_shapes(program))
    numbers = list(map(_saturated, derived))
    counts = Counts(limits, parts)
    by_part: dict[int, list[tuple[Dimension, ...]]] = {part: [] for part in range(1 + len(parts))}
    for shape in dict.fromkeys([*shapes, *inner]):
        by_part[max(map(counts.part, shape), default=0)].append(shape)
    for of_part in by_part.values():
        numbers += [_min_dimension(s for s in of_part if s in always), _max_elements(of_part, max_elements)]
    body += [tirx.BufferStore(made, number, [int64(index)]) for index, number in enumerate(numbers)]
    body.append(tirx.Return(tirx.IntImm("int32", 0)))
    function = tirx.PrimFunc([values, results], tirx.SeqStmt(body), ret_type=PrimType("int32"))
    return exported(with_dynamic_shapes(function, chooses=False), symbol)


def _saturated(size: Dimension) -> tirx.Expr:
    """Returns a size, or the largest int64 if it is too large for one."""
    if isinstance(size, int):
        return int64(size)
    limit = tirx.const(float(1 << 62), "float64")
    return tirx.Select(in_floats(size.expr) > limit, int64((1 << 63) - 1), size.expr)


def _tensors(program: Program, in_choices: bool = True) -> Iterator[Buffer]:
    """Yields the buffers that a program's steps read and write, also those in loops, and in branches if
    `in_choices`.
    """
    for step in program.steps:
        yield from (*step.reads, *step.writes)
        if isinstance(step, LoopStep) or (in_choices and isinstance(step, IfStep)):
            for body in step.bodies:
                yield from _tensors(body, in_choices)


def _min_dimension(shapes: Iterable[Sequence[Dimension]]) -> tirx.Expr:
    """Returns the smallest of all dimensions that might be negative, and 0."""
    sizes = dict.fromkeys(size for shape in shapes for size in shape if bounds(size)[0] < 0)
    return reduce(tirx.min, map(expression, sizes), int64(0))


def _inner_shapes(program: Program) -> Iterator[tuple[Dimension, ...]]:
    """Yields the shapes of the tensors within unscheduled kernels."""
    for step in kernel_stages(program):
        values = dict(step.sizes)
        for tensor in program.kernels[step.kernel].body.block.alloc_buffers:
            yield tuple(substituted(size, values) for size in dimensions(tensor.shape))


def _max_elements(shapes: Iterable[Sequence[Dimension]], limit: int) -> tirx.Expr:
    """Returns the largest number of elements of the tensors that may exceed a limit by their bounds, and at least 0."""
    large = [shape for shape in shapes if _maximum(shape) > limit]
    return reduce(tirx.max, map(_saturated, dict.fromkeys(map(element_count, large))), int64(0))


def _maximum(shape: Sequence[Dimension]) -> int:
    """Returns an upper bound of the elements of a tensor of this shape."""
    return math.prod(max(map(abs, bounds(size))) for size in shape)


def _read(pointer: tirx.Var, into: Sequence[tirx.Var]) -> list[tirx.Stmt]:
    """Binds variables to the int64 numbers that a pointer points to."""
    numbers = tirx.decl_buffer((len(into),), "int64", name="numbers", data=pointer)
    declared = tirx.DeclBuffer(numbers, data=pointer)
    return [declared, *(tirx.Bind(var, numbers[int64(index)]) for index, var in enumerate(into))]
