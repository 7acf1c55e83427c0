"""Questions about the structure of a computation, and steps that several rules take."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import tvm
from tvm import s_tir, tirx
from tvm.ir.expr import TensorLoad
from tvm.s_tir.schedule import SBlockRV

from nnefc.passes.compute.choice import PERIODS
from nnefc.passes.compute.dot_product import is_dot_product, is_widening

__all__ = [
    "Contraction",
    "SBlockRV",
    "contraction_of",
    "covers_result",
    "epilogue_into_one_block",
    "is_reduction",
    "largest_divisor",
    "periods_of",
    "root_blocks",
    "schedule_of",
    "spatial_extents",
    "variables_of",
    "vector_lanes",
]


class _Schedule(s_tir.Schedule):  # type: ignore[misc]
    """A copy of a schedule; without the checks of all arguments' types, which take longer than most calls."""

    def __init__(self, source: s_tir.Schedule) -> None:
        self.__init_handle_by_constructor__(tvm.get_global_func("s_tir.schedule.ScheduleCopy"), source)


for _name, _method in vars(s_tir.Schedule).items():
    if hasattr(_method, "__wrapped__") and _name != "__init__":
        setattr(_Schedule, _name, _method.__wrapped__)


def schedule_of(func: tirx.PrimFunc) -> s_tir.Schedule:
    """A schedule that works on `func` alone; what its errors say is not for users, so that it is never written out."""
    return _Schedule(_first_schedule_of(func))


@lru_cache(maxsize=1)  # several rules ask for one kernel's, and a copy takes a fiftieth of the time
def _first_schedule_of(func: tirx.PrimFunc) -> s_tir.Schedule:
    if func.body.block.name_hint != "root":  # a single opaque computation stands alone; it gets a root of its own
        root = s_tir.SBlock([], [], [], "root", func.body)
        func = tirx.PrimFunc(func.params, s_tir.SBlockRealize([], True, root), func.ret_type, func.attrs)
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    return s_tir.Schedule(module, error_render_level="none")


def root_blocks(sch: s_tir.Schedule) -> list[SBlockRV]:
    """The computations of the function, in order."""
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def is_reduction(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    """Whether a block sums up, or takes a maximum, … over some axis."""
    return any(iter_var.iter_type == tirx.IterVar.CommReduce for iter_var in sch.get(block).iter_vars)


def periods_of(node: s_tir.SBlock) -> dict[int, int]:
    """The axes of a block that has a formula for each place of a tile, and how many places there are along each."""
    periods = enumerate(int(period) for period in node.annotations.get(PERIODS, ()))
    return {axis: period for axis, period in periods if period > 1}


def spatial_extents(sch: s_tir.Schedule, block: SBlockRV) -> list[int]:
    """Extents of a block's axes that are not reduced."""
    axes = sch.get(block).iter_vars
    return [int(a.dom.extent) for a in axes if a.iter_type == tirx.IterVar.DataPar]


def covers_result(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    """Whether the loops around `block` reach all that it computes.

    TVM moves a step into the loops of a producer as if nothing else mattered: zeros that the step puts beside what the
    producer has computed get lost.
    """
    rounds = math.prod(int(sch.get(loop).extent) for loop in sch.get_loops(block))
    return rounds >= math.prod(spatial_extents(sch, block))


def largest_divisor(extent: int, limit: int) -> int:
    """The largest number up to `limit` that divides `extent`."""
    return next(d for d in range(min(extent, limit), 0, -1) if extent % d == 0)


def vector_lanes(extent: int, lanes: int) -> int:
    """The length of vectors along an axis: `lanes`, or its whole extent where bytes of a block fill a shorter one."""
    return extent if 16 <= extent < lanes and lanes % extent == 0 else lanes


def variables_of(indices: Iterable[tirx.Expr]) -> set[tirx.Var]:
    """The variables in some indices."""
    return {var for index in indices for var in tirx.analysis.undefined_vars(tirx.Evaluate(index), [])}


@dataclass(frozen=True)
class Contraction:
    """`C[…] += A[…] * B[…]`, as a convolution or a matrix product.

    Attributes:
        only_left: spatial axes that index A and not B (rows, or pixels).
        only_right: spatial axes that index B and not A (columns, or output channels).
        both: spatial axes that index both (a batch, or a depthwise channel).
        reduced: the axes summed over.
        All are positions among the block's axes.
    """

    only_left: tuple[int, ...]
    only_right: tuple[int, ...]
    both: tuple[int, ...]
    reduced: tuple[int, ...]


def contraction_of(sch: s_tir.Schedule, block: SBlockRV) -> Contraction | None:
    """The roles of a block's axes, if it is a sum of products of two tensors; A is the one without the last axis."""
    node = sch.get(block)
    if node.init is None or not isinstance(node.body, tirx.BufferStore):
        return None
    factors = _factors(node.body.value)
    if factors is None:
        return None
    left, right = map(_stored, factors)
    if not isinstance(left, TensorLoad) or not isinstance(right, TensorLoad):
        return None
    axes = list(node.iter_vars)
    spatial = [i for i, a in enumerate(axes) if a.iter_type == tirx.IterVar.DataPar]
    left_vars, right_vars = variables_of(left.indices), variables_of(right.indices)
    if spatial and axes[spatial[-1]].var in left_vars and axes[spatial[-1]].var not in right_vars:
        left_vars, right_vars = right_vars, left_vars

    def having(in_left: bool, in_right: bool) -> tuple[int, ...]:
        return tuple(
            i for i in spatial if (axes[i].var in left_vars) == in_left and (axes[i].var in right_vars) == in_right
        )

    reduced = tuple(i for i, a in enumerate(axes) if a.iter_type == tirx.IterVar.CommReduce)
    return Contraction(having(True, False), having(False, True), having(True, True), reduced)


def _factors(value: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr] | None:
    """The factors of `sum + a * b`, or of a dot product of narrow integers added to a sum."""
    if isinstance(value, tirx.Add) and isinstance(value.b, tirx.Mul):
        return value.b.a, value.b.b
    if is_dot_product(value):
        _, left, right = value.args
        return left, right
    return None


def _stored(factor: tirx.Expr) -> tirx.Expr:
    """What a factor is in memory, before it is made wider."""
    if is_widening(factor):
        return factor.args[0]
    return factor.value if isinstance(factor, tirx.Cast) else factor


def epilogue_into_one_block(sch: s_tir.Schedule, block: SBlockRV) -> SBlockRV | None:
    """Join all element-wise steps after `block` into one; None if there are none.

    Returns:
        The block that reads the result of `block` and writes the function's output.
    """
    outputs = [b for b in root_blocks(sch) if not sch.get_consumers(b)]
    last = outputs[0]
    if len(outputs) != 1 or sch.get(last).name_hint == sch.get(block).name_hint:
        return None
    kept = {sch.get(block).name_hint, sch.get(last).name_hint, *_upstream(sch, block)}
    for step in root_blocks(sch):
        if sch.get(step).name_hint not in kept and not is_reduction(sch, step):
            sch.compute_inline(step)
    return last


def _upstream(sch: s_tir.Schedule, block: SBlockRV) -> set[str]:
    """Names of the blocks that `block` depends on."""
    names: set[str] = set()
    for producer in sch.get_producers(block):
        names |= {sch.get(producer).name_hint, *_upstream(sch, producer)}
    return names
