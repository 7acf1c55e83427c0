"""Soft non-maximum suppression: the scores of boxes that overlap kept ones decay, those that overlap much are removed.

Bodla et al., "Soft-NMS: Improving Object Detection With One Line of Code" (2017), with the Gaussian weight:

    score ← score · exp(-iou² / (2 · sigma))        for each box that is kept
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from nnefc.operators.base import Emitter, Operand, Operator, Shape, shape_of
from nnefc.operators.statements import T, looped
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import expression
from nnefc.symbolic.unification import unify_shapes

__all__ = ["SoftSuppression"]


@dataclass(frozen=True)
class SoftSuppression(Operator):
    """The boxes that are kept, by descending scores; of equal scores the first box comes first.

    Attributes:
        maximum: how many boxes are kept at most.
        overlap: what the intersection over the union of two boxes must be below, that both are kept.
        minimum: what scores must be above, those that have decayed too.
        sigma: of the weight; 0: scores do not decay.
    """

    maximum: int
    overlap: float
    minimum: float
    sigma: float = 0.0

    def shape(self, boxes: Shape, scores: Shape) -> tuple[Shape, Shape, Shape]:
        """`[maximum]` twice, and one number."""
        if len(boxes) != 2 or len(scores) != 1 or not unify_shapes(boxes, (scores[0], 4)):
            raise CompileError(f"boxes {list(boxes)} and scores {list(scores)} do not fit each other")
        return (self.maximum,), (self.maximum,), ()

    def lower(self, ctx: Emitter, boxes: Operand, scores: Operand) -> tuple[Operand, Operand, Operand]:
        """The indices int32 and the scores float32 of the boxes that are kept, zeros behind them, and their number.

        Args:
            boxes: `[n, 4]` float32, two corners (y1, x1, y2, x2).
            scores: `[n]` float32.
        """
        rows, kept, number = self.shape(shape_of(boxes), shape_of(scores))
        count = shape_of(scores)[0]
        scratch = [((count,), "float32"), ((3,), "int32")]
        results = [(rows, "int32"), (kept, "float32"), (number, "int32"), *scratch]
        indices, found, total, *_ = looped(ctx, self._writer(count), [boxes, scores], results, "soft_suppression")
        return indices, found, total

    def _writer(self, count: Any) -> Any:
        boxes = expression(count)

        def write(data: Any, scores: Any, indices: Any, kept: Any, number: Any, current: Any, state: Any) -> None:
            """`current`: scores as they have decayed; `state`: the best box, whether there is one, and the next."""
            number[0] = _int32(0)
            with T.serial(0, self.maximum) as k:
                indices[k] = _int32(0)
                kept[k] = _float32(0)
            with T.serial(0, boxes) as box:
                current[box] = scores[box]
            state[1] = _int32(1)
            with T.While(tirx.all(state[1] > 0, number[0] < self.maximum)):
                state[1] = _int32(0)
                with T.serial(0, boxes) as box, T.If(self._is_better(current, box, state)), T.Then():
                    state[0] = box.astype("int32")
                    state[1] = _int32(1)
                with T.If(state[1] > 0), T.Then():
                    indices[number[0]] = state[0]
                    kept[number[0]] = current[state[0]]
                    number[0] = number[0] + 1
                    with T.serial(0, boxes) as box:
                        self._decay(data, current, box, state[0].astype("int64"))

        return write

    def _is_better(self, current: Any, box: Any, state: Any) -> Any:
        best = state[0].astype("int64") * state[1].astype("int64")
        return tirx.all(current[box] > _float32(self.minimum), tirx.any(state[1] < 1, current[box] > current[best]))

    def _decay(self, data: Any, current: Any, box: Any, best: Any) -> None:
        """Writes the score of a box next to the one that is kept; what is removed gets the score that none may have.

        The box itself is compared too, which removes it, if it has an area.
        """
        overlap = T.buffer_proxy(T.alloc_buffer((1,), "float32", scope="local"))
        overlap[0] = _intersection_over_union(data, box * 4, best * 4)
        weight: Any = _float32(1)
        if self.sigma > 0:
            weight = tirx.exp(_float32(-0.5 / self.sigma) * overlap[0] * overlap[0])
        much = overlap[0] >= _float32(self.overlap)
        current[box] = tirx.Select(much, _float32(self.minimum), current[box] * weight)


def _intersection_over_union(data: Any, one: Any, other: Any) -> Any:
    zero, boxes = _float32(0), []
    for first in (one, other):
        corners = [data[first + k] for k in range(4)]
        boxes.append([f(corners[axis], corners[axis + 2]) for f in (tirx.min, tirx.max) for axis in (0, 1)])
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in boxes]
    sides = [
        tirx.max(tirx.min(boxes[0][axis + 2], boxes[1][axis + 2]) - tirx.max(boxes[0][axis], boxes[1][axis]), zero)
        for axis in (0, 1)
    ]
    common = sides[0] * sides[1]
    union = areas[0] + areas[1] - common
    has_areas = tirx.all(areas[0] > zero, areas[1] > zero, union > zero)
    return tirx.Select(has_areas, common / tirx.Select(has_areas, union, _float32(1)), zero)


def _int32(value: int) -> tirx.Expr:
    return tirx.const(value, "int32")


def _float32(value: float) -> tirx.Expr:
    return tirx.const(value, "float32")
