"""Draws the timeline of one run for the page of `nnefc profile`: kernels and threads over time, the workspace below.

The image is one SVG. The page's script stretches it along the axis of time, so texts are outside of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from nnefc.cli.commands.profiling.traced_run import TracedRun
from nnefc.cli.tables import memory
from nnefc.inspect.html.kinds import kind_of, paint
from nnefc.inspect.library_graph import title_of

if TYPE_CHECKING:
    from nnefc.loader import Piece

__all__ = ["timeline"]

_WIDTH = 1000.0
_ROW, _APART = 22.0, 4.0
_FLAT_ROW = 5.0
"""The height of each thread's row if there are many threads."""
_MAX_HIGH = 24
_MEMORY_HEIGHT = 180.0
_MAX_BARS = 40_000
"""Maximum bars in the image; beyond it, short bars that follow each other are merged."""


_WORKSPACE = "Below are the contents of the workspace by address, each from its writer to its last reader. "


def timeline(run: TracedRun) -> str:
    """Return the image, and its description as a text."""
    if not run.calls:
        return "<p>The run had no calls of kernels.</p>"
    count = len(run.threads)
    high = _ROW if count <= _MAX_HIGH else _FLAT_ROW
    rows: list[tuple[str, float, Sequence[Piece]]] = [("kernels", _ROW, run.calls)]
    for number, pieces in enumerate(run.threads):
        share = f"{100 * run.busy[number] / max(run.seconds, 1e-12):.0f} %"
        rows.append((f"thread {number}: {share}" if high == _ROW else "", high, pieces))
    scale = _WIDTH / max(run.seconds, 1e-12)
    bars: dict[int, list[str]] = {}
    labels, y = [], 0.0
    for label, height, pieces in rows:
        labels.append(f'<div style="top:{y:.0f}px">{escape(label)}</div>')
        for kernel, begin, end in _drawn(pieces, len(rows), run.seconds):
            x = (begin - run.begin) * scale
            bars.setdefault(kernel, []).append(
                f"M{x:.3f} {y:.1f}H{x + (end - begin) * scale:.3f}v{height:.0f}H{x:.3f}z"
            )
        y += height + (_APART if height == _ROW else 1)
    drawn = "".join(
        f'<path d="{"".join(paths)}" {paint(kind_of(title_of(run.kernels[kernel])))}><title>'
        f"{escape(run.name(kernel))}, {_threads(run, kernel)}</title></path>"
        for kernel, paths in sorted(bars.items())
    )
    workspace, label = _workspace(run, scale, y)
    if workspace:
        labels.append(f'<div style="top:{y:.0f}px">{label}</div>')
        y += _MEMORY_HEIGHT
    image = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {y:.0f}" height="{y:.0f}" '
        f'preserveAspectRatio="none" stroke="#5b6570" stroke-width=".7" data-seconds="{run.seconds:.9f}">'
        f"{drawn}{workspace}</svg>"
    )
    return f'<div class="time"><div class="rows">{"".join(labels)}</div>{image}<p class="span"></p></div>{_words(run)}'


_USE = "Turn the wheel to zoom, drag to move, point at a bar for what it is."


def _words(run: TracedRun) -> str:
    if not run.knows_threads:
        return (
            f"<p>{1e3 * run.seconds:.3f} ms from the first call to the end of the last; of a kernel that is called "
            "several times, the last call is shown. Of a library that is compiled with --profile, threads and the "
            f"workspace are shown, too. {_USE}</p>"
        )
    count, whole = len(run.threads), max(run.seconds, 1e-12)
    share = 100 * sum(run.busy) / (count * whole)
    return (
        f"<p>{1e3 * run.seconds:.3f} ms from the first call to the end of the last, of which the session's {count} "
        f"thread{'s' * (count > 1)} computed {share:.0f} %. A bar of a thread is a piece of a loop that is "
        f"distributed, "
        f"or a kernel without such loops. {_WORKSPACE * bool(run.stays)}"
        f"{_USE}</p>"
    )


def _threads(run: TracedRun, kernel: int) -> str:
    """Return the time of a kernel's calls and, if known, the average number of threads that computed it."""
    if not run.knows_threads:
        return f"{1e6 * run.seconds_of[kernel]:,.1f} µs"
    return f"{1e6 * run.seconds_of[kernel]:,.1f} µs with {run.busy_in[kernel]:.1f} of {len(run.threads)} threads"


def _drawn(pieces: Sequence[Piece], rows: int, seconds: float) -> Iterator[tuple[int, float, float]]:
    """Yield the bars of a row as kernel, begin and end, ascending and without overlaps."""
    minimum = 2 * seconds * rows / _MAX_BARS
    kernel, begin, end = -1, float("-inf"), float("-inf")
    for piece in pieces:
        until = piece.begin + piece.seconds
        if until - begin < minimum or (piece.kernel == kernel and piece.begin - end < minimum):
            end = max(end, until)
            continue
        if kernel >= 0:
            yield kernel, begin, end
        kernel, begin, end = piece.kernel, piece.begin, until
    if kernel >= 0:
        yield kernel, begin, end


def _workspace(run: TracedRun, scale: float, y: float) -> tuple[str, str]:
    """Return the image of the workspace, with time along the x axis and bytes along the y axis, and its description."""
    top = max((life.offset + life.bytes for life, *_ in run.stays), default=0)
    if not top:
        return "", ""
    parts = []
    for life, begin, end in run.stays:
        tall = life.bytes * _MEMORY_HEIGHT / top
        below = y + _MEMORY_HEIGHT - life.offset * _MEMORY_HEIGHT / top
        first, last = run.name(life.first), run.name(life.last)
        parts.append(
            f'<rect x="{begin * scale:.3f}" y="{below - tall:.2f}" width="{(end - begin) * scale:.3f}" '
            f'height="{tall:.2f}" {paint("group")}><title>{escape(life.type)}: {life.bytes:,} bytes at '
            f"{life.offset:,}, from {escape(first)} to {escape(last)}</title></rect>"
        )
    return "".join(parts), f"workspace: {escape(memory(top))}"
