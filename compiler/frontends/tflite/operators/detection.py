"""Detection: boxes that do not overlap much, and the decoding of boxes behind a detector."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.tflite.flexbuffer import read_map
from nnefc.frontends.tflite.lowering import FLOATS, Lowering, Node, Operand, Result, operator
from nnefc.operators.base import Array, rank_of, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Where, apply
from nnefc.operators.nn.quantization import Dequantization
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.padding import Pad
from nnefc.operators.tensor.shape import RepeatElements, Reshape, Slice, Transpose
from nnefc.operators.tensor.sorting import TopK
from nnefc.operators.vision.soft_suppression import SoftSuppression
from nnefc.operators.vision.suppression import PaddedSuppression
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import is_known

__all__: list[str] = []

_MAX_DETECTIONS = 1 << 16


def _selected(
    ctx: Lowering, boxes: Operand, scores: Operand, maximum: int, overlap: float, threshold: float
) -> tuple[Operand, Operand]:
    """The indices of the boxes `[N, 4]` that are kept, with zeros behind them `[maximum]` int64, and their number.

    Args:
        threshold: what scores `[N]` must be above.
    """
    count = shape_of(scores)[0]
    if not is_known(count) or not 0 < maximum <= _MAX_DETECTIONS:
        raise CompileError(f"{maximum} of {count} boxes cannot be kept")
    limit = min(maximum, count)
    layer = PaddedSuppression(limit, overlap, threshold, False)
    rows, number = ctx.apply(layer, ctx.reshaped(boxes, (1, count, 4)), ctx.reshaped(scores, (1, 1, count)))
    column = ctx.apply(Reshape((limit,)), ctx.apply(Slice({1: (2, 1, 1)}), rows))
    indices = ctx.apply(Pad(((0, maximum - limit),)), column) if limit < maximum else column
    return indices, ctx.apply(Cast("int32"), number)


def _rows(ctx: Lowering, table: Operand, indices: Operand, is_kept: Operand) -> Operand:
    """The rows of a table at indices, zeros for those that are not kept."""
    taken = ctx.apply(Gather(0), table, indices)
    mask = ctx.reshaped(is_kept, (shape_of(indices)[0], *[1] * (rank_of(taken) - 1)))
    made: Operand = ctx.apply(Where(), mask, taken, np.zeros((), np.float32))
    return made


def _is_kept(ctx: Lowering, number: Operand, maximum: int) -> Operand:
    return apply(ctx, "less", np.arange(maximum, dtype=np.int32), number)


@operator("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5", types=FLOATS)
def _suppression(ctx: Lowering, node: Node) -> Result:
    """Boxes that overlap a kept one as much as the threshold are removed; the scores of others decay in version 5."""
    boxes, scores = node.operand(0), node.operand(1)
    maximum, (count,) = node.number(2, "the number of boxes"), shape_of(scores)
    if not is_known(count) or not 0 < maximum <= _MAX_DETECTIONS:
        raise CompileError(f"{maximum} of {count} boxes cannot be kept")
    overlap, threshold = (float(node.constant(k, "a threshold").reshape(-1)[0]) for k in (3, 4))
    soft = node.name.endswith("V5")
    sigma = float(node.constant(5, "sigma").reshape(-1)[0]) if soft else 0.0
    indices, found, number = ctx.apply(SoftSuppression(maximum, overlap, threshold, sigma), boxes, scores)
    return (indices, found, number) if soft else (indices, number)


def _real(ctx: Lowering, node: Node, index: int) -> Operand:
    """An input as reals."""
    x = node.operand(index)
    if node.dtype(index) == "float32":
        return x
    given = node.quantization(index)
    made: Operand = ctx.apply(Dequantization(), x, given.scale.reshape(()), given.zero.astype(np.int32).reshape(()))
    return made


@operator("TFLite_Detection_PostProcess", types=("float32", "uint8"))
def _post_process(ctx: Lowering, node: Node) -> Result:
    """Decodes boxes around anchors, keeps the best of those that overlap, and gives the best classes of each."""
    options = read_map(node.custom)
    maximum, each = int(options.get("max_detections", 0)), int(options.get("max_classes_per_detection", 0))
    codes, scores, anchors = (_real(ctx, node, index) for index in range(3))
    count, classes = shape_of(scores)[1:]
    background = classes - int(options.get("num_classes", 0))
    if background not in (0, 1) or not 0 < each <= classes - background:
        raise CompileError(f"{each} of {options.get('num_classes')} classes cannot be chosen of {classes} scores")
    scales = np.array([float(options.get(f"{name}_scale", 1)) for name in "yxhw"])
    boxes = _decoded(ctx, ctx.reshaped(codes, shape_of(codes)[1:]), anchors, scales)
    scores = ctx.apply(Slice({1: (background, classes - background, 1)}), ctx.reshaped(scores, (count, classes)))
    threshold = float(np.nextafter(np.float32(options.get("nms_score_threshold", 0)), np.float32(-np.inf)))
    overlap = float(options.get("nms_iou_threshold", 0))
    if options.get("use_regular_nms", False):
        of_class = min(int(options.get("detections_per_class", 100)), maximum)
        found, number = _of_each_class(ctx, boxes, scores, maximum, of_class, overlap, threshold)
        wider = [(0, maximum * (each - 1)), (0, 0)]
        found = [ctx.apply(Pad(tuple(wider[: rank_of(part)])), part) for part in found]
    else:
        best, labels = ctx.apply(TopK(1, each), scores)
        first = ctx.reshaped(ctx.apply(Slice({1: (0, 1, 1)}), best), (count,))
        indices, number = _selected(ctx, boxes, first, maximum, overlap, threshold)
        kept = _is_kept(ctx, number, maximum)
        found = [_rows(ctx, each_, indices, kept) for each_ in (boxes, ctx.apply(Cast("float32"), labels), best)]
        # Each class of a box is a detection; those of a box lie next to each other.
        found[0] = ctx.apply(RepeatElements(each, 0), found[0])
    results = [ctx.reshaped(found[0], (1, maximum * each, 4))]
    results += [ctx.reshaped(part, (1, maximum * each)) for part in found[1:]]
    return *results, ctx.apply(Cast("float32"), number)


def _of_each_class(
    ctx: Lowering, boxes: Operand, scores: Operand, maximum: int, of_class: int, overlap: float, threshold: float
) -> tuple[list[Operand], Operand]:
    """The boxes `[maximum, 4]`, classes and scores `[maximum]` of the best detections, with zeros behind them, and
    their number: boxes suppress others of their class alone.

    Args:
        of_class: how many of a class are kept at most.
    """
    count, classes = shape_of(scores)
    limit = min(of_class, count) if is_known(count) else 0
    if not 0 < maximum <= _MAX_DETECTIONS or limit < 1:
        raise CompileError(f"{maximum} of {count} boxes, and {of_class} of a class, cannot be kept")
    by_class = ctx.apply(Transpose((1, 0)), scores)
    layer, total = PaddedSuppression(limit, overlap, threshold, False), limit * classes
    rows, number = ctx.apply(layer, ctx.reshaped(boxes, (1, count, 4)), ctx.reshaped(by_class, (1, classes, count)))
    labels, indices = (ctx.reshaped(ctx.apply(Slice({1: (k, 1, 1)}), rows), (total,)) for k in (1, 2))
    position = apply(ctx, "add", apply(ctx, "multiply", labels, np.array(count, np.int64)), indices)
    found = ctx.apply(Gather(0), ctx.reshaped(by_class, (classes * count,)), position)
    number = ctx.apply(Cast("int32"), number)
    found = ctx.apply(Where(), _is_kept(ctx, number, total), found, np.array(-np.inf, np.float32))
    values, order = ctx.apply(TopK(0, min(maximum, total)), found)
    columns = [ctx.apply(Gather(0), part, order) for part in (indices, labels)]
    if total < maximum:
        *columns, values = (ctx.apply(Pad(((0, maximum - total),)), part) for part in (*columns, values))
    number = apply(ctx, "minimum", number, np.array(maximum, np.int32))
    kept = _is_kept(ctx, number, maximum)
    zero = np.zeros((), np.float32)
    parts = [ctx.apply(Cast("float32"), columns[1]), values]
    return [_rows(ctx, boxes, columns[0], kept), *(ctx.apply(Where(), kept, part, zero) for part in parts)], number


def _decoded(ctx: Lowering, codes: Operand, anchors: Operand, scales: Array) -> Operand:
    """Boxes `[N, 4]` as two corners, of centres and sizes relative to anchors, in float64."""

    def column(table: Operand, index: int) -> Operand:
        return ctx.apply(Cast("float64"), ctx.apply(Slice({1: (index, 1, 1)}), table))

    lows, highs = [], []
    for axis in (0, 1):
        origin, size = column(anchors, axis), column(anchors, axis + 2)
        offset = apply(ctx, "divide", column(codes, axis), np.array(scales[axis]))
        centre = apply(ctx, "add", apply(ctx, "multiply", offset, size), origin)
        growth = apply(ctx, "exp", apply(ctx, "divide", column(codes, axis + 2), np.array(scales[axis + 2])))
        reach = apply(ctx, "multiply", apply(ctx, "multiply", growth, np.array(0.5)), size)
        centre, reach = (ctx.apply(Cast("float32"), part) for part in (centre, reach))
        lows.append(apply(ctx, "subtract", centre, reach))
        highs.append(apply(ctx, "add", centre, reach))
    made: Operand = ctx.apply(Concat(1), *lows, *highs)
    return made
