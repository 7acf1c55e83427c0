"""Compares a network with a reference tensor by tensor: see :func:`compare`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, Unpack

import numpy as np
from numpy.typing import ArrayLike

from nnefc.backends import backend_of
from nnefc.comparison.engines import Built, Engine, Onnxruntime, Unfused, ran
from nnefc.comparison.kernel_stages import KernelStage, kernel_stages
from nnefc.comparison.passes import check_unfused, first_wrong_pass
from nnefc.comparison.reference import cannot_be_unfused
from nnefc.driver.artifact import Artifact
from nnefc.driver.compile import compile_network, machine_of, quantization_of
from nnefc.driver.formats import load_network, load_operator_files
from nnefc.driver.model_format import format_of
from nnefc.driver.model_source import ModelSource, ModelTensor
from nnefc.driver.option_keywords import CompareKeywords, compile_options, with_documented_options
from nnefc.driver.options import AUTO, INT8, CodeOptions, ReadOptions
from nnefc.frontends.dynamic_shapes import check_ranges
from nnefc.ir.error_metrics import Difference, difference
from nnefc.ir.network import Network
from nnefc.ir.sample_inputs import chosen_ports, random_inputs
from nnefc.loader import Model, load
from nnefc.quantizer.observation import returned_together
from nnefc.quantizer.quantize import quantized
from nnefc.support.diagnostics import CompileError
from nnefc.targets.description.library import LibraryDescription, TensorDescription
from nnefc.targets.description.library_file import read_metadata
from nnefc.targets.machine.any_target import parse_any_target

__all__ = ["ENGINES", "ComparedTensor", "Comparison", "compare"]

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Inputs: TypeAlias = "Mapping[str, ArrayLike] | Callable[[Sequence[TensorDescription]], Mapping[str, ArrayLike]]"

ENGINES = ("onnxruntime", "plain", "strict", "fp32", "tf32", "bf16", "fp16")
"""The references."""

_BOUNDS = {"tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2, INT8: 1e-1}
_BOUND = 1e-3
"""The default bound of errors, relative to the largest value of a tensor: rounding in networks of usual depth stays
below it.
"""


@dataclass(frozen=True)
class ComparedTensor:
    """A tensor of a model, and its difference from the reference.

    Attributes:
        name: in the model.
        location: where the model computes it; empty for outputs.
        dtype, shape: of the reference.
        difference: from the reference.
    """

    name: str
    location: str
    dtype: str
    shape: tuple[int, ...]
    difference: Difference


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        reference: what the results were compared with, one of `ENGINES`.
        bound: the maximum of `Difference.relative`.
        tensors: in the order in which the network computes them.
        outputs: of the library without further outputs for tensors.
        left_out: tensors of the model that exist within kernels only, or that only one of the two engines computes.
        wrong_pass: the first pass after which the outputs are wrong; None if there is none, or if passes were not
            examined.
        wrong_step: the first lowering stage after which the results of a kernel are wrong, if all passes are right and
            the backend compares kernels.
        asked_passes: whether the passes were examined.
    """

    reference: str
    bound: float
    tensors: tuple[ComparedTensor, ...]
    outputs: tuple[ComparedTensor, ...]
    left_out: int = 0
    wrong_pass: str | None = None
    wrong_step: KernelStage | None = None
    asked_passes: bool = False

    @property
    def is_close(self) -> bool:
        """Whether all outputs and all tensors are within the bound."""
        return self.first is None

    @property
    def first(self) -> ComparedTensor | None:
        """The first tensor that exceeds the bound, or else the first such output."""
        return next((t for t in (*self.tensors, *self.outputs) if not t.difference.relative <= self.bound), None)

    def record(self) -> dict[str, Any]:
        """Return the comparison as a JSON object; infinite numbers are null."""
        first = self.first
        return {
            "reference": self.reference,
            "bound": self.bound,
            "close": self.is_close,
            "first": None if first is None else first.name,
            "wrong_pass": self.wrong_pass,
            "wrong_step": None if self.wrong_step is None else [self.wrong_step.kernel, self.wrong_step.step],
            "left_out": self.left_out,
            "outputs": [_record(tensor) for tensor in self.outputs],
            "tensors": [_record(tensor) for tensor in self.tensors],
        }


def _record(tensor: ComparedTensor) -> dict[str, Any]:
    found = tensor.difference
    relative = found.relative if np.isfinite(found.relative) else None
    named = {"name": tensor.name, "place": tensor.location, "dtype": tensor.dtype, "shape": list(tensor.shape)}
    return {**named, **asdict(found), "relative": relative}


