"""Analyzes contractions: their batch, row, column and reduced axes, their operands and their epilogue.

    C[…] = epilogue(sum of left[batch, rows, depth] * right[batch, columns, depth])

A convolution is such a sum with output channels for rows, pixels for columns, and the window and the input channels for
depth; a matrix product is one as it stands. Padding is part of an operand: a condition around what it loads.
"""

from __future__ import annotations

from collections.abc import KeysView, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tvm import s_tir, tirx
from tvm.ir.expr import TensorLoad

from nnefc.passes.schedule.analysis import Axis, KernelAnalysis, ScheduleBlock, step_of, steps_of
from nnefc.passes.schedule.gpu.axes import Axes
from nnefc.passes.schedule.gpu.nest import Nest, buffer
from nnefc.passes.schedule.schedules import SBlockRV, epilogue_into_one_block, scalars_of, schedule_of
from nnefc.passes.tir.common.expressions import (
    flat_offset,
    inside,
    is_number,
    loads_of,
    number,
    substituted,
    variables_of,
)
from nnefc.passes.tir.common.shapes import Size, elements_of, size_of, sizes_of
from nnefc.passes.tir.gpu.narrow_indices import MAX_ELEMENTS, narrow_index_types
from nnefc.support.element_types import element_bytes
from nnefc.symbolic.dims import is_known, size_hint
from nnefc.targets.machine.gpu.description import LOAD_BYTES
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["Factor", "SumOfProducts", "product_of"]


@dataclass(frozen=True)
class Factor:
    """One of the two factors.

    Attributes:
        value: an element of it, given values of the axes.
        positions: rows or columns.
        aligned: as for :class:`SumOfProducts`.
    """

    value: tirx.Expr
    batch: Axes
    positions: Axes
    depth: Axes
    aligned: bool

    def at(self, nest: Nest, batch: tirx.Expr, position: tirx.Expr, depth: tirx.Expr) -> tirx.Expr:
        """Returns the element at values of the fused indices."""
        return self.having(nest, {**self.batch.at(batch, self.value), **self.positions.at(position, self.value)}, depth)

    def having(self, nest: Nest, values: Mapping[tirx.Var, tirx.Expr], depth: tirx.Expr) -> tirx.Expr:
        """Returns the element for values of all axes but those summed over."""
        all_values = {**values, **self.depth.at(depth, self.value)}
        return nest.simplify(simplify_indices(substituted(self.value, all_values), nest))


