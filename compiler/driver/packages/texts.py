"""Fills the templates of packages: `@{name}` in a text is replaced by the value of that name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ["filled", "json_text", "template"]

_FOLDER = Path(__file__).with_name("templates")


def template(name: str, values: Mapping[str, str]) -> bytes:
    """Returns the text of a template, by its name in `templates/`, with values in it."""
    return filled((_FOLDER / name).read_text(encoding="utf-8"), values).encode()


def filled(text: str, values: Mapping[str, str]) -> str:
    """Replaces all names in a text.

    Raises:
        KeyError: a name has no value.
    """
    return re.sub(r"@\{(\w+)\}", lambda found: values[found[1]], text)


def json_text(**members: object) -> bytes:
    """Returns a JSON object, in the order of its members."""
    return json.dumps(members, indent=2, ensure_ascii=False).encode() + b"\n"
