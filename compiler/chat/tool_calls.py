"""Parses tool calls in a reply while it is generated, and writes the grammar of a reply that must call a tool."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "HERMES",
    "LLAMA",
    "MISTRAL",
    "MISTRAL_NAMED",
    "NAME_MARKS",
    "CallParser",
    "CallPart",
    "CallStyle",
    "grammar_of",
    "style_of",
]

NAME_MARKS = ("[ARGS]", "[CALL_ID]")
"""In Mistral's models, `[ARGS]` follows the name of a function, and `[CALL_ID]` precedes the identifier of a call."""


@dataclass(frozen=True)
class CallStyle:
    """The format in which a model writes tool calls.

    Attributes:
        start: the text before all calls, or before each call.
        end: the text after each call; "" for none.
        separators: characters that may be between calls.
        arguments: the key of a call's arguments.
        is_bare: whether a reply that begins with a JSON object is a call, even without `start`.
        is_named: whether a call is the function's name, `[ARGS]`, and a JSON object with the arguments.
        list_brackets: the brackets around all calls.
        joint: the text between two calls, in grammars.
        id_letters: the number of letters and digits of a call's identifier, without a prefix; 0: any.
    """

    start: str
    end: str = ""
    separators: str = ""
    arguments: str = "arguments"
    is_bare: bool = False
    is_named: bool = False
    list_brackets: tuple[str, str] = ("", "")
    joint: str = ""
    id_letters: int = 0


HERMES = CallStyle("<tool_call>", "</tool_call>", joint="\n")
"""`<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Hermes, Qwen 2.5 and 3, Granite 4, SmolLM 3."""
LLAMA = CallStyle("<|python_tag|>", separators=";,", arguments="parameters", is_bare=True, joint="; ")
"""`{"name": …, "parameters": {…}}` as the whole reply: Llama 3.1 and later."""
MISTRAL = CallStyle("[TOOL_CALLS]", separators="[],", list_brackets=("[", "]"), joint=", ", id_letters=9)
"""`[TOOL_CALLS][{"name": …, "arguments": {…}}]`: Mistral."""
MISTRAL_NAMED = CallStyle("[TOOL_CALLS]", is_named=True, id_letters=9)
"""`[TOOL_CALLS]name[ARGS]{…}`: Mistral's models of 2025."""


def style_of(template: str) -> CallStyle | None:
    """Return the format of a model's tool calls by its chat template; None if it takes no tools, or has an unknown
    format.
    """
    if "tools" not in template:
        return None
    if MISTRAL.start in template:
        return MISTRAL_NAMED if "[ARGS]" in template else MISTRAL
    if HERMES.start in template and "<function=" not in template:
        return HERMES
    if LLAMA.start in template or '"parameters"' in template or "'parameters'" in template:
        return LLAMA
    return None


# Parsing


@dataclass(frozen=True)
class CallPart:
    """The part of a tool call that a piece of the reply adds.

    Attributes:
        index: of the call within the reply.
        name: of the function in the call's first part; "" in the others.
        arguments: added to the JSON of the arguments.
    """

    index: int
    name: str = ""
    arguments: str = ""


