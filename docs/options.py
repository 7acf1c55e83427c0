"""Writes docs/options.md: the options of the compiler, from their documentation in the code.

python docs/options.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from nnefc.driver.option_fields import GROUPS, default_text, documentation_of, flag_of, option_fields
from nnefc.driver.option_keywords import KINDS
from nnefc.driver.options import CompileOptions

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).with_name("options.md")

_BEGIN = """# Options of the compiler

`nnefc compile` has each option under the first name, `nnefc.compile` under the second one, and so have sessions
(`nnefc.InferenceSession`), `nnefc.torch.compile`, `nnefc.sklearn.compile` and `nnefc.compile_many`. `nnefc.convert` and
`nnefc.quantize` have the options of the model and its sizes. `nnefc compile --help` shows the options in **bold**,
`nnefc compile --help-all` all of them. An unknown keyword in Python is an error that names similar ones.

`python docs/options.py` writes this page.
"""


def page() -> str:
    """Returns the page: a table for each group of options."""
    return "\n".join([_BEGIN, *_tables()])


def _tables() -> Iterator[str]:
    fields = option_fields(CompileOptions)
    for kind in KINDS.values():
        fields |= option_fields(kind)
    for group in GROUPS:
        yield f"## {group}\n"
        yield "| command line | Python | default | meaning |\n|---|---|---|---|"
        for name, option in fields.items():
            words = documentation_of(option)
            if words.group == group:
                flag = f"`{flag_of(name, option)}`"
                meaning = " ".join(filter(None, (words.meaning, words.python and f"In Python: {words.python}")))
                cells = (f"**{flag}**" if words.common else flag, f"`{name}`", default_text(option) or "no", meaning)
                yield f"| {' | '.join(map(_escaped, cells))} |"
        yield ""


def _escaped(text: str) -> str:
    """Escapes the characters that end a cell of a table or begin emphasis, outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("|", "\\|").replace("* ", "\\* ") for part in parts)


if __name__ == "__main__":
    PAGE.write_text(page())
