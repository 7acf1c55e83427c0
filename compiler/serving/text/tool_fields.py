"""Reads which tools a model may call, and which it must."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nnefc.serving.text.fields import invalid

__all__ = ["Tools", "tools_of"]

_MAX_TOOLS = 128
_NAME = re.compile(r"[\w.:/-]{1,128}", re.ASCII)


@dataclass(frozen=True)
class Tools:
    """The functions that a model may call.

    Attributes:
        listed: as the request has them, for the chat template.
        functions: of which calls are found, each with `name`.
        choice: whether the model chooses, or must call one.
        is_single: whether a reply has one call at most.
    """

    listed: Sequence[Mapping[str, Any]]
    functions: Sequence[Mapping[str, Any]]
    choice: Literal["auto", "required"]
    is_single: bool


def tools_of(given: Mapping[str, Any]) -> Tools | None:
    """Returns the tools of a request; None where there are none, or none may be called.

    Raises:
        Refused: a field of a wrong type, or a choice that is no function.
    """
    listed = given.get("tools")
    if listed is not None and (not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed)):
        raise invalid('"tools" is not a list of objects')
    choice = given.get("tool_choice")
    if not listed:
        if choice not in (None, "none", "auto"):
            raise invalid('"tool_choice" needs "tools"')
        return None
    if len(listed) > _MAX_TOOLS:
        raise invalid(f'"tools" has {len(listed)} tools; {_MAX_TOOLS} are read')
    functions = [_function(each) for each in listed]
    is_parallel = given.get("parallel_tool_calls")
    if is_parallel is not None and not isinstance(is_parallel, bool):
        raise invalid('"parallel_tool_calls" is not true or false')
    match choice:
        case "none":
            return None
        case None | "auto":
            return Tools(listed, functions, "auto", is_parallel is False)
        case "required":
            return Tools(listed, functions, "required", is_parallel is False)
        case {"type": "function", "function": {"name": str(name)}}:
            chosen = [each for each in functions if each["name"] == name]
            if not chosen:
                raise invalid(f'"tool_choice" is the function {name[:100]!r}, which "tools" does not have')
            return Tools(listed, chosen[:1], "required", True)
    raise invalid(
        '"tool_choice" is none of "none", "auto", "required", and {"type": "function", "function": {"name": …}}'
    )


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function")
    if tool.get("type", "function") != "function" or not isinstance(function, dict):
        raise invalid('a tool is not {"type": "function", "function": {…}}')
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid('the "name" of a function is not a text of letters, digits and _ . : / - only')
    if parameters is not None and not isinstance(parameters, dict):
        raise invalid(f'the "parameters" of the function {name!r} are not a JSON schema')
    return function
