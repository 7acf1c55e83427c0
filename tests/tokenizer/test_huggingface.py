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
from trained_tokenizers import KINDS, Compiled, random_text, runtime_tokenizer

from nnefc import CompileError
from nnefc.tokenizer.gguf import vocabulary_of_gguf
from nnefc.tokenizer.huggingface import vocabulary_of_json
from nnefc.tokenizer.huggingface_files import vocabulary_of_files


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
