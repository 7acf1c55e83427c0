"""Reads the fields of a request that say which tools a model may or must call."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nnefc.serving.text.fields import flag, invalid

__all__ = ["Tools", "tools_of"]

_MAX_TOOLS = 128
_NAME = re.compile(r"[\w.:/-]{1,128}", re.ASCII)


@dataclass(frozen=True)
class Tools:
    """The tools of a request.

    Attributes:
        listed: all tools of the request, for the chat template.
        functions: those that the model may call, each with `name`.
        choice: "auto": the model decides whether to call one; "required": it must.
        is_single: whether a reply has at most one call.
    """

    listed: Sequence[Mapping[str, Any]]
    functions: Sequence[Mapping[str, Any]]
    choice: Literal["auto", "required"]
    is_single: bool


def tools_of(given: Mapping[str, Any]) -> Tools | None:
    """Return the tools of a request; None if it has none, or none may be called.

    Raises:
        Refused: a field is of a wrong type, or "tool_choice" names a function that is not in "tools".
    """
    listed = given.get("tools")
    if listed is not None and (not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed)):
        raise invalid('"tools" is not a list of objects', "tools")
    choice = given.get("tool_choice")
    is_single = not flag(given, "parallel_tool_calls", default=True)
    if not listed:
        if choice not in (None, "none", "auto"):
            raise invalid('"tool_choice" needs "tools"', "tool_choice")
        return None
    if len(listed) > _MAX_TOOLS:
        raise invalid(f'"tools" has {len(listed)} tools; {_MAX_TOOLS} are read', "tools")
    functions = {function["name"]: function for function in map(_function, listed)}
    match choice:
        case "none":
            return None
        case None | "auto" | "required":
            return Tools(listed, [*functions.values()], "required" if choice == "required" else "auto", is_single)
        case {"type": "function", "function": {"name": str(name)}}:
            return Tools(listed, [_chosen(functions, name)], "required", True)
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required" as mode, "tools": list(allowed)}}:
            names = [_allowed_name(each) for each in allowed]
            if not names:
                raise invalid('"tool_choice" allows no tool', "tool_choice")
            return Tools(listed, [_chosen(functions, name) for name in dict.fromkeys(names)], mode, is_single)
    raise invalid(
        '"tool_choice" is none of "none", "auto", "required", {"type": "function", "function": {"name": …}} and '
        '{"type": "allowed_tools", "allowed_tools": {"mode": …, "tools": […]}}',
        "tool_choice",
    )


def _chosen(functions: Mapping[str, Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    if name not in functions:
        raise invalid(f'"tool_choice" is the function {name[:100]!r}, which "tools" does not have', "tool_choice")
    return functions[name]


def _allowed_name(tool: Any) -> str:
    match tool:
        case {"type": "function", "function": {"name": str(name)}}:
            return name
    raise invalid(
        'an allowed tool of "tool_choice" is not {"type": "function", "function": {"name": …}}', "tool_choice"
    )


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function")
    if tool.get("type", "function") != "function" or not isinstance(function, dict):
        raise invalid('a tool is not {"type": "function", "function": {…}}', "tools")
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid('the "name" of a function is not a text of letters, digits and _ . : / - only', "tools")
    if parameters is not None and not isinstance(parameters, dict):
        raise invalid(f'the "parameters" of the function {name!r} are not a JSON schema', "tools")
    return function
