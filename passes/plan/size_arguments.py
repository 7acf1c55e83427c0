"""Rewrites kernels to take few and simple size arguments, which their callers compute.

    kernel(x[(h - 1) // 4 + 1, 8], y[(h - 1) // 112 * 28 + 28, 8])                 for the dynamic dimension h
        →    kernel(x[s + 1, 8], y[s // 28 * 28 + 28, 8])                          called with s = (h - 1) // 4

Deep in a network, sizes are quotients of its dynamic dimensions by large numbers. A kernel that uses a dimension in
such quotients alone is written with the quotient by their common divisor, less what is taken from each of them: with
s = h // 4 - 2 for h // 4 - 2 and h // 4 - 1. Then it is clear how its sizes follow from each other; and kernels that
differ in that quotient alone, and in no range, are one.

A kernel with a size that is negative does nothing: see :func:`nnefc.symbolic.dims.named`. What stands for a size may be
negative only where all results of the kernel have no elements then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import s_tir, tirx

from nnefc.ir.attributes import DYNAMIC_DIMENSIONS, OPERAND_SHAPES
from nnefc.passes.schedule.schedules import dynamic_sizes_of
from nnefc.passes.tir.common.expressions import int64
from nnefc.symbolic.dims import Dimension, bounds, dimension, expression, minimum, named, substituted

__all__ = ["SizeArguments", "pass_sizes_as_arguments"]

SizeArguments = tuple[tuple[tirx.Var, Dimension], ...]
"""The sizes that a kernel is written with, and the value of each in a call, in the network's dynamic dimensions."""


@dataclass(frozen=True)
class _Quotient:
    """`(var + added) // divisor`."""

    var: tirx.Var
    added: int
    divisor: int

    @property
    def value(self) -> Dimension:
        """The quotient, simplified."""
        return dimension(tirx.floordiv(self.var + int64(self.added), int64(self.divisor)))

    def by(self, other: _Quotient, size: tirx.Expr) -> tirx.Expr:
        """Returns the quotient in terms of `size`, which stands for `other`, whose divisor is a common one."""
        added, divisor = (self.added - other.added) // other.divisor, self.divisor // other.divisor
        dividend = size + int64(added) if added > 0 else size - int64(-added) if added < 0 else size
        return tirx.floordiv(dividend, int64(divisor)) if divisor > 1 else dividend

    def less(self, number: int) -> _Quotient:
        """Returns the quotient less a number."""
        return _Quotient(self.var, self.added - number * self.divisor, self.divisor)


def pass_sizes_as_arguments(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, SizeArguments]:
    """Returns a kernel rewritten from the network's dynamic dimensions to sizes of its own, and the values of these."""
    dynamic_dimensions = dynamic_sizes_of(func)
    if not dynamic_dimensions:
        return func, ()
    bare = func.without_attr(DYNAMIC_DIMENSIONS).without_attr(OPERAND_SHAPES)
    common = _common_quotients(bare, dynamic_dimensions)
    taken = _taken_always(bare, [var for var in dynamic_dimensions if var not in common])
    values = {
        var: common[var].value if var in common else dimension(var) - taken.get(var, 0) for var in dynamic_dimensions
    }
    names = {var: named(str(var.name), values[var]) for var in (*common, *taken)}

    def renamed(node: tirx.FloorDiv) -> tirx.Expr:
        quotient = _quotient(node)
        if quotient is None or quotient.var not in common:
            return node
        return quotient.by(common[quotient.var], expression(names[quotient.var]))

    def shortened(node: tirx.Sub) -> tirx.Expr:
        if node.a not in taken or not isinstance(node.b, tirx.IntImm):
            return node
        left = taken[node.a] - int(node.b)
        return expression(names[node.a] + left)

    own = tvm_ffi.structural_map(bare, (tirx.FloorDiv, renamed)) if common else bare
    own = tvm_ffi.structural_map(own, (tirx.Sub, shortened)) if taken else own
    own = tvm_ffi.structural_map(own, ((tirx.Add, tirx.Sub), _without_steps_back)) if common else own
    arguments = [(expression(names.get(var, dimension(var))), value) for var, value in values.items()]
    return own.with_attr(DYNAMIC_DIMENSIONS, [size for size, _ in arguments]), tuple(arguments)


def _common_quotients(func: tirx.PrimFunc, variables: Sequence[tirx.Var]) -> Mapping[tirx.Var, _Quotient]:
    """Returns, for each variable that a kernel uses in quotients only, a quotient from which all of them follow."""
    found: dict[tirx.Var, list[_Quotient]] = {var: [] for var in variables}
    uses = dict.fromkeys(variables, 0)
    taken: dict[tirx.Var, list[int]] = {var: [] for var in variables}

    def note_difference(node: tirx.Sub) -> None:
        quotient = _quotient(node.a)
        if quotient is not None and quotient.var in found and isinstance(node.b, tirx.IntImm):
            taken[quotient.var].append(int(node.b))

    def note_quotient(node: tirx.FloorDiv) -> None:
        quotient = _quotient(node)
        if quotient is not None and quotient.var in found:
            found[quotient.var].append(quotient)

    def note_use(var: tirx.Var) -> None:
        if var in uses:
            uses[var] += 1

    kinds = [(tirx.Sub, note_difference), (tirx.FloorDiv, note_quotient), (tirx.Var, note_use)]
    tvm_ffi.structural_walk(func, kinds)
    only_quotients = {var: quotients for var, quotients in found.items() if len(quotients) == uses[var] > 0}
    common = {var: _common(quotients) for var, quotients in only_quotients.items()}
    always = {var: max(numbers) for var, numbers in taken.items() if len(numbers) == len(found[var]) > 0}
    return {
        var: _as_size(func, quotient, always.get(var, 0)) for var, quotient in common.items() if quotient.divisor > 1
    }


