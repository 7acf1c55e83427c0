"""The tests of ONNX's own runner, `onnx.backend.test.BackendTest`, by name; and one of them run on an engine."""

from __future__ import annotations

import re
import traceback
import unittest
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test import BackendTest
from onnx.backend.test.loader import load_model_tests
from onnx_outcome import Outcome

__all__ = ["KINDS", "Engine", "Suite", "Test", "cases", "collect", "quietly"]

KINDS = {
    "node": "Node",
    "simple": "Simple",
    "pytorch-converted": "PyTorchConverted",
    "pytorch-operator": "PyTorchOperator",
    "real": "Real",
}
"""Kinds of tests, and what the runner calls them: single operators; models made by hand, and exported by PyTorch, with
their data; networks of the model zoo, whose large weights are left out, so that the package can hold them."""

_FOLDERS = re.compile(r"(?<!\S)/(?:[^/\s]+/)+(?=[^/\s])")


@dataclass(frozen=True, eq=False)
class Test:
    """A test.

    Attributes:
        name: as the runner calls it, with the kind before those that are not `node`.
    """

    __test__ = False  # pytest asks

    kind: str
    method: str

    @property
    def name(self) -> str:
        return self.method if self.kind == "node" else f"{self.kind}/{self.method}"


def collect(kinds: Sequence[str] = tuple(KINDS)) -> list[Test]:
    """All tests of some kinds that the installed package onnx has, in its order."""
    return [Test(kind, case.name) for kind in kinds for case in cases(kind)]


def cases(kind: str) -> list[Any]:
    """The tests of a kind, as the runner loads them."""
    with quietly():
        return sorted(load_model_tests(kind=kind), key=lambda case: kind != "node" and case.name)


@contextmanager
def quietly() -> Iterator[None]:
    """Tests are made by computing, some of them with zeros; what shows their sources is for onnx's own pages."""
    from onnx.backend.test.case import base

    base.process_snippet = lambda *_: None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class Engine:
    """An engine behind ONNX's interface.

    Attributes:
        backend: what the runner drives.
        passed: what a test came to that it passed, by what was prepared for it.
        refuses: whether an error is how the engine refuses a model; any other is a failure of its own.
    """

    backend: type[Backend]
    passed: Callable[[BackendRep], Outcome] = lambda _prepared: Outcome("pass")
    refuses: Callable[[Exception], bool] = lambda _error: True


class Suite:
    """All tests on one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._watched: Any = _watched(engine.backend)
        with quietly():
            self._classes = BackendTest(self._watched, __name__).test_cases

    def run(self, test: Test) -> Outcome:
        """What comes of a test: ONNX's runner runs it and judges it."""
        method = self._classes[f"OnnxBackend{KINDS[test.kind]}ModelTest"](f"{test.method}_cpu")
        self._watched.prepared = None
        try:
            with redirect_stdout(StringIO()), np.errstate(all="ignore"):
                method.debug()
        except unittest.SkipTest as error:
            return Outcome("refused", str(error))
        except _FailedError as failure:
            return self._failed(failure.error)
        except Exception as error:  # the runner's judgement, or that it finds nothing to judge
            return Outcome("wrong", _difference(error))
        return self._engine.passed(self._watched.prepared)

    def _failed(self, error: Exception) -> Outcome:
        if not self._engine.refuses(error):
            position = traceback.extract_tb(error.__traceback__)[-1]
            return Outcome("broken", _line(f"{type(error).__name__} in {position.name}: {error}"))
        return Outcome("refused", _line(getattr(error, "message", "") or str(error) or type(error).__name__))


class _FailedError(Exception):
    """What an engine raised itself, so that it is not taken for the runner's judgement."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _watched(backend: type[Backend]) -> type[Backend]:
    """The engine, whose own failures can be distinguished from differences of results."""

    class Prepared(BackendRep):  # type: ignore[misc]
        def __init__(self, inner: BackendRep) -> None:
            self._inner = inner

        def run(self, inputs: Any, **options: Any) -> Any:
            try:
                return self._inner.run(inputs, **options)
            except Exception as error:
                raise _FailedError(error) from error

    class Watched(backend):  # type: ignore[misc, valid-type]
        prepared: BackendRep | None = None

        @classmethod
        def is_compatible(cls, _model: onnx.ModelProto, _device: str = "CPU", **_options: Any) -> bool:
            return True  # why not is reported when it is prepared

        @classmethod
        def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> BackendRep:
            # Libraries that are closed in another order than they were opened in leave a few bytes behind, see
            # "Many libraries" in docs/deployment.md.
            cls.prepared = None
            try:
                cls.prepared = super().prepare(model, device, **options)
            except Exception as error:
                raise _FailedError(error) from error
            return Prepared(cls.prepared)

    return Watched


def _difference(error: Exception) -> str:
    """What the runner found, in one line: of tolerances and shapes, not of all numbers."""
    lines = [line.strip() for line in str(error).splitlines()]
    reported = [line for line in lines if line.startswith(("Mismatched", "Max absolute", "Output", "(shapes"))]
    if not reported:
        reported = [line for line in lines if line][:2]
    return _line("; ".join(reported) or type(error).__name__)


def _line(text: str) -> str:
    """The first line of a text, without the folders of files in it, which are other ones on each machine."""
    return _FOLDERS.sub("", text.splitlines()[0])[:200] if text else ""
