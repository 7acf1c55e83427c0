"""Checks one invocation (section 3.3.1): arguments against parameters, and the type that `?` stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from nnefc.frontends.nnef.declarations import MISSING, Operation, Parameter, Signature, nearest_name
from nnefc.frontends.nnef.environment import Callee
from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.syntax import Source
from nnefc.frontends.nnef.language.types import (
    EMPTY_ARRAY,
    INTEGER,
    LOGICAL,
    SCALAR,
    STRING,
    ArrayType,
    Dialect,
    GenericType,
    PrimitiveType,
    TensorType,
    TupleType,
    Type,
    common_type,
    convertible,
    has_tensor,
    spell,
    substitute,
)
from nnefc.frontends.nnef.values import Missing, Value
from nnefc.support.diagnostics import CompileError, Location

__all__ = ["LITERAL_TYPES", "InvocationRules", "Reporter"]

LITERAL_TYPES: dict[type, PrimitiveType] = {bool: LOGICAL, int: INTEGER, float: SCALAR, str: STRING}
"""The type of a literal by Python's type of its value."""


class Reporter:
    """Raises errors in a body's text, in the words of its dialect."""

    def __init__(self, dialect: Dialect, source: Source) -> None:
        self.dialect = dialect
        self.source = source

    def fail(
        self, at: int, message: str, hint: str | None = None, notes: tuple[tuple[str, Location], ...] = ()
    ) -> NoReturn:
        """Raise an error at an offset of the text."""
        raise CompileError(message, location=self.source.location(at), hint=hint, notes=notes)

    def spell(self, type_: Type) -> str:
        """A type in the document's own words."""
        return spell(type_, self.dialect)


