"""Tokenizers of the package tokenizers, compared with it on random texts."""

from __future__ import annotations

import base64
import copy
import ctypes
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from chat_rendering import rendered
from random_tokenizers import random_sentence, random_tokenizer
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
from trained_tokenizers import KINDS, Compiled, random_text, runtime_tokenizer

from nnefc import CompileError
from nnefc.tokenizer.gguf import vocabulary_of_gguf
from nnefc.tokenizer.huggingface import vocabulary_of_json
from nnefc.tokenizer.huggingface_files import vocabulary_of_files
from nnefc.tokenizer.vocabulary import TokenKind


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return runtime_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_and_texts_are_those_of_the_package(kind: str, runtime: ctypes.CDLL) -> None:
    reference = KINDS[kind]()
    compiled = Compiled(runtime, vocabulary_of_json(json.loads(reference.to_str())))
    choice = random.Random(kind)
    for text in ("", " ", "a", *(random_text(choice) for _ in range(200))):
        tokens = reference.encode(text).ids
        assert compiled.encode(text) == tokens, ascii(text)
        for skip in (True, False):
            assert compiled.decode(tokens, skip) == reference.decode(tokens, skip_special_tokens=skip), ascii(text)


@pytest.mark.parametrize("seed", range(3))
def test_random_tokenizers_are_those_of_the_package(seed: int, runtime: ctypes.CDLL) -> None:
    """Parts in any combination; some are refused."""
    compared = 0
    for number in range(12):
        choice = random.Random(f"{seed} {number}")
        reference = random_tokenizer(choice)
        try:
            compiled = Compiled(runtime, vocabulary_of_json(json.loads(reference.to_str())))
        except CompileError:
            continue
        compared += 1
        for text in (random_sentence(choice) for _ in range(40)):
            tokens = reference.encode(text).ids
            assert compiled.encode(text) == tokens, (number, ascii(text))
            assert compiled.decode(tokens, True) == reference.decode(tokens), (number, ascii(text))
    assert compared >= 6


def _words(**added: Any) -> Tokenizer:
    """A tokenizer of words in small letters, with added tokens by the names of their flags."""
    made = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "b": 2, "ab": 3}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.WhitespaceSplit()
    for content, flags in added.items():
        made.add_tokens([AddedToken(content, **flags)])
    return made


@pytest.mark.parametrize(
    ("added", "text"),
    [
        ({"AbC": {"normalized": True}}, "a ABC b abc"),
        ({"ab": {"single_word": True, "normalized": False}, "b": {"normalized": False}}, "aab b ab"),
        ({"x": {"rstrip": True, "normalized": False}, "  ": {"normalized": False}}, "a x    b"),
        ({"x": {"lstrip": True, "rstrip": True, "normalized": False}}, "a x  x \n x b"),
    ],
)
def test_added_tokens_are_found_where_the_package_finds_them(
    added: dict[str, Any], text: str, runtime: ctypes.CDLL
) -> None:
    reference = _words(**added)
    compiled = Compiled(runtime, vocabulary_of_json(json.loads(reference.to_str())))
    assert compiled.encode(text) == reference.encode(text).ids


def test_fractions_are_of_words_outside_of_sets_alone(runtime: ctypes.CDLL) -> None:
    """As in the package's expressions."""
    reference = _words()
    reference.pre_tokenizer = pre_tokenizers.Split(Regex(r"\w+|[^\w\s]+"), "isolated")
    compiled = Compiled(runtime, vocabulary_of_json(json.loads(reference.to_str())))
    for text in ("!\xbda", "\xbda", "a\xb2", "!\xb2\xbcb"):
        assert compiled.encode(text) == reference.encode(text).ids, ascii(text)


def test_text_of_control_tokens_is_text_unless_they_are_looked_for(runtime: ctypes.CDLL) -> None:
    reference = KINDS["gpt2"]()
    compiled = Compiled(runtime, vocabulary_of_json(json.loads(reference.to_str())))
    (end,) = reference.encode("<|end|>").ids
    (tool,) = reference.encode("<tool>").ids
    assert compiled.encode("<|end|>", 2) == [end]
    found = compiled.encode("a<|end|><tool>", 0)
    assert end not in found and found[-1] == tool
    assert compiled.decode(found, skip_control=True) == "a<|end|><tool>"


