"""String operators: constants, comparisons, and calls of the runtime's string functions.

Inside a network a string is a handle, an int64, which operators of all kinds move as they move numbers. What a handle
stands for is known to functions in C alone, `targets/runtime/text/`, which kernels call by their names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, dtype_of, is_empty, shape_of, zeros
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import broadcast_shapes, compute
from nnefc.operators.statements import Result, T, each, looped
from nnefc.operators.tensor.data_dependent_sizes import data_dependent_size
from nnefc.operators.tensor.shape import Expand
from nnefc.operators.text.case_mapping import Case, case_table
from nnefc.operators.text.regex import automaton
from nnefc.support.element_types import integer_range
from nnefc.symbolic.dims import Dimension, expression

__all__ = [
    "ChangeCase",
    "FromNumbers",
    "JoinStrings",
    "RegexMatch",
    "SplitStrings",
    "TextConstant",
    "TextEqual",
    "ToNumbers",
    "called",
    "packed_strings",
    "text_call",
    "utf8",
]

_WORD = 8
"""Length-prefixed texts begin at multiples of so many bytes."""


def text_call(ctx: Emitter, function: str, dtype: str, *arguments: tirx.Expr) -> tirx.Expr:
    """A call of a function of the runtime, with expressions of TIR."""
    ctx.has_text = True
    return tirx.call_extern(dtype, function, *arguments)


def called(
    ctx: Emitter, function: str, operands: Sequence[Operand], results: Sequence[Result], *numbers: Dimension
) -> tuple[Operand, ...]:
    """The results of a function of the runtime: its arguments are the operands, the results, and numbers (int64)."""

    def write(*buffers: Any) -> None:
        pointers = [tirx.address_of(buffer[0]) for buffer in buffers]
        given = [expression(number).astype("int64") for number in numbers]
        T.evaluate(tirx.call_extern("int32", function, *pointers, *given))

    ctx.has_text = True
    return looped(ctx, write, operands, results, function.removeprefix("nnefc_"))


def utf8(text: object) -> bytes:
    """The bytes of a string of a model."""
    return text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogateescape")


def packed_strings(texts: Sequence[object]) -> tuple[bytes, Array]:
    """Length-prefixed texts one after the other, equal ones once, and where each begins, int64.

    A length-prefixed text is its length, 64 bits, its bytes, and 1 to 8 zeros; see `nnefc_sized_text` in `text.h`.
    """
    positions: dict[bytes, int] = {}
    parts: list[bytes] = []
    end = 0
    for text in map(utf8, texts):
        if text not in positions:
            positions[text] = end
            padding = _WORD - len(text) % _WORD
            parts += [len(text).to_bytes(_WORD, "little"), text, bytes(padding)]
            end += _WORD + len(text) + padding
    return b"".join(parts), np.array([positions[utf8(text)] for text in texts], np.int64)


@dataclass(frozen=True, eq=False)
class TextConstant(Operator):
    """Strings that are known at compile time, as handles."""

    texts: Array

    def shape(self) -> Shape:
        """Return the shape of the array."""
        return self.texts.shape

    def lower(self, ctx: Emitter) -> Operand:
        """An expression of int64."""
        pool, offsets = packed_strings(list(self.texts.reshape(-1)))
        operands = [np.frombuffer(pool, np.uint8), offsets]
        return called(ctx, "nnefc_text_constants", operands, [(self.texts.shape, "int64")], self.texts.size)[0]


@dataclass(frozen=True)
class TextEqual(Operator):
    """Whether two strings, which broadcast, have the same bytes. ONNX `Equal`."""

    def shape(self, x: Shape, y: Shape) -> Shape:
        """The common shape of the operands."""
        return broadcast_shapes(x, y)

    def lower(self, ctx: Emitter, x: Operand, y: Operand) -> Operand:
        if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
            return np.asarray(np.equal(x, y), bool)

        def same(left: tirx.Expr, right: tirx.Expr) -> tirx.Expr:
            return text_call(ctx, "nnefc_text_equal", "int32", left, right) != 0

        return compute(ctx, same, ctx.expr(x), ctx.expr(y), name="text_equal", dtype="bool")


@dataclass(frozen=True)
class JoinStrings(Operator):
    """Two strings, which broadcast, one behind the other. ONNX `StringConcat`."""

    def shape(self, x: Shape, y: Shape) -> Shape:
        """The common shape of the operands."""
        return broadcast_shapes(x, y)

    def lower(self, ctx: Emitter, x: Operand, y: Operand) -> Operand:
        shape = self.shape(shape_of(x), shape_of(y))
        if is_empty(shape):
            return zeros(shape, np.int64)
        operands = [ctx.apply(Expand(shape), ctx.expr(operand)) for operand in (x, y)]
        return called(ctx, "nnefc_text_concat", operands, [(shape, "int64")], math.prod(shape))[0]


@dataclass(frozen=True)
class ChangeCase(Operator):
    """Strings in upper or lower case, as Python's `str.upper` and `str.lower` make them."""

    case: Case

    def shape(self, x: Shape) -> Shape:
        """Return the shape of the operand."""
        return x

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        operands = [x, case_table(self.case)]
        return called(ctx, "nnefc_text_change_case", operands, [(shape_of(x), "int64")], math.prod(shape_of(x)))[0]


