"""Creates tensors from numbers and sizes alone: constants, ranges, identity matrices, shapes.

Where all sizes are known at compile time they are arrays; where one is open, a kernel writes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx

from nnefc.ir.kernel_calls import call_te
from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, check_size, is_array, numpy_dtype
from nnefc.operators.tensor.shape import Expand
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import bounds, ceil_div, expression, greatest, is_known
from nnefc.symbolic.values import Quotient, quotient

__all__ = ["Arange", "Eye", "Full", "Linspace", "SizeValues", "check_constant"]

Number: TypeAlias = int | float
"""A number, or a size."""

_MAX_ELEMENTS = 1 << 28


def check_constant(shape: Sequence[int]) -> Shape:
    """The shape, if a constant that a model says in few words may have it.

    Raises:
        CompileError: no tensor may have it, or a few bytes of a model would become a gigabyte and more.
    """
    if math.prod(check_size(shape)) > _MAX_ELEMENTS:
        raise CompileError(
            f"a constant of the shape {list(shape)} is too large: it would have {math.prod(shape):,} elements, "
            f"and may have {_MAX_ELEMENTS:,}"
        )
    return tuple(shape)


def _whole(number: Number) -> Number:
    """A float without a fraction as an integer, which kernels calculate with exactly."""
    return int(number) if isinstance(number, float) and number.is_integer() and abs(number) < 1 << 53 else number


def _expression(number: Number) -> tirx.Expr:
    return tirx.FloatImm("float64", number) if isinstance(number, float) else expression(number)


@dataclass(frozen=True)
class Full(Operator):
    """`value` everywhere. `numpy.full`, ONNX `ConstantOfShape`."""

    target: Shape
    value: Number
    dtype: str

    def shape(self) -> Shape:
        """The target."""
        return check_size(self.target)

    def lower(self, ctx: Emitter) -> Operand:
        element = np.array(self.value).astype(numpy_dtype(self.dtype))
        if is_known(*self.target) and is_array(check_constant(self.target), element.dtype):
            return np.full(self.target, element)
        return Expand(self.shape()).lower(ctx, ctx.expr(element))


class _Formula(Operator):
    """A tensor whose elements follow from their positions."""

    dtype: str
    name: ClassVar[str]
    """The name of the kernel."""

    def lower(self, ctx: Emitter) -> Operand:
        shape, numbers = self.shape(), self.numbers
        if is_known(*shape, *numbers) and is_array(check_constant(shape), numpy_dtype(self.dtype)):
            return self.array(shape).astype(numpy_dtype(self.dtype))

        def compute(sizes: Sequence[tirx.Expr], numbers: Sequence[tirx.Expr]) -> te.Tensor:
            return te.compute(sizes, lambda *index: self.item(index, numbers).astype(self.dtype), name=self.name)

        given = [list(map(_expression, each)) for each in (check_size(shape), numbers)]
        made: relax.Expr = call_te(ctx.builder, compute, *given, name=self.name)
        return made

    def known(self) -> Array | None:
        """The tensor, where all is known."""
        shape = self.shape()
        return self.array(shape).astype(numpy_dtype(self.dtype)) if is_known(*shape, *self.numbers) else None

    @property
    def numbers(self) -> tuple[Any, ...]:
        """The numbers, sizes among them, that elements are computed from, apart from their positions."""
        return ()

    def array(self, shape: Shape) -> Array:
        """The tensor, where all is known, in an element type that holds its elements exactly."""
        raise NotImplementedError

    def item(self, index: Sequence[Any], numbers: Sequence[Any]) -> Any:
        """The element at a position where something is open."""
        raise NotImplementedError


_MAX_EXACT = 1 << 61
"""Numerators of fractions that are calculated with in 64 bits are less than this."""


@dataclass(frozen=True)
class Arange(_Formula):
    """`(start + i * step) / unit` for each `i`, as long as that is before `limit / unit`. `numpy.arange`, ONNX `Range`.

    Attributes:
        start, limit, step: all integers where one is a dynamic size.
        unit: of reals that are fractions of integers: half of these for 2.
    """

    start: Number
    limit: Number
    step: Number
    dtype: str
    unit: int = 1
    name: ClassVar[str] = "arange"

    @classmethod
    def of(
        cls, start: Number | Quotient, limit: Number | Quotient, step: Number | Quotient, dtype: str
    ) -> Arange | None:
        """The range of numbers of any kind, with reals as fractions of integers where something is a dynamic size.

        None where these fractions do not fit 64 bits.

        Raises:
            CompileError: a number next to a dynamic size is infinite or NaN.
        """
        numbers = start, limit, step
        if all(isinstance(number, int | float) for number in numbers):
            return cls(start, limit, step, dtype)  # type: ignore[arg-type]
        if not all(math.isfinite(number) for number in numbers if isinstance(number, float)):
            raise CompileError(f"there is no range from {start} to {limit} by steps of {step}")
        parts = [Quotient(*n.as_integer_ratio()) if isinstance(n, float) else quotient(n) for n in numbers]
        unit = math.lcm(*(part.below for part in parts))
        first, last, each = (part.above * (unit // part.below) for part in parts)
        if max(abs(bound) for part in (first, last, each) for bound in bounds(part)) >= _MAX_EXACT:
            return None
        return cls(first, last, each, dtype, unit)

    def shape(self) -> Shape:
        """Returns how many there are; perhaps none."""
        numbers: tuple[Any, Any, Any] = self.start, self.limit, self.step
        first, last, step = numbers
        try:
            if not any(isinstance(number, float) for number in numbers):
                count = ceil_div(last - first, step) if step > 0 else ceil_div(first - last, -step)
            else:
                count = math.ceil((last - first) / step)
        except (ArithmeticError, ValueError):
            raise CompileError(f"there is no range from {first} to {last} by steps of {step}") from None
        return (greatest(count, 0),)

    @property
    def numbers(self) -> tuple[Any, ...]:
        return _whole(self.start), _whole(self.step)

    def array(self, shape: Shape) -> Array:
        numbers = self.start + self.step * np.arange(shape[0])
        return numbers if self.unit == 1 else numbers / self.unit

    def item(self, index: Sequence[Any], numbers: Sequence[Any]) -> Any:
        start, step = numbers
        if isinstance(start, tirx.FloatImm) or isinstance(step, tirx.FloatImm):
            number = start.astype("float64") + index[0].astype("float64") * step.astype("float64")
        else:
            number = start + index[0] * step
        return number if self.unit == 1 else number.astype("float64") / float(self.unit)


@dataclass(frozen=True)
class Linspace(_Formula):
    """`count` numbers from `start` to `stop`, both included, evenly spaced; `count` is known. `numpy.linspace`."""

    start: float
    stop: float
    count: int
    dtype: str
    name: ClassVar[str] = "linspace"

    def shape(self) -> Shape:
        """Returns how many there are."""
        return (self.count,)

    def array(self, shape: Shape) -> Array:
        return np.linspace(self.start, self.stop, self.count)

    def item(self, index: Sequence[Any], numbers: Sequence[Any]) -> Any:
        step = (self.stop - self.start) / max(self.count - 1, 1)
        between = tirx.FloatImm("float64", self.start) + index[0].astype("float64") * tirx.FloatImm("float64", step)
        last = index[0] == self.count - 1
        return tirx.Select(last, tirx.FloatImm("float64", self.stop), between)


@dataclass(frozen=True)
class Eye(_Formula):
    """A matrix with ones where the column is `offset` more than the row, else zeros. `numpy.eye`, ONNX `EyeLike`."""

    rows: int
    columns: int
    dtype: str
    offset: int = 0
    name: ClassVar[str] = "eye"

    def shape(self) -> Shape:
        """Return `(rows, columns)`."""
        return self.rows, self.columns

    def array(self, shape: Shape) -> Array:
        return np.eye(self.rows, self.columns, self.offset, np.int8)

    def item(self, index: Sequence[Any], numbers: Sequence[Any]) -> Any:
        return tirx.EQ(index[1] - index[0], expression(self.offset))


@dataclass(frozen=True, eq=False)
class SizeValues(_Formula):
    """A tensor whose elements are numbers and sizes.

    Attributes:
        elements: an array of objects: numbers and `Size`s.
        dtype: an integer type.
    """

    elements: npt.NDArray[np.object_]
    dtype: str
    name: ClassVar[str] = "sizes"

    def shape(self) -> Shape:
        """Return the shape of the array."""
        return self.elements.shape

    @property
    def numbers(self) -> tuple[Any, ...]:
        return tuple(self.elements.reshape(-1).tolist())

    def array(self, shape: Shape) -> Array:
        return self.elements

    def item(self, index: Sequence[Any], numbers: Sequence[Any]) -> Any:
        """Halves are chosen between, so that the expression is as deep as the count has digits."""
        position: Any = expression(0)
        for axis, number in enumerate(index):
            position += number * math.prod(self.shape()[axis + 1 :])

        def one_of(first: int, last: int) -> Any:
            if last - first == 1:
                return numbers[first]
            middle = (first + last) // 2
            return tirx.Select(position < middle, one_of(first, middle), one_of(middle, last))

        return one_of(0, len(numbers))
