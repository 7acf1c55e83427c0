"""Writes the C file of a library: tables with its metadata, and the call of the network's entry."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from nnefc.targets.description.c_strings import c_literal, c_string
from nnefc.targets.description.embedded_metadata import embedded_metadata
from nnefc.targets.description.formula_source import formula_functions
from nnefc.targets.description.library import (
    DEFAULT_PREFIX,
    DEVICES,
    ELEMENT_TYPES,
    LibraryDescription,
    TensorDescription,
    tensor_bytes,
)
from nnefc.targets.description.library_functions import declarations, functions_of
from nnefc.targets.description.specialized_source import calls, prototypes, sizes_spelled, specialized_functions

__all__ = ["model_source", "model_sources"]

_CONSTANTS = """#ifdef NNEFC_CONSTANTS_AT
#define nnefc_constants ((const uint8_t *)NNEFC_CONSTANTS_AT)
#define ARRIVED ((const uint64_t *)NNEFC_CONSTANTS_END)
#else
extern const uint8_t nnefc_constants[];
#define ARRIVED NULL
#endif"""
_ARRIVED = """#ifdef __wasm__
    .arrived = ARRIVED,
#endif"""


def _c_size(size: int | str, dimensions: Sequence[str]) -> str:
    """Return a size in the tables: a number, -1 less the index of a dynamic dimension, or the smallest int64 for a
    data-dependent size.
    """
    if isinstance(size, int):
        return f"INT64_C({size})"
    return str(-1 - dimensions.index(size)) if size in dimensions else "INT64_MIN"


def _c_bytes(tensor: TensorDescription) -> str:
    """Return the size of a tensor as an expression in C; the size of the pointers of strings depends on the machine."""
    size = tensor_bytes(tensor)
    if tensor.dtype != "string":
        return f"UINT64_C({size})"
    return f"UINT64_C({size // ELEMENT_TYPES['string'][1]}) * sizeof(nnefc_string)"


def _integers(*numbers: int) -> str:
    return ", ".join(f"INT64_C({number})" for number in numbers)


def _tensor_table(
    role: str,
    tensors: tuple[TensorDescription, ...],
    dimensions: Sequence[str] = (),
    data_dependent: Collection[tuple[int, int]] = (),
) -> str:
    """Return the shapes and the array of nnefc_tensor called `role`; empty without tensors, since C has no empty
    arrays.
    """
    lines = []
    for i, tensor in enumerate(tensors):
        if tensor.shape:
            sizes = ", ".join(
                "NNEFC_COUNTED" if (i, axis) in data_dependent else _c_size(size, dimensions)
                for axis, size in enumerate(tensor.shape)
            )
            lines.append(f"static const int64_t {role}_shape_{i}[] = {{{sizes}}};")
    if tensors:
        lines.append(f"static const nnefc_tensor {role}[] = {{")
        for i, tensor in enumerate(tensors):
            shape = f"{role}_shape_{i}" if tensor.shape else "NULL"
            kind, rank = ELEMENT_TYPES[tensor.dtype][0], len(tensor.shape)
            lines.append(f"    {{{c_literal(tensor.name)}, {kind}, {rank}, {shape}, {_c_bytes(tensor)}}},")
        lines.append("};")
    return "\n".join(lines)


def model_sources(description: LibraryDescription) -> dict[str, str]:
    """Return the C files of a library by name: that of its network, or one for each ISA level and one with their
    table.
    """
    if not description.levels:
        return {"model.c": model_source(description)}
    levels = [
        replace(
            level,
            prefix=DEFAULT_PREFIX,
            weights=description.weights,
            checksum=description.checksum,
            source=description.source,
        )
        for level in description.levels
    ]
    sources = {f"model{n}.c": model_source(level, _IsaLevelNames(n, level)) for n, level in enumerate(levels)}
    return {**sources, "isa_levels.c": _isa_levels_source(description)}


def _isa_levels_source(description: LibraryDescription) -> str:
    """Return the C file with the table of ISA levels, and the definitions that a library has once."""
    names = [_IsaLevelNames(n, level).model for n, level in enumerate(description.levels)]
    return "\n".join(
        [
            '#include "levels/isa_levels.h"',
            *(f"extern const nnefc_model {name};" for name in names),
            f"const nnefc_model *const nnefc_levels[] = {{{', '.join(f'&{name}' for name in names)}}};",
            f"const uint32_t nnefc_level_count = {len(names)};",
            f"const uint8_t nnefc_metadata[] = {{{', '.join(map(str, embedded_metadata(description)))}}};",
            *_aliases(description),
            "",
        ]
    )


