"""Implements `nnefc quantize`: writes a network of any format as an 8-bit quantized NNEF or ONNX model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from nnefc.driver.compile import compile_network
from nnefc.driver.formats import load_network, load_operator_files
from nnefc.driver.model_format import format_of
from nnefc.driver.option_keywords import ReadKeywords, read_options, with_documented_options
from nnefc.driver.options import INT8, MINMAX, Calibration, PrecisionOptions
from nnefc.frontends.nnef.writing import check_output, write_model, written
from nnefc.frontends.onnx.qdq_model import RoundedLayer, RoundedTensor, layers_without_a_node, rounded_model
from nnefc.ir.network import Network
from nnefc.loader import LoadError, RunError
from nnefc.operators.recording import Recording, recording
from nnefc.quantizer.calibration import Samples, samples_of
from nnefc.quantizer.layers import LayerGraph
from nnefc.quantizer.observation import results
from nnefc.quantizer.plan import tensors_read
from nnefc.quantizer.quantize import (
    LayerNoise,
    QuantizationOptions,
    QuantizationPlan,
    input_types,
    plan_quantization,
    quantized,
    simplified,
)
from nnefc.support.diagnostics import CompileError
from nnefc.support.internal_errors import reports_internal_errors
from nnefc.support.output_files import written_whole
from nnefc.targets.machine.any_target import parse_any_target

__all__ = ["QuantizationReport", "quantize"]


@dataclass(frozen=True)
class QuantizationReport:
    """The loss of accuracy of a quantized network.

    Attributes:
        layers: the signal-to-noise ratio of each layer's result, if only this layer is quantized.
        outputs: of the whole quantized network on the same data, by output: the root of the mean square error, relative
            to that of the output.
    """

    layers: tuple[LayerNoise, ...]
    outputs: Mapping[str, float]

    def __str__(self) -> str:
        width = max([5, *(len(layer.name) for layer in self.layers)])
        lines = [f"{'layer':{width}}  signal to noise  weights"]
        for layer in self.layers:
            noise = layer.reason if layer.decibels is None else f"{layer.decibels:.1f} dB"
            lines.append(f"{layer.name:{width}}  {noise:>15}  {'x'.join(map(str, layer.shape))}")
        lines += [f"output {name!r}: {100 * error:.2f} % of its size is noise" for name, error in self.outputs.items()]
        return "\n".join(lines)


@with_documented_options(ReadKeywords)
@reports_internal_errors(LoadError, RunError)
def quantize(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    calibrate: Calibration,
    method: str = MINMAX,
    per_channel: bool = True,
    exclude: Sequence[str] = (),
    keep_wide: Sequence[str] = (),
    **options: Unpack[ReadKeywords],
) -> QuantizationReport:
    """Writes a network with 8-bit integer convolutions and matrix products, where these have trained weights.

    Args:
        model: NNEF, ONNX, TFLite or PNNX.
        output: `.onnx`: a model with `QuantizeLinear` and `DequantizeLinear`; else a model of NNEF, a folder or an
            archive, with a `graph.quant`.
        calibrate: typical values of the inputs by name, or an .npz file of them. Several samples are stacked along an
            additional first dimension, or along the first one.
        method: how ranges follow from the samples: `minmax`, `percentile` or `entropy`.
        per_channel: whether weights have a scale for each output channel, or one for all.
        exclude: names of layers that stay in float32.
        keep_wide: `first` and `last`: the first layers and the last ones stay in float32.
        {options}

    Raises:
        CompileError: the model, an option or the data are invalid; the network has nothing to quantize, or something
            that the format cannot express.
    """
    reading = read_options("nnefc.quantize", options)
    precision = PrecisionOptions(precision=INT8, calibrate=calibrate, method=method, keep_wide=keep_wide)
    path = Path(output)
    _check(Path(model), path, precision.keep_wide)
    how = QuantizationOptions(method, per_channel, tuple(exclude), keep_wide=tuple(precision.keep_wide))
    load_operator_files(reading.operators)
    with recording() as found:
        network = load_network(Path(model), reading)
    samples = samples_of(calibrate, input_types(network))
    unsayable = _unsayable(Path(model), network, found) if _is_onnx(path) else ()
    plan = plan_quantization(network, samples, replace(how, unsayable=unsayable), _compiled)
    narrow = quantized(network, plan)
    if _is_onnx(path):
        _write_onnx(Path(model), network, found, plan, path)
    else:
        write_model(written(narrow, found), path)
    return QuantizationReport(plan.noise, _errors(network, narrow, samples))


def _check(model: Path, output: Path, keep_wide: Sequence[str]) -> None:
    wrong = [end for end in keep_wide if end not in ("first", "last")]
    if wrong:
        raise CompileError(f"there are no layers {wrong[0]!r} to keep wide", hint="say first, last, or both")
    if not _is_onnx(output):
        check_output(output)
    elif not output.parent.is_dir():
        raise CompileError(f"cannot write {output}: there is no folder {output.parent}", hint="make it first")
    elif format_of(model).name != "ONNX":
        raise CompileError(
            f"{model} is not a model of ONNX, and only those are written as .onnx", hint="write NNEF: -o model.nnef"
        )


def _is_onnx(output: Path) -> bool:
    return output.suffix.lower() == ".onnx"


def _names(network: Network, found: Recording) -> dict[str, str]:
    """Return the model's names of tensors, by the network's variables."""
    params = network.module["main"].params
    names = {str(param.name): name for param, name in zip(params, network.inputs, strict=False)}
    for var, name in found.names.items():
        names.setdefault(str(var.name), name)
    return names


def _unsayable(model: Path, network: Network, found: Recording) -> tuple[str, ...]:
    """Return the layers that are not nodes of the model's file, such as those into which a factor of an activation
    was folded.
    """
    names = _names(network, found)
    layers = {names.get(layer.name, layer.name): layer for layer in LayerGraph(simplified(network).module).layers}
    transposed = {name: layer.transposed for name, layer in layers.items()}
    return tuple(layers[name].name for name in layers_without_a_node(model, transposed))


def _write_onnx(model: Path, network: Network, found: Recording, plan: QuantizationPlan, output: Path) -> None:
    """Write the model's file with `QuantizeLinear` and `DequantizeLinear` at the quantized layers.

    Raises:
        CompileError: a quantized layer is not a node of the file.
    """
    graph = LayerGraph(simplified(network).module)
    names = _names(network, found)
    read, features = tensors_read(graph, plan.layers)
    tensors = [
        RoundedTensor(names.get(str(var.name), str(var.name)), each.scale, each.zero, var in features)
        for var, each in read.items()
    ]
    layers = [
        RoundedLayer(
            names.get(layer.name, layer.name),
            each.weights,
            None if each.bias is None else each.bias.reshape(-1),
            each.codes,
            each.scales,
            None if each.read is None else each.read.scale,
            layer.axis,
            layer.transposed,
        )
        for layer, each in zip(graph.layers, plan.layers, strict=True)
        if each.codes is not None or not np.array_equal(each.weights, layer.weights)
    ]
    made = rounded_model(model, tensors, layers)
    with written_whole(output) as file:
        file.write_bytes(made.SerializeToString())


def _compiled(network: Network) -> Any:
    return compile_network(network, parse_any_target("llvm"))


def _errors(network: Network, narrow: Network, samples: Samples) -> dict[str, float]:
    """Return the relative root mean square error of each float output over all samples."""
    sums = {name: [0.0, 0.0] for name in network.outputs}
    pairs = zip(results(_compiled(narrow), samples), results(_compiled(network), samples), strict=True)
    for found, wanted in pairs:
        for name, own, exact in zip(network.outputs, found, wanted, strict=True):
            if exact.dtype.kind == "f" and own.shape == exact.shape:
                usual = np.isfinite(exact)
                wide = exact[usual].astype(np.float64)
                sums[name][0] += float(((own[usual] - wide) ** 2).sum())
                sums[name][1] += float((wide**2).sum())
    return {name: float(np.sqrt(error / size)) for name, (error, size) in sums.items() if size}
