"""Runs networks in the thread of the event loop where runs take less time than it takes to wake another thread."""

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
"""Seconds that a run may take to be made so: elsewhere of processor time."""

_SLOW_RUNS = 3
"""So many runs one after the other that take longer are the last."""

_LATE = 0.25
"""Seconds after which a run is ended: time may depend on values, which a client chooses. The network's runs are not
made so any more."""

_MAX_SHAPES = 64


class QuickRuns:
    """The runs of one session that nothing else uses, all made by one thread.

    A run is expected to be quick if the last ones with inputs of the same shapes and for the same outputs were; with
    shapes that there were not before, if one with as many elements was. A thread looks whether a run takes too long,
    and ends it.

    Args:
        make: makes the session, when the first run was quick; None: no run is made so.
    """

    def __init__(self, make: Callable[[], Model] | None) -> None:
        self._make = make
        self._model: Model | None = None
        self._shapes: dict[object, int] = {}  # by shapes and outputs, how many more runs may be slow
        self._elements = 0  # the most of a run that was quick
        self._began: float | None = None

    @property
    def are_made(self) -> bool:
        """Whether some runs are made so."""
        return self._model is not None

    def expects(self, inputs: Mapping[str, Array], outputs: Outputs = None) -> bool:
        """Whether a run with these inputs, for some outputs or all, is expected to be quick."""
        if self._model is None:
            return False
        left = self._shapes.get(_key(inputs, outputs))
        return _elements_of(inputs) <= self._elements if left is None else left > 0

    def took(self, inputs: Mapping[str, Array], seconds: float, outputs: Outputs = None) -> None:
        """Notes the processor time of a run with inputs of such shapes, for these outputs, elsewhere."""
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
        """The outputs by name; all or these.

        Raises:
            RunError: as the session's runs.
            RunCancelled: the run took far too long.
        """
        assert self._model is not None
        self._began = begin = time.monotonic()  # which needs no system call, as the thread's own time does
        try:
            results = self._model.run(inputs, outputs=outputs)
        except RunCancelled:
            if time.monotonic() - begin > _LATE / 2:  # else it was the run before that was late
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
        """End a run that takes too long. Returns whether more may follow."""
        model, began = self._model, self._began
        if model is not None and began is not None and time.monotonic() - began > _LATE:
            model.cancel()
        return model is not None

    def close(self) -> None:
        """Make no more runs."""
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
