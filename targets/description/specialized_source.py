"""Writes the C of a library with specialized programs: it selects the program, and computes the size of the workspace.

special(values)     the number of the program for these sizes, from 1 on; 0: the general program
own_2(values, own)  the dynamic dimensions of program 2, which leaves some dynamic
derive(values, …)   what is computed from the sizes

Only one program runs at a time, so the programs share memory. The storages of the workspace are first those of the
general program, then those of each program with dynamic sizes, and last one block for the programs with known sizes
only. Each is computed for the largest sizes, up to the given ones, for which its program may run: so memory that was
allocated for some sizes suffices for all smaller ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nnefc.targets.description.formula_source import formula_text
from nnefc.targets.description.library import LibraryDescription, OwnDimension, SpecializationDescription

__all__ = ["calls", "prototypes", "sizes_spelled", "specialized_functions"]


def prototypes(description: LibraryDescription, pointers: Sequence[str]) -> list[str]:
    """Return prototypes of the entries of all specialized programs, and of the functions that compute the sizes of
    those with dynamic sizes.

    `pointers` are the parameter types of the general program; a program without dynamic sizes has no table of sizes.
    """
    lines = []
    for number, part in enumerate(description.specializations, 1):
        own = pointers if part.is_dynamic or description.data_dependent else pointers[:-1]
        lines.append(f"int32_t nnefc_network_{number}({', '.join(own)});")
        if part.is_dynamic:
            lines.append(f"int32_t nnefc_network_sizes_{number}(void *values, void *derived);")
    return lines


def specialized_functions(description: LibraryDescription) -> list[str]:
    """Return the functions `special`, `own_…` and `derive`."""
    chosen = [
        f"    if ({' && '.join(_fits(description, part))}) return {number};"
        for number, part in enumerate(description.specializations, 1)
    ]
    rooms = [
        f"    if ({' && '.join([f'room < INT64_C({part.workspace_bytes})', *_compared(description, part, '>=')])})"
        f" room = INT64_C({part.workspace_bytes});"
        for part in description.specializations
    ]
    return [
        "static int32_t special(const int64_t *values) {",
        *chosen,
        "    return 0;",
        "}",
        *(line for number, part, _ in _dynamic_parts(description) for line in _own(description, number, part)),
        "static void derive(const int64_t *values, int64_t *derived) {",
        f"    int64_t room = INT64_C({description.workspace_bytes});",
        *rooms,
        "    nnefc_network_sizes((void *)values, derived);",
        *_derived_parts(description),
        "    derived[STORAGES - 1] = room;",
        "}",
    ]


def _dynamic_parts(description: LibraryDescription) -> Iterator[tuple[int, SpecializationDescription, int]]:
    """Yield the programs with dynamic sizes: number, program, and index of its first storage."""
    begin = _first_storages(description)
    for number, part in enumerate(description.specializations, 1):
        if part.is_dynamic:
            yield number, part, begin
            begin += part.storages


def _first_storages(description: LibraryDescription) -> int:
    """Return the number of storages of the general program without the last one, which is shared with other
    programs.
    """
    return len(description.lifetimes) - 1 - sum(part.storages for part in description.specializations)


def _compared(description: LibraryDescription, part: SpecializationDescription, sign: str) -> list[str]:
    pairs = zip(description.dimensions, part.sizes, strict=True)
    return [
        f"values[{index}] {sign} INT64_C({size // dimension.multiple})"
        for index, (dimension, size) in enumerate(pairs)
        if size is not None
    ]


def _fits(description: LibraryDescription, part: SpecializationDescription) -> list[str]:
    """Return the conditions under which a program may run: known sizes are equal, others are in its ranges."""
    conditions = _compared(description, part, "==")
    for own in part.dimensions:
        if own.number is None:
            continue
        whole = description.dimensions[own.number]
        size = f"values[{own.number}] * INT64_C({whole.multiple})"
        conditions += [f"{size} >= INT64_C({own.minimum})"] * (own.minimum > whole.minimum)
        conditions += [f"{size} <= INT64_C({own.maximum})"] * (own.maximum < whole.maximum)
        conditions += [f"{size} % INT64_C({own.multiple}) == 0"] * bool(whole.multiple % own.multiple)
    for formula, minimum, maximum in part.limits:
        size = formula_text(description, formula)
        conditions += [f"{size} >= INT64_C({minimum})", f"{size} <= INT64_C({maximum})"]
    return conditions


def _own(description: LibraryDescription, number: int, part: SpecializationDescription) -> list[str]:
    """Return the function that computes a program's dynamic dimensions: the largest sizes, up to the given ones, for
    which it may run.
    """

    def value(own: OwnDimension) -> str:
        if own.number is None:
            return "0"
        multiple = description.dimensions[own.number].multiple
        scaled = f"values[{own.number}] * INT64_C({multiple})"
        minimum, maximum = (f"INT64_C({size})" for size in (own.minimum, own.maximum))
        return (
            f"({scaled} < {minimum} ? {minimum} : {scaled} > {maximum} ? {maximum} : {scaled}) / "
            f"INT64_C({own.multiple})"
        )

    return [
        f"static void own_{number}(const int64_t *values, int64_t *own) {{",
        "    (void)values;",
        *(f"    own[{index}] = {value(own)};" for index, own in enumerate(part.dimensions)),
        "}",
    ]


def _derived_parts(description: LibraryDescription) -> list[str]:
    """Return statements that make room for the storages of programs with dynamic sizes after those of the general
    program.

    `tail` is what follows the storages: the shapes of outputs, and the result of the check of the sizes.
    """
    first = _first_storages(description)
    outputs = sum(len(output.shape) for output in description.outputs)
    closed = [
        line
        for number, part in enumerate(description.specializations, 1)
        if part.outputs is not None and not part.is_dynamic
        for line in (f"    if (special(values) == {number}) {{", *_shapes(description, part), "    }")
    ]
    lines = [
        f"    for (int i = {outputs + 1}; i >= 0; i--) derived[STORAGES + i] = derived[{first + 1} + i];",
    ]
    for number, part, begin in _dynamic_parts(description):
        own = outputs if part.outputs is None else sum(map(len, part.outputs))
        shapes = [] if part.outputs is None else _shapes(description, part)
        lines += [
            "    {",
            f"        int64_t own[{len(part.dimensions)}], mine[{part.storages + own + 2}];",
            f"        own_{number}(values, own);",
            f"        nnefc_network_sizes_{number}(own, mine);",
            f"        for (int i = 0; i < {part.storages}; i++) derived[{begin} + i] = mine[i];",
            f"        if (special(values) == {number}) {{",
            *shapes,
            "            for (int i = 0; i < 2; i++)",
            f"                derived[STORAGES + {outputs} + i] = mine[{part.storages + own} + i];",
            "        }",
            "    }",
        ]
    return [*(lines if len(lines) > 1 else []), *closed]


def _shapes(description: LibraryDescription, part: SpecializationDescription) -> list[str]:
    """Return statements that write the shapes of a program's outputs, which may have a lower rank than the
    library's.
    """
    assert part.outputs is not None
    lines, position, own = [], 0, part.storages
    for output, shape in zip(description.outputs, part.outputs, strict=True):
        for axis in range(len(output.shape)):
            size = "NNEFC_NO_AXIS"
            if axis < len(shape):
                size = f"mine[{own + axis}]" if part.is_dynamic else f"INT64_C({shape[axis]})"
            lines.append(f"            derived[STORAGES + {position + axis}] = {size};")
        position, own = position + len(output.shape), own + len(shape)
    return lines


def calls(description: LibraryDescription, arguments: Sequence[str]) -> list[str]:
    """Return statements that run the program for the current sizes.

    `arguments` end with the table of sizes: dynamic dimensions, offsets of storages, and room for data-dependent sizes.
    A program for known sizes gets the end of the table, into which it writes data-dependent sizes, if there are any. A
    program with dynamic sizes has a table of its own.
    """
    before = len(description.dimensions) + len(description.lifetimes)
    known = ", ".join([*arguments[:-1], *([f"{arguments[-1]} + {before}"] if description.data_dependent else [])])
    begins = {number: begin for number, _, begin in _dynamic_parts(description)}
    cases = []
    for number, part in enumerate(description.specializations, 1):
        if part.is_dynamic:
            cases += _with_table(description, arguments, number, part, begins[number])
        else:
            cases.append(f"    case {number}: return nnefc_network_{number}({known});")
    if description.only_specialized:
        last = ["    return -1;"]
    elif begins and description.data_dependent:
        last = _for_all_sizes(description, arguments)
    else:
        last = [f"    return nnefc_network({', '.join(arguments)});"]
    return ["    switch (special(sizes)) {", *cases, "    }", *last]


def _with_table(
    description: LibraryDescription,
    arguments: Sequence[str],
    number: int,
    part: SpecializationDescription,
    begin: int,
) -> list[str]:
    """Return the case of a program with dynamic sizes."""
    dimensions, table, data_dependent = len(description.dimensions), arguments[-1], len(description.data_dependent)
    own = len(part.dimensions)
    return [
        f"    case {number}: {{",
        f"        int64_t own[{own + part.storages + data_dependent}];",
        f"        own_{number}({table}, own);",
        f"        for (int i = 0; i < {part.storages}; i++) own[{own} + i] = {table}[{dimensions + begin} + i];",
        f"        int32_t status = nnefc_network_{number}({', '.join([*arguments[:-1], 'own'])});",
        *_data_dependent_from("own", own + part.storages, description, table),
        "        return status;",
        "    }",
    ]


def _for_all_sizes(description: LibraryDescription, arguments: Sequence[str]) -> list[str]:
    """Return the call of the general program, whose table has no storages of other programs."""
    table, size = arguments[-1], len(description.dimensions) + _first_storages(description) + 1
    return [
        f"    int64_t own[{size + len(description.data_dependent)}];",
        f"    for (int i = 0; i < {size}; i++) own[i] = {table}[i];",
        f"    int32_t status = nnefc_network({', '.join([*arguments[:-1], 'own'])});",
        *_data_dependent_from("own", size, description, table),
        "    return status;",
    ]


def _data_dependent_from(own: str, begin: int, description: LibraryDescription, table: str) -> list[str]:
    end = len(description.dimensions) + len(description.lifetimes)
    return [f"    {table}[{end + i}] = {own}[{begin + i}];" for i in range(len(description.data_dependent))]


def sizes_spelled(description: LibraryDescription) -> list[str]:
    """Return the sizes of each specialization as a text, except for those of equal sizes."""
    names = [dimension.name for dimension in description.dimensions]
    return [
        ", ".join(f"{name} {size:,}" for name, size in zip(names, part.sizes, strict=True) if size is not None)
        for part in description.specializations
        if part.has_sizes
    ]
