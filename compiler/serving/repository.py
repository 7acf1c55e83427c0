"""Model repository: the networks of a server by name and version."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnefc.loader import LoadError, RunError
from nnefc.serving.failures import FailureKind, Refused
from nnefc.serving.metrics import Metrics
from nnefc.serving.served import Samples, Served
from nnefc.serving.settings import Policy

__all__ = ["Entry", "Repository"]

_READY, _UNAVAILABLE = "READY", "UNAVAILABLE"


@dataclass
class Entry:
    """A version of a network: its library, and the network if it is loaded, else the reason why not."""

    name: str
    version: str
    path: Path
    served: Served | None = None
    reason: str = ""

    @property
    def state(self) -> str:
        """As the protocol's index of a repository says it."""
        return _UNAVAILABLE if self.served is None else _READY


class Repository:
    """Networks by name, and of each its versions; the greatest number is the one that requests get that name none."""

    def __init__(
        self, paths: Mapping[tuple[str, str], Path], policy: Policy, metrics: Metrics, samples: Samples
    ) -> None:
        self._policy, self._metrics, self._samples = policy, metrics, samples
        ordered = sorted(paths, key=lambda each: (each[0], int(each[1])))
        self._entries: dict[str, dict[str, Entry]] = {}
        for name, version in ordered:
            self._entries.setdefault(name, {})[version] = Entry(name, version, paths[name, version])
        self._changing = asyncio.Lock()

    def __iter__(self) -> Iterator[Entry]:
        return (entry for versions in self._entries.values() for entry in versions.values())

    def open(self) -> None:
        """Load all.

        Raises:
            LoadError, RunError: a library cannot be served, or a limit is of a size that none has.
        """
        for entry in self:
            entry.served = self._loaded(entry)
        known = {size for entry in self if entry.served is not None for size in entry.served.dynamic_sizes}
        if unknown := [name for name in self._policy.limits if name not in known]:
            there = ", ".join(sorted(known)) or "none"
            raise RunError(f"no network has the dynamic dimension {unknown[0]!r} that has a limit; there are: {there}")

    def close(self) -> None:
        """Wait for all runs, and free all sessions."""
        for entry in self:
            if entry.served is not None:
                entry.served.close()
                entry.served = None

    def cancel(self) -> None:
        """End all runs before their next kernels."""
        for entry in self:
            if entry.served is not None:
                entry.served.cancel()

    @property
    def running(self) -> int:
        """How many runs have begun and are not over."""
        return sum(entry.served.running for entry in self if entry.served is not None)

    @property
    def is_ready(self) -> bool:
        """Returns whether each network has a loaded version."""
        return all(any(entry.served for entry in versions.values()) for versions in self._entries.values())

    def versions(self, name: str) -> Sequence[str]:
        """Returns the loaded versions of a network."""
        return [entry.version for entry in self._named(name).values() if entry.served]

    def find(self, name: str, version: str = "") -> tuple[Entry, Served]:
        """Returns a loaded network.

        Raises:
            Refused: there is none, or it is not loaded.
        """
        entries = self._named(name)
        if version and version not in entries:
            raise Refused(
                FailureKind.NOT_FOUND, f'model "{name}" has no version "{version[:20]}", but {", ".join(entries)}'
            )
        chosen = [entries[version]] if version else list(reversed(entries.values()))
        for entry in chosen:
            if entry.served is not None:
                return entry, entry.served
        raise Refused(FailureKind.UNAVAILABLE, f'model "{name}" is not loaded: {chosen[0].reason}')

    async def load(self, name: str) -> None:
        """Load all versions of a network from their files again; until these are there, requests get the old ones.

        Raises:
            Refused: there is no such network, or a file cannot be loaded, and the old version stays.
        """
        entries = self._named(name).values()
        async with self._changing:
            for entry in entries:
                try:
                    new = await asyncio.to_thread(self._loaded, entry)
                except (LoadError, RunError) as error:
                    raise Refused(
                        FailureKind.INVALID, f'version {entry.version} of "{name}" was not loaded: {error}'
                    ) from error
                old, entry.served, entry.reason = entry.served, new, ""
                if old is not None:
                    await old.retire()

    async def unload(self, name: str) -> None:
        """Take a network out of service, when its runs are over.

        Raises:
            Refused: there is no such network.
        """
        entries = self._named(name).values()
        async with self._changing:
            for entry in entries:
                old, entry.served, entry.reason = entry.served, None, "unloaded"
                if old is not None:
                    await old.retire()

    def _named(self, name: str) -> dict[str, Entry]:
        if name not in self._entries:
            raise Refused(FailureKind.NOT_FOUND, f'there is no model "{name[:100]}", but {", ".join(self._entries)}')
        return self._entries[name]

    def _loaded(self, entry: Entry) -> Served:
        path = self._policy.library(entry.path)
        return Served(path, self._policy, self._metrics.of(entry.name, entry.version), self._samples)
