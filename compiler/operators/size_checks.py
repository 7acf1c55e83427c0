"""Lowers operators to whose operands data give sizes that only a run can compare.

    [min(a, n) + max(n - b, 0), 3] + [n, 3]

An operator needs both sizes to be equal. No dimension can be computed from the others here, and a range in which they
are equal for certain would exclude other runs in which they are, too. So the first operand is copied to a tensor of the
shape `[n, 3]` by a kernel that lets the run fail where the sizes differ, and the operator is lowered again.
"""

from __future__ import annotations

import operator
from typing import Any

from tvm import relax

from nnefc.operators.base import Emitter, Operator, Shape
from nnefc.operators.tensor.data_dependent_sizes import checked_shape, depends_on_data
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import dimensions
from nnefc.symbolic.unification import ComparedInRun, compared_in_run

__all__ = ["lowered"]


def lowered(op: Operator, ctx: Emitter, *operands: Any) -> Any:
    """What an operator is lowered to, with those sizes of its operands compared in each run that depend on data."""
    sizes = [size for operand in operands for size in _shape(operand) if depends_on_data(size)]
    if not sizes:
        return op.lower(ctx, *operands)
    try:
        with compared_in_run(sizes):
            return op.lower(ctx, *operands)
    except ComparedInRun as found:
        given = [_with_size(ctx, operand, found, type(op).__name__) for operand in operands]
        if all(map(operator.is_, given, operands)):
            raise CompileError(f"the sizes {found.size} and {found.wanted} must be equal") from None
    return lowered(op, ctx, *given)


def _shape(operand: Any) -> Shape:
    """The shape of a tensor that is computed; none of other operands."""
    if not isinstance(operand, relax.Expr) or not isinstance(operand.ty, relax.TensorType):
        return ()
    return dimensions(operand.ty.shape.values)


def _with_size(ctx: Emitter, operand: Any, found: ComparedInRun, name: str) -> Any:
    """A tensor with another size in place of one that the run compares with it; other operands as they are."""
    shape = _shape(operand)
    if found.size not in shape:
        return operand
    return checked_shape(ctx, operand, [found.wanted if size == found.size else size for size in shape], name)
