"""Runs a network in the thread of the event loop if its runs take less time than waking another thread."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TypeAlias

from nnefc.loader import Model, RunCancelled
from nnefc.serving.values import Array

__all__ = ["Outputs", "QuickRuns"]

Outputs: TypeAlias = "tuple[str, ...] | None"
"""The names of the outputs that a run computes; None: all."""

_QUICK = 2e-4
"""Maximum seconds of a quick run: processor time in another thread, elapsed time in the event loop's."""

_SLOW_RUNS = 3
"""After so many slow runs in succession, inputs of these shapes are no longer expected to be quick."""

_LATE = 0.25
"""Seconds after which a run in the event loop is cancelled, and all later runs of the network go to other threads: the
time of a run may depend on values, which clients choose."""

_MAX_SHAPES = 64


class QuickRuns:
    """A session for quick runs, which the thread of the event loop alone uses.

    A run is expected to be quick if one of the last runs with the same input shapes and outputs was. For new shapes it
    is expected to be quick if a run with as many input elements or more was. A watchdog thread cancels a run that takes
    too long.

    Args:
        make: makes the session, after the first quick run; None: there are no quick runs.
    """

    def __init__(self, make: Callable[[], Model] | None) -> None:
        self._make = make
        self._model: Model | None = None
        self._shapes: dict[object, int] = {}  # by shapes and outputs, how many more runs may be slow
        self._elements = 0  # the maximum of input elements of a quick run
        self._began: float | None = None

    @property
    def are_made(self) -> bool:
        """Whether there is a session for quick runs."""
        return self._model is not None

    def expects(self, inputs: Mapping[str, Array], outputs: Outputs = None) -> bool:
        """Whether a run with these inputs and outputs is expected to be quick."""
        if self._model is None:
            return False
        left = self._shapes.get(_key(inputs, outputs))
        return _elements_of(inputs) <= self._elements if left is None else left > 0

    def took(self, inputs: Mapping[str, Array], seconds: float, outputs: Outputs = None) -> None:
        """Record the processor time, in seconds, of a run with such inputs and outputs in another thread."""
        if self._make is None or seconds > _QUICK:
            return
        if self._model is None:
            self._model = self._make()
            threading.Thread(target=_watch, args=(weakref.ref(self),), name="nnefc quick runs", daemon=True).start()
        if len(self._shapes) >= _MAX_SHAPES:
            self._shapes.clear()
        self._shapes[_key(inputs, outputs)] = _SLOW_RUNS
        self._elements = max(self._elements, _elements_of(inputs))

    def run(self, inputs: Mapping[str, Array], outputs: Outputs = None) -> dict[str, Array]:
        """Run, and return the outputs by name.

        Raises:
            RunError: as the session's runs.
            RunCancelled: the watchdog cancelled the run.
        """
        assert self._model is not None
        self._began = begin = time.monotonic()  # unlike the thread's processor time, it needs no system call
        try:
            results = self._model.run(inputs, outputs=outputs)
        except RunCancelled:
            if time.monotonic() - begin > _LATE / 2:  # else the watchdog meant the run before this one
                self.close()
            raise
        finally:
            self._began = None
        key = _key(inputs, outputs)
        self._shapes[key] = _SLOW_RUNS if time.monotonic() - begin < _QUICK else self._shapes.get(key, 1) - 1
        if len(self._shapes) > _MAX_SHAPES:
            self._shapes.clear()
        return results

    def look(self) -> bool:
        """Cancel the current run if it takes too long; return whether there may be further runs."""
        model, began = self._model, self._began
        if model is not None and began is not None and time.monotonic() - began > _LATE:
            model.cancel()
        return model is not None

    def close(self) -> None:
        """Close the session; there are no further quick runs."""
        model, self._model, self._make = self._model, None, None
        if model is not None:
            model.close()


def _watch(runs: weakref.ref[QuickRuns]) -> None:
    while True:
        time.sleep(_LATE / 2)
        known = runs()
        if known is None or not known.look():
            return
        del known


def _elements_of(inputs: Mapping[str, Array]) -> int:
    return sum(array.size for array in inputs.values())


def _key(inputs: Mapping[str, Array], outputs: Outputs) -> object:
    return outputs, *[array.shape for array in inputs.values()]
