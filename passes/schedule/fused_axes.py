"""Fuses two neighbouring row axes of a product, where all tensors are dense along both.

    for y in h, x in w: C[o, y, x] = sum(A[k, y, x] * B[o, k])     →     for f in h w: C[o, f] = sum(A[k, f] * B[o, k])

An image then has one remainder and not one for each of its rows: those of small images are short. Where its sizes
are known, a result that nothing else reads may be written elsewhere, as into the middle of a padded image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Range
from tvm.ir.expr import TensorLoad, TensorRegion

from nnefc.ir.attributes import INTERIOR, JOINED_ROWS, PADDING, PERIODS
from nnefc.ir.rebuild import nested, perfect_nest, with_fields
from nnefc.passes.schedule.analysis import KernelAnalysis, ScheduleBlock
from nnefc.passes.tir.common.expressions import int64, is_number, substituted, variables_of
from nnefc.passes.tir.common.shapes import Size, sizes_of
from nnefc.symbolic.dims import expression, is_known

__all__ = ["fuse_row_axes"]


def fuse_row_axes(
    kernel: KernelAnalysis, product: ScheduleBlock, of_known_sizes: bool = False
) -> KernelAnalysis | None:
    """Returns a kernel of one product with the last two axes of its rows fused, if one is dynamic and others follow.

    Args:
        of_known_sizes: whether they are joined also if none of them is open.

    Returns:
        None where a tensor is read otherwise than in the same position along both, or written so.
    """
    roles = product.contraction
    rows = roles.only_left[-2:] if roles is not None else ()
    if len(rows) < 2 or rows[0] + 1 != rows[1]:
        return None
    if not of_known_sizes and all(is_known(product.sizes[axis]) for axis in rows):
        return None
    if any(product.sizes[axis] == 1 for axis in rows) or not all(step.loops_are_axes for step in kernel.steps):
        return None
    sizes = product.sizes[rows[0]], product.sizes[rows[1]]
    read = {region.source for step in kernel.steps for region in step.reads}
    written = {region.source for step in kernel.steps for region in step.writes} - read
    joining = _Joining(sizes, written if all(map(is_known, sizes)) else set())
    if not joining.start(product, rows[0]) or not joining.spread(kernel.steps):
        return None
    return joining.changed(kernel)


@dataclass
class _Joining:
    """The axes of blocks, and the dimensions of tensors, that are fused with the next one.

    Attributes:
        sizes: of both.
        results: tensors that may be written elsewhere.
        axes: by the steps' names.
        dims: by tensors.
        moved: those of the results that are written elsewhere.
    """

    sizes: tuple[Size, Size]
    results: set[tirx.Var]
    axes: dict[str, int] = field(default_factory=dict)
    dims: dict[tirx.Var, int] = field(default_factory=dict)
    moved: set[tirx.Var] = field(default_factory=set)

    def start(self, step: ScheduleBlock, axis: int) -> bool:
        """Fuses two axes of a step, and the dimensions of tensors that it reads or writes along them."""
        if PERIODS in step.node.annotations or step.sizes[axis : axis + 2] != self.sizes:
            return False
        self.axes[step.name] = axis
        both = {step.axes[axis].var, step.axes[axis + 1].var}
        for region in (*step.reads, *step.writes):
            used = [n for n, offset in enumerate(region.region) if both & variables_of([offset.min, offset.extent])]
            if not used:
                continue
            if region.source in self.results and not self._is_dense(region, used, step, axis):
                self.moved.add(region.source)
                continue
            if not self._is_dense(region, used, step, axis) or self.dims.setdefault(region.source, used[0]) != used[0]:
                return False
        return True

    def _is_dense(self, region: TensorRegion, used: Sequence[int], step: ScheduleBlock, axis: int) -> bool:
        if len(used) != 2 or used[1] != used[0] + 1 or sizes_of(region.source)[used[0] : used[1] + 1] != self.sizes:
            return False
        positions = [region.region[n] for n in used]
        return all(
            is_number(offset.extent, 1) and _without_unit_axes(offset.min, step).same_as(step.axes[axis + k].var)
            for k, offset in enumerate(positions)
        )

    def spread(self, steps: Sequence[ScheduleBlock]) -> bool:
        """Fuses the axes of all steps that read or write joined dimensions."""
        waiting = [step for step in steps if step.name not in self.axes]
        for _ in steps:
            for step in list(waiting):
                axis = next((self._axis(step, r) for r in (*step.reads, *step.writes) if r.source in self.dims), None)
                if axis is not None:
                    if axis < 0 or not self.start(step, axis):
                        return False
                    waiting.remove(step)
        accesses = [(step, region) for step in steps for region in (*step.reads, *step.writes)]
        return all(self._axis(step, r) == self.axes.get(step.name, -1) for step, r in accesses if r.source in self.dims)

    def _axis(self, step: ScheduleBlock, region: TensorRegion) -> int:
        """Returns the axis of a step that indexes the first of two fused dimensions; -1 if there is none."""
        first = _without_unit_axes(region.region[self.dims[region.source]].min, step)
        return next((n for n, axis in enumerate(step.axes[:-1]) if axis.var.same_as(first)), -1)

    def changed(self, kernel: KernelAnalysis) -> KernelAnalysis | None:
        """Returns the kernel with fewer axes; None if what it computes depends on one of the two."""
        func = kernel.func
        root = func.body.block
        tensors = {tensor: self._tensor(tensor, dim) for tensor, dim in self.dims.items()}
        body = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
        made: list[tirx.Stmt] = []
        for stmt, step in zip(body, kernel.steps, strict=True):
            joined = self._step(stmt, step, tensors) if step.name in self.axes else stmt
            if joined is None:
                return None
            made.append(joined)
        block = with_fields(
            root,
            iter_vars=[],
            body=tirx.SeqStmt(made) if len(made) > 1 else made[0],
            init=None,
            alloc_buffers=[tensors.get(buffer, buffer) for buffer in root.alloc_buffers],
        )
        params = [tensors.get(param, param) for param in func.params]
        return KernelAnalysis(
            with_fields(func, params=params, body=s_tir.SBlockRealize([], True, block)).with_attr(JOINED_ROWS, True)
        )

    def _tensor(self, tensor: tirx.Var, dim: int) -> tirx.Var:
        """Returns a tensor with the two dimensions fused."""
        shape = [expression(size) for size in self._one(sizes_of(tensor), dim)]
        return tirx.decl_buffer(shape, str(tensor.dtype), tensor.name, layout=None)

    def _one(self, elements: Sequence[Size], dim: int) -> list[Size]:
        height, width = self.sizes
        return [*elements[:dim], height * width, *elements[dim + 2 :]]

    def _step(self, stmt: tirx.Stmt, step: ScheduleBlock, tensors: Mapping[tirx.Var, tirx.Var]) -> tirx.Stmt | None:
        """Returns a block with the two axes fused; None if anything but indices depends on them."""
        position = self.axes[step.name]
        loops = perfect_nest(stmt)
        stmt = loops[-1].body
        block, size = stmt.block, expression(self.sizes[0] * self.sizes[1])
        var, loop_var = tirx.Var(f"{loops[position].loop_var.name}s", "int64"), tirx.Var("f", "int64")
        gone = [axis.var for axis in step.axes[position : position + 2]]
        width = expression(self.sizes[1])
        positions = dict(zip(gone, (var // width, var % width), strict=True))

        def joined(access: TensorLoad | tirx.BufferStore) -> TensorLoad | tirx.BufferStore:
            tensor = access.source if isinstance(access, TensorLoad) else access.buffer
            if isinstance(access, tirx.BufferStore) and tensor in self.moved:
                return tirx.BufferStore(
                    tensor, access.value, [substituted(index, positions) for index in access.indices]
                )
            if tensor not in self.dims:
                return access
            dim = self.dims[tensor]
            indices = [*access.indices[:dim], var, *access.indices[dim + 2 :]]
            if isinstance(access, TensorLoad):
                return tirx.BufferLoad(tensors[tensor], indices)
            return tirx.BufferStore(tensors[tensor], access.value, indices)

        def region(of: TensorRegion) -> TensorRegion:
            if of.source in self.moved:
                moved = [
                    Range.from_min_extent(substituted(offset.min, positions), offset.extent) for offset in of.region
                ]
                return tirx.BufferRegion(of.source, moved)
            if of.source not in self.dims:
                return of
            dim, ranges = self.dims[of.source], list(of.region)
            return tirx.BufferRegion(
                tensors[of.source], [*ranges[:dim], Range.from_min_extent(var, int64(1)), *ranges[dim + 2 :]]
            )

        accesses = (TensorLoad, tirx.BufferStore)
        body, init = (
            None if part is None else tvm_ffi.structural_map(part, (accesses, joined))
            for part in (block.body, block.init)
        )
        if {*gone} & {
            *tirx.analysis.undefined_vars(body, []),
            *(tirx.analysis.undefined_vars(init, []) if init else ()),
        }:
            return None
        annotations = dict(block.annotations)
        if PADDING in annotations:
            annotations[INTERIOR] = [expression(axis.size) for axis in step.axes]
        axes = list(block.iter_vars)
        axes[position : position + 2] = [tirx.IterVar(Range(int64(0), size), var, axes[position].iter_type)]
        made = with_fields(
            block,
            iter_vars=axes,
            reads=[region(read) for read in block.reads],
            writes=[region(write) for write in block.writes],
            body=body,
            init=init,
            annotations=annotations,
        )
        values = list(stmt.iter_values)
        values[position : position + 2] = [loop_var]
        fused = with_fields(loops[position], loop_var=loop_var, extent=size)
        around = [*loops[:position], fused, *loops[position + 2 :]]
        return nested(around, s_tir.SBlockRealize(values, stmt.predicate, made))


def _without_unit_axes(offset: tirx.Expr, step: ScheduleBlock) -> tirx.Expr:
    """Returns an index without axes of size 1, as those of a window of one element."""
    units = [axis.var for axis in step.axes if axis.size == 1]
    while isinstance(offset, tirx.Add) and any(offset.b.same_as(var) for var in units):
        offset = offset.a
    return offset
