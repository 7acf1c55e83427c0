"""Libraries with a tokenizer."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from trained_tokenizers import KINDS, RUNTIME

import nnefc
from nnefc.targets.link.zig import run_compiler, zig

_NETWORK = "version 1.0;\ngraph g(x) -> (y)\n{\n x = external(shape = [2, 3]);\n y = relu(x);\n}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "tokenizer.json").write_text(KINDS["llama3"]().to_str(), encoding="utf-8")
    config = {"eos_token": {"content": "<|end|>"}, "bos_token": None, "chat_template": "{{ messages }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "g.nnef").write_text(_NETWORK, encoding="utf-8")
    nnefc.compile(folder / "g.nnef", tokenizer=folder).export(folder / "g.so", name="chat")
    return folder


def test_library_takes_and_gives_text(folder: Path) -> None:
    reference = KINDS["llama3"]()
    with nnefc.load(folder / "g.so") as model:
        assert model.has_tokenizer
        text = "Hello <|end|> wörld, it's 中文😀"
        tokens = model.tokenize(text, control=True)
        assert tokens == reference.encode(text).ids
        assert model.detokenize(tokens) == reference.decode(tokens)
        assert model.detokenize(tokens, skip_control=False) == text
        parts = list(model.detokenize_stream(tokens, skip_control=False))
        assert "".join(parts) == text and "" in parts and not any("\ufffd" in part for part in parts)
        assert reference.token_to_id("<|end|>") not in model.tokenize(text)
        texts = [f"{text} {number}" * 20 for number in range(32)]
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(model.tokenize, texts))
        assert found == [model.tokenize(each) for each in texts]
        assert model.metadata == {
            "tokenizer.eos_token": "<|end|>",
            "tokenizer.end_tokens": str(reference.token_to_id("<|end|>")),
            "tokenizer.chat_template": "{{ messages }}",
        }


def test_wrong_calls_are_refused(folder: Path) -> None:
    with nnefc.load(folder / "g.so") as model:
        for wrong, message in (
            ([1, 10**6], "no such token: 1000000"),
            ([-1], "no such token: -1"),
            (["a"], "integers"),
        ):
            with pytest.raises(nnefc.RunError, match=message):
                model.detokenize(wrong)
    with nnefc.compile(folder / "g.nnef").load() as model:
        assert not model.has_tokenizer
        with pytest.raises(nnefc.RunError, match="no tokenizer: compile the model with the option tokenizer"):
            model.tokenize("a")


def test_tokenizers_that_cannot_be_read_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "text.json").write_text("no JSON")
    for name, message in (
        ("none.json", "none.json cannot be read: No such file"),
        ("list.json", "not a JSON object"),
        ("other.json", "it has no model"),
        ("text.json", "is not JSON"),
    ):
        with pytest.raises(nnefc.CompileError, match=message):
            nnefc.compile(folder / "g.nnef", tokenizer=tmp_path / name)
    with pytest.raises(nnefc.CompileError, match="no heap, which a tokenizer needs"):
        nnefc.compile(folder / "g.nnef", "cortex-m4", tokenizer=folder)


_PROGRAM_CPP = r"""
#include <cstdio>
#include "nnefc.hpp"

int main(int, char **words) {
    const nnefc::Library library(words[1]);
    const nnefc::Tokenizer tokenizer = library.tokenizer();
    const auto tokens = tokenizer.tokenize(words[2], NNEFC_FIND_CONTROL);
    if (tokenizer.detokenize(tokens, 0) != words[2]) return 1;
    try {
        tokenizer.detokenize({-1});
        return 2;
    } catch (const nnefc::Error &error) {
        if (error.status() != NNEFC_BAD_ARGUMENT) return 3;
    }
    for (const auto token : tokens) std::printf("%lld ", static_cast<long long>(token));
}
"""


def test_programs_in_cpp_use_the_tokenizer_of_a_library(folder: Path) -> None:
    (folder / "main.cpp").write_text(_PROGRAM_CPP)
    program = folder / "main_cpp"
    include = f"-I{RUNTIME}"
    run_compiler([*zig(), "c++", "-std=c++17", include, str(folder / "main.cpp"), "-o", str(program)], folder)
    text = "Hello <|end|> 😀"
    done = subprocess.run([str(program), str(folder / "g.so"), text], capture_output=True, text=True, check=True)
    assert [int(word) for word in done.stdout.split()] == KINDS["llama3"]().encode(text).ids


_PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include "chat.h"

int main(void) {
    const char *text = "Hello <|end|>";
    int64_t tokens[32];
    size_t count = 0, size = 0;
    char back[64];
    if (chat_tokenize(text, strlen(text), NNEFC_FIND_CONTROL, tokens, 1, &count) != NNEFC_TOO_SMALL) return 1;
    if (chat_tokenize(text, strlen(text), NNEFC_FIND_CONTROL, tokens, 32, &count) != NNEFC_OK) return 2;
    if (chat_detokenize(tokens, count, 0, back, sizeof back, &size) != NNEFC_OK) return 3;
    if (size != strlen(text) || memcmp(back, text, size) != 0) return 4;
    if (chat_detokenize(tokens, count, NNEFC_SKIP_CONTROL, back, 2, &size) != NNEFC_TOO_SMALL || size != 6) return 5;
    if (chat_tokenize(text, strlen(text), 64, tokens, 32, &count) != NNEFC_BAD_ARGUMENT) return 6;
    if (chat_tokenize(NULL, 1, 0, tokens, 32, &count) != NNEFC_BAD_ARGUMENT) return 7;
    return chat_tokenize(NULL, 0, 0, NULL, 0, &count) != NNEFC_OK || count != 0;
}
"""


def test_programs_in_c_link_a_library_with_a_tokenizer(folder: Path) -> None:
    nnefc.compile(folder / "g.nnef", tokenizer=folder).export(folder / "chat.a", name="chat")
    (folder / "main.c").write_text(_PROGRAM)
    program = folder / "main"
    subprocess.run(
        [*zig(), "cc", str(folder / "main.c"), str(folder / "chat.a"), "-lm", "-o", str(program)], check=True
    )
    assert subprocess.run([str(program)], check=False).returncode == 0
