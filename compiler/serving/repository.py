"""Model repository: loads and unloads the networks of a server, and finds them by name and version."""

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
    """A version of a network.

    Attributes:
        name, version: of the network; the version is a decimal number.
        path: of its library, or of the model that is compiled.
        served: the loaded network; None while it is not loaded.
        reason: why it is not loaded; empty if it is.
    """

    name: str
    version: str
    path: Path
    served: Served | None = None
    reason: str = ""

    @property
    def state(self) -> str:
        """The state in the protocol's index of the repository."""
        return _UNAVAILABLE if self.served is None else _READY


class Repository:
    """The versions of each network, by name. A request without a version gets the loaded one of the greatest number."""

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
        """Load all networks.

        Raises:
            LoadError, RunError: a library cannot be served, or a limit names a dynamic dimension that no network has.
        """
        for entry in self:
            entry.served = self._loaded(entry)
        known = {size for entry in self if entry.served is not None for size in entry.served.dynamic_sizes}
        if unknown := [name for name in self._policy.limits if name not in known]:
            there = ", ".join(sorted(known)) or "none"
            raise RunError(f"no network has the dynamic dimension {unknown[0]!r} that has a limit; there are: {there}")

    def close(self) -> None:
        """Wait for all runs to end, and free all sessions."""
        for entry in self:
            if entry.served is not None:
                entry.served.close()
                entry.served = None

    def cancel(self) -> None:
        """Cancel all runs; each ends before its next kernel, where its library can."""
        for entry in self:
            if entry.served is not None:
                entry.served.cancel()

    @property
    def running(self) -> int:
        """The number of runs that have begun and not ended."""
        return sum(entry.served.running for entry in self if entry.served is not None)

    @property
    def is_ready(self) -> bool:
        """Returns whether each network has a loaded version."""
        return all(any(entry.served for entry in versions.values()) for versions in self._entries.values())

    def versions(self, name: str) -> Sequence[str]:
        """Returns the loaded versions of a network."""
        return [entry.version for entry in self._named(name).values() if entry.served]

    def find(self, name: str, version: str = "") -> tuple[Entry, Served]:
        """Return a loaded network.

        Args:
            name: of the network.
            version: the wanted one; empty: the loaded version with the greatest number.

        Raises:
            Refused: there is no such network or version, or it is not loaded.
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
        """Load all versions of a network from their files again; requests get the old ones until that is done.

        Raises:
            Refused: there is no such network, or a file cannot be loaded; the old version stays then.
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
        """Refuse further requests for a network, wait for its runs, and free its sessions.

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
