"""Loads the values of a model's variables from its tensor files, or generates random ones on request."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnefc.frontends.nnef.files.archive import ModelFiles
from nnefc.frontends.nnef.files.quantization import Quantization, dequantize, parse_algorithm
from nnefc.frontends.nnef.files.tensor_file import ElementType, StoredTensor, parse_tensor
from nnefc.frontends.nnef.flat import FlatGraph, Invocation
from nnefc.frontends.nnef.operations.lowering import DTYPES
from nnefc.frontends.nnef.quantized_tensors import Codes, grid_of
from nnefc.frontends.nnef.values import Shape, Tensor
from nnefc.operators.base import Emitter, Operand
from nnefc.operators.math.casting import Cast
from nnefc.operators.nn.block_quantization import BlockTensor
from nnefc.support.diagnostics import CompileError, Location
from nnefc.support.mapped_files import LARGE

__all__ = ["Fp16Values", "Stored", "load_variables", "random_values"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Fp16Values:
    """A large variable whose file holds float16, which the program converts: packing reads weights from the file."""

    array: Array

    @property
    def shape(self) -> Shape:
        """The shape of the variable."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the converted elements."""
        return np.dtype(np.float32)

    def values(self) -> Array:
        """Returns the elements in float32."""
        return self.array.astype(np.float32)

    def lower(self, ctx: Emitter) -> Operand:
        """Returns the elements in float32, computed by the network."""
        return Cast("float32").lower(ctx, ctx.expr(self.array))


Stored = Array | BlockTensor | Codes | Fp16Values
"""The representations of a variable's value."""


@dataclass(frozen=True)
class _Variable:
    """All invocations of `variable` with one label: they share their data."""

    label: str
    tensors: tuple[Tensor, ...]
    location: Location

    @property
    def shape(self) -> Shape:
        return self.tensors[0].shape

    @property
    def content(self) -> str:
        return self.tensors[0].content


def load_variables(
    graph: FlatGraph, files: ModelFiles, quantization: Quantization, random_weights: int | None
) -> dict[str, Stored]:
    """The value of every variable by its label.

    Scalars are float32, or stay in blocks, in codes of 8 bits or in float16; integers are int32 (int64 where the file
    stores 64 bits), logical values bool.
    Arrays may be views into the model's files.

    Args:
        random_weights: a seed: variables without a file get random values of sizes that keep activations near one;
            None: they are an error.

    Raises:
        CompileError: a file is missing, malformed or of another shape than its variable.
    """
    roles = _roles(graph)
    values: dict[str, Stored] = {}
    for variable in _variables(graph):
        name = variable.label.removeprefix("/") + ".dat"
        content = files.find(name)
        if content is not None:
            stored = parse_tensor(content, files.describe(name))
            values[variable.label] = _fitted(variable, stored, files.describe(name), quantization)
        elif random_weights is not None:
            role = roles.get(variable.label)
            values[variable.label] = random_values(
                variable.label, variable.content, variable.shape, role, random_weights
            )
        else:
            raise CompileError(
                f"there is no file '{files.describe(name)}' for the variable labelled '{variable.label}'",
                location=variable.location,
                hint="for a network with random weights give a seed: --random-weights SEED",
            )
    return values


def _variables(graph: FlatGraph) -> Iterator[_Variable]:
    found: dict[str, list[Invocation]] = {}
    for invocation in graph.invocations:
        if invocation.operation.name == "variable":
            found.setdefault(invocation.args.label, []).append(invocation)
    for label, invocations in found.items():
        tensors = tuple(tensor for invocation in invocations for tensor in invocation.tensors)
        for tensor, invocation in zip(tensors, invocations, strict=True):
            if (tensor.shape, tensor.content) != (tensors[0].shape, tensors[0].content):
                raise CompileError(
                    f"two variables share the label '{label}', "
                    f"but one is a {_spell(tensors[0])} and the other a {_spell(tensor)}",
                    location=invocation.location,
                    notes=(("the other one is here", invocations[0].location),),
                )
        yield _Variable(label, tensors, invocations[0].location)


def _spell(tensor: Tensor) -> str:
    return f"{tensor.content} tensor of shape {list(tensor.shape)}"


def _fitted(variable: _Variable, stored: StoredTensor, file: str, quantization: Quantization) -> Stored:
    """The stored elements as the variable's type; quantized ones as the reals that they stand for.

    Of filters and matrices the codes are kept, if they have 8 bits.
    """
    if stored.array.shape != variable.shape:
        raise CompileError(
            f"the file '{file}' holds the shape {list(stored.array.shape)}, the variable has {list(variable.shape)}",
            location=variable.location,
        )
    if variable.content == "scalar" and (stored.quantized or stored.algorithm):
        by = _algorithm(variable, stored, file, quantization)
        reals, grid = dequantize(stored, by, file), grid_of(by, variable.shape)
        codes = stored.array
        if grid is None or len(variable.shape) < 2 or not isinstance(codes, np.ndarray) or not grid.fits(codes):
            return reals
        return Codes(codes.astype(grid.dtype), grid, reals)
    return _converted(variable, stored, file)


