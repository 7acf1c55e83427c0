"""Steps that cost less alone than in a group of joined operations.

    y = [reshape, subtract, exp, reshape](x)     →     a = reshape(x); b = [subtract, exp](a); y = reshape(b)
    y = [row_sum, multiply, transpose](x)        →     a = [row_sum, multiply](x); y = transpose(a)

A reshape at the beginning or at the end of a group is no work by itself: the memory plan reads the same bytes. Within
the group it makes indices that are computed. Behind reductions of rows, steps that move elements keep the whole group
from running row after row (`passes/schedule/cpu/row_reduction.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import tvm
from tvm import relax, tirx

from nnefc.passes.graph.patterns import FUSION, OpPattern
from nnefc.passes.graph.rewriter import operands
from nnefc.passes.schedule.in_place import in_place_of
from nnefc.passes.schedule.structure import is_reduction, root_blocks, schedule_of

__all__ = ["values_between"]


def values_between(group: relax.Function, mod: tvm.IRModule) -> set[relax.Var]:
    """The values of a group of `call_tir`s that separate such steps from the others."""
    bindings = [binding for block in group.body.blocks for binding in block.bindings]
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


@dataclass(frozen=True)
class _Step:
    """What a kernel does.

    Attributes:
        reshapes: the result has the bytes of the one operand.
        reduces: it reduces rows, joined as if it were element-wise (`passes/legalize/lower_rows.py`).
        moves: it reads at other indices than those of the result, or 0 where an operand is spread.
    """

    reshapes: bool
    reduces: bool
    moves: bool


@lru_cache(maxsize=1024)
def _kind(kernel: tirx.PrimFunc) -> _Step:
    sch = schedule_of(kernel)
    blocks = root_blocks(sch)
    reduces = any(is_reduction(sch, block) for block in blocks)
    joined = int(kernel.attrs[FUSION]) <= OpPattern.INJECTIVE
    moves = any(_reads_elsewhere(sch.get(block)) for block in blocks if not is_reduction(sch, block))
    return _Step(in_place_of(kernel).reshape, reduces and joined, moves)


def _reads_elsewhere(block: tvm.s_tir.SBlock) -> bool:
    axes = list(block.iter_vars)
    for region in (*block.reads, *block.writes):
        pairs = zip(reversed(region.region), reversed(axes), strict=False)
        if len(region.region) > len(axes) or not all(_is_own(place, axis) for place, axis in pairs):
            return True
    return False


def _is_own(place: tvm.ir.Range, axis: tirx.IterVar) -> bool:
    at_zero = isinstance(place.min, tirx.IntImm) and int(place.min) == 0
    return at_zero or bool(place.min.same_as(axis.var))
