"""Reads tensor files (`.dat`) of both kinds: the final 128-byte header and the provisional one of variable length.

Final, little-endian: bytes 4E EF, major, minor; u32 data bytes; u32 rank (at most 8); u32[8] sizes; u32 bits of an
element; u32 element type; u32[19] reserved. Provisional: bytes 4E EF, major, minor; u32 header bytes; u32 rank;
u32[rank] sizes; u8 element type; u8 bits; u16 length of the quantization algorithm's text and the text. The elements
follow.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnefc.frontends.nnef.files.block_formats import block_format_of
from nnefc.frontends.tensor_types import TensorType
from nnefc.operators.nn.block_quantization import BlockTensor
from nnefc.support.diagnostics import CompileError
from nnefc.support.mapped_files import map_path

__all__ = [
    "ElementType",
    "StoredTensor",
    "block_header",
    "parse_tensor",
    "read_tensor",
    "tensor_bytes",
    "write_tensor",
]

_MAGIC = b"\x4e\xef"
_FINAL_HEADER = struct.Struct("<2sBBII8III19I")
_MAX_RANK = 8
_MAX_PROVISIONAL_RANK = 32


class ElementType(Enum):
    """Element type of a tensor file; the values are the codes of the final header."""

    FLOAT = 0
    UNSIGNED = 1
    QUANTIZED_UNSIGNED = 2
    QUANTIZED_SIGNED = 3
    SIGNED = 4
    BOOL = 5


_PROVISIONAL_TYPES = {
    0: ElementType.FLOAT,
    1: ElementType.QUANTIZED_UNSIGNED,
    2: ElementType.SIGNED,
    3: ElementType.UNSIGNED,
}

_DTYPES: dict[tuple[ElementType, int], str] = {
    **{(ElementType.FLOAT, bits): f"<f{bits // 8}" for bits in (16, 32, 64)},
    **{
        (kind, bits): f"<u{bits // 8}"
        for kind in (ElementType.UNSIGNED, ElementType.QUANTIZED_UNSIGNED)
        for bits in (8, 16, 32, 64)
    },
    **{
        (kind, bits): f"<i{bits // 8}"
        for kind in (ElementType.SIGNED, ElementType.QUANTIZED_SIGNED)
        for bits in (8, 16, 32, 64)
    },
    (ElementType.BOOL, 8): "u1",
}
_PACKED = frozenset({ElementType.BOOL, ElementType.UNSIGNED, ElementType.QUANTIZED_UNSIGNED})
"""Element types whose elements may be one bit wide: eight to a byte, the most significant bit first."""

_WRITTEN: dict[str, tuple[ElementType, int]] = {
    **{f"f{size}": (ElementType.FLOAT, 8 * size) for size in (2, 4, 8)},
    **{f"u{size}": (ElementType.UNSIGNED, 8 * size) for size in (1, 2, 4, 8)},
    **{f"i{size}": (ElementType.SIGNED, 8 * size) for size in (1, 2, 4, 8)},
    "b1": (ElementType.BOOL, 1),
}
_QUANTIZED = {
    ElementType.UNSIGNED: ElementType.QUANTIZED_UNSIGNED,
    ElementType.SIGNED: ElementType.QUANTIZED_SIGNED,
}


@dataclass(frozen=True)
class StoredTensor:
    """The content of one file: `array` holds the elements as stored (quantized ones as integers, bits as bool or
    uint8).

    Elements in blocks stay so, and are no `array` but a `BlockTensor`.
    `bits` is the width of an element in the file. `algorithm` is the provisional header's quantization text, else "".
    """

    array: npt.NDArray[Any] | BlockTensor
    element_type: ElementType
    bits: int
    algorithm: str = ""

    @property
    def quantized(self) -> bool:
        """Whether the elements are integers that stand for reals."""
        return self.element_type in (ElementType.QUANTIZED_SIGNED, ElementType.QUANTIZED_UNSIGNED)


@dataclass(frozen=True)
class _Header:
    size: int
    shape: tuple[int, ...]
    element_type: ElementType
    bits: int
    algorithm: str = ""
    blocks: TensorType | None = None

    @property
    def data_bytes(self) -> int:
        if self.blocks is not None:
            return self.blocks.data_bytes(self.shape)
        return (math.prod(self.shape) * self.bits + 7) // 8


class _Malformed(Exception):
    """Why a content is not a file of one kind."""


class _WrongSize(_Malformed):
    """A header of the kind that does not fit the size of the data."""


def read_tensor(path: Path | str) -> StoredTensor:
    """Read a tensor file; large ones are mapped, not copied.

    Raises:
        CompileError: the file cannot be read or is not a tensor file of either kind.
    """
    try:
        size = Path(path).stat().st_size
        data = map_path(Path(path)) if size else np.empty(0, np.uint8)
    except OSError as error:
        raise CompileError(f"cannot read '{path}': {error.strerror}") from None
    return parse_tensor(data, str(path))


def parse_tensor(data: npt.NDArray[np.uint8], name: str) -> StoredTensor:
    """The tensor in `data`, the whole content of the file called `name`; the result shares its memory where it can.

    Raises:
        CompileError: the content is not a tensor file of either kind.
    """
    if len(data) < 4 or data[:2].tobytes() != _MAGIC:
        raise CompileError(f"'{name}' is not an NNEF tensor file: it does not begin with the bytes 4E EF")
    major, minor = int(data[2]), int(data[3])
    if (major, minor) != (1, 0):
        raise CompileError(f"'{name}' has version {major}.{minor} of the tensor format; known is 1.0")
    kinds = [_final_header, _provisional_header]
    problems: list[_Malformed] = []
    for header in reversed(kinds) if _looks_provisional(data) else kinds:
        try:
            return _elements(data, header(data))
        except _Malformed as error:
            problems.append(error)
    # The more telling of the two: that of a whole header, else that of the likelier kind.
    problem = next((problem for problem in problems if isinstance(problem, _WrongSize)), problems[0])
    raise CompileError(f"'{name}' is not a valid NNEF tensor file: {problem}")


def write_tensor(path: Path | str, array: npt.ArrayLike, *, quantized: bool = False) -> None:
    """Write `array` with the final header; bool is packed, eight elements to a byte.

    With `quantized`, integers are marked as standing for reals (see `graph.quant`).

    Raises:
        ValueError: a rank above 8, an element type that the format lacks, or floats marked as quantized.
    """
    Path(path).write_bytes(b"".join(tensor_bytes(array, quantized=quantized)))


def tensor_bytes(array: npt.ArrayLike, *, quantized: bool = False) -> tuple[bytes, bytes]:
    """Returns the header and the data of a tensor file; arguments and errors are those of `write_tensor`."""
    array = np.asarray(array)
    if array.ndim > _MAX_RANK:
        raise ValueError(f"a tensor file holds at most {_MAX_RANK} dimensions, not {array.ndim}")
    written = _WRITTEN.get(array.dtype.str[1:])
    if written is None:
        raise ValueError(f"a tensor file cannot hold elements of type {array.dtype}")
    element_type, bits = written
    if quantized:
        if element_type not in _QUANTIZED:
            raise ValueError(f"elements of type {array.dtype} cannot be quantized")
        element_type = _QUANTIZED[element_type]
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    data = np.packbits(array).tobytes() if bits == 1 else little.tobytes()
    return _packed_header(array.shape, bits, element_type.value, len(data)), data


def block_header(shape: tuple[int, ...], code: int, data_bytes: int) -> bytes:
    """Returns the header of a tensor of an element type that the standard does not have."""
    return _packed_header(shape, 0xFFFFFFFF, code, data_bytes)


def _packed_header(shape: tuple[int, ...], bits: int, code: int, data_bytes: int) -> bytes:
    sizes = (data_bytes & 0xFFFFFFFF, len(shape), *shape, *[0] * (_MAX_RANK - len(shape)), bits, code)
    return _FINAL_HEADER.pack(_MAGIC, 1, 0, *sizes, *[0] * 19)


def _looks_provisional(data: npt.NDArray[np.uint8]) -> bool:
    """Returns whether the second field counts the bytes of a provisional header rather than those of the data."""
    if len(data) < 16:
        return False
    length, rank = struct.unpack_from("<II", data.data, 4)
    if rank > (len(data) - 16) // 4:
        return False
    _, bits, text_bytes = struct.unpack_from("<BBH", data.data, 12 + 4 * rank)
    return bool(bits and length == 16 + 4 * rank + text_bytes)


def _final_header(data: npt.NDArray[np.uint8]) -> _Header:
    if len(data) < _FINAL_HEADER.size:
        raise _Malformed(f"it has {len(data)} bytes, the header alone {_FINAL_HEADER.size}")
    _, _, _, data_bytes, rank, *tail = _FINAL_HEADER.unpack_from(data.data)
    sizes, bits, code, reserved = tail[:_MAX_RANK], tail[_MAX_RANK], tail[_MAX_RANK + 1], tail[_MAX_RANK + 2 :]
    if rank > _MAX_RANK:
        raise _Malformed(f"its rank is {rank}, more than {_MAX_RANK}")
    blocks = block_format_of(code)
    if blocks is not None:
        width = 8 * blocks.block_bytes if blocks.elements == 1 else 32
        header = _Header(_FINAL_HEADER.size, tuple(sizes[:rank]), ElementType.FLOAT, width, "", blocks)
        return _checked_blocks(header, blocks, data_bytes)
    if code not in {kind.value for kind in ElementType}:
        raise _Malformed(f"its element type {code} is unknown")
    element_type = ElementType(code)
    if element_type is ElementType.UNSIGNED and reserved[0]:
        element_type = ElementType.SIGNED
    header = _Header(_FINAL_HEADER.size, tuple(sizes[:rank]), element_type, bits)
    _check_elements(header)
    if data_bytes != header.data_bytes & 0xFFFFFFFF:
        raise _WrongSize(
            f"its header says {data_bytes} bytes of data, its {_describe(header)} take {header.data_bytes}"
        )
    return header


def _checked_blocks(header: _Header, blocks: TensorType, data_bytes: int) -> _Header:
    if 0 in header.shape or not blocks.fits(header.shape):
        raise _Malformed(f"its shape {list(header.shape)} is no number of blocks of {blocks.name}")
    if data_bytes not in (header.data_bytes & 0xFFFFFFFF, 0):
        raise _WrongSize(f"its header says {data_bytes} bytes of data, its blocks take {header.data_bytes}")
    return header


def _provisional_header(data: npt.NDArray[np.uint8]) -> _Header:
    if len(data) < 16:
        raise _Malformed(f"it has {len(data)} bytes, less than any header")
    length, rank = struct.unpack_from("<II", data.data, 4)
    if rank > (len(data) - 16) // 4:
        raise _Malformed(f"its rank is {rank}, more than the file has room for")
    if rank > _MAX_PROVISIONAL_RANK:
        raise _Malformed(f"its rank is {rank}, more than {_MAX_PROVISIONAL_RANK}")
    sizes = struct.unpack_from(f"<{rank}I", data.data, 12)
    at = 12 + 4 * rank
    code, bits, text_bytes = struct.unpack_from("<BBH", data.data, at)
    if length != at + 4 + text_bytes or length > len(data):
        raise _Malformed(f"its header should take {at + 4 + text_bytes} bytes, the length field says {length}")
    if code not in _PROVISIONAL_TYPES:
        raise _Malformed(f"its element type {code} is unknown")
    try:
        algorithm = data[at + 4 : length].tobytes().decode("ascii").rstrip("\0")
    except UnicodeDecodeError:
        raise _Malformed("its quantization algorithm is not ASCII text") from None
    header = _Header(length, tuple(sizes), _PROVISIONAL_TYPES[code], bits, algorithm)
    _check_elements(header)
    return header


def _check_elements(header: _Header) -> None:
    if 0 in header.shape:
        raise _Malformed(f"its shape {list(header.shape)} has a size of 0")
    packed = header.bits == 1 and header.element_type in _PACKED
    if not packed and (header.element_type, header.bits) not in _DTYPES:
        raise _Malformed(f"elements of type {_spell(header.element_type)} cannot be {header.bits} bits wide")


def _elements(data: npt.NDArray[np.uint8], header: _Header) -> StoredTensor:
    held = len(data) - header.size
    if held != header.data_bytes:
        raise _WrongSize(f"it holds {held} bytes of data, its {_describe(header)} take {header.data_bytes}")
    elements = data[header.size :]
    array: npt.NDArray[Any]
    if header.blocks is not None:
        return StoredTensor(header.blocks.tensor(elements, header.shape), header.element_type, header.bits)
    if header.bits == 1:
        array = np.unpackbits(elements, count=math.prod(header.shape))
    else:
        array = np.frombuffer(elements, _DTYPES[header.element_type, header.bits])
    if header.element_type is ElementType.BOOL:
        array = array.astype(np.bool_)
    return StoredTensor(array.reshape(header.shape), header.element_type, header.bits, header.algorithm)


def _describe(header: _Header) -> str:
    return f"{header.bits}-bit {_spell(header.element_type)} elements of shape {list(header.shape)}"


def _spell(element_type: ElementType) -> str:
    return element_type.name.lower().replace("_", " ")
