"""Sums of products: which axes a computation has, what it multiplies, and what becomes of the sums.

    C[…] = epilogue(sum of left[batch, rows, depth] * right[batch, columns, depth])

A convolution is such a sum with output channels for rows, pixels for columns, and the window and the input channels for
depth; a matrix product is one as it stands. Padding is part of an operand: a condition around what it loads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import tvm
from tvm import s_tir, tirx
from tvm.ir.expr import TensorLoad
from tvm.sym import detect_linear_equation

from nnefc.passes.schedule.cuda.nest import Nest, buffer, size_of
from nnefc.passes.schedule.structure import (
    SBlockRV,
    epilogue_into_one_block,
    is_reduction,
    root_blocks,
    schedule_of,
    variables_of,
)
from nnefc.passes.tir.expressions import flat_offset, inside, number, substituted
from nnefc.targets.machine.cuda_target import CudaTarget

__all__ = ["Axes", "Operand", "Product", "product_of"]

_VECTOR_BYTES = 16
_MOST_ELEMENTS = 1 << 30  # of a tensor whose indices, those beyond its end too, are 32 bits wide


@dataclass(frozen=True)
class Axes:
    """Some axes as one: the last of them runs fastest."""

    variables: tuple[tirx.Var, ...]
    extents: tuple[int, ...]

    @property
    def extent(self) -> int:
        """How many values the fused index has."""
        return math.prod(self.extents)

    def is_fastest(self, var: tirx.Var) -> bool:
        """Whether an axis is the last of these."""
        return bool(self.variables) and var.same_as(self.variables[-1])

    def at(self, index: tirx.Expr, of: tirx.Expr) -> dict[tirx.Var, tirx.Expr]:
        """The values of the axes for a value of the fused index.

        Axes that the expression `of` goes through as if they were one are not told apart: the last of them gets the
        value of all.
        """
        values: dict[tirx.Var, tirx.Expr] = {}
        inner = 1
        for run in reversed(self._runs(of)):
            extent = math.prod(self.extents[position] for position in run)
            value = tirx.floordiv(index, number(inner)) if inner > 1 else index
            *others, last = run
            values[self.variables[last]] = tirx.floormod(value, number(extent)) if run[0] else value
            values |= {self.variables[position]: number(0) for position in others}
            inner *= extent
        return values

    def _runs(self, of: tirx.Expr) -> list[list[int]]:
        """The axes' positions, those together that an expression needs as one only."""
        offsets = [part.indices[0] for part in inside(of) if isinstance(part, TensorLoad)]
        alone = variables_of([substituted(of, {}, lambda source, _: tirx.const(0, str(source.dtype)))])
        runs: list[list[int]] = []
        for position, var in enumerate(self.variables):
            if runs and not {var, self.variables[position - 1]} & alone and self._continue(offsets, position):
                runs[-1].append(position)
            else:
                runs.append([position])
        return runs

    def _continue(self, offsets: list[tirx.Expr], position: int) -> bool:
        """Whether the end of a round of an axis is followed in memory by the next round, for all offsets."""
        pair, extent = list(self.variables[position - 1 : position + 1]), self.extents[position]
        for offset in offsets:
            steps = detect_linear_equation(offset, pair)
            if not steps or not all(isinstance(step, tirx.IntImm) for step in steps[:2]):
                return False
            if int(steps[0]) != int(steps[1]) * extent:
                return False
        return True


@dataclass(frozen=True)
class Operand:
    """One of the two factors.

    Attributes:
        value: an element of it, given values of the axes.
        positions: rows or columns.
        aligned: as for :class:`Product`.
    """

    value: tirx.Expr
    batch: Axes
    positions: Axes
    depth: Axes
    aligned: bool

    def at(self, nest: Nest, batch: tirx.Expr, position: tirx.Expr, depth: tirx.Expr) -> tirx.Expr:
        """The element at values of the fused indices."""
        return self.having(nest, {**self.batch.at(batch, self.value), **self.positions.at(position, self.value)}, depth)

    def having(self, nest: Nest, values: Mapping[tirx.Var, tirx.Expr], depth: tirx.Expr) -> tirx.Expr:
        """The element for values of all axes but those summed over."""
        all_values = {**values, **self.depth.at(depth, self.value)}
        return nest.simplify(with_simple_indices(substituted(self.value, all_values), nest))


