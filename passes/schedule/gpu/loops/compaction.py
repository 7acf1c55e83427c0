"""Schedules loops that append the elements that a condition selects: each thread counts those before its own.

    count[0] = 0                                    in one block:
    for i in range(n):                                  total = 0
        if condition(i):                      →         for tile in range(n / 1024):
            found[count[0]] = value(i)                      i = tile * 1024 + thread
            count[0] += 1                                   if condition(i): found[total + those before i] = value(i)
                                                            total += those of the tile
                                                        count[0] = total

The results are in the order of the loop. A tile costs two barriers, and one load from memory that is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import s_tir, tirx
from tvm.ir.expr import TensorLoad

from nnefc.ir.gpu_operators import rank
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.gpu.nest import Nest, kernel_schedule, load, sequence, store
from nnefc.passes.schedule.loop_nests import nest_of, statements_of
from nnefc.passes.tir.common.expressions import int64, is_number, loads_of, number, substituted
from nnefc.passes.tir.common.shapes import size_of
from nnefc.symbolic.dims import ceil_div
from nnefc.targets.machine.gpu.description import WARP
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["CompactionRule"]

_THREADS = 1024


class CompactionRule:
    """A loop that does nothing but append some of its values to a tensor, and count them."""

    def apply(self, kernel: KernelAnalysis, _target: GpuTarget) -> s_tir.Schedule | None:
        statements = statements_of(kernel.func)
        selection = _Selection.of(statements) if statements is not None else None
        if selection is None:
            return None
        return kernel_schedule(kernel.func, kernel.func.params, [selection.launch()])


@dataclass(frozen=True)
class _Selection:
    """The loop.

    Attributes:
        condition: selects values of the loop's variable.
        found, value: the tensor, and what is appended to it.
        count: the tensor of one element that becomes the number of values.
    """

    loop: tirx.For
    condition: tirx.Expr
    found: tirx.Var
    value: tirx.Expr
    count: tirx.Var

    @classmethod
    def of(cls, statements: Sequence[tirx.Stmt]) -> _Selection | None:
        """Returns the loop that statements are; None if they are something else."""
        match statements:
            case [
                tirx.BufferStore() as first,
                tirx.For(
                    body=tirx.IfThenElse(
                        then_case=tirx.SeqStmt(seq=[tirx.BufferStore() as appended, tirx.BufferStore() as increment]),
                        else_case=None,
                    )
                ) as loop,
            ] if nest_of(loop) and size_of(loop.extent) != 0:
                pass
            case _:
                return None
        count = first.buffer

        def is_count(expr: tirx.Expr) -> bool:
            return isinstance(expr, TensorLoad) and expr.source.same_as(count) and is_number(expr.indices[0], 0)

        is_appended = len(appended.indices) == 1 and is_count(appended.indices[0])
        next_count = increment.value
        is_next = isinstance(next_count, tirx.Add) and is_count(next_count.a) and is_number(next_count.b, 1)
        begins = is_number(first.value, 0) and is_number(first.indices[0], 0)
        ends = increment.buffer.same_as(count) and is_number(increment.indices[0], 0)
        found = cls(loop, loop.body.condition, appended.buffer, appended.value, count)
        return found if is_appended and is_next and begins and ends and found._reads_others() else None

    def _reads_others(self) -> bool:
        """Whether no iteration reads what another one writes."""
        written = (self.found, self.count)
        reads = (each.source for expr in (self.condition, self.value) for each in loads_of(expr))
        return not self.found.same_as(self.count) and not any(source.same_as(w) for source in reads for w in written)

    def launch(self) -> tirx.Stmt:
        """Returns the launch of one block."""
        nest, size = Nest(), size_of(self.loop.extent)
        of_warps = nest.buffer("of_warps", _THREADS // WARP, "int32", "shared")
        selected, before, of_tile, total = (
            nest.buffer(name, 1, "int32", "local") for name in ("selected", "rank", "of_tile", "total")
        )
        only = number(0)

        def body(_block: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
            def tile(index: tirx.Expr) -> tirx.Stmt:
                position = index * number(_THREADS) + thread
                here = {self.loop.loop_var: position.astype("int64")}
                condition = substituted(self.condition, here).astype("int32")
                addresses = (tirx.address_of(load(of_warps, only)), tirx.address_of(load(of_tile, only)))
                earlier = rank(load(selected, only), *addresses, _THREADS)
                append = store(self.found, substituted(self.value, here), load(total, only) + load(before, only))
                return sequence(
                    store(selected, tirx.if_then_else(position < number(size), condition, only), only),
                    store(before, earlier, only),
                    tirx.IfThenElse(tirx.NE(load(selected, only), only), append, None),
                    store(total, load(total, only) + load(of_tile, only), only),
                )

            end = store(self.count, load(total, only).astype("int64"), int64(0))
            return sequence(
                tirx.IfThenElse(thread < number(_THREADS // WARP), store(of_warps, only, thread), None),  # all of it
                store(total, only, only),
                nest.rolled(ceil_div(size, _THREADS), tile, "tile"),
                tirx.IfThenElse(tirx.EQ(thread, only), end, None),
            )

        return nest.launch(1, _THREADS, body)
