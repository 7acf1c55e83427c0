"""Reads signatures of operations and fragments from the syntax tree, and checks them by section 3.3.1."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.types import (
    EMPTY_ARRAY,
    INTEGER,
    LOGICAL,
    SCALAR,
    STRING,
    ArrayType,
    Dialect,
    GenericType,
    TensorType,
    TupleType,
    Type,
    common_type,
    convertible,
    has_tensor,
    spell,
    substitute,
)
from nnefc.frontends.nnef.values import MISSING, Missing, Tensor, Value
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Size

__all__ = [
    "Parameter",
    "Result",
    "Signature",
    "adapt",
    "literal_value",
    "signature_of",
    "spell_value",
    "type_of_literal",
]


@dataclass(frozen=True)
class Parameter:
    """A formal parameter. `default` is `MISSING` if an invocation must give a value."""

    name: str
    type: Type
    default: Value | Missing = MISSING


@dataclass(frozen=True)
class Result:
    """A formal result: a tensor, an array of tensors, or, in fragments of a document, any other type."""

    name: str
    type: Type


@dataclass(frozen=True)
class Signature:
    """Signature of a fragment: `fragment name<? = generic_default>(parameters) -> (results)`."""

    name: str
    generic: bool
    generic_default: str | None
    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...]

    @cached_property
    def by_name(self) -> dict[str, Parameter]:
        """The parameters by name, in their order."""
        return {parameter.name: parameter for parameter in self.parameters}

    def spell(self, dialect: Dialect) -> str:
        """The types in the dialect's spelling: `relu(x: tensor<scalar>) -> (y: tensor<scalar>)`."""
        parameters = ", ".join(
            f"{p.name}: {spell(p.type, dialect)}" + ("" if p.default is MISSING else f" = {spell_value(p.default)}")
            for p in self.parameters
        )
        results = ", ".join(f"{r.name}: {spell(r.type, dialect)}" for r in self.results)
        generic = "" if not self.generic else f"<? = {self.generic_default}>" if self.generic_default else "<?>"
        return f"{self.name}{generic}({parameters}) -> ({results})"


def spell_value(value: Value) -> str:
    """A value as a literal of the language; tensors by their names.

    Scalars keep a point or an exponent, so that they read back as scalars; strings are quoted.
    """
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return repr(value)
        case str():
            # There are no escapes: a string with quotes of both kinds is put together.
            parts = [value] if "'" not in value or '"' not in value else re.findall("[^']+|'+", value)
            return " + ".join(f'"{part}"' if "'" in part else f"'{part}'" for part in parts)
        case list():
            return f"[{', '.join(map(spell_value, value))}]"
        case tuple():
            return f"({', '.join(map(spell_value, value))})"
        case Tensor():
            return value.name
        case Size():  # in tract's dialect
            return str(value).replace("//", "/")


def signature_of(fragment: syntax.Fragment, dialect: Dialect) -> Signature:
    """The signature that a fragment declares.

    Raises:
        CompileError: names are not unique, a default does not fit its type, `?` is used without `<?>` or not used
            with it; in the final dialect also: tensors after attributes, tensors mixed with attributes.
    """
    rules = _Rules(fragment, dialect)
    rules.check_unique()
    rules.check_generic()
    if dialect is Dialect.FINAL:
        rules.check_separation()
    parameters = tuple(
        Parameter(p.name, p.type, MISSING if p.default is None else rules.default(p, p.default))
        for p in fragment.parameters
    )
    results = tuple(Result(r.name, r.type) for r in fragment.results)
    return Signature(fragment.name, fragment.generic, fragment.generic_default, parameters, results)