class InvocationRules(Reporter):
    """The rules for invocations in one body. `generic` says whether it is a generic fragment's."""

    def __init__(self, dialect: Dialect, source: Source, *, generic: bool) -> None:
        super().__init__(dialect, source)
        self._generic = generic

    def assign(self, invocation: syntax.Invocation, callee: Callee) -> dict[str, syntax.Argument]:
        """Assigns arguments to parameters, in the order of the arguments."""
        signature = callee.signature
        assigned: dict[str, syntax.Argument] = {}
        named: syntax.Argument | None = None
        for i, argument in enumerate(invocation.arguments):
            if i >= len(signature.parameters):
                count = len(signature.parameters)
                message = f"'{signature.name}' has {count} parameter{'s' * (count > 1)}, more arguments are given"
                self.fail(argument.at, message)
            if argument.name is None:
                if named is not None:
                    self.fail(argument.at, "arguments by position come before arguments by name")
                parameter = signature.parameters[i]
                if not has_tensor(parameter.type) and not self._positional_attributes(callee):
                    hint = f"Write {parameter.name} = …: only tensors are given by position."
                    message = f"the parameter '{parameter.name}' of '{signature.name}' must be given by name"
                    self.fail(argument.at, message, hint)
                name = parameter.name
            else:
                named = argument
                name = argument.name
                if name not in signature.by_name:
                    nearest = nearest_name(name, signature.by_name)
                    spelled = f"Its signature is {signature.spell(self.dialect)}."
                    hint = f"Did you mean '{nearest}'?" if nearest else spelled
                    self.fail(argument.at, f"'{signature.name}' has no parameter '{name}'", hint)
            if name in assigned:
                first = self.source.location(assigned[name].at)
                self.fail(argument.at, f"the parameter '{name}' is given twice", notes=(("first given here", first),))
            assigned[name] = argument
        for parameter in signature.parameters:
            if parameter.default is MISSING and parameter.name not in assigned:
                hint = f"Its signature is {signature.spell(self.dialect)}."
                self.fail(invocation.at, f"the parameter '{parameter.name}' of '{signature.name}' is not given", hint)
        return assigned

    def _positional_attributes(self, callee: Callee) -> bool:
        """Returns whether attributes may be given by position.

        The provisional standard says that only tensors may, and then calls `sum_of(elements[1:])` for an array of
        scalars: so fragments without any tensor parameter may be called that way there.
        """
        return (
            self.dialect is Dialect.PROVISIONAL
            and not isinstance(callee, Operation)
            and not any(has_tensor(parameter.type) for parameter in callee.signature.parameters)
        )

    def content(
        self,
        invocation: syntax.Invocation,
        signature: Signature,
        assigned: Mapping[str, syntax.Argument],
        types: Mapping[str, Type],
    ) -> str:
        """Return the type of `?`: the one written, else the default, else the one deduced from the arguments."""
        if not signature.generic:
            if invocation.content is not None:
                self.fail(invocation.at, f"'{signature.name}' is not generic, '<…>' has no meaning")
            return ""
        if invocation.content == "?" and not self._generic:
            self.fail(invocation.at, "'<?>' has a meaning only in a generic fragment")
        explicit = invocation.content or signature.generic_default
        if explicit is not None:
            return explicit
        content: str | None = None
        by: str = ""
        for parameter in signature.parameters:
            actual = types.get(parameter.name) or _value_type(parameter.default)
            for found in _deduced(parameter.type, actual):
                if content is not None and content != found:
                    at = assigned[parameter.name].at if parameter.name in assigned else invocation.at
                    message = f"'?' of '{signature.name}' is {content} by '{by}' and {found} by '{parameter.name}'"
                    self.fail(at, message, "All generic arguments need one content.")
                content, by = found, parameter.name
        if content is None:
            hint = f"Write it: {signature.name}<scalar>(…)."
            self.fail(invocation.at, f"what '?' of '{signature.name}' stands for cannot be deduced", hint)
        return content

    def check_types(
        self,
        invocation: syntax.Invocation,
        signature: Signature,
        assigned: Mapping[str, syntax.Argument],
        types: Mapping[str, Type],
        content: str,
    ) -> None:
        """Arguments, and the defaults of generic parameters, fit what they are assigned to."""
        for name, argument in assigned.items():
            self._check_argument(argument, types[name], signature.by_name[name], content)
        for parameter in signature.parameters:
            if parameter.name not in assigned and parameter.default is not MISSING and signature.generic:
                self._check_default(invocation, parameter, parameter.default, content)

    def _check_argument(self, argument: syntax.Argument, actual: Type, parameter: Parameter, content: str) -> None:
        expected = substitute(parameter.type, content)
        if convertible(actual, expected):
            return
        if (
            self.dialect is Dialect.PROVISIONAL
            and (actual, expected) == (INTEGER, SCALAR)
            and isinstance(argument.value, syntax.Literal | syntax.Unary)
        ):
            return  # The provisional standard's own example gives `alpha = 2` to a scalar.
        message = f"the parameter '{parameter.name}' is of type {self.spell(expected)}, the argument of type "
        hint = None
        if actual == INTEGER and expected in (SCALAR, TensorType("scalar")):
            hint = "Write a point: 1.0." if isinstance(argument.value, syntax.Literal) else "Convert it: scalar(…)."
        self.fail(argument.value.at, message + self.spell(actual), hint)

    def _check_default(
        self, invocation: syntax.Invocation, parameter: Parameter, default: Value | Missing, content: str
    ) -> None:
        expected = substitute(parameter.type, content)
        actual = _value_type(default)
        if content != "?" and actual is not None and not convertible(actual, expected):
            message = (
                f"the default of '{parameter.name}' is of type {self.spell(actual)}, "
                f"which does not fit {self.spell(expected)}"
            )
            self.fail(invocation.at, message, f"Give '{parameter.name}'.")


def _value_type(value: Value | Missing) -> Type | None:
    """The type of a default's value."""
    match value:
        case list():
            element = common_type([type_ for type_ in map(_value_type, value) if type_ is not None])
            return EMPTY_ARRAY if element is None else ArrayType(element)
        case tuple():
            return TupleType(tuple([type_ for type_ in map(_value_type, value) if type_ is not None]))
        case _:
            return LITERAL_TYPES.get(type(value))


def _deduced(formal: Type, actual: Type | None) -> list[str]:
    """The contents that an argument's type gives to the `?` of a parameter's type."""
    match formal, actual:
        case ((GenericType() | TensorType("?")), PrimitiveType(name)):
            return [name]
        case ((GenericType() | TensorType("?")), GenericType()):
            return ["?"]
        case TensorType("?"), TensorType(content) if content:
            return [content]
        case ArrayType(element), ArrayType(actual_element) if element is not None and actual_element is not None:
            return _deduced(element, actual_element)
        case TupleType(elements), TupleType(actual_elements) if len(elements) == len(actual_elements):
            return [found for pair in zip(elements, actual_elements, strict=True) for found in _deduced(*pair)]
        case _:
            return []
