"""An engine with a network in several forms, files or settings: it runs the one that takes the minimum time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from peers import Peer

__all__ = ["FastestForm"]

_TRIALS = 3
_SECONDS = 0.05
"""Of the trials of a form, at least."""


class FastestForm:
    """All forms are loaded; the first run decides by the shortest of some runs of each, and the others are dropped."""

    def __init__(self, forms: Sequence[Callable[[], Peer]]) -> None:
        self._forms = [form() for form in forms]
        self._chosen = len(forms) == 1
        self.version = self._forms[0].version

    def run(self, values: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]:
        if not self._chosen:
            self._forms = [min(self._forms, key=lambda form: _seconds(form, values))]
            self._chosen = True
        return self._forms[0].run(values)


def _seconds(form: Peer, values: Mapping[str, np.ndarray]) -> float:
    """The shortest of some runs, after one that is not included."""
    form.run(values)
    times: list[float] = []
    while len(times) < _TRIALS or sum(times) < _SECONDS:
        start = time.perf_counter()
        form.run(values)
        times.append(time.perf_counter() - start)
    return min(times)
