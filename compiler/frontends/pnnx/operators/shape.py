"""Operators that move elements without changing them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from tvm import relax

from nnefc.diagnostics import CompileError
from nnefc.frontends.pnnx.lowering import MAX_LIST_ITEMS, Lowering, Shape, Tensor, dtype_of, rank_of, shape_of
from nnefc.frontends.pnnx.operators.declaration import Ints, Result, Tensors, axis_of, need_size, operator
from nnefc.frontends.pnnx.promotion import promote

__all__ = ["joined"]


def _reshape(at: Lowering, input: Tensor, wanted: Sequence[int]) -> Result:
    """A reshape; one extent may be -1."""
    shape = shape_of(input)
    total = math.prod(shape)
    known = math.prod(extent for extent in wanted if extent != -1)
    result = tuple(wanted)
    if result.count(-1) == 1 and known > 0 and total % known == 0:
        result = tuple(total // known if extent == -1 else extent for extent in wanted)
    if any(extent < 0 for extent in result) or math.prod(result) != total:
        raise CompileError(f"an input of the shape {list(shape)} cannot be given the shape {list(wanted)}")
    return input if result == shape else relax.op.reshape(at.expr(input), result)


@operator("Tensor.view", "Tensor.reshape", "torch.reshape")
def _view(at: Lowering, input: Tensor, shape: Ints) -> Result:
    return _reshape(at, input, shape)


@operator("Tensor.view_as", "Tensor.reshape_as")
def _view_as(at: Lowering, input: Tensor, other: Tensor) -> Result:
    return _reshape(at, input, shape_of(other))


@operator("torch.flatten")
def _flatten(at: Lowering, input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Result:
    shape = shape_of(input) or (1,)
    start, end = axis_of(start_dim, len(shape)), axis_of(end_dim, len(shape))
    if start > end:
        raise CompileError(f"there is nothing between the dimensions {start_dim} and {end_dim}")
    return _reshape(at, input, (*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :]))


@operator("nn.Flatten")
def _flatten_module(at: Lowering, input: Tensor, start_dim: int = 1, end_dim: int = -1) -> Result:
    return _flatten(at, input, start_dim, end_dim)


@operator("nn.Unflatten", "torch.unflatten", "Tensor.unflatten")
def _unflatten(
    at: Lowering, input: Tensor, dim: int, unflattened_size: Ints | None = None, sizes: Ints | None = None
) -> Result:
    shape, axis = shape_of(input), axis_of(dim, rank_of(input))
    parts: Shape = tuple(unflattened_size or sizes or ())
    if not shape or not parts:
        raise CompileError("there is nothing to divide")
    known = math.prod(part for part in parts if part != -1)
    if parts.count(-1) == 1 and known > 0 and shape[axis] % known == 0:
        parts = tuple(shape[axis] // known if part == -1 else part for part in parts)
    if min(parts) < 0 or math.prod(parts) != shape[axis]:
        raise CompileError(f"an extent of {shape[axis]} cannot become {list(parts)}")
    return _reshape(at, input, (*shape[:axis], *parts, *shape[axis + 1 :]))


def _permuted(at: Lowering, input: Tensor, order: Sequence[int]) -> Result:
    return input if list(order) == sorted(order) else relax.op.permute_dims(at.expr(input), list(order))


@operator("torch.permute", "Tensor.permute")
def _permute(at: Lowering, input: Tensor, dims: Ints) -> Result:
    order = [axis_of(dim, rank_of(input)) for dim in dims]
    if sorted(order) != list(range(rank_of(input))):
        raise CompileError(f"{list(dims)} is no order of {rank_of(input)} dimensions")
    return _permuted(at, input, order)


@operator("torch.transpose", "Tensor.transpose")
def _transpose(at: Lowering, input: Tensor, dim0: int, dim1: int) -> Result:
    order = list(range(rank_of(input)))
    if not order:
        return input
    a, b = axis_of(dim0, len(order)), axis_of(dim1, len(order))
    order[a], order[b] = order[b], order[a]
    return _permuted(at, input, order)


@operator("torch.t", "Tensor.t")
def _t(at: Lowering, input: Tensor) -> Result:
    if rank_of(input) > 2:
        raise CompileError("'t' is for at most 2 dimensions")
    return _permuted(at, input, list(range(rank_of(input)))[::-1])


@operator("torch.movedim")
def _movedim(at: Lowering, input: Tensor, source: Ints, destination: Ints) -> Result:
    rank = rank_of(input)
    sources, targets = [axis_of(i, rank) for i in source], [axis_of(i, rank) for i in destination]
    if len(set(sources)) != len(sources) or len(set(targets)) != len(targets) or len(sources) != len(targets):
        raise CompileError(f"the dimensions {list(source)} cannot become {list(destination)}")
    moved = dict(zip(targets, sources, strict=True))
    rest = iter(axis for axis in range(rank) if axis not in sources)
    return _permuted(at, input, [moved[axis] if axis in moved else next(rest) for axis in range(rank)])


@operator("torch.squeeze", "Tensor.squeeze")
def _squeeze(at: Lowering, input: Tensor, dim: Ints | None = None) -> Result:
    shape = shape_of(input)
    chosen = range(len(shape)) if dim is None else [axis_of(i, len(shape)) for i in dim]
    return _reshape(at, input, [n for axis, n in enumerate(shape) if n != 1 or axis not in chosen])


@operator("torch.unsqueeze", "Tensor.unsqueeze")
def _unsqueeze(at: Lowering, input: Tensor, dim: int) -> Result:
    shape = shape_of(input)
    axis = axis_of(dim, len(shape) + 1)
    return _reshape(at, input, (*shape[:axis], 1, *shape[axis:]))


def _expanded(at: Lowering, input: Tensor, wanted: Sequence[int]) -> Result:
    shape = shape_of(input)
    own = (1,) * (len(wanted) - len(shape)) + shape
    result = need_size([n if size == -1 else size for n, size in zip(own, wanted, strict=False)])
    if len(wanted) < len(shape) or any(n not in (1, size) for n, size in zip(own, result, strict=True)):
        raise CompileError(f"an input of the shape {list(shape)} cannot be expanded to {list(wanted)}")
    return input if result == shape else relax.op.broadcast_to(at.expr(input), result)


@operator("Tensor.expand", "torch.broadcast_to")
def _expand(at: Lowering, input: Tensor, shape: Ints | None = None, sizes: Ints | None = None) -> Result:
    return _expanded(at, input, shape or sizes or ())


@operator("Tensor.expand_as")
def _expand_as(at: Lowering, input: Tensor, other: Tensor) -> Result:
    return _expanded(at, input, shape_of(other))


def _tiled(at: Lowering, input: Tensor, repeats: Sequence[int]) -> Result:
    shape = (1,) * (len(repeats) - rank_of(input)) + shape_of(input)
    if len(repeats) != len(shape) or any(not 1 <= count < 1 << 31 for count in repeats):
        raise CompileError(f"an input of {rank_of(input)} dimensions cannot be repeated {list(repeats)} times")
    need_size([n * count for n, count in zip(shape, repeats, strict=True)])
    return relax.op.tile(at.expr(input), list(repeats))


@operator("Tensor.repeat")
def _repeat(at: Lowering, input: Tensor, repeats: Ints | None = None, sizes: Ints | None = None) -> Result:
    return _tiled(at, input, repeats or sizes or ())


@operator("torch.tile")
def _tile(at: Lowering, input: Tensor, dims: Ints) -> Result:
    return _tiled(at, input, (1,) * (rank_of(input) - len(dims)) + tuple(dims))


@operator("torch.repeat_interleave", limits="one number for all elements")
def _repeat_interleave(at: Lowering, input: Tensor, repeats: int, dim: int | None = None) -> Result:
    if not 1 <= repeats < 1 << 31:
        raise CompileError(f"'repeats' must be positive, it is {repeats}")
    if dim is None:
        input, dim = at.emit(relax.op.reshape(at.expr(input), (math.prod(shape_of(input)),))), 0
    axis = axis_of(dim, rank_of(input))
    need_size([n * (repeats if i == axis else 1) for i, n in enumerate(shape_of(input))])
    return relax.op.repeat(at.expr(input), repeats, axis)


# Joining and dividing.


def joined(at: Lowering, tensors: Sequence[Tensor]) -> list[relax.Expr]:
    """The tensors in the type that they promote to."""
    dtype = dtype_of(tensors[0])
    for tensor in tensors[1:]:
        dtype = promote(dtype, dtype_of(tensor))
    return [at.expr(x) if dtype_of(x) == dtype else at.emit(at.convert(x, dtype)) for x in tensors]


def _tensors(groups: tuple[Any, ...]) -> Tensors:
    """Operands laid flat: each is a tensor or a sequence of tensors."""
    flat: list[Any] = []
    for group in groups:
        flat += list(group) if isinstance(group, tuple) else [group]
    if not flat or any(item is None or isinstance(item, bool | int | float | str | tuple) for item in flat):
        raise CompileError("the operands should be tensors")
    return Tensors(flat)


@operator("torch.cat", "torch.concat")
def _cat(at: Lowering, *tensors: Tensors, dim: int = 0) -> Result:
    flat = _tensors(tensors)
    shapes = [shape_of(tensor) for tensor in flat]
    # An empty vector joins with anything.
    kept = [tensor for tensor, shape in zip(flat, shapes, strict=True) if shape != (0,)] or list(flat)
    shape = shape_of(kept[0])
    if not shape:
        raise CompileError("tensors of rank 0 cannot be joined")
    axis = axis_of(dim, len(shape))
    for other in (shape_of(tensor) for tensor in kept):
        if len(other) != len(shape) or any(
            a != b for i, (a, b) in enumerate(zip(shape, other, strict=True)) if i != axis
        ):
            raise CompileError(f"the shapes {list(shape)} and {list(other)} differ in more than the dimension {dim}")
    return kept[0] if len(kept) == 1 else relax.op.concat(joined(at, kept), axis)


@operator("torch.stack")
def _stack(at: Lowering, *tensors: Tensors, dim: int = 0) -> Result:
    flat = _tensors(tensors)
    shape = shape_of(flat[0])
    if any(shape_of(tensor) != shape for tensor in flat):
        raise CompileError(f"tensors of different shapes cannot be stacked: {[list(shape_of(t)) for t in flat][:8]}")
    axis = axis_of(dim, len(shape) + 1)
    rows = [at.emit(relax.op.expand_dims(expr, axis)) for expr in joined(at, flat)]
    return rows[0] if len(rows) == 1 else relax.op.concat(rows, axis)


def _divided(at: Lowering, input: Tensor, sizes: Sequence[int], axis: int) -> Result:
    shape = shape_of(input)
    if any(size < 1 for size in sizes):
        raise CompileError("the parts must not be empty")
    if sum(sizes) != shape[axis]:
        raise CompileError(f"parts of {list(sizes)[:20]} do not make up the extent {shape[axis]}")
    if len(sizes) == 1:
        return (input,)
    ends = [*accumulate(sizes[:-1])]
    parts = at.emit(relax.op.split(at.expr(input), ends, axis))
    return tuple(at.emit(parts[i]) for i in range(len(sizes)))


def _axis_with_extent(input: Tensor, dim: int) -> tuple[int, int]:
    if not rank_of(input):
        raise CompileError("a tensor of rank 0 cannot be divided")
    axis = axis_of(dim, rank_of(input))
    return axis, shape_of(input)[axis]


def _sizes_of(extent: int, size: int) -> list[int]:
    _check_count(-(-extent // size), extent)
    return [min(size, extent - start) for start in range(0, extent, size)]


def _check_count(count: int, extent: int) -> None:
    if not 1 <= count <= MAX_LIST_ITEMS:
        raise CompileError(f"an extent of {extent} cannot become {count} parts: at most {MAX_LIST_ITEMS} are supported")


@operator("torch.chunk", "Tensor.chunk")
def _chunk(at: Lowering, input: Tensor, chunks: int, dim: int = 0) -> Result:
    axis, extent = _axis_with_extent(input, dim)
    if chunks < 1 or not extent:
        raise CompileError(f"an extent of {extent} cannot become {chunks} parts")
    return _divided(at, input, _sizes_of(extent, -(-extent // chunks)), axis)


@operator("torch.split", "Tensor.split")
def _split(
    at: Lowering,
    input: Tensor,
    split_size_or_sections: Ints | None = None,
    split_size: Ints | None = None,
    dim: int = 0,
) -> Result:
    axis, extent = _axis_with_extent(input, dim)
    sizes = split_size_or_sections or split_size or Ints()
    if len(sizes) != 1:
        return _divided(at, input, sizes, axis)
    if sizes[0] < 1:
        raise CompileError(f"an extent of {extent} cannot be divided into parts of {sizes[0]}")
    return _divided(at, input, _sizes_of(extent, sizes[0]), axis)


@operator("torch.tensor_split")
def _tensor_split(
    at: Lowering, input: Tensor, indices: Ints | None = None, sections: int | None = None, dim: int = 0
) -> Result:
    axis, extent = _axis_with_extent(input, dim)
    if sections is not None:
        if not 1 <= sections <= extent:
            raise CompileError(f"an extent of {extent} cannot become {sections} parts")
        _check_count(sections, extent)
        sizes = [extent // sections + (i < extent % sections) for i in range(sections)]
    else:
        ends = [0, *(indices or ()), extent]
        sizes = [b - a for a, b in pairwise(ends)]
    return _divided(at, input, sizes, axis)


@operator("torch.unbind", "Tensor.unbind")
def _unbind(at: Lowering, input: Tensor, dim: int = 0) -> Result:
    axis, extent = _axis_with_extent(input, dim)
    _check_count(extent, extent)
    parts = _divided(at, input, [1] * extent, axis)
    return tuple(at.emit(relax.op.squeeze(at.expr(part), axis)) for part in parts)


@operator("torch.flip", "Tensor.flip")
def _flip(at: Lowering, input: Tensor, dims: Ints) -> Result:
    axes = {axis_of(dim, rank_of(input)) for dim in dims}
    shape: Shape = shape_of(input)
    return at.elements(
        shape,
        lambda inputs, index: inputs[0](*(shape[k] - 1 - i if k in axes else i for k, i in enumerate(index))),
        input,
        name="flip",
    )


@operator("torch.roll", "Tensor.roll")
def _roll(at: Lowering, input: Tensor, shifts: Ints, dims: Ints | None = None) -> Result:
    shape = shape_of(input)
    if not dims:
        if len(shifts) != 1:
            raise CompileError("several shifts need as many dimensions")
        flat = at.emit(relax.op.reshape(at.expr(input), (math.prod(shape),)))
        return relax.op.reshape(_rolled(at, flat, {0: shifts[0]}), shape)
    if len(shifts) != len(dims):
        raise CompileError(f"{len(shifts)} shifts do not fit {len(dims)} dimensions")
    amounts: dict[int, int] = {}
    for shift, dim in zip(shifts, dims, strict=True):
        axis = axis_of(dim, len(shape))
        amounts[axis] = amounts.get(axis, 0) + shift
    return _rolled(at, input, amounts)


def _rolled(at: Lowering, input: Tensor, amounts: dict[int, int]) -> relax.Var:
    shape = shape_of(input)

    def place(k: int, i: Any) -> Any:
        back = amounts.get(k, 0) % shape[k] if shape[k] else 0
        return (i + (shape[k] - back)) % shape[k] if back else i

    return at.elements(
        shape, lambda inputs, index: inputs[0](*(place(k, i) for k, i in enumerate(index))), input, name="roll"
    )


@operator("Tensor.size", limits="known at compile time")
def _size(at: Lowering, input: Tensor, dim: int | None = None) -> Result:
    return shape_of(input) if dim is None else _axis_with_extent(input, dim)[1]