@dataclass(frozen=True)
class _IsaLevelNames:
    """The symbols of an ISA level's network: those of a library without levels, with the number of the level
    appended.
    """

    number: int
    level: LibraryDescription

    @property
    def model(self) -> str:
        """The symbol of the model description."""
        return f"nnefc_model_of_level{self.number}"

    @property
    def definitions(self) -> list[str]:
        """Return macros that rename the symbols of a library without ISA levels."""
        lines = ["#undef nnefc_this_model", f"#define nnefc_this_model {self.model}"]
        if self.number:
            functions = [f"{name}{part}" for name in _ENTRIES for part in self._programs]
            lines += [f"#define {name} {self._own(name)}" for name in functions]
        return lines

    @property
    def _programs(self) -> list[str]:
        return ["", *(f"_{number}" for number, _ in enumerate(self.level.specializations, 1))]

    def _own(self, name: str) -> str:
        entry = max((each for each in _ENTRIES if name.startswith(each)), key=len)
        return f"{entry}_level{self.number}{name.removeprefix(entry)}"


_ENTRIES = ("nnefc_network", "nnefc_network_sizes")


def model_source(description: LibraryDescription, symbols: _IsaLevelNames | None = None) -> str:
    """Return the C file of one network, with its description and the call of its entry; for an ISA level, with the
    names `symbols`.
    """
    counts = len(description.inputs), len(description.outputs)
    names = [dimension.name for dimension in description.dimensions]
    is_dynamic, device = description.is_dynamic, DEVICES[description.device]
    has_parts = bool(description.part_dimensions)
    pointers = ["void *"] * sum(counts) + ["uint8_t *", "uint8_t *", "const uint8_t *"]
    pointers += [*["int32_t *"] * description.cancellable, *["int64_t *"] * is_dynamic]
    pointers += ["uint8_t *"] * has_parts
    arguments = [f"(void *)in[{i}]" for i in range(counts[0])] + [f"out[{i}]" for i in range(counts[1])]
    arguments += ["state", "workspace", "constants", *["interrupt"] * description.cancellable]
    arguments += [*["sizes"] * is_dynamic, *["run"] * has_parts]
    features = ", ".join(c_literal(feature) for feature in description.cpu_features)
    variables = ", ".join(c_literal(variable) for variable in description.variables)
    has_constants = description.constant_bytes > 0 and not description.weights
    tables = [
        _tensor_table("inputs", description.inputs, names),
        _tensor_table("outputs", description.outputs, names, description.data_dependent),
        _tensor_table("states", description.states),
        *_sequence_table(description),
        f"static const char *const features[] = {{{features}}};" if features else "",
        f"static const char *const variables[] = {{{variables}}};" if variables else "",
        *_metadata_table(description),
    ]
    members = {
        "abi_version": "NNEFC_OPEN_ABI_VERSION" if is_dynamic else "NNEFC_ABI_VERSION",
        "struct_size": "sizeof(nnefc_description)",
        "model": c_literal(description.model),
        "target": c_literal(description.target),
        "compiler": c_literal(description.compiler),
        "inputs": "inputs" if description.inputs else "NULL",
        "outputs": "outputs" if description.outputs else "NULL",
        "states": "states" if description.states else "NULL",
        "input_count": counts[0],
        "output_count": counts[1],
        "state_count": len(description.states),
        "cpu_feature_count": len(description.cpu_features),
        "cpu_features": "features" if features else "NULL",
        "workspace_bytes": f"UINT64_C({description.workspace_bytes})",
        "scratch_bytes": f"UINT64_C({description.scratch_bytes})",
        "constant_bytes": f"UINT64_C({description.constant_bytes})",
        "state_bytes": f"UINT64_C({description.state_bytes})",
        "variable_count": len(description.variables),
        "variables": "variables" if variables else "NULL",
        "source": c_literal(description.source),
        "weights": c_literal(description.weights) if description.weights else "NULL",
        "device": c_literal(description.device),
        "device_bytes": f"UINT64_C({description.device_bytes})",
    }
    if is_dynamic:
        members |= {"dimension_count": len(names), "dimensions": "dimensions" if names else "NULL"}
    if description.metadata:
        members |= {"metadata_count": len(description.metadata), "metadata": "entries"}
    return "\n".join(
        [
            "#include <stddef.h>",
            '#include "model.h"',
            *(symbols.definitions if symbols is not None else []),
            f"int32_t nnefc_network({', '.join(pointers)});",
            *prototypes(description, pointers),
            _CONSTANTS if has_constants else "",
            *tables,
            *_weights(description),
            *_dynamic_tables(description),
            *_profile_tables(description),
            *_call_tables(description),
            "extern const uint8_t nnefc_metadata[];"
            if symbols is not None
            else f"static const uint8_t metadata[] = {{{', '.join(map(str, embedded_metadata(description)))}}};",
            "static int32_t call(const void *const *in, void *const *out, uint8_t *state, uint8_t *workspace,",
            f"                    const uint8_t *constants{', int32_t *interrupt' * description.cancellable}"
            f"{', int64_t *sizes, void *run' * is_dynamic}) {{",
            f"    (void)in, (void)out{', (void)run' * is_dynamic};",
            *(
                calls(description, arguments)
                if description.specializations
                else [f"    return nnefc_network({', '.join(arguments)});"]
            ),
            "}",
            "const nnefc_model nnefc_this_model = {",
            "    .description = {",
            *(f"        .{name} = {value}," for name, value in members.items()),
            "    },",
            f"    .constants = {'nnefc_constants' if has_constants else 'NULL'},",
            f"    .checksum = UINT64_C({description.checksum}),",
            _ARRIVED if has_constants else "",
            f"    .weights = {'&weights' if description.weights else 'NULL'},",
            f"    .state_initial_offset = UINT64_C({description.state_initial_offset}),",
            "    .call = call,",
            f"    .metadata = {'metadata' if symbols is None else 'nnefc_metadata'},",
            f"    .cuda = {device.module},",
            *([f"    .open = {{{_dynamic_members(description)}}},"] if is_dynamic else []),
            *(["    .profile = {SLOTS, kernels, sums},"] if description.kernels else []),
            *([f"    .calls = {{{_call_members(description)}}},"] if description.calls else []),
            *(["    .sequence_axes = sequence_axes,"] if description.sequence_axes else []),
            "};",
            *(_aliases(description) if symbols is None else []),
            "",
        ]
    )