class _Rules:
    """The rules for one declaration."""

    def __init__(self, fragment: syntax.Fragment, dialect: Dialect) -> None:
        self._fragment = fragment
        self._dialect = dialect

    def _error(self, at: int, message: str, hint: str | None = None) -> CompileError:
        return CompileError(message, location=self._fragment.source.location(at), hint=hint)

    def _formals(self) -> list[syntax.Parameter | syntax.Result]:
        return [*self._fragment.parameters, *self._fragment.results]

    def check_unique(self) -> None:
        """No two parameters or results of one name."""
        seen: set[str] = set()
        for formal in self._formals():
            if formal.name in seen:
                message = f"'{self._fragment.name}' has a second parameter or result called '{formal.name}'"
                raise self._error(formal.at, message, "Give it another name.")
            seen.add(formal.name)

    def check_generic(self) -> None:
        """`?` is used if and only if the fragment is declared generic; results are bound to a content."""
        generic = [formal for formal in self._formals() if _any_part(formal.type, _is_generic)]
        if generic and not self._fragment.generic:
            hint = f"Declare it as {self._fragment.name}<?>(…)."
            raise self._error(generic[0].at, f"'{generic[0].name}' is generic, '{self._fragment.name}' is not", hint)
        if self._fragment.generic and not generic:
            raise self._error(self._fragment.at, f"'{self._fragment.name}' is generic, but no parameter or result is")
        for result in self._fragment.results:
            if _any_part(result.type, lambda type_: type_ == TensorType("")):
                hint = "Name the content: tensor<scalar>, or tensor<?> in a generic fragment."
                raise self._error(result.at, "a result cannot be a tensor of any content", hint)

    def check_separation(self) -> None:
        """The final dialect keeps tensors and attributes apart."""
        attribute: str | None = None
        for parameter in self._fragment.parameters:
            if not has_tensor(parameter.type):
                attribute = parameter.name
            elif attribute is not None:
                message = f"the tensor '{parameter.name}' comes after the attribute '{attribute}'"
                raise self._error(parameter.at, message, "Declare tensors before all other parameters.")
        first = self._fragment.results[0]
        for result in self._fragment.results:
            if has_tensor(result.type) != has_tensor(first.type):
                raise self._error(result.at, "results must be all tensors or none")
        for formal in self._formals():
            if _any_part(formal.type, _mixes):
                raise self._error(formal.at, "the elements of a tuple must be all tensors or none")

    def default(self, parameter: syntax.Parameter, default: syntax.Expression) -> Value:
        """The value of a default; it must fit the parameter's type."""
        type_ = type_of_literal(default)
        if type_ is None:
            raise self._error(default.at, "the elements of an array must have a common type")
        expected = parameter.type
        if _any_part(expected, _is_generic):
            contents = [self._fragment.generic_default] if self._fragment.generic_default else ["integer", "scalar"]
            contents += [] if self._fragment.generic_default else ["logical", "string"]
            candidates = [substitute(expected, content) for content in contents if content]
        else:
            candidates = [expected]
        value = literal_value(default)
        if any(convertible(type_, candidate) for candidate in candidates):
            return value
        if self._dialect is Dialect.PROVISIONAL and type_ == INTEGER and expected == SCALAR:
            return adapt(value, expected)
        message = (
            f"the default of '{parameter.name}' is of type {spell(type_, self._dialect)}, "
            f"the parameter of type {spell(expected, self._dialect)}"
        )
        hint = "Write a point: 1.0." if type_ == INTEGER and expected in (SCALAR, TensorType("scalar")) else None
        raise self._error(default.at, message, hint)


def _is_generic(type_: Type) -> bool:
    return isinstance(type_, GenericType) or type_ == TensorType("?")


def _mixes(type_: Type) -> bool:
    return isinstance(type_, TupleType) and len({has_tensor(element) for element in type_.elements}) > 1


def _any_part(type_: Type, holds: Callable[[Type], bool]) -> bool:
    """Returns whether a predicate holds for the type or a part of it."""
    parts: Iterable[Type] = ()
    match type_:
        case ArrayType(element) if element is not None:
            parts = (element,)
        case TupleType(elements):
            parts = elements
    return holds(type_) or any(_any_part(part, holds) for part in parts)


_LITERAL_TYPES: dict[type, Type] = {bool: LOGICAL, int: INTEGER, float: SCALAR, str: STRING}


def type_of_literal(expression: syntax.Expression) -> Type | None:
    """The type of a literal expression; None if the elements of an array have no common type."""
    match expression:
        case syntax.Literal(_, value):
            return _LITERAL_TYPES[type(value)]
        case syntax.Unary(_, _, operand):
            return type_of_literal(operand)
        case syntax.Array(_, ()):
            return EMPTY_ARRAY
        case syntax.Array(_, elements):
            types = [type_of_literal(element) for element in elements]
            known = [type_ for type_ in types if type_ is not None]
            element = common_type(known) if len(known) == len(types) else None
            return None if element is None else ArrayType(element)
        case syntax.Tuple(_, elements):
            types = [type_of_literal(element) for element in elements]
            known = [type_ for type_ in types if type_ is not None]
            return TupleType(tuple(known)) if len(known) == len(types) else None
    raise TypeError(f"not a literal: {expression}")


def literal_value(expression: syntax.Expression) -> Value:
    """The value of a literal expression."""
    match expression:
        case syntax.Literal(_, value):
            return value
        case syntax.Unary(_, operator, syntax.Literal(_, value)) if not isinstance(value, str):
            return -value if operator == "-" else value
        case syntax.Array(_, elements):
            return [literal_value(element) for element in elements]
        case syntax.Tuple(_, elements):
            return tuple([literal_value(element) for element in elements])
    raise TypeError(f"not a literal: {expression}")


def adapt(value: Value, expected: Type) -> Value:
    """An integer literal where a scalar is expected, which the provisional dialect allows, becomes that scalar."""
    if expected == SCALAR and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value
