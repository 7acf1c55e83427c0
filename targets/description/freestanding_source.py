"""Writes the C of a freestanding network: a header, the function that runs the network, and an arena.

    #define DIGITS_ARENA_BYTES 4096
    int digits_run(const float *image, float *scores, void *arena);

The arena has all memory of a run. The header has its size as a macro, so that programs can allocate it without a heap.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from nnefc.targets.description.library import (
    DEFAULT_PREFIX,
    ELEMENT_TYPES,
    LibraryDescription,
    TensorDescription,
)
from nnefc.targets.description.text_boundary import is_text, text_bytes
from nnefc.targets.description.weights_image import (
    HEADER_BYTES,
    UNFIT,
    WeightsImage,
    check_declaration,
    check_functions,
    image_macros,
)

__all__ = [
    "ARENA_ALIGNMENT",
    "C_TYPES",
    "aligned",
    "arena_bytes",
    "arena_source",
    "fixed_sizes",
    "freestanding_functions",
    "freestanding_header",
    "freestanding_source",
    "parameter_names",
    "printable",
    "prototype",
    "reset_declaration",
    "shape_declaration",
    "shape_elements",
    "tensor_macros",
    "text_begin",
]

ARENA_ALIGNMENT = 64
UNALIGNED = -2
"""The required alignment of an arena, and the status of a run with an unaligned one."""

C_TYPES = {
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bool": "uint8_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
}
"""The types of elements at the API boundary; 16-bit floats have none of their own."""

_TAKEN = (
    r"auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|inline|int|long|register|"
    r"restrict|return|short|signed|sizeof|static|struct|switch|typedef|union|unsigned|void|volatile|while|arena|class|new|"
    r"delete|this|template|bool|true|false|private|public|protected|operator|namespace|using|and|and_eq|bitand|bitor|"
    r"compl|not|not_eq|or|or_eq|xor|xor_eq|try|catch|throw|export|friend|virtual|explicit|mutable|typename|typeid|nullptr|"
    r"noexcept|constexpr|consteval|constinit|concept|requires|decltype|alignas|alignof|static_assert|thread_local|"
    r"const_cast|dynamic_cast|reinterpret_cast|static_cast|char8_t|char16_t|char32_t|wchar_t|co_await|co_return|co_yield|"
    r"asm|typeof|typeof_unqual|linux|unix|weights|failed|workspace|states|texts|text_memory|text_memory_bytes|memcpy|memset|size_t|u?int(8|16|32|64)_t|nnefc_\w*"
)
"""Words of C, of C++ and of GNU's C, what the functions use themselves, and the name of another parameter."""


def arena_bytes(description: LibraryDescription) -> int:
    """Return the bytes of an arena: the workspace, the states after it, and the handles of strings."""
    return text_begin(description) + text_bytes(description)


def text_begin(description: LibraryDescription) -> int:
    """Return the offset in the arena of the handles of strings, which are after the states."""
    end = aligned(description.workspace_bytes) + description.state_bytes
    return aligned(end) if text_bytes(description) else end


def freestanding_functions(description: LibraryDescription, image: WeightsImage | None = None) -> tuple[str, ...]:
    """Return the names of the public functions."""
    weights = [] if image is None else ["check_weights", *["decrypt_weights"] * image.encrypted]
    names = [*weights, *["reset"] * bool(description.state_bytes), "run"]
    return tuple(f"{description.prefix}_{name}" for name in names)


_WEIGHTS = "const void *weights"


def freestanding_header(description: LibraryDescription, image: WeightsImage | None = None) -> str:
    """Return the header of a network; with `image`, the trained values are passed to each run."""
    prefix, upper = description.prefix, description.prefix.upper()
    more = [_WEIGHTS] * (image is not None)
    kept = f"in the section .rodata.{prefix}_constants" if image is None else "in a file, which is given to each run"
    sizes = {
        "ARENA_BYTES": (arena_bytes(description), "memory that can be written, for a run"),
        "ARENA_ALIGNMENT": (ARENA_ALIGNMENT, "what its address is a multiple of"),
        "CONSTANT_BYTES": (description.constant_bytes, kept),
    }
    macros = [f"#define {upper}_{name} {value} /* {comment} */" for name, (value, comment) in sizes.items()]
    title = "a network compiled by nnefc" + ("" if prefix == DEFAULT_PREFIX else f": {printable(description.model)}")
    return "\n".join(
        [
            f"/* {prefix}.h - {title}, for {printable(description.target)} */",
            f"#ifndef NNEFC_NETWORK_{prefix}_H",
            f"#define NNEFC_NETWORK_{prefix}_H",
            "",
            "#include <stdint.h>",
            "",
            *macros,
            *([] if image is None else image_macros(prefix, image)),
            *tensor_macros(description),
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            "/* Runs the network once. Nothing is allocated, and all that is written is in the outputs and the arena:",
            " * runs with arenas of their own may interrupt each other. Pointers are aligned to their elements.",
            f" * The result is 0, {UNALIGNED} for an arena that is not aligned, or another number if the inputs hold",
            " * an index out of range or the like. Runs on several cores, or in threads that take turns, need a lock",
            " * for the result to be their own. */",
            *shape_declaration(description),
            f"{prototype(description, *more)};",
            *reset_declaration(description, *more),
            *([] if image is None else check_declaration(prefix, image)),
            "",
            "/* An arena, which the linker adds to programs that name it; others bring their own. */",
            f"extern uint8_t {prefix}_arena[{upper}_ARENA_BYTES{' + 1' * (not arena_bytes(description))}];",
            "",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "#endif",
            "",
        ]
    )


