"""Calls user-defined C functions as kernels.

    call_c(at, CSource.file("scale.c"), "scale", [x], [(shape_of(x), "float32")], math.prod(shape_of(x)), 2.0)

calls `int32_t scale(const float *x, float *result, int64_t count, double factor)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx

from nnefc.ir.extern_c import CCall, CSource
from nnefc.operators.base import Emitter, Operand, check_size, dtype_of
from nnefc.operators.statements import Result, T, looped, report
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Size, expression

__all__ = ["call_c"]


def call_c(
    ctx: Emitter,
    source: CSource,
    function: str,
    operands: Sequence[Operand],
    results: Sequence[Result],
    *numbers: int | float | Size,
) -> tuple[Operand, ...]:
    """The results of a function in C, which is linked into the library.

    It is called once in a run, on one thread, with pointers to the operands, which it only reads, then pointers to the
    results, all of whose elements it writes, then the numbers: `int64_t` for integers and sizes, `double` for reals.
    Tensors are row-major without gaps. It returns an `int32_t`, 0 for success; with any other the run fails.

    Args:
        ctx: where it is called.
        source: where it is defined.
        function: its name.
        operands: what it reads.
        results: shapes and element types of what it writes.
        numbers: further arguments; sizes may be open.

    Raises:
        CompileError: no results, an element type that C lacks, or a number that is none.
    """
    if not results:
        raise CompileError(f"the function '{function}' has no results")
    for number in numbers:
        if not isinstance(number, int | float | Size):
            raise CompileError(f"the function '{function}' is given {number!r}, which is no number")
    shapes = [(check_size(shape), dtype) for shape, dtype in results]
    reads, writes = [dtype_of(operand) for operand in operands], [dtype for _, dtype in results]
    call = CCall.of(source, function, reads, writes, [isinstance(number, float) for number in numbers])

    def write(*tensors: Any) -> None:
        pointers = [tirx.address_of(tensor[0]) for tensor in tensors]
        made = tirx.call_extern("int32", call.symbol, *pointers, *map(_argument, numbers))
        with T.If(made != 0), T.Then():
            report(f"the operator's function '{function}' failed")

    return looped(ctx, write, operands, shapes, function, call.attributes)


def _argument(number: int | float | Size) -> tvm.ir.Expr:
    if isinstance(number, float):
        return tirx.const(number, "float64")
    return tirx.const(number, "int64") if isinstance(number, int) else expression(number).astype("int64")
