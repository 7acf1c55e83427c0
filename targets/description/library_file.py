"""Reads the metadata of a compiled file from its bytes, for any machine, without loading it."""

from __future__ import annotations

import json
import mmap
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.named_formulas import Formula
from nnefc.targets.description.embedded_metadata import MARK
from nnefc.targets.description.library import (
    ELEMENT_TYPES,
    DimensionDescription,
    FormulaDescription,
    KernelDescription,
    LibraryDescription,
    OperandDescription,
    SpecializationDescription,
    TensorDescription,
)

__all__ = ["Metadata", "file_kind", "read_metadata"]

_LARGEST = 16 << 20  # bytes of text; a thousand tensors take a tenth of a megabyte
_MAX = 1 << 63  # what sizes and sizes must stay below


@dataclass(frozen=True)
class Metadata:
    """The description of a library without what only the runtime needs, and the name of the weights file."""

    description: LibraryDescription
    weights: str


def read_metadata(path: Path) -> Metadata | None:
    """Return the embedded metadata of a file, without running any of its code; None if it has none.

    Raises:
        CompileError: the file cannot be read, or its metadata are truncated or invalid.
    """
    try:
        text = _find(path)
    except OSError as error:
        raise CompileError(f"cannot read {path}: {error.strerror or error}") from error
    if text is None:
        return None
    try:
        return _checked(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CompileError(f"the description inside {path} is damaged: copy the file again") from error


def _find(path: Path) -> bytes | None:
    with path.open("rb") as file:
        if not file.seek(0, 2):
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            start = content.find(MARK)
            if start < 0:
                return None
            start += len(MARK)
            head = content[start : start + 4]
            length = int.from_bytes(head, "little")
            text = content[start + 4 : start + 4 + min(length, _LARGEST)]
            return text if len(head) == 4 and len(text) == length else b""


def _checked(members: Any) -> Metadata:
    """Return the metadata of a JSON value, every part of which is checked.

    Raises:
        ValueError, TypeError, KeyError: the value is not one of :func:`embedded_metadata`.
    """
    found = LibraryDescription(
        model=_text(members["model"]),
        target=_text(members["target"]),
        compiler=_text(members["compiler"]),
        source=_text(members["source"]),
        inputs=_tensors(members["inputs"]),
        outputs=_tensors(members["outputs"]),
        states=_tensors(members["states"]),
        workspace_bytes=_size(members["workspace_bytes"]),
        scratch_bytes=_size(members["scratch_bytes"]),
        constant_bytes=_size(members["constant_bytes"]),
        state_bytes=_size(members["state_bytes"]),
        cpu_features=tuple(_text(feature) for feature in members["cpu_features"]),
        index_limits=tuple((_text(name), _size(limit)) for name, limit in members.get("index_limits", {}).items()),
        labels=tuple((_text(name), tuple(map(_label, own))) for name, own in members.get("labels", {}).items()),
        metadata=tuple((key, _raw(value)) for key, value in members.get("metadata", {}).items()),
        device=_text(members.get("device", "cpu")),
        dimensions=tuple(_dimension(*element) for element in members.get("dimensions", [])),
        dynamic_workspaces=_pair(*members.get("open_workspaces", (0, 0))),
        formulas=tuple(FormulaDescription(_text(n), _formula(f)) for n, f in members.get("formulas", {}).items()),
        specializations=tuple(_specialization(*element) for element in members.get("specializations", [])),
        only_specialized=bool(_size(members.get("only_specialized", 0))),
        kernels=tuple(_kernel(*element) for element in members.get("kernels", [])),
        checked=bool(_size(members.get("checked", 0))),
        reproducible=bool(_size(members.get("reproducible", 0))),
    )
    levels = tuple(_level(found, element) for element in members.get("levels", []))
    return Metadata(replace(found, levels=levels), _text(members["weights"]))


def _level(library: LibraryDescription, members: Any) -> LibraryDescription:
    return replace(
        library,
        target=_text(members["target"]),
        cpu_features=tuple(map(_text, members["cpu_features"])),
        kernels=tuple(_kernel(*element) for element in members["kernels"]),
    )


def _tensors(elements: Any) -> tuple[TensorDescription, ...]:
    return tuple(_tensor(*element) for element in elements)


def _dimension(name: Any, *numbers: Any) -> DimensionDescription:
    return DimensionDescription(_text(name), *map(_size, numbers))


def _formula(element: Any) -> Formula:
    if isinstance(element, list):
        sign, one, other = element
        return _text(sign), _formula(one), _formula(other)
    return element if type(element) is int else _text(element)


def _specialization(sizes: Any, workspace_bytes: Any) -> SpecializationDescription:
    return SpecializationDescription(
        tuple(None if size is None else _size(size) for size in sizes), _size(workspace_bytes)
    )


def _kernel(
    kernel: Any,
    tensors: Any,
    rule: Any,
    operations: Any,
    bytes: Any,
    operators: Any,
    reads: Any,
    writes: Any,
    operation_formula: Any = "",
) -> KernelDescription:
    return KernelDescription(
        _text(kernel),
        tuple(map(_text, tensors)),
        _text(rule),
        _size(operations),
        _size(bytes),
        tuple(map(_text, operators)),
        tuple(_operand(*element) for element in reads),
        tuple(_operand(*element) for element in writes),
        _text(operation_formula),
    )


def _operand(base: Any, index: Any, offset: Any, bytes: Any, type: Any) -> OperandDescription:
    return OperandDescription(
        _text(base), _size(index), None if offset is None else _size(offset), _size(bytes), _text(type)
    )


def _pair(first: Any, second: Any) -> tuple[int, int]:
    return _size(first), _size(second)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in value)  # a terminal obeys others


