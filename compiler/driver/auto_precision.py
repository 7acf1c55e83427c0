"""Implements `--precision auto`: picks the fastest precision whose error stays within the user's limit.

The network is compiled in float32; in a 16-bit float, first the one that the target multiplies faster, and the other
one if the first is not exact enough; and in 8-bit integers if there is calibration data. All run on this machine, on
the user's data or on random inputs. The error of a float or 8-bit output is the largest difference from float32,
relative to the largest value; that of other integers, booleans and strings is the share of different elements. Of the
precisions within the limit, the one with the shortest run is taken. This may be float32: Winograd's algorithm saves
multiplications in float32, and many CPUs have no arithmetic in 16-bit floats.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from nnefc.driver.artifact import Artifact, Trial
from nnefc.driver.options import INT8, Calibration
from nnefc.ir.error_metrics import difference
from nnefc.passes.compute.dot.dot_product import pair_speed
from nnefc.quantizer.calibration import samples_of
from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.any_target import parse_any_target
from nnefc.targets.machine.cpu.target import Target

__all__ = ["LARGEST_ERROR", "narrowest"]

LARGEST_ERROR = 1e-2
"""The default limit of a result's error, relative to the largest value of its output."""

_RANDOM_RUNS = 2

_TURNS = 8
_TURN_SECONDS = 0.02
"""Minimum time of a turn, which has at least one run."""

_SECONDS = 2.0
"""The time after which no further round of turns begins."""

_SAME = 1.02
"""The ratio of run times up to which libraries count as equally fast; the smaller library is taken then."""


def narrowest(
    compiled: Callable[[str], Artifact], target: str, calibration: Calibration | None, largest_error: float | None
) -> Artifact:
    """Return the network in the fastest precision within an error.

    Args:
        compiled: returns the network in a precision.
        target: as the user names it; this machine must be able to run its code.
        calibration: values of the inputs; None: random values.
        largest_error: of a result, relative to the largest value of its output.

    Raises:
        CompileError: as `compiled`; this machine cannot run the code; the calibration does not fit the network.
    """
    bound = LARGEST_ERROR if largest_error is None else largest_error
    machine = parse_any_target(target)
    if not isinstance(machine, Target):
        raise CompileError("precision auto is for processors, whose code is tried here", hint="say which: fp32 or fp16")
    wide = compiled("fp32")
    samples = list(_samples(wide, calibration))
    expected = _results(wide, samples)

    def found(name: str, made: Artifact) -> _Tried:
        return _Tried(name, made, _error(_results(made, samples), expected))

    tried = [_Tried("fp32", wide, 0.0)]
    for name in sorted(("fp16", "bf16"), key=lambda name: -pair_speed(machine.with_precision(name))):
        tried.append(found(name, compiled(name)))
        if tried[-1].error <= bound:
            break
    integers = None if calibration is None else _quantized(compiled)
    if integers is not None:
        tried.append(found(INT8, integers))
    return _fastest(tried, [each for each in tried if each.error <= bound], samples[0])


@dataclass(frozen=True, eq=False)
class _Tried:
    """A network compiled in a precision, and its largest error."""

    precision: str
    artifact: Artifact
    error: float


def _quantized(compiled: Callable[[str], Artifact]) -> Artifact | None:
    """Return the network in integers; None if there is nothing to quantize."""
    try:
        return compiled(INT8)
    except CompileError:
        return None


def _fastest(tried: Sequence[_Tried], exact: Sequence[_Tried], sample: Mapping[str, np.ndarray]) -> Artifact:
    """Return the fastest of the candidates `exact`, timed in turns; of equally fast ones, the smallest."""
    seconds: dict[_Tried, float] = {}
    if len(exact) > 1:
        with ExitStack() as loaded:
            models = [loaded.enter_context(each.artifact.load()) for each in exact]
            seconds = dict(zip(exact, _minimum_times([partial(model.run, sample) for model in models]), strict=True))
    fast = [each for each in exact if not seconds or seconds[each] <= min(seconds.values()) * _SAME]
    best = min(fast, key=lambda each: each.artifact.description.constant_bytes)
    trials = tuple(Trial(each.precision, each.error, seconds.get(each), each is best) for each in tried)
    return replace(best.artifact, trials=trials)


def _minimum_times(runs: Sequence[Callable[[], object]]) -> list[float]:
    """Return the seconds of the shortest run of each function."""
    for run in runs:
        run()
    best = [math.inf] * len(runs)
    begin = time.perf_counter()
    for _ in range(_TURNS):
        for index, run in enumerate(runs):
            turn = now = time.perf_counter()
            while now < turn + _TURN_SECONDS:
                start = now
                run()
                now = time.perf_counter()
                best[index] = min(best[index], now - start)
        if now > begin + _SECONDS:
            break
    return best


def _samples(artifact: Artifact, calibration: Calibration | None) -> Iterable[Mapping[str, np.ndarray]]:
    """Return values of all inputs, one sample after the other: random, or those of the calibration."""
    return _random(artifact) if calibration is None else samples_of(calibration, artifact.inputs)


def _random(artifact: Artifact) -> Iterator[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    for _ in range(_RANDOM_RUNS):
        values = {}
        for tensor in artifact.inputs:
            shape = [size for size in tensor.shape if isinstance(size, int)]
            if tensor.dtype in ("string", "bfloat16") or len(shape) < len(tensor.shape):
                raise CompileError(f"no random values of the input {tensor} are made", hint="give --calibrate")
            dtype = np.dtype(tensor.dtype)
            random = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 2, shape)
            values[tensor.name] = random.astype(dtype)
        yield values


def _results(artifact: Artifact, samples: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    from nnefc.loader import LoadError, RunError
    from nnefc.loader.arrays import float32_of_bfloat16

    try:
        with artifact.load() as model:
            bits = {tensor.name for tensor in artifact.outputs if tensor.dtype == "bfloat16"}
            return [
                {
                    name: float32_of_bfloat16(value) if name in bits else np.array(value)
                    for name, value in model.run(sample).items()
                }
                for sample in samples
            ]
    except LoadError as error:
        raise CompileError(
            f"precision auto tries the code here, which this machine does not run: {error}",
            hint="say which precision: fp32, bf16 or fp16",
        ) from error
    except RunError as error:
        raise CompileError(f"the calibration does not fit the network: {error}") from error


def _error(found: Sequence[Mapping[str, np.ndarray]], expected: Sequence[Mapping[str, np.ndarray]]) -> float:
    """Return the largest relative difference of an output, or the largest share of different elements.

    It is infinite if an element is NaN but should be a number, or an output has another shape.
    """
    largest = 0.0
    for name in expected[0]:
        others = elements = 0
        for own, exact in ((one[name], other[name]) for one, other in zip(found, expected, strict=True)):
            if own.shape != exact.shape:
                return math.inf
            if exact.dtype.kind in "fV" or (exact.dtype.itemsize == 1 and exact.dtype.kind in "iu"):
                largest = max(largest, difference(own, exact).relative)
            else:  # labels, say: how far their numbers are apart means nothing
                others, elements = others + int(np.count_nonzero(own != exact)), elements + exact.size
        largest = max(largest, others / max(elements, 1))
    return largest
