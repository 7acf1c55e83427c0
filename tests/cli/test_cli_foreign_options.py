"""Command lines as other compilers take them, and interruptions: the messages."""

from __future__ import annotations

import re

import pytest
from cli_mistakes import message
from click.testing import CliRunner

from nnefc.cli import main
from nnefc.cli.foreign_options import _BY_COMMAND, _BY_OPTION

WORDS = [
    ("compile m.onnx -o m.so --fp16", "No such option '--fp16'", "16-bit floats are --precision fp16"),
    ("compile m.onnx -o m.so -O3", "No such option '-O'", "kernels are always compiled for speed"),
    ("compile m.onnx -o m.so -march=native", "No such option '-m'", 'processors and their features are --target "llvm'),
    ("compile m.onnx --saveEngine=m.engine", "No such option '--saveEngine'", "the file to write is -o FILE"),
    ("compile m.onnx --input_shape [1,3]", "No such option '--input_shape'", "shapes are --shape NAME=1,3,224,224"),
    ("--onnx=m.onnx --fp16", "No such option '--onnx'", "the model is an argument without an option"),
    ("compile --onnx m.onnx", "No such option '--onnx'", "the model is an argument without an option"),
    ("m.onnx", "No such command 'm.onnx'", "a command comes first: nnefc compile m.onnx -o m.so"),
    ("dir/m.nnef.tgz", "No such command 'dir/m.nnef.tgz'", "a command comes first: nnefc compile dir/m.nnef.tgz -o m"),
    ("m.so", "No such command 'm.so'", "a command comes first: nnefc run m.so"),
    ("build m.onnx", "No such command 'build'", "models are compiled with nnefc compile"),
]


@pytest.mark.parametrize(("words", "error", "hint"), WORDS)
def test_habits_get_a_hint(words: str, error: str, hint: str) -> None:
    *_, first, last = message(*words.split(), status=2).splitlines()
    assert first.startswith(f"Error: {error}")
    assert last.startswith(f"hint: {hint}")


def test_unknown_words_get_no_hint_from_this_table() -> None:
    assert "hint:" not in message("compile", "m.onnx", "--frobnicate", status=2)
    assert "hint:" not in message("frobnicate", status=2)


def test_hints_name_options_and_commands_that_exist() -> None:
    options = {name for command in main.commands.values() for each in command.params for name in each.opts}
    options |= {"--help", "--version"}
    for hint in {*_BY_OPTION.values(), *_BY_COMMAND.values()}:
        assert set(re.findall(r"--[a-z][a-z-]*", hint)) <= options
        assert set(re.findall(r"nnefc ([a-z]+)", hint)) <= set(main.commands)


def test_no_option_of_ours_is_taken_for_another_compilers() -> None:
    names = {name.lstrip("-") for name in main.commands["compile"].params[1].opts}
    assert names.isdisjoint(_BY_OPTION)


@pytest.mark.parametrize("name", list(main.commands))
def test_an_interruption_is_one_line_and_the_status_130(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main.commands[name], "invoke", interrupted)
    monkeypatch.setattr(main.commands[name], "parse_args", lambda _context, words: words)
    result = CliRunner().invoke(main, [name])
    assert (result.exit_code, result.stderr, result.stdout) == (130, "interrupted\n", "")
