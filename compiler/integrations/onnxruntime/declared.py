"""Inputs and outputs as an ONNX file declares them, read from its bytes without the module `onnx`.

A library has tensors with expressions for their sizes. Programs expect what onnxruntime says of the model: the names of
dimensions in the file, sequences, maps and optional values.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from nnefc.loader import Tensor
from nnefc.support.wire_format import BYTES, VARINT, MalformedError, fields, read_varint

from .metadata import NodeArg
from .tensors.element_types import element_of, onnx_name

__all__ = ["Declared", "Interface", "node_arg", "read_interface", "tensor_arg"]

_VERSION, _GRAPH = 1, 7  # of a model
_INITIALIZER, _INPUT, _OUTPUT, _SPARSE_INITIALIZER = 5, 11, 12, 15  # of a graph
_TENSOR_NAME = 8
_TENSOR_TYPE, _SEQUENCE_TYPE = 1, 4  # of a type; maps are 5, sparse tensors 8, optional values 9

_MAX_DEPTH = 16
"""Types inside each other."""

_FIRST_WITH_DEFAULTS = 4
"""The version of ONNX's format in which initializers became defaults of inputs; before they were constants."""


@dataclass(frozen=True)
class Declared:
    """An input or output.

    Attributes:
        name: in the model.
        type: ONNX's name of the type, such as `seq(tensor(float))`.
        element: ONNX's number of the type of its elements; 0 if it is no tensor or sequence of tensors.
        shape: sizes, names, and None for a dimension without either; None if even the rank is not declared.
        denotations: of the dimensions.
    """

    name: str
    type: str = "tensor(undefined)"
    element: int = 0
    shape: tuple[int | str | None, ...] | None = None
    denotations: tuple[str, ...] = ()

    @property
    def is_sequence(self) -> bool:
        """Whether it is a sequence of tensors."""
        return self.type.removeprefix("optional(").startswith("seq(tensor")

    @property
    def is_optional(self) -> bool:
        """Whether it may be absent."""
        return self.type.startswith("optional(")


@dataclass(frozen=True)
class Interface:
    """The inputs, the outputs and the names of the initializers of a model, and the version of its format."""

    inputs: tuple[Declared, ...]
    outputs: tuple[Declared, ...]
    initializers: frozenset[str]
    version: int = _FIRST_WITH_DEFAULTS

    @property
    def required(self) -> tuple[Declared, ...]:
        """The inputs that are no initializers."""
        return tuple(each for each in self.inputs if each.name not in self.initializers)

    @property
    def overridable(self) -> tuple[Declared, ...]:
        """The inputs that are initializers, and may have other values in a run."""
        if self.version < _FIRST_WITH_DEFAULTS:
            return ()
        return tuple(each for each in self.inputs if each.name in self.initializers)

    def with_sizes(self, sizes: Mapping[tuple[str, str], int]) -> Interface:
        """Returns the interface with sizes for dimensions, by ("name" or "denotation", the text)."""

        def fixed(declared: Declared) -> Declared:
            if declared.shape is None:
                return declared
            known = zip(declared.shape, declared.denotations, strict=True)
            shape = tuple(sizes.get(("name", str(size)), sizes.get(("denotation", text), size)) for size, text in known)
            return replace(declared, shape=shape)

        return replace(self, inputs=tuple(map(fixed, self.inputs)), outputs=tuple(map(fixed, self.outputs)))


def read_interface(model: Path | bytes) -> Interface | None:
    """Returns the interface of a model; None if it is no ONNX model, or compressed."""
    try:
        if isinstance(model, bytes):
            return _interface(memoryview(model))
        with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            view = memoryview(mapped)
            try:
                return _interface(view)
            finally:
                view.release()
    except (MalformedError, OSError, ValueError, IndexError):
        return None


def node_arg(declared: Declared, tensor: Tensor | None, names: frozenset[str], *, is_fixed: bool = False) -> NodeArg:
    """Returns the description of an input or output.

    Args:
        declared: in the model.
        tensor: of the library, for dimensions that are not declared; None if there is none yet.
        names: of the model's dimensions, which may stand for a dimension that is not declared.
        is_fixed: whether the library has sizes where the model declares names.
    """
    known = () if tensor is None else tuple(tensor.shape)
    if declared.is_sequence or not declared.type.removeprefix("optional(").startswith("tensor"):
        return NodeArg(declared.name, declared.type, [])
    found = [_size(size, names) for size in known]
    if declared.shape is None:
        return NodeArg(declared.name, declared.type, found)
    shape = list(declared.shape)
    if len(shape) == len(found):
        pairs = zip(shape, found, strict=True)
        shape = [b if a is None or (is_fixed and isinstance(b, int)) else a for a, b in pairs]
    return NodeArg(declared.name, declared.type, shape)


