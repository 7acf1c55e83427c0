"""Decodes image files with `targets/runtime/images/`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from nnefc.operators.base import Emitter, Operand, Operator, Shape, is_empty, shape_of
from nnefc.operators.tensor.data_dependent_sizes import data_dependent_size
from nnefc.operators.tensor.shape import Slice
from nnefc.operators.text.strings import called
from nnefc.support.diagnostics import CompileError

__all__ = ["DecodeImage", "PixelForm"]

PixelForm = Literal["RGB", "BGR", "Grayscale"]
_FORMS: tuple[PixelForm, ...] = ("RGB", "BGR", "Grayscale")  # in the order of `decode.c`


@dataclass(frozen=True)
class DecodeImage(Operator):
    """The pixels of an image in a file, uint8 `[height, width, channels]`. ONNX `ImageDecoder`.

    A file that is damaged, or no image, has no pixels: both sizes are 0.

    Attributes:
        form: what the channels are: three colours, or the lightness alone.
    """

    form: PixelForm

    def shape(self, file: Shape) -> Shape:
        """Return the shape of the file, `[bytes]`: the size of the image is data-dependent."""
        return file

    def lower(self, ctx: Emitter, file: Operand) -> Operand:
        """Raises a CompileError for a file that is no list of bytes."""
        shape, channels = shape_of(file), 1 if self.form == "Grayscale" else 3
        if len(shape) != 1:
            raise CompileError(f"a file of the shape {list(shape)} is no list of bytes")
        if is_empty(shape):
            return np.zeros((0, 0, channels), np.uint8)
        (found,) = called(ctx, "nnefc_image_decode", [file], [((3,), "int64")], shape[0], _FORMS.index(self.form))
        height, width = (
            data_dependent_size(ctx, ctx.expr(ctx.apply(Slice({0: (position, 1, 1)}), found)), None, name)
            for position, name in enumerate(("image_height", "image_width"))
        )
        pixels = (height, width, channels)
        return called(ctx, "nnefc_image_pixels", [found], [(pixels, "uint8")], height * width * channels)[0]
