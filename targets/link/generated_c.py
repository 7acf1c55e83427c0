"""Writes a network as C source: a `.c`, a `.h`, and the trained values in a file of their own if that is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnefc.support.diagnostics import CompileError
from nnefc.support.output_files import write_together
from nnefc.targets.description.freestanding_source import C_TYPES
from nnefc.targets.description.generated_source import (
    SOURCE_ALIGNMENT,
    ConstantUse,
    CProgram,
    constant_uses,
    generated_header,
    generated_source,
)
from nnefc.targets.description.library import DEFAULT_PREFIX, LibraryDescription, check_prefix
from nnefc.targets.description.weights_image import HEADER_BYTES, WeightsImage, identity_of
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.encrypted_weights import check_encryption, write_encrypted_image
from nnefc.targets.link.weights_file import write_image

__all__ = ["check_c_output", "prefix_of", "write_c_source"]

_COLUMNS = 110
_TYPES = {**C_TYPES, "bool": "int8_t"}


def check_c_output(path: Path, target: str) -> None:
    """Rejects a name that is not one of C source.

    Raises:
        CompileError: another ending.
    """
    if path.suffix != ".c":
        raise CompileError(
            f"{path}: code for the target {target} is C source, and no library", hint="end the name with .c"
        )


def prefix_of(path: Path) -> str:
    """Returns what the names of functions begin with: the name of the file, with what C does not allow as `_`."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", path.stem)
    if name[:1].isdigit():
        name = f"network_{name}"
    try:
        check_prefix(name)
    except CompileError:
        return DEFAULT_PREFIX
    return name


def write_c_source(
    program: CProgram,
    constants: Constants | None,
    description: LibraryDescription,
    path: Path,
    weights: str = "embedded",
    key: bytes | None = None,
    weights_version: int = 0,
) -> None:
    """Writes the C file, the header `NAME.h` next to it, and with `weights` "separate" a file of the constants.

    Args:
        program: the network's functions.
        constants: the trained values; None if the network has none.
        description: its interface; the prefix is that of its functions, and the header's name.
        path: the C file.
        weights: "embedded" or "separate".
        key: 16 or 32 bytes that the file of constants is encrypted with; None: it is not.
        weights_version: of these constants, if they are encrypted.

    Raises:
        CompileError: a name or a key that does not fit, or a file that cannot be written.
    """
    check_c_output(path, description.target)
    check_encryption(key, weights, constants)
    check_prefix(description.prefix)
    separate = weights == "separate" and constants is not None
    arrays = [] if separate or constants is None else list(_arrays(constants, constant_uses(program), description))
    addresses = {use: _address(use, arrays, separate) for use in constant_uses(program)}
    states = [] if constants is None else _first_states(constants, arrays, description, separate)
    definitions = [line for array in arrays for line in array.definition(description.prefix)]
    image = None
    if separate and constants is not None:
        image = replace(_image(program, constants, description, states), encrypted=key is not None)
    text = generated_source(program, description, definitions, addresses, states, image)

    def write(folder: Path) -> None:
        if image is not None and constants is not None:
            if key is None:
                write_image(constants, image, folder / f"{path.stem}.weights")
            else:
                write_encrypted_image(constants, image, key, weights_version, folder / f"{path.stem}.weights")
        (folder / f"{description.prefix}.h").write_text(
            generated_header(description, image, program.makes_texts), encoding="utf-8"
        )
        (folder / path.name).write_text(text, encoding="utf-8")

    write_together(path.parent, write, last=path.name)


def _image(
    program: CProgram, constants: Constants, description: LibraryDescription, states: Sequence[str]
) -> WeightsImage:
    """Returns what the code expects of its weights; the model's name does not count."""
    tensors = [(each.name, each.dtype, each.shape) for each in (*description.inputs, *description.outputs)]
    texts = [*program.helpers, *program.functions, *program.entry, *states, repr(tensors)]
    sizes = [description.workspace_bytes, description.state_bytes, constants.size]
    identity = identity_of(text.encode() for text in (*texts, repr(sizes)))
    return WeightsImage(identity, HEADER_BYTES + constants.size, SOURCE_ALIGNMENT)


