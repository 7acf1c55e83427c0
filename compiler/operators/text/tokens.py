"""Splits strings into tokens by regular expressions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nnefc.operators.base import Emitter, Operand, SameShape, is_empty, shape_of
from nnefc.operators.tensor.data_dependent_sizes import data_dependent_size
from nnefc.operators.text.regex import automaton
from nnefc.operators.text.strings import TextConstant, called
from nnefc.support.diagnostics import CompileError

__all__ = ["Tokens"]

_BEGIN, _END = "\x02", "\x03"
_ALIGNMENT = 8


@dataclass(frozen=True)
class Tokens(SameShape):
    """The tokens of strings, `[…, n]`, where `n` is the maximum that one has. com.microsoft `Tokenizer`.

    Attributes:
        patterns: regular expressions of RE2's. A token is what matches the one, or what is between matches: what the
            first one leaves is cut by the second, and so on.
        keeps_matches: which of both.
        minimum: min number of characters of a token.
        marks: whether the tokens of each string are between U+0002 and U+0003.
        pad: what stands behind the last token of strings that have fewer.
    """

    patterns: tuple[str, ...]
    keeps_matches: bool
    minimum: int
    marks: bool
    pad: str

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        shape, count = shape_of(x), math.prod(shape_of(x))
        if is_empty(shape):
            return np.zeros((*shape, 0), np.int64)
        if not self.patterns or (self.keeps_matches and len(self.patterns) > 1):
            raise CompileError(
                f"there are {len(self.patterns)} regular expressions: one is needed that matches tokens, or several "
                "that match separators"
            )
        pool, positions = b"", []
        for pattern in self.patterns:
            positions.append(len(pool))
            machine = automaton(pattern, is_part=True).tobytes()
            pool += machine + bytes(-len(machine) % _ALIGNMENT)
        operands = [x, np.frombuffer(pool, np.uint8), np.array(positions, np.int64)]
        rules = (count, len(positions), self.minimum, int(self.keeps_matches), int(self.marks))
        (maximum,) = called(ctx, "nnefc_text_count_tokens", operands, [((1,), "int64")], *rules)
        width = data_dependent_size(ctx, ctx.expr(maximum), None, "tokens")
        fill = TextConstant(np.array([self.pad, _BEGIN, _END], object)).lower(ctx)
        results = [((*shape, width), "int64")]
        return called(ctx, "nnefc_text_tokens", [*operands, fill], results, *rules, width)[0]
