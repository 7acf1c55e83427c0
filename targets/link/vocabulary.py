"""Writes the tokenizer of a language model as a source of its library."""

from __future__ import annotations

import os
from pathlib import Path

from nnefc.targets.description.c_strings import c_string

__all__ = ["write_vocabulary"]


def write_vocabulary(content: bytes, folder: Path) -> Path:
    """Writes a serialized vocabulary and the assembly that includes it into `folder`; returns the assembly."""
    data = folder / "vocabulary.bin"
    data.write_bytes(content)
    source = folder / "vocabulary_data.S"
    name = c_string(os.fsencode(data.resolve()))
    source.write_text(f'#define NNEFC_VOCABULARY "{name}"\n#include "tokenizer/vocabulary.S"\n', encoding="utf-8")
    return source
