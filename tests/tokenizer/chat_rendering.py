"""Renders chat templates by the runtime's interpreter, compiled once, and by Jinja2 as transformers sets it up."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from runtime_samples import ZIG_CC, folder

from nnefc.loader.chat import _ADD_GENERATION_PROMPT, _ERROR_BYTES, _json, _Message, _Options, _String
from nnefc.targets.link.zig import run_compiler
from nnefc.tokenizer.chat_template.compiler import compiled_template

RUNTIME = Path(__file__).resolve().parents[2] / "targets" / "runtime"
NOW = datetime(2026, 3, 7, 9, 5, 2)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
FIRST_ROOM = 1 << 16


class Refused(Exception):
    """A template that one of the two does not render."""


@cache
def interpreter() -> Any:
    """The function nnefc_chat_render of a library of the runtime's files, with checks of undefined behaviour."""
    where = folder("chat")
    sources = [str(path) for path in sorted((RUNTIME / "chat").glob("*.c")) if path.name != "chat.c"]
    checks = ("-fsanitize=undefined", "-fsanitize-trap=undefined")
    warnings = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-std=c11", "-DNNEFC_CHAT_STEPS=2000000")
    library = where / "chat.so"
    command = [*ZIG_CC, "-shared", "-fPIC", *warnings, *checks, f"-I{RUNTIME}", *sources, "-o", str(library), "-lm"]
    run_compiler(command, where)
    function = ctypes.CDLL(str(library)).nnefc_chat_render
    function.argtypes = (
        [ctypes.c_void_p] * 2 + [ctypes.c_size_t] + [ctypes.c_void_p] * 2 + [ctypes.c_size_t, ctypes.c_void_p]
    )
    return function


@cache
def program(template: str) -> ctypes.Array[ctypes.c_uint32]:
    """The program of a template."""
    content = compiled_template(template, TOKENS)
    return (ctypes.c_uint32 * (len(content) // 4)).from_buffer_copy(content)


def rendered(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    tools: object = None,
    prompt: bool = True,
    variables: Mapping[str, Any] | None = None,
) -> str:
    """What the interpreter writes.

    Raises:
        Refused: an error, with its message.
    """
    code = program(template)
    array = (_Message * len(messages))(*(_Message(more=_json(message)) for message in messages))
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    options = _Options(
        ctypes.sizeof(_Options),
        _ADD_GENERATION_PROMPT * prompt,
        _json(tools) if tools is not None else _String(),
        _json(variables or {}),
        int((NOW - datetime(1970, 1, 1)).total_seconds()),
        ctypes.addressof(error),
        _ERROR_BYTES,
    )
    room, size = FIRST_ROOM, ctypes.c_size_t()
    for _ in range(2):
        text = ctypes.create_string_buffer(room)
        status = interpreter()(code, array, len(messages), ctypes.byref(options), text, room, ctypes.byref(size))
        if status != 10:
            break
        room = size.value
    if status != 0:
        assert status == 12 and error.value, status
        raise Refused(error.value.decode(errors="replace"))
    return text.raw[: size.value].decode("utf-8", "surrogatepass")


class _Generation(Extension):
    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_as_it_is"), [], [], body).set_lineno(line)

    def _as_it_is(self, caller: Any) -> str:
        return str(caller())


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(
    value: object, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@cache
def environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    made.filters["tojson"] = _to_json
    made.globals["raise_exception"] = _raise
    made.globals["strftime_now"] = NOW.strftime
    return made


@cache
def _reference(template: str) -> Template:
    return environment().from_string(template)


def expected(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    tools: object = None,
    prompt: bool = True,
    variables: Mapping[str, Any] | None = None,
) -> str:
    """What Jinja2 writes.

    Raises:
        Refused: any error of the template.
    """
    given = {
        "messages": [_as_transformers_has_it(message) for message in messages],
        "tools": tools,
        "documents": None,
        "add_generation_prompt": prompt,
    }
    given = json.loads(json.dumps(TOKENS | given | dict(variables or {})))
    try:
        return _reference(template).render(**given)
    except Exception as error:
        raise Refused(f"{type(error).__name__}: {error}") from error


def _as_transformers_has_it(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message without keys that are None, and what was thought before it by both names that templates read."""
    made = {key: value for key, value in message.items() if value is not None}
    for name in ("reasoning_content", "thinking", "reasoning"):
        if name in made:
            return {"thinking": made[name], **made, "reasoning_content": made[name]}
    return made


def outcome(render: Any, *given: Any) -> str | None:
    """The text; None for a refusal."""
    try:
        text: str = render(*given)
    except Refused:
        return None
    return text
