"""Builds kernels from statements, where the order of loops is part of the result.

Most operators are computations of TE, which define each element by itself. Scatters in which a later element overwrites
an earlier one, sorts, searches and random number generators are written as loops over flat buffers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import tvm
from tvm import te, tirx

from nnefc.ir.attributes import INDEPENDENT, SIZE_HINT
from nnefc.operators.base import Emitter, Operand, Operator, Shape, shape_of, zeros
from nnefc.symbolic.dims import Dimension, expression, greatest, size_hint

__all__ = ["Failure", "Result", "T", "checking", "columns", "each", "hinted", "looped", "report"]

Result: TypeAlias = tuple[Shape, str]
"""Shape and element type of what a kernel writes."""


class _Builder:
    """The functions of TVM's builder of statements, which takes a while to import: with the first kernel built so."""

    def __getattr__(self, name: str) -> Any:
        from tvm.script.ir_builder import tirx as functions

        return getattr(functions, name)


T: Any = _Builder()


_OPAQUE = 8
"""Relax's number for kernels that nothing may be fused with: their accesses are not element-wise."""


def looped(
    ctx: Emitter,
    write: Callable[..., None],
    operands: Sequence[Operand],
    results: Sequence[Result],
    name: str,
    attrs: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Operand, ...]:
    """The results of a kernel that `write` writes with the IR builder.

    Args:
        ctx: where the kernel is called.
        write: called once with the flat buffers of all operands, then those of all results.
        operands: what the kernel reads.
        results: what it writes; every element must be written.
        name: of the kernel.
        attrs: further attributes of the kernel.
    """
    flat = [ctx.reshaped(operand, (math.prod(shape_of(operand)),)) for operand in operands]
    sizes = [greatest(1, math.prod(shape)) for shape, _ in results]

    def function(*tensors: te.Tensor) -> Any:
        from tvm.script.ir_builder import IRBuilder

        def body(ins: Any, outs: Any) -> Any:
            with IRBuilder() as builder:
                with T.seq_scope():
                    write(*map(T.buffer_proxy, (*ins, *outs)))
                return builder.get().body  # without the scope, which LLVM's code generator warns of

        # Offsets are zero: the buffers are whole tensors.
        sources = [tirx.decl_buffer(t.shape, str(t.dtype), f"in{i}", elem_offset=0) for i, t in enumerate(tensors)]
        targets = [
            tirx.decl_buffer((expression(size),), dtype, f"out{i}", elem_offset=0)
            for i, (size, (_, dtype)) in enumerate(zip(sizes, results, strict=True))
        ]
        return te.extern(
            [(expression(size),) for size in sizes],
            list(tensors),
            body,
            dtype=[dtype for _, dtype in results],
            in_buffers=sources,
            out_buffers=targets,
            name=name,
        )

    call = ctx.compute(function, *flat, name=name, attrs={"op_pattern": _OPAQUE, **attrs})
    parts = ctx.parts(call) if len(results) > 1 else [ctx.emit(call)]
    return tuple(
        zeros(shape, ctx.number(0, part).dtype) if 0 in shape else ctx.reshaped(part, shape)
        for part, (shape, _) in zip(parts, results, strict=True)
    )


def checking(
    ctx: Emitter, write: Callable[..., None], operands: Sequence[Operand], results: Sequence[Result], name: str
) -> tuple[Operand, ...]:
    """`looped`, of a kernel that reports what is wrong with its operands: only where its results are needed.

    The first argument of `write` are conditions for `report`, which do not hold in branches that are not chosen. What
    is written there must be as safe for the kernels that read it.
    """
    chosen = tuple(ctx.chosen_by)

    def conditional(*buffers: Any) -> None:
        given = zip(buffers, chosen, strict=False)
        write([it[0] if holds else tirx.Not(it[0]) for it, (_, holds) in given], *buffers[len(chosen) :])

    return looped(ctx, conditional, [*(condition for condition, _ in chosen), *operands], results, name)


_PARALLEL_WORK = 1 << 14
"""Elements from which on it is worth waking another thread."""


def each(count: Dimension, work: Dimension) -> Any:
    """A loop whose iterations are independent of each other, on several threads if they have work for them in all.

    Where there is too little for those of a processor, GPUs know by INDEPENDENT that it may be shared.
    """
    trips = expression(count)
    if size_hint(work) >= _PARALLEL_WORK and size_hint(count) > 1:
        return T.parallel(0, trips)
    return T.serial(0, trips, annotations={INDEPENDENT: True})


def columns(count: Dimension) -> Any:
    """Returns a loop with independent iterations, inside one whose order matters."""
    return T.serial(0, expression(count), annotations={INDEPENDENT: True})


def hinted(count: Any, usual: int) -> Any:
    """Returns a loop with a trip count known only at run time, and its usual trip count as a hint."""
    return T.serial(0, count, annotations={SIZE_HINT: max(1, usual)})


def report(message: str, conditions: Sequence[tirx.Expr] = ()) -> None:
    """Let the run fail with this message if all conditions hold, when the kernel is done; the kernel goes on."""
    call = tirx.call_extern("int32", "nnefc_kernel_error", tvm.ir.StringImm(message))
    if not conditions:
        T.evaluate(call)
        return
    with T.If(tirx.all(*conditions)), T.Then():
        T.evaluate(call)


@dataclass(frozen=True)
class Failure(Operator):
    """Zeros, of a kernel that lets the run fail with a message.

    Attributes:
        message: what the run fails with.
        results: shapes, all with elements, and element types.
    """

    message: str
    results: tuple[Result, ...]

    def shape(self) -> tuple[Shape, ...]:
        """Those that are given."""
        return tuple(shape for shape, _ in self.results)

    def lower(self, ctx: Emitter) -> tuple[Operand, ...]:
        def write(*targets: Any) -> None:
            for target in targets:
                with T.serial(target.shape[0]) as position:
                    target[position] = tirx.const(0, target.dtype)
            report(self.message)

        return looped(ctx, write, [], self.results, "failure")
