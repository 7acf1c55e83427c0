"""Evaluates the bodies of a document, in either dialect: expressions, assignments, expansion of fragments, limits.

A dialect derives from :class:`Evaluator`. The standard's has static types and flattens a graph (`evaluation.py`);
tract's has dynamic types and builds a network as it goes (`dynamic/interpreter.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

from nnefc.frontends.nnef.language import syntax
from nnefc.support.diagnostics import CompileError

__all__ = ["Evaluator", "Frame", "Limits", "Work"]

_MAX_NOTES = 6


@dataclass(frozen=True)
class Limits:
    """Limits of a document: depth of fragment expansion, number of operations, number of evaluated expressions."""

    depth: int
    operations: int
    steps: int


@dataclass
class Work:
    """Numbers of operations and of evaluated expressions so far."""

    operations: int = 0
    steps: int = 0


@dataclass
class Frame:
    """A body that is being evaluated.

    Attributes:
        content: the type that `?` stands for.
        values: of the names assigned so far.
    """

    source: syntax.Source
    content: str = ""
    values: dict[str, Any] = field(default_factory=dict)


class Evaluator(ABC):
    """Evaluates bodies.

    Attributes:
        TOO_LONG, TOO_MANY, UNPACKING: messages, given the limit of steps, the limit of operations, and numbers of
            `values` and `names`.
        UNDEFINED: hint for a fragment without a body.
        NOTES_EACH_CALL: whether an error gets a note of each call that led to it, also of one at its own location.
    """

    TOO_LONG: ClassVar[str]
    TOO_MANY: ClassVar[str]
    UNPACKING: ClassVar[str]
    UNDEFINED: ClassVar[str | None] = None
    NOTES_EACH_CALL: ClassVar[bool] = False

    def __init__(self, limits: Limits, work: Work) -> None:
        self.limits = limits
        self.work = work
        self.depth = 0

    # Limits and errors

    def fail(self, frame: Frame, at: int, message: str, hint: str | None = None) -> NoReturn:
        """Raises an error at a character of a frame's source."""
        raise CompileError(message, location=frame.source.location(at), hint=hint)

    def spend(self, frame: Frame, at: int, steps: int) -> None:
        """Counts steps.

        Raises:
            CompileError: they are more than the limit.
        """
        self.work.steps += steps
        if self.work.steps > self.limits.steps:
            self.fail(frame, at, self.TOO_LONG.format(self.limits.steps))

    def count_operation(self, frame: Frame, at: int) -> None:
        """Counts an operation.

        Raises:
            CompileError: they are more than the limit.
        """
        self.work.operations += 1
        if self.work.operations > self.limits.operations:
            hint = "If it is meant to: --max-operations N allows more."
            self.fail(frame, at, self.TOO_MANY.format(self.limits.operations), hint)

    def located(self, frame: Frame, at: int, note: str, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function; an error without a location gets this one, another the note with this one."""
        try:
            return function(*args)
        except CompileError as error:
            location = frame.source.location(at)
            if error.location is None:
                raise CompileError(error.message, location=location, hint=error.hint, notes=error.notes) from None
            if len(error.notes) < _MAX_NOTES and (self.NOTES_EACH_CALL or error.location != location):
                error.notes += ((note, location),)
            raise

    # Bodies

    def expand(self, fragment: syntax.Fragment, frame: Frame, run: Callable[[Any, Frame], None]) -> list[Any]:
        """Evaluates a fragment's body, in a frame with its arguments; returns its results.

        Args:
            run: evaluates the body in the frame.

        Raises:
            CompileError: it has no body, or fragments are expanded too deeply; without a location.
        """
        if fragment.body is None:
            message = f"the fragment '{fragment.name}' is declared but not defined"
            raise CompileError(message, hint=self.UNDEFINED)
        if self.depth >= self.limits.depth:
            hint = "A fragment that invokes itself needs 'if … else' to come to an end; --max-depth N allows more."
            raise CompileError(f"fragments are expanded more than {self.limits.depth} deep", hint=hint)
        self.depth += 1
        try:
            run(fragment.body, frame)
            return [self.identifier(syntax.Identifier(each.at, each.name), frame) for each in fragment.results]
        finally:
            self.depth -= 1

    def assign(
        self, target: syntax.Expression, value: Any, frame: Frame, name: Callable[[int, str, Any], Any] | None = None
    ) -> None:
        """Binds names; an array or a tuple is unpacked as the target is written.

        Args:
            name: returns what an identifier is bound to, given its location, its name and the value.
        """
        if isinstance(target, syntax.Identifier):
            frame.values[target.name] = value if name is None else name(target.at, target.name, value)
            return
        assert isinstance(target, syntax.Array | syntax.Tuple)
        values = list(value) if isinstance(value, list | tuple) else [value]
        if len(values) != len(target.elements):
            self.fail(frame, target.at, self.UNPACKING.format(values=len(values), names=len(target.elements)))
        for element, part in zip(target.elements, values, strict=True):
            self.assign(element, part, frame, name)

    # Expressions

    def value(self, expression: syntax.Expression, frame: Frame, target: str = "") -> Any:
        """Returns the value of an expression.

        Args:
            target: the name that it is assigned to.
        """
        self.spend(frame, expression.at, 1)
        match expression:
            case syntax.Literal(_, value):
                return value
            case syntax.Identifier():
                return self.identifier(expression, frame)
            case syntax.Array(at, elements):
                return self.checked(at, [self.value(element, frame) for element in elements], frame)
            case syntax.Tuple(at, elements):
                return self.checked(at, tuple([self.value(element, frame) for element in elements]), frame)
            case syntax.Select(at, value, condition, otherwise):
                chosen = self.condition(at, self.value(condition, frame), frame)
                return self.value(value if chosen else otherwise, frame)
            case syntax.Unary():
                return self.unary(expression, frame)
            case syntax.Binary():
                return self.binary(expression, frame)
            case syntax.Subscript():
                return self.subscript(expression, frame)
            case syntax.Invocation():
                return self.invocation(expression, frame, target)
        return self.sequence(expression, frame)

    def checked(self, at: int, value: Any, frame: Frame) -> Any:
        """Returns an array or a tuple that an expression makes, if its size is allowed."""
        return value

    def condition(self, at: int, value: Any, frame: Frame) -> bool:
        """Returns what a condition is at compile time."""
        return bool(value)

    @abstractmethod
    def identifier(self, identifier: syntax.Identifier, frame: Frame) -> Any:
        """Returns the value of a name."""

    @abstractmethod
    def unary(self, unary: syntax.Unary, frame: Frame) -> Any:
        """Returns the value of an operator of one operand."""

    @abstractmethod
    def binary(self, binary: syntax.Binary, frame: Frame) -> Any:
        """Returns the value of an operator of two operands."""

    @abstractmethod
    def subscript(self, subscript: syntax.Subscript, frame: Frame) -> Any:
        """Returns an element of an array."""

    @abstractmethod
    def invocation(self, invocation: syntax.Invocation, frame: Frame, target: str) -> Any:
        """Returns the result of a fragment or an operation, a tuple if there are several."""

    @abstractmethod
    def sequence(self, expression: syntax.Range | syntax.Comprehension | syntax.Builtin, frame: Frame) -> Any:
        """Returns the value of an expression that only the standard's dialect has."""
