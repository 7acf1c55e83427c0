"""Inserts fusion barriers around operators that cost less outside of a group of fused operators.

    y = [reshape, subtract, exp, reshape](x)     →     a = reshape(x); b = [subtract, exp](a); y = reshape(b)
    y = [row_sum, multiply, transpose](x)        →     a = [row_sum, multiply](x); y = transpose(a)
    y = [sqrt, divide, …, multiply](s[c], x[n, c])     →     a = [sqrt, divide, …](s); y = multiply(a, x)
    y = [multiply, round, …, add, transpose](x)        →     a = [multiply, round, …, add](x); y = transpose(a)

A reshape at the beginning or at the end of a group is no work by itself: the memory plan reads the same bytes. Within
the group it makes indices that are computed. Behind reductions of rows, steps that move elements keep the whole group
from running row after row (`passes/schedule/cpu/row_reduction.py`). What is computed for each column and read in every
row would be computed in every row. What is read along another axis than the result's last one is computed element by
element where it is fused, and in vectors where it is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import tvm
from tvm import relax, tirx

from nnefc.ir.dataflow import bindings_of
from nnefc.passes.graph.fusion.expression_size import READ, ExpressionSize, kernel_size, size_of_call
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.rewriter import operands, shape_of
from nnefc.passes.schedule.analysis import Axis, KernelAnalysis, ScheduleBlock
from nnefc.passes.schedule.in_place import in_place_of
from nnefc.passes.tir.common.expressions import is_number, variables_of

__all__ = ["values_between", "values_spread", "values_transposed"]

_MAX_SPREAD = 6
"""The largest expression for each column that is computed again in every row, rather than once by a kernel of
its own.
"""

_MAX_TRANSPOSED = 24
"""The largest expression that is computed element by element, rather than in vectors by a kernel of its own."""


def values_between(group: relax.Function, mod: tvm.IRModule) -> set[relax.Var]:
    """Returns the values of a group of `call_tir`s at which reshapes and moves are split from the other operators."""
    bindings = bindings_of(group)
    if len(bindings) < 2:
        return set()
    steps = {binding.var: _kind(mod[binding.value.args[0]]) for binding in bindings}
    read = {binding.var: operands(binding.value)[1:] for binding in bindings}
    reshaped: set[relax.Expr] = set()  # by reshapes alone, from what the group is given
    of_rows: set[relax.Expr] = set()  # from reductions of rows, element by element
    found: set[relax.Var] = set()
    for var, step in steps.items():
        if step.reshapes and all(operand in reshaped or operand not in steps for operand in read[var]):
            reshaped.add(var)
            continue
        rows = {operand for operand in read[var] if operand in of_rows}
        if step.moves:
            found |= rows
        elif step.reduces or rows:
            of_rows.add(var)
    last = group.body.body
    while last in steps and steps[last].reshapes:
        (last,) = read[last]
        found |= {last} & steps.keys()
    return found | reshaped


def values_spread(group: relax.Function, mod: tvm.IRModule) -> set[relax.Var]:
    """Returns the values of a group of `call_tir`s that take work and have fewer rows than the results computed from
    them.
    """
    found: set[relax.Var] = set()
    sizes: dict[relax.Expr, ExpressionSize] = {}
    for binding in bindings_of(group):
        read = operands(binding.value)[1:]
        spread = {value for value in read if value in sizes and _is_spread(value, binding.var)}
        found |= {value for value in spread if sizes[value].nodes > _MAX_SPREAD}
        known = [READ if value in found else sizes.get(value, READ) for value in read]
        sizes[binding.var] = size_of_call(kernel_size(mod[binding.value.args[0]]), known)
    return found


def values_transposed(group: relax.Function, mod: tvm.IRModule) -> set[relax.Var]:
    """Returns the values of a group of `call_tir`s that take work and are read along another axis than the last."""
    found: set[relax.Var] = set()
    sizes: dict[relax.Expr, ExpressionSize] = {}
    for binding in bindings_of(group):
        kernel, read = mod[binding.value.args[0]], operands(binding.value)[1:]
        heavy = [value for value in read if value in sizes and sizes[value].nodes > _MAX_TRANSPOSED]
        if heavy:
            moved = _transposed(kernel)
            found |= {value for value, along in zip(read, moved, strict=True) if along} & set(heavy)
        known = [READ if value in found else sizes.get(value, READ) for value in read]
        sizes[binding.var] = size_of_call(kernel_size(kernel), known)
    return found


@lru_cache(maxsize=1024)
def _transposed(func: tirx.PrimFunc) -> tuple[bool, ...]:
    """Returns for each operand of a kernel whether neighbours along the result's last axis read distant elements."""
    found: set[tirx.Var] = set()
    for step in KernelAnalysis(func).steps:
        for read in step.reads if step.axes and not step.is_reduction else ():
            last, positions = step.axes[-1].var, [position.min for position in read.region]
            inner = variables_of(positions[-1:])
            if last in variables_of(positions[:-1]) and last not in inner:
                found.add(read.source)
    return tuple(param in found for param in func.params[:-1])


def _is_spread(value: relax.Expr, result: relax.Var) -> bool:
    """Whether every row of a result reads a value that has a single row of different elements."""
    own, whole = shape_of(value), shape_of(result)
    if not own or _is_one(own[-1]) or len(own) > len(whole):
        return False
    rows = [*[1] * (len(whole) - len(own)), *own[:-1]]
    return any(_is_one(count) and not _is_one(size) for count, size in zip(rows, whole[:-1], strict=True))


def _is_one(size: object) -> bool:
    return isinstance(size, int) and size == 1


@dataclass(frozen=True)
class _Kind:
    """The kind of a kernel.

    Attributes:
        reshapes: the result has the bytes of the one operand.
        reduces: it reduces rows, joined as if it were element-wise (`passes/legalize/lower_row_reductions.py`).
        moves: it reads at other indices than those of the result, or 0 where an operand is spread.
    """

    reshapes: bool
    reduces: bool
    moves: bool


@lru_cache(maxsize=1024)
def _kind(func: tirx.PrimFunc) -> _Kind:
    kernel = KernelAnalysis(func)
    joined = int(func.attrs[FUSION]) <= OpPattern.INJECTIVE
    moves = any(_reads_elsewhere(step) for step in kernel.steps if not step.is_reduction)
    return _Kind(in_place_of(kernel).reshape, bool(kernel.reductions) and joined, moves)


def _reads_elsewhere(step: ScheduleBlock) -> bool:
    for region in (*step.reads, *step.writes):
        pairs = zip(reversed(region.region), reversed(step.axes), strict=False)
        if len(region.region) > len(step.axes) or not all(_is_own(position, axis) for position, axis in pairs):
            return True
    return False


def _is_own(position: tvm.ir.Range, axis: Axis) -> bool:
    return is_number(position.min, 0) or bool(position.min.same_as(axis.var))