@with_documented_options(CompareKeywords)
def compare(
    model: str | os.PathLike[str],
    target: str = "llvm",
    *,
    library: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    inputs: Inputs | None = None,
    seed: int = 0,
    reference: str | None = None,
    max_error: float | None = None,
    every: bool = False,
    passes: bool = False,
    **options: Unpack[CompareKeywords],
) -> Comparison:
    """Run a network and a reference on the same inputs, and compare all tensors that both compute.

    Args:
        model: NNEF, ONNX, TFLite or PNNX.
        target: a machine whose code this one runs.
        library: a library that was compiled from the model, instead of compiling it with the options below; only its
            outputs are compared.
        key: a PEM file with a public key, by whose private key the library must be signed.
        inputs: arrays by input name, or a function that returns them for the description of the inputs. Missing inputs
            are random.
        seed: of the random inputs.
        reference: `onnxruntime`, the default for ONNX; `plain`, which evaluates each operator by itself, the default
            for other formats; `strict`, a library without algorithms that round differently from a direct sum, where
            `plain` is not possible; or `fp32`, `bf16` and so on, a library in this precision.
        max_error: the bound of a tensor's difference from the reference, relative to its largest value: 1e-3 by
            default, more for precisions other than `fp32`.
        every: whether tensors within kernels are compared as well; kernels are split at them.
        passes: whether to find the first pass that makes outputs wrong, if they are.
        {options}

    Raises:
        CompileError: as `nnefc.compile`; the reference does not support the model; inputs do not fit.
    """
    if reference is not None and reference not in ENGINES:
        raise CompileError(f"there is no reference {reference!r}", hint=f"choose one of {', '.join(ENGINES)}")
    chosen = compile_options("nnefc.compare", options, target, CompareKeywords)
    reading, code, precision = chosen.read, chosen.code, chosen.precision.precision
    if precision == AUTO:
        raise CompileError("precision auto chooses by errors itself", hint="say which precision to compare")
    machine = machine_of(chosen)
    load_operator_files(reading.operators)
    read = partial(load_network, Path(model), reading)
    source = ModelSource.read(read)
    check_ranges(source.network.dynamic_dimensions)
    subject = source
    if precision == INT8:
        plan = quantization_of(source.network, chosen.precision)
        subject = source.of(quantized(source.network, plan))

    def compiled(network: Network) -> Artifact:
        return compile_network(network, machine, code)

    whole = _Whole.of(Path(library), key) if library is not None else _Whole.of_artifact(compiled(subject.network))
    arrays = _inputs(whole.description, inputs, seed)
    fixed = _at_known_sizes_plainly(subject, read, arrays, precision) if passes else None
    name, engine = _reference(Path(model), source, read, arrays, reading, reference)
    tensors: list[ComparedTensor] = []
    left = 0
    if library is None:
        backend = backend_of(machine)
        known = subject.tensors if every else subject.between_kernels(backend, code.strict, code.memory_budget)
        known = tuple(tensor for tensor in known if engine.knows(tensor))
        left = len(source.tensors) - len(known)
        tensors = list(_compared(Built(subject, arrays, compiled), engine, subject, known))
    found, wanted = whole.outputs(arrays), engine.outputs()
    usual = max(_BOUNDS.get(each, _BOUND) for each in (precision or "", name))
    bound = usual if max_error is None else max_error
    outputs = [_tensor(each, "", found[each], wanted[each]) for each in found if each in wanted]
    if not outputs:
        raise CompileError(
            f"the reference has none of the outputs {', '.join(found)}",
            hint=f"it has {', '.join(wanted) or 'none that are tensors'}: was the library compiled of this model?",
        )
    wrong_pass = wrong_step = None
    if fixed is not None and not _is_close(found, wanted, bound):
        backend = backend_of(machine)
        wrong_pass = first_wrong_pass(
            fixed, backend, arrays, lambda own: _is_close(own, wanted, bound), code.strict, code.memory_budget
        )
        if wrong_pass is None and backend.compares_kernels:
            with closing(kernel_stages(fixed, backend, arrays, code.strict, code.memory_budget)) as steps:
                wrong_step = next((step for step in steps if not step.difference.relative <= bound), None)
    return Comparison(name, bound, tuple(tensors), tuple(outputs), left, wrong_pass, wrong_step, passes)


@dataclass(frozen=True)
class _Whole:
    """The network as users run it: its description, and how its library is opened."""

    description: LibraryDescription
    opened: Callable[[], Model]

    @classmethod
    def of(cls, library: Path, key: str | os.PathLike[str] | None) -> _Whole:
        opened = partial(load, library) if key is None else partial(load, library, key=key)
        if key is None:
            metadata = read_metadata(library)
        else:
            with opened() as model:
                metadata = read_metadata(model.file)
        if metadata is None:
            raise CompileError(f"{library} was not compiled by nnefc: it has no description inside")
        return cls(metadata.description, opened)

    @classmethod
    def of_artifact(cls, artifact: Artifact) -> _Whole:
        return cls(artifact.description, artifact.load)

    def outputs(self, arrays: Arrays) -> Arrays:
        with self.opened() as model:
            found = ran(model, arrays, [tensor.dtype for tensor in model.outputs])
            return {tensor.name: array for tensor, array in zip(model.outputs, found, strict=True)}


