"""Reads `tokenizer.json` and the files next to it, as folders of Hugging Face have them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnefc.support.diagnostics import CompileError
from nnefc.tokenizer.huggingface import vocabulary_of_json
from nnefc.tokenizer.vocabulary import Vocabulary

__all__ = ["TOKENIZER", "TOKENIZER_FILES", "vocabulary_of_files"]

TOKENIZER = "tokenizer.json"
_CONFIG, _GENERATION, _TEMPLATE = "tokenizer_config.json", "generation_config.json", "chat_template.jinja"
TOKENIZER_FILES = (TOKENIZER, _CONFIG, _GENERATION, _TEMPLATE)
"""The files in a folder that say what its tokenizer is."""
_MAX_BYTES = 64 << 20
"""Of a file of JSON, which takes up to 25 times as much memory."""
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def vocabulary_of_files(path: Path) -> Vocabulary:
    """Returns the vocabulary of a `tokenizer.json`, or of the one in a folder.

    The files next to it say which tokens end a reply (`generation_config.json`, `tokenizer_config.json`), and how a
    conversation is written (`chat_template.jinja`, or in `tokenizer_config.json`).

    Raises:
        CompileError: a file that is not JSON, or whose tokenizer is not supported.
        OSError: a file that cannot be read.
    """
    file = path / TOKENIZER if path.is_dir() else path
    document = _json(file)
    if not isinstance(document.get("model"), dict):
        raise CompileError(f"{file} is not a tokenizer of the package tokenizers: it has no model")
    folder = file.parent
    config, generation = _optional(folder / _CONFIG), _optional(folder / _GENERATION)
    named = {name: text for name in _NAMED if (text := _text(config.get(name))) is not None}
    listed = document.get("added_tokens") or []
    if not isinstance(listed, list) or not all(isinstance(added, dict) for added in listed):
        raise CompileError(f"{file}: added_tokens is not a list of tokens")
    numbers = {str(added.get("content")): added.get("id") for added in listed}
    vocabulary = document["model"].get("vocab")
    if isinstance(vocabulary, dict):
        numbers = vocabulary | numbers
    ends = generation.get("eos_token_id")
    if ends is None:
        ends = numbers.get(named.get("eos_token", ""))
    ends = [] if ends is None else ends if isinstance(ends, list) else [ends]
    if not all(isinstance(end, int) for end in ends):
        raise CompileError(f"{folder / _GENERATION}: eos_token_id is not a token, nor a list of tokens")
    try:
        return vocabulary_of_json(
            document, end_tokens=ends, named_tokens=named, chat_template=_template(folder, config)
        )
    except CompileError as error:
        raise CompileError(f"{file}: {error.message}", hint=error.hint) from error


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
    """Returns the text of a token, which configurations have as it is or with its properties."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    file = folder / _TEMPLATE
    if file.is_file() and file.stat().st_size <= _MAX_BYTES:
        return file.read_text(encoding="utf-8", errors="replace")
    found = config.get("chat_template")
    if isinstance(found, list):  # templates with names
        parts = [each for each in found if isinstance(each, dict) and each.get("name") == "default"]
        found = parts[-1].get("template") if parts else None
    return found if isinstance(found, str) else None