@dataclass(frozen=True)
class SumOfProducts:
    """A sum of products, with what surrounds it.

    Attributes:
        func: the computation, of which `params` are the buffers, made flat.
        batch: axes that index both operands.
        rows: axes that index the left operand alone.
        columns: axes that index the right operand alone; the last axis of the result is one of them, if of either.
        depth: axes summed over.
        left, right: what is multiplied, given values of the axes; of type `dtype` where no cast is taken away.
        dtype: of the sum as the computation has it.
        output, position, value: what is written and where, given values of the axes and the sum, `total`.
        aligned: whether tensors begin at multiples of a vector's size.
        present: whether the result has a row, given values of its axes; None if it has all of them.
    """

    func: tirx.PrimFunc
    params: tuple[tirx.Var, ...]
    batch: Axes
    rows: Axes
    columns: Axes
    depth: Axes
    left: tirx.Expr
    right: tirx.Expr
    dtype: str
    output: tirx.Var
    position: tirx.Expr
    value: tirx.Expr
    total: tirx.Var
    aligned: bool
    present: tirx.Expr | None = None

    @property
    def accumulator(self) -> str:
        """The type to sum up in: half precision is not enough."""
        return "float32" if self.dtype in ("float16", "bfloat16") else self.dtype

    @property
    def operands(self) -> tuple[Factor, Factor]:
        """The left and the right one."""
        return (
            Factor(self.left, self.batch, self.rows, self.depth, self.aligned),
            Factor(self.right, self.batch, self.columns, self.depth, self.aligned),
        )

    @property
    def moved_bytes(self) -> int:
        """What memory reads and writes at least, for size hints: each tensor once, or as many elements as are used."""
        pairs = self.batch.size * self.depth.size
        used = {
            source: pairs * axes.size
            for value, axes in ((self.left, self.rows), (self.right, self.columns))
            for source in (load.source for load in loads_of(value))
        }
        results = self.batch.size * self.rows.size * self.columns.size

        def bytes_of(param: tirx.Var) -> int:
            elements = min(size_hint(elements_of(param)), size_hint(used.get(param, results)))
            return elements * element_bytes(str(param.dtype))

        return sum(map(bytes_of, self.params))

    def has_row(self, row: tirx.Expr) -> list[tirx.Expr]:
        """Returns the conditions on which the result has a row."""
        inside = row < number(self.rows.size)
        return (
            [inside] if self.present is None else [inside, substituted(self.present, self.rows.at(row, self.present))]
        )

    def stored(
        self, nest: Nest, batch: tirx.Expr, row: tirx.Expr, column: tirx.Expr, total: tirx.Expr
    ) -> tuple[tirx.Expr, tirx.Expr]:
        """Returns the index at which the result for a sum is written, and its value."""

        def values(of: tirx.Expr) -> dict[tirx.Var, tirx.Expr]:
            roles = ((self.batch, batch), (self.rows, row), (self.columns, column))
            return {var: value for axes, index in roles for var, value in axes.at(index, of).items()}

        cast = total if str(self.dtype) == self.accumulator else tirx.Cast(self.dtype, total)
        # The index is treated as the offset of a load, like those in the value.
        position = nest.simplify(substituted(self.position, values(tirx.BufferLoad(self.output, [self.position]))))
        value = substituted(self.value, {**values(self.value), self.total: cast})
        return position, simplify_indices(value, nest)


def simplify_indices(expr: tirx.Expr, nest: Nest) -> tirx.Expr:
    """Returns the expression with the positions that it loads from simplified."""
    return substituted(expr, {}, lambda source, at: tirx.BufferLoad(source, [nest.simplify(index) for index in at]))


@lru_cache(maxsize=1)  # several rules ask for one kernel's
def product_of(kernel: KernelAnalysis, target: GpuTarget) -> SumOfProducts | None:
    """Returns the sum of products that a kernel is, with element-wise steps before and after; None if it is another.

    Raises:
        ScheduleError: a step cannot be joined with the sum.
    """
    tensors = (*kernel.func.params, *kernel.func.body.block.alloc_buffers)
    if any(_is_too_large(tensor) or tensor.dtype == "int64" for tensor in tensors):
        return None
    if len(kernel.reductions) != 1:
        return None
    narrow = narrow_index_types(kernel.func, scalars_of(kernel.func))
    sch = schedule_of(narrow)
    block = sch.get_sblock(kernel.reductions[0].name)
    _inline_producers(sch, block)
    last = epilogue_into_one_block(sch, block)
    steps = steps_of(sch)
    if len(steps) != 1 + (last is not None) or not all(step.loops_are_axes for step in steps):
        return None
    epilogue = None if last is None else step_of(sch, last)
    return _product(narrow, step_of(sch, block), epilogue, target.load_bytes >= LOAD_BYTES)


def _is_too_large(tensor: tirx.Var) -> bool:
    """Whether indices of 32 bits are too narrow; of a size that is open, the library sees to that."""
    elements = elements_of(tensor)
    return is_known(elements) and elements >= MAX_ELEMENTS


def _inline_producers(sch: s_tir.Schedule, block: SBlockRV) -> None:
    """Computes what the block reads where it reads it: paddings, and conversions of types."""
    while producers := sch.get_producers(block):
        for producer in producers:
            sch.compute_inline(producer)


