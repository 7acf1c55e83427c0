"""Writes docs/operators.md: what the operators of the library are called in each format.

The names come from the registries of the front ends: those whose functions name an operator. Where one function serves
many, the computations that tests compare say which operator is which.
"""

from __future__ import annotations

import functools
import inspect
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

if __name__ == "__main__":
    tests = Path(__file__).parents[1]
    sys.path += [str(tests / "helpers"), str(tests / "frontends" / "pnnx")]

from computations import COMPUTATIONS
from formats import Computation, modules_of

from nnefc.frontends.nnef.declarations import STANDARD
from nnefc.frontends.onnx.operator import OPERATORS as ONNX_OPERATORS
from nnefc.frontends.pnnx.functions import FUNCTIONS as EXPRESSIONS
from nnefc.frontends.pnnx.operators.declaration import OPERATORS
from nnefc.frontends.tflite.lowering import OPERATORS as TFLITE_OPERATORS
from nnefc.operators.base import Operator
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Elementwise
from nnefc.operators.math.expression import Expression
from nnefc.operators.math.functions import FUNCTIONS
from nnefc.operators.tensor.creation import Full

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
HEAD = """# Operators

Front ends translate their formats to the operators of `compiler/operators`, which define each once. This table is made
from their declarations (`python tests/operators/operators_page.py` writes it). What the standards define by other
operators, NNEF's compound operations and ONNX's functions, is not in it. The same computation becomes the same Relax
whichever format says it: `tests/operators/test_same_relax.py` compares what formats have in common.

| operator | what it is | NNEF | ONNX | PNNX | TFLite |
|---|---|---|---|---|---|
"""


def page(folder: Path) -> str:
    """The page; `folder` is for models."""
    rows: dict[tuple[str, str], list[set[str]]] = {}

    def add(row: tuple[str, str], column: int, name: str) -> None:
        rows.setdefault(row, [set(), set(), set(), set()])[column].add(f"`{name}`")

    unnamed: list[set[str]] = []
    for column, names in enumerate(_registered()):
        found = {name: {row for f in functions for row in _rows_of(f, name)} for name, functions in names.items()}
        unnamed.append({name for name, own in found.items() if not own})
        for name, own in found.items():
            for row in own:
                add(row, column, name)
    for computation in COMPUTATIONS:
        left = [(column, n) for column, n in enumerate(_names(computation)) if n in unnamed[column]]
        if left:
            with _lowered() as lowered:
                modules_of(computation, folder)
            # Besides the operator itself, others may make its operands, and bring them into shape and type.
            own = next((one for one in lowered if not one.moves and not isinstance(one, Cast | Full)), lowered[-1])
            for column, name in left:
                add(_row(type(own), getattr(own, "function", None)), column, name)
    lines = []
    for name, what in sorted(rows):
        columns = [", ".join(sorted(names)) for names in rows[name, what]]
        lines.append(f"| `{name}` | {what.replace('|', chr(92) + '|')} | {' | '.join(columns)} |")
    return HEAD + "\n".join(lines) + "\n"


def _row(kind: type[Operator], function: str | None = None) -> tuple[str, str]:
    """The name of an operator, with its family, and what it computes."""
    family, what = kind.__module__.rpartition(".")[2], " ".join(inspect.getdoc(kind).split("\n\n")[0].split())
    if kind is Elementwise and function is not None:
        return f"{family}.{function}", FUNCTIONS[function].definition
    return f"{family}.{kind.__name__}", what


def _rows_of(function: object, name: str) -> set[tuple[str, str]]:
    """The operators that a function of a front end lowers to; none where tables of functions do not tell."""
    kinds = _kinds_of(function, name)
    if kinds - {Elementwise, Expression}:
        return {_row(kind) for kind in kinds - {Elementwise, Expression}}
    values = [function, *_named(function, name)]
    values += [value for inner in values[1:] if _is_of_front_ends(inner) for value in _closed_over(inner)]
    if Expression in kinds:
        values = [value for code in _codes(function.__code__) for value in code.co_consts]
    strings = {value for value in values if isinstance(value, str)}
    # Expressions of PNNX have names of their own for the functions.
    scalars = (
        {EXPRESSIONS[string].name for string in strings & EXPRESSIONS.keys()} if _is_of_pnnx(function) else strings
    )
    scalars &= FUNCTIONS.keys()
    return {_row(Elementwise, scalar) for scalar in scalars} if len(scalars) == 1 else set()


