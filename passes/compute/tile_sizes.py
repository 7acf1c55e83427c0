"""Chooses the sizes of register tiles, for static and dynamic extents.

The full tiles of a dynamic extent are followed by smaller tail tiles, so that both 8 and 33 rows are computed with few
wasted rows.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from nnefc.passes.tir.cpu.microkernels import aarch64_fma as lane_code
from nnefc.passes.tir.cpu.microkernels import aarch64_smull as pair_code
from nnefc.passes.tir.cpu.microkernels import arm32_smlad as arm32_code
from nnefc.passes.tir.cpu.microkernels.aarch64_instructions import MultiplyAdd, is_long, product_of
from nnefc.passes.tir.cpu.microkernels.aarch64_loop import Accumulation, LoopCode
from nnefc.symbolic.dims import Size, bounds, size_hint
from nnefc.targets.machine.cpu.target import Target

__all__ = [
    "FEW_ROWS",
    "USUAL_EXTENTS",
    "USUAL_IMAGES",
    "RegisterTile",
    "Spread",
    "choose_dynamic_tile",
    "choose_few_rows",
    "choose_tile",
    "choose_uneven_tile",
    "full_blocks",
    "loaded_together",
]

_MAX_ROWS = 32
_CODE = 0.0015  # of the time: what a register of a smaller tile must be worth, for its code takes time to compile
_APART = 1 << 16  # vectors, from one block to the next
_TERMS = 8  # of each accumulator per iteration
_FEW_STEPS = 3  # of a vector: with more, a tile of one column saves more than sums on the stack cost
_FEWER_TERMS = 2  # where not so many rows of B can be read
_SECOND_TILE = 0.02  # of the time: what a tile of another size must save, for its code
_USUAL = 4  # how much more multiples of 8 count than others, for which tiles are chosen too,
_HALVED = 8  # and 7, 14, 28, …
USUAL_EXTENTS = range(1, 129)
"""Dynamic extents that tiles are chosen for: in larger ones, the tail is negligible."""

FEW_ROWS = range(1, 8)
"""Dynamic extents for which kernels of few rows are chosen."""


USUAL_IMAGES = range(16, 257)
"""Dynamic numbers of pixels that tiles are chosen for: images have at least 4 × 4 pixels."""


@dataclass(frozen=True)
class RegisterTile:
    """A tile of results in registers: rows (of the last two axes of A alone) and columns (vectors of B)."""

    outer_rows: int
    rows: int
    columns: int

    def cycles(self, target: Target, steps: int = 0, spread: float = 0.0, pitches: tuple[int, int] = (0, 0)) -> float:
        """Estimates the cycles that one iteration of the sum takes.

        It takes one multiply-add a register of the tile, and loads one value a row, and one vector a column, which
        comes from the second cache if the filter is not tiny. What a vector is computed with takes `steps` more, and
        bringing a value or a vector in the form that is multiplied `spread` multiply-adds. Rows that evict each other
        from the first cache come from the second one, too.

        Args:
            pitches: bytes from one outer row of A to the next, and from one row to the next; 0 if they are unknown.
        """
        costs, rows = target.costs, self.outer_rows * self.rows
        spread_rows = costs.loops.lane_share * rows if target.vectors.by_lane else rows
        work = ((rows + steps) * self.columns + spread * (spread_rows + self.columns)) / costs.multiply_adds
        numbers = target.lanes("float32") * costs.loads if target.vectors.by_lane else costs.broadcasts
        loading = rows / numbers + self.columns / costs.loads
        streaming = self.columns * target.vectors.bytes / costs.l2_bytes_per_cycle
        kept = self._registers(target, spread) + costs.loops.kept_vectors * self.columns
        waiting = costs.latency + (costs.loops.spill_cycles if 0 < target.vectors.kept_registers < kept else 0)
        missing = self._evicted(target, pitches) * costs.line_bytes / costs.l2_bytes_per_cycle
        missing /= target.lanes("float32") if target.vectors.by_lane else 1
        cycles = max(work, loading, streaming, waiting) + missing + costs.loops.iteration_cycles
        return cycles * costs.loops.conversion if target.vectors.narrows_sums and self.columns % 2 else cycles

    def share(self, target: Target, steps: int = 0, spread: float = 0.0, pitches: tuple[int, int] = (0, 0)) -> float:
        """Estimates the share of peak performance."""
        products = self.outer_rows * self.rows * self.columns
        return products / target.costs.multiply_adds / self.cycles(target, steps, spread, pitches)

    def fits(self, target: Target, steps: int = 0, spread: float = 0.0) -> bool:
        """Whether the vector registers hold the accumulators and the operands that are loaded for them.

        Where columns are computed in `steps`, the first cache holds lines of all rows of A: their columns are few.
        """
        if steps and self.outer_rows * self.rows > target.costs.l1_ways:
            return False
        # one for a product on its way to the sum, if that is not among those that are not kept
        registers = target.vectors.registers - (0 if target.vectors.fused or target.vectors.kept_registers else 1)
        if self.columns == 1 and not spread and steps <= _FEW_STEPS:
            registers -= target.quirks.spare_registers
        # Each column is read along a line of its own, and these often map to the same few cache sets.
        max_columns = max(2, target.costs.l1_ways - 2)
        return self._registers(target, spread) <= registers and self.columns <= max_columns

    def _evicted(self, target: Target, pitches: tuple[int, int]) -> int:
        """Returns how many lines of A, one for each row, exceed the ways of their sets in the L1 cache.

        So it is where rows are a multiple of what one way holds, such as 4 KB, or a large part of it, apart.
        """
        costs = target.costs
        positions = product(range(self.outer_rows), range(self.rows))
        lines = {(i * pitches[0] + j * pitches[1]) // costs.line_bytes for i, j in positions}
        of_sets = Counter(line % (costs.l1_bytes // costs.l1_ways // costs.line_bytes) for line in sorted(lines))
        return sum(max(0, count - costs.l1_ways) for count in of_sets.values())

    def _registers(self, target: Target, spread: float) -> int:
        """Return the vector registers that a tile needs: its accumulators and the operands that are loaded for them."""
        rows = self.outer_rows * self.rows
        if spread:  # two halves of each vector, two of a value, and products on their way
            return rows * self.columns + 2 * self.columns + 6 + (rows if target.vectors.by_lane else 0)
        factors = rows if target.vectors.by_lane else 0 if target.vectors.by_scalar else 1
        return rows * self.columns + self.columns + factors


@lru_cache(maxsize=1 << 12)
def choose_tile(
    outer_extent: int,
    extent: int,
    columns: int,
    target: Target,
    steps: int = 0,
    spread: float = 0.0,
    pitches: tuple[int, int] = (0, 0),
) -> RegisterTile:
    """Returns the best tile whose sides divide the extents and which fits into the registers; see
    :meth:`RegisterTile.cycles`.
    """

    def rank(tile: RegisterTile) -> tuple[float, int]:
        # Columns come from an outer cache, rows mostly from the first.
        return tile.share(target, steps, spread, pitches), -(tile.outer_rows * tile.rows + 2 * tile.columns)

    sides = product(*map(_divisors, (outer_extent, extent, columns)))
    # Sums alone exceed the registers of nearly all tiles.
    candidates = (RegisterTile(a, b, c) for a, b, c in sides if a * b * c <= target.vectors.registers)
    return max((tile for tile in candidates if tile.fits(target, steps, spread)), key=rank)


def full_blocks(columns: int, target: Target) -> int:
    """Returns the number of column vectors that the sides of tiles have to divide: `columns`, or, where several ISA
    levels share blocks, the largest power of two up to 32 that divides it.

    Blocks of what levels of a library share may be several vectors of a level: 2, 4 or 8. The edge of a tile that has
    as many columns, or a power of two less or more, does not cut them.
    """
    if target.block_bytes <= target.vectors.bytes:
        return columns
    return next(count for count in (32, 16, 8, 4, 2, 1) if columns % count == 0)


def choose_uneven_tile(
    outer_extent: int, extent: int, columns: int, target: Target, kind: str = "float32", apart: bool = False
) -> tuple[RegisterTile, int]:
    """Returns the fastest tile, and the rows of the last tile if that is smaller; 0 where all tiles are equal.

    Products by lane, and those of several instructions, take the instructions that
    `passes/tir/cpu/microkernels/aarch64_fma.py` and its like emit: sums take all registers but a few.

    Args:
        kind: of products, see :func:`.aarch64_instructions.product_of`.
        apart: whether columns are in blocks of their own, and the vectors of the next term behind those of this one.
    """

    def cost(tile: RegisterTile) -> float:
        if not target.vectors.by_lane and not is_long(kind):
            rows = tile.outer_rows * tile.rows
            return tile.cycles(target) / (rows * tile.columns) if tile.fits(target) else math.inf
        # rows that are not neighbours have pointers of their own
        products = 8 * tile.outer_rows * tile.rows * tile.columns
        found = _in_assembler(tile.outer_rows * tile.rows, tile.columns, 0 if apart else columns, target, kind)
        return found + (tile.outer_rows - 1) / products

    def rank(choice: tuple[RegisterTile, int]) -> tuple[float, int]:
        tile, tail = choice
        whole = extent - tail
        found = whole * cost(tile) + (tail * cost(RegisterTile(1, tail, tile.columns)) if tail else 0)
        return found / extent + _SECOND_TILE * (tail > 0), -tile.rows

    found = [(RegisterTile(a, b, c), 0) for a, b, c in product(*map(_divisors, (outer_extent, extent, columns)))]
    found += [
        (RegisterTile(1, rows, count), extent % rows)
        for rows, count in product(range(2, min(extent, _MAX_ROWS)), _divisors(columns))
        if extent % rows and not target.small
    ]
    return min((choice for choice in found if math.isfinite(cost(choice[0]))), key=rank)


def loaded_together(target: Target) -> int:
    """Returns the number of vectors that one instruction loads: in-order cores wait for all of them, and are faster
    with two than with four.
    """
    return 2 if target.costs.in_order is not None else 4


@lru_cache(maxsize=1024)
def _in_assembler(rows: int, columns: int, pitch: int, target: Target, kind: str, rows_apart: bool = False) -> float:
    """Returns the instructions, or on in-order cores the cycles, for each product of a tile whose loop has several
    terms; infinity where the registers do not hold it.

    Args:
        pitch: vectors of a row of B; 0 for columns that are apart. Long rows need pointers of their own: fewer terms
            are in a round.
        kind: see :func:`choose_uneven_tile`.
        rows_apart: whether rows of A are, so that each needs a pointer of its own.
    """
    instruction = product_of(kind, target.vectors.scale)
    assert instruction is not None
    lanes, further = instruction.lanes, _APART if pitch == 0 else 1
    sums = [(row, column) for row in range(rows) for column in range(columns)]
    if len(sums) > target.vectors.registers - 2:
        return math.inf
    waiting = max(target.costs.latency * target.costs.multiply_adds / len(sums), 1.0)
    for terms in (_TERMS, _FEWER_TERMS):
        steps = tuple(
            Accumulation(
                (row * columns + column) * lanes,
                row * (_APART if rows_apart else terms) + term,
                (term * (pitch or 1) + column * further) * lanes,
            )
            for term in range(terms)
            for row, column in sums
        )
        code = _code_of(instruction, steps, terms * (pitch or 1) * target.vectors.bytes, target)
        if code is not None:
            return (code.cycles or code.instructions * waiting) / len(steps)
    return math.inf


def _code_of(product: MultiplyAdd, steps: tuple[Accumulation, ...], right_step: int, target: Target) -> LoopCode | None:
    if product.short:
        return arm32_code.code_of(product, steps, right_step, False)
    if product.long:
        return pair_code.code_of(product, steps, right_step, False, target.costs.in_order)
    return lane_code.code_of(product, steps, right_step, False, loaded_together(target))


def _divisors(extent: int) -> list[int]:
    """Returns the divisors of a size that a tile may have; 1 for a dynamic size with the hint 0."""
    return [d for d in range(1, max(1, min(size_hint(extent), _MAX_ROWS)) + 1) if extent % d == 0]


@dataclass(frozen=True)
class Spread:
    """The cost of bringing operands of a product into the form that instructions take.

    Attributes:
        cost: see `spread` of :meth:`RegisterTile.cycles`.
        kind: of products, see :func:`.aarch64_instructions.product_of`.
    """

    cost: float
    kind: str

    def fits(self, tile: RegisterTile, target: Target) -> bool:
        """Whether the registers hold a tile, as `passes/tir/cpu/microkernels/aarch64_smull.py` and `arm32_smlad.py`
        write it, for any layout of its rows.
        """
        return tile.fits(target, 0, self.cost) and math.isfinite(
            _in_assembler(tile.rows, tile.columns, 0, target, self.kind, True)
        )


def choose_dynamic_tile(
    extent: Size,
    columns: int,
    terms: int,
    target: Target,
    steps: int = 0,
    usual: range = USUAL_EXTENTS,
    spread: Spread | None = None,
    pitch: int = 0,
) -> tuple[RegisterTile, tuple[int, ...]]:
    """Returns the best tile of one row of a dynamic extent, and the rows of its tail tiles.

    Args:
        columns: vectors of B.
        terms: of a sum.
        steps: see :meth:`RegisterTile.cycles`.
        usual: extents that the tile is chosen for, as far as this one may have them.
        spread: where operands are brought in form before, how.
        pitch: bytes from one row of A to the next; 0 if they are unknown.
    """
    step = next(d for d in (32, 16, 8, 4, 2, 1) if extent % d == 0)
    minimum, maximum = (min(max(bound, usual.start), usual.stop - 1) for bound in bounds(extent))
    first = -(-minimum // step) * step
    return _best_for(
        range(first, max(maximum, first) + 1, step), tuple(_divisors(columns)), terms, target, steps, spread, pitch
    )


def choose_few_rows(columns: int, target: Target, spread: Spread | None = None) -> tuple[RegisterTile, tuple[int, ...]]:
    """Returns the best tile for few rows, as :func:`choose_dynamic_tile` does: each number of rows has a tile of its
    own, and B is read once.
    """
    *smaller, rows = FEW_ROWS
    tiles = [RegisterTile(1, rows, count) for count in _divisors(columns)]
    fitting = [tile for tile in tiles if _fits(tile, target, 0, spread)]
    best = max(
        fitting or [tile for tile in tiles if tile.fits(target, 0, _cost(spread))],  # assembler holds fewer rows
        key=lambda tile: tile.share(target, 0, _cost(spread)),
    )
    return best, tuple(reversed(smaller))


def _fits(tile: RegisterTile, target: Target, steps: int, spread: Spread | None) -> bool:
    return tile.fits(target, steps) if spread is None else spread.fits(tile, target)


def _cost(spread: Spread | None) -> float:
    return 0.0 if spread is None else spread.cost


@lru_cache(maxsize=1024)
def _best_for(
    extents: range, columns: tuple[int, ...], terms: int, target: Target, steps: int, spread: Spread | None, pitch: int
) -> tuple[RegisterTile, tuple[int, ...]]:
    """Returns the tile, with its tail tiles, that is fastest on average over these extents, weighted by how usual they
    are and by the size of the code.
    """
    candidates = _candidates(columns, target, steps, spread)
    found = _cycles(extents, columns, terms, target, steps, spread, pitch)
    weights = np.array([_HALVED if _is_halved_image(n) else _USUAL if n % 8 == 0 else 1 for n in extents])
    excess = found / found.min(axis=0) @ weights / weights.sum()
    code = [1 + _CODE * sum(smaller) * tile.columns for tile, smaller in candidates]
    return candidates[int(np.argmin(excess * code))]


def _is_halved_image(extent: int) -> bool:
    """Whether a size is 7, 14, 28, …: 224, the usual size of images, halved several times."""
    return 224 % extent == 0 and extent % 7 == 0


@lru_cache
def _candidates(
    columns: tuple[int, ...], target: Target, steps: int, spread: Spread | None
) -> list[tuple[RegisterTile, tuple[int, ...]]]:
    tiles = [RegisterTile(1, rows, count) for rows, count in product(range(1, _MAX_ROWS + 1), columns)]
    return [(tile, sizes) for tile in tiles if _fits(tile, target, steps, spread) for sizes in _smaller_than(tile.rows)]


def _smaller_than(rows: int) -> list[tuple[int, ...]]:
    """Returns choices of tail tiles: one or two sizes, and at last a single row, so that any number of rows can be made
    of them.
    """
    half, third, quarter = (-(-rows // part) for part in (2, 3, 4))
    chosen = {
        (half,),
        (third,),
        (quarter,),
        (half, quarter),
        (rows - third, third),
        (half, third),
        (rows - third, quarter),
    }
    descending = {tuple(sorted({1, *sizes} - {0, rows}, reverse=True)) for sizes in chosen}
    return sorted(descending)


def _cycles(
    extents: range, columns: tuple[int, ...], terms: int, target: Target, steps: int, spread: Spread | None, pitch: int
) -> np.ndarray:
    """Returns for each candidate the cycles of all rows of each extent, for one vector of columns; see
    `passes/tir/common/peel_tail_tiles.py`.

    All columns of a tile are read again for each tile of rows, from a cache of which they fill no more than half.
    """
    candidates = _candidates(columns, target, steps, spread)
    numbers = _numbers(extents, columns, target, steps, spread)
    cycles = np.zeros((len(candidates), len(numbers)))
    for row, (tile, smaller) in zip(cycles, candidates, strict=True):
        sizes = (tile.rows, *smaller)
        tiles = [RegisterTile(1, rows, tile.columns) for rows in sizes]
        row[: len(sizes)] = [_tile_cycles(each, terms, target, steps, _cost(spread), pitch) for each in tiles]
    total = np.zeros(numbers[0].shape)
    for number, cost in zip(numbers, cycles.T, strict=True):
        total += number * cost[:, None]
    per_column: np.ndarray = total / np.array([[tile.columns] for tile, _ in candidates])
    return per_column


@lru_cache
def _numbers(
    extents: range, columns: tuple[int, ...], target: Target, steps: int, spread: Spread | None
) -> list[np.ndarray]:
    """Returns how many tiles of each size a candidate needs for each extent."""
    candidates = _candidates(columns, target, steps, spread)
    maximum = max(len(smaller) for _, smaller in candidates)
    sizes = [(tile.rows, *smaller, *[0] * (maximum + 1 - len(smaller))) for tile, smaller in candidates]
    rows, count = np.array(sizes)[:, :, None], np.array(extents)
    left = count % rows[:, 0]
    again = (left > rows[:, 1]) & (count >= rows[:, 0])  # the last tile begins earlier
    numbers = [count // rows[:, 0] + again]
    left = np.where(again, 0, left)
    for n in range(1, maximum + 1):
        size = np.maximum(rows[:, n], 1)
        number = np.where(count >= rows[:, n], -(-np.maximum(left - rows[:, n + 1], 0) // size), 0)
        numbers.append(number)
        left = np.maximum(left - number * size, 0)
    return numbers


@lru_cache(maxsize=4096)
def _tile_cycles(tile: RegisterTile, terms: int, target: Target, steps: int, spread: float, pitch: int) -> float:
    """Estimates the cycles of one tile; 0 for a tile without rows."""
    if not tile.rows:
        return 0.0
    costs, line = target.costs, tile.columns * target.vectors.bytes
    panel = 2 * terms * line
    waiting = costs.loops.exposed_share * line / costs.bytes_per_cycle(panel) if panel > costs.l1_bytes else 0.0
    step = tile.cycles(target, steps, spread, (0, pitch)) + waiting
    return terms * step + costs.loops.tile_cycles + costs.loops.register_cycles * tile.rows * tile.columns
