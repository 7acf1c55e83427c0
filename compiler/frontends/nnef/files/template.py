"""Renders documents that are minijinja templates with the model's JSON files, as tract does.

The engine is minijinja itself. Templates come from outside: it works in a process of its own, with limits.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from nnefc.frontends.nnef.files import template_process
from nnefc.support.diagnostics import CompileError, Location
from nnefc.support.distribution import compiler_hint

__all__ = ["is_template", "rendered"]

_USED = re.compile(r"^[^#\n]*\{[{%]", re.MULTILINE)
_NAME = re.compile(r"[^\W\d]\w*")

_STEPS = 2_000_000
_BYTES = 1 << 30
"""Bytes of memory, at most, that of the process itself included."""
_SECONDS = 5
"""Seconds of processor time, at most."""
_PATIENCE = 6
"""Seconds on the clock for one of those, where other programs are busy, or nothing else limits it."""
_MAX_TEXT = 64 << 20
"""Bytes that a template may make."""


def is_template(text: str) -> bool:
    """Returns whether a document has what no document of NNEF has outside comments: `{{` or `{%`."""
    return _USED.search(text) is not None


def rendered(text: str, file: str, resource: Callable[[str], Any]) -> str:
    """The text that a template makes.

    Args:
        text: of the template.
        file: its name, for messages.
        resource: the value of a file in JSON by its name, or None if there is none.

    Raises:
        CompileError: it breaks a rule of the language, asks for what is not there, or for too much.
    """
    if find_spec("minijinja") is None:
        raise CompileError(
            f"'{file}' is a template, which the package minijinja fills in, and this is not installed",
            hint=compiler_hint(),
        )
    found = {name: resource(name) for name in sorted(set(_NAME.findall(text)))}
    request = {
        "text": text,
        "values": {name: value for name, value in found.items() if value is not None},
        "steps": _STEPS,
        "bytes": _BYTES,
        "seconds": _SECONDS,
    }
    command = [sys.executable, str(Path(template_process.__file__))]
    try:
        done = subprocess.run(
            command, input=json.dumps(request).encode(), capture_output=True, timeout=_PATIENCE * _SECONDS
        )
    except subprocess.TimeoutExpired:
        done = None
    if done is None or done.returncode != 0 or len(done.stdout) > _MAX_TEXT:
        raise CompileError(
            f"'{file}' is a template that takes too much to fill in",
            hint=f"it may take {_SECONDS} seconds and {_BYTES >> 30} GiB, and make {_MAX_TEXT >> 20} MiB",
        )
    answer = json.loads(done.stdout)
    if "error" in answer:
        _fail(text, file, answer["error"], answer["at"])
    made: str = answer["text"]
    return made


def _fail(text: str, file: str, message: str, at: int) -> NoReturn:
    begin = text.rfind("\n", 0, at) + 1
    end = text.find("\n", begin)
    shown = text[begin : len(text) if end < 0 else end]
    location = Location(file, text.count("\n", 0, at) + 1, at - begin + 1, shown)
    raise CompileError(f"in the template: {message}", location=location)