def tensor_macros(description: LibraryDescription) -> list[str]:
    """Return macros for the number of elements of inputs and outputs, and for scales and zero points of quantized
    ones.
    """
    lines = []
    for role, tensors in (("INPUT", description.inputs), ("OUTPUT", description.outputs)):
        for index, tensor in enumerate(tensors):
            count = math.prod(_max_shape(tensor))
            lines.append(
                f"#define {description.prefix.upper()}_{role}_{index}_ITEMS {count} /* {_in_comment(tensor)} */"
            )
    return [*lines, *_scalings(description.prefix, description)]


def _scalings(prefix: str, description: LibraryDescription) -> list[str]:
    """Return macros for the scales and zero points of quantized inputs and outputs."""
    lines = []
    for role, tensors in (("INPUT", description.inputs), ("OUTPUT", description.outputs)):
        for index, tensor in enumerate(tensors):
            if tensor.scale is not None:
                name = f"{prefix.upper()}_{role}_{index}"
                lines += [
                    f"#define {name}_SCALE {_float(tensor.scale)} /* reals are (integer - zero point) * scale */",
                    f"#define {name}_ZERO_POINT {tensor.zero_point}",
                ]
    return lines


def _float(value: float) -> str:
    """Return a float32 literal with the fewest digits that identify it."""
    digits = f"{value:.9g}"
    return f"{digits}f" if any(c in digits for c in ".e") else f"{digits}.0f"


def freestanding_source(description: LibraryDescription, image: WeightsImage | None = None) -> str:
    """Return the C file that defines the functions of a network."""
    prefix, names = description.prefix, parameter_names(description)
    pointers = ["void *"] * len(names) + ["uint8_t *", "uint8_t *", "const uint8_t *"]
    elements, sizes = shape_elements(description), description.data_dependent
    pointers += ["int64_t *"] * bool(sizes)
    more = [_WEIGHTS] * (image is not None)
    constants = f"{prefix}_constants" if description.constant_bytes else "(const uint8_t *)0"
    constants = constants if image is None else f"((const uint8_t *)weights + {HEADER_BYTES})"
    state = aligned(description.workspace_bytes)
    arguments = [*(f"(void *){name}" for name in names), f"(uint8_t *)arena + {state}", "arena", constants]
    arguments += ["nnefc_sizes"] * bool(sizes)
    return "\n".join(
        [
            '#include "bare/failures.h"',
            "#include <stddef.h>",
            f"extern const uint8_t {prefix}_constants[];",
            "void *memcpy(void *, const void *, size_t);",
            "void *memset(void *, int, size_t);",
            f"int32_t nnefc_network({', '.join(pointers)});",
            f"{prototype(description, *more)};",
            *reset_declaration(description, *more),
            *([] if image is None else _checks(prefix, image)),
            f"{prototype(description, *more)} {{",
            *([] if image is None else [f"    if (!nnefc_fits(weights, 0u, 6u)) return {UNFIT};"]),
            f"    if (((uintptr_t)arena & {ARENA_ALIGNMENT - 1}u) != 0u) return {UNALIGNED};",
            "    int32_t nnefc_before = nnefc_failed;",
            "    nnefc_failed = 0;",
            *[f"    int64_t nnefc_sizes[{len(sizes)}] = {{0}};"] * bool(sizes),
            f"    int32_t nnefc_status = nnefc_network({', '.join(arguments)});",
            "    nnefc_status |= nnefc_failed;",
            "    nnefc_failed = nnefc_before;",
            *(f"    {elements[key]} = (int32_t)nnefc_sizes[{number}];" for number, key in enumerate(sizes)),
            *fixed_sizes(description),
            "    return (int)nnefc_status;",
            "}",
            *_reset(description, state, constants, more),
            "",
        ]
    )


def _checks(prefix: str, image: WeightsImage) -> list[str]:
    return [*check_declaration(prefix, image), *check_functions(prefix, image, "nnefc_")]


def arena_source(description: LibraryDescription) -> str:
    """Return the assembler file that defines an arena; a linker includes it only in programs that use it.

    It is not C, since objects of C record the size of enumerations, and linkers warn about programs with another one.
    """
    name = f"{description.prefix}_arena"
    size = max(1, arena_bytes(description))
    lines = [
        f'    .section .bss.{name},"aw",%nobits',
        f"    .balign {ARENA_ALIGNMENT}",
        f"    .globl {name}",
        f"    .type {name}, %object",
        f"{name}:",
        f"    .zero {size}",
        f"    .size {name}, {size}",
        '    .section .note.GNU-stack,"",%progbits',
    ]
    return "\n".join([*lines, ""])


