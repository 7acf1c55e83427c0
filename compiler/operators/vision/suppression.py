"""Non-maximum suppression: removes boxes that overlap boxes of a higher score."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from tvm import tirx

from nnefc.ir.attributes import SCRATCH_RESULTS
from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, is_empty, shape_of
from nnefc.operators.statements import T, looped
from nnefc.operators.tensor.data_dependent_selection import first_of
from nnefc.operators.tensor.data_dependent_sizes import data_dependent_size
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, expression, minimum
from nnefc.symbolic.unification import unify_shapes

__all__ = ["NonMaxSuppression", "PaddedSuppression"]

_ZERO = tirx.const(0, "int64")


@dataclass(frozen=True)
class _Limits:
    """The attributes of a suppression as expressions: constants, or elements of operands."""

    maximum: Any
    overlap: Any
    minimum: Any | None

    @classmethod
    def of(cls, attributes: NonMaxSuppression, operands: Mapping[str, Any]) -> _Limits:
        """Returns the attributes, overridden by operands."""
        maximum = operands["maximum"].astype("int64") if "maximum" in operands else attributes.maximum
        known = tirx.const(attributes.overlap or 0.0, "float64")
        overlap = operands["overlap"].astype("float64") if "overlap" in operands else known
        return cls(maximum, overlap, operands.get("minimum", attributes.minimum))

    def is_candidate(self, score: Any) -> Any:
        """Returns whether a box of this score may be kept: never if it is NaN."""
        if self.minimum is None:
            return tirx.Not(tirx.isnan(score))  # TVM and LLVM fold `score == score`
        return score > (tirx.const(self.minimum, str(score.ty)) if isinstance(self.minimum, float) else self.minimum)


@dataclass(frozen=True)
class NonMaxSuppression(Operator):
    """The boxes of the highest scores that do not overlap each other much: rows (batch element, class, box), int64.

    Of equal scores the first box comes first. A box with the score NaN is not kept.

    Attributes:
        maximum: how many boxes are kept for each class of each batch element; None if an operand says it.
        overlap: two boxes overlap much if their intersection is more than this part of their union; None if an operand
            says it.
        minimum: what scores must be above; None for all of them, or if an operand says it.
        centred: whether boxes are (centre x, centre y, width, height), else two corners (y1, x1, y2, x2).
    """

    maximum: int | None
    overlap: float | None
    minimum: float | None
    centred: bool

    is_padded: ClassVar[bool] = False

    def lower(
        self,
        ctx: Emitter,
        boxes: Operand,
        scores: Operand,
        maximum: Operand | None = None,
        overlap: Operand | None = None,
        min_score: Operand | None = None,
    ) -> Operand:
        """Of boxes `[N, n, 4]` and scores `[N, classes, n]`; what the attributes leave open are tensors of one
        element."""
        given = {"maximum": maximum, "overlap": overlap, "minimum": min_score}
        named = {name: operand for name, operand in given.items() if operand is not None}
        limit = self._limit(boxes, scores)
        if isinstance(boxes, np.ndarray) and isinstance(scores, np.ndarray) and not named:
            return self._of_arrays(boxes, scores)
        if is_empty((limit,)):
            return np.zeros((0, 3), np.int64)
        kept, count = self._rows(ctx, boxes, scores, named, limit)
        return first_of(ctx, kept, data_dependent_size(ctx, ctx.expr(count), limit, "boxes"))

    def _limit(self, boxes: Operand, scores: Operand) -> Dimension:
        """How many boxes may be kept.

        Raises:
            CompileError: boxes and scores do not fit each other.
        """
        b, s = shape_of(boxes), shape_of(scores)
        if len(b) != 3 or len(s) != 3 or not unify_shapes((b[2], s[2], s[0]), (4, b[1], b[0])):
            raise CompileError(f"boxes {list(b)} and scores {list(s)} do not fit each other")
        return math.prod(s[:2]) * (s[2] if self.maximum is None else minimum(s[2], self.maximum))

    def _rows(
        self, ctx: Emitter, boxes: Operand, scores: Operand, named: Mapping[str, Operand], limit: Dimension
    ) -> tuple[Operand, Operand]:
        """The rows of the boxes that are kept, `[limit, 3]`, and their number, `[1]`."""
        shape = shape_of(scores)
        results = [((limit, 3), "int64"), ((1,), "int64"), ((shape[2],), "int64"), ((3,), "int64")]
        writer = self._writer(shape, named, limit)
        attrs = {SCRATCH_RESULTS: 2}
        kept, count, *_ = looped(ctx, writer, [boxes, scores, *named.values()], results, "suppression", attrs)
        return kept, count

    def _writer(self, shape: Shape, named: Iterable[str], limit: Dimension) -> Callable[..., None]:
        """Of each class, take the box of the highest score until none is left; those that overlap with it go too."""
        images, classes, boxes = map(expression, shape)

        def write(data: Any, scores: Any, *buffers: Any) -> None:
            """`left`: boxes that may still be taken, `state[0]` of them; `state[1]` have been taken."""
            *operands, kept, count, left, state = buffers
            limits = _Limits.of(self, {name: buffer[0] for name, buffer in zip(named, operands, strict=True)})
            count[0] = _ZERO
            if self.is_padded:
                with T.serial(0, expression(limit * 3)) as element:
                    kept[element] = _ZERO
            with T.serial(0, images) as image, T.serial(0, classes) as class_:
                line = (image * classes + class_) * boxes
                state[0] = _ZERO
                state[1] = _ZERO
                with T.serial(0, boxes) as box, T.If(limits.is_candidate(scores[line + box])), T.Then():
                    left[state[0]] = box
                    state[0] = state[0] + 1
                with T.While(tirx.all(state[0] > 0, state[1] < limits.maximum)):
                    self._take(limits, data, scores, kept, count, left, state, image, class_, line, image * boxes)
                    state[1] = state[1] + 1

        return write

    def _take(
        self,
        limits: _Limits,
        data: Any,
        scores: Any,
        kept: Any,
        count: Any,
        left: Any,
        state: Any,
        image: Any,
        class_: Any,
        line: Any,
        first: Any,
    ) -> None:
        """Move the best of the boxes that are left to those that are kept."""
        row = count[0] * 3
        kept[row] = image.astype("int64")
        kept[row + 1] = class_.astype("int64")
        kept[row + 2] = left[0]
        with (
            T.serial(0, state[0]) as position,
            T.If(scores[line + left[position]] > scores[line + kept[row + 2]]),
            T.Then(),
        ):
            kept[row + 2] = left[position]
        state[2] = state[0]
        state[0] = _ZERO
        with T.serial(0, state[2]) as position:
            box, best = left[position], kept[row + 2]
            much = self._overlap_much(limits, data, (first + box) * 4, (first + best) * 4)
            with T.If(tirx.all(box != best, tirx.Not(much))), T.Then():
                left[state[0]] = box
                state[0] = state[0] + 1
        count[0] = count[0] + 1

    def _overlap_much(self, limits: _Limits, data: Any, one: Any, other: Any) -> Any:
        """As :meth:`_kept` does, in float64."""
        a, b = (self._box(data, position) for position in (one, other))
        areas = [(y2 - y1) * (x2 - x1) for y1, x1, y2, x2 in (a, b)]
        zero = tirx.const(0, "float64")
        sides = [tirx.max(tirx.min(a[axis + 2], b[axis + 2]) - tirx.max(a[axis], b[axis]), zero) for axis in range(2)]
        common = sides[0] * sides[1]
        return common > limits.overlap * (areas[0] + areas[1] - common)

    def _box(self, data: Any, position: Any) -> tuple[Any, ...]:
        """y1, x1, y2, x2, the first not above the second."""
        one, two, three, four = (data[position + i].astype("float64") for i in range(4))
        if self.centred:
            return two - four / 2, one - three / 2, two + four / 2, one + three / 2
        low, high = ([f(one, three), f(two, four)] for f in (tirx.min, tirx.max))
        return *low, *high

    def _of_arrays(self, boxes: Array, scores: Array) -> Array:
        kept = []
        for image in range(scores.shape[0]):
            corners = self._corners(boxes[image].astype(np.float64))
            for class_ in range(scores.shape[1]):
                kept += [(image, class_, box) for box in self._kept(corners, scores[image, class_])]
        return np.array(kept, np.int64).reshape(-1, 3)

    def _corners(self, boxes: Array) -> Array:
        """`[n, 4]`: y1, x1, y2, x2, the first not above the second."""
        if self.centred:
            x, y, w, h = boxes.T
            return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], 1)
        first, second = boxes[:, :2], boxes[:, 2:]
        return np.concatenate([np.minimum(first, second), np.maximum(first, second)], 1)

    def _kept(self, corners: Array, scores: Array) -> list[int]:
        order = np.argsort(-scores, kind="stable")[: np.count_nonzero(~np.isnan(scores))]  # NaN is last
        assert self.maximum is not None and self.overlap is not None
        kept: list[int] = []
        areas = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
        for box in order if self.minimum is None else order[scores[order] > self.minimum]:
            if len(kept) >= self.maximum:
                break
            low = np.maximum(corners[box, :2], corners[kept, :2])
            high = np.minimum(corners[box, 2:], corners[kept, 2:])
            common = np.prod(np.maximum(high - low, 0), axis=1)
            if not (common > self.overlap * (areas[box] + areas[kept] - common)).any():
                kept.append(int(box))
        return kept


@dataclass(frozen=True)
class PaddedSuppression(NonMaxSuppression):
    """The rows of :class:`NonMaxSuppression`, followed by zeros up to as many as may be kept, and their number, `[1]`.

    Sizes do not depend on data, so that machines without a heap compute it. `maximum` is an attribute.
    """

    is_padded: ClassVar[bool] = True

    def lower(self, ctx: Emitter, boxes: Operand, scores: Operand) -> tuple[Operand, Operand]:  # type: ignore[override]
        """Of boxes `[N, n, 4]` and scores `[N, classes, n]`; int64."""
        limit = self._limit(boxes, scores)
        if isinstance(boxes, np.ndarray) and isinstance(scores, np.ndarray):
            rows = self._of_arrays(boxes, scores)
            padded = np.concatenate([rows, np.zeros((int(limit) - len(rows), 3), np.int64)])
            return padded, np.array([len(rows)], np.int64)
        if is_empty((limit,)):
            return np.zeros((0, 3), np.int64), np.zeros(1, np.int64)
        return self._rows(ctx, boxes, scores, {}, limit)
