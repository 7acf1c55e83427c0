"""Vocabularies of GGUF: words by the names of pre-tokenizers, as llama.cpp splits them, and tokens that end a reply."""

from __future__ import annotations

import ctypes

import pytest
from tokenizers import pre_tokenizers
from trained_tokenizers import Compiled, runtime_tokenizer

from nnefc.tokenizer.gguf import vocabulary_of_gguf
from nnefc.tokenizer.gguf_words import PRE_TOKENIZERS
from nnefc.tokenizer.serialize import serialized

TEXT = "I'LL eat\xb212345 B\u4e2d\u6587e\u0301\xe9=>.\r\n\n  xYz,\t!"
DIGITS = "\xb2 1 2 3 4 5"
WORDS = {
    "default": "I ' LL _eat \xb2 123 45 _B\u4e2d\u6587e \u0301 \xe9 =>. \r\n\n_ _xYz , \t !",
    "gpt-2": "I ' LL _eat \xb212345 _B\u4e2d\u6587e \u0301 \xe9 =>. \r\n\n_ _xYz , \t !",
    "llama-bpe": "I 'LL _eat \xb212 345 _B\u4e2d\u6587e \u0301\xe9 =>.\r\n\n _ _xYz , \t !",
    "qwen2": f"I 'LL _eat {DIGITS} _B\u4e2d\u6587e \u0301\xe9 =>.\r\n\n _ _xYz , \t !",
    "qwen35": f"I 'LL _eat {DIGITS} _B\u4e2d\u6587e\u0301\xe9 =>.\r\n\n _ _xYz , \t !",
    "smollm": f"I ' LL _eat {DIGITS} _B\u4e2d\u6587e \u0301 \xe9 =>. \r\n\n_ _xYz , \t !",
    "deepseek-v3": "I 'LL _eat \xb212 345 _B \u4e2d\u6587 e\u0301\xe9 =>.\r\n\n _ _xYz , \t !",
    "deepseek-coder": f"I ' LL _eat {DIGITS} _B \u4e2d\u6587 e \u0301 \xe9 => . \r \n \n _ _xYz , \t!",
    "falcon": "I ' LL _eat \xb2 123 45 _B\u4e2d\u6587e \u0301 \xe9 =>. \r\n\n_ _xYz , \t !",
    "viking": f"I'LL _eat {DIGITS} _B\u4e2d\u6587e\u0301\xe9=> .\r\n\n_ _xYz ,\t!",
    "chameleon": f"I ' LL _eat {DIGITS} _B\u4e2d\u6587e \u0301 \xe9 = > . \r \n \n __ xYz , \t !",
    "seed-coder": f"I 'LL _eat {DIGITS} _B\u4e2d\u6587e \u0301\xe9 =>. \r\n\n _ _xYz , \t !",
    "exaone-moe": f"I 'LL _eat {DIGITS} _B\u4e2d\u6587e\u0301\xe9 =>.\r \n\n _ _xYz , \t !",
}
"""Words of the text by the name of their pre-tokenizer, with `_` for a space: those of llama.cpp."""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return runtime_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.mark.parametrize("name", WORDS)
def test_texts_are_split_as_the_name_says(name: str, runtime: ctypes.CDLL) -> None:
    """All parts of the text are tokens, so that each word is one."""
    ((letters, _),) = pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str(TEXT)
    size = len(letters)
    parts = [(begin, end) for begin in range(size) for end in range(begin + 2, size + 1)]
    metadata = {
        "model": "gpt2", "pre": name, "add_bos_token": False,
        "tokens": list(dict.fromkeys([*letters, *(letters[begin:end] for begin, end in parts)])),
        "merges": list(dict.fromkeys(f"{letters[begin : end - 1]} {letters[end - 1]}" for begin, end in parts)),
    }  # fmt: skip
    vocabulary = vocabulary_of_gguf({f"tokenizer.ggml.{key}": value for key, value in metadata.items()})
    found = [vocabulary.tokens[token].decode() for token in Compiled(runtime, vocabulary).encode(TEXT)]
    assert [word.replace(" ", "_") for word in found] == WORDS[name].split(" ")


def test_every_pre_tokenizer_is_compiled() -> None:
    steps = {own.steps: name for name, own in PRE_TOKENIZERS.items()}
    for name in steps.values():
        metadata = {"model": "gpt2", "pre": name, "tokens": ["a"], "merges": []}
        assert serialized(vocabulary_of_gguf({f"tokenizer.ggml.{key}": value for key, value in metadata.items()}))


def test_ends_of_replies_are_known_by_their_numbers_and_by_their_texts() -> None:
    tokens = ["a", "<|im_end|>", "</s>", "<end_of_turn>", "<|end|>"]
    metadata = {
        "model": "gpt2",
        "pre": "roberta-bpe",
        "tokens": tokens,
        "merges": [],
        "eos_token_id": 2,
        "eom_token_id": 0,
    }
    metadata |= {"seperator_token_id": 2, "token_type": [1, 3, 3, 3, 3]}

    def vocabulary(**changes: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
        found = vocabulary_of_gguf({f"tokenizer.ggml.{key}": value for key, value in (metadata | changes).items()})
        return found.end_tokens, found.after

    assert vocabulary() == ((2, 0, 1, 3, 4), (2,))
    harmony = ["a", "<|return|>", "<|call|>", "b", "<|end|>"]
    assert vocabulary(tokens=harmony, add_sep_token=False) == ((2, 0, 1), ())
