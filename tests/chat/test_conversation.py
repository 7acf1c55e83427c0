"""Conversations with a small random model of which the definition is known."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner
from language_models import logits, write_model

import nnefc
from nnefc.chat import ChatError, Conversation
from nnefc.chat.prompts import Prompts
from nnefc.cli import main
from nnefc.targets.link.toolchain import RUNTIME
from nnefc.targets.link.zig import run_compiler, zig

CONTEXT = 48


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    """A library with a tokenizer, and the weights of its model."""
    folder = tmp_path_factory.mktemp("chat")
    values = write_model(folder / "m.gguf", tied=True, layers=1, mixed=False)
    nnefc.compile(folder / "m.gguf", context=CONTEXT).export(folder / "m.so")
    return folder / "m.so", values


def continued(values: dict[str, np.ndarray], tokens: list[int], end: int, count: int) -> list[int]:
    """The likeliest tokens that follow others, by the definition of the model."""
    found: list[int] = []
    while len(found) < count and (token := int(logits(values, tokens + found).argmax())) != end:
        found.append(token)
    return found


def test_a_reply_has_the_likeliest_tokens(chat: tuple[Path, dict[str, np.ndarray]]) -> None:
    library, values = chat
    with nnefc.load(library) as model:
        conversation = Conversation(model)
        end = int(model.metadata["tokenizer.end_tokens"])
        reply = "".join(conversation.reply("hello", max_tokens=8))
        prompt = model.tokenize("<|s|>user\nhello<|e|><|s|>assistant", begin_and_end=False, control=True)
        assert "user\nhello" in model.detokenize(prompt)
        whole = conversation.tokens()
        assert conversation.messages == [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": reply},
        ]
        conversation.messages.clear()
        conversation.messages.append({"role": "user", "content": "hello"})
        asked = conversation.tokens()
        assert reply == model.detokenize(continued(values, asked, end, 8))
        assert len(whole) > len(asked)


def test_what_is_held_is_not_read_again(chat: tuple[Path, dict[str, np.ndarray]]) -> None:
    with nnefc.load(chat[0]) as model:
        conversation = Conversation(model)
        first = "".join(conversation.reply("he", max_tokens=2))
        everything = conversation.read_count
        again = Conversation(model)
        for _ in again.reply("he", max_tokens=2):
            pass
        assert again.read_count == everything and again.messages[-1]["content"] == first
        for _ in again.reply("o", max_tokens=2):
            pass
        assert again.read_count < len(again.tokens())


def test_the_program_in_c_continues_a_text(chat: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    library, _ = chat
    source = Path(__file__).parents[2] / "examples" / "llm" / "text.c"
    flags = ["-Wall", "-Wextra", "-Werror", f"-I{RUNTIME}", f"-Wl,-rpath,{library.parent}"]
    run_compiler([*zig(), "cc", *flags, str(source), str(library), "-o", str(tmp_path / "text")], tmp_path)
    done = subprocess.run([tmp_path / "text", "6", "hello"], check=True, capture_output=True)
    with nnefc.load(library) as model:
        ends = [int(token) for token in model.metadata["tokenizer.end_tokens"].split()]
        text = "".join(model.detokenize_stream(model.generate(model.tokenize("hello"), most=6, end=ends)))
    assert done.stdout.decode(errors="replace") == text + "\n"
    assert subprocess.run([tmp_path / "text", "6", ""], check=False, capture_output=True).returncode == 1
    run_compiler([*zig(), "cc", "-DCHAT", *flags, str(source), str(library), "-o", str(tmp_path / "chat")], tmp_path)
    done = subprocess.run([tmp_path / "chat", "6", "hello"], check=True, capture_output=True)
    with nnefc.load(library) as model:
        assert model.has_chat
        reply = "".join(Conversation(model).reply("hello", max_tokens=6))
    assert done.stdout.decode(errors="replace") == reply + "\n"


def test_the_library_and_jinja2_make_the_same_prompt(
    chat: tuple[Path, dict[str, np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [{"role": "user", "content": "hello <|end|> é"}]
    with nnefc.load(chat[0]) as model:
        by_library = Prompts(model).tokens(messages)
        assert Prompts(model).tokens([], variables={"messages": messages}) == by_library
        monkeypatch.setattr(nnefc.Model, "has_chat", False)
        prompts = Prompts(model)
        assert prompts.tokens(messages) == by_library
        assert prompts.tokens([], variables={"messages": messages}) == by_library
        prompts.close()


def test_a_reply_that_is_closed_stays_as_far_as_it_is(chat: tuple[Path, dict[str, np.ndarray]]) -> None:
    with nnefc.load(chat[0]) as model:
        conversation = Conversation(model)
        parts = conversation.reply("hello")
        first = next(parts)
        parts.close()
        assert conversation.messages[-1] == {"role": "assistant", "content": first}


def test_stop_strings_and_penalties_are_those_of_the_reply(chat: tuple[Path, dict[str, np.ndarray]]) -> None:
    with nnefc.load(chat[0]) as model:
        whole = "".join(Conversation(model).reply("hello", max_tokens=6))
        stop = whole[len(whole) // 2 :][:2]
        assert "".join(Conversation(model).reply("hello", 6, [stop])) == whole[: whole.find(stop)]
        conversation = Conversation(model, repetition_penalty=100.0)
        reply = "".join(conversation.reply("hello", max_tokens=6))
        assert reply != whole or len(set(reply)) == len(reply)


class Recurrent:
    """The states of a session that can begin again, or go on."""

    states = (SimpleNamespace(name="P"), SimpleNamespace(name="recurrent_x"))

    def __init__(self, count: int) -> None:
        self.count = count

    def can_rewind_to(self, count: int) -> bool:
        return count == 0

    def read_state(self, name: str) -> np.ndarray:
        return np.array(self.count)

    def write_state(self, name: str, count: np.ndarray) -> None:
        self.count = int(count)


def test_a_session_that_cannot_forget_its_last_tokens_begins_again() -> None:
    conversation = Conversation.__new__(Conversation)
    for tokens, wanted in (([1, 2, 3, 4, 5, 6], 4), ([1, 2, 9, 4, 5], 0), ([1, 2, 3], 0)):
        conversation._model, conversation._held = cast(Any, Recurrent(4)), [1, 2, 3, 4, 5]
        assert conversation._keep(tokens) == wanted == conversation._model.read_state("P")


def test_conversations_that_cannot_be_held_are_refused(
    chat: tuple[Path, dict[str, np.ndarray]], tmp_path: Path
) -> None:
    with nnefc.load(chat[0]) as model:
        conversation = Conversation(model)
        with pytest.raises(ChatError, match=f"tokens, and a session holds {CONTEXT}"):
            conversation.reply("a" * 100)
        assert conversation.messages == []
    (tmp_path / "g.nnef").write_text(
        "version 1.0;\ngraph g(x) -> (y)\n{\n x = external(shape = [2]);\n y = relu(x);\n}\n"
    )
    with nnefc.compile(tmp_path / "g.nnef").load() as model, pytest.raises(ChatError, match="has no tokenizer"):
        Conversation(model)


def test_the_command_answers_prompts_and_lines(chat: tuple[Path, dict[str, np.ndarray]]) -> None:
    arguments = ["chat", str(chat[0]), "--temperature", "0", "--max-tokens", "4"]
    asked = CliRunner().invoke(main, [*arguments, "--prompt", "hello"])
    typed = CliRunner().invoke(main, arguments, input="hello\n/new\nhello\n")
    assert asked.exit_code == typed.exit_code == 0, (asked.output, typed.output)
    assert typed.stdout == asked.stdout * 2
    assert "tokens read" in asked.stderr
    long = CliRunner().invoke(main, [*arguments, "--prompt", "a" * 100])
    assert long.exit_code == 1 and "a session holds" in long.stderr and "Traceback" not in long.output
