"""Checks a TFLite file and returns it as subgraphs of tensors and operators, every index in range.

model = read_model(Path("model.tflite"))
model.subgraphs[0].operators[3]         CONV_2D, inputs (7, 3, 4), outputs (8,)
model.array(model.subgraphs[0].tensors[3])      the constant's value, int4 unpacked, sparse spread out
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from nnefc.frontends.tflite.flatbuffer import Table, read_root
from nnefc.frontends.tflite.schema import BUILTIN_OPERATORS, DTYPES
from nnefc.operators.base import Array
from nnefc.operators.nn.quantization import RANGES
from nnefc.support.diagnostics import CompileError
from nnefc.support.mapped_files import map_path
from nnefc.symbolic.dims import MAX_ELEMENTS

__all__ = ["Model", "OperatorDef", "Quantization", "Signature", "Subgraph", "TensorDef", "read_model"]

IDENTIFIER = b"TFL3"
_MAX_RANK = 8
_PACKED = {"int4": (4, True), "uint4": (4, False), "int2": (2, True)}
"""Types of less than a byte: their bits, and whether they have a sign. The first element is in the lowest bits."""
_STORED = {
    **{name: np.dtype(name).newbyteorder("<") for name in ("float32", "float16", "float64", "int32", "int64", "int16")},
    **{name: np.dtype(name).newbyteorder("<") for name in ("uint8", "int8", "uint16", "uint32", "uint64", "bool")},
    **{name: np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")},
    "complex64": np.dtype("<c8"),
    "complex128": np.dtype("<c16"),
}


@dataclass(frozen=True, eq=False)
class Quantization:
    """A quantization: integers represent `(element - zero) * scale`, with a scale for all or for each index of an axis.

    Attributes:
        scale: float32, `[n]`.
        zero: int64, `[n]`.
        axis: along which scales differ.
    """

    scale: Array
    zero: Array
    axis: int

    @property
    def is_single(self) -> bool:
        """Whether there is one scale for all elements."""
        return self.scale.size == 1


@dataclass(frozen=True, eq=False)
class TensorDef:
    """A tensor as the file declares it.

    Attributes:
        index: in its subgraph.
        shape: None for sizes that are open, which the signature of the shape says.
        has_shape: whether even the rank is known.
        buffer: of its value; 0 if it is computed.
    """

    index: int
    name: str
    dtype: str
    shape: tuple[int | None, ...]
    has_shape: bool
    quantization: Quantization | None
    is_variable: bool
    buffer: int
    sparsity: Table | None


@dataclass(frozen=True, eq=False)
class OperatorDef:
    """An operator of a subgraph.

    Attributes:
        name: the builtin operator's, or a custom operator's code.
        inputs, outputs, intermediates: indices of tensors; -1 for an input that is left out.
        options: the table of its attributes; an empty one where the file has none.
        custom: the bytes of a custom operator's attributes.
    """

    index: int
    name: str
    is_custom: bool
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    options: Table
    custom: bytes


@dataclass(frozen=True, eq=False)
class Subgraph:
    """A network, or the body of a control operator; operators are in the order in which they run."""

    index: int
    name: str
    tensors: tuple[TensorDef, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[OperatorDef, ...]


@dataclass(frozen=True, eq=False)
class Signature:
    """A part of the model that callers run by its key: pairs of names and indices of a subgraph's tensors."""

    key: str
    subgraph: int
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, eq=False)
class Model:
    """A model whose indices have been checked."""

    file: str
    version: int
    description: str
    subgraphs: tuple[Subgraph, ...]
    signatures: tuple[Signature, ...]
    buffers: tuple[Array, ...]
    metadata: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def offsets(self) -> dict[int, int]:
        """Byte offsets of the first subgraph's tensors in memory, by index, from a list of: a version, the number of
        subgraphs, that of tensors, and an offset for each, -1 for those that lie elsewhere.

        Raises:
            CompileError: there is such a list, and it is cut off.
        """
        index = self.metadata.get("OfflineMemoryAllocation")
        if index is None:
            return {}
        data = self.buffers[index]
        words = np.frombuffer(data[: len(data) // 4 * 4].tobytes(), "<i4").tolist()
        if len(words) < 3 or not 0 <= words[2] <= len(words) - 3:
            raise CompileError(f"{self.file}: the offsets of tensors in memory (OfflineMemoryAllocation) are cut off")
        return {tensor: offset for tensor, offset in enumerate(words[3 : 3 + words[2]]) if offset >= 0}

    @cached_property
    def _arrays(self) -> dict[tuple[int, str, tuple[int | None, ...]], Array]:
        return {}

    def array(self, tensor: TensorDef) -> Array | None:
        """The value of a constant tensor; None of one that is computed.

        Raises:
            CompileError: its buffer does not fit its type and shape.
        """
        data = self.buffers[tensor.buffer]
        if not data.size and (tensor.buffer == 0 or math.prod(s or 0 for s in tensor.shape) != 0 or not tensor.shape):
            return None
        key = tensor.buffer, tensor.dtype, tensor.shape
        if key not in self._arrays or tensor.sparsity is not None:
            try:
                self._arrays[key] = _value(tensor, data)
            except CompileError as error:
                raise CompileError(f"{self.file}: the tensor '{tensor.name}' {error.message}") from None
        return self._arrays[key]


def read_model(path: Path) -> Model:
    """The model in a file.

    Raises:
        CompileError: it is no TFLite model, or breaks a rule of the format.
    """
    try:
        if path.stat().st_size < 8:
            raise CompileError(f"'{path.name}' is not a TFLite model: it has less than 8 bytes")
        data = map_path(path)
    except OSError as error:
        raise CompileError(f"cannot read '{path}': {error.strerror or error}") from error
    root = read_root(data, "Model", IDENTIFIER, path.name)
    try:
        return _model(root, data, path.name)
    except CompileError as error:
        raise CompileError(f"{path.name}: {error.message}", hint=error.hint) from None


def _model(root: Table, data: Array, file: str) -> Model:
    if root.version not in (1, 2, 3):
        raise CompileError(f"version {root.version} of the format is not known; 3 is")
    buffers = tuple(_buffer(each, data) for each in root.buffers) or (np.zeros(0, np.uint8),)
    subgraphs = tuple(_subgraph(index, each, root, data, len(buffers)) for index, each in enumerate(root.subgraphs))
    if not subgraphs:
        raise CompileError("the model has no subgraph")
    signatures = tuple(_signature(each, subgraphs) for each in root.signature_defs)
    metadata = {each.name: int(each.buffer) for each in root.metadata if each.buffer < len(buffers)}
    return Model(file, root.version, root.description, subgraphs, signatures, buffers, metadata)


def _buffer(buffer: Table, data: Array) -> Array:
    """The bytes of a buffer, in the flatbuffer or behind it."""
    if buffer.offset <= 1:
        made: Array = buffer.data
        return made
    if buffer.offset + buffer.size > len(data):
        raise CompileError("a buffer lies outside of the file: the file has been cut off")
    return data[buffer.offset : buffer.offset + buffer.size]


def _subgraph(index: int, table: Table, root: Table, data: Array, buffers: int) -> Subgraph:
    where = f"subgraph {index}"
    tensors = tuple(_tensor(i, each, buffers, where) for i, each in enumerate(table.tensors))

    def indices(vector: Array, what: str, optional: bool = False) -> tuple[int, ...]:
        found = tuple(int(i) for i in vector)
        for i in found:
            if not (-1 if optional else 0) <= i < len(tensors):
                raise CompileError(f"{where}: {what} is tensor {i}, and there are {len(tensors)}")
        return found

    operators = []
    for number, each in enumerate(table.operators):
        what = f"an operand of operator {number}"
        if each.opcode_index >= len(root.operator_codes):
            raise CompileError(f"{where}: operator {number} has no operator code")
        code = root.operator_codes[each.opcode_index]
        name, is_custom = _name(code, where, number)
        operators.append(
            OperatorDef(
                number, name, is_custom, code.version, indices(each.inputs, what, optional=True),
                indices(each.outputs, what, optional=True), indices(each.intermediates, what, optional=True),
                each.builtin_options or each.builtin_options_2 or Table("no options", {}), _custom(each, data),
            )
        )  # fmt: skip
    return Subgraph(
        index, table.name, tensors, indices(table.inputs, "an input"), indices(table.outputs, "an output"),
        tuple(operators),
    )  # fmt: skip


def _name(code: Table, where: str, number: int) -> tuple[str, bool]:
    """The operator's name, and whether it is a custom one; old files have a narrow field for its number."""
    builtin = max(code.builtin_code, code.deprecated_builtin_code)
    if not 0 <= builtin < len(BUILTIN_OPERATORS):
        raise CompileError(f"{where}: operator {number} is builtin operator {builtin}, which this version lacks")
    name = BUILTIN_OPERATORS[builtin]
    return (code.custom_code, True) if name == "CUSTOM" else (name, False)


def _custom(operator: Table, data: Array) -> bytes:
    if operator.large_custom_options_offset > 1:
        first, size = operator.large_custom_options_offset, operator.large_custom_options_size
        if first + size > len(data):
            raise CompileError("the options of a custom operator lie outside of the file")
        return bytes(data[first : first + size])
    return bytes(operator.custom_options)


def _tensor(index: int, table: Table, buffers: int, where: str) -> TensorDef:
    what = f"{where}: tensor {index}"
    if not 0 <= table.type < len(DTYPES):
        raise CompileError(f"{what} has the element type {table.type}, which this version lacks")
    if table.buffer >= buffers:
        raise CompileError(f"{what} has buffer {table.buffer}, and there are {buffers}")
    shape: list[int | None] = [int(size) for size in table.shape]
    signature = [int(size) for size in table.shape_signature]
    if len(signature) == len(shape):
        shape = [None if open_ == -1 else size for open_, size in zip(signature, shape, strict=True)]
    shape = [None if size == -1 else size for size in shape]
    if len(shape) > _MAX_RANK or any(size is not None and size < 0 for size in shape):
        raise CompileError(f"{what} has the shape {shape}")
    if math.prod(size or 1 for size in shape) > MAX_ELEMENTS:
        raise CompileError(f"{what} of shape {shape} has more than {MAX_ELEMENTS:,} elements")
    name = table.name or f"tensor_{index}"
    quantization = _quantization(table.quantization, shape, what)
    low, high = RANGES.get(DTYPES[table.type], (-1 << 31, (1 << 31) - 1))
    if quantization is not None and not ((quantization.zero >= low) & (quantization.zero <= high)).all():
        raise CompileError(f"{what} of {DTYPES[table.type]} has a zero point that is out of range")
    has_shape = bool(shape) or table.has_rank or table.buffer != 0
    return TensorDef(
        index, name, DTYPES[table.type], tuple(shape), has_shape, quantization, table.is_variable, table.buffer,
        table.sparsity,
    )  # fmt: skip


def _quantization(table: Table | None, shape: Sequence[int | None], what: str) -> Quantization | None:
    if table is None:
        return None
    if table.details is not None:
        raise CompileError(f"{what} is quantized by {table.details.kind}, which is not supported")
    scale, zero, axis = table.scale.astype(np.float32), table.zero_point.astype(np.int64), table.quantized_dimension
    if not scale.size:
        return None
    zero = np.zeros(scale.size, np.int64) if not zero.size else zero
    zero = np.full(scale.size, zero[0], np.int64) if zero.size == 1 else zero
    fits = scale.size == 1 or (0 <= axis < len(shape) and shape[axis] == scale.size)
    if zero.size != scale.size or not fits:
        raise CompileError(f"{what} of shape {list(shape)} has {scale.size} scales and {zero.size} zero points")
    if not np.isfinite(scale).all() or (scale < 0).any():
        raise CompileError(f"{what} has a scale that is out of range")
    return Quantization(scale, zero, axis)


def _signature(table: Table, subgraphs: Sequence[Subgraph]) -> Signature:
    key = table.signature_key
    if table.subgraph_index >= len(subgraphs):
        raise CompileError(f"the signature '{key}' is of subgraph {table.subgraph_index}, which there is not")
    count = len(subgraphs[table.subgraph_index].tensors)
    for each in (*table.inputs, *table.outputs):
        if each.tensor_index >= count:
            raise CompileError(f"the signature '{key}' names tensor {each.tensor_index}, and there are {count}")
    inputs, outputs = (tuple((each.name, each.tensor_index) for each in part) for part in (table.inputs, table.outputs))
    return Signature(key, table.subgraph_index, inputs, outputs)


# Values.


def _value(tensor: TensorDef, data: Array) -> Array:
    if None in tensor.shape:
        raise CompileError("is a constant with a size that is open")
    shape = tuple(size for size in tensor.shape if size is not None)
    if tensor.dtype == "string":
        return _strings(data, shape)
    if tensor.sparsity is not None:
        return _dense(tensor.sparsity, _elements(tensor.dtype, data, None), shape)
    return _elements(tensor.dtype, data, math.prod(shape)).reshape(shape)


def _elements(dtype: str, data: Array, count: int | None) -> Array:
    """The elements in a buffer; `count` of them, or as many as there are."""
    if dtype in _PACKED:
        bits, signed = _PACKED[dtype]
        each = 8 // bits
        count = len(data) * each if count is None else count
        if len(data) != -(-count // each):
            raise CompileError(f"has {len(data)} bytes for {count} elements of {dtype}")
        codes = (data[:, None] >> np.arange(0, 8, bits, dtype=np.uint8)) & np.uint8((1 << bits) - 1)
        flat = codes.reshape(-1)[:count]
        if not signed:
            return flat
        return ((flat ^ np.uint8(1 << (bits - 1))).astype(np.int8) - np.int8(1 << (bits - 1))).astype(np.int8)
    stored = _STORED.get(dtype)
    if stored is None:
        raise CompileError(f"is a constant of type {dtype}, which is not supported")
    if len(data) % stored.itemsize or (count is not None and len(data) != count * stored.itemsize):
        raise CompileError(f"has {len(data)} bytes for {count} elements of {dtype}")
    if dtype == "bool":
        return np.asarray(data != 0)
    values: Array = np.ascontiguousarray(data).view(stored) if data.size else np.zeros(0, stored)
    return values


def _strings(data: Array, shape: tuple[int, ...]) -> Array:
    """Strings: their number, where each begins, where the last ends, and the bytes."""
    count = math.prod(shape)
    words = np.frombuffer(data[: len(data) // 4 * 4].tobytes(), "<i4")
    if len(words) < count + 2 or words[0] != count:
        raise CompileError(f"has no {count} strings in its buffer")
    ends = [int(end) for end in words[1 : count + 2]]
    if any(not 0 <= a <= b <= len(data) for a, b in pairwise(ends)):
        raise CompileError("has a string outside of its buffer")
    made = np.empty(count, object)
    made[:] = [bytes(data[a:b]).decode("utf-8", errors="replace") for a, b in pairwise(ends)]
    return made.reshape(shape)


def _dense(sparsity: Table, values: Array, shape: tuple[int, ...]) -> Array:
    """Spreads out a sparse tensor (Kjolstad et al., "The Tensor Algebra Compiler", 2017): levels of a tree, in the
    order of traversal, each either all indices of a dimension or those that are listed; blocks are inner dimensions.
    """
    order, blocks = [int(i) for i in sparsity.traversal_order], [int(i) for i in sparsity.block_map]
    levels, rank = sparsity.dim_metadata, len(shape)
    count = rank + len(blocks)
    if sorted(order) != list(range(count)) or len(levels) != count or any(not 0 <= b < rank for b in blocks):
        raise CompileError("has a traversal order that does not fit its shape")
    # The indices of all entries along each level, built from the root down: one row an entry.
    positions = np.zeros((1, 0), np.int64)
    entries = np.zeros(1, np.int64)
    for level in levels:
        if level.format == 0:
            if not 0 < level.dense_size <= max(1, *shape) or len(entries) * level.dense_size > max(1, math.prod(shape)):
                raise CompileError("has a dense level of a wrong size")
            own = np.tile(np.arange(level.dense_size), len(entries))
            positions = np.column_stack([np.repeat(positions, level.dense_size, axis=0), own])
            entries = np.repeat(entries, level.dense_size) * level.dense_size + own
            continue
        if level.array_segments is None or level.array_indices is None:
            raise CompileError("has a sparse level without indices")
        segments, indices = (each.values.astype(np.int64) for each in (level.array_segments, level.array_indices))
        if len(segments) <= entries.max(initial=0) + 1 or (np.diff(segments) < 0).any() or (segments < 0).any():
            raise CompileError("has a sparse level with wrong segments")
        if segments.max(initial=0) > len(indices):
            raise CompileError("has a sparse level with wrong segments")
        lengths = segments[entries + 1] - segments[entries]
        inner = np.concatenate([np.arange(segments[e], segments[e + 1]) for e in entries] or [np.zeros(0, np.int64)])
        if len(inner) > len(indices):
            raise CompileError("has a sparse level with wrong segments")
        positions = np.column_stack([np.repeat(positions, lengths, axis=0), indices[inner]])
        entries = inner
    if len(values) < len(entries):
        raise CompileError(f"has {len(values)} values for {len(entries)} entries")
    sizes = {order.index(rank + k): b for k, b in enumerate(blocks)}
    block = [1] * rank
    for level_index, dimension in sizes.items():
        block[dimension] = levels[level_index].dense_size
    full = np.zeros((len(entries), rank), np.int64)
    for level_index, dimension in enumerate(order):
        if dimension < rank:
            full[:, dimension] += positions[:, level_index] * block[dimension]
        else:
            full[:, blocks[dimension - rank]] += positions[:, level_index]
    if (full < 0).any() or (full >= np.array(shape)).any():
        raise CompileError("has an entry outside of its shape")
    made = np.zeros(shape, values.dtype)
    made[tuple(full.T)] = values[: len(entries)]
    return made


def spelled(shape: Sequence[Any]) -> str:
    """A shape as messages show it."""
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
