"""Splits groups of fused operators whose inlined expression would be much larger than the operators themselves.

    fused(x):                                   fused(x):
        a = f(x)                                    a = f(x)
        b = add(a, a)                               …
        …                            →              d = add(c, c)
        d = add(c, c)                           fused1(d):
        e = add(d, d)    # f(x) 16 times            e = add(d, d)

Schedules compute element-wise steps where they are read, as often as they are read: twice as often with each `add`
here. A value is written to memory instead where that would repeat more than a small number of nodes; and where
expressions become larger or deeper, or elementary functions more nested, than TVM takes in time linear in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import tvm
from tvm import relax

from nnefc.ir.dataflow import bindings_of
from nnefc.passes.graph.fusion.expression_size import READ, ExpressionSize, KernelSize, kernel_size, size_of_call
from nnefc.passes.graph.fusion.group_calls import call_of_group, tensors_read
from nnefc.passes.graph.rewriter import Rewriter, is_call, operands

__all__ = ["MAX_REPEATED", "CutRule", "split_large_groups"]

# The values of a group, all of whose steps are `call_tir`s of one result, that must be written to memory.
CutRule = Callable[[relax.Function, tvm.IRModule], set[relax.Var]]

MAX_REPEATED = 512
"""The largest number of nodes of an expression that are computed again because a value is read more than once."""

_MAX_NODES = 1024
"""The largest expression: selects among many parts take superlinear time."""

_MAX_NESTED = 4
"""The deepest nesting of elementary functions: TVM's simplifier takes 30 times as long for each further one."""

_DEEPEST = 128
"""The deepest expression: passes over expressions recurse once for each level."""


def split_large_groups(mod: tvm.IRModule, rules: Sequence[CutRule] = ()) -> tvm.IRModule:
    """Replaces calls of groups that are too large, or that a rule cuts, by calls of several groups and kernels."""
    sizes: dict[tvm.ir.GlobalVar, KernelSize] = {}
    cuts = {
        gv: found
        for gv, func in mod.functions.items()
        if isinstance(func, relax.Function) and func.attrs and "Primitive" in func.attrs
        if (found := _cuts(func, mod, sizes, rules))
    }
    return relax.transform.DeadCodeElimination(["main"])(_Splitter(mod, cuts).transform()) if cuts else mod


def _cuts(
    group: relax.Function,
    mod: tvm.IRModule,
    sizes: dict[tvm.ir.GlobalVar, KernelSize],
    rules: Sequence[CutRule],
) -> set[relax.Var]:
    """Returns the values of a group that must be written to memory, besides its result; none of one with several
    results.
    """
    bindings = bindings_of(group)
    reads: Counter[relax.Expr] = Counter()
    if len(bindings) < 2 or not all(
        is_call(b.value, "call_tir") and isinstance(b.var.ty, relax.TensorType) for b in bindings
    ):
        return set()
    for binding in bindings:
        kernel = binding.value.args[0]
        if kernel not in sizes:
            sizes[kernel] = kernel_size(mod[kernel])
        for operand, times in zip(operands(binding.value)[1:], sizes[kernel].reads, strict=True):
            reads[operand] += times
    found = {var for rule in rules for var in rule(group, mod)}
    values: dict[relax.Var, ExpressionSize] = {}
    for binding in bindings:
        kernel, read = sizes[binding.value.args[0]], operands(binding.value)[1:]
        size = size_of_call(kernel, [values.get(operand, READ) for operand in read])
        if _is_too_large(size):  # cut what is read, not what reads it
            found.update(
                operand for operand in read if operand in values and _would_be_too_large(kernel, values[operand])
            )
            size = size_of_call(kernel, [READ if o in found else values.get(o, READ) for o in read])
        values[binding.var] = READ if binding.var in found else size
        if size.nodes * (reads[binding.var] - 1) > MAX_REPEATED:
            found.add(binding.var)
            values[binding.var] = READ
    return found - {group.body.body}


def _is_too_large(size: ExpressionSize) -> bool:
    return size.nodes > _MAX_NODES or size.functions > _MAX_NESTED or size.depth > _DEEPEST


def _would_be_too_large(kernel: KernelSize, operand: ExpressionSize) -> bool:
    return _is_too_large(size_of_call(kernel, [operand for _ in kernel.reads]))


def _pieces(group: relax.Function, cuts: set[relax.Var]) -> list[list[relax.Binding]]:
    """Returns the parts of a group, each of which ends with a value that is written to memory: a cut, or the group's
    result.

    A step belongs to the piece of its readers; where they are of several pieces, it ends one of its own.
    """
    bindings, ends = bindings_of(group), cuts | {group.body.body}
    readers: dict[relax.Var, set[relax.Var]] = {}  # the ends of the pieces that read a value
    pieces: dict[relax.Var, list[relax.Binding]] = {}
    for binding in reversed(bindings):
        own = readers.get(binding.var, set())
        end = binding.var if binding.var in ends or len(own) != 1 else next(iter(own))
        pieces.setdefault(end, []).append(binding)
        for operand in tensors_read(binding.value):
            readers.setdefault(operand, set()).add(end)
    return [pieces[binding.var][::-1] for binding in bindings if binding.var in pieces]


class _Splitter(Rewriter):
    def __init__(self, mod: tvm.IRModule, cuts: Mapping[tvm.ir.GlobalVar, set[relax.Var]]) -> None:
        super().__init__(mod)
        self._groups = {gv: (mod[gv], _pieces(mod[gv], found)) for gv, found in cuts.items()}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if not isinstance(call.op, tvm.ir.GlobalVar) or call.op not in self._groups:
            return call
        group, pieces = self._groups[call.op]
        values: dict[relax.Var, relax.Expr] = dict(zip(group.params, call.args, strict=True))
        *first, last = pieces
        for piece in first:
            values[piece[-1].var] = self.builder.emit(call_of_group(self.builder, piece, values))
        return call_of_group(self.builder, last, values)