def _registered() -> Iterator[Mapping[str, list[object]]]:
    """What each format calls its operators, and what lowers them."""
    nnef: dict[str, list[object]] = {}
    for operation in STANDARD:
        nnef.setdefault(operation.name, []).append(operation.lower)
    yield nnef
    yield {name.rpartition(":")[2]: list(versions.values()) for name, versions in ONNX_OPERATORS.items()}
    yield {
        name: [value for value in declared.fixed.values() if value in EXPRESSIONS]
        or [declared.lower, *declared.fixed.values()]
        for name, declared in OPERATORS.items()
    }
    yield {name: [declared.lower] for name, declared in TFLITE_OPERATORS.items()}


def _kinds_of(root: object, name: str) -> set[type[Operator]]:
    """The operators that a function names, or else those that the functions of its front end that it calls name.

    Of a function that wraps others, those of what it wraps.
    """
    wrapped = [kind for inner in _closed_over(root) if _is_of_front_ends(inner) for kind in _kinds_of(inner, name)]
    if wrapped:
        return set(wrapped)
    level, seen, aside = [root], set[int](), set[type[Operator]]()
    while level:
        named = [value for element in level for value in _named(element, name) if id(value) not in seen]
        seen |= set(map(id, named))
        kinds = {value for value in [*level, *named] if isinstance(value, type) and issubclass(value, Operator)}
        own = {kind for kind in kinds if kind.__name__.lower() == name.replace("_", "").lower()}
        if own and all(kind.moves for kind in own):
            return own
        found = {kind for kind in kinds if not kind.moves and kind is not Cast}
        if found:
            return found
        aside = aside or kinds  # what brings operands into shape and type, where there is no other
        level = [value for value in named if _is_of_front_ends(value)]
    return aside


def _is_of_front_ends(value: object) -> bool:
    return isinstance(value, FunctionType) and ".frontends." in value.__module__


def _is_of_pnnx(function: object) -> bool:
    return isinstance(function, str) or ".pnnx." in getattr(function, "__module__", "")


def _closed_over(function: object) -> list[object]:
    return [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]


def _named(function: object, name: str) -> Iterable[object]:
    """What a function names: of its module, of functions around it, as defaults, of what it imports for strings; of
    tables what they hold for it.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, FunctionType):
        return []
    names = {used for code in _codes(function.__code__) for used in code.co_names}
    values = [function.__globals__[used] for used in names if used in function.__globals__]
    values += [*_closed_over(function), *(function.__defaults__ or ())]
    values += [import_module(used) for used in names if used.startswith("nnefc.operators.text.")]
    held: list[object] = []
    for value in values:
        if isinstance(value, dict):
            held += [value[name]] if name in value else value.values()
        elif isinstance(value, tuple | list):
            held += value
        elif isinstance(value, ModuleType) and value.__name__.startswith("nnefc.operators."):
            held += [getattr(value, used) for used in names if hasattr(value, used)]
    nested = [element for value in held if isinstance(value, tuple) for element in value]
    return [value.func if isinstance(value, functools.partial) else value for value in (*values, *held, *nested)]


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _names(computation: Computation) -> tuple[str, str, str]:
    nnef = computation.nnef.partition("(")[0] if computation.nnef else ""
    return (
        nnef,
        computation.onnx[0] if computation.onnx else "",
        computation.pnnx[0].split()[0] if computation.pnnx else "",
    )


@contextmanager
def _lowered() -> Iterator[list[type[Operator]]]:
    """The operators that are lowered inside, without those that others are made of."""
    found: list[Operator] = []
    kinds = {kind: kind.__dict__["lower"] for kind in Operator.KINDS if "lower" in kind.__dict__}
    inside = False

    def noting(lower: Callable[..., object]) -> object:
        def noted(self: Operator, *operands: object) -> object:
            nonlocal inside
            before, inside = inside, True
            if not before:
                found.append(self)
            try:
                return lower(self, *operands)
            finally:
                inside = before

        return noted

    for kind, lower in kinds.items():
        kind.lower = noting(lower)
    try:
        yield found
    finally:
        for kind, lower in kinds.items():
            kind.lower = lower


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder_:
        PAGE.write_text(page(Path(folder_)))
