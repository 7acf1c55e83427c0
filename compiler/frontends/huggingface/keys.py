"""The keys of a folder's config.json, each of a type that is checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnefc.frontends.decoder.weights import shown
from nnefc.support.diagnostics import CompileError

__all__ = ["Keys", "epsilon_of"]


class Keys:
    """The keys of a configuration, each of a type that is checked."""

    def __init__(self, config: Mapping[str, Any], path: Path) -> None:
        self._config, self._path = config, path

    def refuse(self, key: str, reason: str) -> CompileError:
        """Returns an error that names a key."""
        return CompileError(f"'{self._path}': the key '{key}' {reason}")

    def get(self, *keys: str) -> Any:
        """Returns the value of the first key that has one."""
        return next((found for key in keys if (found := self._config.get(key)) is not None), None)

    def integer(self, key: str, default: int | None = None) -> int:
        """Returns an integer from 0 on."""
        found = self.get(key)
        if found is None and default is not None:
            return default
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 1 << 40:
            raise self.refuse(
                key, "is missing" if found is None else f"is {shown(repr(found))}, not a number of something"
            )
        return found

    def real(self, key: str, default: float = 0.0) -> float:
        """Returns a number."""
        found = self.get(key)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < 1e30:
            raise self.refuse(key, f"is {shown(repr(found))}, not a number")
        return float(found)

    def positive(self, key: str, default: int | None = None) -> int:
        """Returns an integer above 0."""
        found = self.integer(key, default)
        if not found:
            raise self.refuse(key, "is 0")
        return found

    def listed(self, key: str, count: int) -> list[Any] | None:
        """Returns a list with one element for each layer; None without it."""
        found = self.get(key)
        if found is not None and (not isinstance(found, list) or len(found) != count):
            raise self.refuse(key, f"is no list of {count} elements, one for each layer")
        return found

    def inside(self, key: str) -> Keys | None:
        """Returns the keys of an object; None without it."""
        found = self.get(key)
        if found is not None and not isinstance(found, Mapping):
            raise self.refuse(key, "is no object")
        return None if found is None else Keys(found, self._path)


def epsilon_of(keys: Keys) -> float:
    """Returns what norms add to the mean square."""
    for key in ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps"):
        if keys.get(key) is not None:
            return keys.real(key)
    raise keys.refuse("rms_norm_eps", "is missing")