def _raw(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _label(value: Any) -> int | str:
    return value if type(value) is int else _text(value)


def _size(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MAX:
        raise ValueError(value)
    return value


def _tensor(name: Any, dtype: Any, shape: Any) -> TensorDescription:
    if dtype not in ELEMENT_TYPES:
        raise ValueError(dtype)
    if not isinstance(shape, list):
        raise TypeError(shape)
    return TensorDescription(_text(name), dtype, tuple(_text(n) if isinstance(n, str) else _size(n) for n in shape))


_ELF_MACHINES = {3: "i686", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv", 258: "loongarch"}
_MACH_O_MACHINES = {0x01000007: "x86_64", 0x0100000C: "aarch64"}
_PE_MACHINES = {0x8664: "x86_64", 0xAA64: "aarch64"}


def file_kind(path: Path) -> str | None:
    """Return the format and instruction set of a program or library by its first bytes, such as `ELF for aarch64`; None
    for other files.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(4096)
    if head.startswith(b"\x7fELF"):
        order = ">" if head[5:6] == b"\x02" else "<"
        return _named("ELF", _ELF_MACHINES, head, order + "H", 18)
    if head.startswith(b"\xcf\xfa\xed\xfe"):
        return _named("Mach-O", _MACH_O_MACHINES, head, "<I", 4)
    if head.startswith(b"MZ") and len(head) >= 64:
        (start,) = struct.unpack_from("<I", head, 60)
        return _named("PE", _PE_MACHINES, head, "<H", start + 4) if head[start : start + 4] == b"PE\0\0" else None
    if head.startswith(b"\0asm"):
        return "WebAssembly"
    return "archive of objects" if head.startswith(b"!<arch>\n") else None


def _named(form: str, machines: dict[int, str], head: bytes, layout: str, offset: int) -> str:
    if offset + struct.calcsize(layout) > len(head):
        return form
    (number,) = struct.unpack_from(layout, head, offset)
    return f"{form} for {machines.get(number, f'machine {number}')}"
