"""Cross-layer equalization (Nagel et al., 2019): channels between two layers get ranges that one scale suits.

    y = relu(conv(x, W) + b)        y' = relu(conv(x, W / s) + b / s)
    z = conv(y, V)             →    z  = conv(y', V · s)

The results are the same, since the layers are linear and the activation between them commutes with positive factors.
Where weights have one scale per output channel, only the observed range of the tensor between the layers matters; else
both layers' weights matter, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

from nnefc.passes.graph.rewriter import Rewriter, constant, is_call
from nnefc.quantizer.layers import Layer, LayerGraph
from nnefc.quantizer.ranges import ValueRange

__all__ = ["Values", "equalized", "has_pairs", "with_values"]

Array = np.ndarray[Any, Any]

_SWEEPS = 8
_MAX = 64.0
"""What a channel is scaled by at most, and its inverse at least."""

_HOMOGENEOUS = ("nn.relu", "nn.leakyrelu", "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d")
"""Operators that multiply with positive factors, for each channel."""


@dataclass
class Values:
    """Trained values in place of a network's, by the variables of the layers and of the sums with a bias.

    Attributes:
        scales: what the channels of a tensor that a layer reads are divided by, by that tensor.
    """

    weights: dict[relax.Var, Array] = field(default_factory=dict)
    biases: dict[relax.Var, Array] = field(default_factory=dict)
    scales: dict[relax.Var, Array] = field(default_factory=dict)


def has_pairs(graph: LayerGraph) -> bool:
    """Returns whether there is anything to equalize."""
    return next(_pairs(graph), None) is not None


def equalized(
    graph: LayerGraph, ranges: Mapping[relax.Var, ValueRange], per_channel: bool, kept: Collection[relax.Var] = ()
) -> Values:
    """New values of the layers that follow each other.

    Args:
        kept: layers that keep their values.
        ranges: what was seen of the tensors that layers read, by channel.
        per_channel: whether weights will have a scale for each output channel.
    """
    pairs = [
        (one, two)
        for one, two in _pairs(graph)
        if two.data in ranges and ranges[two.data].is_finite and not {one.var, two.var} & set(kept)
    ]
    weights = {layer.var: layer.weights.astype(np.float64) for pair in pairs for layer in pair}
    biases = {layer.var: layer.bias.astype(np.float64) for pair in pairs for layer in pair if layer.bias is not None}
    seen = {two.data: np.maximum(-ranges[two.data].low, ranges[two.data].high) for _, two in pairs}
    found = Values(scales={two.data: np.ones_like(seen[two.data]) for _, two in pairs})
    for _ in range(1 if per_channel else _SWEEPS):
        for one, two in pairs:
            before = seen[two.data] if per_channel else _of_outputs(one, weights[one.var])
            scale = _scale(before, _of_inputs(two, weights[two.var]), per_channel and _is_depthwise(two))
            weights[one.var] = weights[one.var] / one.along_weights(scale)
            if one.var in biases:
                biases[one.var] = biases[one.var] / one.along_result(scale)
            weights[two.var] = weights[two.var] * _along_inputs(two, scale)
            seen[two.data] = seen[two.data] / scale
            found.scales[two.data] = found.scales[two.data] * scale
    for layer in dict.fromkeys(layer for pair in pairs for layer in pair):
        found.weights[layer.var] = weights[layer.var].astype(np.float32)
        if layer.bias_var is not None:
            found.biases[layer.bias_var] = biases[layer.var].astype(np.float32)
    return found


def with_values(module: tvm.IRModule, values: Values) -> tvm.IRModule:
    """The network with other trained values."""
    return relax.transform.DeadCodeElimination()(_Replacing(module, values).transform())


class _Replacing(Rewriter):
    def __init__(self, mod: tvm.IRModule, values: Values) -> None:
        super().__init__(mod)
        self._values = values

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        weights, bias = self._values.weights.get(var), self._values.biases.get(var)
        if weights is not None:
            return relax.Call(call.op, [call.args[0], constant(weights)], call.attrs, call.ty_args, call.span)
        if bias is not None:
            data = call.args[1] if not isinstance(call.args[0], relax.Var) else call.args[0]
            return relax.op.add(data, constant(bias))
        return call


def _pairs(graph: LayerGraph) -> Iterator[tuple[Layer, Layer]]:
    """Layers that alone read each other's results, in order."""
    readers = {layer.data: layer for layer in graph.layers if graph.sole_user(layer.data) is not None}
    for layer in graph.layers:
        var: relax.Var | None = layer.var if layer.bias_var is None else layer.bias_var
        while var is not None and var not in readers:
            user = graph.sole_user(var)
            var = user if user is not None and is_call(graph.definitions[user], *_HOMOGENEOUS) else None
        if var in readers and readers[var] is not layer and _connected(layer, readers[var]):
            yield layer, readers[var]


def _connected(one: Layer, two: Layer) -> bool:
    """Returns whether the channels of one layer's result are those that the other one reads."""
    if one.is_product != two.is_product:
        return False
    return two.inputs == one.channels


def _is_depthwise(layer: Layer) -> bool:
    return layer.groups > 1 and layer.weights.shape[1] == 1


def _of_outputs(layer: Layer, weights: Array) -> Array:
    """The largest weight of each output channel."""
    largest: Array = np.abs(weights).max(tuple(axis for axis in range(weights.ndim) if axis != layer.axis))
    return largest


def _of_inputs(layer: Layer, weights: Array) -> Array:
    """The largest weight of each input channel."""
    if layer.by_inputs:
        return np.asarray(np.abs(weights).max(tuple(range(1, weights.ndim))))
    groups = weights.reshape(layer.groups, -1, *weights.shape[1:])
    return np.asarray(np.abs(groups).max((1, *range(3, groups.ndim)))).reshape(-1)


def _along_inputs(layer: Layer, scale: Array) -> Array:
    """One factor for each input channel, in a shape that broadcasts to the weights."""
    if layer.by_inputs:
        return scale.reshape(-1, *[1] * (layer.weights.ndim - 1))
    by_group = scale.reshape(layer.groups, 1, layer.weights.shape[1])
    outputs = layer.weights.shape[0] // layer.groups
    spread = np.broadcast_to(by_group, (layer.groups, outputs, layer.weights.shape[1]))
    return spread.reshape(layer.weights.shape[:2] + (1,) * (layer.weights.ndim - 2))


def _scale(before: Array, after: Array, wholly: bool) -> Array:
    """What the channels between are divided by; `wholly`: the weights behind them have scales of their own."""
    usual = (before > 0) & (after > 0)
    ratio = before if wholly else np.sqrt(before / np.where(usual, after, 1))
    middle = np.exp(np.log(ratio[usual]).mean()) if usual.any() else 1.0
    return np.where(usual, np.clip(ratio / middle, 1 / _MAX, _MAX), 1.0)
