"""Lines of images in groups that a cache holds: each for all panels, each once."""

import numpy as np
import pytest
import tvm
from tir_programs import function
from tvm import tirx

from nnefc.passes.tir.common.group_lines import group_lines

PANELS, HELD = 3, 8
PRODUCT = f"""
    order: T.Buffer((T.int64(999),), "int64"), count: T.Buffer((T.int64(1),), "int64"), lines: T.int64, q: T.int64
    for i in T.parallel(lines * T.int64({PANELS}), annotations={{"nnefc.grouped_lines": [{PANELS}, {HELD}]}}):
        for tile in range(q):
            if tile == T.int64(0):
                order[count[0]] = i
                count[0] = count[0] + T.int64(1)
"""


def serial(loop: tirx.For) -> tirx.For:
    return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)


@pytest.mark.parametrize(
    ("lines", "tiles", "together"), [(0, 1, 8), (7, 2, 4), (8, 3, 2), (5, 9, 1), (3, 1, 8), (2, 0, 8)]
)
def test_all_panels_of_a_group_come_before_the_next_group(lines: int, tiles: int, together: int) -> None:
    func = function(PRODUCT)
    grouped = group_lines(func.body)
    assert not grouped.annotations
    run = tvm.compile(tirx.PrimFunc(func.params, serial(grouped), func.ret_type, func.attrs), "llvm")["main"]
    order, count = (tvm.runtime.tensor(np.zeros(size, np.int64)) for size in (999, 1))
    run(order, count, lines, tiles)
    groups = [range(first, min(first + together, lines)) for first in range(0, lines, together)]
    expected = [panel * lines + line for group in groups for panel in range(PANELS) for line in group]
    assert order.numpy()[: count.numpy()[0]].tolist() == (expected if tiles else [])