def test_long_texts_take_linear_time(runtime: ctypes.CDLL) -> None:
    for kind in ("gpt2", "byte fallback", "unigram of whole texts", "bert"):
        reference = KINDS[kind]()
        compiled = Compiled(runtime, vocabulary_of_json(json.loads(reference.to_str())))
        text = "ab" * 10_000 + " " * 1000 + "the library " * 500
        assert compiled.encode(text) == reference.encode(text).ids


def _mutated(document: Any, choice: random.Random) -> Any:
    """The document with one value replaced or removed, somewhere."""
    document = copy.deepcopy(document)
    at = document
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return document
        key = choice.choice(keys)
        if isinstance(at[key], dict | list) and choice.random() < 0.8:
            at = at[key]
            continue
        if isinstance(at, dict) and choice.random() < 0.3:
            del at[key]
        else:
            at[key] = choice.choice(
                [None, -1, 1 << 40, "", "x", [], {}, [[]], {"type": "?"}, 0.5, True, "(?<=a)b", "["]
            )
        return document


@pytest.mark.parametrize("kind", ["llama3", "byte fallback", "unigram", "bert"])
def test_damaged_documents_are_refused_with_one_message(kind: str) -> None:
    document = json.loads(KINDS[kind]().to_str())
    if isinstance(document["model"]["vocab"], dict):  # small, so that other parts are hit as well
        document["model"]["merges"] = document["model"].get("merges", [])[:20]
    choice = random.Random(kind)
    for _ in range(24):
        try:
            vocabulary_of_json(_mutated(document, choice))
        except CompileError as error:
            assert error.message


ENDLESS = base64.b64encode(struct.pack("<III", 8, 0x100, 0) + b"x" * 2000).decode()
"""A character map whose text has no end near its beginning."""
WORDS = {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "a"}
NESTED: dict[str, Any] = {"type": "NFC"}
for _ in range(2000):
    NESTED = {"type": "Sequence", "normalizers": [NESTED]}


BERT = {"type": "BertProcessing", "cls": ["a", 0], "sep": ["b", 1]}


def _pre_tokenizers(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(parts)}}


def _split(regex: str) -> dict[str, Any]:
    return {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated"}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}, "the kind WordLevel"),
        ({"pre_tokenizer": {"type": "UnicodeScripts"}}, "pre-tokenizer UnicodeScripts"),
        ({"normalizer": {"type": "Other"}}, "normalizer Other"),
        ({"normalizer": {"type": "ByteLevel"}, "pre_tokenizer": {"type": "Whitespace"}}, "ByteLevel is not supported"),
        ({"decoder": {"type": "CTC"}}, "decoder CTC"),
        ({"decoder": {"type": "Metaspace", "replacement": "_"}}, "decoder Metaspace"),
        ({"post_processor": {"type": "Other"}}, "post-processor Other"),
        (_pre_tokenizers({"type": "ByteLevel"}, {"type": "Digits"}), "ByteLevel is not supported before Digits"),
        (
            {"post_processor": {"type": "Sequence", "processors": [BERT, {**BERT, "type": "RobertaProcessing"}]}},
            "BertProcessing and RobertaProcessing are not supported together",
        ),
        ({"post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {}}] * 2}}, "a text 2 times"),
        ({"decoder": {"type": "Strip", "content": " ", "start": 1, "stop": 0}}, "decoder Strip"),
        ({"model": WORDS, "decoder": {"type": "WordPiece", "prefix": "@@"}}, "go on with '@@', its model with '##'"),
        (_split("[a[bc]]"), "a set within a set"),
        (_split(r"[\w&&b]"), "a set within a set"),
        (_split("a+?b"), "the shortest match"),
        (_split("(?m:a.)|b"), r"it has \(\?m:"),
        (_split("(?i)a|b"), r"it has \(\?i\)"),
        (
            {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?<=a)b"}, "behavior": "Isolated"}},
            "looks ahead or behind",
        ),
        (
            {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "end_of_word_suffix": "</w>"}},
            "end_of_word_suffix",
        ),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}, "not as the package tokenizers writes it"),
        ({"added_tokens": [{"id": 1 << 30, "content": "x"}]}, "a token 1073741824"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": 1 << 40}}, "map is not in Base64"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": ENDLESS}}, "no end in 1,024 bytes"),
        ({"normalizer": {"type": "Prepend", "prepend": ["a"]}}, r"\['a'\] where a text must be"),
        ({"normalizer": NESTED}, "lie too deep"),
        (
            {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a" * 20000}, "behavior": "Isolated"}},
            "20,000 char",
        ),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}] * 300}}, "300 steps"),
        ({"post_processor": {"type": "BertProcessing", "cls": ["a", "0"], "sep": ["b", 1]}}, "token 0, which is not a"),
        ({"model": {"type": "Unigram", "vocab": [["a", 1e300]]}}, "a score that is NaN"),
        ({"model": {**WORDS, "max_input_chars_per_word": -1}}, "words of -1 characters"),
        ({"model": {**WORDS, "continuing_subword_prefix": None}}, "None where a text must be"),
    ],
)
def test_what_is_not_supported_is_named(change: dict[str, Any], message: str) -> None:
    document = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}
    with pytest.raises(CompileError, match=message):
        vocabulary_of_json({**document, **change})


