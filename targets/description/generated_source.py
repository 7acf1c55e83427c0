"""Assembles the generated functions of a network to one C file and a header: C99, for any compiler and machine.

    digits.h    int digits_run(const float *image, float *probability, void *arena);
    digits.c    constants, helper functions, kernels, and digits_run

The arena has all memory of a run. Nothing is allocated, and no variables outside of the arena are modified.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nnefc.targets.description.freestanding_source import (
    aligned,
    arena_bytes,
    fixed_sizes,
    parameter_names,
    printable,
    prototype,
    reset_declaration,
    shape_declaration,
    shape_elements,
    tensor_macros,
    text_begin,
)
from nnefc.targets.description.library import LibraryDescription
from nnefc.targets.description.text_boundary import (
    text_definitions,
    text_names,
    text_reads,
    text_writes,
)
from nnefc.targets.description.weights_image import (
    UNFIT,
    WeightsImage,
    check_declaration,
    check_functions,
    image_macros,
)

__all__ = [
    "SOURCE_ALIGNMENT",
    "CProgram",
    "ConstantUse",
    "constant_uses",
    "generated_header",
    "generated_source",
]

SOURCE_ALIGNMENT = 8
"""The required alignment of an arena, and of weights in a separate file: that of the widest element type."""

_OWN, _OWN_MACRO = "nnefc__", "NNEFC__"
_STRING_FUNCTIONS = frozenset({"memcmp", "memcpy", "memset", "strcmp", "strlen"})
_CONSTANT = re.compile(r"@constant (\d+) (\w+)@")
_WIDTH = 120
_WEIGHTS = "const void *weights"
_TEXT_MEMORY = ("char *text_memory", "uint32_t text_memory_bytes")
_TYPE = re.compile(r"\b(const|u?int\d+_t|float|double) (?=\w)")


@dataclass(frozen=True)
class CProgram:
    """The functions of a network in C.

    Names of the file's own functions begin with `nnefc__`, and macros with `NNEFC__`, which are replaced by the prefix.
    The statements of the entry contain placeholders: `@input N@` and `@output N@`, `@size N@` for data-dependent sizes
    of outputs, and `@constant OFFSET TYPE@`.

    Attributes:
        helpers: definitions that the functions need, in order.
        functions: the kernels, each after a comment.
        entry: the statements of the function that runs the network.
        externs: functions of the C library that are called.
        reports: whether a kernel may report a failure.
        makes_texts: whether a kernel makes strings, in memory that the caller provides.
    """

    helpers: tuple[str, ...]
    functions: tuple[str, ...]
    entry: tuple[str, ...]
    externs: frozenset[str]
    reports: bool
    makes_texts: bool = False


@dataclass(frozen=True)
class ConstantUse:
    """A constant that the entry reads: its offset, and the element type."""

    offset: int
    dtype: str


def constant_uses(program: CProgram) -> list[ConstantUse]:
    """Return the constants that the entry reads, by ascending offsets."""
    found = {(int(offset), dtype) for line in program.entry for offset, dtype in _CONSTANT.findall(line)}
    return [ConstantUse(*each) for each in sorted(found)]


def generated_header(
    description: LibraryDescription, image: WeightsImage | None = None, makes_texts: bool = False
) -> str:
    """Return the header of a network.

    Args:
        description: of the network.
        image: of the trained values, if these are passed to each run.
        makes_texts: whether runs need memory for strings.
    """
    prefix, upper = description.prefix, description.prefix.upper()
    more = [_WEIGHTS] * (image is not None)
    size = max(1, -(-arena_bytes(description) // SOURCE_ALIGNMENT))
    kept = f"{prefix}.c" if image is None else "a file of their own, which is given to each run"
    lines = [
        f"/* {prefix}.h - a network compiled by nnefc: {printable(description.model)}, for "
        f"{printable(description.target)} */",
        f"#ifndef NNEFC_NETWORK_{prefix}_H",
        f"#define NNEFC_NETWORK_{prefix}_H",
        "",
        "#include <stdint.h>",
        "",
        f"#define {upper}_ARENA_BYTES {arena_bytes(description)} /* memory that can be written, for a run */",
        f"#define {upper}_ARENA_ALIGNMENT {SOURCE_ALIGNMENT} /* what its address is a multiple of */",
        f"#define {upper}_CONSTANT_BYTES {description.constant_bytes} /* in {kept} */",
        *([] if image is None else image_macros(prefix, image)),
        *tensor_macros(description),
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        "/* Runs the network once. Nothing is allocated, and all that is written is in the outputs and the arena: runs",
        " * with arenas of their own may interrupt each other, or run in several threads. Tensors are dense, the last",
        " * dimension first, and aligned to their elements. The result is 0, or another number if the inputs hold an",
        " * index out of range or the like. */",
        *shape_declaration(description),
        *_text_declaration(description, makes_texts),
        *_wrapped([f"{prototype(description, *more, *_TEXT_MEMORY[: 2 * makes_texts])};"]),
        *reset_declaration(description, *more),
        *([] if image is None else check_declaration(prefix, image)),
        "",
        f"#ifdef {upper}_STATIC_ARENA",
        "/* An arena, which the C file defines if it is compiled with this macro, too. */",
        f"extern uint64_t {prefix}_arena[{size}];",
        "#endif",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def generated_source(
    program: CProgram,
    description: LibraryDescription,
    arrays: Sequence[str],
    addresses: Mapping[ConstantUse, str],
    states: Sequence[str],
    image: WeightsImage | None = None,
) -> str:
    """Return the C file of a network.

    Args:
        program: its functions.
        description: of the network.
        arrays: the lines that define the constants.
        addresses: the expression for each constant that the entry reads, by the names in `arrays`.
        states: statements that initialize the states.
        image: of the trained values, if these are passed to each run.
    """
    prefix, upper = description.prefix, description.prefix.upper()
    names = parameter_names(description)
    parameters = dict(zip(_operands(description), names, strict=True))
    operands = parameters | text_names(description)
    shapes = shape_elements(description)
    operands |= {f"size {number}": shapes[key] for number, key in enumerate(description.data_dependent)}
    entry = [_resolved(line, addresses, operands) for line in program.entry]
    more = [_WEIGHTS] * (image is not None)
    size = max(1, -(-arena_bytes(description) // SOURCE_ALIGNMENT))
    reads = text_reads(description, parameters, text_begin(description))
    writes = text_writes(description, parameters, shapes)
    body = "\n".join([*entry, *reads, *writes])
    unused = [f"    (void){name};" for name in [*names, "arena"] if not _uses(name, body)]
    if _uses("workspace", body) or _uses("states", body):
        unused = [line for line in unused if "arena" not in line]
    called = [*program.helpers, *program.functions, body]
    functions = [line for each in program.functions for line in _wrapped(each.split("\n"))]
    file = [
        *_title(description),
        f'#include "{prefix}.h"',
        "",
        *_includes(program, bool(states)),
        *_macros(),
        *_COPY_MACRO * any(_COPY in helper for helper in program.helpers),
        *text_definitions(" ".join(called)),
        *[line for each in program.helpers for line in _wrapped(each.split("\n"))],
        *arrays,
        *functions,
        *([] if image is None else check_functions(prefix, image, _OWN)),
        *_wrapped([f"{prototype(description, *more, *_TEXT_MEMORY[: 2 * program.makes_texts])} {{"]),
        *["    int32_t failed = 0;"] * program.reports,
        *[f"    {_OWN}texts texts = {{text_memory, text_memory_bytes}};"] * program.makes_texts,
        *_areas(description, body),
        *unused,
        *([] if image is None else _fitting(image)),
        *reads,
        *_wrapped(entry),
        *fixed_sizes(description),
        *_after_success(writes, program.reports),
        f"    return {'(int)failed' if program.reports else '0'};",
        "}",
        *_reset(description, states, more),
        "",
        f"#ifdef {upper}_STATIC_ARENA",
        f"uint64_t {prefix}_arena[{size}];",
        "#endif",
        "",
    ]
    text = "\n".join(file)
    return re.sub(rf"\b{_OWN}", f"{prefix}_", re.sub(rf"\b{_OWN_MACRO}", f"{upper}_", text))


def _text_declaration(description: LibraryDescription, makes_texts: bool) -> list[str]:
    """Return the comment about strings, if there are any."""
    if not text_names(description):
        return []
    first = "/* Strings end with a zero byte. Those of outputs are strings of inputs, or constants of the network"
    if not makes_texts:
        return [f"{first}. */"]
    return [f"{first},", " * or made by the run, in text_memory: if that is too small, the result is not 0. */"]


def _after_success(lines: Sequence[str], reports: bool) -> list[str]:
    """Return statements that are executed only if no kernel has reported a failure."""
    if not lines or not reports:
        return list(lines)
    return ["    if (failed == 0) {", *(f"    {line}" for line in lines), "    }"]


def _fitting(image: WeightsImage) -> list[str]:
    """Return statements that end a run whose weights image does not match the code."""
    return [f"    if (!{_OWN}fits(weights, 0u, {len(image.words)}u)) {{", f"        return {UNFIT};", "    }"]


def _title(description: LibraryDescription) -> list[str]:
    return [
        f"/* {description.prefix}.c - a network compiled by nnefc: {printable(description.model)}, for "
        f"{printable(description.target)}.",
        " *",
        " * C99, or C++. Compile it with optimization, and without options such as -ffast-math that change arithmetic.",
        " * Integers are in two's complement, floats those of IEEE 754, and the machine is little-endian. */",
    ]


def _includes(program: CProgram, sets_states: bool) -> list[str]:
    others = program.externs - _STRING_FUNCTIONS
    strings = ["#include <string.h>"] * (sets_states or bool(program.externs & _STRING_FUNCTIONS))
    if not strings and any(_COPY in helper for helper in program.helpers):
        strings = ["#if !defined(__GNUC__)", "#include <string.h>", "#endif"]
    return [*["#include <math.h>"] * bool(others), "#include <stdint.h>", *strings, ""]


def _macros() -> list[str]:
    return [
        "#if defined(__ARM_BIG_ENDIAN) || defined(__big_endian__) || \\",
        "    (defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)",
        '#error "the code is for little-endian machines"',
        "#endif",
        "#if defined(__FAST_MATH__)",
        '#error "-ffast-math changes results: compile this file without it"',
        "#endif",
        "",
        "/* What constants are defined with: an attribute or a pragma for their section, say. */",
        "#ifndef NNEFC__CONSTANTS",
        "#define NNEFC__CONSTANTS",
        "#endif",
        "",
        "/* Pointers whose memory nothing else points to, in C++ too where compilers have them. */",
        "#if defined(__cplusplus) || defined(_MSC_VER)",
        "#if defined(__GNUC__) || defined(_MSC_VER)",
        "#define NNEFC__NO_ALIAS __restrict",
        "#else",
        "#define NNEFC__NO_ALIAS",
        "#endif",
        "#else",
        "#define NNEFC__NO_ALIAS restrict",
        "#endif",
        "",
        "/* Kernels share the memory of the arena, each with its own types: they are not inlined into each other. */",
        "#if defined(__GNUC__)",
        "#define NNEFC__KERNEL static __attribute__((noinline))",
        "#else",
        "#define NNEFC__KERNEL static",
        "#endif",
        "",
    ]


_COPY = f"{_OWN_MACRO}COPY"
_COPY_MACRO = [
    "/* Copies some bytes: by a load and a store, also where -ffreestanding makes memcpy a function like others. */",
    "#if defined(__GNUC__)",
    f"#define {_COPY} __builtin_memcpy",
    "#else",
    f"#define {_COPY} memcpy",
    "#endif",
    "",
]


def _operands(description: LibraryDescription) -> list[str]:
    """Return the entry's placeholders of inputs and outputs."""
    inputs = [f"input {index}" for index in range(len(description.inputs))]
    return [*inputs, *(f"output {index}" for index in range(len(description.outputs)))]


