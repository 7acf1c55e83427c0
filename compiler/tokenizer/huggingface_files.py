"""Reads `tokenizer.json` and the files next to it in a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnefc.support.diagnostics import CompileError
from nnefc.tokenizer.chat_template.joined import joined_templates
from nnefc.tokenizer.huggingface import vocabulary_of_json
from nnefc.tokenizer.vocabulary import Vocabulary

__all__ = ["TOKENIZER_FILES", "has_tokenizer", "vocabulary_of_files"]

TOKENIZER = "tokenizer.json"
_CONFIG, _GENERATION, _TEMPLATE = "tokenizer_config.json", "generation_config.json", "chat_template.jinja"
_SPECIAL, _MODEL = "special_tokens_map.json", "config.json"
_TOOL_USE, _WITH_TOOLS = "tool_use", "additional_chat_templates/tool_use.jinja"
TOKENIZER_FILES = (TOKENIZER, _CONFIG, _GENERATION, _TEMPLATE, _SPECIAL, _MODEL, _WITH_TOOLS)
"""The files of a folder that describe its tokenizer."""
_OTHERS = (
    "tokenizer.model",
    "tekken.json",
    "tiktoken.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "vocab.json",
    "vocab.txt",
)
"""Files that a folder may have in place of the first."""
_MAX_BYTES = 64 << 20
"""Maximum bytes of a JSON file, which takes up to 25 times as much memory when parsed."""
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def has_tokenizer(folder: Path) -> bool:
    """Return whether a folder has a tokenizer, even one of an unsupported format."""
    return any((folder / name).is_file() for name in (TOKENIZER, *_OTHERS))


def vocabulary_of_files(path: Path) -> Vocabulary:
    """Return the vocabulary of a `tokenizer.json`, or of the one in a folder.

    Files next to it have the tokens that end a reply (`generation_config.json`, or else `config.json` and
    `tokenizer_config.json`), further tokens and names of special tokens (`tokenizer_config.json`,
    `special_tokens_map.json`), and the chat template (`chat_template.jinja`, or `tokenizer_config.json`).

    Raises:
        CompileError: a file is not JSON, or its tokenizer is not supported.
        OSError: a file cannot be read.
    """
    file = path / TOKENIZER if path.is_dir() else path
    folder = file.parent
    other = next((name for name in _OTHERS if (folder / name).is_file()), None)
    if path.is_dir() and other is not None and not file.is_file():
        raise CompileError(
            f"{folder} has {other}, but no {TOKENIZER} (which AutoTokenizer.from_pretrained(FOLDER) of transformers "
            "writes with save_pretrained)"
        )
    document = _json(file)
    if not isinstance(document.get("model"), dict):
        raise CompileError(f"{file} is not a tokenizer of the package tokenizers: it has no model")
    config = {**_optional(folder / _SPECIAL), **_optional(folder / _CONFIG)}
    named = {name: text for name in _NAMED if (text := _text(config.get(name))) is not None}
    listed = document.get("added_tokens") or []
    if not isinstance(listed, list) or not all(isinstance(added, dict) for added in listed):
        raise CompileError(f"{file}: added_tokens is not a list of tokens")
    added_tokens = _with_further(listed, config, folder)
    numbers = {str(added.get("content")): added.get("id") for added in added_tokens}
    vocabulary = document["model"].get("vocab")
    if isinstance(vocabulary, dict):
        numbers = vocabulary | numbers
    ends = _ends(folder, numbers.get(named.get("eos_token", "")))
    try:
        return vocabulary_of_json(
            {**document, "added_tokens": added_tokens},
            end_tokens=ends,
            named_tokens=named,
            chat_template=_template(folder, config),
        )
    except CompileError as error:
        raise CompileError(f"{file}: {error.message}", hint=error.hint) from error


def _ends(folder: Path, end: object) -> list[int]:
    """Return the tokens that end a reply; `end` is the tokenizer's own end token, or None."""
    file = next((file for file in (folder / _GENERATION, folder / _MODEL) if file.is_file()), folder / _GENERATION)
    found = _optional(file).get("eos_token_id")
    ends = [*found] if isinstance(found, list) else [] if found is None else [found]
    if end is not None and (not ends or file.name == _MODEL):
        ends.append(end)
    if not all(type(each) is int for each in ends):
        raise CompileError(f"{file}: eos_token_id is not a token, nor a list of tokens")
    return list(dict.fromkeys(ends))


def _with_further(listed: Sequence[Mapping[str, Any]], config: Mapping[str, Any], folder: Path) -> list[Any]:
    """Return the added tokens of `tokenizer.json` and of the configuration; the latter's override the former's."""
    found = config.get("added_tokens_decoder")
    if not isinstance(found, Mapping):
        return list(listed)
    tokens = {str(added.get("content")): added for added in listed}
    numbers = {number for added in listed if isinstance(number := added.get("id"), int)}
    for number, added in found.items():
        if not isinstance(added, Mapping) or not isinstance(added.get("content"), str) or not number.isdecimal():
            raise CompileError(f"{folder / _CONFIG}: added_tokens_decoder has tokens without a number or a content")
        own = tokens.get(added["content"])
        if own is not None or int(number[:10]) not in numbers:
            tokens[added["content"]] = {**added, "id": int(number[:10]) if own is None else own.get("id")}
    return list(tokens.values())


def _json(file: Path) -> Mapping[str, Any]:
    size = file.stat().st_size
    if size > _MAX_BYTES:
        raise CompileError(f"{file} has {size:,} bytes; a tokenizer of more than {_MAX_BYTES:,} is not read")
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CompileError(f"{file} is not JSON: {str(error)[:200]}") from error
    if not isinstance(found, dict):
        raise CompileError(f"{file} is not a JSON object")
    return found


def _optional(file: Path) -> Mapping[str, Any]:
    return _json(file) if file.is_file() else {}


def _text(token: object) -> str | None:
    """Return the text of a token, which configurations give as a text or as an object with properties."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Return the chat template, joined with the one for conversations with tools if there are two."""
    found = config.get("chat_template")
    named = {"default": found}
    if isinstance(found, list):
        named = {str(each.get("name")): each.get("template") for each in found if isinstance(each, dict)}
    for name, file in (("default", folder / _TEMPLATE), (_TOOL_USE, folder / _WITH_TOOLS)):
        if file.is_file() and file.stat().st_size <= _MAX_BYTES:
            named[name] = file.read_text(encoding="utf-8", errors="replace")
    default, tool_use = (text if isinstance(text := named.get(name), str) else None for name in ("default", _TOOL_USE))
    return joined_templates(default, tool_use)
