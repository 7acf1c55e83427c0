"""Declares the rules of Relax modules before and after legalization: a table of rules, each with a small predicate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import tvm
from tvm import relax, tirx

from nnefc.ir.attributes import CONTROL, ELEMENT_OF_TUPLE, Form
from nnefc.ir.dataflow import bindings_of
from nnefc.passes.spec.rules import GRAPH, KERNELS, Rule

__all__ = ["MODULE_RULES", "Module"]


@dataclass(frozen=True)
class Module:
    """The parts of a Relax module that rules read."""

    module: tvm.IRModule
    form: Form

    @cached_property
    def main(self) -> relax.Function:
        """The function of the network."""
        return self.module["main"]

    @cached_property
    def bindings(self) -> Sequence[relax.Binding]:
        """All bindings of `main`, in order."""
        return bindings_of(self.main)

    @cached_property
    def kernel_calls(self) -> Sequence[tuple[str, relax.Call, tirx.PrimFunc | None]]:
        """Calls of kernels, with the names of the variables that they are bound to; None for no kernel."""
        found = []
        for binding in self.bindings:
            call = binding.value
            if isinstance(call, relax.Call) and call.op == _CALL_TIR:
                func = self.module.functions.get(call.args[0])
                found.append((str(binding.var.name), call, func if isinstance(func, tirx.PrimFunc) else None))
        return found


_CALL_TIR = tvm.ir.Op.get("relax.call_tir")
_CALL_PACKED = {tvm.ir.Op.get(f"relax.{name}") for name in ("call_dps_packed", "call_pure_packed")}
_OF_OTHER_NETWORKS = (relax.If, relax.Function, relax.SeqExpr)


def _other_functions(module: Module) -> Iterator[str]:
    for gv, func in module.module.functions.items():
        if gv.name_hint != "main" and not isinstance(func, tirx.PrimFunc):
            yield f"'{gv.name_hint}' is a {type(func).__name__}"


def _free(module: Module) -> Iterator[str]:
    free = relax.analysis.free_vars(module.main)
    yield from (f"'{var.name}' is not" for var in free if isinstance(var.ty, relax.TensorType | relax.TupleType))


def _not_a_value(module: Module) -> Iterator[str]:
    for binding in module.bindings:
        if isinstance(binding.value, _OF_OTHER_NETWORKS):
            yield f"'{binding.var.name}' is a {type(binding.value).__name__}"


def _without_shape(module: Module) -> Iterator[str]:
    for binding in module.bindings:
        fields = binding.var.ty.fields if isinstance(binding.var.ty, relax.TupleType) else [binding.var.ty]
        for ty in fields:
            if isinstance(ty, relax.TensorType) and (not isinstance(ty.shape, relax.ShapeExpr) or not str(ty.dtype)):
                yield f"'{binding.var.name}' is a {ty}"


def _operators(module: Module) -> Iterator[str]:
    for binding in module.bindings:
        if isinstance(binding.value, relax.Call) and isinstance(binding.value.op, tvm.ir.Op):
            op = binding.value.op
            if op != _CALL_TIR and op not in _CALL_PACKED:
                yield f"'{binding.var.name}' is made by '{op.name}'"


def _unknown_functions(module: Module) -> Iterator[str]:
    for name, call, func in module.kernel_calls:
        if func is None:
            yield f"'{name}' is made by '{call.args[0].name_hint}'"
    for binding in module.bindings:
        call = binding.value
        if isinstance(call, relax.Call) and call.op in _CALL_PACKED:
            called = str(call.args[0].global_symbol)
            if not called.startswith(CONTROL) and called != ELEMENT_OF_TUPLE:
                yield f"'{binding.var.name}' is made by '{called}'"


def _of_other_operands(module: Module) -> Iterator[str]:
    for name, call, func in module.kernel_calls:
        if func is None:
            continue
        results = call.ty_args[0]
        types = [operand.ty for operand in call.args[1].fields]
        types += list(results.fields) if isinstance(results, relax.TupleType) else [results]
        tensors = [param for param in func.params if isinstance(param.ty, tirx.BufferType)]
        given = [ty for ty in types if isinstance(ty, relax.TensorType)]
        if len(tensors) != len(given):
            yield f"'{name}' is made of {len(given)} tensors by '{call.args[0].name_hint}', which has {len(tensors)}"
            continue
        for param, ty in zip(tensors, given, strict=True):
            if str(param.dtype) != str(ty.dtype) or len(param.shape) != ty.ndim:
                own = f"{param.dtype} of rank {len(param.shape)}"
                yield f"'{name}' has {ty} for the parameter '{param.name}' of '{call.args[0].name_hint}', a {own}"


MODULE_RULES: Sequence[Rule[Module]] = (
    Rule("all functions but main are kernels", GRAPH, _other_functions),
    Rule("every tensor of main is a parameter or bound before its use", GRAPH, _free),
    Rule("main has no branches and no functions of its own", GRAPH, _not_a_value),
    Rule("every tensor has a shape and an element type", GRAPH, _without_shape),
    Rule("calls are of kernels in the module, or of bodies of branches and loops", GRAPH, _unknown_functions),
    Rule("operands and results are of the types of the kernel's parameters", GRAPH, _of_other_operands),
    Rule("after legalization no operator of Relax is left", KERNELS, _operators),
)
