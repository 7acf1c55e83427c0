"""Libraries with a tokenizer."""

from __future__ import annotations

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from runtime_samples import CPP
from trained_tokenizers import KINDS, RUNTIME

import nnefc
from nnefc.targets.link import toolchain
from nnefc.targets.link.zig import run_compiler, zig

_TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'bot' %}{{ raise_exception('no bots') }}{% endif %}"
    "{{ m.role ~ ':' ~ m.content ~ eos_token }}{{ m.n | default('') }}{% endfor %}"
    "{{ tools[0] if tools else '' }}{{ mark }}{% if add_generation_prompt %}assistant:{% endif %}"
)
_NETWORK = "version 1.0;\ngraph g(x) -> (y)\n{\n x = external(shape = [2, 3]);\n y = relu(x);\n}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "tokenizer.json").write_text(KINDS["llama3"]().to_str(), encoding="utf-8")
    config = {"eos_token": {"content": "<|end|>"}, "bos_token": None, "chat_template": _TEMPLATE}
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
            "tokenizer.chat_template": _TEMPLATE,
        }


MESSAGES = [{"role": "user", "content": "Hello <|end|> 😀"}, {"role": "assistant", "content": None, "n": [1, 2.5]}]
TEXT = "user:Hello <|end|> 😀<|end|>assistant:<|end|>[1, 2.5]t!"


def test_library_renders_conversations(folder: Path) -> None:
    with nnefc.load(folder / "g.so") as model, nnefc.compile(folder / "g.nnef").load() as other:
        assert model.has_chat and not other.has_chat
        given = {"tools": ["t"], "variables": {"mark": "!"}}
        assert model.chat_text(MESSAGES, **given) == TEXT + "assistant:"
        assert model.chat_text(MESSAGES, **given, add_generation_prompt=False) == TEXT
        with ThreadPoolExecutor(8) as pool:
            found = list(
                pool.map(lambda number: model.chat_text([{"role": "r", "content": "é" * number}]), range(5000, 5032))
            )
        assert found == [f"r:{'é' * number}<|end|>assistant:" for number in range(5000, 5032)]
        with pytest.raises(nnefc.RunError, match=r"^no bots$"):
            model.chat_text([{"role": "bot", "content": ""}])
        with pytest.raises(nnefc.RunError, match="has no function nnefc_chat"):
            other.chat_text(MESSAGES)