def tensor_arg(tensor: Tensor) -> NodeArg:
    """Returns the description of an input or output of a library whose model is not there."""
    sizes = [size if isinstance(size, int) else None if str(size) == "?" else str(size) for size in tensor.shape]
    return NodeArg(tensor.name, f"tensor({element_of(tensor.dtype).name})", sizes)


def _size(size: object, names: frozenset[str]) -> int | str | None:
    if isinstance(size, int):
        return size
    return str(size) if str(size) in names else None


def _interface(model: memoryview) -> Interface | None:
    inputs: list[Declared] = []
    outputs: list[Declared] = []
    initializers: list[str] = []
    has_graph = False
    version = _number(model, 0, len(model), _VERSION) or 0
    for number, kind, first, last in _contents(model, 0, len(model)):
        if (number, kind) != (_GRAPH, BYTES):
            continue
        has_graph = True
        for part, _, begin, end in _contents(model, first, last):
            if part == _INPUT:
                inputs.append(_value(model, begin, end))
            elif part == _OUTPUT:
                outputs.append(_value(model, begin, end))
            elif part == _INITIALIZER:
                initializers.append(_text(model, begin, end, _TENSOR_NAME))
            elif part == _SPARSE_INITIALIZER:
                initializers += [_text(model, *span, _TENSOR_NAME) for span in _parts(model, begin, end, 1)]
    return Interface(tuple(inputs), tuple(outputs), frozenset(initializers), version) if has_graph else None


def _contents(message: memoryview, first: int, last: int) -> Iterator[tuple[int, int, int, int]]:
    """The number of each field, how it is stored, where its content begins, and where it ends."""
    for number, begin, content, end in fields(message, first, last):
        yield number, message[begin] & 7, content, end


def _parts(message: memoryview, first: int, last: int, wanted: int) -> Iterator[tuple[int, int]]:
    return (
        (begin, end)
        for number, kind, begin, end in _contents(message, first, last)
        if number == wanted and kind == BYTES
    )


def _text(message: memoryview, first: int, last: int, wanted: int) -> str:
    found = b""
    for begin, end in _parts(message, first, last, wanted):
        found = bytes(message[begin:end])
    return found.decode(errors="replace")


def _number(message: memoryview, first: int, last: int, wanted: int) -> int | None:
    found = None
    for number, kind, begin, end in _contents(message, first, last):
        if number == wanted and kind == VARINT:
            found = read_varint(message, begin, end)[0]
    return found


def _value(message: memoryview, first: int, last: int) -> Declared:
    made = Declared(_text(message, first, last, 1))
    for begin, end in _parts(message, first, last, 2):
        made = _typed(made, message, begin, end, 0)
    return made


def _typed(declared: Declared, message: memoryview, first: int, last: int, depth: int) -> Declared:
    """Returns it with the type of a message TypeProto."""
    if depth > _MAX_DEPTH:
        raise MalformedError
    for number, _, begin, end in _contents(message, first, last):
        match number:
            case 1 | 8:
                prefix = "tensor" if number == _TENSOR_TYPE else "sparse_tensor"
                element = _number(message, begin, end, 1) or 0
                shapes = [_shape(message, *span) for span in _parts(message, begin, end, 2)]
                shape, denotations = shapes[-1] if shapes else (None, ())
                name = f"{prefix}({onnx_name(element)})"
                declared = Declared(declared.name, name, element, shape, denotations)
            case 4 | 9:
                for span in _parts(message, begin, end, 1):
                    declared = _typed(declared, message, *span, depth + 1)
                outer = "seq" if number == _SEQUENCE_TYPE else "optional"
                declared = replace(declared, type=f"{outer}({declared.type})")
            case 5:
                key = onnx_name(_number(message, begin, end, 1) or 0)
                for span in _parts(message, begin, end, 2):
                    declared = _typed(declared, message, *span, depth + 1)
                declared = replace(declared, type=f"map({key},{declared.type})", element=0, shape=None)
    return declared


def _shape(message: memoryview, first: int, last: int) -> tuple[tuple[int | str | None, ...], tuple[str, ...]]:
    sizes: list[int | str | None] = []
    denotations: list[str] = []
    for begin, end in _parts(message, first, last, 1):
        value, name = _number(message, begin, end, 1), _text(message, begin, end, 2)
        is_known = value is not None and value < 1 << 63  # negative sizes are written for unknown ones
        sizes.append(value if is_known else name or None)
        denotations.append(_text(message, begin, end, 3))
    return tuple(sizes), tuple(denotations)
