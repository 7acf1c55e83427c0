"""Sizes of dimensions that are known only when a library runs.

A dimension is an `int` where it is known at compile time, else a `Size`: an expression of the network's open
dimensions, such as `(h + 1) // 2`. Both are calculated with in the same way:

    sum, difference, product,      simplified; an `int` again where the open dimensions cancel
    quotient, remainder, min, max
    `==`, `!=`                     whether both are *known* to be equal: the same for every value in range
    `<`, `<=`, `>`, `>=`           known from the ranges; `CompileError` where it depends on the value

TVM takes a `Size` wherever it takes an expression of integers. The ranges of the open dimensions hold inside `ranges`.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer, ProofStrength

from nnefc.diagnostics import CompileError

__all__ = [
    "LARGEST",
    "MAX_ITEMS",
    "Dimension",
    "OpenSize",
    "Range",
    "Size",
    "also_counted",
    "bounds",
    "broadcast",
    "ceil_div",
    "dimension",
    "dimensions",
    "expression",
    "greatest",
    "is_counted",
    "is_known",
    "is_never",
    "is_size",
    "item_count",
    "known_less",
    "known_ranges",
    "least",
    "may_exceed",
    "mentions_open",
    "named",
    "narrower_ranges",
    "open_variables",
    "range_of",
    "ranges",
    "scaled",
    "structural_key",
    "substituted",
    "typical",
    "variables",
    "widest",
]


MAX_ITEMS = (1 << 31) - 1
"""What a tensor may have: places in it are 32-bit numbers in compiled code."""

LARGEST = 1 << 20
"""The largest size of an open dimension that nobody gave one for. Products of three are within int64: TVM's proofs go
wrong where bounds are beyond it. What exporters mean by `to the end`, a billion or so, is larger."""


@dataclass(frozen=True)
class Range:
    """The values that an open dimension may have: `least`, …, `most`, both included; and one for estimates.

    Sizes are these values times `multiple`.
    """

    least: int
    most: int
    typical: int
    multiple: int = 1


@dataclass(frozen=True)
class OpenSize:
    """What is said of a size that stays open: `least..most:multiple`.

    Attributes:
        least, most: the smallest and the largest size; without `most`, it is `LARGEST`.
        multiple: what every size is a multiple of.
        likely: a size for estimates, where there is no `most` to tell it from.
    """

    least: int = 1
    most: int | None = None
    multiple: int = 1
    likely: int = 64

    @classmethod
    def read(cls, text: str) -> OpenSize | None:
        """The size that a text such as `1..64`, `32..1280:32` or `1..` says; None for other texts.

        Raises:
            CompileError: no size is in the range.
        """
        found = re.fullmatch(r"\s*(\d{1,18})\.\.(\d{1,18})?(?::(\d{1,18}))?\s*", text)
        if found is None:
            return None
        least, most, multiple = (None if number is None else int(number) for number in found.groups())
        made = cls(least or 0, most, max(multiple or 1, 1))
        if made.values.most < made.values.least:
            raise CompileError(
                f"no size is in the range {text.strip()}", hint="write LEAST..MOST:MULTIPLE: 32..1280:32"
            )
        return made

    @property
    def values(self) -> Range:
        """The range of the sizes, divided by their multiple; typical are those not far below the largest."""
        least, most = -(-self.least // self.multiple), (LARGEST if self.most is None else self.most) // self.multiple
        typical = self.likely // self.multiple if self.most is None else math.isqrt(max(least, most // 16) * most)
        return Range(least, most, max(least, min(most, typical)), self.multiple)


structural_key = cast(Callable[[Any], Any], tvm_ffi.StructuralKey)
"""What looks things up by expressions and types of TVM: equal ones have equal keys."""

_Answer = TypeVar("_Answer")


def _once(question: Callable[[_Known, tirx.Expr], _Answer]) -> Callable[[_Known, tirx.Expr], _Answer]:
    """A method of `_Known` that finds its answer once for each expression: passes ask about the same ones again."""

    @functools.wraps(question)
    def asked(known: _Known, expr: tirx.Expr) -> _Answer:
        answers: dict[Any, _Answer] = known.answers[question.__name__]
        key = structural_key(expr)
        answer = answers.get(key)
        if answer is None:
            answer = answers[key] = question(known, expr)
        return answer

    return asked


_FURTHEST = 1 << 62
"""Beyond this are no sizes: TVM's bounds of products of sizes without a largest one end where int64 does."""


