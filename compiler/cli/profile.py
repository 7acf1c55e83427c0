"""`nnefc profile`: prints the cost of each kernel of a library compiled with --profile. Needs NumPy and the loader."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nnefc.cli.grouped import Command, option
from nnefc.cli.models import opened_libraries
from nnefc.cli.options import given, session_options, timing_options
from nnefc.cli.profiling.timing import Amount, Contender, Times, take_turns
from nnefc.cli.profiling.traced_run import TracedRun, chrome_trace
from nnefc.cli.run import inputs_of, random_description
from nnefc.cli.tables import columns
from nnefc.cli.view import check_page, described_library

if TYPE_CHECKING:
    from nnefc.loader import KernelTime

__all__ = ["profile_library"]

_WARM_UP = 3  # runs
_MAX_NAMES = 3  # in a line


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
    type=click.Choice(["place", "kernel", "rule"]),
    default="place",
    help="A line for each place in the network, for each kernel, or for each schedule rule.  [default: place]",
)
@option(
    "--top", group="Output", type=click.IntRange(min=1), default=30, metavar="N", help="Lines to print.  [default: 30]"
)
@option(
    "--trace",
    group="Output",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="Write one more run as a trace, for Perfetto or chrome://tracing: kernels, threads, and the workspace.",
)
@option(
    "--html",
    group="Output",
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="Write a page with the network as a graph, the time by operator, the roofline, and threads and memory over "
    "the time of one more run.",
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
    """Time the kernels of LIBRARY, compiled by nnefc with --profile.

    A model in place of the library is compiled with --profile, and its library cached.
    """
    from nnefc.loader import load

    if html is not None:
        check_page(html)
    chosen = given({"weights": weights, "weights_key": weights_key, "key": key, "flush_subnormals": flush_subnormals})
    with (
        opened_libraries(key, profile=True) as found,
        load(found(library), threads=threads, device=device, **chosen) as model,
    ):
        model.forget_profile()
        arrays, left = inputs_of(model, inputs, shape or {}, random)
        with random_description(left):
            for _ in range(_WARM_UP):
                model.run(arrays)
        model.forget_profile()
        (times,) = take_turns([Contender(str(library), [lambda: model.run(arrays)])], Amount(seconds, runs, warm_up=0))
        kernels, target = model.profile(), model.target
        asked = trace is not None or html is not None
        pieces = model.trace(arrays) if asked else []
        described = described_library(library, target, model.file) if asked else None
    from nnefc.support.output_files import write_text

    if trace is not None and described is not None:
        write_text(trace, json.dumps(chrome_trace(TracedRun(described.kernels, pieces))))
    if html is not None and described is not None:
        from nnefc.cli.profiling.page import profile_page
        from nnefc.cli.profiling.roofline import measured_roofs

        write_text(html, profile_page(described, kernels, times, measured_roofs(), pieces))
    if as_json:
        ran = {"runs": len(times.runs), "median": times.median, "kernels": [asdict(kernel) for kernel in kernels]}
        click.echo(json.dumps(ran, indent=2))
    else:
        click.echo("\n".join(_lines(kernels, times, by, top)))


@dataclass(frozen=True)
class _Line:
    """What several calls took together."""

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


def _lines(kernels: Sequence[KernelTime], times: Times, by: str, top: int) -> list[str]:
    """A line for each group, the slowest first, and what is not in any kernel."""
    runs, total = len(times.runs), sum(kernel.seconds for kernel in kernels)
    whole = max(sum(times.runs), 1e-12)
    groups = [line for line in _grouped(kernels, by) if line.calls]
    groups.sort(key=lambda line: -line.seconds)
    heads = {"place": ("kernel", "rule", "tensors"), "kernel": ("kernel", "rule", "places"), "rule": ("rule", "places")}
    rows: list[Sequence[str]] = [("ms a run", "share", "calls", "GFLOP/s", "GB/s", *heads[by])]
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
        f"{runs:,} runs, {1e3 * times.median:.3f} ms (median); {100 * outside / whole:.1f} % of the time is outside of "
        "kernels: Python, copies, loops, and the taking of times"
    )
    return lines


def _grouped(kernels: Sequence[KernelTime], by: str) -> Iterable[_Line]:
    if by == "place":
        return [_Line.of([kernel], (kernel.kernel, kernel.rule, _names(kernel.tensors))) for kernel in kernels]
    key: Callable[[KernelTime], tuple[str, ...]] = (
        (lambda kernel: (kernel.kernel, kernel.rule)) if by == "kernel" else (lambda kernel: (kernel.rule,))
    )
    groups: dict[tuple[str, ...], list[KernelTime]] = {}
    for kernel in kernels:
        groups.setdefault(key(kernel), []).append(kernel)
    return [_Line.of(group, (*words, str(len(group)))) for words, group in groups.items()]


def _names(tensors: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(tensors) - _MAX_NAMES
    return ", ".join(tensors[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _rate(amount: int, seconds: float) -> str:
    """Billions a second."""
    return f"{1e-9 * amount / seconds:,.1f}" if amount and seconds else "-"
