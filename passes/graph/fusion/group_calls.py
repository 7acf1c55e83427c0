"""Reads and rebuilds groups of fused `call_tir`s, for passes that split groups or move calls between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import relax

from nnefc.passes.graph.rewriter import operands

__all__ = ["call_of_group", "tensors_read", "with_operands"]

_LONGEST_NAME = 100  # of a function


def tensors_read(call: relax.Call) -> list[relax.Var]:
    """Returns the tensors that a `call_tir` or a call of a group reads, constants left out."""
    return [operand for operand in operands(call) if isinstance(operand, relax.Var)]


def with_operands(call: relax.Call, values: Mapping[relax.Var, relax.Expr]) -> relax.Call:
    """Returns the `call_tir` with other tensors."""
    kernel, read, *tail = call.args
    changed = relax.Tuple([values.get(field, field) for field in read.fields])
    return relax.Call(call.op, [kernel, changed, *tail], call.attrs, call.ty_args)


def call_of_group(
    builder: relax.BlockBuilder, bindings: Sequence[relax.Binding], values: Mapping[relax.Var, relax.Expr]
) -> relax.Call:
    """Returns a call of these steps as a group, or of the kernel if there is a single step.

    Args:
        values: what is given for the tensors that the steps read from outside.
    """
    if len(bindings) == 1:
        return with_operands(bindings[0].value, values)
    inner = {binding.var for binding in bindings}
    read = dict.fromkeys(tensor for binding in bindings for tensor in tensors_read(binding.value))
    outer = [tensor for tensor in read if tensor not in inner]
    name = "_".join(["fused", *(binding.value.args[0].name_hint for binding in bindings)])
    function = builder.add_func(_group(outer, bindings), name[:_LONGEST_NAME])
    return relax.Call(function, [values[tensor] for tensor in outer])


def _group(params: Sequence[relax.Var], bindings: Sequence[relax.Binding]) -> relax.Function:
    """Returns the steps as a function with variables of its own."""
    new: dict[relax.Var, relax.Expr] = {param: relax.Var(param.name, param.ty) for param in params}
    made = []
    for binding in bindings:
        kind = relax.Var if binding is bindings[-1] else relax.DataflowVar
        var = kind(binding.var.name, binding.var.ty)
        made.append(relax.VarBinding(var, with_operands(binding.value, new)))
        new[binding.var] = var
    result = made[-1].var
    body = relax.SeqExpr([relax.DataflowBlock(made)], result)
    attrs = tvm.ir.make_node("ir.DictAttrs", Primitive=True)
    return relax.Function([new[param] for param in params], body, result.ty, attrs=attrs)
