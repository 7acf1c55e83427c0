"""Reads the symbols of documents: named sizes, assertions about them, and scenarios.

extension tract_symbol S;               S is a size
extension tract_assert S >= 0;          its range
extension tract_assert S+P < 128;       a bound of each, the other one at its least
extension tract_pulse_streaming_symbol; the symbol S, as older documents declare it
extension tract_assert tg: S==1;        a scenario, for which a specialization may be made
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from nnefc.frontends.dynamic_shapes import DynamicDimensions
from nnefc.frontends.nnef.dynamic.values import dtype_named
from nnefc.frontends.nnef.language import syntax
from nnefc.ir.outline import DynamicTensor, likely_size
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import LARGEST, Dimension, DynamicSize
from nnefc.symbolic.refinement import Refinement

__all__ = ["INPUTS", "Assertions", "Symbols", "declared_inputs", "named_in_inputs", "read_assertions"]

INPUTS = ("external", "tract_core_external")
"""The operations that stand for inputs of a graph."""
_STREAM = "S"
"""The symbol of the length of streams that documents do not declare by its name."""

_TERM = re.compile(r"\s*([+-]?)\s*(?:(\d{1,15})\s*\*\s*)?([A-Za-z_]\w*|\d{1,15})\s*")
_COMPARISON = re.compile(r"(?:([A-Za-z_]\w*)\s*:)?([^<>=:]+)(<=|>=|==|<|>)([^<>=:]+)")


@dataclass(frozen=True)
class Assertions:
    """Assertions of a document about its symbols.

    Attributes:
        symbols: their names.
        ranges: the min and max of each.
        scenarios: sizes of symbols by the names of scenarios.
        notes: assertions that were not understood.
    """

    symbols: tuple[str, ...]
    ranges: Mapping[str, DynamicSize]
    scenarios: Mapping[str, Mapping[str, int]]
    notes: tuple[str, ...] = ()


def read_assertions(document: syntax.Document) -> Assertions:
    """Reads the extensions of a document that are about symbols.

    Raises:
        CompileError: a symbol without a name.
    """
    symbols: list[str] = []
    for extension in document.extensions:
        if extension.name == "tract_symbol":
            names = extension.options[0].split() if extension.options else []
            if len(names) != 1:
                location = document.source.location(extension.at)
                raise CompileError("a symbol needs one name", location=location, hint="write extension tract_symbol S;")
            symbols.append(names[0])
        elif extension.name == "tract_pulse_streaming_symbol":
            symbols.append(_STREAM)
    symbols += [name for graph in document.graphs for name in sorted(_undeclared(graph))]
    symbols = list(dict.fromkeys(symbols))
    ranges = {name: DynamicSize(minimum=0) for name in symbols}
    scenarios: dict[str, dict[str, int]] = {}
    texts = [each.options[0] if each.options else "" for each in document.extensions if each.name == "tract_assert"]
    for _ in range(2):  # what one says of a symbol, bounds others in those before it
        notes = tuple(text for text in texts if not _note(text, ranges, scenarios))
    below = {name for text in texts for name in _bounded_below(text)}
    ranges = {
        name: size if name in below else replace(size, minimum=max(1, size.minimum)) for name, size in ranges.items()
    }
    return Assertions(tuple(symbols), ranges, scenarios, notes)


def _bounded_below(text: str) -> set[str]:
    """The symbol of an assertion `P >= 0` or the like: only where one says so, a size may be 0."""
    found = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*(?:>=?|==)[^=].*|[^:]*<=?\s*([A-Za-z_]\w*)\s*", text)
    return {name for name in found.groups() if name} if found else set()


def _note(text: str, ranges: dict[str, DynamicSize], scenarios: dict[str, dict[str, int]]) -> bool:
    """Returns whether an assertion was understood, and noted."""
    found = _COMPARISON.fullmatch(text.strip())
    sides = [_linear(found[2]), _linear(found[4])] if found else [None, None]
    if found is None or sides[0] is None or sides[1] is None:
        return False
    # left - right OP 0
    factors = {n: sides[0][0].get(n, 0) - sides[1][0].get(n, 0) for n in {**sides[0][0], **sides[1][0]}}
    constant = sides[0][1] - sides[1][1]
    scenario, comparison = found[1], found[3]
    if scenario is not None:
        if comparison != "==" or len(factors) != 1 or abs(next(iter(factors.values()))) != 1:
            return False
        (name, factor), *_ = factors.items()
        scenarios.setdefault(scenario, {})[name] = -constant * factor
        return name in ranges
    if not factors.keys() <= ranges.keys():
        return False
    if comparison in ("<", ">"):  # of integers
        constant, comparison = constant + (1 if comparison == "<" else -1), comparison + "="
    if comparison in ("<=", "=="):
        _bound(factors, constant, ranges)
    if comparison in (">=", "=="):
        _bound({name: -factor for name, factor in factors.items()}, -constant, ranges)
    return True


def _bound(factors: Mapping[str, int], constant: int, ranges: dict[str, DynamicSize]) -> None:
    """Note `Σ factor · symbol + constant <= 0` for each symbol, the others where they leave it most."""
    for name, factor in factors.items():
        tail = constant
        for other, its in factors.items():
            if other != name:
                maximum = ranges[other].maximum
                if its < 0 and maximum is None:
                    break
                tail += its * (ranges[other].minimum if its > 0 else maximum or 0)
        else:
            size = ranges[name]
            if factor > 0:
                maximum = -tail // factor
                ranges[name] = replace(size, maximum=maximum if size.maximum is None else min(size.maximum, maximum))
            elif factor < 0:
                ranges[name] = replace(size, minimum=max(size.minimum, -(tail // factor)))


def _linear(text: str) -> tuple[dict[str, int], int] | None:
    """A sum of symbols with factors and of numbers; None for other texts."""
    factors: dict[str, int] = {}
    constant = position = 0
    while position < len(text):
        found = _TERM.match(text, position)
        if found is None or (position and not found[1]):
            return None
        sign = -1 if found[1] == "-" else 1
        factor = sign * int(found[2] or 1)
        if found[3].isdigit():
            constant += factor * int(found[3])
        else:
            factors[found[3]] = factors.get(found[3], 0) + factor
        position = found.end()
    return factors, constant


class Symbols:
    """The sizes of a document's symbols: dynamic dimensions, or what a user gives for them.

    Args:
        assertions: what the document says of them.
        inputs: of the graph.
        named: symbols in the sizes of inputs.
        lengths: symbols of what caches hold.
        given: by a user: sizes of symbols and shapes of inputs.
        refinement: what is known of dynamic sizes.

    Attributes:
        sizes: by name.
        opened: the open ones.
        absent: symbols that are in no input's sizes, and that no user gives.
        lengths: by the symbols of what caches hold, which no input has, the maximum that these may hold before a run.
    """

    def __init__(
        self,
        assertions: Assertions,
        inputs: Sequence[DynamicTensor],
        named: Set[str],
        lengths: Set[str],
        given: Mapping[str, tuple[int | DynamicSize, ...]],
        refinement: Refinement,
    ) -> None:
        self.sizes: dict[str, Dimension] = {}
        self.absent = frozenset(set(assertions.symbols) - named - set(given) - lengths)
        self.lengths: dict[str, int] = {}
        self.opened = DynamicDimensions(refinement)
        for name in assertions.symbols:
            if name in lengths - named and not _is_one_size(given.get(name)):
                self.lengths[name] = _longest_length(name, assertions.ranges[name], given)
                continue
            self.sizes[name] = self._size(name, assertions.ranges[name], inputs, given)

    def of(self, declared: int | str | None) -> Dimension:
        """The size that is declared so; 1 where nothing is known of it."""
        return self.sizes.get(declared, 1) if isinstance(declared, str) else declared or 1

    def _size(
        self,
        name: str,
        asserted: DynamicSize,
        inputs: Sequence[DynamicTensor],
        given: Mapping[str, tuple[int | DynamicSize, ...]],
    ) -> Dimension:
        wanted: int | DynamicSize = given[name][0] if name in given else asserted
        for tensor in inputs:
            if tensor.name in given:
                for declared, size in zip(tensor.shape or (), given[tensor.name], strict=False):
                    wanted = size if declared == name else wanted
        if isinstance(wanted, int):
            return wanted
        likely = next(
            (likely_size(name, axis, t) for t in inputs for axis, each in enumerate(t.shape or ()) if each == name), 64
        )
        minimum, maximum = max(wanted.minimum, asserted.minimum), LARGEST if wanted.maximum is None else wanted.maximum
        maximum = maximum if asserted.maximum is None else min(maximum, asserted.maximum)
        opened = replace(
            wanted,
            minimum=minimum,
            maximum=(wanted.maximum and maximum) or asserted.maximum,
            likely=min(likely, maximum),
        )
        return self.opened.size(name, opened)


def _is_one_size(given: tuple[int | DynamicSize, ...] | None) -> bool:
    return given is not None and isinstance(given[0], int)


def _longest_length(name: str, asserted: DynamicSize, given: Mapping[str, tuple[int | DynamicSize, ...]]) -> int:
    wanted = [given[name][0] if name in given else asserted, asserted]
    maximum = min(
        (size.maximum for size in wanted if isinstance(size, DynamicSize) and size.maximum is not None), default=None
    )
    if maximum is None:
        raise CompileError(
            f"nothing says how much the caches may hold, whose size is the symbol '{name}'",
            hint=f"give a range: --shape {name}=0..2048",
        )
    return maximum


def declared_inputs(graph: syntax.Graph) -> list[DynamicTensor]:
    """The inputs as the text declares them; a size that is a symbol has its name, other expressions are unknown."""
    made = {}
    for assignment in graph.body:
        call = assignment.value
        if not (isinstance(assignment.target, syntax.Identifier) and isinstance(call, syntax.Invocation)):
            continue
        if call.name in INPUTS:
            named = {argument.name: argument.value for argument in call.arguments}
            shape, datum = named.get("shape"), named.get("datum_type")
            dtype = dtype_named(str(datum.value)) if isinstance(datum, syntax.Literal) else "float32"
            sizes = (
                tuple(_declared_size(element) for element in shape.elements)
                if isinstance(shape, syntax.Array)
                else None
            )
            made[assignment.target.name] = DynamicTensor(assignment.target.name, dtype, sizes)
    return [made.get(each.name, DynamicTensor(each.name, "", None)) for each in graph.inputs]


def named_in_inputs(graph: syntax.Graph) -> set[str]:
    """All names in the sizes of inputs."""
    calls = [assignment.value for assignment in graph.body if isinstance(assignment.value, syntax.Invocation)]
    shapes = [a.value for call in calls if call.name in INPUTS for a in call.arguments if a.name == "shape"]
    return {n.name for shape in shapes for n in syntax.parts_of(shape) if isinstance(n, syntax.Identifier)}


def _undeclared(graph: syntax.Graph) -> set[str]:
    """Names in the sizes of inputs that nothing gives a value: symbols that the document does not declare."""
    targets = (target for each in graph.body for target in syntax.identifiers_of(each.target))
    return named_in_inputs(graph) - {target.name for target in targets}


def _declared_size(element: syntax.Expression) -> int | str | None:
    match element:
        case syntax.Literal(_, int() as size):
            return size
        case syntax.Identifier(_, name):
            return name
        case _:
            return None
