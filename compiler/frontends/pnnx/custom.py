"""Lowers custom operators that the user has registered, as operators of PNNX.

A module that the converter leaves as it is has tensors of its own in the binary file, `@weight=(…)`: they go to the
inputs of their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter
from typing import TYPE_CHECKING, Any

import numpy as np

from nnefc.frontends.pnnx.lowering import Array, Lowering
from nnefc.frontends.pnnx.operators.declaration import Argument, Declaration, Floats, Ints, arguments_of
from nnefc.frontends.pnnx.param import ParamOperator
from nnefc.operators.custom_registry import custom_operator
from nnefc.support.diagnostics import CompileError

if TYPE_CHECKING:
    from nnefc.operators.custom_declaration import Attribute, DeclaredOperator, Input

__all__ = ["is_custom", "lower_custom"]

_LEFT_OUT = object()
"""The default of attributes whose class has one."""

_ONE: Mapping[type, type] = {bool: bool, int: int, float: float, str: str, np.ndarray: np.ndarray}
_SEVERAL: Mapping[type, type] = {int: Ints, float: Floats}


def is_custom(type_: str) -> bool:
    """Returns whether an operator is the user's."""
    return custom_operator("pnnx", type_) is not None


def lower_custom(ctx: Lowering, operator: ParamOperator, operands: Sequence[Any], weights: Mapping[str, Array]) -> Any:
    """The results of an operator that is the user's.

    Raises:
        CompileError: its arguments are not what the user's class says, or the class refuses them.
    """
    declared = custom_operator("pnnx", operator.type)
    assert declared is not None
    unknown = next((name for name in weights if name not in [formal.name for formal in declared.inputs]), None)
    if unknown is not None:
        raise CompileError(
            f"the tensor '@{unknown}' of '{operator.type}' is none of the inputs of its registered operator",
            hint=f"give 'lower' of {declared.kind.__name__} a parameter '{unknown}'",
        )
    declaration = _declaration(declared, operator.type, weights)
    variadic, found = arguments_of(declaration, operator, operands, {})
    attributes = {a.name: found[a.name] for a in declared.attributes if found[a.name] is not _LEFT_OUT}
    given: list[Any] = []
    for formal in declared.inputs:
        given += variadic if formal.variadic else [weights.get(formal.name, found.get(formal.name))]
    made = ctx.apply(declared.make(attributes), *declared.operands(given))
    return made[0] if len(made) == 1 else made


def _declaration(declared: DeclaredOperator, name: str, weights: Mapping[str, Array]) -> Declaration:
    arguments = [_input(formal) for formal in declared.inputs if formal.name not in weights]
    arguments += [_argument(attribute) for attribute in declared.attributes]
    return Declaration(name, "custom", tuple(arguments), None, lambda *_: None, {}, "")


def _input(formal: Input) -> Argument:
    types = (np.ndarray, type(None)) if formal.optional else (np.ndarray,)
    return Argument(formal.name, types, None if formal.optional else Parameter.empty, formal.variadic)


def _argument(attribute: Attribute) -> Argument:
    """Attributes that may be left out have their default from the class."""
    kind = (_SEVERAL if attribute.repeated else _ONE).get(attribute.type)
    if kind is None:
        raise CompileError(f"PNNX has no arguments of the type {attribute.spelled}, which '{attribute.name}' has")
    types = (kind,) if attribute.default is not None else (kind, type(None))
    return Argument(attribute.name, types, Parameter.empty if attribute.required else _LEFT_OUT, False)