def _sequence_table(description: LibraryDescription) -> list[str]:
    """Return the table of the states' axes of token positions."""
    axes = ", ".join(map(str, description.sequence_axes))
    return [f"static const int8_t sequence_axes[] = {{{axes}}};"] if axes else []


def _metadata_table(description: LibraryDescription) -> list[str]:
    """Return the table of the model's metadata."""
    rows = [f"    {{{_c_text(key)}, {_c_text(value)}}}," for key, value in description.metadata]
    return ["static const nnefc_entry entries[] = {", *rows, "};"] if rows else []


def _c_text(text: str) -> str:
    """Return an nnefc_string, which may contain null characters and is followed by one."""
    raw = text.encode()
    return f'{{"{c_string(raw)}", {len(raw)}}}'


def _weights(description: LibraryDescription) -> list[str]:
    if not description.weights:
        return []
    name, size = c_literal(description.weights), f"UINT64_C({description.constant_bytes})"
    return [f"static const nnefc_weights weights = {{{name}, {size}, nnefc_weights_map, nnefc_weights_unmap}};"]


def _dynamic_tables(description: LibraryDescription) -> list[str]:
    """Return the tables of dynamic dimensions and of the storages in the workspace, without empty arrays, which C
    does not have.
    """
    if not description.is_dynamic:
        return []
    first, last = ([str(life[end]) for life in description.lifetimes] or ["0"] for end in (0, 1))
    dimensions = [
        f"    {{{c_literal(d.name)}, {_integers(d.minimum, d.maximum, d.multiple, d.size_hint)}}},"
        for d in description.dimensions
    ]
    starts = [0, *accumulate(len(output.shape) for output in description.outputs)]
    data_dependent = [str(starts[output] + axis) for output, axis in description.data_dependent]
    return [
        *formula_functions(description),
        *(["static const nnefc_dimension dimensions[] = {", *dimensions, "};"] if dimensions else []),
        f"enum {{ DATA_DEPENDENT = {len(data_dependent)} }};",
        f"static const uint32_t data_dependent[] = {{{', '.join(data_dependent or ['0'])}}};",
        f"static const uint32_t parts[] = {{{_numbers(description.parts, len(description.lifetimes))}}};",
        f"static const uint32_t output_parts[] = {{{_numbers(description.output_parts, len(description.outputs))}}};",
        f"static const uint32_t part_dimensions[] = {{{_numbers((0, *description.part_dimensions))}}};",
        f"enum {{ PARTS = {1 + len(description.part_dimensions)} }};",
        f"enum {{ STORAGES = {len(description.lifetimes)} }};",
        f"static const uint32_t first[] = {{{', '.join(first)}}};",
        f"static const uint32_t last[] = {{{', '.join(last)}}};",
        "int32_t nnefc_network_sizes(void *values, void *derived);",
        *(
            specialized_functions(description)
            if description.specializations
            else [
                "static void derive(const int64_t *values, int64_t *derived) "
                "{ nnefc_network_sizes((void *)values, derived); }"
            ]
        ),
    ]


