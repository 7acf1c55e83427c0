"""`nnefc bench`: measures and compares the run times of compiled libraries. Needs NumPy and the loader, not TVM."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnefc.cli.commands.profiling.timing import Amount, Busy, Contender, Times, busy_warning, take_turns
from nnefc.cli.commands.run import inputs_of, random_description
from nnefc.cli.grouped import Command, option
from nnefc.cli.models import opened_libraries
from nnefc.cli.options import given, session_options, timing_options
from nnefc.cli.tables import columns, memory
from nnefc.ir.error_metrics import difference
from nnefc.ir.sample_inputs import Arrays, Port
from nnefc.support.diagnostics import CompileError

if TYPE_CHECKING:
    import numpy as np

    from nnefc.loader import Model

__all__ = ["bench_libraries"]

_PERCENTILES = (90, 99)


@click.command("bench", cls=Command)
@click.argument("libraries", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="LIBRARY...")
@session_options
@timing_options
@option(
    "--threads",
    group="Loading",
    type=click.IntRange(min=1),
    help="Threads of a session.  [default: the cores, divided between them]",
)
@option(
    "--sessions",
    group="Loading",
    type=click.IntRange(min=1, max=1024),
    default=1,
    metavar="N",
    help="Sessions that run side by side, each with its own threads.  [default: 1]",
)
@option(
    "--warm-up",
    group="Timing",
    type=click.IntRange(min=0),
    default=3,
    metavar="N",
    help="Runs before the timed ones.  [default: 3]",
)
@option(
    "--against",
    group="Timing",
    type=click.Path(path_type=Path),
    metavar="MODEL.onnx",
    help="Also time onnxruntime on this model, if it is installed, with as many threads.",
)
def bench_libraries(
    libraries: tuple[Path, ...],
    inputs: tuple[str, ...],
    shape: dict[str, tuple[int | str, ...]] | None,
    weights: Path | None,
    weights_key: Path | None,
    key: Path | None,
    device: int,
    flush_subnormals: bool | None,
    random: int,
    threads: int | None,
    sessions: int,
    seconds: float,
    runs: int | None,
    warm_up: int,
    against: Path | None,
    as_json: bool,
) -> None:
    """Time runs of each LIBRARY, compiled by nnefc; several take turns, and their results are compared.

    A model in place of a library is compiled for this machine, and its library cached.
    """
    from nnefc.loader import load
    from nnefc.loader.pool import usable_processors

    if weights is not None and len(libraries) > 1:
        raise click.UsageError("--weights is of one library: several find theirs next to them")
    threads = threads or max(1, len(usable_processors()) // sessions)
    chosen = given({"weights": weights, "weights_key": weights_key, "key": key, "flush_subnormals": flush_subnormals})
    with ExitStack() as stack:
        found = stack.enter_context(opened_libraries(key))
        entries: list[_Entry] = []
        left: list[Port] = []
        taken: dict[tuple[tuple[str, tuple[object, ...]], ...], Arrays] = {}
        for library in libraries:
            model = stack.enter_context(load(found(library), threads=threads, device=device, **chosen))
            interface = tuple((tensor.dtype, tuple(tensor.shape)) for tensor in model.inputs)
            # whatever the inputs are called: equal values make results comparable
            if interface in taken and not inputs:
                arrays = _renamed(taken[interface], model)
            else:
                arrays, left = inputs_of(model, inputs, shape or {}, random)
                taken[interface] = arrays
            others = [stack.enter_context(model.session(threads=threads)) for _ in range(sessions - 1)]
            entries.append(_of_library(str(library), [model, *others], arrays, left))
        if against is not None:
            entries.append(_of_onnxruntime(against, arrays, threads, sessions))
        busy = Busy()
        times = take_turns([entry.contender for entry in entries], Amount(seconds, runs, warm_up))
        others_busy = busy.others()
    report = _Report(entries, times, threads, sessions, others_busy)
    click.echo(json.dumps(report.record(), indent=2) if as_json else "\n".join(report.lines()))


@dataclass(frozen=True)
class _Entry:
    """A contender with the results of its first run, in the order of the outputs, and its memory in bytes, by
    purpose.
    """

    contender: Contender
    results: list[np.ndarray[Any, Any]]
    memory: dict[str, int]


def _renamed(arrays: Arrays, model: Model) -> Arrays:
    """Return the arrays with the names of another network's inputs, in the order of the inputs."""
    return {tensor.name: array for tensor, array in zip(model.inputs, arrays.values(), strict=True)}


def _of_library(name: str, models: Sequence[Model], arrays: Arrays, drawn: Sequence[Port]) -> _Entry:
    first = models[0]
    with random_description(drawn):
        results = list(first.run(arrays).values())
    values = [arrays[tensor.name] for tensor in first.inputs]

    def stream(model: Model) -> Callable[[], object]:
        return lambda: model(*values)

    kept = {"constants": first.constant_bytes, "workspace": first.workspace_bytes, "states": first.state_bytes}
    return _Entry(Contender(name, [stream(model) for model in models]), results, kept)


