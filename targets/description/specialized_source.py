"""The C of a library with code of its own for some sizes: which program runs, and what workspace it needs.

special(values)     the number of the program for these sizes, from 1 on; 0 if there is none
derive(values, …)   what follows from sizes; the last storage has room for the programs of sizes up to these
"""

from __future__ import annotations

from collections.abc import Sequence

from nnefc.targets.description.library import LibraryDescription, SpecializationDescription

__all__ = ["calls", "sizes_spelled", "specialized_functions"]


def specialized_functions(description: LibraryDescription) -> list[str]:
    """`special` and `derive`."""
    chosen = [
        f"    if ({_compared(description, part, '==')}) return {number};"
        for number, part in enumerate(description.specializations, 1)
    ]
    rooms = [
        f"    if (room < INT64_C({part.workspace_bytes}) && {_compared(description, part, '>=')})"
        f" room = INT64_C({part.workspace_bytes});"
        for part in description.specializations
    ]
    return [
        "static int32_t special(const int64_t *values) {",
        *chosen,
        "    return 0;",
        "}",
        "static void derive(const int64_t *values, int64_t *derived) {",
        f"    int64_t room = INT64_C({description.workspace_bytes});",
        *rooms,
        "    nnefc_network_sizes((void *)values, derived);",
        "    derived[STORAGES - 1] = room;",
        "}",
    ]


def _compared(description: LibraryDescription, part: SpecializationDescription, sign: str) -> str:
    pairs = zip(description.dimensions, part.sizes, strict=True)
    return " && ".join(
        f"values[{index}] {sign} INT64_C({size // dimension.multiple})" for index, (dimension, size) in enumerate(pairs)
    )


def calls(description: LibraryDescription, arguments: Sequence[str]) -> list[str]:
    """Statements that run the program for the present sizes.

    `arguments` end with the table of sizes. A program for known sizes takes the end of it, where it writes those that
    only the data tell, if there are any.
    """
    before = len(description.dimensions) + len(description.lifetimes)
    own = ", ".join([*arguments[:-1], *([f"{arguments[-1]} + {before}"] if description.counted else [])])
    cases = [
        f"    case {number}: return nnefc_network_{number}({own});"
        for number in range(1, 1 + len(description.specializations))
    ]
    last = "-1" if description.only_specialized else f"nnefc_network({', '.join(arguments)})"
    return ["    switch (special(sizes)) {", *cases, "    }", f"    return {last};"]


def sizes_spelled(description: LibraryDescription) -> list[str]:
    """The sizes of each specialization, for people."""
    names = [dimension.name for dimension in description.dimensions]
    return [
        ", ".join(f"{name} {size:,}" for name, size in zip(names, part.sizes, strict=True))
        for part in description.specializations
    ]
