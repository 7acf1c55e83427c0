"""Writes a fused group's result before it is dequantized, and dequantizes it where it is read.

    fused(x):                                   fused(x):
        q = quantize(convolution(x))                q = quantize(convolution(x))
        a = dequantize(q)                  →    fused1(q, y):
    fused1(a, y):                                   a = dequantize(q)
        b = add(a, y)                               b = add(a, y)

Fusion joins the widening with what makes the integers, so that memory would hold floats, four times as large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax, tirx
from tvm.relax.utils import copy_with_new_vars

from nnefc.ir.dataflow import bindings_of
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.fusion.group_calls import call_of_group, tensors_read, with_operands
from nnefc.passes.graph.rewriter import Rewriter, is_call, shape_of
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.support.element_types import bits_of

__all__ = ["narrow_results"]

_ONE_BY_ONE = 1  # TVM's patterns up to this one: each result depends on the same element of an operand


def narrow_results(mod: tvm.IRModule) -> tvm.IRModule:
    """Moves the last steps of groups to their only reader, if a value before them is narrower."""
    return relax.transform.DeadCodeElimination(["main"])(_Mover(mod).transform())


@dataclass(frozen=True, eq=False)
class _Moved:
    """Steps that are computed in the group that reads their result.

    Attributes:
        bindings: the steps, in order.
        given: what they read from outside, by the variables that they know it as.
    """

    bindings: tuple[relax.Binding, ...]
    given: Mapping[relax.Var, relax.Expr]


class _Mover(Rewriter):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._mod = mod
        self._readers: dict[relax.Var, relax.Call] = {}
        for binding in bindings_of(self.old):
            if isinstance(binding.value, relax.Call):
                self._readers |= dict.fromkeys(tensors_read(binding.value), binding.value)
        self._moved: dict[relax.Expr, _Moved] = {}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        group, values = self._group(var, call)
        if group is None:
            return call
        first: list[relax.Binding] = []
        for param, arg in values.items():
            moved = self._moved.get(arg)
            if moved is not None:
                first += [*moved.bindings[:-1], relax.VarBinding(param, moved.bindings[-1].value)]
        given = {param: arg for param, arg in values.items() if arg not in self._moved}
        for arg in values.values():
            given |= self._moved[arg].given if arg in self._moved else {}
        bindings = [*first, *group]
        cut = self._cut(var, bindings)
        if cut is None:
            return call_of_group(self.builder, bindings, given) if first else call
        narrow = self.builder.emit(call_of_group(self.builder, bindings[:cut], given))
        value = bindings[cut - 1].var
        self._moved[narrow] = _Moved(tuple(bindings[cut:]), {**given, value: narrow})
        return narrow

    def _group(
        self, var: relax.Var, call: relax.Call
    ) -> tuple[Sequence[relax.Binding] | None, Mapping[relax.Var, relax.Expr]]:
        """Returns the steps that a binding stands for, and their operands; None if it is not a call of a group."""
        if isinstance(call.op, tvm.ir.GlobalVar) and isinstance(self._mod[call.op], relax.Function):
            # equal groups are one function: its variables stand for other values in each call
            group = _with_sizes_of_call(copy_with_new_vars(self._mod[call.op]), call.args)
            bindings = bindings_of(group)
            if all(is_call(binding.value, "call_tir") for binding in bindings):
                return bindings, dict(zip(group.params, call.args, strict=True))
        elif is_call(call, "call_tir") and any(operand in self._moved for operand in tensors_read(call)):
            params = {operand: relax.Var("operand", operand.ty) for operand in tensors_read(call)}
            for operand, param in params.items():
                if operand in self._moved:
                    params[operand] = relax.Var(param.name, self._moved[operand].bindings[-1].var.ty)
            step = relax.VarBinding(relax.Var(var.name, var.ty), with_operands(call, params))
            return [step], {param: operand for operand, param in params.items()}
        return None, {}

    def _cut(self, var: relax.Var, bindings: Sequence[relax.Binding]) -> int | None:
        """Returns the number of steps to keep, so that the narrowest value is the result; None for all."""
        reader = self._readers.get(var)
        if self._old_uses[var] != 1 or reader is None or not self._takes_steps(reader, var):
            return None
        best, found = _bits(bindings[-1].var), None
        for count in range(len(bindings) - 1, 0, -1):
            step, before = bindings[count], {binding.var for binding in bindings[:count]}
            read = {operand for binding in bindings[count:] for operand in tensors_read(binding.value)} & before
            last = bindings[count - 1].var
            alike = isinstance(last.ty, relax.TensorType) and shape_of(last) == shape_of(bindings[-1].var)
            if self._pattern(step.value) > _ONE_BY_ONE or read != {last} or not alike:
                break
            if _bits(last) < best:
                best, found = _bits(last), count
        return found

    def _takes_steps(self, reader: relax.Call, var: relax.Var) -> bool:
        """Whether a call reads `var` element by element, so that the moved steps are computed no more often."""
        if is_call(reader, "call_tir"):
            return self._is_taken_apart(reader) and len(reader.args) == 2
        if not isinstance(reader.op, tvm.ir.GlobalVar) or not isinstance(self._mod[reader.op], relax.Function):
            return False
        group = self._mod[reader.op]
        bindings = bindings_of(group)
        params = {param for param, arg in zip(group.params, reader.args, strict=True) if arg.same_as(var)}
        if not all(is_call(binding.value, "call_tir") for binding in bindings):
            return False
        readers = [binding.value for binding in bindings if params & set(tensors_read(binding.value))]
        return len(readers) == 1 and self._is_taken_apart(readers[0])

    def _is_taken_apart(self, call: relax.Call) -> bool:
        """Whether a kernel is element-wise, or one reduction of one tensor."""
        if self._pattern(call) <= OpPattern.INJECTIVE:
            return True
        sums = KernelAnalysis(self._mod[call.args[0]]).reductions
        return len(sums) == 1 and len({load.source for load in sums[0].loads} - {sums[0].result}) == 1

    def _pattern(self, call: relax.Call) -> int:
        """Returns the fusion pattern of a kernel."""
        return int(self._mod[call.args[0]].attrs.get(FUSION, OpPattern.OPAQUE))


def _with_sizes_of_call(group: relax.Function, args: Sequence[relax.Expr]) -> relax.Function:
    """Returns a group rewritten in the caller's dimensions, so that steps can move between two groups."""
    pairs = [
        pair
        for param, arg in zip(group.params, args, strict=True)
        for pair in zip(_sizes(param), _sizes(arg), strict=True)
    ]
    own = {size: value for size, value in pairs if isinstance(size, tirx.Var)}
    return group.bind_symbolic_vars(own) if own else group


def _sizes(expr: relax.Expr) -> Sequence[tirx.Expr]:
    """Returns the dimensions of an operand: those of a tensor's shape, or the numbers of a shape."""
    shape = expr.ty.shape if isinstance(expr.ty, relax.TensorType) else expr.ty
    return list(shape.values or ())


def _bits(var: relax.Var) -> int:
    return bits_of(str(var.ty.dtype))
