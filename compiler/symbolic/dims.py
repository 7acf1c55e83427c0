"""Arithmetic and comparisons on dimensions: an `int`, or a `Size` that is known only at run time.

A dimension is an `int` where it is known at compile time, else a `Size`: an expression of the network's dynamic
dimensions, such as `(h + 1) // 2`. Both support the same arithmetic:

    sum, difference, product,      simplified; an `int` again where the dynamic dimensions cancel
    quotient, remainder, min, max
    `==`, `!=`                     whether both are *known* to be equal: the same for every value in range
    `<`, `<=`, `>`, `>=`           known from the ranges; `CompileError` where it depends on the value

TVM takes a `Size` wherever it takes an expression of integers. The ranges of the dynamic dimensions hold inside
`ranges`.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import tvm_ffi
from tvm import tirx

from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.expressions import structural_key, text, variables
from nnefc.symbolic.prover import Sums, known, narrower_ranges, ranges
from nnefc.symbolic.ranges import LARGEST, MAX_ELEMENTS, DynamicSize, Range, is_of_cache

__all__ = [
    "LARGEST",
    "MAX_ELEMENTS",
    "Dimension",
    "DynamicSize",
    "Range",
    "Size",
    "UndecidedError",
    "add_data_dependent_dim",
    "any_number",
    "bounds",
    "broadcast",
    "ceil_div",
    "dimension",
    "dimensions",
    "dynamic_variables",
    "element_count",
    "expression",
    "greatest",
    "is_data_dependent",
    "is_data_dependent_dimension",
    "is_known",
    "is_never",
    "is_size",
    "known_less",
    "known_ranges",
    "known_sum_dims",
    "may_exceed",
    "mentions_dynamic_dim",
    "minimum",
    "named",
    "narrower_ranges",
    "range_of",
    "ranges",
    "scaled",
    "size_hint",
    "structural_key",
    "substituted",
    "variables",
    "widest",
]


def _may_be_empty(var: tirx.Var) -> bool:
    """Return whether a variable is a dynamic dimension of inputs that may be 0 but need not be, unlike that of a
    cache.
    """
    present = known()
    if var not in present.open or var in present.reported or is_of_cache(str(var.name)):
        return False
    return bool(present.open[var].minimum == 0)


def add_data_dependent_dim(var: tirx.Var, values: Range, has_limit: bool = True) -> None:
    """Add a data-dependent dimension, with or without an upper bound, to the facts of the enclosing :func:`ranges`."""
    known().count(var, values, has_limit)


def is_data_dependent_dimension(var: tirx.Var) -> bool:
    """Return whether a dynamic dimension of the network being built is data-dependent, with or without an upper
    bound.
    """
    return var in known().reported


def is_data_dependent(size: Dimension) -> bool:
    """Return whether a size of the network being built depends on a data-dependent dimension with an upper bound."""
    return isinstance(size, Size) and not known().data_dependent.isdisjoint(variables(size.expr))


if TYPE_CHECKING:
    _Number = int  # to a type checker: what calculates with sizes takes both
else:
    _Number = object  # so that nothing takes a dynamic size for a number by mistake


class Size(_Number):
    """A size that is known at run time only, or a number computed from such sizes.

    Attributes:
        expr: a simplified int64 expression of TVM.
    """

    __slots__ = ("expr",)

    def __init__(self, expr: tirx.Expr) -> None:
        self.expr = expr

    def __tvm_ffi_object__(self) -> tirx.Expr:
        return self.expr

    def __repr__(self) -> str:
        return text(self.expr)

    def __hash__(self) -> int:
        return hash(known().sample(self.expr))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int | Size):
            return NotImplemented
        if isinstance(other, Size) and self.expr.same_as(other.expr):
            return True
        difference = self - other
        return isinstance(difference, int) and difference == 0

    def __lt__(self, other: Dimension) -> bool:
        return self._decided(other, "<")

    def __le__(self, other: Dimension) -> bool:
        return self._decided(other, "<=")

    def __gt__(self, other: Dimension) -> bool:
        return self._decided(other, ">")

    def __ge__(self, other: Dimension) -> bool:
        return self._decided(other, ">=")

    def _decided(self, other: Dimension, sign: str) -> bool:
        left, right = self.expr, expression(other)
        conditions = {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}
        opposite = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}[sign]
        for condition, answer in ((conditions[sign], True), (conditions[opposite], False)):
            if known().holds(condition):
                return answer
        raise UndecidedError(self, sign, other)

    @property
    def bounds(self) -> tuple[int, int]:
        """The min and max that the ranges allow; the bounds may be loose."""
        return known().bounds(self.expr)

    @property
    def size_hint(self) -> int:
        """The value at the size hints of the dynamic dimensions, for estimates of time and memory."""
        return known().size_hint(self.expr)

    def __bool__(self) -> bool:
        return True  # what is known to be 0 is an int

    def __add__(self, other: Dimension) -> Dimension:
        return _calculated(operator.add, self, other)

    def __radd__(self, other: Dimension) -> Dimension:
        return _calculated(operator.add, other, self)

    def __sub__(self, other: Dimension) -> Dimension:
        return _calculated(operator.sub, self, other)

    def __rsub__(self, other: Dimension) -> Dimension:
        return _calculated(operator.sub, other, self)

    def __mul__(self, other: Dimension) -> Dimension:
        return _calculated(operator.mul, self, other)

    def __rmul__(self, other: Dimension) -> Dimension:
        return _calculated(operator.mul, other, self)

    def __floordiv__(self, other: Dimension) -> Dimension:
        return _calculated(tirx.floordiv, self, other)

    def __rfloordiv__(self, other: Dimension) -> Dimension:
        return _calculated(tirx.floordiv, other, self)

    def __mod__(self, other: Dimension) -> Dimension:
        return _calculated(tirx.floormod, self, other)

    def __rmod__(self, other: Dimension) -> Dimension:
        return _calculated(tirx.floormod, other, self)

    def __neg__(self) -> Dimension:
        return 0 - self


class UndecidedError(CompileError):
    """The error for a comparison whose result the ranges of the dynamic dimensions do not decide.

    Attributes:
        empty: names of the dynamic dimensions in it that may be 0.
    """

    def __init__(self, one: Size, sign: str, other: Dimension) -> None:
        used = [var for var in known().open if var in {*variables(one.expr), *variables(expression(other))}]
        names = " and ".join(f"'{var.name}'" for var in used)
        super().__init__(
            f"what the network computes depends on whether {one} {sign} {other}, which the ranges leave open",
            hint=f"narrow the ranges of {names or 'the dynamic dimensions'}",
        )
        self.empty = frozenset(str(var.name) for var in used if _may_be_empty(var))
        self._sides, self._sign = (one, other), sign
        self._range = (
            (used[0], range_of(used[0])) if len(used) == 1 and not is_data_dependent_dimension(used[0]) else None
        )

    def decided_range(self) -> tuple[str, int, int] | None:
        """The range of sizes around the size hint for which the comparison has the same result: name, minimum, maximum.

        None if the result depends on several dimensions or on something else. The result is assumed to change at most
        once on each side.
        """
        if self._range is None:
            return None
        var, values = self._range
        asks = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[self._sign]

        def answer(size: int) -> bool:
            one, other = (substituted(side, {var: size}) for side in self._sides)
            if not is_known(one, other):
                raise self
            return bool(asks(one, other))

        usual = answer(values.size_hint)
        minimum = bisect_left(range(values.size_hint), True, values.minimum, key=lambda size: answer(size) == usual)
        maximum = (
            bisect_left(range(values.maximum + 1), True, values.size_hint, key=lambda size: answer(size) != usual) - 1
        )
        return (str(var.name), minimum, maximum) if (minimum, maximum) != (values.minimum, values.maximum) else None


Dimension: TypeAlias = int
"""The size of a dimension: a number, or an expression of dynamic dimensions."""


def expression(size: Dimension) -> tirx.Expr:
    """Return a dimension as an int64 expression of TVM."""
    return size.expr if isinstance(size, Size) else tirx.IntImm("int64", size)


def dimension(expr: int | tirx.Expr | Size) -> Dimension:
    """Convert TVM's size of a dimension, to an `int` if it is known."""
    if isinstance(expr, int):
        return expr
    if isinstance(expr, tirx.IntImm):
        return int(expr.value)
    return expr if isinstance(expr, Size) else _made(expr)


