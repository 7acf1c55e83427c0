"""A small language model of random numbers, and requests for it, as the tests of serving texts share them."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from language_models import SIDE_BY_SIDE, TEMPLATE, write_model
from openai import OpenAI

import nnefc

__all__ = ["CONTEXT", "FUNCTION", "LIKELIEST", "MESSAGES", "SEQUENCES", "client_of", "get_text", "write_library"]

CONTEXT, SEQUENCES = SIDE_BY_SIDE["context"], SIDE_BY_SIDE["sequences"]
MESSAGES: list[Any] = [{"role": "user", "content": "hello"}]
FUNCTION: Any = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {"type": "object", "properties": {"a": {"enum": [1, "}"]}}, "required": ["a"],
                       "additionalProperties": False},
    },
}  # fmt: skip
LIKELIEST: dict[str, Any] = {"model": "small", "temperature": 0, "max_tokens": 6}


def write_library(folder: Path) -> dict[str, np.ndarray]:
    """Compiles the model as `m.so`, as servers do, with calls of tools as Hermes writes them; returns its numbers."""
    template = "{% if tools %}<tool_call>{% endif %}" + TEMPLATE
    values = write_model(folder / "m.gguf", tied=True, layers=1, mixed=False, template=template)
    nnefc.compile(folder / "m.gguf", all_logits=True, **SIDE_BY_SIDE).export(folder / "m.so")
    return values


def client_of(server: Any) -> OpenAI:
    """A client that does not ask again."""
    return OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)


def get_text(server: Any, path: str) -> str:
    """The text of an answer."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}") as response:
        text: str = response.read().decode()
        return text
