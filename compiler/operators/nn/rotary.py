"""Rotary position embeddings: rotates pairs of elements by an angle proportional to the position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx

from nnefc.operators.base import Emitter, Operand, Operator, Shape, shape_of
from nnefc.operators.math.elementwise import element_at, fitted
from nnefc.operators.math.matrix import broadcasts_to
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.unification import covers, unify_shapes

__all__ = ["RotaryEmbedding"]


@dataclass(frozen=True)
class RotaryEmbedding(Operator):
    """Pairs `(a, b)` of the last axis as `(a cos - b sin, b cos + a sin)` (Su et al., "RoFormer", 2021).

    Elements beyond the angles' pairs stay.

    Attributes:
        interleaved: whether neighbours are pairs; else the first half of what is rotated is paired with the second.
        scale: of the rotated elements.
    """

    interleaved: bool = False
    scale: float = 1.0

    def shape(self, x: Shape, cos: Shape, sin: Shape) -> Shape:
        """Return the shape of the operand, `[…, E]`; of the angles, `[…, P]`, all but the last axis broadcast to it."""
        rotated = 2 * cos[-1]
        if not (unify_shapes(cos, sin) and covers(rotated, 2) and covers(x[-1], rotated)):
            raise CompileError(f"cosines {list(cos)} and sines {list(sin)} do not fit the elements {list(x)}")
        if not broadcasts_to(cos[:-1], x[:-1]):
            raise CompileError(f"cosines and sines {list(cos)} do not broadcast to the elements {list(x)}")
        return x

    def lower(self, ctx: Emitter, x: Operand, cos: Operand, sin: Operand) -> relax.Expr:
        shape, half = self.shape(shape_of(x), shape_of(cos), shape_of(sin)), shape_of(cos)[-1]
        cos, sin = (fitted(ctx, angle, (*shape[:-1], half)) for angle in (cos, sin))

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            data, *angles = tensors
            *outer, e = index
            if self.interleaved:
                pair, is_first = tirx.floormod(tirx.floordiv(e, 2), half), tirx.floormod(e, 2) == 0
                a, b = 2 * pair, 2 * pair + 1
            else:
                pair, is_first = tirx.floormod(e, half), e < half
                a, b = pair, pair + half
            positions = (*outer, pair)
            turn, lift = (element_at(angle, positions, (*shape[:-1], half)) for angle in angles)
            first, second = data(*outer, a), data(*outer, b)
            made = tirx.Select(is_first, first * turn - second * lift, second * turn + first * lift)
            if self.scale != 1:
                made = made * tirx.const(self.scale, str(made.ty))
            return made if 2 * half == shape[-1] else tirx.Select(e < 2 * half, made, data(*index))

        return ctx.elements(shape, element, x, cos, sin, name="rotary_embedding")
