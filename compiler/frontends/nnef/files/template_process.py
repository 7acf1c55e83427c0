"""Worker process that renders a template with minijinja: reads a request and writes an answer, both in JSON.

It imports nothing of nnefc. The engine ends its process for some templates, and memory is limited for the whole of it.
"""

import json
import sys
from contextlib import suppress


def main() -> None:
    """Answer with the text, or with the error and where it is, in characters of the template."""
    request = json.load(sys.stdin)
    limit(request["bytes"], request["seconds"])
    import minijinja

    values = "".join(f"{{% set {name} = {written(value)} %}}" for name, value in request["values"].items())
    source = values + request["text"]
    environment = minijinja.Environment()
    environment.fuel = request["steps"]
    try:
        answer: dict[str, object] = {"text": environment.render_str(source)}
    except minijinja.TemplateError as error:
        begin = error.range[0] if error.range else 0
        at = len(source.encode()[:begin].decode(errors="ignore")) - len(values)
        reason = "a value is not defined" if error.kind == "UndefinedError" else error.detail or error.kind
        answer = {"error": reason, "at": max(0, at)}
    json.dump(answer, sys.stdout)


def limit(max_bytes: int, seconds: int) -> None:
    """Limit the memory and the time of this process, where the system can."""
    try:
        import resource
    except ImportError:
        return
    for kind, value in ((resource.RLIMIT_AS, max_bytes), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # a lower limit is there already
            resource.setrlimit(kind, (value, value))


def written(value: object) -> str:
    """A value of JSON as expressions of templates have it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {written(element)}" for key, element in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return "none" if value is None else json.dumps(value)


if __name__ == "__main__":
    main()
