"""Renders a network for notebooks: a table of its inputs, outputs and memory use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["interface_html"]


def interface_html(title: str, kinds: Sequence[tuple[str, Iterable[object]]], facts: Sequence[tuple[str, str]]) -> str:
    """Return an HTML table with a row for each tensor and then one for each fact.

    Args:
        title: the caption.
        kinds: the tensors of each kind, such as ("input", inputs).
        facts: pairs of a name and a value.
    """
    rows = [(kind, str(tensor)) for kind, tensors in kinds for tensor in tensors] + list(facts)
    lines = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in rows
    )
    return f"<table><caption>{escape(title)}</caption>{lines}</table>"