@dataclass(frozen=True)
class Product:
    """A sum of products, with what surrounds it.

    Attributes:
        func: the computation, of which `params` are the buffers, made flat.
        batch: axes that index both operands.
        rows: axes that index the left operand alone.
        columns: axes that index the right operand alone; the last axis of the result is one of them, if of either.
        depth: axes summed over.
        left, right: what is multiplied, given values of the axes; of type `dtype` where no cast is taken away.
        dtype: of the sum as the computation has it.
        output, place, value: what is written and where, given values of the axes and the sum, `total`.
        aligned: whether tensors begin at multiples of a vector's size.
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
    place: tirx.Expr
    value: tirx.Expr
    total: tirx.Var
    aligned: bool

    @property
    def accumulator(self) -> str:
        """The type to sum up in: half precision is not enough."""
        return "float32" if self.dtype in ("float16", "bfloat16") else self.dtype

    @property
    def operands(self) -> tuple[Operand, Operand]:
        """The left and the right one."""
        return (
            Operand(self.left, self.batch, self.rows, self.depth, self.aligned),
            Operand(self.right, self.batch, self.columns, self.depth, self.aligned),
        )

    def stored(
        self, nest: Nest, batch: tirx.Expr, row: tirx.Expr, column: tirx.Expr, total: tirx.Expr
    ) -> tuple[tirx.Expr, tirx.Expr]:
        """Where the result for a sum is written, and its value."""

        def values(of: tirx.Expr) -> dict[tirx.Var, tirx.Expr]:
            roles = ((self.batch, batch), (self.rows, row), (self.columns, column))
            return {var: value for axes, index in roles for var, value in axes.at(index, of).items()}

        cast = total if str(self.dtype) == self.accumulator else tirx.Cast(self.dtype, total)
        # The place is an offset itself, and stands as one beside those that the value loads from.
        place = nest.simplify(substituted(self.place, values(tirx.BufferLoad(self.output, [self.place]))))
        value = substituted(self.value, {**values(self.value), self.total: cast})
        return place, with_simple_indices(value, nest)


def with_simple_indices(expr: tirx.Expr, nest: Nest) -> tirx.Expr:
    """The expression with the places that it loads from simplified."""
    return substituted(expr, {}, lambda source, at: tirx.BufferLoad(source, [nest.simplify(index) for index in at]))


@lru_cache(maxsize=1)  # several rules ask for one kernel's
def product_of(func: tirx.PrimFunc, target: CudaTarget) -> Product | None:
    """The sum of products that a computation is, with element-wise steps before and after; None if it is another.

    Raises:
        ScheduleError: a step cannot be joined with the sum.
    """
    if any(size_of(tensor) >= _MOST_ELEMENTS or tensor.dtype == "int64" for tensor in _tensors(func)):
        return None
    narrow = tirx.transform.ForceNarrowIndexToInt32()(tvm.IRModule({"main": func}))["main"]
    sch = schedule_of(narrow)
    reductions = [b for b in root_blocks(sch) if is_reduction(sch, b)]
    if len(reductions) != 1:
        return None
    block = reductions[0]
    _inline_producers(sch, block)
    last = epilogue_into_one_block(sch, block)
    if len(root_blocks(sch)) != 1 + (last is not None) or not all(_is_plain(sch, b) for b in root_blocks(sch)):
        return None
    epilogue = None if last is None else sch.get(last)
    return _product(narrow, sch.get(block), epilogue, target.load_bytes >= _VECTOR_BYTES)


def _tensors(func: tirx.PrimFunc) -> Iterator[tirx.Var]:
    yield from func.params
    yield from func.body.block.alloc_buffers


def _inline_producers(sch: s_tir.Schedule, block: SBlockRV) -> None:
    """Compute what the block reads where it reads it: paddings, and conversions of types."""
    while producers := sch.get_producers(block):
        for producer in producers:
            sch.compute_inline(producer)


def _is_plain(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    """Whether there is a loop for each axis of a block, and nothing else around it."""
    axes, loops = sch.get(block).iter_vars, sch.get_loops(block)
    extents = [int(axis.dom.extent) for axis in axes]
    return len(axes) == len(loops) and extents == [int(sch.get(loop).extent) for loop in loops]


def _product(func: tirx.PrimFunc, node: s_tir.SBlock, epilogue: s_tir.SBlock | None, aligned: bool) -> Product | None:
    factors = _factors(node)
    if factors is None:
        return None
    roles = _roles(node, *factors)
    if roles is None:
        return None
    values, batch, rows, columns, depth, left, right = roles
    flat = {param: buffer(str(param.name), size_of(param), str(param.dtype)) for param in func.params}
    (sums,) = {write.source for write in node.writes}
    total = tirx.Var("total", str(sums.dtype))
    stored = _stored(node, epilogue, sums, values)
    if stored is None:
        return None
    output, indices, value, axes = stored

    def load(source: tirx.Var, at: Sequence[tirx.Expr]) -> tirx.Expr:
        return total if source.same_as(sums) else tirx.BufferLoad(flat[source], [_offset(source, at)])

    nest = Nest()
    for axes_of_role in (batch, rows, columns, depth):
        for var, extent in zip(axes_of_role.variables, axes_of_role.extents, strict=True):
            nest.bound(var, extent)
    return Product(
        func,
        tuple(flat[param] for param in func.params),
        batch,
        rows,
        columns,
        depth,
        with_simple_indices(substituted(left, values, load), nest),
        with_simple_indices(substituted(right, values, load), nest),
        str(sums.dtype),
        flat[output],
        _offset(output, [substituted(index, axes) for index in indices]),
        total if value is None else substituted(value, axes, load),
        total,
        aligned,
    )


def _offset(tensor: tirx.Var, indices: Sequence[tirx.Expr]) -> tirx.Expr:
    return flat_offset([int(extent) for extent in tensor.shape], indices)


def _factors(node: s_tir.SBlock) -> tuple[tirx.Expr, tirx.Expr] | None:
    """What a block multiplies, if it sums up products from zero."""
    body, init = node.body, node.init
    if not isinstance(body, tirx.BufferStore) or not isinstance(init, tirx.BufferStore):
        return None
    if not isinstance(init.value, tirx.IntImm | tirx.FloatImm) or float(init.value.value) != 0:
        return None
    if not isinstance(body.value, tirx.Add):
        return None
    for total, product in ((body.value.a, body.value.b), (body.value.b, body.value.a)):
        if isinstance(total, TensorLoad) and total.source.same_as(body.buffer) and isinstance(product, tirx.Mul):
            return product.a, product.b
    return None


_Roles = tuple[dict[tirx.Var, tirx.Expr], Axes, Axes, Axes, Axes, tirx.Expr, tirx.Expr]


def _roles(node: s_tir.SBlock, left: tirx.Expr, right: tirx.Expr) -> _Roles | None:
    """Values of the block's axes by new ones of known roles, then these by role, then the operands in order.

    An axis that one operand sees in whole groups only, as output channels of a grouped convolution, becomes two.
    """
    values: dict[tirx.Var, tirx.Expr] = {}
    spatial: list[tuple[tirx.Var, int]] = []
    reduced: list[tuple[tirx.Var, int]] = []
    for axis in node.iter_vars:
        extent = int(axis.dom.extent)
        if extent == 1:
            values[axis.var] = number(0)
        elif axis.iter_type == tirx.IterVar.CommReduce:
            reduced.append((axis.var, extent))
        elif axis.iter_type == tirx.IterVar.DataPar:
            group = max(_group(left, axis.var, extent), _group(right, axis.var, extent))
            if group == 1:
                spatial.append((axis.var, extent))
            else:
                outer, inner = tirx.Var(f"{axis.var.name}_outer", "int32"), tirx.Var(f"{axis.var.name}_inner", "int32")
                values[axis.var] = outer * number(group) + inner
                spatial += [(outer, extent // group), (inner, group)]
        else:
            return None
    nest = Nest()
    for var, extent in (*spatial, *reduced):
        nest.bound(var, extent)
    seen = [variables_of([nest.simplify(substituted(side, values))]) for side in (left, right)]
    last = spatial[-1][0] if spatial else None
    if last in seen[0] and last not in seen[1]:  # the last axis is one of the columns
        left, right, seen = right, left, seen[::-1]

    def having(in_left: bool, in_right: bool) -> Axes:
        found = [(v, e) for v, e in spatial if (v in seen[0]) == in_left and (v in seen[1]) == in_right]
        return Axes(tuple(v for v, _ in found), tuple(e for _, e in found))

    if having(False, False).variables or not all(v in seen[0] and v in seen[1] for v, _ in reduced):
        return None
    depth = Axes(tuple(v for v, _ in reduced), tuple(e for _, e in reduced))
    return values, having(True, True), having(True, False), having(False, True), depth, left, right


def _group(expr: tirx.Expr, var: tirx.Var, extent: int) -> int:
    """The size of the groups that an expression sees an axis in: 1 if it sees each value, or none."""
    divisors = {
        int(part.b)
        for part in inside(expr)
        if isinstance(part, tirx.FloorDiv) and part.a.same_as(var) and isinstance(part.b, tirx.IntImm)
    }
    (group, *others) = divisors or {1}
    if others or group == 1 or extent % group:
        return 1
    divided = sum(isinstance(part, tirx.FloorDiv) and part.a.same_as(var) for part in inside(expr))
    return group if divided == sum(part.same_as(var) for part in inside(expr)) else 1


_Stored = tuple[tirx.Var, list[tirx.Expr], tirx.Expr | None, Mapping[tirx.Var, tirx.Expr]]


def _stored(
    node: s_tir.SBlock, epilogue: s_tir.SBlock | None, sums: tirx.Var, values: Mapping[tirx.Var, tirx.Expr]
) -> _Stored | None:
    """What is written at which indices, its value (None: the sum), and what the variables of both are."""
    own = list(node.body.indices)
    if epilogue is None:
        return sums, own, None, values
    body = epilogue.body
    if not isinstance(body, tirx.BufferStore):
        return None
    extents = {axis.var: int(axis.dom.extent) for axis in epilogue.iter_vars}
    axes: dict[tirx.Var, tirx.Expr] = {var: number(0) for var, extent in extents.items() if extent == 1}
    places = [part.indices for part in inside(body.value) if isinstance(part, TensorLoad) and part.source.same_as(sums)]
    if not places:
        return None
    for index, source, extent in zip(places[0], own, map(int, sums.shape), strict=True):
        if extent == 1:
            continue
        if not isinstance(index, tirx.Var) or index in axes or extents.get(index) != extent:
            return None  # it moves elements about
        axes[index] = substituted(source, values)
    same = all(a.same_as(b) for place in places for a, b in zip(place, places[0], strict=True) if not _is_zero(a))
    if not same or axes.keys() != extents.keys():
        return None
    return body.buffer, list(body.indices), body.value, axes


def _is_zero(expr: tirx.Expr) -> bool:
    return isinstance(expr, tirx.IntImm) and int(expr) == 0
