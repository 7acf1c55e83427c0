"""Quantizes the layers of a network to 8-bit integers, with ranges calibrated on a user's data.

Activations are uint8 with one scale a tensor, weights int8 with one a tensor or a channel, biases whole steps of both.

1. What only scales and shifts is folded into weights. The ranges of what layers read are taken from runs.
2. Channels between layers are equalized, which divides their ranges; scales follow from these.
3. Each layer is computed in floats and in integers on the same data: the mean difference of each output channel
   corrects the bias, and what is left is the layer's noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np
from tvm import relax

from nnefc.driver.options import MINMAX
from nnefc.frontends.dynamic_shapes import dynamic_shape_context
from nnefc.ir.network import Network, size_by_name
from nnefc.operators.base import dtype_of
from nnefc.passes.graph.fold_affine import fold_affine
from nnefc.passes.graph.fold_constants import fold_constants
from nnefc.passes.graph.rewriter import constant, shape_of
from nnefc.quantizer.calibration import Samples
from nnefc.quantizer.equalization import equalized, has_pairs, with_values
from nnefc.quantizer.layers import Layer, LayerGraph
from nnefc.quantizer.observation import Compile, observed, returned_together
from nnefc.quantizer.plan import LayerPlan, Read, apply_plan, planned
from nnefc.quantizer.ranges import METHODS, Histogram, ValueRange, check_method, grid_of_range
from nnefc.support.diagnostics import CompileError
from nnefc.targets.description.library import TensorDescription

__all__ = [
    "LayerNoise",
    "QuantizationOptions",
    "QuantizationPlan",
    "input_types",
    "plan_quantization",
    "quantized",
    "simplified",
]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class QuantizationOptions:
    """Options of post-training quantization.

    Attributes:
        method: how ranges follow from the data, one of `METHODS`.
        per_channel: whether weights have a scale for each output channel.
        exclude: layers that stay in floats, by name.
        unsayable: layers that the format cannot say in integers, by name.
        keep_wide: `first` and `last`: layers that no other one's result goes into, or whose results go into no other.
        equalize, correct: whether channels are equalized, and biases corrected.

    Raises:
        CompileError: there is no such method.
    """

    method: str = MINMAX
    per_channel: bool = True
    exclude: tuple[str, ...] = ()
    unsayable: tuple[str, ...] = ()
    keep_wide: tuple[str, ...] = ()
    equalize: bool = True
    correct: bool = True

    def __post_init__(self) -> None:
        check_method(self.method)


@dataclass(frozen=True)
class LayerNoise:
    """Noise that the quantization of a single layer causes.

    Attributes:
        name: of the layer.
        shape: of its weights.
        decibels: of the signal to the noise of its result; None if it stays in floats.
        reason: why it does.
    """

    name: str
    shape: tuple[int, ...]
    decibels: float | None
    reason: str = ""


@dataclass(frozen=True, eq=False)
class QuantizationPlan:
    """Quantization of a network at any sizes, and the noise of its layers."""

    layers: tuple[LayerPlan, ...]
    noise: tuple[LayerNoise, ...]


def input_types(network: Network) -> list[TensorDescription]:
    """Names, types and shapes of a network's inputs."""
    params = network.module["main"].params
    return [
        TensorDescription(
            name, dtype_of(param), tuple(size_by_name(size, network.dynamic_dimensions) for size in shape_of(param))
        )
        for name, param in zip(network.inputs, params, strict=False)
    ]


def simplified(network: Network) -> Network:
    """A network whose layers have taken in what scales and shifts their results."""
    with dynamic_shape_context(network.dynamic_dimensions, network.input_shapes, network.all_data_dependent_sizes):
        module = fold_affine(fold_constants(network.module, keep=("dequantize",), converts=True))
    return replace(network, module=module)


def quantized(network: Network, plan: QuantizationPlan) -> Network:
    """A network in integers, perhaps at other sizes than the one that the plan was made for.

    Raises:
        CompileError: it has other layers.
    """
    simple = simplified(network)
    with dynamic_shape_context(network.dynamic_dimensions, network.input_shapes, network.all_data_dependent_sizes):
        return replace(simple, module=apply_plan(simple.module, plan.layers))


def plan_quantization(
    network: Network, samples: Samples, options: QuantizationOptions, compiled: Compile
) -> QuantizationPlan:
    """Find out how to quantize a network.

    Args:
        samples: what its inputs look like.
        compiled: makes libraries for this machine.

    Raises:
        CompileError: options that do not fit the network, data that do not, nothing that could be quantized.
    """
    with dynamic_shape_context(network.dynamic_dimensions, network.input_shapes, network.all_data_dependent_sizes):
        return _Planner(simplified(network), samples, options, compiled).plan()


