"""Measure one network: compile it, then let the engines take turns in one run."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
from exact import errors, kept_outputs
from models.networks import input_of, write_twins
from peak import build_peak, bytes_per_second, multiply_adds_per_second
from peers import STRICT, installed
from worker import EngineError, Worker

__all__ = ["Latency", "Measurement", "Plan", "compare", "compile_library", "measure"]

REFERENCE = "onnxruntime"
NEEDED = ("nnefc", REFERENCE)  # of other engines, those are measured that load and run the network
PATIENCE = 300.0  # seconds for one compilation


@dataclass(frozen=True)
class Plan:
    """How to measure. In each of `repeats`, every engine in turn runs for `seconds`, at least `minimum` times."""

    threads: tuple[int, ...] = (1, 2)
    repeats: int = 8
    seconds: float = 0.4
    minimum: int = 3
    processor: bool = False  # time of processors on all threads in place of the clock's
    pause: float = 0.05  # between turns, so that an engine's spinning threads have gone to sleep
    maximum: float | None = None  # seconds after which a turn has no further run, however few it had


@dataclass(frozen=True)
class Latency:
    """Milliseconds a run, over all iterations."""

    minimum: float
    median: float
    runs: int


@dataclass(frozen=True)
class Measurement:
    """What was found for one network.

    Attributes:
        agreement: of each engine's output with onnxruntime's where no product of bytes saturates: largest difference
            over largest value, the worst of the numbers of threads.
        compile_seconds: of `nnefc.compile` and `export`, without imports.
        code_bytes: size of the library without its constants.
        latency: by number of threads, then engine.
        multiply_adds: of convolutions and matrix products, for one run, by their definition.
        parameter_bytes: of the trained values, as the model has them; each is read at least once a run.
        peak: multiply-adds a second that the machine did between these runs, by number of threads.
        bandwidth: bytes a second that it read of an array as large as the parameters, likewise.
        error: as `agreement`, but of each engine's difference from what float64 gives.
    """

    network: str
    agreement: dict[str, float]
    compile_seconds: float
    code_bytes: int
    constant_bytes: int
    workspace_bytes: int
    versions: dict[str, str]
    latency: dict[int, dict[str, Latency]] = field(default_factory=dict)
    multiply_adds: int = 0
    parameter_bytes: int = 0
    peak: dict[int, float] = field(default_factory=dict)
    bandwidth: dict[int, float] = field(default_factory=dict)
    error: dict[str, float] = field(default_factory=dict)

    def ratio(self, threads: int, of: Callable[[Latency], float], own: str = "nnefc") -> float | None:
        """The fastest peer's time over that of nnefc, or of its variant `own`: above one, that is faster.

        None without a peer, or where the variant was not measured.
        """
        times = {name: of(latency) for name, latency in self.latency[threads].items()}
        peers = [time for name, time in times.items() if name not in ("nnefc", STRICT)]
        return min(peers) / times[own] if peers and own in times else None

    def strictly(self, threads: int) -> float | None:
        """How many times as long a median run takes with `--strict`; None where that was not measured."""
        found = self.latency[threads]
        return found[STRICT].median / found["nnefc"].median if STRICT in found else None

    def share(self, threads: int, engine: str) -> float | None:
        """Multiply-adds a second of an engine's median run over the peak. Algorithms that need fewer can exceed one."""
        if threads not in self.peak or engine not in self.latency[threads]:
            return None
        return self.multiply_adds / (1e-3 * self.latency[threads][engine].median) / self.peak[threads]

    def roofline(self, threads: int, engine: str) -> float | None:
        """The time that multiply-adds or parameters need at least, whichever is longer, over an engine's median run."""
        if threads not in self.bandwidth or engine not in self.latency[threads]:
            return None
        bound = max(self.multiply_adds / self.peak[threads], self.parameter_bytes / self.bandwidth[threads])
        return bound / (1e-3 * self.latency[threads][engine].median)


def measure(network: str, folder: Path, plan: Plan, *, divide: int = 1) -> Measurement:
    """Compile and run `network`; models and libraries are kept in `folder`."""
    twins = write_twins(folder, network, divide=divide)
    library = twins.onnx.with_suffix(".so")
    facts = compile_library(twins.nnef, library)
    values = input_of(onnx.load(twins.onnx, load_external_data=False))
    strict = library.with_suffix(".strict.so")
    compile_library(twins.nnef, strict, {"strict": True})
    exact = kept_outputs(twins.onnx, values)
    return compare(network, library, twins.onnx, values, facts, plan, {STRICT: strict}, exact)


