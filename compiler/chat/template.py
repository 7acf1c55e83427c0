"""Renders chat templates by Jinja2, for libraries without a compiled template; the environment is that of transformers.

Templates come with model files and are not trusted. They are rendered in Jinja2's sandbox, which denies access to
Python's internals, and in a process of its own with limits of time, memory and output.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, NoReturn

__all__ = ["Renderer", "TemplateError", "shown"]

_SECONDS = 5
"""Limit of processor time."""
_PATIENCE = 30
"""Limit of elapsed time, in seconds."""
_MAX_BYTES = 1 << 30
"""Limit of memory, on systems that support one."""
_MAX_TEXT = 4 << 20
"""Maximum characters of the rendered text."""
_MAX_SHOWN = 300
"""Maximum characters of an error message of a template."""

_TOO_MUCH = (
    f"it takes too much to render: the limits are {_SECONDS} seconds, {_MAX_BYTES >> 30} GiB of memory, and "
    f"{_MAX_TEXT >> 20} million characters"
)


class TemplateError(ValueError):
    """A chat template that cannot be rendered; the message says why."""


class Renderer:
    """Renders chat templates in a process of its own, which serves several calls.

    A process that exceeds a limit ends, and the next call starts another one.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        """Render a template.

        `raise_exception`, `strftime_now`, the filter `tojson`, `break` and `continue`, and the block `generation` are
        those of transformers.

        Args:
            template: of Jinja.
            values: of the template's variables, objects of JSON.

        Raises:
            TemplateError: the template is wrong, refuses the conversation, or exceeds a limit.
        """
        limits = {"seconds": _SECONDS, "bytes": _MAX_BYTES, "letters": _MAX_TEXT}
        request = json.dumps({"template": template, "values": dict(values), "limits": limits}).encode() + b"\n"
        with self._lock:
            answer = self._answer(request)
        if "error" in answer:
            raise TemplateError(shown(answer["error"]))
        text: str = answer["text"]
        return text

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def __del__(self) -> None:
        self.close()

    def _answer(self, request: bytes) -> dict[str, Any]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        timer = threading.Timer(_PATIENCE, process.kill)
        timer.start()
        try:
            process.stdin.write(request)
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = b""
        finally:
            timer.cancel()
        if not line:
            self.close()
            return {"error": _TOO_MUCH}
        answer: dict[str, Any] = json.loads(line)
        return answer


def shown(message: str) -> str:
    """Return the beginning of a text of a template, without control characters that a terminal would interpret."""
    return "".join(letter if letter.isprintable() else " " for letter in message[:_MAX_SHOWN])


def main() -> None:
    """Render templates: for each request, a line of JSON on standard input, write a line with the result."""
    for line in sys.stdin.buffer:
        request = json.loads(line)
        limits = request["limits"]
        _limit(limits["bytes"], limits["seconds"])
        sys.stdout.buffer.write(json.dumps(_rendered(request, limits["letters"])).encode() + b"\n")
        sys.stdout.buffer.flush()


def _rendered(request: Mapping[str, Any], letters: int) -> dict[str, str]:
    try:
        from jinja2 import TemplateSyntaxError
    except ImportError:
        return {"error": "it needs Jinja2: pip install 'nnefc[llm]'"}
    try:
        return {"text": _text(request["template"], request["values"], letters)}
    except TemplateSyntaxError as error:
        return {"error": f"line {error.lineno}: {error.message}"}
    except MemoryError:
        return {"error": _TOO_MUCH}
    except Exception as error:  # whatever an expression of a template raises
        return {"error": str(error) or type(error).__name__}


def _limit(max_bytes: int, seconds: int) -> None:
    """Limit the memory of this process, and its processor time from now on, on systems that support it."""
    try:
        import resource
    except ImportError:
        return
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    limits = (
        (resource.RLIMIT_AS, (max_bytes, max_bytes)),
        (resource.RLIMIT_CPU, (int(used) + seconds + 1, hard)),  # the next request sets another one
        (resource.RLIMIT_CORE, (0, 0)),
    )
    for kind, values in limits:
        with suppress(ValueError, OSError):  # a lower limit holds already
            resource.setrlimit(kind, values)


def _text(template: str, values: Mapping[str, Any], left: int) -> str:
    """Return the rendered text.

    Raises:
        MemoryError: it has more than `left` characters.
    """
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError as JinjaError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}`, which marks what the assistant says: its body is a scope."""

        tags = {"generation"}  # noqa: RUF012 - as the base class has it

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

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
    """Return JSON without the escapes for HTML that Jinja2's own filter adds."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


if __name__ == "__main__":
    main()