class _Planner:
    def __init__(self, network: Network, samples: Samples, options: QuantizationOptions, compiled: Compile) -> None:
        self._network, self._samples = network, samples
        self._options, self._compiled = options, compiled
        self._graph = LayerGraph(network.module)
        self._wide = self._kept_wide()

    def plan(self) -> QuantizationPlan:
        """All steps."""
        ranges = self._ranges()
        if self._options.equalize and has_pairs(self._graph):
            ranges = self._equalized(ranges)
        reads = self._reads({var: seen[0] for var, seen in ranges.items()})
        layers = [
            planned(layer, reads.get(layer.var), layer.bias, self._options.per_channel) for layer in self._graph.layers
        ]
        return self._corrected(layers)

    def _kept_wide(self) -> dict[relax.Var, str]:
        """Layers that a user wants in floats, and why."""
        layers, options = self._graph.layers, self._options
        if not layers:
            raise CompileError(
                "the network has no convolution and no matrix product with trained values: nothing to quantize",
                hint="compile it as it is; --precision bf16 narrows other things too",
            )
        names = [layer.name for layer in layers]
        for name in options.exclude:
            if name not in names:
                near = next(iter(get_close_matches(name, names, 1)), None)
                raise CompileError(
                    f"the network has no layer {name!r} to exclude",
                    hint=f"did you mean {near!r}?" if near else f"its layers are {', '.join(names[:20])}",
                )
        found = {layer.var: "excluded" for layer in layers if layer.name in options.exclude}
        found |= {layer.var: "is no layer of the file" for layer in layers if layer.name in options.unsayable}
        ends = self._graph.at_the_ends(options.keep_wide)
        return found | {layer.var: "kept wide" for layer in layers if layer.var in ends}

    def _layers(self) -> list[Layer]:
        """Returns the layers to quantize."""
        return [layer for layer in self._graph.layers if layer.var not in self._wide]

    def _ranges(self) -> dict[relax.Var, tuple[ValueRange, ValueRange]]:
        """Of what each layer reads, by that: the range of the tensor that is stored for it, and its own, by channel.

        A tensor of another rank is stored for several channels at once: its range is one for all.
        """
        axes = {layer.data: 1 if not layer.is_product else len(shape_of(layer.data)) - 1 for layer in self._layers()}
        stored = {var: self._graph.stored(var) for var in axes}

        def channels(var: relax.Var) -> int | None:
            return axes[var] if len(shape_of(var)) == len(shape_of(stored[var])) else None

        asked = list(dict.fromkeys([*axes.items(), *((stored[var], channels(var)) for var in axes)]))

        def made(_: relax.BlockBuilder) -> list[relax.Expr]:
            ends = []
            for var, axis in asked:
                others = None if axis is None else [other for other in range(len(shape_of(var))) if other != axis]
                ends += [relax.op.min(var, others), relax.op.max(var, others)]
            return ends

        found: dict[tuple[relax.Var, int | None], ValueRange] = {}
        for values in observed(self._network, made, self._compiled, self._samples):
            for number, tensor in enumerate(asked):
                low, high = values[2 * number : 2 * number + 2]
                if tensor in found:
                    found[tensor].join(low, high)
                else:
                    found[tensor] = ValueRange(low, high)
        return {var: (found[stored[var], channels(var)], found[var, axis]) for var, axis in axes.items()}

    def _equalized(
        self, ranges: Mapping[relax.Var, tuple[ValueRange, ValueRange]]
    ) -> dict[relax.Var, tuple[ValueRange, ValueRange]]:
        """The network with other trained values, and the ranges that these make."""
        wide = {layer.name: self._wide[layer.var] for layer in self._graph.layers if layer.var in self._wide}
        own = {var: seen[1] for var, seen in ranges.items()}
        values = equalized(self._graph, own, self._options.per_channel, self._wide)
        before = self._layers()
        self._network = replace(self._network, module=with_values(self._network.module, values))
        self._graph = LayerGraph(self._network.module)
        self._wide = {layer.var: wide[layer.name] for layer in self._graph.layers if layer.name in wide}
        made = {}
        for old, new in zip(before, self._layers(), strict=True):
            scale = values.scales.get(old.data)
            stored, seen = ranges[old.data]
            made[new.data] = (stored, seen) if scale is None else (stored.divided(scale), seen.divided(scale))
        return made

    def _reads(self, ranges: Mapping[relax.Var, ValueRange]) -> dict[relax.Var, Read]:
        """How each layer's operand is quantized, by the layer's variable."""
        stored = {layer.var: self._graph.stored(layer.data) for layer in self._layers()}
        whole: dict[relax.Var, tuple[float, float]] = {}
        for layer in self._layers():
            if ranges[layer.data].is_finite:
                whole.setdefault(stored[layer.var], ranges[layer.data].whole)
            else:
                self._wide[layer.var] = "reads values that are not finite"
        if self._options.method != MINMAX:
            whole = dict(self._restricted(whole))
        whole = _joined(whole, {var: self._graph.parts_within(var, whole) for var in self._graph.parts})
        return {var: Read(*grid_of_range(*whole[tensor])) for var, tensor in stored.items() if tensor in whole}

    def _restricted(
        self, whole: Mapping[relax.Var, tuple[float, float]]
    ) -> Iterator[tuple[relax.Var, tuple[float, float]]]:
        """Ranges by the distributions of the values, of as many tensors at a time as memory holds."""
        for group in returned_together(list(whole)):
            histograms = [Histogram(*whole[var]) for var in group]

            def made(_: relax.BlockBuilder, group: Sequence[relax.Var] = group) -> list[relax.Expr]:
                return [relax.op.multiply(var, constant(np.ones((), np.float32))) for var in group]

            for values in observed(self._network, made, self._compiled, self._samples):
                for histogram, value in zip(histograms, values, strict=True):
                    histogram.add(value)
            for var, histogram in zip(group, histograms, strict=True):
                yield var, METHODS[self._options.method](histogram)

    def _corrected(self, layers: Sequence[LayerPlan]) -> QuantizationPlan:
        """Biases without the mean error of their channels, and the noise that is left."""
        tried = [(layer, plan) for layer, plan in zip(self._graph.layers, layers, strict=True) if plan.read is not None]
        sums = _differences(self._network, tried, self._compiled, self._samples)
        noise: dict[relax.Var, float] = {}
        corrected: dict[relax.Var, LayerPlan] = {}
        for (layer, plan), (means, errors, signals) in zip(tried, sums, strict=True):
            mean, error = np.mean(means, 0), float(np.mean(errors))
            if self._options.correct and np.isfinite(mean).all():
                error -= float(np.mean(mean**2))
                bias = layer.along_result(mean) + (0 if layer.bias is None else layer.bias)
                corrected[layer.var] = planned(layer, plan.read, bias.astype(np.float32), self._options.per_channel)
            signal = float(np.mean(signals))
            noise[layer.var] = 10 * math.log10(max(signal, 1e-30) / max(error, 1e-30))
        return QuantizationPlan(
            tuple(corrected.get(layer.var, plan) for layer, plan in zip(self._graph.layers, layers, strict=True)),
            tuple(
                LayerNoise(layer.name, layer.weights.shape, noise.get(layer.var), self._wide.get(layer.var, ""))
                for layer in self._graph.layers
            ),
        )


