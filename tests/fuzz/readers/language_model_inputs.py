"""Inputs for fuzzing the front ends of language models: files of GGUF, and folders of Hugging Face's.

A folder is the length of its config.json in four bytes, that file, and one file of safetensors. Inputs go down to the
document of NNEF and to the elements of every tensor.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

from nnefc.frontends.decoder import Session
from nnefc.frontends.gguf import frontend as gguf_frontend
from nnefc.frontends.gguf.container import read_container
from nnefc.frontends.huggingface import frontend as folder_frontend

__all__ = ["INSTRUMENTED", "TARGETS", "mutate", "seeds"]

INSTRUMENTED = ["nnefc.frontends.gguf", "nnefc.frontends.huggingface", "nnefc.frontends.decoder"]
SIZE, INNER, WORDS = 32, 64, 8
_NUMBERS = (0, 1, 2, 3, 31, 32, 255, 256, 1 << 16, (1 << 31) - 1, 1 << 32, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)


def container(content: bytes, folder: Path) -> None:
    """A file of GGUF."""
    path = folder / "m.gguf"
    path.write_bytes(content)
    source = gguf_frontend.read(path, read_container(path))
    source.outline(Session(8))
    for tensor in source.files(Session(8, 2)).model.tensors.values():
        tensor.value()


def model_folder(content: bytes, folder: Path) -> None:
    """A folder with a configuration and one file of tensors."""
    length = int.from_bytes(content[:4], "little")
    (folder / "config.json").write_bytes(content[4 : 4 + length])
    (folder / "model.safetensors").write_bytes(content[4 + length :])
    source = folder_frontend.read(folder)
    source.outline(Session(8))
    for tensor in source.files(Session(8, 1, 2)).model.tensors.values():
        tensor.value()


TARGETS = {b"G": container, b"H": model_folder}

_SHAPES = {
    "token_embd": (WORDS, SIZE), "output_norm": (SIZE,), "blk.0.attn_norm": (SIZE,), "blk.0.ffn_norm": (SIZE,),
    **{f"blk.0.attn_{part}": (SIZE, SIZE) for part in ("q", "k", "v", "output")},
    "blk.0.ffn_gate": (INNER, SIZE), "blk.0.ffn_up": (INNER, SIZE), "blk.0.ffn_down": (SIZE, INNER),
}  # fmt: skip
_NAMES = {
    "token_embd": "embed_tokens", "output_norm": "norm", "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm", "attn_output": "self_attn.o_proj",
    **{f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"},
    **{f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")},
}  # fmt: skip


def _gguf(architecture: str, kind: str) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        writer = GGUFWriter(path, architecture)
        for name, value in (("block_count", 1), ("embedding_length", SIZE), ("attention.head_count", 2)):
            writer.add_uint32(f"{architecture}.{name}", value)
        writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
        writer.add_string(f"{architecture}.rope.scaling.type", "yarn")
        writer.add_array(f"{architecture}.attention.sliding_window_pattern", [True])
        for name, shape in _SHAPES.items():
            number = GGMLQuantizationType[kind if len(shape) > 1 else "F32"]
            data = np.zeros(shape, np.float32)
            if number != GGMLQuantizationType.F32:
                data = np.zeros((shape[0], shape[1] // 32 * 18), np.uint8)
            writer.add_tensor(f"{name}.weight", data, raw_dtype=number)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path.read_bytes()


def _folder(kind: str, **changes: object) -> bytes:
    config = {
        "model_type": kind, "vocab_size": WORDS, "hidden_size": SIZE, "num_hidden_layers": 1, "num_attention_heads": 2,
        "rms_norm_eps": 1e-5, "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "sliding_window": 4,
    }  # fmt: skip
    header, data = {}, b""
    for name, shape in _SHAPES.items():
        own = _NAMES[name.removeprefix("blk.0.")]
        label = f"model.layers.0.{own}.weight" if name.startswith("blk") else f"model.{own}.weight"
        content = bytes(2 * int(np.prod(shape)))
        header[label] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    return _packed(json.dumps(config | changes).encode(), json.dumps(header).encode(), data)


def _packed(config: bytes, header: bytes, data: bytes) -> bytes:
    return b"H" + struct.pack("<I", len(config)) + config + struct.pack("<Q", len(header)) + header + data


def seeds() -> list[bytes]:
    """Valid inputs."""
    files = [b"G" + _gguf(*each) for each in (("llama", "F32"), ("llama", "Q4_0"), ("qwen2", "F32"))]
    return [*files, _folder("llama"), _folder("mistral"), _folder("qwen2", use_sliding_window=False)]


def mutate(data: bytes, random: Random, corpus: list[bytes]) -> bytes:
    """A neighbour of an input, of the same kind: a number, a byte, or a piece of the header is another one."""
    content = bytearray(data[1:])
    head = min(len(content) - 8, 1600)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(max(1, head))
        match random.randrange(4):
            case 0:
                content[at : at + 8] = struct.pack("<Q", random.choice(_NUMBERS))
            case 1:
                content[at : at + 4] = struct.pack("<I", random.choice(_NUMBERS) & 0xFFFFFFFF)
            case 2:
                content[at] = random.randrange(256)
            case _:
                del content[at : at + random.randrange(9)]
    return data[:1] + bytes(content)
