"""Strings at the API boundary of C source: `const char *` outside, handles in the arena inside.

void hello_run(const char *const *x, const char **y, void *arena)
    reads the 6 strings of x: handles, int64
    calls the kernels
    writes the strings of the handles for y
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from nnefc.targets.description.library import LibraryDescription, TensorDescription

__all__ = ["is_text", "text_bytes", "text_definitions", "text_names", "text_reads", "text_writes"]

_BYTES = """\
/* The bytes of a string, which a zero byte ends. */
static inline const char *nnefc__text_bytes(int64_t text) {
    return text == 0 ? "" : (const char *)(intptr_t)text;
}
"""

_OF_BYTES = """\
static inline int64_t nnefc__text_of_bytes(const char *bytes) {
    return bytes == 0 || *bytes == 0 ? 0 : (int64_t)(intptr_t)bytes;
}
"""

_READ = """\
/* Reads the strings of an input. */
static inline void nnefc__text_read(const char *const *strings, int64_t *texts, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        texts[i] = nnefc__text_of_bytes(strings[i]);
    }
}
"""

_WRITE = """\
/* Writes the strings of an output. */
static inline void nnefc__text_write(const int64_t *texts, const char **strings, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        strings[i] = nnefc__text_bytes(texts[i]);
    }
}
"""


_DEFINITIONS = {
    "nnefc__text_bytes": _BYTES,
    "nnefc__text_of_bytes": _OF_BYTES,
    "nnefc__text_read": _READ,
    "nnefc__text_write": _WRITE,
}

_HANDLE = 8
_ALIGNMENT = 64


def is_text(tensor: TensorDescription) -> bool:
    """Returns whether the elements of a tensor are strings."""
    return tensor.dtype == "string"


def text_definitions(text: str) -> list[str]:
    """Return the definitions of the string functions that C code calls."""
    found: list[str] = []
    for name, definition in reversed(_DEFINITIONS.items()):
        if re.search(rf"\b{name}\(", " ".join([text, *found])):
            found.insert(0, definition)
    return found


def text_names(description: LibraryDescription) -> dict[str, str]:
    """Return the arrays of handles, by the placeholders of the inputs and outputs that are strings."""
    return {operand: f"nnefc__text_{operand.replace(' ', '')}" for operand, _ in _tensors(description)}


def text_bytes(description: LibraryDescription) -> int:
    """Return the bytes of the arena for handles."""
    return sum(map(_bytes, dict(_tensors(description)).values()))


def text_reads(description: LibraryDescription, names: Mapping[str, str], begin: int) -> list[str]:
    """Return the statements before the network's: the arrays of handles, and the handles of the inputs.

    Args:
        description: of the network.
        names: of the parameters, by the placeholders of inputs and outputs.
        begin: the offset of the handles in the arena.
    """
    lines = []
    for (operand, tensor), name in zip(_tensors(description), text_names(description).values(), strict=True):
        lines.append(f"    int64_t *const {name} = (int64_t *)(void *)((uint8_t *)arena + {begin});")
        if operand.startswith("input"):
            lines.append(f"    nnefc__text_read({names[operand]}, {name}, {math.prod(map(int, tensor.shape))});")
        begin += _bytes(tensor)
    return lines


def text_writes(
    description: LibraryDescription, names: Mapping[str, str], sizes: Mapping[tuple[int, int], str]
) -> list[str]:
    """Return the statements after the network's, which write the strings of the outputs.

    Args:
        description: of the network.
        names: as of :func:`text_reads`.
        sizes: the variables with data-dependent sizes, by output and axis.
    """
    lines = []
    texts = text_names(description)
    for operand, tensor in _tensors(description):
        if operand.startswith("output"):
            index = int(operand.split()[1])
            factors = [sizes.get((index, axis), str(size)) for axis, size in enumerate(tensor.shape)]
            count = " * ".join(f"(int64_t){each}" for each in factors) if tensor.limits else str(_count(tensor))
            lines.append(f"    nnefc__text_write({texts[operand]}, {names[operand]}, {count});")
    return lines


def _tensors(description: LibraryDescription) -> list[tuple[str, TensorDescription]]:
    roles = (("input", description.inputs), ("output", description.outputs))
    return [(f"{role} {n}", each) for role, tensors in roles for n, each in enumerate(tensors) if is_text(each)]


def _count(tensor: TensorDescription) -> int:
    return math.prod(tensor.limits or map(int, tensor.shape))


def _bytes(tensor: TensorDescription) -> int:
    return -(-_count(tensor) * _HANDLE // _ALIGNMENT) * _ALIGNMENT