def _inputs(found: LibraryDescription, given: Inputs | None, seed: int) -> Arrays:
    """Return all inputs: the given ones, and random ones for the others."""
    asked = given(found.inputs) if callable(given) else given or {}
    arrays = {name: np.asarray(value) for name, value in asked.items()}
    names = [port.name for port in found.inputs]
    for name in sorted(arrays.keys() - set(names)):
        raise CompileError(f"the network has no input {name!r}", hint=f"its inputs are {', '.join(names)}")
    formulas = {each.name: each.formula for each in found.formulas}
    declared: Sequence[Any] = found.inputs
    ports = chosen_ports(declared, found.dimensions, {}, arrays, formulas)
    drawn = [port for port in ports if port.name not in arrays]
    arrays |= random_inputs(seed, drawn, dict(found.index_limits))
    return {name: arrays[name] for name in names}


def _reference(
    model: Path,
    source: ModelSource,
    read: Callable[..., Network],
    arrays: Arrays,
    reading: ReadOptions,
    asked: str | None,
) -> tuple[str, Engine]:
    """Return the reference engine and its name.

    Raises:
        CompileError: the reference does not support this model.
    """
    is_onnx = format_of(model).name == "ONNX"
    if asked == "onnxruntime" or (asked is None and is_onnx and reading.entry is None):
        if not is_onnx:
            raise CompileError(f"onnxruntime reads models of ONNX, and {model} is none", hint="--reference plain")
        return "onnxruntime", Onnxruntime(
            model, {**{n: np.asarray(v) for n, v in (reading.values or {}).items()}, **arrays}
        )
    if asked in (None, "plain"):
        fixed = _at_known_sizes(source, read, arrays)
        reason = cannot_be_unfused(fixed.network)
        if reason is None:
            return "plain", Unfused(fixed, arrays)
        if asked is not None:
            raise CompileError(f"the network cannot be computed plainly: {reason}", hint="--reference strict")
    name = asked or "strict"
    machine = parse_any_target("llvm", *(() if name == "strict" else (name, ())))
    code = CodeOptions(strict=True, memory_budget=1.0) if name == "strict" else CodeOptions()
    return name, Built(source, arrays, lambda network: compile_network(network, machine, code))


def _at_known_sizes(source: ModelSource, read: Callable[..., Network], arrays: Arrays) -> ModelSource:
    """Return the network for the sizes of these inputs."""
    if not source.network.dynamic_dimensions:
        return source
    return ModelSource.read(partial(read, fixed={name: array.shape for name, array in arrays.items()}))


def _at_known_sizes_plainly(
    subject: ModelSource, read: Callable[..., Network], arrays: Arrays, precision: str | None
) -> Network:
    """Return the network with known sizes, whose program can be evaluated without schedules after each pass.

    Raises:
        CompileError: it cannot.
    """
    if subject.network.dynamic_dimensions and precision == INT8:
        raise CompileError(
            "passes are distinguished for networks in integers whose sizes are known", hint="give --shape"
        )
    network = _at_known_sizes(subject, read, arrays).network
    check_unfused(network)
    return network


def _compared(
    own: Engine, reference: Engine, source: ModelSource, tensors: Sequence[ModelTensor]
) -> Iterator[ComparedTensor]:
    """Yield the comparison of each tensor, computing as many tensors at a time as fit in memory."""
    waiting = list(tensors)
    for group in returned_together([source.variable(tensor) for tensor in tensors]):
        part, waiting = waiting[: len(group)], waiting[len(group) :]
        for tensor, found, wanted in zip(part, own.values(part), reference.values(part), strict=True):
            yield _tensor(tensor.name, tensor.location, found, wanted)


def _tensor(name: str, location: str, found: Array, wanted: Array) -> ComparedTensor:
    same = found.shape == wanted.shape
    apart = difference(found, wanted) if same else Difference(wrong=max(1, wanted.size), elements=wanted.size)
    return ComparedTensor(name, location, str(wanted.dtype), wanted.shape, apart)


def _is_close(found: Mapping[str, Array], wanted: Mapping[str, Array], bound: float) -> bool:
    return all(
        _tensor(name, "", array, wanted[name]).difference.relative <= bound
        for name, array in found.items()
        if name in wanted
    )
