"""Tensors that are known at compile time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnefc.diagnostics import CompileError
from nnefc.frontends.pnnx.lowering import Array, Lowering, Tensor, dtype_of, shape_of
from nnefc.frontends.pnnx.operators.declaration import DType, Ints, Number, Result, operator
from nnefc.operators.base import check_size

__all__: list[str] = []

_MOST_ELEMENTS = 1 << 26


def _filled(shape: Sequence[int], value: Number, dtype: str) -> Array:
    size = check_size(shape)
    if int(np.prod(size, dtype=np.int64)) > _MOST_ELEMENTS:
        raise CompileError(f"a constant of the shape {list(size)} is too large")
    # One element, seen as many.
    return np.ascontiguousarray(np.broadcast_to(np.array(value).astype(np.dtype(dtype)), size)).reshape(size)


def _type_of(value: Number) -> str:
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"


for _name, _value in (("zeros", 0), ("ones", 1), ("empty", 0)):

    @operator(f"torch.{_name}", value=_value)
    def _of_size(
        at: Lowering, size: Ints, value: int, dtype: DType | None = None, device: str | None = None,
        layout: str | None = None, pin_memory: bool = False, requires_grad: bool = False,
        memory_format: str | None = None,
    ) -> Result:  # fmt: skip
        return _filled(size, value, dtype or "float32")

    @operator(f"torch.{_name}_like", value=_value)
    def _like(
        at: Lowering, input: Tensor, value: int, dtype: DType | None = None, device: str | None = None,
        layout: str | None = None, pin_memory: bool = False, requires_grad: bool = False,
        memory_format: str | None = None,
    ) -> Result:  # fmt: skip
        return _filled(shape_of(input), value, dtype or dtype_of(input))

    @operator(f"Tensor.new_{_name}", value=_value)
    def _new(
        at: Lowering, input: Tensor, size: Ints, value: int, dtype: DType | None = None, device: str | None = None,
        layout: str | None = None, pin_memory: bool = False, requires_grad: bool = False,
    ) -> Result:  # fmt: skip
        return _filled(size, value, dtype or dtype_of(input))


@operator("torch.full")
def _full(
    at: Lowering, size: Ints, fill_value: Number, dtype: DType | None = None, device: str | None = None,
    layout: str | None = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Result:  # fmt: skip
    return _filled(size, fill_value, dtype or _type_of(fill_value))


@operator("torch.full_like")
def _full_like(
    at: Lowering, input: Tensor, fill_value: Number, dtype: DType | None = None, device: str | None = None,
    layout: str | None = None, pin_memory: bool = False, requires_grad: bool = False, memory_format: str | None = None,
) -> Result:  # fmt: skip
    return _filled(shape_of(input), fill_value, dtype or dtype_of(input))


@operator("Tensor.new_full")
def _new_full(
    at: Lowering, input: Tensor, size: Ints, fill_value: Number, dtype: DType | None = None,
    device: str | None = None, layout: str | None = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Result:  # fmt: skip
    return _filled(size, fill_value, dtype or dtype_of(input))


@operator("Tensor.fill")
def _fill(at: Lowering, input: Tensor, value: Number) -> Result:
    return _filled(shape_of(input), value, dtype_of(input))


@operator("torch.arange")
def _arange(
    at: Lowering, end: Number, start: Number = 0, step: Number = 1, dtype: DType | None = None,
    device: str | None = None, layout: str | None = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Result:  # fmt: skip
    numbers = (start, end, step)
    if step == 0 or not all(abs(number) < 1 << 53 for number in numbers) or abs((end - start) / step) > _MOST_ELEMENTS:
        raise CompileError(f"there is no range from {start} to {end} by steps of {step}")
    integers = all(isinstance(number, int) for number in numbers)
    count = max(0, int(np.ceil((end - start) / step)))
    if not count:
        raise CompileError(f"the range from {start} to {end} by steps of {step} is empty")
    places: Array = np.arange(count, dtype=np.int64 if integers else np.float64)
    values = places * step + start
    return values.astype(np.dtype(dtype or ("int64" if integers else "float32")))


@operator("torch.linspace")
def _linspace(
    at: Lowering, start: Number, end: Number, steps: int, dtype: DType | None = None,
    device: str | None = None, layout: str | None = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Result:  # fmt: skip
    if not 1 <= steps <= _MOST_ELEMENTS:
        raise CompileError(f"{steps} steps are none or too many")
    return np.linspace(start, end, steps).astype(np.dtype(dtype or "float32"))


@operator("torch.eye")
def _eye(
    at: Lowering, n: int, m: int | None = None, dtype: DType | None = None, device: str | None = None,
    layout: str | None = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Result:  # fmt: skip
    rows, columns = check_size((n, n if m is None else m))
    if rows * columns > _MOST_ELEMENTS:
        raise CompileError(f"a constant of the shape {[rows, columns]} is too large")
    return np.eye(rows, columns, dtype=np.dtype(dtype or "float32"))
