"""Attributes of option objects that check the type of what they are set to, and log options without an effect."""

from __future__ import annotations

import logging
import operator
from enum import IntEnum
from typing import Any, Generic, TypeVar, overload

__all__ = ["LOG", "Configured", "Field", "ignored"]

T = TypeVar("T")

LOG = logging.getLogger(__name__.replace("integrations.", "").rpartition(".")[0])
"""The logger `nnefc.onnxruntime`."""

_logged: set[str] = set()


def ignored(name: str) -> None:
    """Logs, once for each name and at debug level, that an option has no effect here."""
    if name not in _logged:
        _logged.add(name)
        LOG.debug("%s is accepted and has no effect: the network is compiled, and its plan is fixed", name)


class Field(Generic[T]):
    """An attribute of one type; without `used`, another value than the default is logged as one without an effect.

    Integers take whatever has `__index__`, booleans whatever `bool` takes but strings, as in onnxruntime.

    Attributes:
        is_used: whether it has an effect.
    """

    def __init__(self, kind: type[T], default: T, *, used: bool = False) -> None:
        self._kind, self._default, self.is_used = kind, default, used

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._key = name, f"{owner.__name__}.{name}"

    @overload
    def __get__(self, instance: None, owner: type) -> Field[T]: ...
    @overload
    def __get__(self, instance: Configured, owner: type) -> T: ...
    def __get__(self, instance: Configured | None, owner: type) -> T | Field[T]:
        if instance is None:
            return self
        value: T = instance._values.get(self._name, self._default)
        return value

    def __set__(self, instance: Configured, value: Any) -> None:
        converted = self._converted(value)
        if not self.is_used and converted != self._default:
            ignored(self._key)
        instance._values[self._name] = converted

    def _converted(self, value: Any) -> Any:
        if issubclass(self._kind, str) or issubclass(self._kind, IntEnum):
            if isinstance(value, self._kind):
                return value
        elif self._kind is bool:
            if not isinstance(value, str):
                return bool(value)
        elif hasattr(value, "__index__"):
            return operator.index(value)
        kind = type(value).__name__
        raise TypeError(f"{self._key} takes a value of the type {self._kind.__name__}, not {kind}")


class Configured:
    """An object with fields and configuration entries, which are pairs of texts."""

    __slots__ = ("_entries", "_values")

    _EFFECTIVE: frozenset[str] = frozenset()
    """The keys of entries that have an effect."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._entries: dict[str, str] = {}

    def _copy_to(self, other: Configured) -> None:
        other._values, other._entries = dict(self._values), dict(self._entries)

    def _add_entry(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            kinds = f"{type(key).__name__} and {type(value).__name__}"
            raise TypeError(f"a configuration entry of {type(self).__name__} is a pair of texts, not {kinds}")
        if not 0 < len(key) <= _MAX_KEY:
            raise RuntimeError(f"the key of a configuration entry has 1 to {_MAX_KEY} characters, not {len(key)}")
        if key not in self._EFFECTIVE:
            ignored(f"the entry {key} of {type(self).__name__}")
        self._entries[key] = value

    def _entry(self, key: str) -> str:
        if key not in self._entries:
            raise RuntimeError(f"{type(self).__name__} has no configuration entry {key!r}")
        return self._entries[key]


_MAX_KEY = 1024
