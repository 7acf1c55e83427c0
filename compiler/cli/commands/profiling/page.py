"""Writes the page of `nnefc profile --html`: the kernel graph, and images of run time and memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from nnefc.cli.commands.profiling.timeline import timeline
from nnefc.cli.commands.profiling.traced_run import TracedRun
from nnefc.cli.tables import memory
from nnefc.inspect.html.kinds import kind_of, paint
from nnefc.inspect.html.page import page
from nnefc.inspect.library_graph import graph_of_library, title_of, workspace_text
from nnefc.targets.description.library import KernelDescription, LibraryDescription

if TYPE_CHECKING:
    from nnefc.cli.commands.profiling.roofline import Roofs
    from nnefc.cli.commands.profiling.timing import Times
    from nnefc.loader import KernelTime

__all__ = ["profile_page"]

_WIDTH = 1000
_MAX_ROWS = 40


@dataclass(frozen=True)
class _Timed:
    """The description of a kernel, and the time of its calls."""

    kernel_description: KernelDescription
    time: KernelTime

    @property
    def operation_rate(self) -> float:
        """Arithmetic operations per second; 0 if unknown."""
        return self.kernel_description.operations * self.time.calls / self.time.seconds if self.time.seconds else 0.0

    @property
    def hint(self) -> str:
        """The tooltip of a kernel."""
        done = self.kernel_description
        return f"{title_of(done)}: {', '.join(done.tensors[:6]) or done.kernel}"


def profile_page(
    found: LibraryDescription,
    kernels: Sequence[KernelTime],
    times: Times,
    roofs: Roofs,
    run: TracedRun,
    warning: str = "",
) -> str:
    """Return the page as HTML.

    Args:
        found: the description of the library, at the sizes of the run.
        kernels: times, in the order of the description's kernels.
        times: of complete runs.
        roofs: the peak rates of this machine.
        run: a traced run of about the median time.
        warning: about the measurement; empty for none.
    """
    timed = [_Timed(description, time) for description, time in zip(found.kernels, kernels, strict=True)]
    whole = max(sum(times.runs), 1e-12)
    shares = [each.time.seconds / whole for each in timed]
    longest = max(shares, default=1.0) or 1.0
    graph = graph_of_library(found, [share / longest for share in shares], shares)
    by_operator = _by(timed, whole, lambda each: title_of(each.kernel_description))
    knows_operators = any(each.kernel_description.operators for each in timed)
    by_rule = _by(timed, whole, lambda each: each.kernel_description.rule)
    sections = [
        _summary(found, timed, times, warning),
        _section(
            "Time by operator of the model" if knows_operators else "Time by what kernels compute", _table(by_operator)
        ),
        _section("Roofline", _roofline(timed, roofs)),
        _section("One run, thread by thread" if run.knows_threads else "One run, kernel by kernel", timeline(run)),
        _section("Calls of kernels", _kernels(timed, times, run)),
        _section("The largest constants", _constants(timed)) if knows_operators else "",
        f'<details><summary>Time by schedule rule, for developers of nnefc</summary><div class="wide">'
        f"{_table(by_rule)}</div></details>",
    ]
    return page(f"{found.model} for {found.target}", [graph], "".join(sections))


def _section(title: str, content: str) -> str:
    return f'<section><h2>{escape(title)}</h2><div class="wide">{content}</div></section>'


def _summary(found: LibraryDescription, timed: Sequence[_Timed], times: Times, warning: str) -> str:
    inside = sum(each.time.seconds for each in timed)
    whole = max(sum(times.runs), 1e-12)
    noted = f'<p class="warning">{escape(warning[:1].upper() + warning[1:])}.</p>' if warning else ""
    return (
        f"{noted}<p>{len(times.runs):,} runs of {1e3 * times.mean:.3f} ms on average (median "
        f"{1e3 * times.median:.3f} ms); {100 * max(0.0, 1 - inside / whole):.1f} % of the time is outside of kernels. "
        f"Constants take {escape(memory(found.constant_bytes))}, the workspace {escape(workspace_text(found))}. Times "
        "and shares below are means over all runs; bars in boxes are times, over that of the slowest kernel.</p>"
    )


Row = Sequence[str]


def _table(rows: Iterable[Row]) -> str:
    """Return an HTML table; the first row is the head, and the cells after the first are numbers."""
    head, *tail = rows

    def line(row: Row, kind: str) -> str:
        cells = (f"<{kind}{' class=n' if column else ''}>{escape(cell)}</{kind}>" for column, cell in enumerate(row))
        return f"<tr>{''.join(cells)}</tr>"

    return f"<table>{line(head, 'th')}{''.join(line(row, 'td') for row in tail)}</table>"


def _by(timed: Sequence[_Timed], whole: float, key: Callable[[_Timed], str]) -> list[Row]:
    groups: dict[str, list[_Timed]] = {}
    for each in timed:
        groups.setdefault(key(each), []).append(each)
    rows: list[Row] = [("", "share of the time", "calls", "GFLOP/s", "GB/s")]
    ordered = sorted(groups.items(), key=lambda element: -sum(each.time.seconds for each in element[1]))
    for name, members in ordered[:_MAX_ROWS]:
        seconds = sum(each.time.seconds for each in members)
        operations = sum(each.kernel_description.operations * each.time.calls for each in members)
        moved = sum(each.kernel_description.bytes * each.time.calls for each in members)
        share = f"{100 * seconds / whole:.1f} %"
        rows.append((name, share, f"{len(members):,}", _rate(operations, seconds), _rate(moved, seconds)))
    return rows


def _rate(amount: float, seconds: float) -> str:
    return f"{1e-9 * amount / seconds:,.1f}" if amount and seconds else "-"


def _svg(height: float, content: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {_WIDTH} {height:.0f}" font-family="sans-serif" font-size="11">{content}</svg>'
    )


def _roofline(timed: Sequence[_Timed], roofs: Roofs) -> str:
    """Return the roofline plot: operations per second over operations per byte, both logarithmic. The area of a dot is
    the kernel's share of the time.
    """
    dots = [each for each in timed if each.operation_rate and each.kernel_description.bytes]
    if not dots:
        return "<p>No kernel has a number of operations that is known at the sizes of this run.</p>"
    maximum = max(roofs.operations, *(each.operation_rate for each in dots))
    intensities = [each.kernel_description.operations / each.kernel_description.bytes for each in dots]
    x = _Axis(min(0.1, *intensities), max(200.0, *intensities), 60, _WIDTH - 20)
    y = _Axis(min(maximum / 1e5, *(each.operation_rate for each in dots)), maximum * 1.5, 330, 10)
    total = sum(each.time.seconds for each in dots)
    parts = [x.lines(10, 330, "{:g}", "x"), y.lines(60, _WIDTH - 20, "{:g} GFLOP/s", "y", 1e-9)]
    ridge = roofs.operations / roofs.bytes
    corners = [(x.minimum, x.minimum * roofs.bytes), (ridge, roofs.operations), (x.maximum, roofs.operations)]
    points = " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in corners if a >= x.minimum)
    parts.append(f'<polyline class="roof" points="{points}" fill="none" stroke-width="1.5"/>')
    for each, intensity in zip(dots, intensities, strict=True):
        size = 3 + 14 * math.sqrt(each.time.seconds / total)
        parts.append(
            f'<circle cx="{x.at(intensity):.1f}" cy="{y.at(each.operation_rate):.1f}" r="{size:.1f}" '
            f'{paint(kind_of(title_of(each.kernel_description)))} fill-opacity=".8" stroke="#5b6570">'
            f"<title>{escape(each.hint)}</title></circle>"
        )
    parts.append(f'<text x="{_WIDTH / 2}" y="358" text-anchor="middle">operations for each byte</text>')
    words = (
        f"<p>The line is what this machine did in NumPy: {1e-9 * roofs.operations:,.0f} GFLOP/s in a product of "
        f"matrices of float32, and {1e-9 * roofs.bytes:,.1f} GB/s in a copy of what no cache holds. Kernels in "
        "integers or 16-bit floats, and those whose operands are in caches, may be above it.</p>"
    )
    return _svg(365, "".join(parts)) + words


class _Axis:
    """A logarithmic axis of the plot, from `start` to `end` in its coordinates."""

    def __init__(self, minimum: float, maximum: float, start: float, end: float) -> None:
        self.minimum, self.maximum = minimum, maximum
        self._low = math.log10(minimum)
        self._scale = (end - start) / max(1e-9, math.log10(maximum) - self._low)
        self._start = start

    def at(self, value: float) -> float:
        return self._start + (math.log10(max(value, self.minimum)) - self._low) * self._scale

    def lines(self, first: float, last: float, text: str, axis: str, unit: float = 1.0) -> str:
        """Return a grid line and a label at each power of ten."""
        parts = []
        for power in range(math.ceil(self._low), math.floor(math.log10(self.maximum)) + 1):
            at, label = self.at(10.0**power), escape(text.format(unit * 10.0**power))
            if axis == "x":
                line = f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{first}" y2="{last}" class="grid"/>'
                parts.append(f'{line}<text x="{at:.1f}" y="{last + 14}" text-anchor="middle">{label}</text>')
            else:
                line = f'<line x1="{first}" x2="{last}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>'
                parts.append(f'{line}<text x="{first}" y="{at - 3:.1f}">{label}</text>')
        return "".join(parts)


def _constants(timed: Sequence[_Timed]) -> str:
    """Return a table of the constants as kernels read them: packed, and with what was computed at compile time."""
    sizes: dict[tuple[int, int], tuple[int, str, str]] = {}
    for each in timed:
        for operand in each.kernel_description.reads:
            if operand.base == "constant" and operand.bytes:
                key = operand.index, operand.offset or 0
                sizes.setdefault(key, (operand.bytes, operand.type, each.hint))
    rows: list[Row] = [("of", "type", "bytes")]
    rows += [(hint, type_, f"{size:,}") for size, type_, hint in sorted(sizes.values(), reverse=True)[:_MAX_ROWS]]
    return _table(rows)


def _kernels(timed: Sequence[_Timed], times: Times, run: TracedRun) -> str:
    runs, whole = len(times.runs), max(sum(times.runs), 1e-12)
    rows: list[Row] = [("computes", "share of the time", "µs a run", "calls", "threads", "GFLOP/s", "GB/s", "kernel")]
    for index, each in sorted(enumerate(timed), key=lambda element: -element[1].time.seconds):
        time, description = each.time, each.kernel_description
        rows.append(
            (
                each.hint,
                f"{100 * time.seconds / whole:.1f} %",
                f"{1e6 * time.seconds / runs:,.1f}",
                f"{time.calls / runs:,.6g}",
                f"{run.busy_in[index]:.2f}" if run.calls and run.busy_in[index] else "-",
                _rate(description.operations * time.calls, time.seconds),
                _rate(description.bytes * time.calls, time.seconds),
                description.kernel,
            )
        )
    return _table(rows)