def dimensions(exprs: Iterable[int | tirx.Expr | Size]) -> tuple[Dimension, ...]:
    """Convert a shape of TVM."""
    return tuple(map(dimension, exprs[:] if isinstance(exprs, tvm_ffi.Array) else exprs))


def broadcast(one: Dimension, other: Dimension) -> Dimension:
    """Return the size to which two sizes are broadcast: they are equal, or one of them is 1."""
    return other if one == 1 else one


def ceil_div(size: Dimension, divisor: Dimension) -> Dimension:
    """Returns `size / divisor` rounded up."""
    return (size + divisor - 1) // divisor


def scaled(size: Dimension, factor: float | Fraction) -> Dimension:
    """Return `floor(size * factor)` of the exact product.

    Raises:
        CompileError: the factor has so large a denominator that the integer product would overflow.
    """
    if is_known(size):
        return math.floor(size * factor)
    above, below = factor.as_integer_ratio()
    if max(map(abs, bounds(size))) * abs(above) >= 1 << 62:
        raise CompileError(f"{size} times {float(factor)} is not computed exactly")
    return size * above // below


def minimum(one: Dimension, other: Dimension) -> Dimension:
    """Return the smaller of two sizes."""
    if not may_exceed(one, other):
        return one
    return other if not may_exceed(other, one) else _made(tirx.min(expression(one), expression(other)))