class _Known:
    """What is known about the open dimensions, and what follows from it.

    TVM proves things by z3, whose work is limited by a count of its steps, not by time: answers are always the same.
    """

    def __init__(self, open_dimensions: Mapping[tirx.Var, Range]) -> None:
        self._analyzer = Analyzer()
        self._typical: dict[tirx.Var, tirx.IntImm] = {}
        self._sample: dict[tirx.Var, tirx.IntImm] = {}
        self._places: dict[tirx.Var, int] = {}
        self.answers: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
        self.open = dict(open_dimensions)
        self.counted: set[tirx.Var] = set()
        self.sizes: set[tirx.Var] = set()
        for var, values in open_dimensions.items():
            self.note(var, values)

    def note(self, var: tirx.Var, values: Range) -> None:
        """Know the range of one more variable that stands for a size."""
        self.sizes.add(var)
        self._bind(var, values)

    def _bind(self, var: tirx.Var, values: Range) -> None:
        least, most = max(values.least, -_FURTHEST), min(values.most, _FURTHEST)
        self._analyzer.bind(var, tvm.ir.Range(least, most + 1))
        self._typical[var] = tirx.IntImm("int64", values.typical)
        self._places.setdefault(var, len(self._places))
        self._sample[var] = tirx.IntImm("int64", max(values.least, min(values.most, 37 + 24 * len(self._sample))))

    def count(self, var: tirx.Var, values: Range, has_limit: bool) -> None:
        """Know a size that only the data tell."""
        self.note(var, values)
        self.open[var] = values
        if has_limit:
            self.counted.add(var)

    @_once
    def simplified(self, expr: tirx.Expr) -> tirx.Expr:
        """The expression in TVM's simplest form, after which the ranges of all its variables are known."""
        for var in variables(expr):
            if var not in self._typical:
                self._bind(var, _UNKNOWN)
        simple = self._ordered(self._analyzer.simplify(expr))
        positive = tvm_ffi.structural_map(simple, (tirx.FloorDiv, _of_positive))
        if not positive.same_as(simple):
            simple = self._ordered(self._analyzer.simplify(positive))
        if not isinstance(simple, tirx.Add | tirx.Sub) or not _has_sum_as_factor(simple):
            return simple
        expanded = self._ordered(self._analyzer.simplify(_expanded(simple)))  # (2 h + 2) * w - (h + 1) * w * 2 is 0
        return min(simple, expanded, key=_use_count)

    def _ordered(self, simple: tirx.Expr) -> tirx.Expr:
        """An expression in TVM's simplest form with the factors of its products in one order."""
        ordered = tvm_ffi.structural_map(simple, (tirx.Mul, self._in_order))
        return simple if ordered.same_as(simple) else self._analyzer.simplify(ordered)

    def _in_order(self, product: tirx.Mul) -> tirx.Expr:
        """A product with its factors in one order, numbers last: TVM sees no other products as equal."""

        def key(factor: tirx.Expr) -> tuple[bool, list[int]]:
            return isinstance(factor, tirx.IntImm), [self._places[var] for var in variables(factor)]

        factors = list(_factors(product))
        keys = list(map(key, factors))
        if all(map(operator.lt, keys, keys[1:])):
            ordered = factors
        else:
            ordered = sorted(factors, key=lambda factor: (*key(factor), str(factor)))
        same = all(map(operator.is_, factors, ordered)) and not isinstance(product.b, tirx.Mul)
        return product if same else functools.reduce(operator.mul, ordered)

    @_once
    def made(self, expr: tirx.Expr) -> Dimension:
        """The size that an expression is: a number if its variables cancel."""
        simple = self.simplified(expr if str(expr.ty.dtype) == "int64" else _widened(expr))
        if _has_remainder(simple):
            simple = min(simple, self.simplified(_without_remainders(simple)), key=_has_remainder)
        if isinstance(simple, tirx.IntImm):
            return int(simple)
        least, most = self.bounds(simple)  # (h + 3) // 4 is 1 for h in 1..4: TVM finds that by its bounds alone
        return least if least == most else Size(simple)

    @_once
    def holds(self, condition: tirx.Expr) -> bool:
        """Whether a comparison is known to hold: by the bounds of both sides, or by a proof."""
        difference = condition.a - condition.b
        least, most = self.bounds(difference)
        match condition:
            case tirx.LT() | tirx.LE() if most < isinstance(condition, tirx.LE):
                return True
            case tirx.GT() | tirx.GE() if least > -isinstance(condition, tirx.GE):
                return True
        sign = {tirx.LT: operator.lt, tirx.LE: operator.le, tirx.GT: operator.gt, tirx.GE: operator.ge}[type(condition)]
        if not all(sign(example(difference), 0) for example in (self.typical, self.sample)):
            return False
        return bool(self._analyzer.can_prove(condition, ProofStrength.SYMBOLIC_BOUND))

    @_once
    def bounds(self, expr: tirx.Expr) -> tuple[int, int]:
        """The least and the greatest value, or a little more than that."""
        bound = self._analyzer.const_int_bound(self.simplified(expr))
        return int(bound.min_value), int(bound.max_value)

    @_once
    def typical(self, expr: tirx.Expr) -> int:
        """The value for typical values of the variables."""
        return self._value(expr, self._typical)

    @_once
    def sample(self, expr: tirx.Expr) -> int:
        """The value for other values of the variables: sizes that are equal for all have the same one."""
        return self._value(expr, self._sample)

    def _value(self, expr: tirx.Expr, values: Mapping[tirx.Var, tirx.IntImm]) -> int:
        self.simplified(expr)
        return int(self._analyzer.simplify(tvm_ffi.structural_map(expr, (tirx.Var, values.__getitem__))))


