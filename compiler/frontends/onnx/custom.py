"""Lowers nodes of custom operators that the user has registered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import onnx.defs

from nnefc.frontends.onnx.files.model import NodeDef
from nnefc.frontends.onnx.operator import Context, Lowering, Node, Value
from nnefc.operators.custom_registry import custom_operator

if TYPE_CHECKING:
    from nnefc.operators.custom_declaration import Attribute, DeclaredOperator, Input

__all__ = ["custom_lowering", "custom_schema", "is_custom"]

_Schema = onnx.defs.OpSchema
_Option = _Schema.FormalParameterOption
_ANY = [f"tensor({name})" for name in ("bool", "float", "double", "float16", "bfloat16")]
_ANY += [f"tensor({sign}int{bits})" for sign in ("", "u") for bits in (2, 4, 8, 16, 32, 64)]
_ANY += [f"tensor(float8{form})" for form in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0")] + [
    "tensor(float4e2m1)"
]

_KINDS: Mapping[type, str] = {bool: "INT", int: "INT", float: "FLOAT", str: "STRING", np.ndarray: "TENSOR"}


def _find(domain: str, op_type: str) -> DeclaredOperator | None:
    return custom_operator("onnx", f"{domain}::{op_type}" if domain else op_type)


def is_custom(domain: str, op_type: str) -> bool:
    """Returns whether an operator is the user's."""
    return _find(domain, op_type) is not None


def custom_schema(node: NodeDef) -> onnx.defs.OpSchema | None:
    """Returns the ONNX schema of a node's custom operator; None if there is none."""
    declared = _find(node.domain, node.op_type)
    if declared is None:
        return None
    types = [f"T{index}" for index in range(max(1, len(declared.inputs)))]
    return _Schema(
        node.op_type,
        node.domain,
        1,
        inputs=[_parameter(formal, kind) for formal, kind in zip(declared.inputs, types, strict=False)],
        outputs=[_Schema.FormalParameter("results", "T0", param_option=_Option.Variadic, is_homogeneous=False)],
        type_constraints=[(kind, _ANY, "") for kind in types],
        attributes=list(map(_attribute, declared.attributes)),
    )


def _parameter(formal: Input, kind: str) -> onnx.defs.OpSchema.FormalParameter:
    option = _Option.Variadic if formal.variadic else _Option.Optional if formal.optional else _Option.Single
    minimum = {"min_arity": 0} if formal.variadic else {}
    return _Schema.FormalParameter(formal.name, kind, param_option=option, is_homogeneous=False, **minimum)


def _attribute(attribute: Attribute) -> onnx.defs.OpSchema.Attribute:
    kind = _KINDS[attribute.type] + ("S" if attribute.repeated else "")
    return _Schema.Attribute(attribute.name, _Schema.AttrType.__members__[kind], required=attribute.required)


def custom_lowering(node: NodeDef) -> Lowering | None:
    """Returns the lowering of a node's custom operator; None if there is none."""
    declared = _find(node.domain, node.op_type)
    if declared is None:
        return None

    def lower(ctx: Context, node: Node) -> list[Value]:
        made: list[Value] = ctx.apply(declared.make(node.attributes), *declared.operands(node.inputs))
        return made

    return lower
