"""Writes the C header of one network, for programs that link it under its own name."""

from __future__ import annotations

from pathlib import Path

from nnefc.targets.description.freestanding_source import printable
from nnefc.targets.description.library import DEFAULT_PREFIX, LibraryDescription, TensorDescription
from nnefc.targets.description.library_functions import declarations

__all__ = ["header_source"]

_INTERFACE = Path(__file__).parents[1] / "runtime" / "nnefc.h"


def header_source(description: LibraryDescription) -> str:
    """`nnefc.h` for a network without a name; with one, its functions too. It includes nothing but the standard's."""
    interface = _INTERFACE.read_text(encoding="utf-8")
    prefix = description.prefix
    if prefix == DEFAULT_PREFIX:
        return interface
    guard = f"NNEFC_NETWORK_{prefix}_H"
    faces = [
        f" *     {role} {i}: {_in_comment(tensor)}"
        for role, tensors in (("input", description.inputs), ("output", description.outputs))
        for i, tensor in enumerate(tensors)
    ]
    return "\n".join(
        [
            f"/* {prefix}.h - a network compiled by nnefc: {printable(description.model)}",
            " *",
            *faces,
            " *",
            f" * {prefix}_create and the others are the functions that nnefc.h, which follows, documents as",
            f" * nnefc_create and so on; NNEFC_INTERFACE({prefix}) has all of them. */",
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            interface.rstrip(),
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            declarations(description),
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "#endif",
            "",
        ]
    )


def _in_comment(tensor: TensorDescription) -> str:
    sizes = ", ".join(map(str, tensor.shape))
    return f"{printable(tensor.name)}, {tensor.dtype}[{sizes}]"
