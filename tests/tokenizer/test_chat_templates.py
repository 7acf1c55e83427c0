"""Chat templates rendered by the runtime, compared with Jinja2 as transformers sets it up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from chat_expressions import RandomTemplates
from chat_rendering import RUNTIME, Refused, expected, outcome, rendered

from nnefc.support.diagnostics import CompileError
from nnefc.tokenizer.chat_template import signatures
from nnefc.tokenizer.chat_template.compiler import compiled_template
from nnefc.tokenizer.chat_template.program import Builtin, Opcode

pytestmark = pytest.mark.filterwarnings("ignore::SyntaxWarning")  # of what Jinja2 makes of random templates

HERE = Path(__file__).parent
STYLES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(HERE.glob("chat_styles/*.jinja"))}
"""Templates in the styles of language models."""


def cases(name: str) -> list[tuple[str, str]]:
    """The lines of a file: a message of an error, if there is a tab, and a template."""
    lines = (HERE / "chat_cases" / name).read_text(encoding="utf-8").splitlines()
    return [(template, message) for message, _, template in (line.rpartition("\t") for line in lines)]


def ask(text: str = "") -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


_SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "A town, «Zürich» or 東京"},
        "days": {"type": "integer", "minimum": 0.5, "default": 3, "enum": [1, 2, 3]},
        "units": {"type": "array", "items": {"type": "string"}, "nullable": True},
        "more": {"type": ["object", "null"], "oneOf": [{"type": "string"}, {"type": "number", "default": 1e-7}]},
        "deep": {"type": "object", "properties": {"x": {"type": "object", "properties": {"y": {"type": "boolean"}}}}},
    },
    "required": ["city"],
}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "description": 'It says "rain" & <sun>', "parameters": _SCHEMA},
    },
    {
        "type": "function",
        "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}},
    },
]
_CALL = {
    "type": "function",
    "id": "abcdef123",
    "function": {"name": "weather", "arguments": {"city": "Zürich", "n": [1, 2.5, None]}},
}
_USER = {"role": "user", "content": " Hello there \n"}
_REPLY = {"role": "assistant", "content": "<think>\nWell …\n</think>\n\nHi! /think"}
_SYSTEM = {"role": "system", "content": "Be brief. /no_think"}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one": [_USER],
    "system": [_SYSTEM, _USER],
    "turns": [_SYSTEM, _USER, _REPLY, {"role": "user", "content": "And\r\n\r\nthen?"}],
    "ends with a reply": [_USER, _REPLY],
    "tools": [
        _SYSTEM,
        _USER,
        {"role": "assistant", "content": "", "tool_calls": [_CALL]},
        {"role": "tool", "content": "18 °C", "tool_call_id": "abcdef123", "name": "weather"},
        {"role": "assistant", "content": "It is warm.", "tool_calls": None},
        {"role": "user", "content": "Thanks"},
    ],
    "two results": [
        _USER,
        {"role": "assistant", "content": None, "tool_calls": [_CALL, _CALL]},
        {"role": "tool", "content": {"content": [1]}, "tool_call_id": "abcdef123"},
        {"role": "tool", "content": "é", "tool_call_id": "abcdef123"},
    ],
    "parts": [
        {
            "role": "user",
            "content": [{"type": "text", "text": "A"}, {"type": "image"}, {"type": "text", "text": " 🙂 "}],
        }
    ],
    "unicode": [{"role": "user", "content": "\u2028 ﬁ ǆ ΑΣ Σ ß İ \x85\xa0'\"\\ \U000e0001\ud800 e\u0301"}],
    "thoughts": [
        _USER,
        {"role": "assistant", "content": None, "reasoning": "r", "tool_calls": None},
        {"role": "assistant", "content": "b", "thinking": "t", "reasoning_content": "c"},
        _USER,
    ],
    "empty": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}],
    "wrong roles": [_REPLY, _REPLY, {"role": "critic", "content": "no"}],
    "none": [],
}
CALLS: list[tuple[object, bool, dict[str, Any]]] = [
    (None, True, {}),
    (
        TOOLS,
        False,
        {"enable_thinking": False, "builtin_tools": ["weather", "code_interpreter"], "documents": [{"text": "T"}]},
    ),
    (TOOLS, True, {"enable_thinking": True, "tools_in_user_message": False, "controls": {"citations": 1}}),
]


@pytest.mark.parametrize("style", STYLES)
def test_conversations_in_the_styles_of_models(style: str) -> None:
    template, texts = STYLES[style], 0
    for name, messages in CONVERSATIONS.items():
        for tools, prompt, variables in CALLS:
            given = (template, messages, tools, prompt, variables)
            wanted = outcome(expected, *given)
            assert outcome(rendered, *given) == wanted, (name, tools is not None)
            texts += wanted is not None
    assert texts >= 6


def test_there_are_templates_in_enough_styles() -> None:
    assert len(STYLES) >= 30


def test_expressions() -> None:
    for expression, _ in cases("expressions.txt"):
        given = ("[{{ " + expression + " }}]", ask("é"))
        wanted = outcome(expected, *given)
        assert wanted is not None, expression
        assert rendered(*given) == wanted, expression


WHITE_SPACE = (
    "  {% if true %}\n  a\n  {% endif %}\n{# c #}\n  {%- if true -%}  b  {%- endif +%}\n"
    "{{ 'x' }}\n\n{%+ if true %}c{% endif %}\n"
)


def test_statements() -> None:
    messages = [*ask("é"), {"role": "assistant", "content": "b"}]
    for template in (WHITE_SPACE, *(template for template, _ in cases("statements.txt"))):
        given = (template, messages, None, True, {"k": [1]})
        wanted = outcome(expected, *given)
        assert wanted is not None, template
        assert rendered(*given) == wanted, template


@pytest.mark.parametrize("seed", range(6))
def test_random_templates(seed: int) -> None:
    """Texts are equal, and templates that Jinja2 refuses fail."""
    texts = 0
    for number in range(60):
        template, variables = RandomTemplates(f"{seed} {number}").template()
        given = (template, [{"role": "user", "content": "aB é"}], None, True, variables)
        wanted = outcome(expected, *given)
        assert outcome(rendered, *given) == wanted, template
        texts += wanted is not None
    assert texts >= 20


@pytest.mark.parametrize("name", ["errors.txt", "hostile.txt"])
def test_templates_that_fail_say_why(name: str) -> None:
    """Mistakes, and what would take too much."""
    for template, message in cases(name):
        with pytest.raises(Refused, match=message):
            rendered(template, ask("a" * 1000))


LARGE = {
    "x" * 300000: "300,000 characters",
    "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}": "too deep",
    "\n{% for %}": "line 2",
    "{{ " + "1" * 5000 + " }}": "digits",
}


def test_what_is_not_known_is_refused() -> None:
    for template, message in (*cases("refused.txt"), *LARGE.items()):
        with pytest.raises(CompileError, match=message):
            compiled_template(template, {})


def test_programs_are_the_same_each_time() -> None:
    for style in ("qwen3", "gpt-oss"):
        first, second = (compiled_template(STYLES[style], {"bos_token": "a"}) for _ in range(2))
        assert first == second


@pytest.mark.parametrize(
    ("file", "name", "prefix", "codes"),
    [
        ("program.h", "opcode", "OP", Opcode),
        ("program.h", "filter", "FILTER", signatures.FilterCode),
        ("program.h", "test", "TEST", signatures.TestCode),
        ("values.h", "builtin", "BUILTIN", Builtin),
    ],
)
def test_codes_are_those_of_the_runtime(file: str, name: str, prefix: str, codes: Any) -> None:
    text = re.sub(r"/\*.*?\*/", "", (RUNTIME / "chat" / file).read_text(), flags=re.DOTALL)
    body = text.partition(f"typedef enum nnefc_{name} {{")[2].partition("}")[0]
    names = [found for found in re.findall(r"\w+", body) if not found.endswith("_COUNT")]
    assert [f"NNEFC_{prefix}_{code.name}" for code in codes] == names
