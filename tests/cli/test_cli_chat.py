"""`nnefc chat` on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from language_models import TEMPLATE, write_model

import nnefc
from nnefc.cli.commands import chat as chat_command
from nnefc.cli.commands.chat import chat


@pytest.mark.parametrize("name", ["net.onnx", "folder"])
def test_models_without_tokenizers_are_not_compiled(name: str, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"\x08\x0a")
    (tmp_path / "folder").mkdir()
    for file in ("config.json", "model.safetensors"):
        (tmp_path / "folder" / file).touch()
    found = CliRunner().invoke(chat, [str(tmp_path / name)])
    assert isinstance(found.exception, nnefc.CompileError)
    assert found.exception.message == f"{tmp_path / name} has no tokenizer"


def test_messages_that_cannot_be_answered_do_not_end_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is too long, and one is given up while its prompt is read."""
    write_model(tmp_path / "m.gguf", tied=True, layers=1, mixed=False, template=TEMPLATE)
    nnefc.compile(tmp_path / "m.gguf", context=24).export(tmp_path / "m.so")
    answered = chat_command._answer

    def answer(conversation: object, text: str, *others: object) -> None:
        if text == "interrupted":
            raise KeyboardInterrupt
        answered(conversation, text, *others)  # type: ignore[arg-type]

    def typed() -> Iterator[str]:
        yield from ("a" * 99, "interrupted", "hello")

    monkeypatch.setattr(chat_command, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr(chat_command, "_typed", typed)
    monkeypatch.setattr(chat_command, "_answer", answer)
    found = CliRunner().invoke(chat, [str(tmp_path / "m.so"), "--max-tokens", "2"])
    assert found.exit_code == 0, found.output
    assert "a session holds 24" in found.stderr and "/new" in found.stderr
    assert found.stderr.count(" tokens read in ") == 1
