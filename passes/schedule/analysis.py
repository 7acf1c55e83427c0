"""Analyzes a kernel's blocks, axes and accesses once, for all rules that might schedule it.

    for i in 64, j in 10:                             step "sum": axes i (64), j (10), reduced k (128)
        for k in 128: C[i, j] += A[i, k] * B[k, j]         reads A[i, k], B[k, j], writes C[i, j]; read by "relu"
    for i in 64, j in 10:                             step "relu": axes i (64), j (10)
        D[i, j] = max(C[i, j], 0)                          reads C[i, j], writes D[i, j]; reads what "sum" has made

Rules recognize a kernel by its steps, and change a copy of its schedule. A step of a schedule that has been changed is
described again by :func:`step_of`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import tvm
from tvm import s_tir, tirx
from tvm.ir.expr import TensorLoad, TensorRegion
from tvm.s_tir.schedule import SBlockRV

from nnefc.ir.attributes import DEQUANTIZED, PERIODS
from nnefc.passes.schedule.schedules import root_blocks, schedule_of
from nnefc.passes.tir.common.expressions import conditions_of, inside, loads_of, variables_of, work_of
from nnefc.passes.tir.common.shapes import Size, size_of
from nnefc.passes.tir.common.statements import values_of
from nnefc.passes.tir.dot.byte_split import byte_parts_of, is_byte_split
from nnefc.passes.tir.dot.dot_instructions import is_dot_product, is_quad_pair, is_widening, quad_operands

__all__ = ["Axis", "Contraction", "KernelAnalysis", "ScheduleBlock", "step_of", "steps_of"]


@dataclass(frozen=True)
class Axis:
    """An axis of a block: `var` goes from 0 to `size`, and `kind` is one of `tirx.IterVar`'s."""

    var: tirx.Var
    size: Size
    kind: int

    @property
    def is_spatial(self) -> bool:
        """Whether each of its values has results of its own."""
        return bool(self.kind == tirx.IterVar.DataPar)

    @property
    def is_reduced(self) -> bool:
        """Whether it is reduced over, by a sum, a maximum, …"""
        return bool(self.kind == tirx.IterVar.CommReduce)


@dataclass(frozen=True, eq=False)
class ScheduleBlock:
    """One computation of a kernel, a block of a schedule.

    Attributes:
        trip_counts: of the loops around it, the outermost first.
        producers, consumers: names of the steps that make what it reads, and that read what it makes.
    """

    node: s_tir.SBlock
    axes: tuple[Axis, ...]
    trip_counts: tuple[Size, ...]
    producers: tuple[str, ...]
    consumers: tuple[str, ...]

    @property
    def name(self) -> str:
        """Unique in the kernel."""
        return str(self.node.name_hint)

    @cached_property
    def reads(self) -> tuple[TensorRegion, ...]:
        """Returns the regions that it reads for one element of its axes."""
        return tuple(self.node.reads)

    @cached_property
    def writes(self) -> tuple[TensorRegion, ...]:
        """Returns the regions that it writes for one element of its axes."""
        return tuple(self.node.writes)

    @property
    def result(self) -> tirx.Var:
        """The first tensor that it writes."""
        return self.writes[0].source

    @property
    def dtype(self) -> str:
        """The type of its (first) result."""
        return str(self.result.dtype)

    @cached_property
    def spatial(self) -> tuple[Axis, ...]:
        """The axes with results of their own."""
        return tuple(axis for axis in self.axes if axis.is_spatial)

    @cached_property
    def reduced(self) -> tuple[Axis, ...]:
        """The axes that are summed over."""
        return tuple(axis for axis in self.axes if axis.is_reduced)

    @property
    def is_reduction(self) -> bool:
        """Whether it reduces: sums up, takes a maximum, …"""
        return bool(self.reduced)

    @property
    def sizes(self) -> tuple[Size, ...]:
        """Returns the sizes of its axes."""
        return tuple(axis.size for axis in self.axes)

    @property
    def elements(self) -> Size:
        """Returns the number of its results."""
        return math.prod(axis.size for axis in self.spatial)

    @property
    def iterations(self) -> Size:
        """Returns its trip count: elements, times the terms of each reduction."""
        return math.prod(self.sizes)

    @property
    def loops_are_axes(self) -> bool:
        """Whether there is a loop for each axis, in their order, and no other around it."""
        return self.trip_counts == self.sizes

    @cached_property
    def periods(self) -> dict[int, int]:
        """The axes along which it has a formula for each position of a tile, with the number of positions."""
        periods = enumerate(map(int, self.node.annotations.get(PERIODS, ())))
        return {axis: period for axis, period in periods if period > 1}

    @cached_property
    def loads(self) -> tuple[TensorLoad, ...]:
        """Returns its loads of tensors, the index maps among them."""
        return tuple(load for value in values_of(self.node.body) for load in loads_of(value))

    @property
    def value(self) -> tirx.Expr | None:
        """Returns the expression that it computes, if it is a single one."""
        return self.node.body.value if isinstance(self.node.body, tirx.BufferStore) else None

    @cached_property
    def conditions(self) -> tuple[tirx.Expr, ...]:
        """Returns the conditions of selects in its single expression."""
        return tuple(conditions_of(self.value))

    @cached_property
    def work(self) -> int:
        """Estimates the instructions for an element of its expression, roughly."""
        return work_of(self.value)

    @cached_property
    def contraction(self) -> Contraction | None:
        """Returns the roles of its axes, if it is a sum of products of two tensors."""
        return _contraction_of(self)

    def read_of(self, tensor: tirx.Var) -> TensorRegion | None:
        """Returns the region of a tensor that it reads."""
        return next((read for read in self.reads if read.source.same_as(tensor)), None)


