"""Restricts a kernel to some rows of its result, and returns the rows of its operands that it then reads.

    for y in 48, x in 48: C[y, x] = A[y, x] + A[y + 1, x] + A[y + 2, x]        rows 8 to 12 of C need rows 8 to 14 of A:
→   for y in 4, x in 48:  c[y, x] = a[y, x] + a[y + 1, x] + a[y + 2, x]        c has 4 rows, a has 6

The rows of images are dimension 2: of `[N, C, H, W]`, and of `[N, C / b, H, W, b]`. Each element is computed as it
would be in the whole kernel, in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Range
from tvm.ir.expr import TensorLoad, TensorRegion
from tvm.sym import Analyzer

from nnefc.ir.attributes import SAME_BYTES
from nnefc.ir.padding import write_beginning
from nnefc.ir.rebuild import loop_nest, with_fields
from nnefc.passes.schedule.analysis import KernelAnalysis, ScheduleBlock
from nnefc.passes.schedule.schedules import dynamic_sizes_of
from nnefc.passes.tir.common.expressions import int64, loads_of, variables_of
from nnefc.passes.tir.common.shapes import sizes_of
from nnefc.passes.tir.common.statements import values_of
from nnefc.symbolic.dims import Dimension, is_known

__all__ = ["ROWS", "KernelRows", "Rows", "rows_of", "write_rows"]

ROWS = 2
"""The dimension of tensors of images that is their rows."""

_RANKS = (4, 5)

Rows = tuple[int, int]
"""The first of some rows, and the end."""


@dataclass(frozen=True, eq=False)
class _Access:
    """The rows of a tensor that a block reads: from `low` to `high`, and `stride` further for each row of its own.

    If `stride` is None, the positions follow from `index` in another way.
    """

    tensor: tirx.Var
    index: tirx.Expr
    stride: int | None
    low: int
    high: int

    @classmethod
    def of(cls, step: ScheduleBlock, row: tirx.Var, load: TensorLoad) -> _Access:
        """Returns the access of a load; `row` is the axis of the step's own rows."""
        index = load.indices[ROWS]
        after = tvm_ffi.structural_map(index, (tirx.Var, lambda var: var + int64(1) if var.same_as(row) else var))
        stride = Analyzer().simplify(after - index)
        low, high = _bounds(step, row, index, (0, 1))
        known = isinstance(stride, tirx.IntImm) and int(stride) >= 0
        return cls(load.source, index, int(stride) if known else None, low, high)

    def rows(self, step: ScheduleBlock, row: tirx.Var, own: Rows) -> Rows:
        """Returns the range of rows of the tensor that is read for a range of the step's own rows."""
        if self.stride is None:
            low, high = _bounds(step, row, self.index, own)
        else:
            low, high = self.low + self.stride * own[0], self.high + self.stride * (own[1] - 1)
        return max(low, 0), min(high + 1, int(sizes_of(self.tensor)[ROWS]))


def _bounds(step: ScheduleBlock, row: tirx.Var, index: tirx.Expr, rows: Rows) -> tuple[int, int]:
    """Returns the smallest and largest index for the rows of a block."""
    analyzer = Analyzer()
    for axis in step.axes:
        first, end = rows if axis.var.same_as(row) else (0, int(axis.size))
        analyzer.bind(axis.var, Range(int64(first), int64(end)))
    bound = analyzer.const_int_bound(analyzer.simplify(index))
    return int(bound.min_value), int(bound.max_value)


