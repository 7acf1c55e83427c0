"""The operators of TFLite, a file for each family; importing it fills `OPERATORS`."""

from __future__ import annotations

from nnefc.frontends.tflite.operators import (  # noqa: F401
    activation,
    control,
    convolution,
    data_movement,
    detection,
    elementwise,
    indexing,
    matrix,
    pooling,
    quantization,
    recurrent,
    reduction,
    resize,
)

__all__: list[str] = []
