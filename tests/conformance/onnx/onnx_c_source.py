"""The tests of ONNX's own runner through C source: many networks in one shared library, which one call of GCC compiles.

    python tests/conformance/onnx/onnx_c_source.py                  all tests of single operators
    python tests/conformance/onnx/onnx_c_source.py --only test_add  some

Each test is prepared as nnefc's backend of ONNX does it: as it stands, then with the shapes of its data, then with the
values of inputs that may be shapes or axes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "helpers"))

from c_programs import COMPILERS, STRICT, CNetwork, compiled, written
from onnx.backend.test.runner import Runner
from onnx_outcome import Outcome
from onnx_suite import cases

from nnefc.driver.artifact import Artifact
from nnefc.integrations.onnx_backend import NnefcBackendRep
from nnefc.support.diagnostics import CompileError

__all__ = ["outcomes"]

_AT_ONCE = 100
"""Networks in one library."""


class _NotCompiled(Exception):
    """C source was written that is still to be compiled."""


@dataclass
class _Network(CNetwork):
    """A network with the methods of a library."""

    @property
    def inputs(self) -> Any:
        return self.artifact.inputs

    def run(self, inputs: Any, status: int = 0) -> dict[str, np.ndarray]:
        if self.library is None:
            raise _NotCompiled
        if self.artifact.description.state_bytes:
            self.reset()
        return super().run(inputs, status)


class _Prepared(NnefcBackendRep):
    """A model as C source."""

    def __init__(self, path: Path, folder: Path, numbers: Iterator[int]) -> None:
        self._sources, self._numbers = folder, numbers
        self.networks: list[_Network] = []
        super().__init__(path, None, "generic-c", 0, {})

    def _opened(self, artifact: Artifact) -> Any:
        made = written(artifact, self._sources / f"n{next(self._numbers)}.c")
        self.networks.append(_Network(made.artifact, made.path))
        return self.networks[-1]


@dataclass
class _Trial:
    """A test in progress."""

    case: Any
    prepared: _Prepared | None = None
    outcome: Outcome | None = None

    def run(self) -> None:
        """Runs all data of the test, unless something has to be compiled first."""
        assert self.prepared is not None
        try:
            for inputs, wanted in self.case.data_sets:
                made = self.prepared.run(list(map(_array, inputs)))
                _compare(list(made), list(map(_array, wanted)), self.case.rtol, self.case.atol)
        except _NotCompiled:
            return
        except CompileError as error:
            self.outcome = Outcome("refused", error.message)
        except AssertionError as error:
            self.outcome = Outcome("wrong", " ".join(str(error).split())[:200])
        except Exception as error:
            self.outcome = Outcome("broken", f"{type(error).__name__}: {error}")
        else:
            self.outcome = Outcome("pass")


def _array(value: Any) -> Any:
    """Returns a value of a test as the runner gives it to engines."""
    match value:
        case onnx.TensorProto():
            return onnx.numpy_helper.to_array(value)
        case onnx.SequenceProto():
            return onnx.numpy_helper.to_list(value)
        case onnx.OptionalProto():
            return onnx.numpy_helper.to_optional(value)
    return value


def _compare(made: Any, wanted: Any, rtol: float, atol: float) -> None:
    """Compares values as the runner does, which takes no lists of scalars."""
    if isinstance(wanted, list | tuple):
        assert len(made) == len(wanted)
        for one, other in zip(made, wanted, strict=True):
            _compare(one, other, rtol, atol)
        return
    Runner.assert_similar_outputs([wanted], [made], rtol, atol)


def outcomes(
    found: Sequence[Any], folder: Path, on_part: Callable[[Sequence[_Trial]], object] = bool
) -> dict[str, Outcome]:
    """What comes of tests, by their names; `on_part` is called with those of each library."""
    made: dict[str, Outcome] = {}
    numbers = count()
    for first in range(0, len(found), _AT_ONCE):
        part, inner = found[first : first + _AT_ONCE], folder / f"part{first}"
        inner.mkdir()
        trials = [_begun(case, inner, numbers) for case in part]
        for _ in range(2):  # with data a second network may be needed
            new = [n for t in trials if t.prepared is not None for n in t.prepared.networks if n.library is None]
            _compile(new)
            for trial in trials:
                if trial.outcome is None:
                    trial.run()
        made |= {t.case.name: t.outcome or Outcome("broken", "not compiled") for t in trials}
        on_part(trials)
    return made


def _compile(networks: Sequence[_Network]) -> None:
    """Compiles networks to one library; where that fails, each alone."""
    try:
        if networks:
            compiled(networks, COMPILERS[0], *STRICT[:1], "-O0")
    except AssertionError as error:
        if len(networks) == 1:
            print("does not compile:", networks[0].path.name, error)
            return
        half = len(networks) // 2
        _compile(networks[:half])
        _compile(networks[half:])


def _begun(case: Any, folder: Path, numbers: Iterator[int]) -> _Trial:
    """Compiles the model of a test to C source, with its data if need be."""
    trial, path = _Trial(case), folder / f"{case.name}.onnx"
    onnx.save(case.model, path)
    try:
        trial.prepared = _Prepared(path, folder, numbers)
    except CompileError as error:
        trial.outcome = Outcome("refused", error.message)
    except Exception as error:
        trial.outcome = Outcome("broken", f"{type(error).__name__}: {error}")
    else:
        trial.run()
    return trial


def _printed(trials: Sequence[_Trial]) -> None:
    for trial in trials:
        outcome = trial.outcome or Outcome("broken", "not compiled")
        print(outcome.status, trial.case.name, outcome.reason, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="TEXT", default="", help="tests with this in their names")
    parser.add_argument("--part", metavar="N/M", default="1/1", help="every M-th test, from the N-th on")
    options = parser.parse_args()
    first, step = map(int, options.part.split("/"))
    found = [case for case in cases("node") if options.only in case.name][first - 1 :: step]
    with tempfile.TemporaryDirectory(prefix="nnefc-c-") as folder:
        made = outcomes(found, Path(folder), _printed)
    print(Counter(outcome.status for outcome in made.values()))


if __name__ == "__main__":
    main()
