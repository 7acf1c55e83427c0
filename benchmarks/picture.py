"""The ratios as bars: how many times as fast as the faster peer nnefc runs each network."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from measure import Measurement

__all__ = ["image"]

ROW, BAR, LABELS, UNIT, TOP = 34, 12, 170, 200, 46  # pixels; UNIT is the length of a ratio of one
COLORS = ("#2f6db3", "#8fb8de")  # by number of threads
MIN_WIDTH = 2.0  # ratios that the image has room for at least


def image(measurements: Sequence[Measurement], threads: Sequence[int]) -> str:
    """An SVG document: a row for each network, a bar for each number of threads; the line is the faster peer."""
    ratios = {m.network: [m.ratio(count, attrgetter("median")) for count in threads] for m in measurements}
    longest = max([MIN_WIDTH, *(ratio for row in ratios.values() for ratio in row if ratio is not None)])
    width, height = LABELS + round(longest * UNIT) + 60, TOP + ROW * len(ratios) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif"'
        ' font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<text x="10" y="18" font-size="14">Times as fast as the faster peer</text>',
    ]
    for position, count in enumerate(threads):
        color = COLORS[position % len(COLORS)]
        parts.append(f'<rect x="{10 + 90 * position}" y="26" width="10" height="10" fill="{color}"/>')
        parts.append(f'<text x="{24 + 90 * position}" y="35">{count} thread{"s" if count > 1 else ""}</text>')
    for row, (network, values) in enumerate(ratios.items()):
        y = TOP + ROW * row
        parts.append(f'<text x="{LABELS - 8}" y="{y + BAR + 4}" text-anchor="end">{network}</text>')
        for position, ratio in enumerate(values):
            if ratio is not None:
                parts += _bar(ratio, y + position * (BAR + 1), COLORS[position % len(COLORS)])
    x = LABELS + UNIT
    parts.append(f'<line x1="{x}" y1="{TOP - 4}" x2="{x}" y2="{height - 6}" stroke="#444" stroke-dasharray="4 3"/>')
    return "\n".join([*parts, "</svg>", ""])


def _bar(ratio: float, y: int, color: str) -> list[str]:
    length = ratio * UNIT
    return [
        f'<rect x="{LABELS}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{color}"/>',
        f'<text x="{LABELS + length + 4:.1f}" y="{y + BAR - 2}">{ratio:.2f}</text>',
    ]