@dataclass(frozen=True, eq=False)
class KernelRows:
    """A kernel whose result can be computed some rows at a time.

    Attributes:
        kernel: its one result is the last parameter.
        axes: of each step, the position of the axis that goes through rows, and what is added to it where the step
            writes its result.
        accesses: of each step, to the rows of what others make.
        tensors: those that have rows, operands among them; the others are the same for all rows.
    """

    kernel: KernelAnalysis
    axes: Mapping[str, tuple[int, int]]
    accesses: Mapping[str, Sequence[_Access]]
    tensors: frozenset[tirx.Var]
    _needs: dict[Rows, Mapping[tirx.Var, Rows] | None] = field(default_factory=dict)

    @property
    def result(self) -> tirx.Var:
        """Returns the tensor that it writes."""
        return self.kernel.func.params[-1]

    @property
    def height(self) -> int:
        """The rows of its result."""
        return int(sizes_of(self.result)[ROWS])

    def needs(self, rows: Rows) -> Mapping[tirx.Var, Rows] | None:
        """Returns the rows of each tensor that some rows of the result need; None if a block would have none."""
        if rows not in self._needs:
            self._needs[rows] = self._found(rows)
        return self._needs[rows]

    def _found(self, rows: Rows) -> Mapping[tirx.Var, Rows] | None:
        found = {self.result: rows}
        for step in reversed(self.kernel.steps):
            steps = self._axis_rows(step, found[step.result])
            if steps[0] >= steps[1]:
                return None
            for access in self.accesses[step.name]:
                first, end = access.rows(step, step.axes[self.axes[step.name][0]].var, steps)
                if first >= end:
                    return None
                known = found.get(access.tensor, (first, end))
                found[access.tensor] = min(known[0], first), max(known[1], end)
        return found

    def _axis_rows(self, step: ScheduleBlock, rows: Rows) -> Rows:
        """Returns the range of the axis of a step that computes these rows of its result."""
        position, offset = self.axes[step.name]
        size = int(step.axes[position].size)
        return max(rows[0] - offset, 0), min(rows[1] - offset, size)

    def part(self, rows: Rows, held: Mapping[tirx.Var, int]) -> tirx.PrimFunc:
        """Returns the kernel that computes only these rows of the result.

        Args:
            held: of operands that have more rows in memory than are needed, how many; the kernel is given those from
                the first needed one on. The others have what is needed and no more.
        """
        needs = self.needs(rows)
        assert needs is not None
        tensors = {tensor: _with_rows(tensor, held.get(tensor, own[1] - own[0])) for tensor, own in needs.items()}
        root = self.kernel.func.body.block
        steps = [self._part_of(step, needs, tensors) for step in self.kernel.steps]
        block = with_fields(
            root,
            iter_vars=[],
            body=tirx.SeqStmt(steps) if len(steps) > 1 else steps[0],
            init=None,
            alloc_buffers=[tensors.get(buffer, buffer) for buffer in root.alloc_buffers],
        )
        func = self.kernel.func
        params = [tensors.get(param, param) for param in func.params]
        made = with_fields(func, params=params, body=s_tir.SBlockRealize([], True, block))
        return made.without_attr(SAME_BYTES) if held and SAME_BYTES in made.attrs else made

    def _part_of(
        self, step: ScheduleBlock, needs: Mapping[tirx.Var, Rows], tensors: Mapping[tirx.Var, tirx.Var]
    ) -> tirx.Stmt:
        """Returns a step restricted to the rows that are needed of its result."""
        block, (position, _) = step.node, self.axes[step.name]
        first, end = self._axis_rows(step, needs[step.result])
        old = step.axes[position].var
        row = old + int64(first) if first else old
        analyzer = Analyzer()
        sizes = [int64(end - first if number == position else int(axis.size)) for number, axis in enumerate(step.axes)]
        for axis, size in zip(step.axes, sizes, strict=True):
            analyzer.bind(axis.var, Range(int64(0), size))

        def index(tensor: tirx.Var, slot: tirx.Expr) -> tirx.Expr:
            return analyzer.simplify(slot - int64(needs[tensor][0]))

        def moved(access: TensorLoad | tirx.BufferStore) -> TensorLoad | tirx.BufferStore:
            tensor = access.source if isinstance(access, TensorLoad) else access.buffer
            if tensor not in tensors:
                return access
            positions = [*access.indices[:ROWS], index(tensor, access.indices[ROWS]), *access.indices[ROWS + 1 :]]
            if isinstance(access, TensorLoad):
                return tirx.BufferLoad(tensors[tensor], positions)
            return tirx.BufferStore(tensors[tensor], access.value, positions)

        def region(of: TensorRegion) -> TensorRegion:
            ranges = [Range.from_min_extent(with_row(part.min), part.extent) for part in of.region]
            if of.source not in tensors:
                return tirx.BufferRegion(of.source, ranges)
            own = Range.from_min_extent(index(of.source, ranges[ROWS].min), ranges[ROWS].extent)
            return tirx.BufferRegion(tensors[of.source], [*ranges[:ROWS], own, *ranges[ROWS + 1 :]])

        def with_row(expr: tirx.Expr) -> tirx.Expr:
            return tvm_ffi.structural_map(expr, (tirx.Var, lambda var: row if var.same_as(old) else var))

        def decided(choice: tirx.Expr) -> tirx.Expr:
            return analyzer.simplify(choice)

        body, init = (
            None
            if stmt is None
            else tvm_ffi.structural_map(
                tvm_ffi.structural_map(
                    tvm_ffi.structural_map(stmt, (tirx.Var, lambda var: row if var.same_as(old) else var)),
                    ((tirx.And, tirx.LT, tirx.LE, tirx.GT, tirx.GE), decided),
                ),
                ((TensorLoad, tirx.BufferStore), moved),
            )
            for stmt in (block.body, block.init)
        )
        axes = [
            tirx.IterVar(Range(int64(0), size), axis.var, axis.kind)
            for axis, size in zip(step.axes, sizes, strict=True)
        ]
        made = with_fields(
            block,
            iter_vars=axes,
            reads=[region(read) for read in block.reads],
            writes=[region(write) for write in block.writes],
            body=body,
            init=init,
        )
        loops = [tirx.Var(f"i{number}", "int64") for number in range(len(axes))]
        return loop_nest(loops, sizes, s_tir.SBlockRealize(loops, True, made))