@dataclass(frozen=True, eq=False)
class KernelAnalysis:
    """A kernel without its schedule, and its steps."""

    func: tirx.PrimFunc

    @cached_property
    def _schedule(self) -> s_tir.Schedule:
        return schedule_of(self.func)

    def schedule(self) -> s_tir.Schedule:
        """Returns a new schedule of the kernel, which the caller may change; its blocks have the names of the steps."""
        return self._schedule.copy()

    @cached_property
    def steps(self) -> tuple[ScheduleBlock, ...]:
        """All computations, in order."""
        return _blocks_in_order(self.func) or steps_of(self._schedule)

    @cached_property
    def reductions(self) -> tuple[ScheduleBlock, ...]:
        """Returns the blocks that reduce."""
        return tuple(step for step in self.steps if step.is_reduction)

    @cached_property
    def outputs(self) -> tuple[ScheduleBlock, ...]:
        """Returns the blocks that no other block reads."""
        return tuple(step for step in self.steps if not step.consumers)

    @cached_property
    def by_name(self) -> dict[str, ScheduleBlock]:
        """The steps by their names."""
        return {step.name: step for step in self.steps}

    @cached_property
    def simplified(self) -> KernelAnalysis:
        """The same kernel with its indices simplified."""
        return KernelAnalysis(s_tir.transform.StmtSimplify()(tvm.IRModule({"main": self.func}))["main"])


def step_of(sch: s_tir.Schedule, block: SBlockRV) -> ScheduleBlock:
    """Returns a step as it is in a schedule now."""
    node = sch.get(block)
    return ScheduleBlock(
        node,
        tuple(Axis(axis.var, size_of(axis.dom.extent), axis.iter_type) for axis in node.iter_vars),
        tuple(size_of(sch.get(loop).extent) for loop in sch.get_loops(block)),
        tuple(str(sch.get(producer).name_hint) for producer in sch.get_producers(block)),
        tuple(str(sch.get(consumer).name_hint) for consumer in sch.get_consumers(block)),
    )


def steps_of(sch: s_tir.Schedule) -> tuple[ScheduleBlock, ...]:
    """Returns the steps of a schedule as they are now, in order."""
    return tuple(step_of(sch, block) for block in root_blocks(sch))


def _blocks_in_order(func: tirx.PrimFunc) -> tuple[ScheduleBlock, ...]:
    """Returns the steps of an unscheduled kernel, for which TVM would need many proofs; none if its blocks do not
    follow each other.
    """
    root = func.body.block
    if root.name_hint != "root":
        return ()
    body = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    found: list[tuple[s_tir.SBlock, list[Size]]] = []
    writers: dict[tirx.Var, str] = {}
    for stmt in body:
        extents: list[Size] = []
        while isinstance(stmt, tirx.For):
            extents.append(size_of(stmt.extent))
            stmt = stmt.body
        if not isinstance(stmt, s_tir.SBlockRealize):
            return ()
        found.append((stmt.block, extents))
        for region in stmt.block.writes:
            if writers.setdefault(region.source, str(stmt.block.name_hint)) != str(stmt.block.name_hint):
                return ()
    producers: dict[str, tuple[str, ...]] = {}
    consumers: dict[str, list[str]] = {}
    for node, _ in found:
        name = str(node.name_hint)
        before = [writers[read.source] for read in node.reads if writers.get(read.source) in producers]
        producers[name] = tuple(dict.fromkeys(before))
        for producer in producers[name]:
            consumers.setdefault(producer, []).append(name)
    if len(producers) < len(found):
        return ()
    return tuple(
        ScheduleBlock(
            node,
            tuple(Axis(axis.var, size_of(axis.dom.extent), axis.iter_type) for axis in node.iter_vars),
            tuple(extents),
            producers[str(node.name_hint)],
            tuple(consumers.get(str(node.name_hint), ())),
        )
        for node, extents in found
    )


