"""What a network of float32 values computes if every operation is done in float64: the reference for rounding errors.

ONNX's own evaluator does the operations in NumPy, on a copy of the network whose floats are doubles. Those that it
does in Python's loops, or otherwise than the standard says, are here: VGG-19 takes a few seconds. Nothing of nnefc
takes part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

__all__ = ["errors", "exact_outputs", "kept_outputs"]


def kept_outputs(model: Path, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """As :func:`exact_outputs`, of a model and inputs that are always the same; kept next to the model."""
    kept = model.with_suffix(".exact.npz")
    if not kept.exists() or kept.stat().st_mtime < max(model.stat().st_mtime, Path(__file__).stat().st_mtime):
        np.savez(kept, *exact_outputs(onnx.load(model), inputs))
    with np.load(kept) as arrays:
        return list(arrays.values())


def exact_outputs(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """All outputs, floats as float64."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for tensor in wide.graph.initializer:
        _widen(tensor)
    for info in (*wide.graph.input, *wide.graph.output, *wide.graph.value_info):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in wide.graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen(attribute.t)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    values = {name: value.astype(np.float64) if value.dtype == np.float32 else value for name, value in inputs.items()}
    outputs: list[np.ndarray] = ReferenceEvaluator(wide, new_ops=_FAST).run(None, values)
    return outputs


def errors(found: np.ndarray, exact: np.ndarray) -> tuple[float, float]:
    """The largest error over the largest value, and the same of the roots of the mean squares; of zeros, the errors."""
    if not exact.size:
        return 0.0, 0.0
    exact = exact.astype(np.float64)
    difference = found.astype(np.float64).reshape(exact.shape) - exact
    largest, mean = float(np.abs(exact).max()), math.sqrt(np.square(exact).mean())
    return float(np.abs(difference).max()) / (largest or 1.0), math.sqrt(np.square(difference).mean()) / (mean or 1.0)


def _widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


def _windows(
    x: np.ndarray,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    fill: float,
    dilations: Sequence[int],
) -> np.ndarray:
    """`[N, C, *spatial]` → `[N, C, *results, *kernel]`, a view of the padded array; `pads` has all beginnings first."""
    rank = len(kernel)
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)], constant_values=fill)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(2, 2 + rank)))
    steps = [slice(None)] * 2 + [slice(None, None, s) for s in strides]
    return view[(*steps, *[slice(None, None, d) for d in dilations])]