def test_template_that_is_not_known_is_a_warning(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text((folder / "tokenizer.json").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "chat_template.jinja").write_text("{{ messages | groupby('role') }}", encoding="utf-8")
    with pytest.warns(UserWarning, match=r"not compiled \(line 1: the filter groupby is not supported\)"):
        compiled = nnefc.compile(folder / "g.nnef", tokenizer=tmp_path)
    with compiled.load() as model:
        assert model.has_tokenizer and not model.has_chat


def test_library_for_windows_needs_what_windows_has(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another C library would have to be compiled first."""
    monkeypatch.setattr(toolchain, "_with_everything", lambda *_: ["-nostdlib"])
    nnefc.compile(folder / "g.nnef", "x86_64-windows-gnu", tokenizer=folder).export(folder / "g.dll")


@pytest.mark.slow  # zig compiles a C library first
@pytest.mark.skipif(shutil.which("node") is None, reason="needs: node")
def test_modules_of_webassembly_take_and_give_text(folder: Path) -> None:
    reference = KINDS["llama3"]()
    nnefc.compile(folder / "g.nnef", "wasm32-wasi", tokenizer=folder).export(folder / "g.wasm")
    text = "Hello <|end|> wörld 中文😀"
    program = f"""
        import {{ load, NnefcError }} from "{(RUNTIME / "nnefc.mjs").as_uri()}";
        const model = await load("{folder / "g.wasm"}"), messages = {json.dumps(MESSAGES)};
        const tokens = model.tokenize({json.dumps(text)}, {{ control: true }});
        const stream = model.textStream({{ skipControl: false }});
        const parts = tokens.map((token) => stream.add(token));
        const message = (call) => {{
          try {{ call(); }} catch (error) {{ return error instanceof NnefcError && error.message; }}
        }};
        const errors = [
          message(() => model.detokenize([1e6])),
          message(() => model.detokenize(["a"])),
          message(() => model.chatText([{{ role: "bot" }}])),
        ];
        const long = model.chatText([{{ role: "r", content: "é".repeat(5000) }}], {{ addGenerationPrompt: false }});
        const chat = model.chatText(messages, {{ tools: ["t"], variables: {{ mark: "!" }} }});
        console.log(JSON.stringify([model.hasTokenizer, model.hasChat, tokens,
          model.tokenize({json.dumps(text)}).length, model.detokenize(tokens),
          parts, stream.end(), chat, long.length, errors]));
    """
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", program], capture_output=True, text=True, check=True
    )
    has_tokenizer, has_chat, tokens, count, back, parts, end, rendered, size, errors = json.loads(done.stdout)
    assert has_tokenizer and has_chat
    assert tokens == reference.encode(text).ids and count > len(tokens)
    assert back == reference.decode(tokens) and "".join(parts) == text and "" in parts and end == ""
    assert rendered == TEXT + "assistant:" and size == 2 + 5000 + 7
    assert "no such token" in errors[0] and "integers" in errors[1] and errors[2] == "the chat template: no bots"


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
    const nnefc::Chat chat = library.chat();
    nnefc::ChatOptions options;
    options.tools = "[\"t\"]";
    if (chat.text({{"user", "Hi", "{\"n\": 1}"}}, options) != "user:Hi<|end|>1tassistant:") return 4;
    if (chat.text({{"user", std::string(9000, 'x')}}).size() != 9022) return 5;
    try {
        chat.text({{"bot", ""}});
        return 6;
    } catch (const nnefc::Error &error) {
        const std::string message = error.what();
        if (error.status() != NNEFC_TEMPLATE_ERROR || message.find("no bots") == std::string::npos) return 7;
    }
    for (const auto token : tokens) std::printf("%lld ", static_cast<long long>(token));
}
"""


def test_programs_in_cpp_use_the_tokenizer_of_a_library(folder: Path) -> None:
    (folder / "main.cpp").write_text(_PROGRAM_CPP)
    program = folder / "main_cpp"
    include = f"-I{RUNTIME}"
    run_compiler([*CPP, "-std=c++17", include, str(folder / "main.cpp"), "-ldl", "-o", str(program)], folder)
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
    if (chat_tokenize(NULL, 0, 0, NULL, 0, &count) != NNEFC_OK || count != 0) return 8;
    char error[8] = "";
    nnefc_message messages[] = {{{"user", 4}, {"Hi", 2}, {0}}, {{"user", 4}, {"\xff", 1}, {0}}};
    nnefc_chat_options options = {.struct_size = sizeof options, .error = error, .error_room = sizeof error};
    if (chat_chat(messages, 1, NULL, back, 3, &size) != NNEFC_TOO_SMALL || size != 14) return 9;
    if (chat_chat(messages, 1, &options, back, sizeof back, &size) != NNEFC_OK) return 10;
    if (size != 14 || memcmp(back, "user:Hi<|end|>", 14) != 0) return 15;
    if (chat_chat(messages, 2, &options, back, sizeof back, &size) != NNEFC_TEMPLATE_ERROR) return 11;
    if (strcmp(error, "a messa") != 0) return 16;
    messages[0].more = (nnefc_string){"{\"n\": [", 7};
    if (chat_chat(messages, 1, &options, back, sizeof back, &size) != NNEFC_TEMPLATE_ERROR || size != 0) return 12;
    options.flags = 2;
    if (chat_chat(messages, 1, &options, back, sizeof back, &size) != NNEFC_BAD_ARGUMENT) return 13;
    options.struct_size = 8;
    return chat_chat(messages, 1, &options, back, sizeof back, &size) != NNEFC_WRONG_ABI;
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