def reset_declaration(description: LibraryDescription, *more: str) -> list[str]:
    """Return the declaration of the function that initializes the states, if there are any."""
    if not description.state_bytes:
        return []
    return [
        "/* Gives the states, which runs keep in the arena, their first values: call it before the first run. */",
        f"void {description.prefix}_reset({', '.join(['void *arena', *more])});",
    ]


def _reset(description: LibraryDescription, state: int, constants: str, more: Sequence[str]) -> list[str]:
    if not description.state_bytes:
        return []
    given = min(description.constant_bytes - description.state_initial_offset, description.state_bytes)
    tail = description.state_bytes - given
    first = f"{constants} + {description.state_initial_offset}"
    return [
        f"void {description.prefix}_reset({', '.join(['void *arena', *more])}) {{",
        *[f"    memcpy((uint8_t *)arena + {state}, {first}, {given});"] * bool(given),
        *[f"    memset((uint8_t *)arena + {state + given}, 0, {tail});"] * bool(tail),
        "}",
    ]


def prototype(description: LibraryDescription, *more: str) -> str:
    """Return the prototype of the function that runs a network, without a semicolon.

    Args:
        description: of the network.
        more: parameters after the arena.
    """
    names, shapes = parameter_names(description), shape_names(description)
    count = len(description.inputs)
    inputs = zip(description.inputs, names[:count], strict=True)
    parameters = [
        f"const char *const *{name}" if is_text(tensor) else f"const {C_TYPES[tensor.dtype]} *{name}"
        for tensor, name in inputs
    ]
    for index, (tensor, name) in enumerate(zip(description.outputs, names[count:], strict=True)):
        parameters.append(f"const char **{name}" if is_text(tensor) else f"{C_TYPES[tensor.dtype]} *{name}")
        if index in shapes:
            parameters.append(f"int32_t {shapes[index]}[{len(tensor.shape)}]")
    return f"int {description.prefix}_run({', '.join([*parameters, 'void *arena', *more])})"


def parameter_names(description: LibraryDescription) -> list[str]:
    """Return distinct names of the tensors as C identifiers."""
    roles: Sequence[tuple[str, Sequence[TensorDescription]]]
    roles = (("input", description.inputs), ("output", description.outputs))
    like = {role: [re.sub(r"[^A-Za-z0-9_]", "_", tensor.name) for tensor in tensors] for role, tensors in roles}
    taken = {name for names in like.values() for name in names}
    names: list[str] = []
    for role, wanted in like.items():
        for index, name in enumerate(wanted):
            usual = re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,30}", name) and not re.fullmatch(_TAKEN, name)
            if not usual or name in names:
                name = f"{role}_{index}"
                while name in taken:
                    name += "_"
            names.append(name)
    return names


def shape_declaration(description: LibraryDescription) -> list[str]:
    """Return the comment about the parameters for shapes, if there are any."""
    names = ", ".join(shape_names(description).values())
    return [
        f"/* A run whose result is 0 writes the sizes of outputs that depend on the data to {names}.",
        " * The memory of these outputs has room for their maximum sizes; elements are dense in the sizes written. */",
    ] * bool(names)


def shape_names(description: LibraryDescription) -> dict[int, str]:
    """Return the names of the parameters for data-dependent shapes, by the number of the output."""
    names, count = parameter_names(description), len(description.inputs)
    found = {}
    for index in dict(description.data_dependent):
        name = f"{names[count + index]}_shape"
        while name in names:
            name += "_"
        names.append(name)
        found[index] = name
    return found


def shape_elements(description: LibraryDescription) -> dict[tuple[int, int], str]:
    """Return the elements of these parameters, by output and axis."""
    return {
        (index, axis): f"{name}[{axis}]"
        for index, name in shape_names(description).items()
        for axis in range(len(description.outputs[index].shape))
    }


def fixed_sizes(description: LibraryDescription) -> list[str]:
    """Return statements that write the elements of these parameters that are not data-dependent."""
    return [
        f"    {element} = {description.outputs[index].shape[axis]};"
        for (index, axis), element in shape_elements(description).items()
        if (index, axis) not in description.data_dependent
    ]


def _max_shape(tensor: TensorDescription) -> tuple[int, ...]:
    return tensor.limits or tuple(map(int, tensor.shape))


def _in_comment(tensor: TensorDescription) -> str:
    described = f"{printable(tensor.name)}: {tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
    if is_text(tensor):
        return described
    size = math.prod(_max_shape(tensor)) * ELEMENT_TYPES[tensor.dtype][1]
    return f"{described}, {'at most ' * bool(tensor.limits)}{size} bytes"


def printable(text: str) -> str:
    """Return a name from a model, without characters that would end a comment or a line."""
    one_line = "".join(c if c.isprintable() and c not in "*/\\?" else "_" for c in text)
    return one_line.encode("ascii", "replace").decode().replace("?", "_")[:80]


def aligned(size: int) -> int:
    """Round a number of bytes up to a multiple of the arena's alignment."""
    return -(-size // ARENA_ALIGNMENT) * ARENA_ALIGNMENT
