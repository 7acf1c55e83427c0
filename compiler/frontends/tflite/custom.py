"""Lowers custom operators that the user has registered, as operators of TFLite.

The attributes are the entries of the flexbuffer in the operator's options: a map of numbers, booleans and strings.
"""

from __future__ import annotations

from typing import Any

from nnefc.frontends.tflite.flexbuffer import read_map
from nnefc.frontends.tflite.lowering import Lowering, Node
from nnefc.operators.custom_registry import custom_operator
from nnefc.support.diagnostics import CompileError

__all__ = ["is_custom", "lower_custom"]


def is_custom(name: str) -> bool:
    """Returns whether an operator is the user's."""
    return custom_operator("tflite", name) is not None


def lower_custom(ctx: Lowering, node: Node) -> Any:
    """The results of an operator that is the user's.

    Raises:
        CompileError: its arguments are not what the user's class says, or the class refuses them.
    """
    declared = custom_operator("tflite", node.name)
    assert declared is not None
    options = read_map(node.custom)
    known = {attribute.name: attribute for attribute in declared.attributes}
    for name, attribute in known.items():
        if attribute.required and name not in options:
            raise CompileError(f"the operator has no attribute '{name}', which its registered class needs")
    given = [None if value is None else ctx.tensor(value) for value in node.inputs]
    given += [None] * (len(declared.inputs) - len(given))
    attributes = {name: options[name] for name in known if name in options}
    made = ctx.apply(declared.make(attributes), *declared.operands(given))
    return made
