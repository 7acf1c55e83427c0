"""Imports the module of a command only when the command runs, so that `nnefc --help` starts without TVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib import import_module

import click

__all__ = ["LazyCommand", "LazyCommands"]


@dataclass(frozen=True)
class LazyCommand:
    """A command that has not been imported.

    Attributes:
        module: its module in `nnefc.cli.commands`.
        name: of the command object in that module.
        about: its line in the list of commands.
    """

    module: str
    name: str
    about: str


class LazyCommands(MutableMapping[str, click.Command]):
    """The commands of a group by name; each is imported on first access."""

    def __init__(self, lazy: Mapping[str, LazyCommand]) -> None:
        self._lazy = lazy
        self._imported: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._imported and name in self._lazy:
            found = self._lazy[name]
            command: click.Command = getattr(import_module(f"nnefc.cli.commands.{found.module}"), found.name)
            command.short_help = found.about
            self._imported[name] = command
        return self._imported[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._imported[name] = command

    def __delitem__(self, name: str) -> None:
        raise TypeError("commands are not removed")

    def __iter__(self) -> Iterator[str]:
        return iter({**self._lazy, **self._imported})

    def __len__(self) -> int:
        return len({**self._lazy, **self._imported})

    def about(self) -> dict[str, str]:
        """Returns what each command does, in the order of the table."""
        return {name: each.about for name, each in self._lazy.items()}