def greatest(one: Dimension, other: Dimension) -> Dimension:
    """Return the larger of two sizes."""
    if not may_exceed(other, one):
        return one
    return other if not may_exceed(one, other) else _made(tirx.max(expression(one), expression(other)))


def substituted(size: Dimension, values: Mapping[tirx.Var, Dimension]) -> Dimension:
    """Return a size with variables replaced by sizes; division by 0 gives the quotient 0, and the dividend as
    remainder.
    """
    if not isinstance(size, Size):
        return size
    made = tvm_ffi.structural_map(size.expr, (tirx.Var, lambda var: expression(values.get(var, Size(var)))))
    for kind in (tirx.FloorDiv, tirx.FloorMod):
        made = tvm_ffi.structural_map(made, (kind, _without_zero_divisor))
    return _made(made)


def _without_zero_divisor(division: tirx.FloorDiv | tirx.FloorMod) -> tirx.Expr:
    if dimension(division.b) != 0:
        return division
    return division.a if isinstance(division, tirx.FloorMod) else tirx.const(0, "int64")


def widest(size: Dimension, limits: Mapping[tirx.Var, Dimension]) -> Dimension:
    """Return an upper bound of a size whose variables are between 0 and their limits."""
    return _between(expression(size), limits)[1] if isinstance(size, Size) and limits else size