@dataclass(frozen=True)
class _Array:
    """A constant as an array of C.

    Attributes:
        number: counts the arrays.
        offset: where it begins among all constants.
        values: its elements, of a type that C has.
        dtype: that type.
    """

    number: int
    offset: int
    values: NDArray[np.generic]
    dtype: str

    @property
    def name(self) -> str:
        """Its name, with the mark for the network's prefix."""
        return f"nnefc__constant{self.number}"

    def definition(self, _prefix: str) -> Iterator[str]:
        """The lines that define it."""
        yield f"NNEFC__CONSTANTS static const {_TYPES[self.dtype]} {self.name}[{self.values.size}] = {{"
        line = "   "
        for text in map(self._text, self.values.tolist()):
            if len(line) + len(text) + 2 > _COLUMNS:
                yield line
                line = "   "
            line += f" {text},"
        yield line.removesuffix(",")
        yield "};"
        yield ""

    def _text(self, value: float) -> str:
        return _float_text(value, self.dtype) if self.dtype.startswith("float") else _integer_text(value, self.dtype)


def _float_text(value: float, dtype: str) -> str:
    digits = str(np.float32(value)) if dtype == "float32" else repr(value)
    if not any(letter in digits for letter in ".e"):
        digits += ".0"
    return f"{digits}f" if dtype == "float32" else digits


def _integer_text(value: float, dtype: str) -> str:
    number, bits = int(value), int(dtype.lstrip("uint"))
    if dtype.startswith("u"):
        return f"{number}{'u' if bits == 32 else 'ull' if bits == 64 else ''}"
    if bits >= 32 and number == -(1 << (bits - 1)):
        return f"({number + 1}{'ll' if bits == 64 else ''} - 1)"
    return f"{number}ll" if bits == 64 else str(number)


def _arrays(constants: Constants, uses: Sequence[ConstantUse], description: LibraryDescription) -> Iterator[_Array]:
    """The constants as arrays, each of the widest type that a kernel reads it as."""
    read: dict[int, list[str]] = {}
    for use in uses:
        read.setdefault(use.offset, []).append(use.dtype)
    for number, (offset, array) in enumerate(constants.arrays):
        if array.size == 0:
            continue
        own = _stored(array)
        wide = max((_size(dtype) for dtype in read.get(offset, ())), default=1)
        if wide > own.itemsize:
            bytes_ = own.view(np.uint8)
            padded = np.concatenate([bytes_, np.zeros(-bytes_.size % wide, np.uint8)])
            name = min(dtype for dtype in read[offset] if _size(dtype) == wide)
            own = padded.view(np.dtype(name) if name in ("int32", "uint32", "int64", "uint64") else f"<u{wide}")
        if own.dtype.kind == "f" and not np.isfinite(own).all():
            own = own.view(f"<u{own.itemsize}")  # C99 has no constants for infinities and NaN without <math.h>
        yield _Array(number, offset, own, str(own.dtype))


def _stored(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Returns the elements of an array in one dimension, in a type that C has."""
    flat = np.ascontiguousarray(array).reshape(-1)
    name = str(flat.dtype)
    if name == "bool":
        return flat.view(np.int8)
    if name in C_TYPES and name not in ("float16", "bfloat16"):
        return flat
    return flat.view(f"<u{flat.itemsize}")  # 16-bit floats are their bits


def _size(dtype: str) -> int:
    return 2 if dtype in ("float16", "bfloat16") else 1 if dtype == "bool" else np.dtype(dtype).itemsize


def _address(use: ConstantUse, arrays: Sequence[_Array], separate: bool) -> str:
    """Returns the expression for the address of a constant."""
    wanted = f"const {_TYPES[use.dtype]} *"
    if separate:
        return f"({wanted})(const void *)((const uint8_t *)weights + {HEADER_BYTES + use.offset})"
    array = next((a for a in reversed(arrays) if a.offset <= use.offset < a.offset + a.values.nbytes), None)
    if array is None:  # of no elements
        return f"({wanted})0"
    if array.offset == use.offset:
        if _TYPES[array.dtype] == _TYPES[use.dtype]:
            return array.name
        return f"({wanted})(const void *){array.name}"
    return f"({wanted})(const void *)((const uint8_t *)(const void *){array.name} + {use.offset - array.offset})"


def _first_states(
    constants: Constants, arrays: Sequence[_Array], description: LibraryDescription, separate: bool
) -> list[str]:
    """Returns the statements that copy the first values of states; all others are zero."""
    begin, lines = description.state_initial_offset, []
    for offset, array in constants.arrays:
        if offset < begin or not array.size:
            continue
        source = f"(const uint8_t *)weights + {HEADER_BYTES + offset}"
        if not separate:
            source = next(each.name for each in arrays if each.offset == offset)
        lines.append(f"    memcpy(states + {offset - begin}, {source}, {array.nbytes});")
    return lines
