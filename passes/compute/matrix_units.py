"""Units of processors that multiply several rows by several columns in one instruction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm import tirx

from nnefc.passes.compute.dot_product import Multiplication, is_dot_product
from nnefc.sizes import is_known
from nnefc.targets.machine.cpu.target import Target

__all__ = ["UNITS", "MatrixUnit", "filled", "in_tiles", "unit_of", "unit_of_product"]


@dataclass(frozen=True)
class MatrixUnit:
    """What multiplies tiles.

    Attributes:
        rows: of a tile at most.
        lanes: columns of a tile, as many as a vector of the machine has.
        terms: dot operands of a row of a tile, at most.
        least_terms: where a row is cut, those of a part; `filled` adds zeros for it.
        least_rows: with fewer, vectors do as well.
        columns: tiles of columns that are computed together with so many tiles of rows.
        smaller: rows of the tiles for what is left of an open axis.
        block_bytes: of a pixel that are read together, at most; 0 where the blocks of vectors do.
    """

    rows: int
    lanes: int
    terms: int
    least_terms: int
    least_rows: int
    columns: Mapping[int, int]
    smaller: tuple[int, ...]
    block_bytes: int = 0

    def part(self, steps: int) -> int:
        """Into parts of how many dot operands a sum is cut; 0 if vectors do as well."""
        part = max(part for part in range(1, self.terms + 1) if steps % part == 0)
        return part if part >= max(2, min(steps, self.least_terms)) else 0


_AMX = MatrixUnit(16, 16, 16, 6, 1, {2: 2, 1: 4}, (8, 4, 1), block_bytes=64)
_PAIRS = MatrixUnit(8, 4, 2, 2, 2, {1: 2}, (4, 2, 1))

UNITS: dict[str, tuple[str, MatrixUnit, str]] = {
    "nnefc.vdpbf16ps": ("amx-bf16", _AMX, "tdpbf16ps"),
    "nnefc.vpdpbusd": ("amx-int8", _AMX, "tdpbusd, tdpbsud"),
    "nnefc.bfdot": ("bf16", _PAIRS, "bfmmla"),
    "nnefc.sdot": ("i8mm", _PAIRS, "smmla"),
    "nnefc.udot": ("i8mm", _PAIRS, "ummla"),
}
"""By an instruction for vectors: what the same products in tiles need, how they are computed, and by what."""


def unit_of(expr: tirx.Expr, target: Target) -> MatrixUnit | None:
    """What computes whole tiles of sums of an expression, if that is a dot product and the target has such a unit."""
    return _unit(expr.op.name, target) if is_dot_product(expr) else None


def unit_of_product(how: Multiplication, target: Target) -> MatrixUnit | None:
    """What computes whole tiles of such sums on a target, if anything does."""
    return None if how.dot is None else _unit(how.dot.name, target)


def _unit(name: str, target: Target) -> MatrixUnit | None:
    feature, unit, _ = UNITS.get(name, ("", None, ""))
    if unit is None or unit.lanes != target.lanes("int32"):
        return None
    return unit if feature in (*target.features, *target.tiles) else None


def in_tiles(how: Multiplication, target: Target) -> bool:
    """Whether a target sums up such products in tiles."""
    return unit_of_product(how, target) is not None


def filled(how: Multiplication, items: int, target: Target) -> int:
    """`items` of a sum, or as many as there are with zeros after them: whole steps, and no short tiles."""
    steps, unit = how.filled(items) // how.terms, unit_of_product(how, target)
    if unit is not None and is_known(steps) and steps > unit.terms and unit.part(steps) < unit.terms * 3 / 4:
        steps = -(-steps // unit.terms) * unit.terms
    return steps * how.terms