_PRESENT: ContextVar[_Known | None] = ContextVar("nnefc.sizes", default=None)
_UNKNOWN = Range(0, MAX_ITEMS, 64)
"""Of variables that nothing is said about, as those of a computation that is looked at by itself."""


@contextmanager
def ranges(open_dimensions: Mapping[tirx.Var, Range]) -> Iterator[None]:
    """Inside, these ranges hold for these variables, and no others are known."""
    token = _PRESENT.set(_Known(open_dimensions))
    try:
        yield
    finally:
        _PRESENT.reset(token)


@contextmanager
def narrower_ranges(narrower: Mapping[str, Range]) -> Iterator[None]:
    """Inside, the open dimensions of these names have these ranges; the others have theirs."""
    outer = _known()
    with ranges({var: narrower.get(str(var.name), values) for var, values in outer.open.items()}):
        _known().counted |= outer.counted
        yield


def also_counted(var: tirx.Var, values: Range, has_limit: bool = True) -> None:
    """Know, in the :func:`ranges` around, one more size: one that only the data tell, up to a limit or without one."""
    _known().count(var, values, has_limit)


def is_counted(size: Dimension) -> bool:
    """Whether a size depends on one that only the data tell, up to a limit, as far as a network is being built."""
    return isinstance(size, Size) and not _known().counted.isdisjoint(variables(size.expr))


def _known() -> _Known:
    return _PRESENT.get() or _Known({})


