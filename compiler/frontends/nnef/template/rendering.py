"""The evaluation of a template: a document of its text, where values of the model's files in JSON are filled in.

Names that the template does not set are those of files: `config` is what `config.json` has. How much a template may
evaluate and write is limited, for it comes from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from nnefc.diagnostics import CompileError
from nnefc.frontends.nnef.deep_stack import call_with_deep_stack
from nnefc.frontends.nnef.template import expressions as e
from nnefc.frontends.nnef.template import statements as s
from nnefc.frontends.nnef.template.functions import FUNCTIONS, filtered, item_of, tested
from nnefc.frontends.nnef.template.text import Template
from nnefc.frontends.nnef.template.values import (
    UNDEFINED,
    Budget,
    Namespace,
    Refused,
    Undefined,
    calculated,
    equal,
    items_of,
    kind_of,
    truth,
    written,
)

__all__ = ["rendered"]

MAX_STEPS = 2_000_000
MAX_CHARACTERS = 64 << 20
_STEPS_OF_ITERATION = 8
_MAX_CALLS = 50
"""How deep macros and recursive loops may call each other."""
_FRAMES = 60_000
"""Calls of Python inside each other that the longest expressions and the deepest macros take."""


def rendered(text: str, file: str, resource: Callable[[str], Any]) -> str:
    """The text that a template makes.

    Args:
        text: of the template.
        file: its name, for messages.
        resource: the value of a file in JSON by its name, or None if there is none.

    Raises:
        CompileError: it breaks a rule of the language, asks for what is not there, or for too much; with the place.
    """
    template = Template(text, file)

    def run() -> str:
        return _Renderer(template, resource).run(s.parse_template(template))

    try:
        return call_with_deep_stack(run, _FRAMES)
    except RecursionError:
        raise CompileError(f"'{file}' is a template nested too deeply to be filled in") from None


class _Broken(Exception):
    """A `break`."""


class _Continued(Exception):
    """A `continue`."""


@dataclass(eq=False)
class _Function:
    """What can be called: a function, a macro, or `loop` in a recursive loop."""

    call: Callable[..., Any]


@dataclass(eq=False)
class _Later:
    """A value that is made when it is asked for."""

    make: Callable[[], Any]


@dataclass
class _Cycle:
    """What `loop.changed` has seen last."""

    seen: Any = UNDEFINED


class _Renderer:
    def __init__(self, template: Template, resource: Callable[[str], Any]) -> None:
        self._template = template
        self._resource = resource
        self._files: dict[str, Any] = {}
        self._scopes: list[dict[str, Any]] = [{}]
        self._texts: list[list[str]] = [[]]
        self._budget = Budget(MAX_STEPS, MAX_CHARACTERS)
        self._calls = 0

    def run(self, body: s.Block) -> str:
        self._run(body)
        return "".join(self._texts[0])

    # Statements

    def _run(self, body: s.Block) -> None:
        for statement in body:
            try:
                self._budget.spend(1)
                self._statement(statement)
            except Refused as error:
                self._template.fail(str(error), statement.at)

    def _statement(self, statement: s.Statement) -> None:
        match statement:
            case s.Text(_, text):
                self._write(text)
            case s.Output(_, expression):
                self._write(self._text(self._value(expression)))
            case s.Do(_, expression):
                self._value(expression)
            case s.If(_, branches, otherwise):
                self._run(next((body for condition, body in branches if truth(self._value(condition))), otherwise))
            case s.For():
                self._for(statement, self._value(statement.items), 0)
            case s.Set(_, target, expression):
                self._assign(target, self._value(expression))
            case s.Capture(_, target, filters, body):
                text = self._captured(body)
                made = text if filters is None else self._through(filters, text)
                if target is None:
                    self._write(self._text(made))
                else:
                    self._assign(target, made)
            case s.With(_, values, body):
                with self._scope():
                    for target, expression in values:
                        self._assign(target, self._value(expression))
                    self._run(body)
            case s.Macro():
                self._scopes[-1][statement.name] = self._macro(statement)
            case s.Jump(_, kind):
                raise _Broken if kind == "break" else _Continued

    def _write(self, text: str) -> None:
        self._budget.write(text)
        self._texts[-1].append(text)

    def _text(self, value: Any) -> str:
        self._budget.weigh(value)
        return written(value)

    def _captured(self, body: s.Block) -> str:
        self._texts.append([])
        try:
            with self._scope():
                self._run(body)
        finally:
            made = "".join(self._texts.pop())
        return made

    @contextmanager
    def _scope(self) -> Any:
        self._scopes.append({})
        try:
            yield self._scopes[-1]
        finally:
            self._scopes.pop()

    def _assign(self, target: s.Target, value: Any) -> None:
        match target:
            case e.Name(_, name):
                self._scopes[-1][name] = value
            case e.Item(_, of, e.Name(_, key)):
                space = self._value(of)
                if not isinstance(space, Namespace):
                    raise Refused("only names in a namespace can be set")
                space.items[key] = value
            case tuple():
                items = items_of(value, self._budget)
                if len(items) != len(target):
                    raise Refused(f"{len(target)} names are given to {len(items)} items")
                for part, item in zip(target, items, strict=True):
                    self._assign(part, item)

    def _for(self, loop: s.For, value: Any, depth: int) -> None:
        items = items_of(value, self._budget)
        if loop.condition is not None:
            items = [item for item in items if self._holds_for(loop, item)]
        if not items:
            self._run(loop.otherwise)
            return
        changed = _Cycle()
        for number, item in enumerate(items):
            with self._scope() as scope:
                self._budget.spend(_STEPS_OF_ITERATION)
                scope["loop"] = _Later(partial(self._loop, loop, items, number, depth, changed))
                self._assign(loop.target, item)
                try:
                    self._run(loop.body)
                except _Continued:
                    continue
                except _Broken:
                    break

    def _holds_for(self, loop: s.For, item: Any) -> bool:
        assert loop.condition is not None
        with self._scope():
            self._assign(loop.target, item)
            return truth(self._value(loop.condition))

    def _loop(self, loop: s.For, items: list[Any], number: int, depth: int, changed: _Cycle) -> Namespace:
        """What `loop` is in an iteration."""
        count = len(items)

        def cycle(*values: Any) -> Any:
            return values[number % len(values)] if values else UNDEFINED

        def is_new(*values: Any) -> bool:
            new = not equal(list(values), changed.seen)
            changed.seen = list(values)
            return new

        facts: dict[str, Any] = {
            "index": number + 1,
            "index0": number,
            "revindex": count - number,
            "revindex0": count - number - 1,
            "first": number == 0,
            "last": number == count - 1,
            "length": count,
            "depth": depth + 1,
            "depth0": depth,
            "previtem": items[number - 1] if number else UNDEFINED,
            "nextitem": items[number + 1] if number + 1 < count else UNDEFINED,
            "cycle": _Function(cycle),
            "changed": _Function(is_new),
        }
        made = Namespace(facts)
        if loop.recursive:
            facts[_CALL] = _Function(lambda value: self._deeper(lambda: self._for(loop, value, depth + 1)))
        return made

    def _deeper(self, run: Callable[[], None]) -> str:
        """The text that a call writes."""
        if self._calls >= _MAX_CALLS:
            raise Refused(f"calls are nested more than {_MAX_CALLS} deep")
        self._calls += 1
        self._texts.append([])
        try:
            run()
        finally:
            self._calls -= 1
            made = "".join(self._texts.pop())
        return made

    def _macro(self, macro: s.Macro) -> _Function:
        """A function that writes the macro's body, with the names that are known where it is defined."""
        outside = list(self._scopes)

        def call(*arguments: Any, **named: Any) -> str:
            if len(arguments) > len(macro.parameters):
                raise Refused(f"'{macro.name}' takes {len(macro.parameters)} arguments")
            given = dict(zip((name for name, _ in macro.parameters), arguments, strict=False))
            unknown = named.keys() - {name for name, _ in macro.parameters} | named.keys() & given.keys()
            if unknown:
                raise Refused(f"'{macro.name}' does not take '{min(unknown)}'")
            return self._deeper(lambda: body({**given, **named}))

        def body(given: Mapping[str, Any]) -> None:
            scopes, self._scopes = self._scopes, [*outside, {}]
            try:
                for name, default in macro.parameters:
                    value = given.get(name, UNDEFINED)
                    missing = value is UNDEFINED and default is not None
                    self._scopes[-1][name] = self._value(default) if missing and default is not None else value
                self._run(macro.body)
            finally:
                self._scopes = scopes

        return _Function(call)

    # Expressions

    def _value(self, expression: e.Expression) -> Any:
        self._budget.spend(1)
        try:
            return self._evaluated(expression)
        except Refused as error:
            self._template.fail(str(error), expression.at)

    def _evaluated(self, expression: e.Expression) -> Any:
        match expression:
            case e.Constant(_, value):
                return value
            case e.Name(_, name):
                return self._named(name)
            case e.ListOf(_, items):
                return [self._value(item) for item in items]
            case e.MapOf(_, items):
                return {self._key(key): self._value(item) for key, item in items}
            case e.Unary(_, sign, operand):
                value = self._value(operand)
                return not truth(value) if sign == "not" else calculated("*", -1, value, self._budget)
            case e.Binary(_, "and" | "or" as sign, left, right):
                value = self._value(left)
                return value if truth(value) == (sign == "or") else self._value(right)
            case e.Binary(_, sign, left, right):
                return calculated(sign, self._value(left), self._value(right), self._budget)
            case e.Choice(_, value, condition, otherwise):
                if truth(self._value(condition)):
                    return self._value(value)
                return UNDEFINED if otherwise is None else self._value(otherwise)
            case e.Item(_, of, key):
                return item_of(self._value(of), self._key(key))
            case e.Slice(_, of, bounds):
                return self._slice(self._value(of), [None if b is None else self._value(b) for b in bounds])
            case e.Call():
                return self._call(expression)
            case e.Filtered():
                return self._through(expression, None)
            case e.Tested(_, of, name, arguments):
                value, rest = self._value(of), [self._value(argument) for argument in arguments]
                self._budget.weigh(value, *rest)
                return tested(name, value, rest)
        raise Refused("such an expression has no value")

    def _named(self, name: str) -> Any:
        for scope in reversed(self._scopes):
            if name in scope:
                if isinstance(scope[name], _Later):
                    scope[name] = scope[name].make()
                return scope[name]
        if name not in self._files:
            found = self._resource(name)
            self._files[name] = UNDEFINED if found is None else found
        if isinstance(self._files[name], Undefined) and name in FUNCTIONS:
            return _Function(FUNCTIONS[name])
        return self._files[name]

    def _key(self, expression: e.Expression) -> Any:
        key = self._value(expression)
        if isinstance(key, list | dict | Namespace | _Function):
            raise Refused(f"{kind_of(key)} is no key")
        return key

    def _slice(self, value: Any, bounds: list[Any]) -> Any:
        if isinstance(value, Undefined):
            return []
        if not isinstance(value, str | list):
            raise Refused(f"{kind_of(value)} has no slices")
        if any(b is not None and (not isinstance(b, int) or isinstance(b, bool)) for b in bounds):
            raise Refused("the bounds of a slice are integers")
        if bounds[2] is not None and bounds[2] < 1:
            raise Refused("a slice goes on by 1 or more")
        self._budget.spend(len(value) >> 4)
        return value[slice(*bounds)]

    def _call(self, call: e.Call) -> Any:
        if isinstance(call.function, e.Item):
            of = self._value(call.function.of)
            function = item_of(of, self._key(call.function.key))
            if not isinstance(function, _Function):
                hint = "there are filters: {{ text | upper }}"
                self._template.fail(f"{kind_of(of)} has no methods", call.at, hint)
        else:
            function = self._value(call.function)
        if isinstance(function, Namespace) and _CALL in function.items:
            function = function.items[_CALL]
        if not isinstance(function, _Function):
            raise Refused(f"{kind_of(function)} cannot be called")
        arguments = [self._value(argument) for argument in call.arguments]
        named = {name: self._value(argument) for name, argument in call.named}
        try:
            made = function.call(*arguments, **named)
        except (TypeError, ValueError, AttributeError):
            raise Refused("the call has other arguments than the function takes") from None
        self._budget.spend(len(made) >> 4 if isinstance(made, list | str) else 0)
        return made

    def _through(self, expression: e.Expression, text: str | None) -> Any:
        """The value of filters, of a block's text if that is given."""
        match expression:
            case e.Filtered(_, of, name, arguments, named):
                value = self._through(of, text)
                rest = [self._value(argument) for argument in arguments]
                return filtered(name, value, rest, {key: self._value(item) for key, item in named}, self._budget)
            case e.Tested() if text is not None:
                raise Refused("a block goes through filters alone")
            case e.Name(_, "") if text is not None:
                return text
        return self._value(expression)


_CALL = "\0call"
"""The item of `loop` that is called where it is itself: no template can name it."""
