"""What each test came to before: the floor, which only rises.

`floor.txt` names every test that does not simply pass, with its status. The runner replaces an entry by a better one; a
worse one is an error, and who means it edits the file by hand, where a reviewer sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import onnx
from onnx_outcome import Outcome

__all__ = ["FLOOR", "Floor"]

FLOOR = Path(__file__).with_name("floor.txt")
_ORDER = ("pass", "fixed", "known", "refused", "wrong", "broken")


class Floor:
    """The statuses of all tests of one version of the package onnx."""

    def __init__(self, path: Path = FLOOR) -> None:
        self._path = path
        version, *lines = path.read_text().splitlines() if path.exists() else [""]
        self._version = version.removeprefix("onnx ")
        self._statuses = dict(reversed(line.split()) for line in lines)

    def status(self, name: str) -> str:
        """What the test came to; of tests that are new in the installed package, the worst."""
        return self._statuses.get(name, "pass" if self._version == onnx.__version__ else _ORDER[-1])

    def fallen(self, outcomes: Mapping[str, Outcome]) -> dict[str, str]:
        """Tests that came to less than before, and what they came to."""
        return {
            name: f"{outcome.status} instead of {self.status(name)}: {outcome.reason}"
            for name, outcome in outcomes.items()
            if _ORDER.index(outcome.status) > _ORDER.index(self.status(name))
        }

    def raise_to(self, outcomes: Mapping[str, Outcome], names: Iterable[str]) -> None:
        """Write what all tests, by name, came to; none may have fallen."""
        statuses = {name: outcomes[name].status for name in names}
        lines = [f"{status} {name}" for name, status in sorted(statuses.items()) if status != "pass"]
        self._path.write_text("\n".join([f"onnx {onnx.__version__}", *lines, ""]))