if TYPE_CHECKING:
    _Number = int  # to a type checker: what calculates with sizes takes both
else:
    _Number = object  # so that nothing takes an open size for a number by mistake


class Size(_Number):
    """The size of a dimension that is known when a library runs, or a number calculated from such sizes.

    Attributes:
        expr: an int64 of TVM, simplified.
    """

    __slots__ = ("expr",)

    def __init__(self, expr: tirx.Expr) -> None:
        self.expr = expr

    def __tvm_ffi_object__(self) -> tirx.Expr:
        return self.expr

    def __repr__(self) -> str:
        return _text(self.expr)

    def __hash__(self) -> int:
        return hash(_known().sample(self.expr))

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
            if _known().holds(condition):
                return answer
        raise CompileError(
            f"what the network computes depends on whether {self} {sign} {other}, which the ranges leave open",
            hint="narrow the ranges of the open dimensions",
        )

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest value that the ranges allow; perhaps a little more than that."""
        return _known().bounds(self.expr)

    @property
    def typical(self) -> int:
        """The value for typical sizes of the open dimensions: what estimates of time and memory reckon with."""
        return _known().typical(self.expr)

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


Dimension: TypeAlias = int
"""The size of a dimension: a number, or an expression of open dimensions."""


def expression(size: Dimension) -> tirx.Expr:
    """A dimension as TVM writes it: an int64."""
    return size.expr if isinstance(size, Size) else tirx.IntImm("int64", size)


def dimension(expr: int | tirx.Expr | Size) -> Dimension:
    """What TVM says about the size of a dimension: an `int` where it is known."""
    if isinstance(expr, int | Size):
        return expr
    if isinstance(expr, tirx.IntImm):
        return int(expr)
    return _made(expr)


def dimensions(exprs: Iterable[int | tirx.Expr | Size]) -> tuple[Dimension, ...]:
    """A shape as TVM says it."""
    return tuple(map(dimension, exprs))


def broadcast(one: Dimension, other: Dimension) -> Dimension:
    """The size of a dimension of which two operands have these sizes: equal ones, or 1 for one that is repeated."""
    return other if one == 1 else one


def ceil_div(size: Dimension, divisor: Dimension) -> Dimension:
    """How many parts of `divisor` items cover `size` items."""
    return (size + divisor - 1) // divisor


def scaled(size: Dimension, factor: float | Fraction) -> Dimension:
    """`floor(size * factor)`, of the exact product.

    Raises:
        CompileError: the factor is so finely stepped that the product of integers would be too large.
    """
    if is_known(size):
        return math.floor(size * factor)
    above, below = factor.as_integer_ratio()
    if max(map(abs, bounds(size))) * abs(above) >= 1 << 62:
        raise CompileError(f"{size} times {float(factor)} is not computed exactly")
    return size * above // below


def least(one: Dimension, other: Dimension) -> Dimension:
    """The smaller of two sizes."""
    if not may_exceed(one, other):
        return one
    return other if not may_exceed(other, one) else _made(tirx.min(expression(one), expression(other)))


def greatest(one: Dimension, other: Dimension) -> Dimension:
    """The larger of two sizes."""
    if not may_exceed(other, one):
        return one
    return other if not may_exceed(one, other) else _made(tirx.max(expression(one), expression(other)))


def substituted(size: Dimension, values: Mapping[tirx.Var, Dimension]) -> Dimension:
    """A size with variables in it replaced by others."""
    if not isinstance(size, Size):
        return size
    return _made(tvm_ffi.structural_map(size.expr, (tirx.Var, lambda var: expression(values.get(var, Size(var))))))


def widest(size: Dimension, limits: Mapping[tirx.Var, Dimension]) -> Dimension:
    """The greatest value, or a little more, that a size has while these variables go from 0 to their limits."""
    return _between(expression(size), limits)[1] if isinstance(size, Size) and limits else size


def _between(expr: tirx.Expr, limits: Mapping[tirx.Var, Dimension]) -> tuple[Dimension, Dimension]:
    """The least and the greatest value of an expression, as sizes without those variables."""
    if not any(var in limits for var in variables(expr)):
        return dimension(expr), dimension(expr)
    if isinstance(expr, tirx.Var):
        return 0, limits[expr]
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
            case tirx.FloorDiv() if positive and bounds(other_low)[0] > 0:
                return low // other_high, high // other_low
            case tirx.Min():
                return least(low, other_low), least(high, other_high)
            case tirx.Max():
                return greatest(low, other_low), greatest(high, other_high)
    return _known().bounds(expr)


_FAR = 1 << 40
"""What stands for no bound: no tensor has as many elements, and TVM calculates with it."""


def named(name: str, size: Dimension) -> Dimension:
    """A variable that stands for a size: of the same bounds and typical value, but nothing is calculated with these.

    It is not negative: with sizes from which one would follow that is, nothing runs.
    """
    var = tirx.Var(name, "int64")
    least, most = (max(0, min(bound, _FAR)) for bound in bounds(size))
    _known().note(var, Range(least, most, typical(size)))
    return Size(var)


def bounds(size: Dimension) -> tuple[int, int]:
    """The least and the greatest value that a size can have."""
    return size.bounds if isinstance(size, Size) else (size, size)


def typical(size: Dimension) -> int:
    """A size for estimates: of an open dimension, the typical one."""
    return size.typical if isinstance(size, Size) else size


def may_exceed(size: Dimension, other: Dimension) -> bool:
    """Whether a size is greater than another one for some value of the open dimensions."""
    return not _always(size, other, lambda a, b: a <= b)


def known_less(size: Dimension, other: Dimension) -> bool:
    """Whether a size is less than another one, whatever the open dimensions are."""
    return _always(size, other, lambda a, b: a < b)


def _always(size: Dimension, other: Dimension, condition: Callable[[Any, Any], Any]) -> bool:
    if is_known(size, other):
        return bool(condition(size, other))
    return _known().holds(condition(expression(size), expression(other)))


def open_variables() -> tuple[tirx.Var, ...]:
    """The open dimensions whose ranges are known here, in their order."""
    return tuple(_known().open)


def known_ranges() -> dict[tirx.Var, Range]:
    """The ranges of all open dimensions that are known here."""
    return dict(_known().open)


def is_never(condition: tirx.Expr) -> bool:
    """Whether a condition is known to hold for no size in the ranges."""
    simple = _known().simplified(condition)
    return isinstance(simple, tirx.IntImm) and not int(simple)


def is_size(expr: tirx.Expr) -> bool:
    """Whether an index is a number, or depends on open dimensions and what stands for sizes in kernels alone."""
    return set(variables(expr)) <= _known().sizes


def range_of(variable: tirx.Var) -> Range:
    """The range of an open dimension that is known here."""
    values: Range = _known().open[variable]
    return values


def mentions_open(*nodes: Any) -> bool:
    """Whether an open dimension occurs in any of these types, expressions and kernels of TVM."""
    variables = set(_known().open)
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
    """Whether all are known at compile time."""
    return not any(isinstance(size, Size) for size in sizes)


def item_count(shape: Sequence[Dimension]) -> Dimension:
    """How many items a tensor of a shape has."""
    return math.prod(shape)


def variables(expr: tvm.ir.Expr) -> list[tirx.Var]:
    """The open dimensions in an expression of TIR or Relax, each once, in the order of their places."""
    found: dict[tirx.Var, None] = {}

    def note(var: tirx.Var) -> None:
        if isinstance(var.ty, tvm.ir.PrimType):
            found[var] = None

    tvm_ffi.structural_walk(expr, (tirx.Var, note))
    return list(found)


def _calculated(operation: Callable[[Any, Any], tirx.Expr], left: Any, right: Any) -> Dimension:
    """Of two sizes a size; of a size and an expression of TVM, as the index of an element is, such an expression."""
    if isinstance(left, int | Size) and isinstance(right, int | Size):
        return _made(operation(expression(left), expression(right)))
    index: Dimension = operation(*(value.expr if isinstance(value, Size) else value for value in (left, right)))
    return index


def _made(expr: tirx.Expr) -> Dimension:
    return _known().made(expr)


def _widened(expr: tirx.Expr) -> tirx.Expr:
    """An index of 32 bits, as kernels for GPUs have them, as the int64 that was converted to it."""
    match expr:
        case tirx.Cast(value=tirx.Expr()) if str(expr.value.ty.dtype) == "int64":
            return expr.value
        case tirx.Add() | tirx.Sub() | tirx.Mul() | tirx.FloorDiv() | tirx.FloorMod() | tirx.Min() | tirx.Max():
            return type(expr)(_widened(expr.a), _widened(expr.b))
    return expr.astype("int64")


def _factors(expr: tirx.Expr) -> Iterator[tirx.Expr]:
    """What a product is of, the first first; what is no product is a product of itself."""
    if isinstance(expr, tirx.Mul):
        yield from _factors(expr.a)
        yield from _factors(expr.b)
    else:
        yield expr


def _has_sum_as_factor(expr: tirx.Expr) -> bool:
    found: list[bool] = []

    def note(product: tirx.Mul) -> None:
        found.append(any(isinstance(factor, tirx.Add | tirx.Sub) for factor in _factors(product)))

    tvm_ffi.structural_walk(expr, (tirx.Mul, note))
    return any(found)


def _expanded(expr: tirx.Expr) -> tirx.Expr:
    """Products of sums in a sum as sums of products."""
    match expr:
        case tirx.Add() | tirx.Sub():
            return type(expr)(_expanded(expr.a), _expanded(expr.b))
        case tirx.Mul():
            left, right = _expanded(expr.a), _expanded(expr.b)
            for one, other in ((left, right), (right, left)):
                if isinstance(one, tirx.Add | tirx.Sub):
                    return type(one)(_expanded(one.a * other), _expanded(one.b * other))
            return left * right
    return expr


def _use_count(expr: tirx.Expr) -> int:
    """How often an expression mentions variables."""
    found: list[tirx.Var] = []
    tvm_ffi.structural_walk(expr, (tirx.Var, found.append))
    return len(found)


def _of_positive(quotient: tirx.FloorDiv) -> tirx.Expr:
    """`-x // c`, and `x // -c`, as `-((x + c - 1) // c)`: TVM makes the second of the first, and wrong code of that."""
    match quotient.a, quotient.b:
        case above, tirx.IntImm() as below if int(below) < 0:
            divisor = -int(below)
        case tirx.Sub(a=tirx.IntImm() as zero, b=above), tirx.IntImm() as below if int(zero) == 0:
            divisor = int(below)
        case _:
            return quotient
    rounded_up = tirx.floordiv(above + tirx.IntImm("int64", divisor - 1), tirx.IntImm("int64", divisor))
    return tirx.IntImm("int64", 0) - rounded_up


def _has_remainder(expr: tirx.Expr) -> bool:
    found: list[object] = []

    def note(node: object) -> None:
        found.append(node)

    tvm_ffi.structural_walk(expr, (tirx.FloorMod, note))
    return bool(found)


def _without_remainders(expr: tirx.Expr) -> tirx.Expr:
    """`x % c` as `x - x // c * c`: what is left of `x - x % c` is seen to be a multiple of c then."""
    return tvm_ffi.structural_map(expr, (tirx.FloorMod, lambda m: m.a - tirx.floordiv(m.a, m.b) * m.b))


def _text(expr: tirx.Expr) -> str:
    return str(expr).replace("T.int64(", "(")
