from __future__ import annotations

import pytest
import tvm_ffi
from tvm import s_tir, tirx

from nnefc.ir.rebuild import loop_nest, nested, root_block, with_fields

ROW, COLUMN, N = (tirx.Var(name, "int64") for name in ("row", "column", "n"))
DATA = tirx.decl_buffer((8,), "float32", "data")
STORE = tirx.BufferStore(DATA, tirx.const(1.0, "float32"), [ROW])
MARK = {"mark": tirx.IntImm("int32", 1)}


def test_a_field_that_is_not_named_is_kept() -> None:
    loop = tirx.For(ROW, N, N + 1, tirx.ForKind.PARALLEL, STORE, annotations=MARK, step=tirx.IntImm("int64", 2))
    expected = tirx.For(ROW, N, N, tirx.ForKind.PARALLEL, STORE, annotations=MARK, step=tirx.IntImm("int64", 2))
    assert tvm_ffi.structural_equal(with_fields(loop, extent=N), expected)


def test_a_block_and_a_function_keep_their_other_fields_too() -> None:
    block = s_tir.SBlock([], [], [], "block", STORE, None, [DATA], None, MARK)
    changed = with_fields(block, name_hint="other")
    assert (changed.name_hint, list(changed.alloc_buffers), list(changed.annotations)) == ("other", [DATA], ["mark"])
    func = tirx.PrimFunc([DATA], STORE).with_attr("global_symbol", "f")
    assert with_fields(func, body=changed.body).attrs["global_symbol"] == "f"


def test_there_is_no_field_of_another_name() -> None:
    with pytest.raises(AssertionError, match="bodies"):
        with_fields(tirx.For(ROW, N, N, tirx.ForKind.SERIAL, STORE), bodies=STORE)


def test_loops_are_built_from_the_outermost_and_copied_around_another_body() -> None:
    nest = loop_nest([ROW, COLUMN], [4, N], STORE)
    assert (nest.loop_var, int(nest.extent), nest.body.loop_var, nest.body.extent) == (ROW, 4, COLUMN, N)
    copy = nested([nest, nest.body], root_block(STORE), kind=tirx.ForKind.UNROLLED)
    assert (copy.kind, copy.body.kind) == (tirx.ForKind.UNROLLED, tirx.ForKind.UNROLLED)
    assert copy.body.body.block.name_hint == "root"
