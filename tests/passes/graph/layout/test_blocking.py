"""Copies between row-major and blocked layout."""

from __future__ import annotations

import pytest
from tvm import relax, tirx

from nnefc.passes.graph.layout.blocking import to_blocks, to_row_major
from nnefc.symbolic.dims import Range, ranges


@pytest.mark.parametrize(
    ("minimum", "kernels"), [(1, ["block", "unblock"]), (16, ["view", "block", "view", "view", "unblock", "view"])]
)
def test_tiles_are_transposed_where_there_are_positions_enough(minimum: int, kernels: list[str]) -> None:
    """Tiles are of 16 positions; what may be fewer is copied element by element."""
    w = tirx.Var("w", "int64")
    with ranges({w: Range(minimum, 64, 64)}):
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((1, 32, 1, w), "int8"))
        with builder.function("main", [x]):
            with builder.dataflow():
                result = builder.emit_output(to_row_major(builder, to_blocks(builder, x, 16), 32))
            builder.emit_func_output(result)
        main = builder.get()["main"]
    called = [str(b.value.args[0].name_hint).rstrip("0123456789") for b in main.body.blocks[0].bindings[:-1]]
    assert called == kernels