def _between(expr: tirx.Expr, limits: Mapping[tirx.Var, Dimension]) -> tuple[Dimension, Dimension]:
    """Return lower and upper bounds of an expression, as sizes without those variables."""
    if not any(var in limits for var in variables(expr)):
        return dimension(expr), dimension(expr)
    if isinstance(expr, tirx.Var):
        return 0, limits[expr]
    if isinstance(expr, tirx.Select):
        return _min_and_max(end for part in (expr.true_value, expr.false_value) for end in _between(part, limits))
    if isinstance(expr, tirx.Add | tirx.Sub | tirx.Mul | tirx.FloorDiv | tirx.Min | tirx.Max):
        (low, high), (other_low, other_high) = (_between(part, limits) for part in (expr.a, expr.b))
        positive = bounds(low)[0] >= 0 and bounds(other_low)[0] >= 0
        match expr:
            case tirx.Add():
                return low + other_low, high + other_high
            case tirx.Sub():
                return low - other_high, high - other_low
            case tirx.Mul() if positive:
                return low * other_low, high * other_high
            case tirx.Mul():
                return _min_and_max(one * two for one in (low, high) for two in (other_low, other_high))
            case tirx.FloorDiv() if positive and bounds(other_low)[0] > 0:
                return low // other_high, high // other_low
            case tirx.FloorDiv() if bounds(other_low)[0] > 0:
                return _min_and_max(one // two for one in (low, high) for two in (other_low, other_high))
            case tirx.Min():
                return minimum(low, other_low), minimum(high, other_high)
            case tirx.Max():
                return greatest(low, other_low), greatest(high, other_high)
    return known().bounds(expr)


def _min_and_max(sizes: Iterable[Dimension]) -> tuple[Dimension, Dimension]:
    """Return the minimum and the maximum of several sizes."""
    of_all = list(sizes)
    return reduce(minimum, of_all), reduce(greatest, of_all)


_FAR = 1 << 40
"""The value for no bound: no tensor has as many elements, and TVM can compute with it."""


def named(name: str, size: Dimension) -> Dimension:
    """Return a variable that stands for a size, with its bounds and size hint, so that its expression is hidden.

    The variable is not negative: sizes for which the expression would be are refused at run time.
    """
    var = tirx.Var(name, "int64")
    minimum, maximum = (max(0, min(bound, _FAR)) for bound in bounds(size))
    known().note(var, Range(minimum, maximum, size_hint(size)))
    return Size(var)


def any_number(name: str) -> Dimension:
    """Return a variable that stands for an unknown integer, which may be negative."""
    var = tirx.Var(name, "int64")
    known().note(var, Range(-_FAR, _FAR, 0))
    return Size(var)


def bounds(size: Dimension) -> tuple[int, int]:
    """Returns the min and max of a size."""
    return size.bounds if isinstance(size, Size) else (size, size)


def size_hint(size: Dimension) -> int:
    """Return a size at the size hints of the dynamic dimensions, for estimates."""
    return size.size_hint if isinstance(size, Size) else size


def may_exceed(size: Dimension, other: Dimension) -> bool:
    """Returns whether a size is greater than another one for some value of the dynamic dimensions."""
    return not _always(size, other, lambda a, b: a <= b)


def known_less(size: Dimension, other: Dimension) -> bool:
    """Returns whether a size is less than another one for all values of the dynamic dimensions."""
    return _always(size, other, lambda a, b: a < b)


def _always(size: Dimension, other: Dimension, condition: Callable[[Any, Any], Any]) -> bool:
    if is_known(size, other):
        return bool(condition(size, other))
    return known().holds(condition(expression(size), expression(other)))


def dynamic_variables() -> tuple[tirx.Var, ...]:
    """Return the dynamic dimensions whose ranges are known in this context, in their order."""
    return tuple(known().open)


def known_ranges() -> dict[tirx.Var, Range]:
    """Return the ranges of all dynamic dimensions that are known in this context."""
    return dict(known().open)


def known_sum_dims() -> Sums:
    """Returns the known sums of dynamic dimensions by name: the sum, its min and its max."""
    return known().sums


def is_never(condition: tirx.Expr) -> bool:
    """Returns whether a condition is known to be false for all sizes in the ranges."""
    simple = known().simplified(condition)
    return isinstance(simple, tirx.IntImm) and not int(simple)


def is_size(expr: tirx.Expr) -> bool:
    """Return whether an index is a number, or depends only on dynamic dimensions and on variables for sizes in kernels.

    It must not read elements of tensors.
    """
    found: list[tirx.Var] = []
    tvm_ffi.structural_walk(expr, (tirx.Var, found.append))
    return set(found) <= known().noted.keys()


def range_of(variable: tirx.Var) -> Range:
    """Return the range of a dynamic dimension that is known in this context."""
    values: Range = known().open[variable]
    return values


def mentions_dynamic_dim(*nodes: Any) -> bool:
    """Returns whether a dynamic dimension occurs in any of these types, expressions and kernels of TVM."""
    variables = set(known().open)
    if not variables:
        return False
    found: list[tirx.Var] = []

    def note(var: tirx.Var) -> None:
        if var in variables:
            found.append(var)

    for node in nodes:
        tvm_ffi.structural_walk(node, (tirx.Var, note))
    return bool(found)


def is_known(*sizes: Dimension) -> bool:
    """Returns whether all sizes are known at compile time."""
    return not any(isinstance(size, Size) for size in sizes)


def element_count(shape: Sequence[Dimension]) -> Dimension:
    """Returns the number of elements of a shape."""
    return math.prod(shape)


def _calculated(operation: Callable[[Any, Any], tirx.Expr], left: Any, right: Any) -> Dimension:
    """Apply an operation to two sizes, or to a size and an expression of TVM, such as an index."""
    if isinstance(left, int | Size) and isinstance(right, int | Size):
        return _made(operation(expression(left), expression(right)))
    index: Dimension = operation(*(value.expr if isinstance(value, Size) else value for value in (left, right)))
    return index


def _made(expr: tirx.Expr) -> Dimension:
    made = known().made(expr)
    return made if isinstance(made, int) else Size(made)
