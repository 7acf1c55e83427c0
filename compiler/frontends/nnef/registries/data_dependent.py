"""`tract_onnx`: selections whose number of elements depends on the data."""

from __future__ import annotations

from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.base import Operand
from nnefc.operators.tensor.data_dependent_selection import NonZero
from nnefc.operators.vision.suppression import NonMaxSuppression

__all__: list[str] = []

_ONNX = registry("tract_onnx")


@_ONNX.operator("fragment tract_onnx_non_zero(input: tensor<scalar>) -> (output: tensor<integer>)", promotes=False)
def _non_zero(context: ExtensionContext, args: Arguments) -> Operand:
    """The coordinates of nonzero elements, `[rank, n]`."""
    return context.emitter.apply(NonZero(), args.input)


@_ONNX.operator(
    "fragment tract_onnx_non_max_suppression(boxes: tensor<scalar>, scores: tensor<scalar>, "
    "max_output_boxes_per_class: integer, iou_threshold: scalar, score_threshold: scalar = -3.4e38, "
    "center_point_box: logical = false) -> (output: tensor<integer>)",
)
def _non_max_suppression(context: ExtensionContext, args: Arguments) -> Operand:
    """Rows of batch element, class and box."""
    operator = NonMaxSuppression(
        args.max_output_boxes_per_class, args.iou_threshold, args.score_threshold, args.center_point_box
    )
    return context.emitter.apply(operator, args.boxes, args.scores)
