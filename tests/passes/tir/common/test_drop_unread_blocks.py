"""What computes a tensor of a kernel's own that nothing reads is removed, with what was read by it alone."""

from __future__ import annotations

from tvm import s_tir, te

from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.drop_unread_blocks import drop_unread_blocks


def test_blocks_that_nothing_reads_are_removed_with_those_that_they_alone_read() -> None:
    x = te.placeholder((4,), name="x")
    first = te.compute((4,), lambda i: x[i] + 1, name="first")
    second = te.compute((4,), lambda i: first[i] * 2, name="second")
    result = te.compute((4,), lambda i: x[i] - 1, name="result")
    func = te.create_prim_func([x, second, result])
    assert drop_unread_blocks(func).same_as(func), "a parameter is a result"

    root = func.body.block
    own = with_fields(root, alloc_buffers=[*root.alloc_buffers, func.params[1]])
    realized = s_tir.SBlockRealize(func.body.iter_values, func.body.predicate, own)
    unread = with_fields(func, params=[func.params[0], func.params[2]], body=realized)
    dropped = drop_unread_blocks(unread)
    assert not dropped.body.block.alloc_buffers
    assert [name in str(dropped) for name in ("first", "second", "result")] == [False, False, True]
