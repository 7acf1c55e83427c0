"""Counts of what fuzzers tried: numbers by name, at any depth, that are added up in a file.

python tests/fuzz/record.py FILE …      moves the counts of other files to the record
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

__all__ = ["RECORD", "Record"]

RECORD = Path(__file__).with_name("record.json")
"""The counts of all runs whose findings were fixed."""
_NOT_ADDED = ("states",)
"""What each run looks at again: the last one says how much there is."""


class Record(dict[str, Any]):
    """Numbers, and such records, by name."""

    @classmethod
    def of(cls, path: Path) -> Record:
        """What a file says, nothing if there is none."""
        return cls(json.loads(path.read_text())) if path.exists() else cls()

    def __missing__(self, _name: str) -> Record:
        return Record()

    def __add__(self, other: Mapping[str, Any]) -> Record:
        return Record({**_sum(self, other), **{name: other[name] for name in _NOT_ADDED if name in other}})

    def total(self, *names: str) -> int:
        """The sum of all numbers under a name, at any depth in those of the names before it."""
        *path, last = names
        part: Any = self
        for name in path:
            part = part.get(name, {})
        return _total(part, last)

    def add_to(self, path: Path) -> None:
        """Add the numbers to those of a file, which is there whole at any time, even while others add to it."""
        with _alone(path):
            (Record.of(path) + self).write(path)

    @classmethod
    def move(cls, source: Path, path: Path) -> None:
        """Add the numbers of a file to those of another, and remove it, while others may add to both.

        It is renamed first: whatever ends this, no number is added twice.

        Raises:
            click.UsageError: both are the same file.
        """
        if source.resolve() == path.resolve():
            raise click.UsageError(f"{source} is the record itself: say files that fuzzers wrote with --record")
        taken = source.with_name(f".{source.name}.{os.getpid()}.moved")
        with _alone(source):
            source.replace(taken)
        cls.of(taken).add_to(path)
        taken.unlink()

    def write(self, path: Path) -> None:
        """Write a file, whole or not at all."""
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        unfinished.write_text(json.dumps(self, indent=1, sort_keys=True) + "\n")
        unfinished.replace(path)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """No other process changes a file in this context; a lock file next to it stays."""
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sum(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(one)
    for name, value in other.items():
        if isinstance(value, Mapping):
            made[name] = _sum(made.get(name, {}), value)
        else:
            made[name] = made.get(name, 0) + value
    return made


def _total(part: Mapping[str, Any], name: str) -> int:
    return sum(
        _total(value, name) if isinstance(value, Mapping) else value * (key == name) for key, value in part.items()
    )


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
def main(files: tuple[Path, ...]) -> None:
    """Move the counts of FILES, which fuzzers wrote elsewhere, to the record; who still adds to one begins it again."""
    for path in files:
        Record.move(path, RECORD)


if __name__ == "__main__":
    main()
