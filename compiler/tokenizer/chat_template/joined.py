"""Joins the chat templates of a model that has one of its own for conversations with tools."""

from __future__ import annotations

__all__ = ["joined_templates"]


def joined_templates(default: str | None, tool_use: str | None) -> str | None:
    """Returns one template: `tool_use` where there are tools, `default` elsewhere; the one that there is without both.

    Signs in the tags keep the white space around them, which Jinja2 would remove.
    """
    if default is None or tool_use is None:
        return tool_use if default is None else default
    both = _without_last_newline(tool_use), _without_last_newline(default)
    return "{%+ if tools is not none +%}" + both[0] + "{%+ else +%}" + both[1] + "{%+ endif +%}"


def _without_last_newline(template: str) -> str:
    """Returns what Jinja2 reads of a template: one newline at its end is none of its text."""
    return template.removesuffix("\n").removesuffix("\r") if template.endswith("\n") else template.removesuffix("\r")
