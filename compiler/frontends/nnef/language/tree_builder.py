"""Builds the syntax tree during parsing, with one method per rule of `grammar.lark`, of the same name."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any, TypeAlias

from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.lexer import Token
from nnefc.frontends.nnef.language.syntax import Source
from nnefc.frontends.nnef.language.types import (
    ArrayType,
    Dialect,
    GenericType,
    PrimitiveType,
    TensorType,
    TupleType,
    Type,
)
from nnefc.support.diagnostics import CompileError

__all__ = ["MAX_INTEGER", "TreeBuilder", "number"]

MAX_INTEGER = 2**63 - 1

# Named here, because `tuple` is a rule of the grammar inside the builder.
Parameters: TypeAlias = tuple[syntax.Parameter, ...]
Results: TypeAlias = tuple[syntax.Result, ...]
Identifiers: TypeAlias = tuple[syntax.Identifier, ...]
Body: TypeAlias = tuple[tuple[syntax.Assignment, ...], int]
Arguments: TypeAlias = tuple[syntax.Argument, ...]
Iterators: TypeAlias = tuple[syntax.Iterator, ...]


def number(text: str) -> int | float | None:
    """The value of a numeric literal: a scalar if it has a point or an exponent; None if it is too large to be one."""
    if text.isdigit():
        return int(text) if len(text) < 20 and int(text) <= MAX_INTEGER else None
    value = float(text)
    return value if math.isfinite(value) else None


def _content(token: Token) -> str:
    return "integer" if token.text == "extent" else token.text


class TreeBuilder:
    """Builds the tree of one text. With a dialect, what only the other dialect has is refused."""

    def __init__(self, source: Source, dialect: Dialect | None) -> None:
        self._source = source
        self._dialect = dialect

    def _error(self, at: int, message: str, hint: str | None = None) -> CompileError:
        return CompileError(message, location=self._source.location(at), hint=hint)

    def _only(self, dialect: Dialect, at: int, what: str, hint: str | None = None) -> None:
        if self._dialect not in (None, dialect):
            raise self._error(at, f"{what} belongs to the {dialect.value} dialect, the document to the other", hint)

    # Documents

    def document(self, elements: list[Any]) -> syntax.Document:
        extensions = [element for element in elements[1:] if isinstance(element, list)]
        fragments = tuple(element for element in elements if isinstance(element, syntax.Fragment))
        graphs = tuple(element for element in elements if isinstance(element, syntax.Graph))
        if not graphs:
            raise self._error(len(self._source.text.rstrip()), "the document has no graph")
        if self._dialect is Dialect.FINAL and fragments and fragments[-1].at > graphs[0].at:
            raise self._error(fragments[-1].at, "fragments are defined before the graph")
        assert self._dialect is not None
        flat_extensions = tuple(extension for clause in extensions for extension in clause)
        document = syntax.Document(self._source, self._dialect, flat_extensions, fragments, graphs)
        if not document.is_dynamic:
            for fragment in fragments:
                if not fragment.parameters:
                    raise self._error(fragment.at, f"the fragment '{fragment.name}' has no parameters")
        return document

    def version(self, elements: list[Any]) -> str:
        (token,) = elements
        if not re.fullmatch(r"[0-9]+\.[0-9]+", token.text):
            raise self._error(token.at, f"'{token.text}' is not a version", "Write version 1.0.")
        if float(token.text) != 1.0 or not token.text.startswith("1."):
            raise self._error(token.at, f"version {token.text} of NNEF is not known", "The known version is 1.0.")
        return str(token.text)

    def extension(self, elements: list[Any]) -> list[syntax.Extension]:
        return elements

    def extension_clause(self, elements: list[Any]) -> syntax.Extension:
        name, *options = elements
        self._only(Dialect.FINAL, name.at, "'extension'")
        return syntax.Extension(name.at, name.text, tuple(option.text for option in options))

    # Declarations

    def fragment(self, elements: list[Any]) -> syntax.Fragment:
        name, generic, parameters, results = elements[0]
        parameters = parameters or ()
        body, end = elements[1] if len(elements) > 1 else (None, name.at)
        default = generic[0] if generic else None
        return syntax.Fragment(
            self._source, name.at, name.text, generic is not None, default, parameters, results, body, end
        )

    def declaration(self, elements: list[Any]) -> list[Any]:
        return elements

    def generic(self, elements: list[Any]) -> list[str | None]:
        of, content, _ = elements
        self._only(Dialect.FINAL, of.at, "a generic fragment")
        if content is not None and content.text == "?":
            raise self._error(content.at, "the default of '?' cannot be '?'")
        return [None if content is None else _content(content)]

    def parameters(self, elements: list[Any]) -> Parameters:
        parameters: list[syntax.Parameter] = []
        for element in elements:
            if isinstance(element, syntax.Parameter):
                parameters.append(element)
            else:
                parameters[-1] = self._continued(parameters[-1], element)
        for parameter in parameters:
            if parameter.default is not None:
                self._check_literal(parameter.default)
        return tuple(parameters)

    def _continued(self, parameter: syntax.Parameter, element: syntax.Expression) -> syntax.Parameter:
        """A parameter whose default is a tuple without parentheses, with one more element."""
        if parameter.default is None:
            raise self._error(element.at, "expected a parameter", "Write name: type.")
        self._only(Dialect.PROVISIONAL, element.at, "a tuple without parentheses as a default")
        match parameter.default:
            case syntax.Tuple(at, elements) if at == elements[0].at:
                default = syntax.Tuple(at, (*elements, element))
            case first:
                default = syntax.Tuple(first.at, (first, element))
        return replace(parameter, default=default)

    def parameter(self, elements: list[Any]) -> syntax.Parameter:
        name, type_, default = elements
        return syntax.Parameter(name.at, name.text, type_, default)

    def _check_literal(self, default: syntax.Expression) -> None:
        pending = [default]
        while pending:
            match pending.pop():
                case syntax.Literal():
                    pass
                case syntax.Array(_, elements) | syntax.Tuple(_, elements):
                    pending += elements
                case syntax.Unary(_, "-" | "+", syntax.Literal(_, value)) if type(value) in (int, float):
                    pass
                case other:
                    raise self._error(other.at, "the default of a parameter must be a literal")

    def results(self, elements: list[Any]) -> Results:
        return tuple(elements)

    def result(self, elements: list[Any]) -> syntax.Result:
        name, type_ = elements
        return syntax.Result(name.at, name.text, type_)

    # Types

    def primitive_type(self, elements: list[Any]) -> Type:
        return PrimitiveType(_content(elements[0]))

    def generic_type(self, elements: list[Any]) -> Type:
        self._only(Dialect.FINAL, elements[0].at, "the generic type '?'")
        return GenericType()

    def tensor_type(self, elements: list[Any]) -> Type:
        keyword, content, close = elements
        if close is None:
            self._only(Dialect.PROVISIONAL, keyword.at, "'tensor' without a content", "Write tensor<scalar>.")
            return TensorType("scalar")
        if content is None or content.text == "?":
            self._only(Dialect.FINAL, keyword.at, "a tensor of any content")
        elif content.text == "string":
            raise self._error(content.at, "there are no tensors of strings")
        return TensorType("" if content is None else _content(content))

    def array_type(self, elements: list[Any]) -> Type:
        return ArrayType(elements[0])

    def tuple_type(self, elements: list[Any]) -> Type:
        return TupleType(tuple(elements[1:]))

    def content(self, elements: list[Any]) -> Token:
        token: Token = elements[0]
        return token

    # Graphs

    def graph(self, elements: list[Any]) -> syntax.Graph:
        name, inputs, outputs, (body, end) = elements
        return syntax.Graph(name.at, name.text, inputs, outputs, body, end)

    def identifiers(self, elements: list[Any]) -> Identifiers:
        return tuple(elements)

    def identifier(self, elements: list[Any]) -> syntax.Identifier:
        return syntax.Identifier(elements[0].at, elements[0].text)

    def body(self, elements: list[Any]) -> Body:
        *assignments, close = elements
        return tuple(assignments), close.at

    def assignment(self, elements: list[Any]) -> syntax.Assignment:
        target, value = elements
        return syntax.Assignment(target.at, target, value)

    def bare_tuple(self, elements: list[Any]) -> syntax.Tuple:
        return syntax.Tuple(elements[0].at, tuple(elements))

    # Expressions

    def array(self, elements: list[Any]) -> syntax.Array:
        bracket, *values = elements
        return syntax.Array(bracket.at, () if values == [None] else tuple(values))

    def tuple(self, elements: list[Any]) -> syntax.Tuple:
        parenthesis, *values = elements
        return syntax.Tuple(parenthesis.at, tuple(values))

    def invocation(self, elements: list[Any]) -> syntax.Invocation:
        name, of, content, _, arguments = elements
        if of is not None:
            self._only(Dialect.FINAL, of.at, "an explicit type '<…>'")
        return syntax.Invocation(name.at, name.text, None if content is None else _content(content), arguments)

    def arguments(self, elements: list[Any]) -> Arguments:
        return tuple(elements)

    def positional(self, elements: list[Any]) -> syntax.Argument:
        return syntax.Argument(elements[0].at, None, elements[0])

    def named(self, elements: list[Any]) -> syntax.Argument:
        name, value = elements
        return syntax.Argument(name.at, name.text, value)

    def select(self, elements: list[Any]) -> syntax.Select:
        value, condition, otherwise = elements
        return syntax.Select(value.at, value, condition, otherwise)

    def binary(self, elements: list[Any]) -> syntax.Binary:
        left, operator, right = elements
        if operator.text == "in":
            self._only(Dialect.FINAL, operator.at, "the operator 'in'")
        return syntax.Binary(left.at, operator.text, left, right, operator.at)

    def unary(self, elements: list[Any]) -> syntax.Unary:
        operator, operand = elements
        return syntax.Unary(operator.at, operator.text, operand)

    def subscript(self, elements: list[Any]) -> syntax.Subscript:
        sequence, index = elements
        return syntax.Subscript(sequence.at, sequence, index)

    def range(self, elements: list[Any]) -> syntax.Range:
        sequence, begin, _, end = elements
        return syntax.Range(sequence.at, sequence, begin, end)

    def comprehension(self, elements: list[Any]) -> syntax.Comprehension:
        bracket, element, iterators, condition = elements
        hint = "Write [for i in array if condition yield element]."
        self._only(Dialect.PROVISIONAL, bracket.at, "a comprehension without 'yield'", hint)
        return syntax.Comprehension(bracket.at, iterators, condition, element)

    def yielding_comprehension(self, elements: list[Any]) -> syntax.Comprehension:
        bracket, iterators, condition, element = elements
        self._only(Dialect.FINAL, bracket.at, "a comprehension with 'yield'")
        return syntax.Comprehension(bracket.at, iterators, condition, element)

    def iterators(self, elements: list[Any]) -> Iterators:
        return tuple(elements)

    def iterator(self, elements: list[Any]) -> syntax.Iterator:
        target, _, sequence = elements
        return syntax.Iterator(target.at, target, sequence)

    def builtin(self, elements: list[Any]) -> Token:
        token: Token = elements[0]
        return token

    def builtin_call(self, elements: list[Any]) -> syntax.Builtin:
        name, argument = elements
        return syntax.Builtin(name.at, _content(name), argument)

    def literal(self, elements: list[Any]) -> syntax.Literal:
        (token,) = elements
        match token.type:
            case "NUMBER":
                value = number(token.text)
                if value is None:
                    raise self._error(token.at, "the number is too large")
                return syntax.Literal(token.at, value)
            case "STRING":
                return syntax.Literal(token.at, token.text[1:-1])
            case kind:
                return syntax.Literal(token.at, kind == "TRUE")