_HEAD = re.compile(
    r'\{\s*(?:"(?:type|id)"\s*:\s*"[^"\\]*"\s*,\s*)*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)
_NAMED_HEAD = re.compile(r"\s*([^\s\[\]{}]{1,256})(?:\[CALL_ID\]\w+)?\[ARGS\]\s*(?=\{)")
_NAMED_BEGINNING = re.compile(r"[^\s\[\]{}]{1,256}(?:\[[\w\]\[]{0,40})?\s*")


_BLANKS = " \t\r\n"


class CallParser:
    """Divides a reply into text and tool calls, while it is generated.

    Arguments are returned as soon as they arrive. What begins like a call, but is not valid JSON or names an unknown
    function, is returned as text.

    Attributes:
        count: the number of calls so far.
    """

    def __init__(self, style: CallStyle, names: Collection[str]) -> None:
        """Begin a reply.

        Args:
            style: the format of calls.
            names: of the functions that may be called.
        """
        self.count = 0
        self._style, self._names = style, names
        self._state = self._beginning if style.is_bare else self._text
        self._held = ""
        self._start = ""  # the text before a call, for the case that it is none
        self._blank = ""
        self._nesting = _Nesting()
        self._scanned = 0
        self._parts: list[str | CallPart] = []

    def add(self, text: str) -> list[str | CallPart]:
        """Add a piece of the reply, and return texts and parts of calls in their order."""
        self._held += text
        while self._held and self._state():
            pass
        return self._taken()

    def end(self) -> list[str | CallPart]:
        """Return the text that was held back, at the end of the reply."""
        if self._state in (self._in_arguments, self._behind_arguments):
            return []
        if self._state in (self._between, self._head):
            self._fall_back()
        self._say(self._held)
        self._held = ""
        if self._blank and not self.count:
            self._parts.append(self._blank)
        return self._taken()

    def _taken(self) -> list[str | CallPart]:
        parts, self._parts = self._parts, []
        return parts

    def _say(self, text: str) -> None:
        """Return text to the caller; trailing blanks are held back, since those around calls are dropped."""
        text = self._blank + text
        spoken = text.rstrip()
        self._blank = text[len(spoken) :]
        if spoken:
            self._parts.append(spoken)

    def _fall_back(self) -> None:
        """Treat the held text, and the start mark before it, as text of the reply."""
        start, self._start = self._start, ""
        if not start:
            self._held = self._held.lstrip(self._style.separators)
        self._say(start)
        self._state = self._text if not self._style.is_bare else self._only_text

    # States: each consumes what it can of the text that is held, and returns whether the next one may go on.

    def _beginning(self) -> bool:
        """State at the beginning of a reply: find out whether it begins with a call."""
        held = self._held.lstrip()
        start = self._style.start
        if held.startswith("{"):
            self._start = self._held[: len(self._held) - len(held)]
            self._held, self._state = held, self._between
            return True
        if held.startswith(start):
            self._start, self._held, self._state = start, held[len(start) :], self._between
            return True
        if start.startswith(held):
            return False
        self._state = self._only_text
        return True

    def _only_text(self) -> bool:
        self._say(self._held)
        self._held = ""
        return False

    def _text(self) -> bool:
        """State within text: find the start mark of a call."""
        start = self._style.start
        spoken, found, left = self._held.partition(start)
        if found:
            self._say(spoken)
            self._start, self._held, self._state = start, left, self._between
            return True
        kept = next((n for n in range(len(start) - 1, 0, -1) if self._held.endswith(start[:n])), 0)
        self._say(self._held[: len(self._held) - kept])
        self._held = self._held[len(self._held) - kept :]
        return False

    def _between(self) -> bool:
        """State after the start mark or after a call: find the next call."""
        style, held = self._style, self._held.lstrip()
        if not style.end and held.startswith(style.start):
            self._held, self._start = held[len(style.start) :], style.start
            return True
        if style.start.startswith(held):
            return False
        held = held.lstrip(style.separators + _BLANKS)
        if held.startswith("{") and not style.is_named:
            self._start += self._held[: len(self._held) - len(held)]
            self._held, self._state = held, self._head
            self._nesting, self._scanned = _Nesting(), 0
            return True
        if style.end and held.startswith(style.end):
            self._held, self._start, self._state = held[len(style.end) :], "", self._text
            return True
        if not held or style.end.startswith(held):
            return False
        if style.is_named and (self._start or not style.end):
            if named := _NAMED_HEAD.match(held):
                return self._begin(named[1], held[named.end() :])
            if _NAMED_BEGINNING.fullmatch(held):
                return False
        self._fall_back()
        return True

    def _head(self) -> bool:
        """State within a call: find the name of the function and the beginning of the arguments."""
        if head := _HEAD.match(self._held):
            name = _loaded(head[1])
            if isinstance(name, str) and name in self._names:
                return self._begin(name, self._held[head.end() :])
            self._fall_back()
            return True
        self._scanned, is_whole = self._nesting.scan(self._held, self._scanned, 0)
        if not is_whole:
            return False
        call = _whole_call(self._held[: self._scanned])
        if call is None or call[0] not in self._names:
            self._fall_back()
            return True
        self._held = self._held[self._scanned :]
        self._note(call[0])
        self._parts.append(CallPart(self.count - 1, arguments=call[1]))
        self._state = self._between
        return True

    def _begin(self, name: str, left: str) -> bool:
        if name not in self._names:
            self._fall_back()
            return True
        self._note(name)
        self._held, self._nesting, self._state = left, _Nesting(), self._in_arguments
        return True

    def _note(self, name: str) -> None:
        self._parts.append(CallPart(self.count, name))
        self.count += 1
        self._start = self._blank = ""

    def _in_arguments(self) -> bool:
        """State within the arguments: pass them on up to the closing brace."""
        end, is_whole = self._nesting.scan(self._held, 0, 0)
        self._parts.append(CallPart(self.count - 1, arguments=self._held[:end]))
        self._held = self._held[end:]
        if is_whole:
            self._nesting = _Nesting(1)
            self._state = self._between if self._style.is_named else self._behind_arguments
        return True

    def _behind_arguments(self) -> bool:
        """State after the arguments: skip the remaining keys of the call."""
        end, is_whole = self._nesting.scan(self._held, 0, 0)
        self._held = self._held[end:]
        if is_whole:
            self._state = self._between
        return True


class _Nesting:
    """Counts the open brackets of JSON that arrives in pieces."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._in_string = self._is_escaped = False

    def scan(self, text: str, start: int, depth: int) -> tuple[int, bool]:
        """Scan for the bracket that closes to a depth.

        Returns the position after the bracket and True, or the end of the text and False.
        """
        for position in range(start, len(text)):
            letter = text[position]
            if self._in_string:
                self._in_string = self._is_escaped or letter != '"'
                self._is_escaped = letter == "\\" and not self._is_escaped
            elif letter == '"':
                self._in_string = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "}]":
                self._depth -= 1
                if self._depth == depth:
                    return position + 1, True
        return len(text), False


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _whole_call(text: str) -> tuple[str, str] | None:
    """Return name and arguments of a complete call whose keys are in any order; None if it is not a call."""
    found = _loaded(text)
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return None
    arguments = found.get("arguments", found.get("parameters"))
    if isinstance(arguments, str):
        arguments = _loaded(arguments)
    if arguments is not None and not isinstance(arguments, dict):
        return None
    return found["name"], json.dumps(arguments or {}, ensure_ascii=False)


# Grammars

_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""White space as `json.dumps` writes it, and as models have seen it in training."""


def grammar_of(
    style: CallStyle, functions: Sequence[Mapping[str, Any]], tokens: Mapping[str, int], is_single: bool
) -> str:
    """Return the grammar, in llguidance's notation, of a reply that calls functions.

    Args:
        style: the format of calls.
        functions: each with `name`, and perhaps `parameters`, a JSON schema.
        tokens: the control tokens by their texts, which the marks of `style` may be.
        is_single: whether the reply has exactly one call; else one or more.
    """

    def written(*texts: str) -> list[str]:
        return [f"<[{tokens[text]}]>" if text in tokens else json.dumps(text) for text in texts if text]

    first, last = style.list_brackets
    starts_once = not (style.end or style.is_bare or style.is_named)
    whole = [*(written(style.start) if starts_once else ()), *written(first), "call"]
    whole += [] if is_single else [f"({' '.join([*written(style.joint), 'call'])})*"]
    rules = [f"start: {' '.join([*whole, *written(last)])}"]
    rules += [f"call: {' | '.join(f'call_{n}' for n in range(len(functions)))}"]
    for n, function in enumerate(functions):
        schema = {"type": "object", **(function.get("parameters") or {}), "x-guidance": _SPACING}
        name = json.dumps(function["name"], ensure_ascii=False)
        own = [f'{{"name": {name}, "{style.arguments}": ', f"arguments_{n}", "}"]
        if style.is_named:
            parts = [*written(style.start, function["name"], "[ARGS]"), own[1]]
        else:
            parts = [*written(own[0]), own[1], *written(own[2])]
        if style.end:
            parts = [*written(style.start, "\n"), *parts, *written("\n", style.end)]
        rules += [f"call_{n}: {' '.join(parts)}", f"arguments_{n}: %json {json.dumps(schema)}"]
    return "\n".join([*rules, ""])
