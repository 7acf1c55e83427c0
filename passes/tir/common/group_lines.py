"""Reorders the iterations of a contraction so that lines of images stay in the second cache for all panels.

A convolution of dynamic sizes multiplies all lines of its images by one panel of weights, then by the next one. Images
that the second cache does not hold would be read from outer caches or memory once for each panel. So lines are taken in
groups that it holds; how many that are is known when the sizes are:

    for i in parallel(panels * lines):             for i in parallel(panels * lines):
        … panel i / lines, line i % lines     →        g = i / (group * panels)
                                                       size = min(group, lines - g * group)
                                                       r = i % (group * panels)
                                                       … panel r / size, line g * group + r % size

Each thread has neighbouring iterations, before as after. One group of all lines is the order without groups.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx

from nnefc.ir.attributes import GROUPED_LINES
from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import int64
from nnefc.passes.tir.tvm_workarounds.opaque import opaque_binding

__all__ = ["group_lines", "in_groups"]


def group_lines(stmt: tirx.Stmt) -> tirx.Stmt:
    """Returns the statement with the iterations of annotated parallel loops in groups of lines."""

    def change(loop: tirx.For) -> tirx.For:
        if GROUPED_LINES not in loop.annotations:
            return loop
        inner: list[tirx.For] = []
        tvm_ffi.structural_walk(loop.body, (tirx.For, inner.append), order="pre")
        return in_groups(loop, inner[0].extent)

    return tvm_ffi.structural_map(stmt, (tirx.For, change))


def in_groups(loop: tirx.For, tiles: tirx.Expr) -> tirx.For:
    """Returns an annotated loop with its iterations in groups of lines, without the annotation.

    Args:
        tiles: that an iteration computes.
    """
    panels, held = (int64(int(number)) for number in loop.annotations[GROUPED_LINES])
    i, lines, group, first = (tirx.Var(name, "int64") for name in ("i", "lines", "group", "first"))
    in_group, size = tirx.Mod(i, group * panels), tirx.min(group, lines - first)
    bound = [
        opaque_binding(lines, tirx.Div(loop.extent, panels)),
        opaque_binding(group, tirx.max(tirx.Div(held, tirx.max(tiles, int64(1))), int64(1))),
        opaque_binding(first, tirx.Div(i, group * panels) * group),
        opaque_binding(loop.loop_var, tirx.Div(in_group, size) * lines + first + tirx.Mod(in_group, size)),
    ]
    annotations = {key: value for key, value in loop.annotations.items() if key != GROUPED_LINES}
    return with_fields(loop, loop_var=i, body=tirx.SeqStmt([*bound, loop.body]), annotations=annotations)