def _padding(x: np.ndarray, kernel: Sequence[int], attributes: Mapping[str, Any]) -> tuple[Any, Any, list[int]]:
    """Strides, dilations and padding of a window; of `ceil_mode` the padding that the last window needs too."""
    rank = len(kernel)
    strides = attributes.get("strides") or [1] * rank
    dilations = attributes.get("dilations") or [1] * rank
    pads = list(attributes.get("pads") or [0] * 2 * rank)
    automatic = attributes.get("auto_pad") or "NOTSET"
    for axis, (size, k, s, d) in enumerate(zip(x.shape[2:], kernel, strides, dilations, strict=True)):
        reach = (k - 1) * d + 1
        if automatic.startswith("SAME"):
            missing = max(0, (-(-size // s) - 1) * s + reach - size)
            less, more = missing // 2, missing - missing // 2
            pads[axis], pads[rank + axis] = (less, more) if automatic == "SAME_UPPER" else (more, less)
        elif attributes.get("ceil_mode"):
            room = size + pads[axis] + pads[rank + axis] - reach
            count = -(-room // s)
            count -= count * s >= size + pads[axis]  # a window must begin inside
            pads[rank + axis] += max(0, count * s - room)
    return strides, dilations, pads


class Conv(OpRun):  # type: ignore[misc]
    """One matrix product for each tap of the filter."""

    def _run(
        self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, **attributes: Any
    ) -> tuple[np.ndarray]:
        group, kernel = attributes.get("group") or 1, w.shape[2:]
        strides, dilations, pads = _padding(x, kernel, attributes)
        windows = _windows(x, kernel, strides, pads, 0.0, dilations)
        batch, channels, *sizes = windows.shape[: 2 + len(kernel)]
        filters = w.reshape(group, w.shape[0] // group, channels // group, *kernel)
        result = np.zeros((batch, group, filters.shape[1], math.prod(sizes)))
        for tap in np.ndindex(*kernel):
            at = windows[(..., *tap)].reshape(batch, group, channels // group, -1)
            factor = filters[(..., *tap)]
            result += factor * at if channels == group == w.shape[0] else np.matmul(factor, at)
        result = result.reshape(batch, w.shape[0], *sizes)
        return (result if bias is None else result + bias.reshape(-1, *[1] * len(kernel)),)


class ConvTranspose(OpRun):  # type: ignore[misc]
    """Each tap of the filter adds to the positions that it reaches."""

    def _run(
        self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, **attributes: Any
    ) -> tuple[np.ndarray]:
        kernel, group = w.shape[2:], attributes.get("group") or 1
        strides, dilations, pads = _padding(x, kernel, {**attributes, "auto_pad": "NOTSET"})
        more = attributes.get("output_padding") or [0] * len(kernel)
        if (attributes.get("auto_pad") or "NOTSET") != "NOTSET" or attributes.get("output_shape") or group != 1:
            raise NotImplementedError("transposed convolutions in groups, or with sizes that are given")
        spans = [
            (e - 1) * s + (k - 1) * d + 1 + extra
            for e, k, s, d, extra in zip(x.shape[2:], kernel, strides, dilations, more, strict=True)
        ]
        result = np.zeros((x.shape[0], w.shape[1], *spans))
        for tap in np.ndindex(*kernel):
            part = np.tensordot(x, w[(..., *tap)], (1, 0))  # [N, *spatial, O]
            positions = zip(tap, dilations, strides, x.shape[2:], strict=True)
            at = tuple(slice(t * d, t * d + (e - 1) * s + 1, s) for t, d, s, e in positions)
            result[(slice(None), slice(None), *at)] += np.moveaxis(part, -1, 1)
        rank = len(kernel)
        cut = [slice(b, span - e) for b, e, span in zip(pads[:rank], pads[rank:], spans, strict=True)]
        result = result[(slice(None), slice(None), *cut)]
        return (result if bias is None else result + bias.reshape(-1, *[1] * rank),)


class MaxPool(OpRun):  # type: ignore[misc]
    """The largest value of each window."""

    def _run(self, x: np.ndarray, **attributes: Any) -> tuple[np.ndarray]:
        kernel = attributes["kernel_shape"]
        strides, dilations, pads = _padding(x, kernel, attributes)
        windows = _windows(x, kernel, strides, pads, -np.inf, dilations)
        return (windows.max(axis=tuple(range(-len(kernel), 0))),)


class AveragePool(OpRun):  # type: ignore[misc]
    """The mean of each window, of what is inside unless padding counts."""

    def _run(self, x: np.ndarray, **attributes: Any) -> tuple[np.ndarray]:
        kernel = attributes["kernel_shape"]
        strides, dilations, pads = _padding(x, kernel, attributes)
        axes = tuple(range(-len(kernel), 0))
        sums = _windows(x, kernel, strides, pads, 0.0, dilations).sum(axis=axes)
        divisors = np.ones((1, 1, *x.shape[2:]))
        if attributes.get("count_include_pad"):
            given = attributes.get("pads") or [0] * 2 * len(kernel)
            rank = len(kernel)
            widths = [(0, 0), (0, 0), *zip(given[:rank], given[rank:], strict=True)]
            divisors = np.pad(divisors, widths, constant_values=1.0)
            pads = [all_of - own for all_of, own in zip(pads, given, strict=True)]
        return (sums / _windows(divisors, kernel, strides, pads, 0.0, dilations).sum(axis=axes),)


class LRN(OpRun):  # type: ignore[misc]
    """Division by a power of the mean square of neighbouring channels."""

    def _run(self, x: np.ndarray, **attributes: Any) -> tuple[np.ndarray]:
        size, alpha, beta, bias = (attributes[name] for name in ("size", "alpha", "beta", "bias"))
        before = (size - 1) // 2
        squares = np.pad(np.square(x), [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)])
        sums = sum(squares[:, start : start + x.shape[1]] for start in range(size))
        return (x / (bias + alpha / size * sums) ** beta,)


class BatchNormalization(OpRun):  # type: ignore[misc]
    """With the trained mean and variance; ONNX's own takes those of the batch for operator sets before 14."""

    def _run(self, x: np.ndarray, *trained: np.ndarray, **attributes: Any) -> tuple[np.ndarray]:
        scale, bias, mean, variance = (values.reshape(-1, *[1] * (x.ndim - 2)) for values in trained)
        epsilon = attributes.get("epsilon")
        return ((x - mean) / np.sqrt(variance + (1e-5 if epsilon is None else epsilon)) * scale + bias,)


class Softmax(OpRun):  # type: ignore[misc]
    """Before operator set 13 over all axes from the given one on, which ONNX's own does not know."""

    def _run(self, x: np.ndarray, **_attributes: Any) -> tuple[np.ndarray]:
        old = self.run_params["opsets"][""] < 13
        given = [attribute.i for attribute in self.onnx_node.attribute if attribute.name == "axis"]
        axis = given[0] if given else (1 if old else -1)  # what is passed has the default of the newest set
        axes = tuple(range(axis % x.ndim, x.ndim)) if old else (axis,)
        powers = np.exp(x - x.max(axis=axes, keepdims=True))
        return (powers / powers.sum(axis=axes, keepdims=True),)


_FAST = [AveragePool, BatchNormalization, Conv, ConvTranspose, LRN, MaxPool, Softmax]