def test_same_document_gives_same_bytes(tmp_path: Path) -> None:
    from nnefc.tokenizer.serialize import serialized

    document = json.loads(KINDS["qwen2"]().to_str())
    assert serialized(vocabulary_of_json(document)) == serialized(vocabulary_of_json(copy.deepcopy(document)))


def test_files_next_to_a_tokenizer_say_more(tmp_path: Path) -> None:
    """Tokens that end a reply, further tokens, and a template for conversations with tools."""
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}, "merges": []}
    named = [{"name": "default", "template": "D\n\n"}, {"name": "tool_use", "template": "{{ tools[0] }}\n"}]
    config = {
        "eos_token": "b", "chat_template": named,
        "added_tokens_decoder": {"7": {"content": "<x>", "special": True}, "0": {"content": "a", "special": True}},
    }  # fmt: skip
    files = {
        "tokenizer.json": {"model": model, "added_tokens": [{"id": 0, "content": "a"}]},
        "tokenizer_config.json": config,
        "config.json": {"eos_token_id": [2, 0]}, "special_tokens_map.json": {"bos_token": {"content": "c"}},
    }  # fmt: skip
    for name, value in files.items():
        (tmp_path / name).write_text(json.dumps(value))
    found = vocabulary_of_files(tmp_path)
    assert found.end_tokens == (2, 0, 1) and found.named_tokens == {"eos_token": "b", "bos_token": "c"}
    assert found.tokens[7] == b"<x>" and found.kinds[7] == found.kinds[0] == TokenKind.CONTROL
    assert found.chat_template is not None
    assert [rendered(found.chat_template, [], tools) for tools in (None, ["T"])] == ["D\n", "T"]
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 2}')
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("U")
    found = vocabulary_of_files(tmp_path)
    assert found.end_tokens == (2,)
    assert found.chat_template is not None and rendered(found.chat_template, [], ["T"]) == "U"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer.json": {"model": {}, "added_tokens": 5}}, "added_tokens is not a list of tokens"),
        ({"tokenizer.json": {"model": {}, "added_tokens": ["x"]}}, "added_tokens is not a list of tokens"),
        ({"tokenizer.json": {"model": WORDS}, "tokenizer_config.json": {"chat_template": [{"name": []}]}}, ""),
    ],
)
def test_files_of_other_types_are_refused(files: dict[str, Any], message: str, tmp_path: Path) -> None:
    for name, value in files.items():
        (tmp_path / name).write_text(json.dumps(value))
    if not message:
        assert vocabulary_of_files(tmp_path).chat_template is None
        return
    with pytest.raises(CompileError, match=message):
        vocabulary_of_files(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": ["gpt2"]}, r"tokenizer\.ggml\.model .*is not supported"),
        ({"pre": "x" * 10**5}, r"pre 'x{80}', is not supported"),
        ({"bos_token_id": [0] * 10**5}, r"bos_token_id is '.{80}', none of its 2 tokens"),
        ({"model": "t5", "precompiled_charsmap": "x"}, "precompiled_charsmap is not a list of int"),
        ({"merges": None}, r"has no tokenizer\.ggml\.merges"),
        ({"model": "t5", "tokens": [], "scores": []}, "a vocabulary of 0 tokens"),
        ({"model": "t5", "scores": [0.0, float("nan")]}, "a score that is NaN"),
    ],
)
def test_metadata_of_gguf_is_refused_with_one_message(change: dict[str, Any], message: str) -> None:
    entries = {"model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b"], "merges": [], "scores": [0.0, 1.0], **change}
    with pytest.raises(CompileError, match=message) as refused:
        vocabulary_of_gguf({f"tokenizer.ggml.{name}": value for name, value in entries.items()})
    assert len(refused.value.message) < 2000
