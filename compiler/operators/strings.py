"""Strings: constants of them, comparisons, and what functions of the runtime make of them.

Inside a network a string is a handle, an int64, which operators of all kinds move as they move numbers. What a handle
stands for is known to functions in C alone, `targets/runtime/text/`, which kernels call by their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape
from nnefc.operators.elementwise import broadcast_shapes, compute
from nnefc.operators.statements import Result, T, looped
from nnefc.sizes import Dimension, expression

__all__ = ["TextConstant", "TextEqual", "called", "packed_texts", "text_call"]

_WORD = 8
"""Counted texts begin at multiples of so many bytes."""


def text_call(at: Emitter, function: str, dtype: str, *arguments: tirx.Expr) -> tirx.Expr:
    """A call of a function of the runtime, with expressions of TIR."""
    at.has_text = True
    return tirx.call_extern(dtype, function, *arguments)


def called(
    at: Emitter, function: str, operands: Sequence[Operand], results: Sequence[Result], *numbers: Dimension
) -> tuple[Operand, ...]:
    """The results of a function of the runtime: its arguments are the operands, the results, and numbers (int64)."""

    def write(*buffers: Any) -> None:
        pointers = [tirx.address_of(buffer[0]) for buffer in buffers]
        given = [expression(number).astype("int64") for number in numbers]
        T.evaluate(tirx.call_extern("int32", function, *pointers, *given))

    at.has_text = True
    return looped(at, write, operands, results, function.removeprefix("nnefc_"))


def utf8(text: object) -> bytes:
    """The bytes of a string of a model."""
    return text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogateescape")


def packed_texts(texts: Sequence[object]) -> tuple[bytes, Array]:
    """Counted texts one after the other, equal ones once, and where each begins, int64.

    A counted text is its length, 64 bits, and its bytes; see `nnefc_counted_text` in `text.h`.
    """
    places: dict[bytes, int] = {}
    parts: list[bytes] = []
    end = 0
    for text in map(utf8, texts):
        if text not in places:
            places[text] = end
            padding = -len(text) % _WORD
            parts += [len(text).to_bytes(_WORD, "little"), text, bytes(padding)]
            end += _WORD + len(text) + padding
    return b"".join(parts), np.array([places[utf8(text)] for text in texts], np.int64)


@dataclass(frozen=True, eq=False)
class TextConstant(Operator):
    """Strings that are known at compile time, as handles."""

    texts: Array

    def shape(self) -> Shape:
        """That of the array."""
        return self.texts.shape

    def lower(self, at: Emitter) -> Operand:
        """An expression of int64."""
        pool, offsets = packed_texts(list(self.texts.reshape(-1)))
        operands = [np.frombuffer(pool, np.uint8), offsets]
        return called(at, "nnefc_text_constants", operands, [(self.texts.shape, "int64")], self.texts.size)[0]


@dataclass(frozen=True)
class TextEqual(Operator):
    """Whether two strings, which broadcast, have the same bytes. ONNX `Equal`."""

    def shape(self, x: Shape, y: Shape) -> Shape:
        """The common shape of the operands."""
        return broadcast_shapes(x, y)

    def lower(self, at: Emitter, x: Operand, y: Operand) -> Operand:
        if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
            return np.asarray(np.equal(x, y), bool)

        def same(left: tirx.Expr, right: tirx.Expr) -> tirx.Expr:
            return text_call(at, "nnefc_text_equal", "int32", left, right) != 0

        return compute(at, same, at.expr(x), at.expr(y), name="text_equal", dtype="bool")