def _product(
    func: tirx.PrimFunc, step: ScheduleBlock, epilogue: ScheduleBlock | None, aligned: bool
) -> SumOfProducts | None:
    factors = _factors(step.node)
    roles = None if factors is None else _roles_of(step, *factors)
    write = None if roles is None else _write_of(step, epilogue, roles.values)
    if roles is None or write is None:
        return None
    flat = {param: buffer(str(param.name), elements_of(param), str(param.dtype)) for param in func.params}
    total = tirx.Var("total", step.dtype)

    def load(source: tirx.Var, at: Sequence[tirx.Expr]) -> tirx.Expr:
        return total if source.same_as(step.result) else tirx.BufferLoad(flat[source], [flat_offset(source, at)])

    def operand(value: tirx.Expr) -> tirx.Expr:
        return simplify_indices(substituted(value, roles.values, load), roles.bounds)

    return SumOfProducts(
        func,
        tuple(flat[param] for param in func.params),
        roles.batch,
        roles.rows,
        roles.columns,
        roles.depth,
        operand(roles.left),
        operand(roles.right),
        step.dtype,
        flat[write.tensor],
        flat_offset(write.tensor, [substituted(index, write.axes) for index in write.indices]),
        total if write.value is None else substituted(write.value, write.axes, load),
        total,
        aligned,
    )


def _factors(node: s_tir.SBlock) -> tuple[tirx.Expr, tirx.Expr] | None:
    """Returns the factors of a block that sums products from zero."""
    body, init = node.body, node.init
    if not isinstance(body, tirx.BufferStore) or not isinstance(init, tirx.BufferStore):
        return None
    if not is_number(init.value, 0) or not isinstance(body.value, tirx.Add):
        return None
    for total, product in ((body.value.a, body.value.b), (body.value.b, body.value.a)):
        if isinstance(total, TensorLoad) and total.source.same_as(body.buffer) and isinstance(product, tirx.Mul):
            return product.a, product.b
    return None


@dataclass(frozen=True)
class _Roles:
    """The roles of the axes in a sum of products.

        C[n, o, y] += A[n, c, y + k] * B[o, c, k]      batch n, rows o, columns y, depth c and k; left B, right A

    Attributes:
        values: of the step's own axes, by those that have roles.
        bounds: knows the sizes of the latter.
    """

    values: Mapping[tirx.Var, tirx.Expr]
    batch: Axes
    rows: Axes
    columns: Axes
    depth: Axes
    left: tirx.Expr
    right: tirx.Expr
    bounds: Nest


def _roles_of(step: ScheduleBlock, left: tirx.Expr, right: tirx.Expr) -> _Roles | None:
    """Returns the roles of a step's axes by which of its factors they index; None if it is no product in this sense."""
    if not all(axis.is_spatial or axis.is_reduced or axis.size == 1 for axis in step.axes):
        return None
    values, spatial, reduced = _with_groups_as_axes(step, left, right)
    bounds = Nest()
    for var, size in (*spatial, *reduced):
        bounds.bound(var, size)

    def indexing(factor: tirx.Expr) -> KeysView[tirx.Var]:
        return variables_of([bounds.simplify(substituted(factor, values))])

    of_left, of_right = indexing(left), indexing(right)
    last = spatial[-1][0] if spatial else None
    if last in of_left and last not in of_right:  # the last axis is one of the columns
        left, right, of_left, of_right = right, left, of_right, of_left

    def having(axes: Sequence[_SizedAxis], in_left: bool, in_right: bool) -> Axes:
        found = [(v, size) for v, size in axes if (v in of_left) == in_left and (v in of_right) == in_right]
        return Axes(tuple(v for v, _ in found), tuple(size for _, size in found))

    batch, depth = having(spatial, True, True), having(reduced, True, True)
    rows, columns = having(spatial, True, False), having(spatial, False, True)
    if sum(len(axes.variables) for axes in (batch, depth, rows, columns)) != len(spatial) + len(reduced):
        return None  # an axis without one of these roles
    return _Roles(values, batch, rows, columns, depth, left, right, bounds)


