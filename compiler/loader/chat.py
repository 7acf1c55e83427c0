"""Renders conversations by the chat template of a library, its function `nnefc_chat`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from ctypes import (
    Structure,
    addressof,
    byref,
    c_char_p,
    c_int64,
    c_size_t,
    c_uint32,
    c_void_p,
    create_string_buffer,
    sizeof,
)
from datetime import datetime
from typing import Any

from .library import Library
from .tensors import RunError

__all__ = ["TemplateRefused", "rendered"]

_OK, _TOO_SMALL, _TEMPLATE_ERROR = 0, 10, 12
_ADD_GENERATION_PROMPT = 1
_ERROR_BYTES = 512
_FIRST_ROOM = 4096
_EPOCH = datetime(1970, 1, 1)


class TemplateRefused(RunError):
    """A conversation that the chat template refuses, or whose rendering exceeds a limit of memory or steps."""


class _String(Structure):
    _fields_ = (("data", c_char_p), ("size", c_size_t))


class _Message(Structure):
    _fields_ = (("role", _String), ("content", _String), ("more", _String))


class _Options(Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("tools", _String),
        ("variables", _String),
        ("local_time", c_int64),
        ("error", c_void_p),
        ("error_room", c_size_t),
    )


def rendered(
    library: Library,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Any] | None,
    add_generation_prompt: bool,
    variables: Mapping[str, Any],
) -> str:
    """Render a conversation; arguments as in :meth:`Model.chat_text`.

    Raises:
        TemplateRefused: the template refuses the conversation, or exceeds a limit.
        RunError: the library has no chat template, or there is not enough memory.
    """
    function = library.function("nnefc_chat")
    array = (_Message * len(messages))(*(_Message(more=_json(message)) for message in messages))
    error = create_string_buffer(_ERROR_BYTES)
    options = _Options(
        sizeof(_Options),
        _ADD_GENERATION_PROMPT * add_generation_prompt,
        _json(tools) if tools is not None else _String(),
        _json(variables) if variables else _String(),
        int((datetime.now() - _EPOCH).total_seconds()),
        addressof(error),
        _ERROR_BYTES,
    )
    size, room = c_size_t(), _FIRST_ROOM
    while True:
        text = create_string_buffer(room)
        status = function(array, len(messages), byref(options), text, room, byref(size))
        if status != _TOO_SMALL:
            break
        room = size.value
    if status == _OK:
        return text.raw[: size.value].decode("utf-8", "surrogatepass")
    if status == _TEMPLATE_ERROR:
        raise TemplateRefused(error.value.decode(errors="replace"))
    raise RunError(f"{library.name}: {library.dll.nnefc_status_name(status).decode()}: no text of the conversation")


def _json(value: object) -> _String:
    content = json.dumps(value).encode()
    return _String(content, len(content))
