"""The keys of an architecture in the metadata of a file of GGUF, each of a type that is checked."""

from __future__ import annotations

from typing import Any

from nnefc.frontends.decoder.weights import shown
from nnefc.frontends.gguf.container import Container
from nnefc.support.diagnostics import CompileError

__all__ = ["Keys"]


class Keys:
    """The keys of an architecture, each of a type that is checked."""

    def __init__(self, container: Container, architecture: str) -> None:
        self._path, self._metadata, self._prefix = container.path, container.metadata, architecture

    def has(self, key: str) -> bool:
        """Returns whether the file has a key."""
        return f"{self._prefix}.{key}" in self._metadata

    def refuse(self, key: str, reason: str) -> CompileError:
        """Returns an error that names a key."""
        return CompileError(f"'{self._path}': the key '{self._prefix}.{key}' {reason}")

    def get(self, key: str) -> Any:
        """Returns the value of a key; None without it."""
        return self._metadata.get(f"{self._prefix}.{key}")

    def integer(self, key: str, default: int | None = None) -> int:
        """Returns an integer; of a list of equal ones, one for each layer, that one."""
        found = self.get(key)
        if isinstance(found, list) and found and all(each == found[0] for each in found):
            found = found[0]
        if found is None and default is not None:
            return default
        if found is None:
            raise self.refuse(key, "is missing")
        if isinstance(found, list):
            raise self.refuse(key, "differs between layers, which is not supported")
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 1 << 40:
            raise self.refuse(key, f"is {shown(found)}, not a number of something")
        return found

    def used(self, key: str, default: int) -> int:
        """Returns an integer; of a list, one for each layer, that of the layers that have any."""
        found = self.get(key)
        if isinstance(found, list) and any(found):
            numbers = [each for each in found if each]
            if any(each != numbers[0] for each in numbers):
                raise self.refuse(key, "differs between layers, which is not supported")
            found = numbers[0]
            return int(found) if isinstance(found, int) and 0 < found < 1 << 40 else default
        return self.integer(key, default)

    def positive(self, key: str, default: int | None = None) -> int:
        """Returns an integer above 0."""
        found = self.integer(key, default)
        if not found:
            raise self.refuse(key, "is 0")
        return found

    def real(self, key: str, default: float) -> float:
        """Returns a finite number."""
        found = self.get(key)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < 1e30:
            raise self.refuse(key, f"is {shown(found)}, not a number")
        return float(found)