_SizedAxis = tuple[tirx.Var, Size]


def _with_groups_as_axes(
    step: ScheduleBlock, left: tirx.Expr, right: tirx.Expr
) -> tuple[dict[tirx.Var, tirx.Expr], list[_SizedAxis], list[_SizedAxis]]:
    """Returns the axes of a step that has an axis of its own for groups that one factor sees only as a whole.

        C[o] += A[o // 4, c] * B[o, c]    →    C[4 p + q] += A[p, c] * B[4 p + q, c]

    Output channels of grouped convolutions are such groups.

    Returns:
        Values of the step's axes, where these are not axes themselves; the spatial axes; the reduced ones.
    """
    values: dict[tirx.Var, tirx.Expr] = {}
    spatial: list[_SizedAxis] = []
    reduced: list[_SizedAxis] = []
    for axis in step.axes:
        group = max(_group(factor, axis) for factor in (left, right)) if axis.is_spatial else 1
        if axis.size == 1:
            values[axis.var] = number(0)
        elif axis.is_reduced:
            reduced.append((axis.var, axis.size))
        elif group == 1:
            spatial.append((axis.var, axis.size))
        else:
            outer, inner = (tirx.Var(f"{axis.var.name}_{part}", "int32") for part in ("outer", "inner"))
            values[axis.var] = outer * number(group) + inner
            spatial += [(outer, axis.size // group), (inner, group)]
    return values, spatial, reduced


def _group(expr: tirx.Expr, axis: Axis) -> Size:
    """Returns the size of the groups that an expression sees an axis in: 1 if it sees each value, or none."""
    uses = [part for part in inside(expr) if part.same_as(axis.var)]
    divisors = [
        size_of(part.b)
        for part in inside(expr)
        if isinstance(part, tirx.FloorDiv) and part.a.same_as(axis.var) and isinstance(part.b, tirx.IntImm)
    ]
    if len(divisors) != len(uses) or len(set(divisors)) != 1 or axis.size % divisors[0]:
        return 1
    return divisors[0]


@dataclass(frozen=True)
class _Write:
    """The write of the result from the sums.

    Attributes:
        value: what is written, by the variables of `axes`; None for the sum itself.
        axes: the values of these by the roles' axes.
    """

    tensor: tirx.Var
    indices: Sequence[tirx.Expr]
    value: tirx.Expr | None
    axes: Mapping[tirx.Var, tirx.Expr]


def _write_of(
    step: ScheduleBlock, epilogue: ScheduleBlock | None, values: Mapping[tirx.Var, tirx.Expr]
) -> _Write | None:
    """Returns the write; None if the epilogue moves elements, or is not a single expression."""
    indices = list(step.node.body.indices)
    if epilogue is None:
        return _Write(step.result, indices, None, values)
    positions = [load.indices for load in epilogue.loads if load.source.same_as(step.result)]
    if epilogue.value is None or not positions:
        return None
    sizes = {axis.var: axis.size for axis in epilogue.axes}
    axes: dict[tirx.Var, tirx.Expr] = {var: number(0) for var, size in sizes.items() if size == 1}
    for own, index, size in zip(positions[0], indices, sizes_of(step.result), strict=True):
        if size == 1:
            continue
        if not isinstance(own, tirx.Var) or own in axes or sizes.get(own) != size:
            return None
        axes[own] = substituted(index, values)
    same = all(
        a.same_as(b)
        for position in positions
        for a, b in zip(position, positions[0], strict=True)
        if not is_number(a, 0)
    )
    if not same or axes.keys() != sizes.keys():
        return None
    return _Write(epilogue.result, list(epilogue.node.body.indices), epilogue.value, axes)