def _algorithm(variable: _Variable, stored: StoredTensor, file: str, quantization: Quantization) -> Any:
    if stored.algorithm:
        return parse_algorithm(stored.algorithm, file)
    for tensor in variable.tensors:
        if tensor.name in quantization:
            return quantization[tensor.name]
    raise CompileError(
        f"the elements of '{file}' are quantized, but nothing says how",
        location=variable.location,
        hint=f"'graph.quant' needs a line for \"{variable.tensors[0].name}\"",
    )


_STORED_CONTENTS: Mapping[str, frozenset[ElementType]] = {
    "scalar": frozenset({ElementType.FLOAT, ElementType.SIGNED, ElementType.UNSIGNED}),
    "integer": frozenset({ElementType.SIGNED, ElementType.UNSIGNED}),
    "logical": frozenset({ElementType.BOOL, ElementType.UNSIGNED}),
}


def _converted(variable: _Variable, stored: StoredTensor, file: str) -> Stored:
    if stored.element_type not in _STORED_CONTENTS[variable.content]:
        raise CompileError(
            f"the file '{file}' holds {stored.element_type.name.lower().replace('_', ' ')} elements, "
            f"the variable is a tensor of {variable.content} values",
            location=variable.location,
        )
    array = stored.array
    if isinstance(array, BlockTensor):
        return array
    if variable.content == "scalar" and array.dtype == np.float16 and array.nbytes >= LARGE:
        return Fp16Values(array)
    if variable.content != "integer":
        return array.astype(DTYPES[variable.content], copy=False)
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise CompileError(f"the file '{file}' holds integers beyond 64 bits with sign", location=variable.location)
    # Unsigned 32-bit elements need the next wider signed type.
    return array.astype(np.int64 if array.dtype.itemsize == 8 or array.dtype == np.uint32 else np.int32, copy=False)


def _roles(graph: FlatGraph) -> dict[str, str]:
    """How each variable is used first: `operation.parameter`, such as `conv.filter`, seen through reshaping."""
    labels: dict[Tensor, str] = {}
    roles: dict[str, str] = {}
    for invocation in graph.invocations:
        if invocation.operation.name == "variable":
            labels.update(dict.fromkeys(invocation.tensors, invocation.args.label))
            continue
        for parameter, value in invocation.arguments.items():
            for tensor in _tensors(value):
                if tensor not in labels:
                    continue
                if invocation.operation.name in ("reshape", "squeeze", "unsqueeze", "copy"):
                    labels.update(dict.fromkeys(invocation.tensors, labels[tensor]))
                else:
                    roles.setdefault(labels[tensor], f"{invocation.operation.name}.{parameter}")
    return roles


def _tensors(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for element in value:
            yield from _tensors(element)


Sampler: TypeAlias = "Callable[[np.random.Generator, Shape], Array]"


def _he(fan_in: Callable[[Shape], int]) -> Sampler:
    """Normal values whose variance keeps that of the activations through a product and a rectifier."""
    return lambda rng, shape: rng.standard_normal(shape) * math.sqrt(2 / max(1, fan_in(shape)))


def _near_one(rng: np.random.Generator, shape: Shape) -> Array:
    return 1 + 0.1 * rng.standard_normal(shape)


def _near_zero(rng: np.random.Generator, shape: Shape) -> Array:
    return 0.1 * rng.standard_normal(shape)


def _positive(rng: np.random.Generator, shape: Shape) -> Array:
    return rng.uniform(0.5, 1.5, shape)


_SAMPLERS: Mapping[str, Sampler] = {
    "deconv.filter": _he(lambda shape: shape[0]),
    "separable_deconv.point_filter": _he(lambda shape: shape[0]),
    "matmul.B": _he(lambda shape: shape[-2]),
    "matmul.A": _he(lambda shape: shape[-1]),
    "batch_normalization.variance": _positive,
    "batch_normalization.scale": _near_one,
    "batch_normalization.mean": _near_zero,
    "batch_normalization.offset": _near_zero,
    "mul.x": _near_one,
    "mul.y": _near_one,
    "div.y": _positive,
    "sqrt.x": _positive,
    "rsqrt.x": _positive,
    "log.x": _positive,
}


def _usual(rng: np.random.Generator, shape: Shape) -> Array:
    """Filters are stored [out, in, …]; what has a single row or dimension is a bias or a factor."""
    if len(shape) >= 2 and shape[0] > 1:
        return _he(lambda sizes: math.prod(sizes[1:]))(rng, shape)
    return _near_zero(rng, shape)


def random_values(label: str, content: str, shape: Shape, role: str | None, seed: int) -> Array:
    """Values that depend on the seed and the label alone, whatever the order of the variables.

    Args:
        content: "scalar", "integer" or "logical".
        role: how the variable is used first, `operation.parameter`, if that is known.
    """
    rng = np.random.default_rng([seed, *label.encode()])
    match content:
        case "integer":
            return np.zeros(shape, np.int32)
        case "logical":
            return np.asarray(rng.random(shape) < 0.5)
        case _:
            made = _SAMPLERS.get(role or "", _usual)(rng, shape)
            return np.asarray(made, np.float32)  # NumPy gives a number, not an array, where there are no axes
