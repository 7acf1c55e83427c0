"""Writes the tokenizer and the chat template of a language model as sources of its library."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from nnefc.targets.description.c_strings import c_string

__all__ = ["write_chat_program", "write_vocabulary"]

_WORDS_A_LINE = 16


def write_vocabulary(content: bytes, folder: Path) -> Path:
    """Write a serialized vocabulary, and assembly that includes it, into `folder`; return the assembly file."""
    data = folder / "vocabulary.bin"
    data.write_bytes(content)
    source = folder / "vocabulary_data.S"
    name = c_string(os.fsencode(data.resolve()))
    source.write_text(f'#define NNEFC_VOCABULARY "{name}"\n#include "tokenizer/vocabulary.S"\n', encoding="utf-8")
    return source


def write_chat_program(content: bytes, folder: Path) -> Path:
    """Write a compiled chat template, words of 32 bits, as C source into `folder`; return the file."""
    words = [f"0x{word:x}," for (word,) in struct.iter_unpack("<I", content)]
    lines = (" ".join(words[begin : begin + _WORDS_A_LINE]) for begin in range(0, len(words), _WORDS_A_LINE))
    source = folder / "chat_program.c"
    array = "const uint32_t nnefc_chat_program[] = {\n" + "\n".join(lines) + "\n};\n"
    source.write_text(f'#include "chat/render.h"\n{array}', encoding="utf-8")
    return source
