"""Generated methods of the compiler's data classes behave the same, and are compiled when they are first used."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import sys
from types import ModuleType

import pytest

import nnefc  # noqa: F401  (defers the methods)
from nnefc.support.deferred_methods import _DeferredMethod, defer_methods

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python compiles all methods of a class at once")

CLASSES = """
from dataclasses import dataclass, field

@dataclass(frozen=True, order=True)
class Shape:
    "Python writes a text for those without one, for which it uses the method `__init__`."
    sizes: tuple[int, ...]
    names: list[str] = field(default_factory=list, compare=False)
    inner: object = field(default=None, compare=False)

@dataclass(frozen=True)
class Named(Shape):
    "Has a name."
    def first(self):
        return super().__repr__()

@dataclass
class Counter:
    "Counts."
    count: int = 0
"""
METHODS = {"__init__", "__eq__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__", "__setattr__", "__delattr__"}


def classes_of(module: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType(module)
    monkeypatch.setitem(sys.modules, module, made)
    exec(CLASSES, vars(made))
    return made


def deferred(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if isinstance(value, _DeferredMethod)}


def test_a_method_is_compiled_when_it_is_first_used(monkeypatch: pytest.MonkeyPatch) -> None:
    made = classes_of("nnefc.sample", monkeypatch)
    assert deferred(made.Shape) == METHODS and deferred(made.Counter) == {"__init__", "__eq__"}
    shape = made.Shape((2, 3))
    assert deferred(made.Shape) == METHODS - {"__init__"}
    assert shape == made.Shape(sizes=(2, 3), names=["n"]) and shape != made.Shape((3,)) and shape < made.Shape((3,))
    assert len({shape, made.Shape((2, 3))}) == 1
    assert deferred(made.Shape) == METHODS - {"__init__", "__eq__", "__lt__", "__hash__"}


def test_the_methods_do_what_those_of_other_packages_do(monkeypatch: pytest.MonkeyPatch) -> None:
    made, other = (classes_of(name, monkeypatch) for name in ("nnefc.sample", "sample"))
    assert not deferred(other.Shape)
    for name in METHODS:
        assert getattr(made.Shape, name).__qualname__ == f"Shape.{name}"
        assert inspect.signature(getattr(made.Shape, name)) == inspect.signature(getattr(other.Shape, name))
    assert not deferred(made.Shape)
    for each in (made, other):
        assert str(inspect.signature(each.Named)) == str(inspect.signature(other.Shape))
        named = each.Named((1,), inner=each.Counter(2))
        is_deferred = inspect.unwrap(each.Shape.__repr__).__module__ == defer_methods.__module__
        assert is_deferred == (each is made)
        assert named.first() == repr(named) == "Named(sizes=(1,), names=[], inner=Counter(count=2))"
        assert copy.deepcopy(dataclasses.replace(named, sizes=(2,))) == each.Named((2,))
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'sizes'"):
            named.sizes = ()
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'sizes'"):
            del named.sizes
        with pytest.raises(TypeError, match=r"Shape\.__init__\(\) missing 1 required positional argument: 'sizes'"):
            each.Shape()
        assert each.Shape.__init__ is each.Shape.__init__


def test_methods_are_deferred_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dataclasses._create_fn  # type: ignore[attr-defined]
    defer_methods("nnefc")
    assert dataclasses._create_fn is before  # type: ignore[attr-defined]
