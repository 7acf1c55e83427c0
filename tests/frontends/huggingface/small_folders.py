"""Folders of a small language model of the architecture llama."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

RNG = np.random.default_rng(4)
CONFIG = {
    "model_type": "llama", "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
    "num_attention_heads": 2, "rms_norm_eps": 1e-5, "hidden_act": "silu", "max_position_embeddings": 32,
}  # fmt: skip
SHAPES = {
    "model.embed_tokens.weight": (40, 32),
    "model.norm.weight": (32,),
    **{f"model.layers.0.self_attn.{part}_proj.weight": (32, 32) for part in "qkvo"},
    "model.layers.0.mlp.gate_proj.weight": (48, 32),
    "model.layers.0.mlp.up_proj.weight": (48, 32),
    "model.layers.0.mlp.down_proj.weight": (32, 48),
    "model.layers.0.input_layernorm.weight": (32,),
    "model.layers.0.post_attention_layernorm.weight": (32,),
}


def safetensors(tensors: dict[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """A file: by name the element type, the shape and the bytes."""
    header, data = {}, b""
    for name, (kind, shape, content) in tensors.items():
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": offsets}
        data += content
    return with_header(json.dumps(header).encode(), data)


def with_header(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def values() -> dict[str, np.ndarray]:
    return {name: (RNG.standard_normal(shape) * 0.3).astype(np.float32) for name, shape in SHAPES.items()}


def write(folder: Path, config: dict[str, Any], **files: bytes) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name, content in files.items():
        (folder / f"{name}.safetensors").write_bytes(content)
