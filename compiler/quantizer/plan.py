"""Quantization plan of a network: for each layer, its integer weights and the quantization parameters of its input.

A plan is of a network's structure, not of its variables: it holds for the same network at other sizes too.

    y = conv2d(x, W)        a = dequantize(quantize(x, s, z), s, z)
    z = y + b           →   y = conv2d(a, dequantize(W', t, 0))
                            z = y + (b in steps of s · t)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from nnefc.ir.dataflow import bindings_of
from nnefc.passes.graph.rewriter import Rewriter, constant, is_call
from nnefc.quantizer.layers import MOVES, Layer, LayerGraph
from nnefc.support.diagnostics import CompileError

__all__ = ["LayerPlan", "Read", "apply_plan", "planned", "tensors_read"]

Array = np.ndarray[Any, Any]

_MAX_STEPS = float(1 << 29)
"""Of a bias, in steps of the products' scale."""


@dataclass(frozen=True)
class Read:
    """Quantization parameters of a tensor in uint8: `round(x / scale) + zero`."""

    scale: np.float32
    zero: int

    def quantized(self, expr: relax.Expr, builder: relax.BlockBuilder) -> relax.Var:
        """The values that the integers of a tensor stand for."""
        scale, zero = constant(np.array(self.scale, np.float32)), constant(np.array(self.zero, np.uint8))
        codes = builder.emit(relax.op.quantize(expr, scale, zero, -1, "uint8"))
        return builder.emit(relax.op.dequantize(codes, scale, zero, -1, "float32"))


@dataclass(frozen=True, eq=False)
class LayerPlan:
    """Quantization plan of one layer.

    Attributes:
        name: as the network calls its result.
        weights: float32.
        bias: float32, in the shape of the network's, or None.
        read: how what it reads is quantized; None: the layer stays in floats.
        codes, scales: int8 weights, and their scales: one, or one for each output channel.
        axis: the output channels' axis of the weights.
    """

    name: str
    weights: Array
    bias: Array | None
    read: Read | None = None
    codes: Array | None = None
    scales: Array | None = None
    axis: int = 0


def planned(layer: Layer, read: Read | None, bias: Array | None, per_channel: bool) -> LayerPlan:
    """A layer quantized, with another bias perhaps, which becomes whole steps of the sums; in floats without `read`.

    Args:
        bias: in a shape that broadcasts to the result.
    """
    if read is None:
        return LayerPlan(layer.name, layer.weights, bias)
    others = tuple(axis for axis in range(layer.weights.ndim) if axis != layer.axis)
    largest = np.abs(layer.weights).max(others if per_channel else None).astype(np.float64).reshape(-1)
    scales = np.where(largest > 0, largest, 127) / 127
    if bias is not None:  # a bias of very many steps needs larger ones
        maximum = np.abs(bias.astype(np.float64)).reshape(-1) if per_channel else np.abs(bias).max(initial=0)
        scales = np.maximum(scales, maximum / (float(read.scale) * _MAX_STEPS))
    scales = np.maximum(scales, np.finfo(np.float32).tiny).astype(np.float32)
    along = layer.along_weights(scales) if per_channel else scales.reshape(())
    codes = np.clip(np.rint(layer.weights / along), -127, 127).astype(np.int8)
    if bias is not None:
        step = layer.along_result(scales) * np.float64(read.scale) if per_channel else scales * np.float64(read.scale)
        bias = (np.rint(bias / step) * step).astype(np.float32)
    scales = scales if per_channel else scales.reshape(())
    return LayerPlan(layer.name, layer.weights, bias, read, codes, scales, layer.axis)


def apply_plan(module: tvm.IRModule, plan: Sequence[LayerPlan]) -> tvm.IRModule:
    """The network quantized.

    Raises:
        CompileError: it has other layers than the plan.
    """
    graph = LayerGraph(module)
    if [layer.weights.shape for layer in graph.layers] != [each.weights.shape for each in plan]:
        raise CompileError(
            "the network has other layers at these sizes than at those that it was quantized for",
            hint="leave --specialize out, or compile a library of its own for these sizes",
        )
    rewriter = _Quantizing(module, graph, {layer.var: each for layer, each in zip(graph.layers, plan, strict=True)})
    return relax.transform.DeadCodeElimination()(rewriter.transform())


