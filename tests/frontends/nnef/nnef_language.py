"""What the tests of the NNEF language share: short ways to write documents, and the position of an expected error."""

from __future__ import annotations

from typing import Any

import pytest

from nnefc.frontends.nnef import operations as _operations  # noqa: F401  (fills STANDARD)
from nnefc.frontends.nnef.declarations import STANDARD
from nnefc.frontends.nnef.evaluation import evaluate
from nnefc.frontends.nnef.flat import FlatGraph
from nnefc.frontends.nnef.language.parser import parse
from nnefc.frontends.nnef.language.types import Dialect
from nnefc.frontends.nnef.values import Tensor
from nnefc.support.diagnostics import CompileError

FINAL = """version 1.0;
extension KHR_enable_fragment_definitions;
extension KHR_enable_operator_expressions;
"""
PROVISIONAL = "version 1.0\n"


def graph(body: str, shape: str = "[2,3,8,8]") -> str:
    """A graph from `x` to `y` in the final dialect, with the given statements."""
    return f"graph g(x) -> (y) {{ x = external(shape = {shape}); {body} }}\n"


def final(fragments: str = "", body: str = "y = relu(x);") -> str:
    """A document of the final dialect with both extensions."""
    return f"{FINAL}{fragments}\n{graph(body)}"


def provisional(fragments: str = "", body: str = "y = relu(x)") -> str:
    """A document of the provisional dialect."""
    return f"{PROVISIONAL}{fragments}\ngraph g(x) -> (y)\n{{\nx = external(shape = [2,3,8,8])\n{body}\n}}\n"


def flatten(text: str, dialect: Dialect | None = None, **options: Any) -> FlatGraph:
    return evaluate(parse(text, "test.nnef", dialect), registry=STANDARD, **options)


def value_of(expression: str, type_: str = "integer[]", dialect: Dialect = Dialect.FINAL, fragments: str = "") -> Any:
    """The value of an expression at compile time, read off an operation's argument.

    The expression is evaluated inside a fragment with a result of the type; casts are not involved.
    """
    if dialect is Dialect.FINAL:
        fragment = f"fragment probed(n: integer = 3) -> (r: {type_}) {{ r = {expression}; }}\n"
        text = final(fragments + fragment, "y = relu(x);")
    else:
        fragment = f"fragment probed(n: extent = 3) -> (r: {type_}) {{ r = {expression} }}\n"
        text = provisional(fragments + fragment)
    return probe(parse(text, "test.nnef", dialect))


def probe(document: Any) -> Any:
    """Evaluate the fragment `probed` of a document without arguments."""
    from nnefc.frontends.nnef.environment import document_environment
    from nnefc.frontends.nnef.evaluation import _Flattener
    from nnefc.frontends.nnef.evaluator import Frame, Limits
    from nnefc.frontends.nnef.invocation import ExternalShapes
    from nnefc.frontends.nnef.language.checking import check_document, choose_graph

    environment = document_environment(document, STANDARD)
    chosen = choose_graph(document, None)
    annotations = check_document(document, chosen, environment)
    limits = Limits(100, 100, 100_000)
    evaluator = _Flattener(
        document, chosen, environment, annotations, ExternalShapes(chosen, {}), limits, lambda operation: False
    )
    arguments = {p.name: p.default for p in environment.fragments["probed"].signature.parameters}
    frame = Frame(document.source)
    return evaluator._fragment(environment.fragments["probed"], arguments, "", frame, 0)


def operations(flat: FlatGraph) -> list[str]:
    """The operations' names, inputs and variables left out."""
    names = [invocation.operation.name for invocation in flat.invocations]
    return [name for name in names if name not in ("external", "variable")]


def as_lists(value: Any) -> Any:
    """A value with tensors as their names."""
    match value:
        case Tensor():
            return value.name
        case list():
            return [as_lists(element) for element in value]
        case tuple():
            return tuple(as_lists(element) for element in value)
        case dict():
            return {name: as_lists(element) for name, element in value.items()}
        case _:
            return value


MARK = "«"


def check_error(
    marked: str, message: str, *, hint: str = "", dialect: Dialect | None = None, **options: Any
) -> CompileError:
    """Check that a document is refused with the message, at the position marked by `«`."""
    at = marked.index(MARK)
    text = marked.replace(MARK, "")
    with pytest.raises(CompileError) as caught:
        flatten(text, dialect, **options)
    error = caught.value
    assert message in error.message, str(error)
    assert error.location is not None, str(error)
    expected = (text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
    assert (error.location.line, error.location.column) == expected, str(error)
    assert error.location.text == text.splitlines()[expected[0] - 1] if text.splitlines() else True
    assert hint in (error.hint or ""), str(error)
    return error