def compare(
    network: str,
    library: Path,
    model: Path,
    values: Mapping[str, np.ndarray],
    facts: Mapping[str, float],
    plan: Plan,
    variants: Mapping[str, Path] = MappingProxyType({}),
    exact: Sequence[np.ndarray] = (),
    engines: Sequence[str] | None = None,
) -> Measurement:
    """Run a compiled network and, in every other engine, its `model`.

    Args:
        facts: of :func:`compile_library`.
        variants: other libraries of the network, by names of engines.
        exact: the outputs in float64, if they are known.
        engines: those to measure; all that are installed if None.
    """
    folder, value = library.parent, library.with_suffix(".npz")
    np.savez(value, **values)
    models = {name: library if name == "nnefc" else model for name in engines or installed()} | dict(variants)
    kernel = build_peak(folder)
    wanted = reference_answers(models[REFERENCE], values)

    agreement: dict[str, float] = {}
    error: dict[str, float] = {}
    latency = {}
    peak = {}
    bandwidth = {}
    versions: dict[str, str] = {}
    for threads in plan.threads:
        workers = start(models, value, threads)
        try:
            versions |= {worker.peer: worker.version for worker in workers if worker.peer not in variants}
            answers = answers_of(workers, folder)
            for name, found in answers.items():
                agreement[name] = max(agreement.get(name, 0.0), difference(found, wanted))
                if exact:
                    error[name] = max(error.get(name, 0.0), difference(found, exact))
            latency[threads] = take_turns(workers, plan)
            peak[threads] = multiply_adds_per_second(kernel, threads)
            bandwidth[threads] = bytes_per_second(kernel, int(facts["parameter_bytes"]), threads)
        finally:
            for worker in workers:
                worker.close()
    return Measurement(
        network=network,
        agreement=agreement,
        compile_seconds=facts["seconds"],
        code_bytes=library.stat().st_size - int(facts["constant_bytes"]),
        constant_bytes=int(facts["constant_bytes"]),
        workspace_bytes=int(facts["workspace_bytes"]),
        versions=versions,
        latency=latency,
        multiply_adds=int(facts["multiply_adds"]),
        parameter_bytes=int(facts["parameter_bytes"]),
        peak=peak,
        bandwidth=bandwidth,
        error=error,
    )


def start(models: Mapping[str, Path], value: Path, threads: int) -> list[Worker]:
    """A worker for each engine that loads and runs the network."""
    workers = []
    for name, model in models.items():
        try:
            workers.append(Worker(name, model, value, threads))
        except EngineError as error:
            if name in NEEDED:
                for worker in workers:
                    worker.close()
                raise
            print(f"{model.stem} without {name}: {error}", file=sys.stderr)
    return workers


def compile_library(
    model: Path, library: Path, options: Mapping[str, object] = MappingProxyType({})
) -> dict[str, float]:
    """Compile in a process of its own; seconds, constant_bytes, workspace_bytes, multiply_adds and parameter_bytes.

    `options` are `nnefc.compile`'s, as JSON has them.

    Raises:
        EngineError: nnefc refuses the model.
    """
    program = Path(__file__).with_name("compile_one.py")
    done = subprocess.run(
        [sys.executable, str(program), str(model), str(library), json.dumps(dict(options))],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    facts = json.loads(done.stdout.splitlines()[-1])
    if "error" in facts:
        reason = str(facts["error"]).partition("\n")[0].replace("|", "\\|")
        raise EngineError(f"nnefc does not compile it: {reason}")
    found: dict[str, float] = facts
    return found


def answers_of(workers: Sequence[Worker], folder: Path) -> dict[str, list[np.ndarray]]:
    """Each engine's outputs."""
    outputs = {}
    for worker in workers:
        file = folder / f"output-{worker.peer}.npz"
        worker.answer(file)
        with np.load(file) as arrays:
            outputs[worker.peer] = list(arrays.values())
        file.unlink()
    return outputs


def reference_answers(model: Path, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Returns what onnxruntime computes on one thread if no product of bytes saturates."""
    from peers.onnxruntime_session import OnnxruntimeSession

    return OnnxruntimeSession(model, 1, exact=True).run(values)


def difference(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """The largest difference, over the largest value, of all outputs."""
    pairs = list(zip(found, wanted, strict=True))
    if any(array.size != other.size for array, other in pairs):  # data-dependent sizes
        return math.inf
    return max(errors(array, other)[0] for array, other in pairs)


def difference_spelled(value: float) -> str:
    """Returns a difference as pages show it; that of outputs with other numbers of elements is infinite."""
    return "other sizes" if math.isinf(value) else f"{value:.1e}"


def take_turns(workers: Sequence[Worker], plan: Plan) -> dict[str, Latency]:
    """Warm every engine up, then measure them in turns, so that whatever slows the machine down slows all of them."""
    for worker in workers:
        worker.time(plan.seconds, plan.minimum, plan.processor, plan.maximum)
    times: dict[str, list[float]] = {worker.peer: [] for worker in workers}
    for turn in range(plan.repeats):
        for worker in workers[:: 1 if turn % 2 == 0 else -1]:
            time.sleep(plan.pause)
            times[worker.peer] += worker.time(plan.seconds, plan.minimum, plan.processor, plan.maximum)
    return {
        name: Latency(1e3 * min(values), 1e3 * statistics.median(values), len(values)) for name, values in times.items()
    }
