"""Signal operators: DFT, STFT, MelWeightMatrix; the standard defines windows as functions."""

from __future__ import annotations

from typing import Any

from nnefc.frontends.onnx.operator import Context, Node, operator
from nnefc.frontends.onnx.operators.casting import element_type
from nnefc.frontends.onnx.operators.tensors import input_at, integers, normal_axis, optional_input, required_value
from nnefc.frontends.onnx.values import numpy_dtype
from nnefc.operators.math.signal import FourierTransform, MelWeights, ShortTimeFourierTransform

__all__: list[str] = []


def _number(ctx: Context, node: Node, index: int, name: str) -> int | None:
    """An input that is one integer; None where it is left out."""
    elements = integers(ctx, node, index, name)
    return elements[0] if elements else None


@operator("DFT", since=(17, 20))
def _dft(ctx: Context, node: Node) -> Any:
    x, given = input_at(node, 0), node.attributes
    axis = given["axis"] if node.version == 17 else _number(ctx, node, 2, "axis")
    axis = normal_axis(node, -2 if axis is None else axis, x.rank)
    length = _number(ctx, node, 1, "dft_length")
    return ctx.apply(FourierTransform(axis, length, bool(given["inverse"]), bool(given["onesided"])), x)


@operator("STFT", since=(17,))
def _stft(ctx: Context, node: Node) -> Any:
    window = optional_input(node, 2)
    step, length = _number(ctx, node, 1, "frame_step"), _number(ctx, node, 3, "frame_length")
    if length is None and window is not None:
        length = window.shape[0]
    transform = ShortTimeFourierTransform(step or 0, length or 0, bool(node.attributes["onesided"]))
    return ctx.apply(transform, input_at(node, 0), window)


@operator("MelWeightMatrix", since=(17,))
def _mel_weights(ctx: Context, node: Node) -> Any:
    names = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
    values = [required_value(ctx, node, i, name).reshape(-1)[0] for i, name in enumerate(names)]
    weights = ctx.apply(MelWeights(*map(int, values[:3]), *map(float, values[3:])))
    return ctx.known(weights.array.astype(numpy_dtype(element_type(node, node.attributes["output_datatype"]))))