@dataclass(frozen=True)
class RegexMatch(Operator):
    """Whether a regular expression of RE2's matches the whole of a string. ONNX `RegexFullMatch`.

    The expression becomes an automaton at compile time.
    """

    pattern: str

    def shape(self, x: Shape) -> Shape:
        """Return the shape of the operand."""
        return x

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        shape, table = shape_of(x), automaton(self.pattern)
        if is_empty(shape):
            return zeros(shape, bool)

        def write(source: Any, machine: Any, out: Any) -> None:
            with each(math.prod(shape), math.prod(shape) * 64) as position:
                found = text_call(ctx, "nnefc_text_matches", "int32", source[position], tirx.address_of(machine[0]))
                out[position] = found != 0

        return looped(ctx, write, [ctx.expr(x), table], [(shape, "bool")], "text_matches")[0]


@dataclass(frozen=True)
class SplitStrings(Operator):
    """The pieces of strings, `[…, n]`, and how many each has, int64, as Python's `str.split`. ONNX `StringSplit`.

    `n` is the maximum that one has; behind the last of another there are empty strings.

    Attributes:
        delimiter: what is between the pieces; "" for white space.
        cuts: how often a string is cut at most; any number if it is negative.
    """

    delimiter: str
    cuts: int

    def shape(self, x: Shape) -> Shape:
        """Return the shape of the counts of pieces; the number of pieces is data-dependent."""
        return x

    def lower(self, ctx: Emitter, x: Operand) -> tuple[Operand, Operand]:
        shape, count = shape_of(x), math.prod(shape_of(x))
        if is_empty(shape):
            return np.zeros((*shape, 0), np.int64), np.zeros(shape, np.int64)
        pool, _ = packed_strings([self.delimiter])
        operands = [x, np.frombuffer(pool, np.uint8)]
        sizes = [(shape, "int64"), ((1,), "int64")]
        counts, maximum = called(ctx, "nnefc_text_count_pieces", operands, sizes, count, self.cuts)
        width = data_dependent_size(ctx, ctx.expr(maximum), None if self.cuts < 0 else self.cuts + 1, "pieces")
        made = called(ctx, "nnefc_text_split", operands, [((*shape, width), "int64")], count, self.cuts, width)
        return made[0], counts


@dataclass(frozen=True)
class FromNumbers(Operator):
    """Numbers as strings: up to 8 significant digits of a real one, all of an integer; "NaN", "INF". ONNX `Cast`."""

    def shape(self, x: Shape) -> Shape:
        """Return the shape of the operand."""
        return x

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        count, dtype = math.prod(shape_of(x)), dtype_of(x)
        results = [(shape_of(x), "int64")]
        if "float" in dtype:
            return called(ctx, "nnefc_text_of_doubles", [ctx.apply(Cast("float64"), x)], results, count)[0]
        is_unsigned = dtype == "uint64"
        operands = [ctx.apply(Cast("int64"), x)]
        return called(ctx, "nnefc_text_of_integers", operands, results, count, int(is_unsigned))[0]


@dataclass(frozen=True)
class ToNumbers(Operator):
    """Strings as numbers of an element type: decimal ones, infinities and NaN; others fail the run. ONNX `Cast`.

    Of a number with a fraction an integer is what is before the point.
    """

    dtype: str

    def shape(self, x: Shape) -> Shape:
        """Return the shape of the operand."""
        return x

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        shape, count = shape_of(x), math.prod(shape_of(x))
        if "float" in self.dtype:
            kind = "double" if self.dtype == "float64" else "float"
            results = [(shape, "float64" if kind == "double" else "float32")]
            made = called(ctx, f"nnefc_text_to_{kind}s", [x], results, count)[0]
        else:
            low, high = integer_range(self.dtype)
            given = (count, low, min(high, (1 << 63) - 1), int(self.dtype == "uint64"))
            made = called(ctx, "nnefc_text_to_integers", [x], [(shape, "int64")], *given)[0]
        return ctx.apply(Cast(self.dtype), made)
