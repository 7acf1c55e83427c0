"""Schedules a product of a matrix and few vectors together with what is computed from several of its columns.

    p = h · w                                                  # [1, 4 n]
    c' = f(p[j], p[n + j], p[2 n + j], p[3 n + j], c[j])       # a step of an LSTM, whose gates are the columns
    h' = g(p[n + j], c'[j])

A thread has the sums of all columns that an element needs, and computes the element: no launch is between the product
and the cell, and the product is never in memory. The loops are those of `matvec.py`; the positions of a thread lie n
apart. Kernels of this kind come from `plan/join_steps.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import s_tir, tirx

from nnefc.ir.rebuild import root_block, with_fields
from nnefc.passes.schedule.analysis import KernelAnalysis, ScheduleBlock, steps_of
from nnefc.passes.schedule.gpu.contractions.analysis import SumOfProducts, product_of, simplify_indices
from nnefc.passes.schedule.gpu.contractions.operand_tile import lies_along_depth
from nnefc.passes.schedule.gpu.inline_producers import inline_producers, is_simple
from nnefc.passes.schedule.gpu.nest import Nest, buffer, load, sequence, store
from nnefc.passes.schedule.gpu.vector_products.matvec import ByPosition
from nnefc.passes.schedule.gpu.vector_products.vector_product import few_and_many
from nnefc.passes.schedule.schedules import dynamic_sizes_of, schedule_of
from nnefc.passes.tir.common.expressions import flat_offset, number, substituted
from nnefc.passes.tir.common.shapes import elements_of
from nnefc.passes.tir.gpu.narrow_indices import narrow_index_types
from nnefc.targets.machine.gpu.description import Gpu
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["GatedProductRule", "is_gated_product"]

_MAX_ELEMENTS = 1 << 22  # of the matrix: what takes longer to fetch than a launch takes is better fetched in vectors
_MAX_GATES = 8


class GatedProductRule:
    """A product of few vectors, and steps that read some of its columns for each element."""

    def apply(self, kernel: KernelAnalysis, target: GpuTarget) -> s_tir.Schedule | None:
        gated = _gated_product_of(kernel, target)
        return None if gated is None else _Launch(gated, target.gpu).schedule()


def is_gated_product(func: tirx.PrimFunc, target: GpuTarget) -> bool:
    """Whether the rule is for a kernel."""
    return _gated_product_of(KernelAnalysis(func), target) is not None


@dataclass(frozen=True)
class _Result:
    """What a step computes of an element.

    Attributes:
        value: by the variables of the gated product, and those of the results before it.
        var: what later results call it.
        output: where it is written; None if later results alone read it.
    """

    value: tirx.Expr
    var: tirx.Var
    output: tirx.Var | None


@dataclass(frozen=True)
class _GatedProduct:
    """A product and the steps behind it.

    Attributes:
        row, column: of an element of the results, of which a row has `columns`.
        gates: the sums that an element is computed from, in columns of the product that lie `columns` apart.
        func, params: the kernel, and its buffers, made flat.
    """

    product: SumOfProducts
    row: tirx.Var
    column: tirx.Var
    columns: int
    gates: tuple[tirx.Var, ...]
    results: tuple[_Result, ...]
    func: tirx.PrimFunc
    params: tuple[tirx.Var, ...]


def _gated_product_of(kernel: KernelAnalysis, target: GpuTarget) -> _GatedProduct | None:
    """Returns the gated product that a kernel is; None if it is another computation."""
    if dynamic_sizes_of(kernel.func) or len(kernel.reductions) != 1:
        return None
    if elements_of(kernel.reductions[0].result) <= elements_of(kernel.steps[-1].result):
        return None
    parts = _Parts.of(kernel)
    if parts is None:
        return None
    try:
        product = product_of(KernelAnalysis(parts.head), target)
    except s_tir.ScheduleError:
        return None
    if product is None or not product.value.same_as(product.total) or product.dtype != product.accumulator:
        return None
    factors = few_and_many(product)
    if factors is None or factors[2] or product.batch.size != 1 or lies_along_depth(factors[1]):
        return None
    if product.columns.size * product.depth.size > _MAX_ELEMENTS or not _is_row_major(product):
        return None
    return _Reader(parts, product).gated()


@dataclass(frozen=True)
class _Parts:
    """A kernel in two parts.

    Attributes:
        head: the product alone, with its result for its last parameter.
        tail: the steps behind it, with the product for their first parameter.
        in_head: for each parameter of the kernel, whether it is one of `head`, rather than of `tail`.
    """

    func: tirx.PrimFunc
    head: tirx.PrimFunc
    tail: tirx.PrimFunc
    in_head: tuple[bool, ...]

    @staticmethod
    def of(kernel: KernelAnalysis) -> _Parts | None:
        """Returns the parts; None if they share more than the product."""
        func, root = kernel.func, kernel.func.body.block
        statements = root.body.seq[:] if isinstance(root.body, tirx.SeqStmt) else [root.body]
        end, total = kernel.steps.index(kernel.reductions[0]) + 1, kernel.reductions[0].result
        if len(statements) != len(kernel.steps):
            return None
        used = [
            {region.source for step in steps for region in (*step.reads, *step.writes)}
            for steps in (kernel.steps[:end], kernel.steps[end:])
        ]
        shared = used[0] & used[1]
        if shared != {total} or total in func.params or not all(each in used[0] | used[1] for each in func.params):
            return None

        def part(number_of_part: int, body: Sequence[tirx.Stmt], params: Sequence[tirx.Var]) -> tirx.PrimFunc:
            own = [each for each in root.alloc_buffers if each in used[number_of_part] - shared]
            return with_fields(func, params=params, body=root_block(sequence(*body), own))

        in_head = tuple(param in used[0] for param in func.params)
        operands = [param for param, is_own in zip(func.params, in_head, strict=True) if is_own]
        others = [param for param, is_own in zip(func.params, in_head, strict=True) if not is_own]
        head, tail = part(0, statements[:end], [*operands, total]), part(1, statements[end:], [total, *others])
        return _Parts(func, head, tail, in_head)


def _is_row_major(product: SumOfProducts) -> bool:
    """Whether the result has its rows one after another."""
    nest = Nest()
    row, column = nest.variable("row", product.rows.size), nest.variable("column", product.columns.size)
    position, _ = product.stored(nest, number(0), row, column, product.total)
    return nest.holds(tirx.EQ(position, row * number(product.columns.size) + column))


class _Reader:
    """Reads the steps behind a product."""

    def __init__(self, parts: _Parts, product: SumOfProducts) -> None:
        self._parts, self._product = parts, product
        narrow = narrow_index_types(parts.tail)
        self._total, *self._params = narrow.params
        self._flat = {p: buffer(str(p.name), elements_of(p), str(p.dtype)) for p in self._params}
        self._sch = schedule_of(narrow)
        inline_producers(self._sch)
        self._nest = Nest()
        self._known: dict[tirx.Var, tirx.Var] = {}  # results, by their tensors
        self._gates: dict[int, tirx.Var] = {}

    def gated(self) -> _GatedProduct | None:
        """Returns the gated product; None if the steps read other elements than their own."""
        rows, width = self._product.rows.size, self._product.columns.size
        steps = steps_of(self._sch)
        self._columns = (steps[-1].sizes or (1,))[-1]
        if self._columns < 2 or width % self._columns or not 2 <= width // self._columns <= _MAX_GATES:
            return None
        self._row, self._column = self._nest.variable("row", rows), self._nest.variable("column", self._columns)
        self._gates = {index: tirx.Var(f"gate{index}", self._product.dtype) for index in range(width // self._columns)}
        results = []
        for step in steps:
            result = self._result(step)
            if result is None:
                return None
            results.append(result)
        given, own = iter(self._product.params), iter(self._flat.values())
        return _GatedProduct(
            self._product,
            self._row,
            self._column,
            self._columns,
            tuple(self._gates.values()),
            tuple(results),
            self._parts.func,
            tuple(next(given if is_own else own) for is_own in self._parts.in_head),
        )

    def _result(self, step: ScheduleBlock) -> _Result | None:
        axes = [axis for axis in step.axes if axis.size != 1]
        sizes = [size for size in (self._product.rows.size, self._columns) if size != 1]
        if not is_simple(step) or step.value is None or [axis.size for axis in axes] != sizes:
            return None
        values = {axis.var: number(0) for axis in step.axes}
        values |= {axis.var: var for axis, var in zip(reversed(axes), (self._column, self._row), strict=False)}
        if self._offset_in(step.result, [substituted(index, values) for index in step.node.body.indices], 1) != 0:
            return None
        unknown: list[tirx.Var] = []

        def read(source: tirx.Var, at: Sequence[tirx.Expr]) -> tirx.Expr:
            if source.same_as(self._total) or source in self._known:
                gates = len(self._gates) if source.same_as(self._total) else 1
                offset = self._offset_in(source, at, gates)
                if offset is not None and offset % self._columns == 0 and offset // self._columns in range(gates):
                    return self._gates[offset // self._columns] if gates > 1 else self._known[source]
                unknown.append(source)
            elif source not in self._flat:
                unknown.append(source)
            return tirx.BufferLoad(self._flat.get(source, source), [self._nest.simplify(flat_offset(source, at))])

        value = substituted(step.value, values, read)
        if unknown:
            return None
        self._known[step.result] = var = tirx.Var(f"result{len(self._known)}", step.dtype)
        return _Result(value, var, self._flat.get(step.result))

    def _offset_in(self, tensor: tirx.Var, at: Sequence[tirx.Expr], gates: int) -> int | None:
        """Returns how far what is read lies behind the element itself, if that is the same for all."""
        own = self._row * number(gates * self._columns) + self._column
        offset = self._nest.simplify(flat_offset(tensor, at) - own)
        return int(offset) if isinstance(offset, tirx.IntImm) else None


class _Launch(ByPosition):
    """Threads with the columns of one element of each row."""

    def __init__(self, gated: _GatedProduct, gpu: Gpu) -> None:
        self._gated = gated
        factors = few_and_many(gated.product)
        assert factors is not None
        super().__init__(gated.product, *factors, gpu)
        self.func, self.params = gated.func, gated.params
        self.together = len(gated.gates)

    @property
    def threads(self) -> int:
        """Returns the threads that have columns: one for each of an element's row."""
        return self._gated.columns

    def choose_lanes(self) -> int:
        """Returns the columns of a thread: one for each gate."""
        return len(self._gated.gates)

    def position(self, thread: tirx.Expr, lane: tirx.Expr) -> tirx.Expr:
        """Returns the column of a gate."""
        return lane * number(self._gated.columns) + thread

    def is_present(self, thread: tirx.Expr) -> tirx.Expr:
        """Whether a thread has an element."""
        return thread < number(self._gated.columns)

    def each_lane(self, body: Callable[[tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
        """`body` for each gate."""
        return self._nest.unrolled(self._lanes, body)

    def write(
        self,
        batch: tirx.Expr,
        thread: tirx.Expr,
        element: tirx.Expr,
        total: Callable[[tirx.Expr], tirx.Expr],
        slices: tirx.Var | None,
        which: tirx.Expr,
    ) -> tirx.Stmt:
        """Computes the results of an element of a row from its gates."""
        nest, gated = self._nest, self._gated
        values: dict[tirx.Var, tirx.Expr] = {gated.row: element, gated.column: thread}
        values |= {gate: total(number(index)) for index, gate in enumerate(gated.gates)}
        position = nest.simplify(element * number(gated.columns) + thread)
        stmts = []
        for index, result in enumerate(gated.results):
            register = nest.buffer(f"result{index}", 1, str(result.var.expr_ty().dtype), "local")
            stmts.append(store(register, simplify_indices(substituted(result.value, values), nest), number(0)))
            values[result.var] = load(register, number(0))
            if result.output is not None:
                stmts.append(store(result.output, values[result.var], position))
        present = self.is_present(thread)
        return (
            sequence(*stmts) if nest.holds(present) else tirx.IfThenElse(nest.simplify(present), sequence(*stmts), None)
        )
