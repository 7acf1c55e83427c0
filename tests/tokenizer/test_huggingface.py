"""Tokenizers of the package tokenizers, compared with it on random texts."""

from __future__ import annotations

import copy
import ctypes
import json
import random
from pathlib import Path
from typing import Any

import pytest
from trained_tokenizers import KINDS, Compiled, random_text, runtime_tokenizer

from nnefc import CompileError
from nnefc.tokenizer.huggingface import vocabulary_of_json


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
    for _ in range(40):
        try:
            vocabulary_of_json(_mutated(document, choice))
        except CompileError as error:
            assert error.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}, "the kind WordLevel"),
        ({"pre_tokenizer": {"type": "UnicodeScripts"}}, "pre-tokenizer UnicodeScripts"),
        ({"normalizer": {"type": "Nmt"}}, "normalizer Nmt"),
        ({"decoder": {"type": "CTC"}}, "decoder CTC"),
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
