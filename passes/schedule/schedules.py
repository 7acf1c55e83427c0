"""Creates a kernel's schedule, and makes the transformations that several rules share."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from nnefc.ir.attributes import DYNAMIC_DIMENSIONS
from nnefc.ir.rebuild import root_block, with_fields
from nnefc.passes.tir.common.name_symbolic_dims import named_sizes
from nnefc.passes.tir.common.shapes import Size, size_of
from nnefc.symbolic.dims import may_exceed

__all__ = [
    "SBlockRV",
    "covers_result",
    "dynamic_sizes_of",
    "epilogue_into_one_block",
    "fused",
    "is_reduction",
    "largest_divisor",
    "root_blocks",
    "scalars_of",
    "schedule_of",
    "trip_count",
    "vector_lanes",
    "without_dynamic_dims",
]


class _Schedule(s_tir.Schedule):  # type: ignore[misc]
    """A copy of a schedule that skips TVM's checks of argument types, which take longer than most calls."""

    def __init__(self, source: s_tir.Schedule) -> None:
        self.__init_handle_by_constructor__(tvm.get_global_func("s_tir.schedule.ScheduleCopy"), source)

    def copy(self) -> _Schedule:
        """Returns another copy in the same state."""
        return _Schedule(self)


for _name, _method in vars(s_tir.Schedule).items():
    if hasattr(_method, "__wrapped__") and _name not in vars(_Schedule):
        setattr(_Schedule, _name, _method.__wrapped__)


def dynamic_sizes_of(func: tirx.PrimFunc) -> tuple[tirx.Var, ...]:
    """Returns the dynamic dimensions that a kernel is written with."""
    return tuple(func.attrs.get(DYNAMIC_DIMENSIONS, ())) if func.attrs else ()


def without_dynamic_dims(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a scheduled kernel with only its tensors as parameters, as before scheduling."""
    count = len(func.params) - len(scalars_of(func))
    return with_fields(func, params=func.params[:count]) if count < len(func.params) else func


def scalars_of(func: tirx.PrimFunc) -> tuple[tirx.Var, ...]:
    """Returns all variables that a kernel is written with, besides its tensors."""
    return (*dynamic_sizes_of(func), *(var for var, _ in named_sizes(func)))


def schedule_of(func: tirx.PrimFunc) -> s_tir.Schedule:
    """Returns a schedule of `func`; its error messages are not rendered, because users never see them."""
    if func.body.block.name_hint != "root":  # a single opaque computation stands alone; it gets a root of its own
        func = with_fields(func, body=root_block(func.body))
    sizes = scalars_of(func)
    if sizes:  # as parameters, for TVM wants to know where they come from
        func = with_fields(func, params=[*func.params, *sizes])
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    return _Schedule(s_tir.Schedule(module, error_render_level="none"))


def root_blocks(sch: s_tir.Schedule) -> list[SBlockRV]:
    """Returns the computations of the function, in order."""
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def is_reduction(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    """Whether a block currently reduces (sum, max, …) over some axis."""
    return any(iter_var.iter_type == tirx.IterVar.CommReduce for iter_var in sch.get(block).iter_vars)


def trip_count(sch: s_tir.Schedule, *loops: LoopRV) -> Size:
    """Returns the number of iterations of some nested loops."""
    return math.prod(size_of(sch.get(loop).extent) for loop in loops)


def fused(sch: s_tir.Schedule, loops: Sequence[LoopRV]) -> LoopRV:
    """Fuses nested loops into one."""
    return sch.fuse(*loops) if len(loops) > 1 else loops[0]


def covers_result(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    """Whether the loops around `block` cover its whole result.

    TVM moves a block into the loops of a producer without regard to other writes: zeros that the block writes next to
    the producer's region get lost.
    """
    axes = sch.get(block).iter_vars
    elements = math.prod(size_of(a.dom.extent) for a in axes if a.iter_type == tirx.IterVar.DataPar)
    return not may_exceed(elements, trip_count(sch, *sch.get_loops(block)))


def largest_divisor(size: Size, limit: int) -> int:
    """Returns the largest divisor of `size` up to `limit`; 1 if `size` is 0."""
    largest = min(max(size, 1), limit) if isinstance(size, int) else limit
    return next(d for d in range(largest, 0, -1) if size % d == 0)


def vector_lanes(size: Size, lanes: int) -> int:
    """Returns the vector length along an axis: `lanes`, or the axis's size where blocks of bytes fill a shorter
    vector.
    """
    return size if isinstance(size, int) and 8 <= size < lanes and lanes % size == 0 else lanes


def epilogue_into_one_block(sch: s_tir.Schedule, block: SBlockRV) -> SBlockRV | None:
    """Fuses all element-wise steps after `block` into one; None if there are none.

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
    """Returns the names of the blocks that `block` depends on."""
    names: set[str] = set()
    waiting = list(sch.get_producers(block))
    while waiting:
        producer = waiting.pop()
        if sch.get(producer).name_hint not in names:
            names.add(sch.get(producer).name_hint)
            waiting += sch.get_producers(producer)
    return names
