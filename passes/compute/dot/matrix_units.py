"""Decides which contractions a target's matrix unit computes, and splits their axes for it."""

from __future__ import annotations

from tvm import tirx

from nnefc.passes.compute.dot.dot_product import Multiplication
from nnefc.passes.tir.dot.dot_instructions import is_dot_product
from nnefc.symbolic.dims import is_known
from nnefc.targets.machine.cpu.matrix_units import TILE_PRODUCTS, MatrixUnit
from nnefc.targets.machine.cpu.target import Target

__all__ = ["filled", "in_tiles", "paired_terms", "unit_of", "unit_of_product"]


def unit_of(expr: tirx.Expr, target: Target) -> MatrixUnit | None:
    """Returns what computes full tiles of sums of an expression, if it is a dot product and the target has a unit."""
    return _unit(expr.op.name, target) if is_dot_product(expr) else None


def unit_of_product(how: Multiplication, target: Target) -> MatrixUnit | None:
    """Returns what computes full tiles of such sums on a target, if anything does."""
    return None if how.dot is None else _unit(how.dot.name, target)


def _unit(name: str, target: Target) -> MatrixUnit | None:
    product = TILE_PRODUCTS.get(name)
    if product is None or product.unit.lanes != target.lanes("int32"):
        return None
    return product.unit if product.feature in (*target.features, *target.tiles) else None


def in_tiles(how: Multiplication, target: Target) -> bool:
    """Whether a target sums up such products in tiles."""
    return unit_of_product(how, target) is not None


def paired_terms(how: Multiplication, target: Target) -> int:
    """Returns how many dot operands of a column follow each other in constant weights, as a register of such a unit
    has them; 0 where weights stay in the order of vectors.

    Levels of one library share their constants, which are in that order for all.
    """
    unit = unit_of_product(how, target)
    return unit.terms if unit is not None and unit.interleaved and not target.block_bytes else 0


def filled(how: Multiplication, elements: int, target: Target) -> int:
    """Returns `elements` of a sum, or as many as there are with zeros after them: whole steps, and no short tiles."""
    steps, unit = how.filled(elements) // how.terms, unit_of_product(how, target)
    if unit is not None and is_known(steps) and steps > unit.terms and unit.part(steps) < unit.terms * 3 / 4:
        steps = -(-steps // unit.terms) * unit.terms
    return steps * how.terms