def _joined(
    whole: Mapping[relax.Var, tuple[float, float]], parts: Mapping[relax.Var, Sequence[relax.Var]]
) -> dict[relax.Var, tuple[float, float]]:
    """Ranges that are the same for a concatenation and the parts of it that others read too."""
    group: dict[relax.Var, relax.Var] = {}

    def first(var: relax.Var) -> relax.Var:
        while var in group:
            var = group[var]
        return var

    for var, others in parts.items():
        for other in others:
            one, two = first(var), first(other)
            if one is not two:
                group[two] = one
    found: dict[relax.Var, tuple[float, float]] = {}
    for var, (low, high) in whole.items():
        minimum, maximum = found.get(first(var), (low, high))
        found[first(var)] = min(low, minimum), max(high, maximum)
    return {var: found[first(var)] for var in whole}


def _differences(
    network: Network, tried: Sequence[tuple[Layer, LayerPlan]], compiled: Compile, samples: Samples
) -> list[tuple[list[Array], list[Array], list[Array]]]:
    """Computes for each layer the mean difference between floats and integers by output channel, and the mean squares
    of difference and result.
    """

    def made(builder: relax.BlockBuilder) -> list[relax.Expr]:
        asked: list[relax.Expr] = []
        for layer, plan in tried:
            asked += _probes(builder, graph.definitions[layer.var], layer, plan)
        return asked

    graph = LayerGraph(network.module)
    sums: list[tuple[list[Array], list[Array], list[Array]]] = [([], [], []) for _ in tried]
    if tried:
        for values in observed(network, made, compiled, samples):
            for number, parts in enumerate(sums):
                for part, value in zip(parts, values[3 * number : 3 * number + 3], strict=True):
                    part.append(value.astype(np.float64))
    return sums


def _probes(builder: relax.BlockBuilder, call: relax.Call, layer: Layer, plan: LayerPlan) -> list[relax.Expr]:
    """Returns a layer's result in floats and in integers, for comparison."""
    assert plan.read is not None and plan.codes is not None and plan.scales is not None
    along = layer.along_weights(plan.scales) if plan.scales.ndim else plan.scales
    weights = (plan.codes.astype(np.float64) * along).astype(np.float32)
    data = plan.read.quantized(layer.data, builder)
    narrow = builder.emit(relax.Call(call.op, [data, constant(weights)], call.attrs))
    difference = builder.emit(relax.op.subtract(layer.var, narrow))
    others = [axis for axis in range(len(shape_of(layer.var))) if axis != layer.result_axis]
    return [
        relax.op.mean(difference, others),
        relax.op.mean(relax.op.multiply(difference, difference)),
        relax.op.mean(relax.op.multiply(layer.var, layer.var)),
    ]
