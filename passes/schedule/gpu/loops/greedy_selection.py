"""Schedules loops that select elements greedily: the best that is left, then those that the selected ones leave.

    for line in lines:                              for line in blockIdx.x:
        left = [box for box if candidate(box)]          order = sorted candidates               all threads
        while left and selected < maximum:              for tile of 32 boxes of order:
            best = max(left, key=score)         →           conflicts = bits of a matrix        all threads
            append (line, best)                             selected += boxes without a conflict
            left = [box for box in left             for line in blockIdx.x:
                    if box != best                      append the line's boxes behind those of earlier lines
                    and stays(box, best)]

A box is selected if it stays next to all that were selected before it. So the boxes of a tile are compared with those
and with each other at once, and only a loop over bits goes from box to box. Of equal scores the first box comes first,
so that the order has no ties: results are those of the loop. Memory is linear in the number of boxes.

Source: K. E. Batcher, "Sorting networks and their applications" (1968). In each step the lower index gets the element
that comes first; so any number of elements can be sorted, as those that would lie behind the end never move.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir, tirx

from nnefc.ir.gpu_operators import rank
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.gpu.loops.greedy_loop import GreedyLoop
from nnefc.passes.schedule.gpu.nest import Nest, buffer, kernel_schedule, load, sequence, store, synchronize, warp_sum
from nnefc.passes.tir.common.expressions import int64, number
from nnefc.passes.tir.common.shapes import elements_of
from nnefc.symbolic.dims import bounds, ceil_div, greatest, size_hint
from nnefc.targets.machine.gpu.description import WARP
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["GreedySelectionRule"]

_MIN_THREADS, _MAX_THREADS = 64, 512  # of a block
_ELEMENTS_OF_A_THREAD = 4
_ONLY = number(0)  # the index of a variable of one thread


class GreedySelectionRule:
    """A loop over lines that selects elements of each greedily, as non-maximum suppression does."""

    def apply(self, kernel: KernelAnalysis, _target: GpuTarget) -> s_tir.Schedule | None:
        func = kernel.func
        loop = GreedyLoop.of(func)
        if loop is None:
            return None
        order = buffer("order", loop.lines * loop.count, "int32")
        selected = buffer("selected", loop.lines, "int32")
        launches = [_select(loop, order, selected), _append(loop, order, selected)]
        return kernel_schedule(func, func.params, launches, [order, selected])


def _select(loop: GreedyLoop, order: tirx.Var, selected: tirx.Var) -> tirx.Stmt:
    """Returns the launch of a block for each line.

    Args:
        order: `[lines, count]`; each line begins with its selected elements after the launch, the best first.
        selected: `[lines]`: how many these are.
    """
    nest = Nest()
    threads = 1 << (size_hint(loop.count) // _ELEMENTS_OF_A_THREAD).bit_length()
    threads = max(_MIN_THREADS, min(_MAX_THREADS, threads))
    found, taken = (nest.buffer(name, 1, "int32", "local") for name in ("found", "taken"))

    def body(line: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
        of_line = _Line(loop, nest, threads, order, found, taken, line, thread)
        end = store(selected, load(taken, _ONLY), line)
        return sequence(
            of_line.collect(), of_line.sort(), of_line.take(), tirx.IfThenElse(tirx.EQ(thread, _ONLY), end, None)
        )

    return nest.launch(loop.lines, threads, body)


@dataclass(frozen=True)
class _Line:
    """What a block does for its line.

    Attributes:
        threads: of the block, a power of two.
        order: elements of all lines.
        found, taken: variables that have the same value in all threads: how many elements are candidates, and how many
            are selected.
        line, thread: indices of the block and of the thread in it.
    """

    loop: GreedyLoop
    nest: Nest
    threads: int
    order: tirx.Var
    found: tirx.Var
    taken: tirx.Var
    line: tirx.Expr
    thread: tirx.Expr

    def _index(self, position: tirx.Expr) -> tirx.Expr:
        """Returns where in `order` a position of the line is."""
        return self.line * number(self.loop.count) + position

    def collect(self) -> tirx.Stmt:
        """Returns the statements that write the candidates to `order`, in any order, and count them."""
        of_warps = self.nest.buffer("of_warps", self.threads // WARP, "int32", "shared")
        chosen, before, of_tile = (
            self.nest.buffer(name, 1, "int32", "local") for name in ("chosen", "before", "of_tile")
        )
        found = load(self.found, _ONLY)

        def tile(tile: tirx.Expr) -> tirx.Stmt:
            element = tile * number(self.threads) + self.thread
            condition = self.loop.at_line(self.loop.is_candidate, self.line, {self.loop.box: element}).astype("int32")
            counts, count = (tirx.address_of(load(buffer, _ONLY)) for buffer in (of_warps, of_tile))
            append = store(self.order, element, self._index(found + load(before, _ONLY)))
            return sequence(
                store(chosen, tirx.if_then_else(element < number(self.loop.count), condition, _ONLY), _ONLY),
                store(before, rank(load(chosen, _ONLY), counts, count, self.threads), _ONLY),
                tirx.IfThenElse(tirx.NE(load(chosen, _ONLY), _ONLY), append, None),
                store(self.found, found + load(of_tile, _ONLY), _ONLY),
            )

        zero = store(of_warps, _ONLY, self.thread)  # TVM makes buffers as small as the code names them
        return sequence(
            tirx.IfThenElse(self.thread < number(self.threads // WARP), zero, None),
            store(self.found, _ONLY, _ONLY),
            self.nest.rolled(ceil_div(self.loop.count, self.threads), tile, "tile"),
            synchronize(),
        )

    def sort(self) -> tirx.Stmt:
        """Returns the statements that sort the candidates by descending scores, equal ones by their indices."""
        former, latter = (self.nest.buffer(name, 1, "int32", "local") for name in ("former", "latter"))
        one, found = number(1), load(self.found, _ONLY)

        def stage(stage: tirx.Expr) -> tirx.Stmt:
            """Merges runs of `2 ** stage` elements."""

            def step(step: tirx.Expr) -> tirx.Stmt:
                """Compares elements that are `distance` apart; at first each with the one opposite to it."""
                bits = stage - step
                distance = tirx.shift_left(one, bits)
                pairs = tirx.shift_left(tirx.shift_right(found + distance * 2 - one, bits + one), bits)

                def pair(index: tirx.Expr) -> tirx.Stmt:
                    position = index * number(self.threads) + self.thread
                    inside = tirx.bitwise_and(position, distance - one)
                    low = (position - inside) * 2 + inside
                    high = low + tirx.Select(tirx.EQ(step, _ONLY), distance * 2 - one - inside * 2, distance)
                    swap = sequence(
                        store(self.order, load(latter, _ONLY), self._index(low)),
                        store(self.order, load(former, _ONLY), self._index(high)),
                    )
                    compare = sequence(
                        store(former, load(self.order, self._index(low)), _ONLY),
                        store(latter, load(self.order, self._index(high)), _ONLY),
                        tirx.IfThenElse(self._comes_first(load(latter, _ONLY), load(former, _ONLY)), swap, None),
                    )
                    return tirx.IfThenElse(high < found, compare, None)

                return sequence(self.nest.until(_ceil_div(pairs, self.threads), pair, "pair"), synchronize())

            merge = self.nest.until(stage + one, step, "step")
            return tirx.IfThenElse(tirx.shift_left(one, stage) < found, merge, None)

        stages = (bounds(self.loop.count)[1] - 1).bit_length()
        return self.nest.rolled(stages, stage, "stage") if stages else tirx.Evaluate(_ONLY)

    def _comes_first(self, one: tirx.Expr, other: tirx.Expr) -> tirx.Expr:
        """Returns whether an element comes before another."""
        score, others = (self.loop.at_line(self.loop.score, self.line, {self.loop.box: x}) for x in (one, other))
        return tirx.any(score > others, tirx.all(tirx.EQ(score, others), one < other))

    def take(self) -> tirx.Stmt:
        """Returns the statements that move the selected of the sorted elements to the line's beginning, and count
        them."""
        maximum = self.loop.at_line(self.loop.maximum, self.line)
        conflicts = self.nest.buffer("conflicts", self.threads, "uint32", "shared")
        own = self.nest.buffer("own", 1, "int32", "local")
        word, bits = (self.nest.buffer(name, 1, "uint32", "local") for name in ("word", "bits"))
        lane, taken = tirx.floormod(self.thread, number(WARP)), load(self.taken, _ONLY)
        in_first_warp = self.thread < number(WARP)

        def join(group: tirx.Expr) -> tirx.Stmt:
            return _note(word, load(conflicts, group * number(WARP) + lane))

        def walk(index: tirx.Expr) -> tirx.Stmt:
            against = tirx.bitwise_or(load(bits, _ONLY), _bit(index))
            is_free = tirx.EQ(tirx.bitwise_and(load(conflicts, index), against), _word(0))
            return tirx.IfThenElse(is_free, _note(bits, _bit(index)), None)

        def tile(tile: tirx.Expr) -> tirx.Stmt:
            all_words = sequence(
                self.nest.rolled(self.threads // WARP, join, "group"), store(conflicts, load(word, _ONLY), self.thread)
            )
            before = tirx.bitwise_and(load(bits, _ONLY), _bit(lane) - _word(1))
            position = taken + tirx.popcount(before).astype("int32")
            is_selected = tirx.NE(tirx.bitwise_and(load(bits, _ONLY), _bit(lane)), _word(0))
            move = store(self.order, load(own, _ONLY), self._index(position))
            more = taken + tirx.popcount(load(bits, _ONLY)).astype("int32")
            return sequence(
                self._compare(tile * number(WARP), lane, own, word),
                store(conflicts, load(word, _ONLY), self.thread),
                synchronize(),
                tirx.IfThenElse(in_first_warp, all_words, None),
                synchronize(),
                store(bits, _word(0), _ONLY),
                self.nest.unrolled(WARP, walk, "walk"),
                tirx.IfThenElse(tirx.all(in_first_warp, is_selected, position.astype("int64") < maximum), move, None),
                store(self.taken, tirx.min(more.astype("int64"), maximum).astype("int32"), _ONLY),
                synchronize(),
            )

        def unless_full(index: tirx.Expr) -> tirx.Stmt:
            return tirx.IfThenElse(taken.astype("int64") < maximum, tile(index), None)

        tiles = _ceil_div(load(self.found, _ONLY), WARP)
        return sequence(store(self.taken, _ONLY, _ONLY), self.nest.until(tiles, unless_full, "tile"))

    def _compare(self, start: tirx.Expr, lane: tirx.Expr, own: tirx.Var, word: tirx.Var) -> tirx.Stmt:
        """Returns the statements that compare the elements of a tile with those selected, and with each other.

        A thread has the element of its lane, and a share of those that it is compared with, as all warps have one. A
        bit of its word says that the element has a conflict with another one of the tile before it; its own bit, with
        one that is selected, or that there is no such element.
        """
        groups = self.threads // WARP
        group, taken = tirx.floordiv(self.thread, number(WARP)), load(self.taken, _ONLY)

        def compare(index: tirx.Expr) -> tirx.Stmt:
            other = index * number(groups) + group
            is_selected = other < taken
            position = tirx.Select(is_selected, other, start + other - taken)
            pair = {self.loop.box: load(own, _ONLY), self.loop.best: load(self.order, self._index(position))}
            stays = self.loop.at_line(self.loop.stays, self.line, pair)
            bit = _bit(tirx.Select(is_selected, lane, other - taken))
            note = _note(word, tirx.Select(stays, _word(0), bit))  # TVM takes `not a > b` for `a <= b`, NaN or not
            return tirx.IfThenElse(other < taken + lane, note, None)

        element = start + lane
        compared = sequence(
            store(own, load(self.order, self._index(element)), _ONLY),
            self.nest.until(_ceil_div(taken + number(WARP - 1), groups), compare, "other"),
        )
        return sequence(
            store(word, _word(0), _ONLY),
            tirx.IfThenElse(element < load(self.found, _ONLY), compared, _note(word, _bit(lane))),
        )


def _append(loop: GreedyLoop, order: tirx.Var, selected: tirx.Var) -> tirx.Stmt:
    """Returns the launch of a warp for each line, which writes its rows behind those of the lines before.

    Where there are no lines, one warp writes that there are no rows.
    """
    nest, width, blocks = Nest(), len(loop.columns) + 1, greatest(1, loop.lines)
    before = nest.buffer("rows_before", 1, "int32", "local")

    def body(line: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
        count = tirx.if_then_else(line < number(loop.lines), load(selected, line), _ONLY)
        end = load(before, _ONLY) + count

        def add(index: tirx.Expr) -> tirx.Stmt:
            other = index * number(WARP) + thread
            more = store(before, load(before, _ONLY) + load(selected, other), _ONLY)
            return tirx.IfThenElse(other < line, more, None)

        def row(index: tirx.Expr) -> tirx.Stmt:
            position = index * number(WARP) + thread
            first = (load(before, _ONLY) + position) * number(width)
            element = load(order, line * number(loop.count) + position).astype("int64")
            values = [*(loop.at_line(value, line) for value in loop.columns), element]
            stores = (store(loop.rows, value, first + number(k)) for k, value in enumerate(values))
            return tirx.IfThenElse(position < count, sequence(*stores), None)

        def fill(index: tirx.Expr) -> tirx.Stmt:
            at = end * number(width) + index * number(WARP) + thread
            return tirx.IfThenElse(at < elements, store(loop.rows, int64(0), at), None)

        elements = number(elements_of(loop.rows))
        last = sequence(
            tirx.IfThenElse(tirx.EQ(thread, _ONLY), store(loop.total, end.astype("int64"), _ONLY), None),
            nest.until(_ceil_div(elements - end * number(width), WARP), fill, "zero") if loop.is_filled else None,
        )
        return sequence(
            store(before, _ONLY, _ONLY),
            nest.until(_ceil_div(line, WARP), add, "line"),
            warp_sum(nest, before, _ONLY),
            nest.until(_ceil_div(count, WARP), row, "row"),
            tirx.IfThenElse(tirx.EQ(line, number(blocks) - number(1)), last, None),
        )

    return nest.launch(blocks, WARP, body)


def _ceil_div(count: tirx.Expr, divisor: int) -> tirx.Expr:
    return tirx.floordiv(count + number(divisor - 1), number(divisor))


def _word(value: int) -> tirx.Expr:
    return tirx.const(value, "uint32")


def _bit(index: tirx.Expr) -> tirx.Expr:
    return tirx.shift_left(_word(1), index.astype("uint32"))


def _note(word: tirx.Var, bits: tirx.Expr) -> tirx.Stmt:
    """Returns the statement that sets bits of a variable."""
    return store(word, tirx.bitwise_or(load(word, _ONLY), bits), _ONLY)
