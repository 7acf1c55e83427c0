"""Resolves NNEF fragments without a body to custom operators that the user has registered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nnefc.frontends.nnef.declarations import Operation
from nnefc.frontends.nnef.language.signatures import Signature
from nnefc.frontends.nnef.language.types import Dialect, has_tensor
from nnefc.frontends.nnef.operations.lowering import Lowering, Operand
from nnefc.frontends.nnef.values import Arguments, Shape, ShapeError, Tensor, shape_of
from nnefc.operators.custom_registry import custom_operator, custom_operators
from nnefc.support.diagnostics import CompileError

if TYPE_CHECKING:
    from nnefc.operators.custom_declaration import Custom, DeclaredOperator

__all__ = ["custom_operation", "declared_operations", "taken_apart"]


def declared_operations(dialect: Dialect) -> dict[str, Operation]:
    """The operators that are registered with a declaration of their own, which documents need not repeat."""
    found = ((name, custom_operator("nnef", name)) for name in custom_operators("nnef"))
    return {
        name: _operation(declared, declared.fragment, dialect)
        for name, declared in found
        if declared is not None and declared.fragment
    }


def custom_operation(signature: Signature, dialect: Dialect) -> Operation | None:
    """The operation that a fragment of a document stands for, if one of its name is registered."""
    declared = custom_operator("nnef", signature.name)
    return None if declared is None else _operation(declared, f"fragment {signature.spell(dialect)}", dialect)


def _operation(declared: DeclaredOperator, text: str, dialect: Dialect) -> Operation:
    def shapes(args: Arguments) -> Mapping[str, Shape]:
        try:
            custom, operands = taken_apart(declared, operation.signature, args)
            made = custom.shape(*(None if operand is None else shape_of(operand) for operand in operands))
        except CompileError as error:
            raise ShapeError(error.message, hint=error.hint) from error
        results = [result.name for result in operation.signature.results]
        if len(made) != len(results):
            raise ShapeError(f"its rule for shapes says {len(made)} results, the fragment has {len(results)}")
        return dict(zip(results, made, strict=True))

    def lower(lowering: Lowering, args: Arguments) -> tuple[Operand, ...]:
        custom, operands = taken_apart(declared, operation.signature, args)
        return custom.lower(lowering, *(None if value is None else lowering.operand(value) for value in operands))

    operation = Operation(text, frozenset((dialect,)), shapes, lower)
    return operation


def taken_apart(declared: DeclaredOperator, signature: Signature, args: Arguments) -> tuple[Custom, list[Any]]:
    """The operator with its attributes, and its tensors in order."""
    tensors: list[Any] = []
    attributes: dict[str, Any] = {}
    for parameter in signature.parameters:
        value = args[parameter.name]
        if not has_tensor(parameter.type):
            attributes[parameter.name] = value
        elif isinstance(value, list) and not isinstance(value, Tensor):
            tensors += value
        else:
            tensors.append(value)
    return declared.make(attributes), declared.operands(tensors)
