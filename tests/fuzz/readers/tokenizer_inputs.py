"""Inputs for fuzzing readers of tokenizers: `tokenizer.json` and the files next to it, metadata of GGUF, templates.

Inputs go down to the bytes that a library has of a vocabulary and of a chat template.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from binary_values import changed_bytes
from file_parts import joined, parts_of, written
from gguf import GGUFWriter
from json_values import changed_document

from nnefc.frontends.gguf.container import read_container
from nnefc.tokenizer.chat_template.compiler import compiled_template
from nnefc.tokenizer.gguf import vocabulary_of_gguf
from nnefc.tokenizer.huggingface_files import TOKENIZER_FILES, vocabulary_of_files
from nnefc.tokenizer.serialize import serialized
from nnefc.tokenizer.vocabulary import Vocabulary

__all__ = ["INSTRUMENTED", "TARGETS", "mutate", "seeds"]

INSTRUMENTED = ["nnefc.tokenizer", "nnefc.frontends.gguf"]
STYLES = Path(__file__).resolve().parents[2] / "tokenizer" / "chat_styles"
_WORDS = (
    "{{", "}}", "{%", "%}", "for", "in", "if", "endif", "endfor", "set", "=", "macro", "endmacro", "(", ")", "|", "is",
    "loop.index", "messages", "namespace(", "not", "+", "~", "[", "]", "1" * 5000, "'", '"', ".", ":", "break", "else",
    "call", "filter", "raise_exception(", "{#", "#}", "-", "**", "1e999",
)  # fmt: skip


def tokenizer_folder(content: bytes, folder: Path) -> None:
    """A folder with a tokenizer."""
    written(content, folder, TOKENIZER_FILES)
    if (folder / TOKENIZER_FILES[0]).is_file():
        _compiled(vocabulary_of_files(folder))


def container(content: bytes, folder: Path) -> None:
    """A file of GGUF."""
    path = folder / "m.gguf"
    path.write_bytes(content)
    _compiled(vocabulary_of_gguf(read_container(path).metadata))


def template(content: bytes, _: Path) -> None:
    """A chat template."""
    compiled_template(content.decode("utf-8", errors="replace"), {"bos_token": "<s>"})


def _compiled(vocabulary: Vocabulary) -> None:
    serialized(vocabulary)
    if vocabulary.chat_template is not None:
        compiled_template(vocabulary.chat_template, vocabulary.named_tokens)


TARGETS = {b"J": tokenizer_folder, b"V": container, b"C": template}

_END = {"id": 9, "content": "<|end|>", "special": True, "normalized": False, "lstrip": False, "rstrip": False}
_BYTE_PAIRS = {
    "added_tokens": [_END],
    "normalizer": None,
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": r" ?\p{L}+|\s+(?!\S)|\s+"}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ],
    },
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [],
        "special_tokens": {"<|end|>": {"ids": [9]}},
    },
    "decoder": {"type": "ByteLevel"},
    "model": {
        "type": "BPE",
        "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3, "\u0120a": 4},
        "merges": ["a b", ["\u0120", "a"]],
        "byte_fallback": False,
        "ignore_merges": True,
    },
}
_UNIGRAM = {
    "added_tokens": [_END],
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            {"type": "Strip", "strip_left": True, "strip_right": False},
            {"type": "Precompiled", "precompiled_charsmap": ""},
        ],
    },
    "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True},
    "post_processor": None,
    "decoder": {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    },
    "model": {
        "type": "Unigram",
        "vocab": [["<unk>", 0.0], ["\u2581a", -1.5], ["b", -2.5], ["<0x0A>", -3]],
        "unk_id": 0,
        "byte_fallback": True,
    },
}
_WORDPIECE = {
    "added_tokens": [{"id": 0, "content": "[CLS]", "special": True, "single_word": True, "normalized": True}],
    "normalizer": {
        "type": "BertNormalizer",
        "clean_text": False,
        "handle_chinese_chars": True,
        "strip_accents": False,
        "lowercase": False,
    },
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 0], "sep": ["[CLS]", 0]},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "model": {
        "type": "WordPiece",
        "vocab": {"[CLS]": 0, "a": 1, "##b": 2, "[UNK]": 3},
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    },
}
_CONFIG = {
    "bos_token": "<|end|>",
    "eos_token": {"content": "<|end|>"},
    "added_tokens_decoder": {"9": {"content": "<|end|>"}, "10": {"content": "<x>", "special": True, "rstrip": True}},
    "chat_template": [
        {"name": "default", "template": "{% for m in messages %}{{ m.content }}{% endfor %}"},
        {"name": "tool_use", "template": "{{ tools }}"},
    ],
}


def _folder(document: Mapping[str, Any]) -> bytes:
    files = {
        "tokenizer.json": document,
        "tokenizer_config.json": _CONFIG,
        "generation_config.json": {"eos_token_id": [1, 2]},
        "special_tokens_map.json": {"eos_token": "<|end|>", "pad_token": {"content": "a"}},
        "config.json": {"eos_token_id": 2},
    }
    return b"J" + joined({name: json.dumps(value).encode() for name, value in files.items()}, TOKENIZER_FILES)


def _gguf(model: str) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        writer = GGUFWriter(path, "llama")
        writer.add_tokenizer_model(model)
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(["<s>", "a", "b", "ab"])
        writer.add_token_types([3, 1, 1, 1])
        writer.add_token_scores([0.0, -1.0, -2.0, -3.0])
        writer.add_token_merges(["a b"])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(0)
        writer.add_unk_token_id(0)
        writer.add_add_space_prefix(True)
        writer.add_chat_template("{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}")
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path.read_bytes()


def seeds() -> list[bytes]:
    """Valid inputs."""
    files = [b"V" + _gguf(model) for model in ("gpt2", "llama", "t5", "bert")]
    folders = [_folder(document) for document in (_BYTE_PAIRS, _UNIGRAM, _WORDPIECE)]
    return [*files, *folders, *(b"C" + path.read_bytes() for path in sorted(STYLES.glob("*.jinja")))]


def mutate(data: bytes, random: Random, corpus: list[bytes]) -> bytes:
    """A neighbour of an input, of the same kind: a value, a number, a word or some bytes are others."""
    content = data[1:]
    match data[:1]:
        case b"J" if random.random() < 0.8:
            content = _changed_documents(content, random)
        case b"C":
            other = random.choice([each for each in corpus if each[:1] == b"C"] or [data])
            content = _changed_template(content, other[1:], random)
        case _:
            content = changed_bytes(content, random)
    return data[:1] + content


def _changed_documents(content: bytes, random: Random) -> bytes:
    """Other values somewhere in one of the documents."""
    parts = parts_of(content, TOKENIZER_FILES)
    name = random.choices(TOKENIZER_FILES, (8, 2, 1, 0, 1, 1, 0))[0]
    try:
        changed = changed_document(parts[name], random)
    except ValueError:
        return changed_bytes(content, random)
    return joined(parts | {name: changed}, TOKENIZER_FILES)


def _changed_template(content: bytes, other: bytes, random: Random) -> bytes:
    """Words in place of others, or a piece of another template."""
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(content) + 1)
        piece = random.choice(_WORDS).encode()
        if random.random() < 0.3 and other:
            begin = random.randrange(len(other))
            piece = other[begin : begin + random.randrange(60)]
        content = content[:at] + piece + content[at + random.randrange(8) :]
    return content
