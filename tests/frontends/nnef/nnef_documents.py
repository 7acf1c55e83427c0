"""Random valid documents of the final dialect.

Expressions are drawn together with their values, so that indices are in range and nothing divides by zero. All of them
are parenthesized, and scalars are small multiples of 1/4: precedence and rounding are tested elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from nnef_language import FINAL

Draw = Any


@dataclass(frozen=True)
class Document:
    text: str
    fragments: tuple[str, ...]


@dataclass(frozen=True)
class Typed:
    """An expression with its value."""

    text: str
    value: Any


class Expressions:
    """Draws expressions of a type over names with known values."""

    def __init__(self, draw: Draw, names: dict[str, dict[str, Any]]) -> None:
        self._draw = draw
        self._names = names
        self._counter = 0

    def pick(self, choices: list[Any]) -> Any:
        return self._draw(st.sampled_from(choices))

    def of(self, type_: str, depth: int = 3) -> Typed:
        known = [Typed(name, value) for name, value in self._names.get(type_, {}).items()]
        if depth == 0 or (known and self.pick([True, False, False])):
            return self.pick(known) if known else self.literal(type_)
        if self.pick([True, False, False, False]):
            return self.literal(type_)
        if self.pick([True, False, False, False]):
            condition = self.of("logical", depth - 1)
            a, b = self.of(type_, depth - 1), self.of(type_, depth - 1)
            return Typed(f"({a.text} if {condition.text} else {b.text})", a.value if condition.value else b.value)
        if type_.endswith("[]"):
            return self._array(type_, depth - 1)
        return {"integer": self._integer, "scalar": self._scalar, "logical": self._logical, "string": self._string}[
            type_
        ](depth - 1)

    def literal(self, type_: str) -> Typed:
        match type_:
            case "integer":
                value: Any = self._draw(st.integers(0, 9))
            case "scalar":
                value = self._draw(st.integers(0, 12)) / 4
            case "logical":
                value = self._draw(st.booleans())
                return Typed("true" if value else "false", value)
            case "string":
                value = self.pick(["", "a", "bc", "constant", "d"])
                return Typed(f"'{value}'", value)
            case _:
                elements = [self.literal(type_[:-2]) for _ in range(self._draw(st.integers(1, 3)))]
                return Typed(
                    f"[{', '.join(element.text for element in elements)}]", [element.value for element in elements]
                )
        return Typed(str(value), value)

    def _integer(self, depth: int) -> Typed:
        match self.pick(["+", "-", "*", "/", "neg", "length", "item", "cast"]):
            case "neg":
                a = self.of("integer", depth)
                return Typed(f"(-({a.text}))", -a.value)
            case "length":
                a = self.of(self.pick(["integer[]", "string", "scalar[][]"]), depth)
                return Typed(f"length_of({a.text})", len(a.value))
            case "item":
                return self._element("integer", depth)
            case "cast":
                a = self.of("logical", depth)
                return Typed(f"integer({a.text})", int(a.value))
            case sign:
                return self._arithmetic("integer", sign, depth)

    def _scalar(self, depth: int) -> Typed:
        match self.pick(["+", "-", "*", "item", "cast"]):
            case "item":
                return self._element("scalar", depth)
            case "cast":
                a = self.of("integer", depth)
                return Typed(f"scalar({a.text})", float(a.value))
            case sign:
                return self._arithmetic("scalar", sign, depth)

    def _arithmetic(self, type_: str, sign: str, depth: int) -> Typed:
        a, b = self.of(type_, depth), self.of(type_, depth)
        if sign == "/" and b.value == 0:
            sign = "+"
        match sign:
            case "+":
                value = a.value + b.value
            case "-":
                value = a.value - b.value
            case "*":
                value = a.value * b.value
            case _:
                value = int(a.value / b.value)
        if abs(value) > 1000:
            return self.literal(type_)
        return Typed(f"({a.text} {sign} {b.text})", value)

    def _logical(self, depth: int) -> Typed:
        match self.pick(["<", "<=", ">", ">=", "==", "!=", "&&", "||", "!", "in"]):
            case "!":
                a = self.of("logical", depth)
                return Typed(f"(!({a.text}))", not a.value)
            case "&&":
                a, b = self.of("logical", depth), self.of("logical", depth)
                return Typed(f"({a.text} && {b.text})", a.value and b.value)
            case "||":
                a, b = self.of("logical", depth), self.of("logical", depth)
                return Typed(f"({a.text} || {b.text})", a.value or b.value)
            case "in":
                a, b = self.of("integer", depth), self.of("integer[]", depth)
                return Typed(f"({a.text} in {b.text})", a.value in b.value)
            case sign:
                type_ = self.pick(["integer", "scalar"])
                a, b = self.of(type_, depth), self.of(type_, depth)
                compare = {"<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__", "==": "__eq__", "!=": "__ne__"}
                return Typed(f"({a.text} {sign} {b.text})", getattr(a.value, compare[sign])(b.value))

    def _string(self, depth: int) -> Typed:
        """The package fails to take the elements of strings."""
        if self.pick([True, False]):
            a = self.of("integer", depth)
            return Typed(f"string({a.text})", str(a.value))
        a, b = self.of("string", depth), self.of("string", depth)
        return Typed(f"({a.text} + {b.text})", a.value + b.value)

    def _array(self, type_: str, depth: int) -> Typed:
        element = type_[:-2]
        match self.pick(["items", "+", "*", "range", "comprehension", "comprehension", "numbers"]):
            case "+":
                a, b = self.of(type_, depth), self.of(type_, depth)
                return Typed(f"({a.text} + {b.text})", a.value + b.value)
            case "*":
                a, times = self.of(type_, depth), self._draw(st.integers(0, 3))
                return Typed(f"({a.text} * {times})", a.value * times)
            case "range":
                return self._range(type_, depth)
            case "comprehension":
                return self._comprehension(element, depth)
            case "numbers" if type_ == "integer[]":
                a = self.of(self.pick(["integer[]", "string"]), depth)
                return Typed(f"range_of({a.text})", list(range(len(a.value))))
            case _:
                elements = [self.of(element, depth) for _ in range(self._draw(st.integers(1, 3)))]
                return Typed(f"[{', '.join(i.text for i in elements)}]", [i.value for i in elements])

    def _element(self, type_: str, depth: int) -> Typed:
        sequence = self.of(f"{type_}[]", depth)
        if not sequence.value:
            return self.literal(type_)
        index = self._draw(st.integers(-len(sequence.value), len(sequence.value) - 1))
        spelled = f"(-{-index})" if index < 0 else str(index)
        return Typed(f"({sequence.text})[{spelled}]", sequence.value[index])

    def _range(self, type_: str, depth: int) -> Typed:
        sequence = self.of(type_, depth)
        begin = self._draw(st.integers(0, len(sequence.value)))
        end = self._draw(st.integers(begin, len(sequence.value)))
        left = "" if begin == 0 and self.pick([True, False]) else str(begin)
        right = "" if end == len(sequence.value) and self.pick([True, False]) else str(end)
        return Typed(f"({sequence.text})[{left}:{right}]", sequence.value[begin:end])

    def _comprehension(self, element: str, depth: int) -> Typed:
        """One iterator whose name takes part in the condition only, where its value may be of use for every element."""
        sequence = self.of("integer[]", depth)
        self._counter += 1
        name = f"i{self._counter}_{depth}"
        limit = self._draw(st.integers(-5, 9))
        produced = self.of(element, depth)
        kept = [value for value in sequence.value if value < limit]
        if element == "integer":
            text, values = f"({name} + {produced.text})", [value + produced.value for value in kept]
        else:
            text, values = produced.text, [produced.value for _ in kept]
        return Typed(f"[for {name} in {sequence.text} if {name} < {limit} yield {text}]", values)


@st.composite
def documents(draw: Draw) -> Document:
    """A document with a few fragments: with attributes of all kinds, generic, recursive, with several results."""
    fragments: list[str] = []
    names: list[str] = []
    calls: list[str] = []
    for k in range(draw(st.integers(1, 3))):
        attributes = draw(st.lists(st.sampled_from(_TYPES), max_size=3))
        scope: dict[str, dict[str, Any]] = {}
        formals, actuals = [], []
        outer = Expressions(draw, {})
        for i, type_ in enumerate(attributes):
            value = outer.of(type_, 2)
            default = draw(st.sampled_from(["", f" = {outer.literal(type_).text}"]))
            formals.append(f"a{i}: {type_}{default}")
            actuals.append(f"a{i} = {value.text}")
            scope.setdefault(type_, {})[f"a{i}"] = value.value
        expressions = Expressions(draw, scope)
        scale = expressions.of("scalar")
        condition = expressions.of("logical")
        count = expressions.of("integer[]")
        names.append(f"f{k}")
        statements = [
            f"s = {scale.text};",
            f"p = relu(x * s) if {condition.text} else x + s;",
            f"q = [for j in {count.text} yield p * scalar(j)] + [p];",
            "[r] = [q[0]];",
            f"(u, v) = (r, {draw(st.sampled_from(['exp(x)', 'tanh(x)', 'x - r']))});",
            "y = u + v;",
        ]
        parameters = ", ".join(["x: tensor<scalar>", *formals])
        fragments.append(
            f"fragment f{k}({parameters}) -> (y: tensor<scalar>)\n{{\n    " + "\n    ".join(statements) + "\n}"
        )
        calls.append(f"f{k}({{}}{''.join(', ' + actual for actual in actuals)})")
    names += ["again", "pick"]
    fragments.append(
        "fragment again(x: tensor<scalar>, n: integer) -> (y: tensor<scalar>, z: tensor<scalar>)\n"
        "{ y, z = again(x + scalar(n), n = n - 1) if n > 0 else (x, relu(x)); }"
    )
    fragments.append(
        "fragment pick<?>(c: tensor<logical>, a: tensor<?>, b: tensor<?>) -> (y: tensor<?>)\n"
        "{ y = select(c, a, select(c, b, a)); }"
    )
    body = []
    current = "x"
    for n, call in enumerate(calls):
        body.append(f"t{n} = {call.format(current)};")
        current = f"t{n}"
    body.append(f"g, h = again({current}, n = {draw(st.integers(0, 4))});")
    body.append(
        draw(st.sampled_from(["y = pick(g < h, g, h);", "y = pick<scalar>(g < h, g, 1.0);", "y = g / (h + 1.0);"]))
    )
    graph = "graph g(x) -> (y)\n{\n    x = external(shape = [2,3,4]);\n    " + "\n    ".join(body) + "\n}\n"
    return Document(FINAL + "\n".join(fragments) + "\n" + graph, tuple(names))


_TYPES = ("integer", "scalar", "logical", "string", "integer[]", "scalar[]", "string[]", "scalar[][]")
