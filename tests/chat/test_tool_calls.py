"""Calls of tools in replies that come in pieces of any size."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from nnefc.chat.tool_calls import (
    HERMES,
    LLAMA,
    MISTRAL,
    MISTRAL_NAMED,
    CallParser,
    CallStyle,
    grammar_of,
    style_of,
)

UNCHANGED = "…"
A, B = ("f", '{"a": 1}'), ("g", "{}")
CASES: list[tuple[CallStyle, str, str, list[tuple[str, str]]]] = [
    (HERMES, "No < call.  ", "No < call.  ", []),
    (
        HERMES,
        'I look.\n<tool_call>\n{"name": "f", "arguments": {"a": "}\\"{"}}\n</tool_call>\n'
        '<tool_call>{"arguments": {}, "name":"g"}</tool_call>',
        "I look.",
        [("f", '{"a": "}\\"{"}'), B],
    ),
    (HERMES, '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call> done', " done", [A]),
    (HERMES, '<tool_call> {"name": "h", "arguments": {}}</tool_call>.', UNCHANGED, []),
    (HERMES, '<tool_call>{"name": "f", "argu', UNCHANGED, []),
    (HERMES, '<tool_call>{"name": "f", "arguments": {"a": 1', "", [("f", '{"a": 1')]),
    (HERMES, "<tool_call>{1}</tool_call>", UNCHANGED, []),
    (LLAMA, '{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}', "", [A, B]),
    (LLAMA, '<|python_tag|>{"type": "function", "name": "f", "parameters": {"a": 1}}', "", [A]),
    (LLAMA, ' {"name": "a person"}', UNCHANGED, []),
    (LLAMA, 'say {"name": "f", "parameters": {}}', UNCHANGED, []),
    (
        MISTRAL,
        'ok[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}, "id": "1"}, {"name": "g", "arguments": "{}"}]',
        "ok",
        [A, B],
    ),
    (MISTRAL, '[TOOL_CALLS]{"name": "f", "arguments": {"a": 1}}[TOOL_CALLS]{"name": "g"}', "", [A, B]),
    (MISTRAL_NAMED, '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}', "", [A, B]),
    (MISTRAL_NAMED, "[TOOL_CALLS]h[ARGS]{}", UNCHANGED, []),
]


@pytest.mark.parametrize("style, text, spoken, calls", CASES)
def test_calls_are_found(style: CallStyle, text: str, spoken: str, calls: list[tuple[str, str]]) -> None:
    for seed in range(20):
        rng, left, parts = random.Random(seed), text, []
        parser = CallParser(style, {"f", "g"})
        while left:
            size = rng.choice([1, 2, 3, 7, 99])
            parts += parser.add(left[:size])
            left = left[size:]
        parts += parser.end()
        found: dict[int, list[str]] = {}
        for part in parts:
            if not isinstance(part, str):
                own = found.setdefault(part.index, ["", ""])
                own[0] += part.name
                own[1] += part.arguments
        assert "".join(part for part in parts if isinstance(part, str)) == (text if spoken is UNCHANGED else spoken)
        assert [tuple(call) for call in found.values()] == calls


@pytest.mark.parametrize("style", [HERMES, LLAMA, MISTRAL, MISTRAL_NAMED])
def test_grammars_allow_what_is_parsed(style: CallStyle) -> None:
    """Schemas may have definitions of their own, to which they refer from their root."""
    llguidance: Any = pytest.importorskip("llguidance")
    own = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/one"}},
        "$defs": {"one": {"const": 1}},
        "required": ["a"],
    }
    functions = [{"name": "f", "parameters": own}, {"name": "g"}]
    letters = [bytes([n]) for n in range(256)]

    class Letters:
        eos_token_id, bos_token_id, special_token_ids, tokens = 256, None, [256], [*letters, b"<end>"]

        def __call__(self, text: bytes | str) -> list[int]:
            return [*(text.encode() if isinstance(text, str) else text)]

    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Letters()))
    call = {"name": "f", style.arguments: {"a": 1}}
    one = f"f[ARGS]{json.dumps(call[style.arguments])}" if style.is_named else json.dumps(call)
    one = {"<tool_call>": f"<tool_call>\n{one}\n</tool_call>", "<|python_tag|>": one}.get(style.start, one)
    one = f"{style.start}{one}" if style.is_named else one
    first, last = (f"{style.start}[", "]") if style is MISTRAL else ("", "")
    for is_single, text, wanted in (
        (True, first + one + last, True),
        (False, first + style.joint.join([one, one]) + last, True),
        (True, first + style.joint.join([one, one]) + last, False),
        (False, (first + one + last).replace("1", "2"), False),
        (False, "hello", False),
    ):
        matcher = llguidance.LLMatcher(tokenizer, grammar_of(style, functions, {}, is_single))
        assert not matcher.is_error(), matcher.get_error()
        tokens = [*text.encode()]
        accepted = matcher.validate_tokens(tokens) == len(tokens) and matcher.consume_tokens(tokens)
        assert (accepted and matcher.is_accepting()) is wanted, text


def test_styles_are_known_by_templates() -> None:
    assert style_of("{% if tools %}<tool_call>{% endif %}") is HERMES
    assert style_of("{% if tools %}[TOOL_CALLS]{% endif %}") is MISTRAL
    assert style_of("{% if tools %}[TOOL_CALLS]x[ARGS]{% endif %}") is MISTRAL_NAMED
    assert style_of("{% if tools %}{{ '\"parameters\": ' }}{% endif %}") is LLAMA
    assert style_of("{{ messages }}") is style_of("{% if tools %}<tool_call><function=f>{% endif %}") is None
