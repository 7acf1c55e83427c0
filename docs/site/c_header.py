"""A directive for Sphinx: the declarations of a C header with their comments, in its order.

    .. c-header:: targets/runtime/nnefc.h

A comment right above a declaration is its text; the file's first comment is the page's beginning. Types are shown as
the header has them, since the comments on their members are next to these; functions are declared one by one.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

__all__ = ["Declaration", "declarations"]

ROOT = Path(__file__).parents[2]
COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
FUNCTION = re.compile(r"NNEFC_API\s+(.*?);", re.DOTALL)
MACRO = re.compile(r"^#define (\w+) ([^/\n]+?)(?: /\*(.*?)\*/)?$", re.MULTILINE)
TYPE = re.compile(r"typedef\s+(struct|enum)\s+(\w+)")


@dataclass(frozen=True)
class Declaration:
    """One declaration of a header, and the comment above it."""

    kind: str  # "function", "macro", "struct", "enum", or "" for text by itself
    name: str  # of a function: its whole signature
    comment: str
    source: str


def declarations(header: str) -> Iterator[Declaration]:
    """The declarations of a header in its order, each with the comment above it, and comments by themselves."""
    for block in re.split(r"\n\s*\n", _whole_comments(header)):
        comment, source = _parted(block.strip())
        kind = TYPE.match(source)
        functions = FUNCTION.findall(source)
        if functions:
            for number, signature in enumerate(functions):
                yield Declaration("function", " ".join(signature.split()), comment if number == 0 else "", source)
        elif kind:
            yield Declaration(kind[1], kind[2], comment, source)
        elif comment:
            yield Declaration("", "", comment, "")
        for macro in MACRO.finditer(source):
            if macro[1] != "NNEFC_API":
                yield Declaration("macro", macro[1], (macro[3] or "").strip(), macro[0])


def _whole_comments(header: str) -> str:
    """The header with the empty lines of comments kept as part of them."""
    return COMMENT.sub(lambda comment: re.sub(r"\n[ \t]*(?=\n)", "\n *", comment[0]), header)


def _parted(block: str) -> tuple[str, str]:
    """The comment that a block begins with, as text, and what follows it."""
    found = COMMENT.match(block)
    if not found:
        return "", block
    lines = [re.sub(r"^ ?\* ?", "", line) for line in found[1].split("\n")]
    return "\n".join(lines).strip(), block[found.end() :].strip()


class CHeader(SphinxDirective):
    """`.. c-header:: PATH`, a path from the repository's root."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        path = ROOT / self.arguments[0]
        self.env.note_dependency(str(path))
        result: list[nodes.Node] = []
        for declaration in declarations(path.read_text()):
            result += self._shown(declaration)
        return result

    def _shown(self, declaration: Declaration) -> list[nodes.Node]:
        text = _paragraphs(declaration.comment)
        match declaration.kind:
            case "function":
                lines = [
                    f".. c:function:: {declaration.name}",
                    "",
                    *textwrap.indent("\n".join(text), "   ").split("\n"),
                ]
            case "macro" | "struct" | "enum":
                code = textwrap.indent(declaration.source, "      ").split("\n")
                lines = [f".. c:{declaration.kind}:: {declaration.name}", ""]
                lines += [*textwrap.indent("\n".join(text), "   ").split("\n"), "", "   .. code-block:: c", "", *code]
            case _:
                lines = text
        return self.parse_text_to_nodes(StringList([*lines, ""], self.arguments[0]))


def _paragraphs(comment: str) -> list[str]:
    """A comment as reStructuredText: no character of it is markup; what is indented is code."""
    lines: list[str] = []
    code = False
    for line in comment.split("\n"):
        indented = line.startswith("    ")
        if indented and not code:
            lines += ["", ".. code-block:: c", ""]
        elif code and line.strip() and not indented:
            lines.append("")
        code = indented or (code and not line.strip())
        lines.append(line if code else re.sub(r"([\\*`|_<>])", r"\\\1", line))
    return lines


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("c-header", CHeader)
    return {"parallel_read_safe": True}