def _of_onnxruntime(path: Path, arrays: Arrays, threads: int, sessions: int) -> _Entry:
    """Return an ONNX model in onnxruntime as a contender; the inputs get arrays by name, or by position if names
    differ.

    Raises:
        CompileError: onnxruntime is not installed, or cannot run the model.
    """
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise CompileError(
            "--against needs onnxruntime, which is not installed", hint="install it: pip install onnxruntime"
        ) from error
    if not path.is_file():
        raise CompileError(f"{path}: there is no such file", hint="--against names an ONNX model")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    try:
        made = [
            onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]) for _ in range(sessions)
        ]
        names = [given.name for given in made[0].get_inputs()]
        if set(names) != set(arrays) and len(names) == len(arrays):
            arrays = dict(zip(names, arrays.values(), strict=True))
        results = made[0].run(None, arrays)
    except Exception as error:  # its own classes say no more than that it failed
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise CompileError(f"onnxruntime does not run {path}: {reason}") from error

    def stream(session: Any) -> Callable[[], object]:
        return lambda: session.run(None, arrays)

    return _Entry(Contender(f"onnxruntime {path}", [stream(session) for session in made]), list(results), {})


@dataclass(frozen=True)
class _Report:
    entries: Sequence[_Entry]
    times: Sequence[Times]
    threads: int
    sessions: int
    others: float | None

    def lines(self) -> list[str]:
        """Return a table with a line for each contender, and notes."""
        several = len(self.entries) > 1
        head = ["", "runs", "min", "median", *(f"{p} %" for p in _PERCENTILES), "max", "runs/s"]
        rows = [[*head, *(["speed", "difference"] if several else [])]]
        for entry, times in zip(self.entries, self.times, strict=True):
            spread = [min(times.runs), times.median, *map(times.percentile, _PERCENTILES), max(times.runs)]
            row = [entry.contender.name, f"{len(times.runs):,}", *map(_milliseconds, spread)]
            row.append(f"{times.rate:,.1f}")
            if several:
                ratio = self.times[0].median / times.median
                row += [f"{ratio:.2f}", _shown(_difference(self.entries[0].results, entry.results))]
            rows.append(row)
        lines = columns(rows, right=range(1, len(rows[0])))
        words = f"milliseconds a run; {_count(self.threads, 'thread')}, {_count(self.sessions, 'session')}"
        if several:
            words += "; speed and the largest difference of results are relative to the first"
        lines.append(words)
        for entry in self.entries:
            parts = [f"{what} {memory(size)}" for what, size in entry.memory.items() if size]
            if parts:
                lines.append(f"memory of {entry.contender.name}: {', '.join(parts)}")
        if warning := busy_warning(self.others):
            lines.append(f"note: {warning}")
        return lines

    def record(self) -> dict[str, Any]:
        """Return the report as a JSON object, with times in seconds."""
        return {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "threads": self.threads,
            "sessions": self.sessions,
            "processors_busy_with_others": self.others,
            "results": [
                {
                    "name": entry.contender.name,
                    "runs": len(times.runs),
                    "min": min(times.runs),
                    "median": times.median,
                    "mean": times.mean,
                    **{f"p{percent}": times.percentile(percent) for percent in _PERCENTILES},
                    "max": max(times.runs),
                    "runs_per_second": times.rate,
                    "largest_difference": _recorded(_difference(self.entries[0].results, entry.results)),
                    "bytes": entry.memory,
                }
                for entry, times in zip(self.entries, self.times, strict=True)
            ],
        }


def _difference(expected: Sequence[np.ndarray[Any, Any]], found: Sequence[np.ndarray[Any, Any]]) -> float | None:
    """Return the largest difference of two networks' results, relative to the largest value of the output.

    It is infinite if only one of two elements is NaN; None if there are other outputs, shapes or element types, or
    strings.
    """
    if [array.shape for array in expected] != [array.shape for array in found]:
        return None
    largest = 0.0
    for one, other in zip(expected, found, strict=True):
        if one.dtype != other.dtype or one.dtype.kind not in "fiub" or not one.size:
            return None
        largest = max(largest, difference(other, one).relative)
    return largest


def _recorded(apart: float | None) -> float | str | None:
    return "wrong" if apart is not None and math.isinf(apart) else apart  # JSON has no infinite numbers


def _shown(apart: float | None) -> str:
    if apart is None:
        return "-"
    if math.isinf(apart):
        return "wrong"
    return "0" if apart == 0 else f"{apart:.1e}"


def _milliseconds(seconds: float) -> str:
    """Format seconds as milliseconds: with four significant digits below a millisecond, else with three decimals."""
    value = 1e3 * seconds
    return f"{value:.3f}" if value >= 1 else f"{value:.4g}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
