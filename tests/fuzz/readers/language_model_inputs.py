"""Inputs for fuzzing the front ends of language models: files of GGUF, and folders of Hugging Face's.

Inputs go down to the document of NNEF and to the elements of every tensor. A folder is the files of `FILES`, quantized
folders and those of sentence-transformers among them.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
from binary_values import changed_bytes
from file_parts import joined, parts_of, written
from gguf import GGMLQuantizationType, GGUFWriter
from json_values import changed_document

from nnefc.frontends.decoder import Session
from nnefc.frontends.gguf import frontend as gguf_frontend
from nnefc.frontends.gguf.container import read_container
from nnefc.frontends.huggingface import frontend as folder_frontend

__all__ = ["INSTRUMENTED", "TARGETS", "mutate", "seeds"]

INSTRUMENTED = ["nnefc.frontends.gguf", "nnefc.frontends.huggingface", "nnefc.frontends.decoder"]
SIZE, INNER, WORDS = 32, 64, 8
_HEAD = 3200  # bytes at the beginning of a file, before the elements of its tensors


def container(content: bytes, folder: Path) -> None:
    """A file of GGUF."""
    path = folder / "m.gguf"
    path.write_bytes(content)
    source = gguf_frontend.read(path, read_container(path))
    source.outline(Session(8))
    for tensor in source.files(Session(8, 2)).model.tensors.values():
        tensor.value()


_INDEX = "model.safetensors.index.json"
_TENSORS = ("model.safetensors", "a.safetensors")
FILES = ("config.json", "quantize_config.json", "modules.json", "1_Pooling/config.json", _INDEX, *_TENSORS)


def model_folder(content: bytes, folder: Path) -> None:
    """A folder with a configuration and one file of tensors."""
    written(content, folder, FILES)
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


_Tensor = tuple[str, tuple[int, ...], int]
"""Element type, shape, and bytes of an element."""


def _gptq(rows: int, depth: int) -> dict[str, _Tensor]:
    made: dict[str, _Tensor] = {"qweight": ("I32", (depth // 8, rows), 4), "qzeros": ("I32", (1, rows // 8), 4)}
    return made | {"scales": ("F16", (1, rows), 2), "g_idx": ("I32", (depth,), 4)}


def _awq(rows: int, depth: int) -> dict[str, _Tensor]:
    made: dict[str, _Tensor] = {"qweight": ("I32", (depth, rows // 8), 4), "qzeros": ("I32", (1, rows // 8), 4)}
    return made | {"scales": ("F16", (1, rows), 2)}


def _fp8(rows: int, depth: int) -> dict[str, _Tensor]:
    return {"weight": ("F8_E4M3", (rows, depth), 1), "weight_scale_inv": ("F32", (1, 1), 4)}


def _int8(rows: int, depth: int) -> dict[str, _Tensor]:
    return {"weight": ("I8", (rows, depth), 1), "SCB": ("F32", (rows,), 4)}


_QUANTIZED = {
    "gptq": (_gptq, {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True, "desc_act": False}),
    "awq": (_awq, {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}),
    "fp8": (_fp8, {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}),
    "int8": (_int8, {"quant_method": "bitsandbytes", "load_in_8bit": True}),
}


def _folder(
    kind: str, method: str = "", files: dict[str, object] | None = None, is_shard: bool = False, **changes: object
) -> bytes:
    config: dict[str, object] = {
        "model_type": kind, "vocab_size": WORDS, "hidden_size": SIZE, "num_hidden_layers": 1, "num_attention_heads": 2,
        "rms_norm_eps": 1e-5, "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "sliding_window": 4,
    }  # fmt: skip
    parts_of, given = _QUANTIZED.get(method, (None, None))
    if given is not None:
        config["quantization_config"] = given
    header, data = {}, b""
    for name, shape in _SHAPES.items():
        own = _NAMES[name.removeprefix("blk.0.")]
        module = f"model.layers.0.{own}" if name.startswith("blk") else f"model.{own}"
        parts = {"weight": ("BF16", shape, 2)}
        if parts_of is not None and name.startswith("blk") and len(shape) == 2:
            parts = parts_of(*shape)
        for part, (dtype, sizes, size) in parts.items():
            content = bytes(size * int(np.prod(sizes)))
            ends = [len(data), len(data) + len(content)]
            header[f"{module}.{part}"] = {"dtype": dtype, "shape": sizes, "data_offsets": ends}
            data += content
    head = json.dumps(header).encode()
    made = {name: json.dumps(value).encode() for name, value in (files or {}).items()}
    made["config.json"] = json.dumps(config | changes).encode()
    made[_TENSORS[is_shard]] = struct.pack("<Q", len(head)) + head + data
    if is_shard:
        made[_INDEX] = json.dumps({"weight_map": dict.fromkeys(header, _TENSORS[1])}).encode()
    return b"H" + joined(made, FILES)


_MODULES: dict[str, object] = {
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ],
    "1_Pooling/config.json": {"word_embedding_dimension": SIZE, "pooling_mode_lasttoken": True},
}


def seeds() -> list[bytes]:
    """Valid inputs."""
    files = [b"G" + _gguf(*each) for each in (("llama", "F32"), ("llama", "Q4_0"), ("qwen2", "F32"))]
    folders = [_folder("llama"), _folder("mistral"), _folder("qwen2", use_sliding_window=False)]
    folders += [_folder("llama", method) for method in _QUANTIZED]
    return [*files, *folders, _folder("mistral", files=_MODULES), _folder("llama", is_shard=True)]


def mutate(data: bytes, random: Random, corpus: list[bytes]) -> bytes:
    """A neighbour of an input, of the same kind: a value of a document, a number, a byte, or a piece is another one."""
    if data[:1] == b"H" and random.random() < 0.6:
        return data[:1] + _changed_documents(data[1:], random)
    return data[:1] + changed_bytes(data[1:], random, _HEAD)


def _changed_documents(content: bytes, random: Random) -> bytes:
    """Other values somewhere in one of the documents, or in the header of a file of tensors."""
    parts = parts_of(content, FILES)
    name = random.choice([name for name in FILES if parts[name]] or [FILES[0]])
    whole = parts[name]
    size = int.from_bytes(whole[:8], "little") if name in _TENSORS else len(whole)
    before, after = (8, 8 + size) if name in _TENSORS else (0, size)
    try:
        changed = changed_document(whole[before:after], random)
    except (ValueError, RecursionError):
        return changed_bytes(content, random, _HEAD)
    head = struct.pack("<Q", len(changed)) if before else b""
    return joined(parts | {name: head + changed + whole[after:]}, FILES)