@dataclass(frozen=True)
class Contraction:
    """`C[…] += A[…] * B[…]`, as a convolution or a matrix product; A is the factor without the last spatial axis.

    Attributes:
        only_left: spatial axes that index A and not B (rows, or pixels).
        only_right: spatial axes that index B and not A (columns, or output channels).
        both: spatial axes that index both (a batch, or a depthwise channel), or none (one of size 1).
        reduced: the axes summed over.
        All are positions among the step's axes.
        steps: instructions that an element of B is computed with; 0 if it is stored.
        sums: in registers for each element of C: one, or one for each byte of an int16.
    """

    only_left: tuple[int, ...]
    only_right: tuple[int, ...]
    both: tuple[int, ...]
    reduced: tuple[int, ...]
    steps: int = 0
    sums: int = 1


def _contraction_of(step: ScheduleBlock) -> Contraction | None:
    if step.node.init is None or not isinstance(step.node.body, tirx.BufferStore):
        return None
    factors = _factor_loads(step, step.node.body.value)
    if len(factors) != 2 or not all(factors):
        return None
    steps = int(step.node.annotations.get(DEQUANTIZED, 0))
    left, right = (variables_of(index for load in loads for index in load.indices) for loads in factors)
    if step.spatial and step.spatial[-1].var in left and step.spatial[-1].var not in right:
        left, right = right, left

    def indexing(*sides: tuple[bool, bool]) -> tuple[int, ...]:
        return _positions(axis.is_spatial and (axis.var in left, axis.var in right) in sides for axis in step.axes)

    reduced = _positions(axis.is_reduced for axis in step.axes)
    sums = 2 if any(is_byte_split(part) for part in inside(step.node.body.value)) else 1
    both = indexing((True, True), (False, False))
    return Contraction(indexing((True, False)), indexing((False, True)), both, reduced, steps, sums)


def _positions(flags: Iterable[bool]) -> tuple[int, ...]:
    return tuple(position for position, flag in enumerate(flags) if flag)


def _factor_loads(step: ScheduleBlock, value: tirx.Expr) -> list[Sequence[TensorLoad]]:
    """Returns the loads of the two factors of a sum of products; other lists for other computations."""
    if isinstance(value, tirx.Add) and is_quad_pair(value.b):
        loads = [_loads(step, operand) for operand in quad_operands(value.b)]
        return [[load for part in loads[side::2] for load in part] for side in (0, 1)]
    return [_loads(step, factor) for factor in _factors(value)]


def _factors(value: tirx.Expr) -> Sequence[tirx.Expr]:
    """Returns the factors of `sum + a * b`, or of a dot product that is added to a sum; none for other expressions."""
    if not isinstance(value, tirx.Add):
        return ()
    term = value.b.a if isinstance(value.b, tirx.Add) else value.b  # without what a zero point adds
    if isinstance(term, tirx.Mul):
        whole = term.a.value if isinstance(term.a, tirx.Cast) else term.a
        dot = byte_parts_of(whole)[1] if is_byte_split(whole) else whole
        return dot.args[1:] if is_dot_product(dot) else (term.a, term.b)
    return term.args[1:] if is_dot_product(term) else ()


def _loads(step: ScheduleBlock, factor: tirx.Expr) -> Sequence[TensorLoad]:
    """Returns the loads of a factor: one element, with its scale if it is dequantized in the sum; none for other
    factors.
    """
    stored = _stored(factor)
    if isinstance(stored, TensorLoad):
        return [stored]
    return loads_of(factor) if DEQUANTIZED in step.node.annotations else ()


def _stored(factor: tirx.Expr) -> tirx.Expr:
    """Returns a factor as stored in memory, before it is converted to a wider type."""
    if is_widening(factor):
        return factor.args[0]
    return factor.value if isinstance(factor, tirx.Cast) else factor
