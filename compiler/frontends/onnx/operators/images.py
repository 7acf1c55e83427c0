"""Images: ImageDecoder."""

from __future__ import annotations

from typing import Any

from nnefc.frontends.onnx.operator import Context, Node, operator
from nnefc.frontends.onnx.operators.tensors import fail, input_at
from nnefc.operators.vision.images import DecodeImage

__all__: list[str] = []


@operator("ImageDecoder", since=(20,))
def _image_decoder(ctx: Context, node: Node) -> Any:
    form = node.attributes["pixel_format"]
    if form not in ("RGB", "BGR", "Grayscale"):
        raise fail(node, f"the pixel_format {form!r} is not known", "take RGB, BGR or Grayscale")
    return ctx.apply(DecodeImage(form), input_at(node, 0))
