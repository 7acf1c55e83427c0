"""The filters, tests and methods that programs of chat templates have, with their arguments as Jinja2 has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from nnefc.operators.text.case_mapping import Case

__all__ = [
    "CASES",
    "FILTERS",
    "REQUIRED",
    "TESTS",
    "UNSUPPORTED_METHODS",
    "FilterCode",
    "Required",
    "Signature",
    "TestCode",
]

FilterCode = IntEnum(
    "FilterCode",
    "ABS CAPITALIZE DEFAULT DICTSORT FIRST FLOAT INDENT INT PAIRS JOIN LAST LENGTH LIST LOWER MAP_ATTRIBUTE MAP REJECT "
    "REJECTATTR REPLACE REVERSE SELECT SELECTATTR SORT STRING SUM TITLE TOJSON TRIM UNIQUE UPPER",
    start=0,
)

TestCode = IntEnum(
    "TestCode",
    "BOOLEAN DEFINED DIVISIBLEBY EVEN FALSE FLOAT INTEGER ITERABLE MAPPING NONE NUMBER ODD SEQUENCE STRING TRUE "
    "UNDEFINED EQ NE LT LE GT GE IN TRUTH",
    start=0,
)


class Required:
    """Marks arguments without a default."""


REQUIRED: Final = Required()
"""In place of the default of an argument that has none."""

Default = str | int | float | bool | Required | None


@dataclass(frozen=True)
class Signature:
    """A filter, and its arguments after the value, with their defaults."""

    code: FilterCode
    names: Sequence[str] = ()
    defaults: Sequence[Default] = ()


FILTERS = {
    "abs": Signature(FilterCode.ABS),
    "capitalize": Signature(FilterCode.CAPITALIZE),
    "count": Signature(FilterCode.LENGTH),
    "d": Signature(FilterCode.DEFAULT, ("default_value", "boolean"), ("", False)),
    "default": Signature(FilterCode.DEFAULT, ("default_value", "boolean"), ("", False)),
    "dictsort": Signature(FilterCode.DICTSORT, ("case_sensitive", "by", "reverse"), (False, "key", False)),
    "first": Signature(FilterCode.FIRST),
    "float": Signature(FilterCode.FLOAT, ("default",), (0.0,)),
    "indent": Signature(FilterCode.INDENT, ("width", "first", "blank"), (4, False, False)),
    "int": Signature(FilterCode.INT, ("default",), (0,)),
    "items": Signature(FilterCode.PAIRS),
    "join": Signature(FilterCode.JOIN, ("d", "attribute"), ("", None)),
    "last": Signature(FilterCode.LAST),
    "length": Signature(FilterCode.LENGTH),
    "list": Signature(FilterCode.LIST),
    "lower": Signature(FilterCode.LOWER),
    "replace": Signature(FilterCode.REPLACE, ("old", "new", "count"), (REQUIRED, REQUIRED, None)),
    "reverse": Signature(FilterCode.REVERSE),
    "sort": Signature(FilterCode.SORT, ("reverse", "case_sensitive", "attribute"), (False, False, None)),
    "string": Signature(FilterCode.STRING),
    "sum": Signature(FilterCode.SUM, ("attribute", "start"), (None, 0)),
    "title": Signature(FilterCode.TITLE),
    "tojson": Signature(
        FilterCode.TOJSON, ("ensure_ascii", "indent", "separators", "sort_keys"), (False, None, None, False)
    ),
    "trim": Signature(FilterCode.TRIM, ("chars",), (None,)),
    "unique": Signature(FilterCode.UNIQUE, ("case_sensitive", "attribute"), (False, None)),
    "upper": Signature(FilterCode.UPPER),
}

TESTS = {
    "boolean": (TestCode.BOOLEAN, 0),
    "defined": (TestCode.DEFINED, 0),
    "divisibleby": (TestCode.DIVISIBLEBY, 1),
    "even": (TestCode.EVEN, 0),
    "false": (TestCode.FALSE, 0),
    "float": (TestCode.FLOAT, 0),
    "integer": (TestCode.INTEGER, 0),
    "iterable": (TestCode.ITERABLE, 0),
    "mapping": (TestCode.MAPPING, 0),
    "none": (TestCode.NONE, 0),
    "number": (TestCode.NUMBER, 0),
    "odd": (TestCode.ODD, 0),
    "sequence": (TestCode.SEQUENCE, 0),
    "string": (TestCode.STRING, 0),
    "true": (TestCode.TRUE, 0),
    "undefined": (TestCode.UNDEFINED, 0),
    **dict.fromkeys(("==", "eq", "equalto"), (TestCode.EQ, 1)),
    **dict.fromkeys(("!=", "ne"), (TestCode.NE, 1)),
    **dict.fromkeys(("<", "lt", "lessthan"), (TestCode.LT, 1)),
    **dict.fromkeys(("<=", "le"), (TestCode.LE, 1)),
    **dict.fromkeys((">", "gt", "greaterthan"), (TestCode.GT, 1)),
    **dict.fromkeys((">=", "ge"), (TestCode.GE, 1)),
    "in": (TestCode.IN, 1),
}
"""Tests, and how many arguments they have."""

UNSUPPORTED_METHODS = frozenset(
    (
        "casefold", "center", "changed", "encode", "expandtabs", "format", "format_map", "fromkeys", "isalnum",
        "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable",
        "isspace", "istitle", "isupper", "ljust", "maketrans", "partition", "rindex", "rjust", "rpartition",
        "swapcase", "translate", "zfill",
    )
)  # fmt: skip
"""Methods of Python's that programs do not have."""

CASES: dict[str, set[Case]] = {
    "capitalize": {"LOWER", "TITLE"},
    "dictsort": {"LOWER"},
    "lower": {"LOWER"},
    "sort": {"LOWER"},
    "title": {"LOWER", "UPPER"},
    "unique": {"LOWER"},
    "upper": {"UPPER"},
}
"""The case tables of filters, and of methods of the same names."""