def _loads(step: ScheduleBlock) -> list[TensorLoad]:
    """Returns the loads of tensors of a block, those of its initial value included."""
    init = values_of(step.node.init) if step.node.init is not None else []
    return [load for value in (*values_of(step.node.body), *init) for load in loads_of(value)]


def _with_rows(tensor: tirx.Var, rows: int) -> tirx.Var:
    shape = [*tensor.shape[:ROWS], int64(rows), *tensor.shape[ROWS + 1 :]]
    return tirx.decl_buffer(shape, str(tensor.dtype), tensor.name, layout=None)


def rows_of(kernel: KernelAnalysis) -> KernelRows | None:
    """Returns the row accesses of a kernel with one result; None if rows depend on more than rows of its operands."""
    func = kernel.func
    result = func.params[-1]
    if dynamic_sizes_of(func) or len(sizes_of(result)) not in _RANKS or func.body.block.match_buffers:
        return None
    axes: dict[str, tuple[int, int]] = {}
    accesses: dict[str, Sequence[_Access]] = {}
    having, others = {result}, set[tirx.Var]()
    for step in reversed(kernel.steps):
        found = _axis_of(step) if step.result in having else None
        if found is None:
            return None
        axes[step.name] = found
        row = step.axes[found[0]].var
        read: list[_Access] = []
        for load in _loads(step):
            if load.source.same_as(step.result):
                continue
            dims = [dim for dim, index in enumerate(load.indices) if row in variables_of([index])]
            if dims and (dims != [ROWS] or len(sizes_of(load.source)) not in _RANKS):
                return None
            (having if dims else others).add(load.source)
            read += [_Access.of(step, row, load)] if dims else []
        accesses[step.name] = read
    return None if having & others else KernelRows(kernel, axes, accesses, frozenset(having))


def _axis_of(step: ScheduleBlock) -> tuple[int, int] | None:
    """Returns the axis of a step that indexes the rows of its result, and the number that is added to it there."""
    store = step.node.body
    is_store = isinstance(store, tirx.BufferStore) and len(step.writes) == 1 and step.loops_are_axes
    if not is_store or not is_known(*step.sizes) or isinstance(step.node.init, tirx.SeqStmt):
        return None
    offset: tirx.Expr = int64(0)
    for position, axis in enumerate(step.axes):
        index = store.indices[ROWS]
        if axis.is_spatial and axis.var in variables_of([index]):
            offset = Analyzer().simplify(index - axis.var)
            elsewhere: Sequence[tirx.Expr] = [i for dim, i in enumerate(store.indices) if dim != ROWS]
            if isinstance(offset, tirx.IntImm) and axis.var not in variables_of(elsewhere):
                return position, int(offset)
    return None


def write_rows(part: Sequence[Dimension], whole: Sequence[Dimension], dtype: str) -> tirx.PrimFunc:
    """Returns the kernel that writes rows, a tensor of the shape `part`, into one of the shape `whole`, which is given
    from its first row to write on.
    """
    return write_beginning(part, whole, dtype)