def tensors_read(graph: LayerGraph, plan: Sequence[LayerPlan]) -> tuple[dict[relax.Var, Read], set[relax.Var]]:
    """Returns the quantization parameters of tensors, and which of them convolutions read."""
    read: dict[relax.Var, Read] = {}
    features: set[relax.Var] = set()
    for layer, each in zip(graph.layers, plan, strict=True):
        if each.read is not None:
            stored = graph.stored(layer.data, read)
            read.setdefault(stored, each.read)
            if not layer.is_product:
                features.add(stored)
    for stored in graph.parts:
        if stored in features:
            for part in graph.parts_within(stored, read):
                read.setdefault(part, read[stored])
                features.add(part)
    return read, features


class _Quantizing(Rewriter):
    """Rebuilds a function.

    Attributes:
        read: how tensors are quantized, by the old function's variables.

    What a convolution reads is stored as integers: all read it so, but for the function's results and layers in floats.
    What only matrix products read, such as the states of a transformer, others read as it is.
    """

    def __init__(self, mod: tvm.IRModule, graph: LayerGraph, plan: Mapping[relax.Var, LayerPlan]) -> None:
        super().__init__(mod)
        self._plan = plan
        self._with_bias = {layer.var for layer in graph.layers if layer.bias_var is not None}
        self._biases = {layer.bias_var: bias for layer in graph.layers if (bias := plan[layer.var].bias) is not None}
        self.read, self._features = tensors_read(graph, [plan[layer.var] for layer in graph.layers])
        self._old = {binding.var: binding.value for binding in bindings_of(self.old)}
        self._made: dict[relax.Var, relax.Var] = {}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if not isinstance(call.op, tvm.ir.Op) or is_call(call, "call_tir", "call_dps_packed"):
            return call  # kernels and bodies take what they were made for
        plan = self._plan.get(var)
        wanted = self._wanted(call, plan)
        old = self._old[var]
        args = [self._read(was, arg, wanted) for was, arg in zip(old.args, call.args, strict=True)]
        if plan is not None:
            return self._layer(call, args[0], plan, var)
        bias = self._biases.get(var)
        if bias is not None:
            return relax.op.add(args[0] if isinstance(call.args[0], relax.Var) else args[1], constant(bias))
        if all(new is was for new, was in zip(args, call.args, strict=True)):
            return call
        return relax.Call(call.op, args, call.attrs, call.ty_args, call.span)

    def _wanted(self, call: relax.Call, plan: LayerPlan | None) -> Collection[relax.Var]:
        """The tensors that a call reads as integers, if it does."""
        if plan is not None:
            return self.read if plan.read is not None else ()
        return self.read if is_call(call, *MOVES) else self._features

    def _layer(self, call: relax.Call, data: relax.Expr, plan: LayerPlan, var: relax.Var) -> relax.Expr:
        if plan.codes is None or plan.scales is None:
            weights: relax.Expr = constant(plan.weights)
        else:
            axis = plan.axis if plan.scales.ndim else -1
            zeros = constant(np.zeros(plan.scales.shape, np.int8))
            weights = self.builder.emit(
                relax.op.dequantize(constant(plan.codes), constant(plan.scales), zeros, axis, "float32"),
                f"{plan.name}_weights",
            )
        made = relax.Call(call.op, [data, weights], call.attrs, call.ty_args, call.span)
        if plan.bias is None or var in self._with_bias:
            return made
        return relax.op.add(self.builder.emit(made, var.name), constant(plan.bias))

    def _read(self, was: relax.Expr, arg: relax.Expr, wanted: Collection[relax.Var]) -> relax.Expr:
        """An operand as it is read: what integers stand for, if the tensor is quantized and wanted so."""
        if isinstance(was, relax.Tuple):
            fields = [self._read(one, other, wanted) for one, other in zip(was.fields, arg.fields, strict=True)]
            same = all(new is one for new, one in zip(fields, arg.fields, strict=True))
            return arg if same else relax.Tuple(fields)
        if not isinstance(was, relax.Var) or was not in wanted or not isinstance(arg, relax.Var):
            return arg
        if arg not in self._made:
            self._made[arg] = self.read[was].quantized(arg, self.builder)
        return self._made[arg]
