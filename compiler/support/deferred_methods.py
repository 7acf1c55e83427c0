"""Defers the methods that Python generates for data classes: each is compiled when it is first used.

    @dataclass(frozen=True)     __init__, __repr__, __eq__, __hash__, __setattr__, __delattr__: for each, `dataclasses`
    class Shape: …              compiles a text while the module is imported; if deferred, when it is first called

Compiling these texts takes half of the time that it takes to import the compiler, which has hundreds of data classes,
and a compilation calls few of the methods. Data classes of other packages are left alone.

Python 3.13 compiles all methods of a class as one text, in other functions of `dataclasses`: there, none is deferred.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from inspect import signature
from typing import Any

__all__ = ["defer_methods"]

_CREATE = "_create_fn"
"""The function of `dataclasses` that compiles a method."""

_PARAMETERS = ["name", "args", "body", "globals", "locals", "return_type"]
"""Its parameters where it is the one that this module knows."""


def defer_methods(package: str) -> None:
    """Defers the generated methods of data classes that the modules of a package define from now on."""
    create = getattr(dataclasses, _CREATE, None)
    if create is None or list(signature(create).parameters) != _PARAMETERS:
        return

    def deferred(name: str, args: Any, body: Any, *, globals: Mapping[str, Any] | None = None, **further: Any) -> Any:
        def compiled() -> Callable[..., Any]:
            method: Callable[..., Any] = create(name, args, body, globals=globals, **further)
            return method

        if str((globals or {}).get("__name__")).partition(".")[0] != package:
            return compiled()
        return _deferred_repr(compiled) if name == "__repr__" else _DeferredMethod(name, compiled)

    setattr(dataclasses, _CREATE, deferred)


def _deferred_repr(compiled: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Returns a function that compiles `__repr__` when it is first called: `dataclasses` wraps it in another one."""
    method = cache(compiled)

    def __repr__(self: object) -> str:
        return str(method()(self))

    return __repr__


class _DeferredMethod:
    """Stands for a method in its class until the method is first used, and is replaced by it then."""

    def __init__(self, name: str, compiled: Callable[[], Callable[..., Any]]) -> None:
        """`compiled` returns the method, a new one each time."""
        self.__name__ = name  # by which `dataclasses` adds it to the class
        self._compiled = compiled

    def __get__(self, instance: object, owner: type) -> Any:
        method = self._compiled()
        for kind in owner.__mro__:
            if vars(kind).get(self.__name__) is self:
                method.__qualname__ = f"{kind.__qualname__}.{self.__name__}"
                setattr(kind, self.__name__, method)
        return method.__get__(instance, owner)