def _profile_tables(description: LibraryDescription) -> list[str]:
    """Return the table of the kernels that are timed, and the memory for their times."""
    if not description.kernels:
        return []
    rows = []
    for kernel in description.kernels:
        names = "".join(f"{name}\n" for name in kernel.tensors)
        texts = ", ".join(map(c_literal, (kernel.kernel, names, kernel.rule)))
        rows.append(f"    {{{texts}, UINT64_C({kernel.operations}), UINT64_C({kernel.bytes}), 0, 0, 0, 0}},")
    return [
        f"enum {{ SLOTS = {len(rows)} }};",
        "static const nnefc_kernel_times kernels[] = {",
        *rows,
        "};",
        "static nnefc_profile_sums sums[SLOTS];",
    ]


def _call_tables(description: LibraryDescription) -> list[str]:
    """Return the table of the texts about each call of a kernel, concatenated, and of the outputs that need the call.

    A set of outputs is a bit set in words of 64 bits, with one bit more than there are outputs; equal sets are stored
    once.
    """
    if not description.calls:
        return []
    texts, amounts = [], []
    for call in description.calls:
        names = "".join(f"{name}\n" for name in call.tensors).replace("\0", "?")
        texts.append(b"".join(text.encode(errors="replace") + b"\0" for text in (call.kernel, names, call.rule)))
        amounts += [f"UINT64_C({call.operations})", f"UINT64_C({call.bytes})"]
    tables = [
        "static const char call_texts[] =",
        *(f'    "{c_string(text)}"' for text in texts),
        ";",
        f"static const uint64_t call_amounts[] = {{{', '.join(amounts)}}};",
    ]
    if _may_skip(description):
        sets = list(dict.fromkeys(call.served for call in description.calls))
        numbers = {served: number for number, served in enumerate(sets)}
        tables += [
            f"static const uint64_t output_sets[] = {{{_words(sets, description)}}};",
            f"static const uint32_t call_sets[] = {{{', '.join(str(numbers[c.served]) for c in description.calls)}}};",
        ]
    if len(description.outputs) > 1:
        tables.append(f"static const uint64_t memory_users[] = {{{_words(description.memory_users, description)}}};")
    return tables


def _may_skip(description: LibraryDescription) -> bool:
    """Return whether some outputs do not need all calls."""
    return any(not call.served >> len(description.outputs) for call in description.calls)


def _words(sets: Sequence[int], description: LibraryDescription) -> str:
    """Return sets of outputs as words of 64 bits."""
    words = len(description.outputs) // 64 + 1
    return ", ".join(f"UINT64_C({served >> 64 * i & (1 << 64) - 1})" for served in sets for i in range(words))


def _call_members(description: LibraryDescription) -> str:
    """Returns the members of nnefc_calls."""
    sets = ["call_sets", "output_sets"] if _may_skip(description) else ["NULL", "NULL"]
    users = "memory_users" if len(description.outputs) > 1 else "NULL"
    return ", ".join([str(len(description.calls)), "call_texts", "call_amounts", *sets, users])


def _dynamic_members(description: LibraryDescription) -> str:
    """Returns the members of nnefc_dynamic_sizes."""
    only = ["special", c_literal("; ".join(sizes_spelled(description)))]
    members = ["STORAGES", "first", "last", "derive", f"INT64_C({DEVICES[description.device].max_elements})"]
    members += only if description.only_specialized else ["NULL", "NULL"]
    members += ["DATA_DEPENDENT", "data_dependent", "PARTS", "parts", "output_parts", "part_dimensions"]
    return ", ".join([*members, str(len(description.formulas)), "formulas" if description.formulas else "NULL"])


def _numbers(given: Sequence[int], count: int = 0) -> str:
    """Return the elements of an array, or `count` zeros without any, since C has no empty arrays."""
    return ", ".join(map(str, given or [0] * max(1, count)))


def _aliases(description: LibraryDescription) -> list[str]:
    """Return the functions with the network's own prefix; the runtime, equal for all networks, has the default
    prefix.
    """
    prefix = description.prefix
    if prefix == DEFAULT_PREFIX:
        return []
    return [
        declarations(description),
        *(
            f"{result} {prefix}_{name}({parameters})"
            f" {{ {'return ' * (result != 'void')}{DEFAULT_PREFIX}_{name}({arguments}); }}"
            for name, (result, parameters, arguments) in functions_of(description).items()
        ),
    ]
