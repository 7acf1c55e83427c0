"""Computations that loops must do in order: scatters with duplicates, sorts, suppressions.

What each element is can be said for most operators, and is then a computation of TE. Where a later item overwrites an
earlier one, the order of the loops is part of the meaning: such kernels are written as statements, over flat buffers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from nnefc.frontends.onnx.operator import Context, Value
from nnefc.frontends.onnx.operators.tensors import reshaped, shape_of

__all__ = ["Result", "T", "looped", "report"]

Result = tuple[Sequence[int], str]
"""Shape and element type of what a kernel writes."""

_OPAQUE = 8
"""Relax's number for kernels that nothing may be fused with: what they read and write cannot be told element-wise."""


def looped(
    ctx: Context, write: Callable[..., None], values: Sequence[Value], results: Sequence[Result], name: str
) -> list[Value]:
    """Run a kernel that `write` writes with the IR builder.

    Args:
        ctx: where the kernel is called.
        write: called once with the flat buffers of all values, then those of all results.
        values: what the kernel reads.
        results: what it writes; every element must be written.
        name: of the kernel.
    """
    flat = [reshaped(ctx, value, (math.prod(shape_of(value)),)) for value in values]
    sizes = [max(1, math.prod(shape)) for shape, _ in results]

    def function(*tensors: Any) -> Any:
        def body(ins: Any, outs: Any) -> Any:
            with IRBuilder() as builder:
                with T.seq_scope():
                    write(*map(T.buffer_proxy, (*ins, *outs)))
                return builder.get().body  # without the scope, which LLVM's code generator warns of

        # Offsets are zero: the buffers are whole tensors.
        sources = [tirx.decl_buffer(t.shape, str(t.dtype), f"in{i}", elem_offset=0) for i, t in enumerate(tensors)]
        targets = [
            tirx.decl_buffer((size,), dtype, f"out{i}", elem_offset=0)
            for i, (size, (_, dtype)) in enumerate(zip(sizes, results, strict=True))
        ]
        return te.extern(
            [(size,) for size in sizes],
            list(tensors),
            body,
            dtype=[dtype for _, dtype in results],
            in_buffers=sources,
            out_buffers=targets,
            name=name,
        )

    operands = [ctx.expr(value) for value in flat]
    expr = ctx.builder.call_te(function, *operands, primfunc_name_hint=name, primfunc_attrs={"op_pattern": _OPAQUE})
    parts = ctx.emit_tuple(expr) if len(results) > 1 else [ctx.emit(expr)]
    return [reshaped(ctx, part, shape) for part, (shape, _) in zip(parts, results, strict=True)]


def report(message: str) -> None:
    """Let the run fail with this message, when the kernel is done; the kernel goes on."""
    T.evaluate(tirx.call_extern("int32", "nnefc_kernel_error", tvm.ir.StringImm(message)))
