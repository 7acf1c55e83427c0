"""`nnefc profile`: prints the cost of each kernel of a library. Needs NumPy and the loader."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnefc.cli.commands.profiling.run_costs import at_sizes, sizes_of_run
from nnefc.cli.commands.profiling.timing import Amount, Busy, Contender, Times, busy_warning, take_turns
from nnefc.cli.commands.profiling.traced_run import TracedRun, chrome_trace, last_calls
from nnefc.cli.commands.run import inputs_of, random_description
from nnefc.cli.commands.view import check_page, description_of
from nnefc.cli.grouped import Command, option
from nnefc.cli.models import opened_libraries
from nnefc.cli.options import given, session_options, timing_options
from nnefc.cli.tables import columns, without_middle
from nnefc.support.diagnostics import CompileError

if TYPE_CHECKING:
    from nnefc.loader import KernelTime, Model
    from nnefc.targets.description.library import LibraryDescription

__all__ = ["profile_library"]

_WARM_UP = 3  # runs
_MAX_NAMES = 3  # in a line
_MAX_OPERATOR, _MAX_TENSORS = 24, 30  # characters of a cell: a line takes 100 at most
_MAX_TRACES, _TRACING = 15, 1.0
"""Maximum number of traced runs, and of seconds for them; the run that is nearest to the median time is shown."""


@click.command("profile", cls=Command)
@click.argument("library", type=click.Path(path_type=Path))
@session_options
@timing_options
@option(
    "--threads",
    group="Loading",
    type=click.IntRange(min=1),
    help="The number of threads.  [default: one for each core]",
)
@option(
    "--by",
    group="Output",
    type=click.Choice(["tensor", "operator", "kernel", "rule"]),
    default="tensor",
    help="A line for each kernel's call, with the tensors that it computes, for each operator of the model, for each "
    "kernel, or for each schedule rule.  [default: tensor]",
)
@option(
    "--top", group="Output", type=click.IntRange(min=1), default=30, metavar="N", help="Lines to print.  [default: 30]"
)
@option(
    "--trace",
    group="Output",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="Write one more run, near the median, as a trace, for Perfetto or chrome://tracing: kernels, threads, and the "
    "workspace.",
)
@option(
    "--html",
    group="Output",
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="Write a page with the network as a graph, the time by operator, the roofline, and threads and memory over "
    "the time of one more run, of several the one that is nearest to the median.",
)
def profile_library(
    library: Path,
    inputs: tuple[str, ...],
    shape: dict[str, tuple[int | str, ...]] | None,
    weights: Path | None,
    weights_key: Path | None,
    key: Path | None,
    device: int,
    flush_subnormals: bool | None,
    random: int,
    threads: int | None,
    seconds: float,
    runs: int | None,
    by: str,
    top: int,
    as_json: bool,
    trace: Path | None,
    html: Path | None,
) -> None:
    """Time the kernels of LIBRARY, which nnefc compiled for a processor.

    Of a library that was compiled with --profile it also shows the operators of the model, what each thread computes,
    and the workspace. A model in place of the library is compiled so, and its library cached.
    """
    from nnefc.loader import load

    if html is not None:
        check_page(html)
    chosen = given({"weights": weights, "weights_key": weights_key, "key": key, "flush_subnormals": flush_subnormals})
    with (
        opened_libraries(key, profile=True) as found,
        load(found(library), threads=threads, device=device, **chosen) as model,
    ):
        if not model.is_profiled:
            _take_times(model, library)
        arrays, left = inputs_of(model, inputs, shape or {}, random)
        with random_description(left):
            for _ in range(_WARM_UP):
                model.run(arrays)
        model.forget_profile()
        busy = Busy()
        (times,) = take_turns([Contender(str(library), [lambda: model.run(arrays)])], Amount(seconds, runs, warm_up=0))
        kernels, others = model.profile(), busy.others()
        described = _described(library, model, kernels)
        described = at_sizes(described, sizes_of_run(described, {name: array.shape for name, array in arrays.items()}))
        asked = trace is not None or html is not None
        run = _median_run(model, arrays, described, times.median) if asked else TracedRun(described.kernels, [])
    kernels = [
        replace(kernel, operations=each.operations, bytes=each.bytes)
        for kernel, each in zip(kernels, described.kernels, strict=True)
    ]
    warning = busy_warning(others)
    if warning:
        click.echo(f"warning: {warning}", err=True)
    from nnefc.support.output_files import write_text

    if trace is not None:
        write_text(trace, json.dumps(chrome_trace(run)))
    if html is not None:
        from nnefc.cli.commands.profiling.page import profile_page
        from nnefc.cli.commands.profiling.roofline import measured_roofs

        write_text(html, profile_page(described, kernels, times, measured_roofs(), run, warning))
    operators = [each.operators for each in described.kernels]
    if as_json:
        listed = [asdict(kernel) | {"operators": of} for kernel, of in zip(kernels, operators, strict=True)]
        record = {"runs": len(times.runs), "mean": times.mean, "median": times.median, "kernels": listed}
        click.echo(json.dumps(record, indent=2))
    else:
        click.echo("\n".join(_lines(kernels, operators, times, by, top)))
        if not any(operators):
            click.echo("compiled without --profile: kernels in place of the model's operators, and no threads")


def _take_times(model: Model, library: Path) -> None:
    """Make the session measure its kernels.

    Raises:
        CompileError: the library does not support it.
    """
    from nnefc.loader import RunError

    try:
        model.time_kernels()
    except RunError as error:
        reason = "is for a GPU" if model.device != "cpu" else "was compiled for size, or by an earlier version"
        hint = "nsys and ncu time kernels of NVIDIA's GPUs" if model.device != "cpu" else "compile it without --small"
        raise CompileError(f"{library} takes no times of its kernels: it {reason}", hint=hint) from error


def _described(library: Path, model: Model, kernels: Sequence[KernelTime]) -> LibraryDescription:
    """Return the description of a library; its kernels are those of `kernels` if it does not describe them."""
    from nnefc.targets.description.library import KernelDescription

    found = description_of(library, model.target, model.file)
    if found.kernels:
        return found
    known = (KernelDescription(each.kernel, each.tensors, each.rule, each.operations, each.bytes) for each in kernels)
    return replace(found, kernels=tuple(known))


def _median_run(model: Model, arrays: Mapping[str, Any], found: LibraryDescription, seconds: float) -> TracedRun:
    """Trace some runs, and return the one whose time is nearest to `seconds`."""
    count = max(1, min(_MAX_TRACES, int(_TRACING / max(seconds, 1e-9))))
    runs = (_traced(model, arrays, found) for _ in range(count))
    return min(runs, key=lambda run: abs(run.seconds - seconds))


def _traced(model: Model, arrays: Mapping[str, Any], found: LibraryDescription) -> TracedRun:
    """Trace one run; if the library cannot trace, the result has the last call of each kernel only."""
    if model.is_profiled:
        return TracedRun(found.kernels, model.trace(arrays))
    model.forget_profile()
    model.run(arrays)
    return TracedRun(found.kernels, last_calls(model.profile()), knows_threads=False)


@dataclass(frozen=True)
class _Line:
    """The sum of the calls of some kernels.

    Attributes:
        seconds, calls, operations, bytes: of all calls.
        words: the cells of text of its line.
    """

    seconds: float
    calls: int
    operations: int
    bytes: int
    words: tuple[str, ...]

    @staticmethod
    def of(kernels: Sequence[KernelTime], words: tuple[str, ...]) -> _Line:
        return _Line(
            sum(kernel.seconds for kernel in kernels),
            sum(kernel.calls for kernel in kernels),
            sum(kernel.operations * kernel.calls for kernel in kernels),
            sum(kernel.bytes * kernel.calls for kernel in kernels),
            words,
        )


def _lines(
    kernels: Sequence[KernelTime], operators: Sequence[Sequence[str]], times: Times, by: str, top: int
) -> list[str]:
    """Return a table with a line for each group of kernels, the slowest first, and the time outside of kernels; times
    and shares are means over the runs.
    """
    runs, total = len(times.runs), sum(kernel.seconds for kernel in kernels)
    whole = max(sum(times.runs), 1e-12)
    groups = [line for line in _grouped(kernels, operators, by) if line.calls]
    groups.sort(key=lambda line: -line.seconds)
    rows: list[Sequence[str]] = [("ms a run", "share", "calls", "GFLOP/s", "GB/s", *_HEADS[by])]
    for line in groups[:top]:
        rows.append(
            (
                f"{1e3 * line.seconds / runs:.4f}",
                f"{100 * line.seconds / whole:.1f} %",
                f"{line.calls / runs:,.6g}",
                _rate(line.operations, line.seconds),
                _rate(line.bytes, line.seconds),
                *line.words,
            )
        )
    lines = columns(rows, right=range(5))
    left = groups[top:]
    if left:
        tail = sum(line.seconds for line in left)
        lines.append(
            f"{len(left):,} more: {1e3 * tail / runs:.4f} ms, {100 * tail / whole:.1f} % (--top {len(groups)})"
        )
    outside = max(0.0, whole - total)
    lines.append(
        f"{runs:,} runs of {1e3 * times.mean:.3f} ms on average, median {1e3 * times.median:.3f} ms; "
        f"{100 * outside / whole:.1f} % outside of kernels: Python, copies, loops"
    )
    return lines


_HEADS = {
    "tensor": ("operator", "tensors"),
    "operator": ("operator", "calls of kernels"),
    "kernel": ("kernel", "calls of kernels"),
    "rule": ("schedule rule", "calls of kernels"),
}


def _grouped(kernels: Sequence[KernelTime], operators: Sequence[Sequence[str]], by: str) -> Iterable[_Line]:
    titles = [" + ".join(of) or kernel.kernel for kernel, of in zip(kernels, operators, strict=True)]
    if by == "tensor":
        return [
            _Line.of(
                [kernel], (without_middle(title, _MAX_OPERATOR), without_middle(_names(kernel.tensors), _MAX_TENSORS))
            )
            for kernel, title in zip(kernels, titles, strict=True)
        ]
    names = {"operator": titles, "kernel": [k.kernel for k in kernels], "rule": [k.rule for k in kernels]}[by]
    groups: dict[str, list[KernelTime]] = {}
    for kernel, name in zip(kernels, names, strict=True):
        groups.setdefault(name, []).append(kernel)
    return [_Line.of(group, (without_middle(name, _MAX_TENSORS), str(len(group)))) for name, group in groups.items()]


def _names(tensors: Sequence[str]) -> str:
    """Return the first names of tensors, and the number of the others."""
    more = len(tensors) - _MAX_NAMES
    return ", ".join(tensors[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _rate(amount: int, seconds: float) -> str:
    """Format a rate in billions per second."""
    return f"{1e-9 * amount / seconds:,.1f}" if amount and seconds else "-"