def _as_size(func: tirx.PrimFunc, quotient: _Quotient, taken: int) -> _Quotient:
    """Returns a quotient less the number that a kernel subtracts from it, if that may stand for a size, else one that
    is a size.
    """
    lower = quotient.less(taken)
    if bounds(lower.value)[0] >= 0:
        return lower
    if _may_stand(func, quotient.var, -quotient.added):
        return quotient
    return quotient.less(bounds(quotient.value)[0])


def _taken_always(func: tirx.PrimFunc, variables: Sequence[tirx.Var]) -> Mapping[tirx.Var, int]:
    """Returns the variables from which a kernel always subtracts a number, and the largest of these numbers."""
    uses = dict.fromkeys(variables, 0)
    taken: dict[tirx.Var, list[int]] = {var: [] for var in variables}

    def note_difference(node: tirx.Sub) -> None:
        if node.a in taken and isinstance(node.b, tirx.IntImm) and int(node.b) > 0:
            taken[node.a].append(int(node.b))

    def note_use(var: tirx.Var) -> None:
        if var in uses:
            uses[var] += 1

    if variables:
        tvm_ffi.structural_walk(func, [(tirx.Sub, note_difference), (tirx.Var, note_use)])
    found = {var: max(numbers) for var, numbers in taken.items() if len(numbers) == uses[var] > 0}
    return {var: n for var, n in found.items() if _may_stand(func, var, n)}


def _may_stand(func: tirx.PrimFunc, var: tirx.Var, first: int) -> bool:
    """Whether a kernel may do nothing where a variable is less than `first`.

    Either no run has a tensor of such a shape there, one with a negative dimension, or all results have no elements.
    """
    if bounds(dimension(var))[0] >= first:
        return True
    below = named(str(var.name), minimum(dimension(var), first - 1))

    def maximum(tensor: tirx.Var) -> int:
        """Returns the upper bound of the tensor's smallest dimension."""
        return min((bounds(substituted(dimension(size), {var: below}))[1] for size in tensor.shape), default=1)

    results = _written(func)
    never = any(maximum(tensor) < 0 for tensor in func.params)
    return never or (len(results) > 0 and all(maximum(result) <= 0 for result in results))


def _written(func: tirx.PrimFunc) -> list[tirx.Var]:
    """Returns the parameters of a kernel that it writes."""
    tensors: list[tirx.Var] = []

    def note(block: s_tir.SBlock) -> None:
        tensors.extend(region.source for region in block.writes)

    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, note))
    return [param for param in func.params if any(param.same_as(tensor) for tensor in tensors)]


def _common(quotients: Sequence[_Quotient]) -> _Quotient:
    """Returns the quotient with the greatest divisor from which all of these can be computed."""
    first = quotients[0]
    numbers = {number for q in quotients for number in (q.divisor, q.added - first.added)}
    return _Quotient(first.var, first.added, math.gcd(*numbers))


def _without_steps_back(node: tirx.Add | tirx.Sub) -> tirx.Expr:
    """Simplifies `s + 2 - 2` to `s`, `s + 2 - 1` and `s - 1 + 2` to `s + 1`."""
    if str(node.expr_ty().dtype) != "int64":
        return node
    match node.a, node.b:
        case tirx.Add(a=size, b=tirx.IntImm() as added), tirx.IntImm() as taken if isinstance(node, tirx.Sub):
            left = int(added) - int(taken)
        case tirx.Sub(a=size, b=tirx.IntImm() as taken), tirx.IntImm() as added if isinstance(node, tirx.Add):
            left = int(added) - int(taken)
        case _:
            return node
    if left == 0:
        return size
    return size + int64(left) if left > 0 else size - int64(-left)


def _quotient(node: tirx.Expr) -> _Quotient | None:
    """Returns a quotient of a variable, with a number added, by a number."""
    if not isinstance(node, tirx.FloorDiv) or not isinstance(node.b, tirx.IntImm):
        return None
    match node.a:
        case tirx.Var():
            return _Quotient(node.a, 0, int(node.b))
        case tirx.Add(a=tirx.Var() as var, b=tirx.IntImm() as added):
            return _Quotient(var, int(added), int(node.b))
        case tirx.Sub(a=tirx.Var() as var, b=tirx.IntImm() as taken):
            return _Quotient(var, -int(taken), int(node.b))
    return None
