"""Render the chat template of a model's file: Jinja2, as transformers renders it.

Templates come with a file from anywhere, so they are programs of strangers. One is rendered in Jinja2's sandbox, which
denies access to Python's internals, and in a process of its own, which ends when it takes too long, too much memory, or
writes too much.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, NoReturn

__all__ = ["TemplateError", "rendered"]

_SECONDS = 5
"""Of processor time."""
_PATIENCE = 30
"""Seconds on the clock."""
_MAX_BYTES = 1 << 30
"""Of memory, where the system can limit it."""
_MAX_TEXT = 4 << 20
"""Characters that a template may write."""
_MAX_SHOWN = 300
"""Characters of an error's text."""

_TOO_MUCH = (
    f"it takes too much to render: the limits are {_SECONDS} seconds, {_MAX_BYTES >> 30} GiB of memory, and "
    f"{_MAX_TEXT >> 20} million characters"
)


class TemplateError(ValueError):
    """A chat template that cannot be rendered; the message says why."""


def rendered(template: str, values: Mapping[str, Any]) -> str:
    """Render a template with some values, which are what JSON has.

    `raise_exception`, `strftime_now`, the filter `tojson`, `break` and `continue`, and the block `generation` are those
    of transformers.

    Raises:
        TemplateError: the template is wrong, refuses the conversation, or exceeds a limit.
    """
    limits = {"seconds": _SECONDS, "bytes": _MAX_BYTES, "letters": _MAX_TEXT}
    request = json.dumps({"template": template, "values": dict(values), "limits": limits}).encode()
    try:
        done = subprocess.run(
            [sys.executable, __file__], input=request, capture_output=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise TemplateError(_TOO_MUCH) from None
    if done.returncode != 0:
        raise TemplateError(_TOO_MUCH)
    answer = json.loads(done.stdout)
    if "error" in answer:
        raise TemplateError(_shown(answer["error"]))
    text: str = answer["text"]
    return text


def _shown(message: str) -> str:
    """The beginning of a text that a template may have chosen, without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else " " for letter in message[:_MAX_SHOWN])


def main() -> None:
    """Render the template of a request on standard input; write the text or the error."""
    request = json.load(sys.stdin)
    limits = request["limits"]
    _limit(limits["bytes"], limits["seconds"])
    try:
        from jinja2 import TemplateSyntaxError
    except ImportError:
        sys.stdout.buffer.write(json.dumps({"error": "it needs Jinja2: pip install 'nnefc[llm]'"}).encode())
        return
    try:
        answer = {"text": _text(request["template"], request["values"], limits["letters"])}
    except TemplateSyntaxError as error:
        answer = {"error": f"line {error.lineno}: {error.message}"}
    except MemoryError:
        answer = {"error": _TOO_MUCH}
    except Exception as error:  # whatever an expression of a template raises
        answer = {"error": str(error) or type(error).__name__}
    sys.stdout.buffer.write(json.dumps(answer).encode())


def _limit(max_bytes: int, seconds: int) -> None:
    """Limit the memory and the time of this process, where the system can."""
    try:
        import resource
    except ImportError:
        return
    for kind, value in ((resource.RLIMIT_AS, max_bytes), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # a lower limit holds already
            resource.setrlimit(kind, (value, value))


def _text(template: str, values: Mapping[str, Any], left: int) -> str:
    """The text, of `left` characters at most."""
    from jinja2.exceptions import TemplateError as JinjaError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}`, which marks what the assistant says: its body is rendered as it is."""

        tags = {"generation"}  # noqa: RUF012 - as the base class has it

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> NoReturn:
        raise JinjaError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = _now
    parts: list[str] = []
    for part in environment.from_string(template).generate(**values):
        left -= len(part)
        if left < 0:
            raise MemoryError
        parts.append(part)
    return "".join(parts)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is: Jinja2's own filter escapes it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


if __name__ == "__main__":
    main()
