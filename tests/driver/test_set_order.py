"""Nothing in the compiler is done in the order of the elements of a set, which is not the same in every process.

Strings are ordered by a hash that each process chooses, objects of TVM by their addresses. What comes out of a set is
therefore sorted, or goes into what has no order. This reads the source, as far as it can be seen in one function what
is a set: a display, a comprehension, `set(…)`, an operator of these or of the keys of dictionaries, a variable that is
bound to such, a parameter, an attribute or a function that is declared as one.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("passes", "compiler", "targets")

# What gives the same for each order, or cannot be asked of what has two elements.
WITHOUT_ORDER = {"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"}
IN_ORDER = {"dict", "enumerate", "filter", "iter", "list", "map", "reversed", "tuple", "zip"}
METHODS_IN_ORDER = {"extend", "fromkeys", "join"}

SETS = ("set", "frozenset", "Set", "AbstractSet")
OPERATORS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """Forgets the trees of all files in the end; without collections of garbage, of which they are none, meanwhile."""
    gc.disable()
    yield
    _scopes_of.cache_clear()
    gc.enable()


def test_nothing_is_done_in_the_order_of_a_set() -> None:
    found = [f"{path.relative_to(ROOT)}:{line}" for path in _sources() for line in in_order_of_sets(_scopes_of(path))]
    assert not found


@pytest.mark.parametrize(
    "code",
    [
        "for x in {f(y) for y in z}: g(x)",
        "a = set(b)\nc = [d for d in a]",
        "def f(a: set[int]) -> list[int]: return [*a]",
        "for x in a.keys() - b: g(x)",
        "', '.join(set(names))",
        "a: set[int] = b\nmax(a, key=abs)",
        "def f() -> set[int]: ...\nlist(f())",
    ],
)
def test_such_code_is_seen(code: str) -> None:
    assert list(in_order_of_sets(list(_scopes(ast.parse(code)))))


@pytest.mark.parametrize(
    "code",
    [
        "for x in sorted({f(y) for y in z}): g(x)",
        "a = set(b)\nc = {d for d in a}\ne = sum(d for d in a)",
        "for x in dict.fromkeys(z): g(x)",
        "def f(a: set[int]): ...\ndef g(a: list[int]): return [*a]",
        "max(set(a))",
    ],
)
def test_other_code_is_not(code: str) -> None:
    assert not list(in_order_of_sets(list(_scopes(ast.parse(code)))))


def in_order_of_sets(scopes: Sequence[_Scope]) -> Iterator[int]:
    """The lines in which something depends on the order of a set."""
    functions = _functions_of_sets() | {name for name, is_set in _declared(scopes) if is_set}
    for scope in scopes:
        known = _Sets(scope, functions)
        order_free = {
            id(argument)
            for node in scope.nodes
            if isinstance(node, ast.Call) and _called(node) in WITHOUT_ORDER
            for argument in node.args
        }
        for node in scope.nodes:
            if any(map(known.is_set, _read_in_order(node))) and id(node) not in order_free:
                yield node.lineno


@dataclass(frozen=True)
class _Scope:
    """A function or a module, with what is in it, but for the functions in it."""

    node: ast.FunctionDef | ast.Module
    nodes: list[ast.AST] = field(default_factory=list)


def _scopes(tree: ast.Module) -> Iterator[_Scope]:
    left = [_Scope(tree)]
    while left:
        scope = left.pop()
        inside = _children(scope.node)
        while inside:
            node = inside.pop()
            if isinstance(node, ast.FunctionDef):
                left.append(_Scope(node))
            elif not isinstance(node, _LEAVES):
                scope.nodes.append(node)
                inside += _children(node)
        yield scope


_LEAVES = (ast.expr_context, ast.Constant, ast.operator)


def _children(node: ast.AST) -> list[ast.AST]:
    """Returns what `ast.iter_child_nodes` yields, in half the time."""
    found: list[ast.AST] = []
    for value in vars(node).values():
        if isinstance(value, ast.AST):
            found.append(value)
        elif isinstance(value, list):
            found += [each for each in value if isinstance(each, ast.AST)]
    return found


class _Sets:
    """What is a set in a function, or in a module."""

    def __init__(self, scope: _Scope, functions: Set[str]) -> None:
        self._functions = functions
        self._names: set[str] = set()
        if isinstance(scope.node, ast.FunctionDef):
            given = scope.node.args
            arguments = (*given.posonlyargs, *given.args, *given.kwonlyargs)
            self._names = {each.arg for each in arguments if _is_declared(each.annotation)}
        bindings = [node for node in scope.nodes if isinstance(node, ast.AnnAssign | ast.Assign | ast.NamedExpr)]
        for node in (*bindings, *bindings):  # twice: one may read what another binds
            match node:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation) if _is_declared(annotation):
                    self._names.add(name)
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if self.is_set(value):
                    self._names.add(name)
                case ast.NamedExpr(target=ast.Name(id=name), value=value) if self.is_set(value):
                    self._names.add(name)

    def is_set(self, node: ast.expr) -> bool:
        match node:
            case ast.Set(elts=[ast.Starred(), *_] | [_, _, *_]) | ast.SetComp():
                return True
            case ast.Call(args=[]) if _called(node) in SETS:
                return False
            case ast.Call():
                return _called(node) in SETS or _called(node) in self._functions
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, OPERATORS):
                return any(self.is_set(side) or _called(side) in ("keys", "items") for side in (left, right))
            case ast.IfExp(body=body, orelse=other):
                return self.is_set(body) or self.is_set(other)
            case ast.Name(id=name):
                return name in self._names
        return False


def _read_in_order(node: ast.AST) -> list[ast.expr]:
    """What a node reads one element after the other, if the order matters there."""
    match node:
        case ast.For(iter=read):
            return [read]
        case ast.ListComp(generators=loops) | ast.GeneratorExp(generators=loops) | ast.DictComp(generators=loops):
            return [loop.iter for loop in loops]
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [element.value for element in elements if isinstance(element, ast.Starred)]
        case ast.Call(func=function, args=arguments):
            name, is_method = _called(node), isinstance(function, ast.Attribute)
            if name in METHODS_IN_ORDER if is_method else name in IN_ORDER:
                return arguments
            if name in ("max", "min", "sorted") and any(keyword.arg == "key" for keyword in node.keywords):
                return arguments
            is_free = name in WITHOUT_ORDER or name in ("gcd", "lcm")
            return [] if is_free else [arg.value for arg in arguments if isinstance(arg, ast.Starred)]
    return []


def _called(node: ast.expr) -> str:
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name
    return ""


def _is_declared(annotation: ast.expr | None) -> bool:
    while isinstance(annotation, ast.BinOp | ast.Subscript):  # as `set[int] | None`
        annotation = annotation.left if isinstance(annotation, ast.BinOp) else annotation.value
    return isinstance(annotation, ast.Name) and annotation.id in SETS


def _declared(scopes: Iterable[_Scope]) -> Iterator[tuple[str, bool]]:
    """The functions, and whether they return sets."""
    for scope in scopes:
        if isinstance(scope.node, ast.FunctionDef):
            yield scope.node.name, _is_declared(scope.node.returns)


@cache
def _functions_of_sets() -> Set[str]:
    """Names of functions that return sets wherever they are defined."""
    found: dict[str, bool] = {}
    for name, is_set in chain.from_iterable(_declared(_scopes_of(path)) for path in _sources()):
        found[name] = found.get(name, True) and is_set
    return {name for name, always in found.items() if always}


def _sources() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


@cache
def _scopes_of(path: Path) -> list[_Scope]:
    return list(_scopes(ast.parse(path.read_text())))
