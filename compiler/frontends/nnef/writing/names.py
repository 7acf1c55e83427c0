"""Converts tensor names to NNEF identifiers, and variable names to file names."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nnefc.frontends.nnef.language.lexer import ALL_KEYWORDS

__all__ = ["UniqueNames", "identifier", "label"]

_LONGEST = 200
"""Characters of a file's name, with room for the ending."""


class UniqueNames:
    """Names that are given once each."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {name.casefold() for name in taken}
        self._counts: dict[str, int] = {}

    def unique(self, name: str) -> str:
        """The name, or with a number behind it if that has been given; upper and lower case do not differ."""
        made = name
        while made.casefold() in self._taken:
            count = self._counts.get(name, 1) + 1
            self._counts[name] = count
            made = f"{name}_{count}"
        self._taken.add(made.casefold())
        return made


def identifier(name: str) -> str:
    """The name with `_` for what an identifier cannot have; none of the language's own words."""
    made = re.sub(r"[^A-Za-z0-9_]", "_", name) or "_"
    if made[0].isdigit():
        made = f"_{made}"
    return f"{made}_" if made in ALL_KEYWORDS else made


def label(name: str) -> str:
    """The name as the label of a variable: a relative path of portable characters."""
    parts = [re.sub(r"[^A-Za-z0-9_.-]", "_", part)[:_LONGEST] for part in name.split("/")]
    kept = [part if part.strip(".") else "_" * len(part) for part in parts if part]
    # No folder is called as a file is.
    folders = [f"{part}_" if part.lower().endswith(".dat") else part for part in kept[:-1]]
    return "/".join([*folders, *kept[-1:]]) or "_"
