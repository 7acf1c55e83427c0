"""Compute at compile time what depends on constants alone.

    a = exp(const1)          const3 = exp(const1)
    b = add(x, a)      →     b = add(x, const3)

All constant parts of a network are gathered into one function without parameters, which is compiled and run once: one
compilation for all of them, whatever they compute.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.ir import GenericConst

from nnefc.network import control_index
from nnefc.passes.graph.rewriter import Rewriter, operands

__all__ = ["FoldConstants"]


@tvm.transform.module_pass(opt_level=0, name="FoldConstants")
class FoldConstants:
    """Replace calls whose operands are all constant by their results."""

    def transform_module(self, mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        bindings = _constant_bindings(mod)
        if not bindings:
            return mod
        wanted = _used_outside(mod["main"], bindings)
        values = dict(zip(wanted, _evaluate(mod, bindings, wanted), strict=True))
        return relax.transform.DeadCodeElimination()(_Folder(mod, values).transform())


class _Folder(Rewriter):
    def __init__(self, mod: tvm.IRModule, values: dict[relax.Var, GenericConst]) -> None:
        super().__init__(mod)
        self._values = values

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        return call

    def _bind(self, binding: relax.Binding) -> relax.Expr:
        value = self._values.get(binding.var)  # of a call, or of one of its several results
        return super()._bind(binding) if value is None else value


def _constant_bindings(mod: tvm.IRModule) -> dict[relax.Var, relax.Binding]:
    """The bindings that depend on constants alone, in order.

    Kernels that report errors to the runtime stay: the runtime is not there at compile time. Choices and loops
    stay too.
    """
    func = mod["main"]
    found: dict[relax.Var, relax.Binding] = {}

    def known(expr: relax.Expr) -> bool:
        match expr:
            case relax.Var():
                return expr in found
            case relax.Tuple():
                return all(known(field) for field in expr.fields)
            case relax.TupleGetItem():
                return known(expr.tuple_value)
            case relax.Call() if control_index(expr) is not None:
                return False
            case relax.Call():
                kernels = [o for o in operands(expr) if isinstance(o, relax.GlobalVar)]
                tensors = [o for o in operands(expr) if not isinstance(o, relax.GlobalVar)]
                return all(known(t) for t in tensors) and not any("call_extern" in mod[k].script() for k in kernels)
        return True

    for block in func.body.blocks:
        for binding in block.bindings:
            if known(binding.value):
                found[binding.var] = binding
    return found


def _used_outside(func: relax.Function, inside: dict[relax.Var, relax.Binding]) -> list[relax.Var]:
    """Those variables of `inside` that other bindings, or the function's result, read: tensors only."""
    wanted: dict[relax.Var, None] = {}

    def visit(expr: relax.Expr) -> None:
        match expr:
            case relax.Var() if expr in inside:
                wanted[expr] = None
            case relax.Tuple():
                for field in expr.fields:
                    visit(field)
            case relax.TupleGetItem():
                visit(expr.tuple_value)
            case relax.Call():
                for arg in expr.args:
                    visit(arg)

    for block in func.body.blocks:
        for binding in block.bindings:
            if binding.var not in inside:
                visit(binding.value)
    visit(func.body.body)
    return [var for var in wanted if isinstance(var.ty, relax.TensorType)]


def _evaluate(
    mod: tvm.IRModule, bindings: dict[relax.Var, relax.Binding], wanted: list[relax.Var]
) -> list[GenericConst]:
    kernels = {gv: f for gv, f in mod.functions.items() if gv.name_hint != "main"}
    builder = relax.BlockBuilder(tvm.IRModule(kernels))
    with builder.function("main", []):
        with builder.dataflow():
            for binding in bindings.values():
                builder.emit_normalized(binding)
            result = builder.emit_output(relax.Tuple(wanted))
        builder.emit_func_output(result)
    constants = relax.transform.DeadCodeElimination(["main"])(builder.finalize())
    machine = relax.VirtualMachine(tvm.compile(constants, target="llvm"), tvm.cpu())
    return [relax.const(value) for value in machine["main"]()]
