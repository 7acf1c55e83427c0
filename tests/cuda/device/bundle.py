"""Tests for a device that has no compiler: what they compile, and what they run, in a folder that goes to the device.

    NNEFC_BUNDLE=folder NNEFC_BUNDLE_ARCHITECTURE=90 python -m pytest -p all_on_device tests/frontends/pnnx
    python replay.py folder                      # on the device, next to `compiler/loader`: Python and NumPy are enough

The tests run on the processor as they do without a GPU. Whatever they compile meanwhile is compiled for the GPU, too,
and whatever they run is kept: a folder for each library has `network.so`, and `calls.pickle` with inputs and results.
"""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import numpy as np

from nnefc.driver import compile as compiler
from nnefc.driver.artifact import Artifact
from nnefc.ir.network import Network
from nnefc.loader.session import Session
from nnefc.loader.tensors import RunError
from nnefc.targets.machine.cpu.target import Target
from nnefc.targets.machine.cuda.target import CudaTarget, parse_cuda_target

__all__ = ["FOLDER", "architecture", "recorded"]

FOLDER = os.environ.get("NNEFC_BUNDLE")
"""Where what is compiled goes; None for tests that run on a device."""

_MAX_BYTES = 1 << 22  # of the inputs and results of a call that is kept


def architecture() -> int:
    """The compute capability of the device that the folder is for, 90 for 9.0."""
    return int(os.environ["NNEFC_BUNDLE_ARCHITECTURE"])


@contextmanager
def recorded(precision: str) -> Iterator[list[Artifact]]:
    """Compile for processors, and what they compile for the GPU too; yields the latter, in order."""
    assert FOLDER is not None
    target = parse_cuda_target(f"cuda -arch=sm_{architecture()}").with_precision(precision)
    made: list[Artifact] = []
    folders: dict[int, Path] = {}
    kept: list[object] = []  # so that no other object gets the number of one of these
    build, load, run, exact, call = compiler.build, Artifact.load, Session.run, Session.run_exact, Session.call

    def build_twice(network: Network, cpu: Target, *tail: Any) -> Artifact:
        artifact = build(network, cpu, *tail)
        if not isinstance(cpu, CudaTarget):
            folder = _compiled(network, target, precision, made)
            folders[id(artifact.code)] = folder
            kept.append(artifact.code)
        return artifact

    def loaded(artifact: Artifact, **options: Any) -> Any:
        model = load(artifact, **options)
        model._session._calls = _Calls(folders[id(artifact.code)])
        return model

    def run_and_keep(session: Any, values: Any, out: Any, *tail: Any) -> Any:
        calls = getattr(session, "_calls", None) if out is None else None  # a replay passes no arrays for outputs
        given = [np.array(np.asarray(value)) for value in values] if calls is not None else []
        try:
            results = run(session, values, out, *tail)
        except RunError as error:
            if calls is not None:
                calls.add("fail", given, str(error))
            raise
        if calls is not None:
            calls.add("run", given, [np.array(result) for result in results])
        return results

    def run_exactly(session: Any, values: Any, out: Any = None) -> Any:
        return None if hasattr(session, "_calls") else exact(session, values, out)  # None: the caller uses `run`

    def call_and_keep(session: Any, name: str, *arguments: Any) -> None:
        calls = getattr(session, "_calls", None)
        if calls is not None and name == "nnefc_reset":
            calls.add("reset", [], None)
        elif calls is not None:
            calls.stop()
        call(session, name, *arguments)

    with (
        mock.patch.object(compiler, "build", build_twice),
        mock.patch.object(Artifact, "load", loaded),
        mock.patch.object(Session, "run", run_and_keep),
        mock.patch.object(Session, "run_exact", run_exactly),
        mock.patch.object(Session, "call", call_and_keep),
    ):
        yield made


def _compiled(network: Network, target: CudaTarget, precision: str, made: list[Artifact]) -> Path:
    """The folder of a network's library for the GPU."""
    folder = Path(str(FOLDER)) / uuid4().hex[:12]
    folder.mkdir(parents=True)
    (folder / "test").write_text(f"{precision}\n{os.environ.get('PYTEST_CURRENT_TEST', '')}\n")
    try:
        artifact = compiler.compile_network(network, target)
        artifact.export(folder / "network.so")
        made.append(artifact)
    except Exception:  # what the GPU does not take is no fault of the test
        (folder / "refused").write_text(traceback.format_exc())
    return folder


class _Calls:
    """The calls of a session, in a file that grows with them."""

    def __init__(self, folder: Path) -> None:
        self._file: Path | None = folder / f"calls-{uuid4().hex[:6]}.pickle"

    def add(self, kind: str, given: list[np.ndarray], results: Any) -> None:
        arrays = [*given, *(results if isinstance(results, list) else [])]
        if sum(array.nbytes for array in arrays) > _MAX_BYTES:
            self.stop()
        if self._file is not None:
            with self._file.open("ab") as file:
                pickle.dump((kind, given, results), file)

    def stop(self) -> None:
        """Keep no more: later results may follow from calls that are not kept."""
        self._file = None
