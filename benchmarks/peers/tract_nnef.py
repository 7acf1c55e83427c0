"""tract on the CPU with a model of its own dialect of NNEF, in the form that runs fastest. It runs on one thread."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tract

__all__ = ["PATIENCE", "TractNnef"]

PATIENCE = 10
"""Seconds that a run may take; a longer one ends the process by SIGALRM, for tract cannot be interrupted."""
_TRIALS = 3


class TractNnef:
    """As it is; with the symbols' sizes, which `recipe.json` next to the model has; and with operators of transformers
    found in it. All are optimized; the first run decides."""

    version: str = tract.version()

    def __init__(self, model: Path, threads: int) -> None:
        self._forms = list(_forms(model))
        self._chosen = False
        if not self._forms:
            raise RuntimeError(f"tract loads no form of {model}")

    def run(self, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        given = list(values.values())
        if not self._chosen:
            times = {index: seconds for index, form in enumerate(self._forms) if (seconds := _seconds(form, given))}
            if not times:
                raise RuntimeError("tract runs no form of the model")
            self._forms = [self._forms[min(times, key=times.__getitem__)]]
            self._chosen = True
        return [result.to_numpy() for result in self._forms[0].run(given)]


def _forms(model: Path) -> Iterator[Any]:
    reader = tract.nnef().with_tract_extra().with_tract_transformers().with_pulse().with_onnx()
    reader = reader.with_extended_identifier_syntax()
    symbols = json.loads(model.with_name("recipe.json").read_text())["symbols"]
    for bound in dict.fromkeys((False, bool(symbols))):
        for transform in (None, "transformers_detect_all"):
            try:
                form = reader.load(model)
                if bound:
                    form.transform(tract.SetSymbols(symbols))
                if transform is not None:
                    form.transform(transform)
                yield form.into_runnable()
            except tract.TractError:
                continue


def _seconds(form: Any, given: list[np.ndarray]) -> float:
    """The minimum of some runs; 0 if it does not run."""
    try:
        signal.alarm(PATIENCE)
        form.run(given)
        signal.alarm(0)
        times = []
        for _ in range(_TRIALS):
            start = time.process_time()
            form.run(given)
            times.append(time.process_time() - start)
    except tract.TractError:
        signal.alarm(0)
        return 0.0
    return max(min(times), 1e-9)
