"""Disables LLVM's unrolling of loops over tail tiles and padding.

    for k in 16:                              for k in 16:
        for r in unrolled(2):       →             nnefc_round()                # no instruction, and cannot be copied
            c[r] = c[r] + A[k + 16 r]             for r in unrolled(2):
                                                      c[r] = c[r] + A[k + 16 r]

Behaviour of LLVM 22: it unrolls innermost loops of small trip counts four to sixteen times, after a schedule has
unrolled what it wants to be unrolled. The copies of tail tiles take longer to compile than the full tile, and are no
faster. So are those of loops that fill the padding of an image, each of a few stores: their copies took up to 0.3 s of
a kernel. Loops over full tiles are left to LLVM: networks of small kernels are a tenth slower without its copies.

TVM 0.27 writes no metadata `llvm.loop.unroll.disable` for a loop, so that an empty inline assembly that LLVM must not
duplicate (`noduplicate`) stands in each iteration instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from nnefc.ir.attributes import DYNAMIC_SHAPES, TAIL_TILE
from nnefc.ir.rebuild import with_fields

__all__ = ["MARK", "MARK_TEXT", "disable_unrolling"]

MARK = "nnefc_round"
MARK_TEXT = f"""
define linkonce_odr hidden void @{MARK}() alwaysinline {{
  call void asm sideeffect "", ""() noduplicate nounwind memory(inaccessiblemem: readwrite)
  ret void
}}
"""
_COPIED = (tirx.ForKind.UNROLLED, tirx.ForKind.VECTORIZED)


def disable_unrolling(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a lowered kernel of dynamic sizes with such loops; any other kernel unchanged."""
    if DYNAMIC_SHAPES not in func.attrs:
        return func
    kernel = _Kernel()
    body, _ = kernel.statement(func.body, False)
    if not kernel.changed:
        return func
    body = tirx.AttrStmt("default", "pragma_import_llvm", MARK_TEXT, body)
    return with_fields(func, body=body)


@dataclass(frozen=True)
class _Found:
    """The loops and accesses in a statement.

    Attributes:
        loops: whether loops that stay loops are.
        tiles: whether loops that the schedule has unrolled are.
        values: whether anything but constants is written.
    """

    loops: bool = False
    tiles: bool = False
    values: bool = False


class _Kernel:
    """Rewrites statements; `changed` records whether any was.

    Attributes:
        changed: whether any is.
    """

    def __init__(self) -> None:
        self.changed = False

    def statement(self, stmt: tirx.Stmt, smaller: bool) -> tuple[tirx.Stmt, _Found]:
        """Returns a statement, within a tail tile or not, and the loops and accesses in it."""
        match stmt:
            case tirx.SeqStmt():
                parts = [self.statement(part, smaller) for part in stmt.seq]
                return tirx.SeqStmt([part for part, _ in parts]), _joined([found for _, found in parts])
            case tirx.IfThenElse():
                then, found = self.statement(stmt.then_case, smaller)
                tail, others = (None, _Found()) if stmt.else_case is None else self.statement(stmt.else_case, smaller)
                return tirx.IfThenElse(stmt.condition, then, tail), _joined([found, others])
            case tirx.AttrStmt():
                body, found = self.statement(stmt.body, smaller)
                return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, body), found
            case tirx.For() if stmt.kind in _COPIED:
                return stmt, _Found(tiles=stmt.kind == tirx.ForKind.UNROLLED, values=True)
            case tirx.For():
                return self._loop(stmt, smaller or TAIL_TILE in stmt.annotations)
            case tirx.While():
                return stmt, _Found(loops=True, values=True)
            case tirx.BufferStore():
                return stmt, _Found(values=not isinstance(stmt.value, tirx.Broadcast))
        return stmt, _Found(values=True)

    def _loop(self, loop: tirx.For, smaller: bool) -> tuple[tirx.For, _Found]:
        body, found = self.statement(loop.body, smaller)
        rolled = (smaller and found.tiles) or not found.values
        if loop.kind == tirx.ForKind.SERIAL and not found.loops and rolled:
            self.changed = True
            mark = tirx.Evaluate(tirx.call_extern("void", MARK))
            body = tirx.SeqStmt([mark, *(body.seq if isinstance(body, tirx.SeqStmt) else [body])])
        made = with_fields(loop, body=body)
        return made, _Found(loops=True, values=True)


def _joined(parts: list[_Found]) -> _Found:
    return _Found(
        any(part.loops for part in parts), any(part.tiles for part in parts), any(part.values for part in parts)
    )
