"""Tensors that are created at compile time."""

from __future__ import annotations

from nnefc.frontends.pnnx.lowering import Lowering, Tensor, dtype_of, shape_of
from nnefc.frontends.pnnx.operators.declaration import DType, Ints, Number, Result, operator
from nnefc.operators.tensor.creation import Arange, Eye, Full, Linspace
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Size

__all__: list[str] = []


def _type_of(value: Number) -> str:
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int | Size) else "float32"


for _name, _value in (("zeros", 0), ("ones", 1), ("empty", 0)):

    @operator(f"torch.{_name}", value=_value)
    def _of_size(
        ctx: Lowering, size: Ints, value: int, dtype: DType | None = None, device: str | None = None,
        layout: str | None = None, pin_memory: bool = False, requires_grad: bool = False,
        memory_format: str | None = None,
    ) -> Result:  # fmt: skip
        return Full(tuple(size), value, dtype or "float32").lower(ctx)

    @operator(f"torch.{_name}_like", value=_value)
    def _like(
        ctx: Lowering, input: Tensor, value: int, dtype: DType | None = None, device: str | None = None,
        layout: str | None = None, pin_memory: bool = False, requires_grad: bool = False,
        memory_format: str | None = None,
    ) -> Result:  # fmt: skip
        return Full(shape_of(input), value, dtype or dtype_of(input)).lower(ctx)

    @operator(f"Tensor.new_{_name}", value=_value)
    def _new(
        ctx: Lowering, input: Tensor, size: Ints, value: int, dtype: DType | None = None, device: str | None = None,
        layout: str | None = None, pin_memory: bool = False, requires_grad: bool = False,
    ) -> Result:  # fmt: skip
        return Full(tuple(size), value, dtype or dtype_of(input)).lower(ctx)


@operator("torch.full")
def _full(
    ctx: Lowering, size: Ints, fill_value: Number, dtype: DType | None = None, device: str | None = None,
    layout: str | None = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Result:  # fmt: skip
    return Full(tuple(size), fill_value, dtype or _type_of(fill_value)).lower(ctx)


@operator("torch.full_like")
def _full_like(
    ctx: Lowering, input: Tensor, fill_value: Number, dtype: DType | None = None, device: str | None = None,
    layout: str | None = None, pin_memory: bool = False, requires_grad: bool = False, memory_format: str | None = None,
) -> Result:  # fmt: skip
    return Full(shape_of(input), fill_value, dtype or dtype_of(input)).lower(ctx)


@operator("Tensor.new_full")
def _new_full(
    ctx: Lowering, input: Tensor, size: Ints, fill_value: Number, dtype: DType | None = None,
    device: str | None = None, layout: str | None = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Result:  # fmt: skip
    return Full(tuple(size), fill_value, dtype or dtype_of(input)).lower(ctx)


@operator("Tensor.fill")
def _fill(ctx: Lowering, input: Tensor, value: Number) -> Result:
    return Full(shape_of(input), value, dtype_of(input)).lower(ctx)


@operator("torch.arange")
def _arange(
    ctx: Lowering, end: Number, start: Number = 0, step: Number = 1, dtype: DType | None = None,
    device: str | None = None, layout: str | None = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Result:  # fmt: skip
    whole = all(isinstance(number, int | Size) for number in (start, end, step))
    numbers = Arange.of(start, end, step, dtype or ("int64" if whole else "float32"))
    if numbers is None:
        raise CompileError(f"the range from {start} to {end} by steps of {step} is of fractions with too many digits")
    if numbers.shape() == (0,):
        raise CompileError(f"the range from {start} to {end} by steps of {step} is empty")
    return numbers.lower(ctx)


@operator("torch.linspace")
def _linspace(
    ctx: Lowering, start: Number, end: Number, steps: int, dtype: DType | None = None,
    device: str | None = None, layout: str | None = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Result:  # fmt: skip
    if steps < 1:
        raise CompileError(f"'steps' must be at least 1, it is {steps}")
    return Linspace(start, end, steps, dtype or "float32").lower(ctx)


@operator("torch.eye")
def _eye(
    ctx: Lowering, n: int, m: int | None = None, dtype: DType | None = None, device: str | None = None,
    layout: str | None = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Result:  # fmt: skip
    return Eye(n, n if m is None else m, dtype or "float32").lower(ctx)
