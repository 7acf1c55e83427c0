"""Writes Fourier transforms in tract's dialect, on complex numbers with a last axis of size 2."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnefc.frontends.nnef.values import Tensor
from nnefc.frontends.nnef.writing.document import Unsayable
from nnefc.frontends.nnef.writing.tract import TractDocument, tract_says
from nnefc.operators.math.elementwise import Elementwise
from nnefc.operators.math.signal import FourierTransform, ShortTimeFourierTransform
from nnefc.operators.tensor.shape import Slice

__all__: list[str] = []


@tract_says(FourierTransform)
def _transform(document: TractDocument, operator: FourierTransform, x: Any) -> Any:
    value = document.tensor(x)
    result = operator.shape(value.shape)
    if operator.inverse and operator.onesided:
        raise Unsayable("tract transforms no half of a spectrum back")
    length = operator.length or value.shape[operator.axis]
    cut = document.say(
        Slice({operator.axis: (0, min(value.shape[operator.axis], length), 1)}), _complex(document, value)
    )
    whole = _padded(document, cut, operator.axis, length - cut.shape[operator.axis])
    made = document.extension(
        "tract_core_fft", [(value.content, whole.shape)], input=whole, axis=operator.axis, inverse=operator.inverse
    )
    made = document.say(Slice({operator.axis: (0, result[operator.axis], 1)}), made)
    return document.say(Elementwise("multiply"), made, np.array(1 / length, np.float32)) if operator.inverse else made


@tract_says(ShortTimeFourierTransform)
def _short_time_transform(
    document: TractDocument, operator: ShortTimeFourierTransform, x: Any, window: Any = None
) -> Any:
    value = document.tensor(x)
    result = operator.shape(value.shape)
    if len(value.shape) == 2:
        value = document.call("unsqueeze", input=value, axes=[2])
    if window is not None and not isinstance(window, np.ndarray):
        raise Unsayable("the window is computed, and tract takes one that is known")
    given = {} if window is None else {"window": window}
    made = document.extension(
        "tract_core_stft",
        [(value.content, (*result[:2], operator.length, 2))],
        input=_complex(document, value),
        axis=1,
        frame=operator.length,
        stride=operator.step,
        **given,
    )
    return document.say(Slice({2: (0, result[2], 1)}), made)


def _complex(document: TractDocument, value: Tensor) -> Tensor:
    """Real numbers with an imaginary part of zero."""
    return _padded(document, value, len(value.shape) - 1, 2 - value.shape[-1])


def _padded(document: TractDocument, value: Tensor, axis: int, count: int) -> Tensor:
    """Zeros behind the elements of an axis."""
    if count == 0:
        return value
    padding = [(0, count if each == axis else 0) for each in range(len(value.shape))]
    made: Tensor = document.call("pad", input=value, padding=padding, border="constant", value=0.0)
    return made
