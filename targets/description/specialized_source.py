"""Writes the C of a library with specialized programs: selects the program, and computes its workspace size.

special(values)     the number of the program for these sizes, from 1 on; 0 if there is none
own_2(values, own)  the dynamic dimensions of program 2, which leaves some open
derive(values, …)   what follows from sizes

Programs run at different times, so that their workspaces may share memory: what lies in the workspace is first that of
the program for all sizes, then that of each program that leaves sizes open, and last one block for those whose sizes
are all known. Each of these is computed from sizes up to which the program may be run, whether it is run now or not:
then memory that was laid out for some sizes has room for all smaller ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nnefc.targets.description.formula_source import formula_text
from nnefc.targets.description.library import LibraryDescription, OwnDimension, SpecializationDescription

__all__ = ["calls", "prototypes", "sizes_spelled", "specialized_functions"]


def prototypes(description: LibraryDescription, pointers: Sequence[str]) -> list[str]:
    """Returns the entries of all programs but the first, and what computes the sizes of those that leave sizes open.

    `pointers` are the types of the first one's parameters; a program without dynamic sizes has no table of them.
    """
    lines = []
    for number, part in enumerate(description.specializations, 1):
        own = pointers if part.is_dynamic or description.data_dependent else pointers[:-1]
        lines.append(f"int32_t nnefc_network_{number}({', '.join(own)});")
        if part.is_dynamic:
            lines.append(f"int32_t nnefc_network_sizes_{number}(void *values, void *derived);")
    return lines


def specialized_functions(description: LibraryDescription) -> list[str]:
    """`special`, `own_…` and `derive`."""
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
    """The programs that leave sizes open: the number of each, it, and where its storages begin among all."""
    begin = _first_storages(description)
    for number, part in enumerate(description.specializations, 1):
        if part.is_dynamic:
            yield number, part, begin
            begin += part.storages


def _first_storages(description: LibraryDescription) -> int:
    """Returns the number of storages of the program for all sizes, except the last one, which has room for others."""
    return len(description.lifetimes) - 1 - sum(part.storages for part in description.specializations)


def _compared(description: LibraryDescription, part: SpecializationDescription, sign: str) -> list[str]:
    pairs = zip(description.dimensions, part.sizes, strict=True)
    return [
        f"values[{index}] {sign} INT64_C({size // dimension.multiple})"
        for index, (dimension, size) in enumerate(pairs)
        if size is not None
    ]


def _fits(description: LibraryDescription, part: SpecializationDescription) -> list[str]:
    """Conditions under which a program may be run: known sizes are these, others are in its ranges."""
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
    """Returns the function that computes a program's dynamic dimensions: the largest that it may be run with, up to
    these.
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
    """Statements that make room behind the storages of the first program for those of programs with dynamic sizes.

    `tail` is what follows the storages: the shapes of outputs, and what tells whether the sizes are fit for a program.
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
    """Statements that write the shapes of a program's outputs, whose rank may be lower than the library's."""
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
    """Statements that run the program for the present sizes.

    `arguments` end with the table of sizes: dynamic dimensions, offsets of storages, and room for data-dependent sizes.
    A program for known sizes takes the end of it, where it writes the latter, if there are any. One that leaves sizes
    open has a table of its own.
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
    """Returns the case of a program that leaves sizes open."""
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
    """Returns the call of the first program, which knows nothing of the storages of others in its table."""
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
    """Returns the sizes of each specialization, for people; not of those for equal sizes."""
    names = [dimension.name for dimension in description.dimensions]
    return [
        ", ".join(f"{name} {size:,}" for name, size in zip(names, part.sizes, strict=True) if size is not None)
        for part in description.specializations
        if part.has_sizes
    ]