def _resolved(line: str, addresses: Mapping[ConstantUse, str], operands: Mapping[str, str]) -> str:
    def address(found: re.Match[str]) -> str:
        return addresses[ConstantUse(int(found[1]), found[2])]

    return re.sub(r"@((?:input|output|size) \d+)@", lambda found: operands[found[1]], _CONSTANT.sub(address, line))


def _areas(description: LibraryDescription, body: str) -> list[str]:
    """Return declarations of the parts of the arena that the statements use."""
    state = aligned(description.workspace_bytes)
    lines = []
    if _uses("workspace", body):
        lines.append("    uint8_t *const workspace = (uint8_t *)arena;")
    if _uses("states", body):
        lines.append(f"    uint8_t *const states = (uint8_t *)arena + {state};")
    return lines


def _reset(description: LibraryDescription, states: Sequence[str], more: Sequence[str]) -> list[str]:
    if not description.state_bytes:
        return []
    begin = aligned(description.workspace_bytes)
    unused = ["    (void)weights;"] * (bool(more) and not any(_uses("weights", line) for line in states))
    return [
        "",
        f"void {description.prefix}_reset({', '.join(['void *arena', *more])}) {{",
        f"    uint8_t *const states = (uint8_t *)arena + {begin};",
        *unused,
        f"    memset(states, 0, {description.state_bytes});",
        *states,
        "}",
    ]


def _wrapped(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines, with long ones wrapped."""
    for line in lines:
        if len(line) <= _WIDTH:
            yield line
            continue
        indent = " " * (len(line) - len(line.lstrip()))
        parts = textwrap.wrap(
            _TYPE.sub(r"\1\0", re.sub(r" \*(?=[\w)])", "\0*", line.strip())),  # a type stays with its star and name
            _WIDTH,
            initial_indent=indent,
            subsequent_indent=f"{indent}    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        yield from (part.replace("\0", " ") for part in parts)


def _uses(name: str, text: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None
