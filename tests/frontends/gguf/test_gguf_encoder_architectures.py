"""Encoders of GGUF, written from random models of `transformers`, which they are compared with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from random_encoders import CASES, LENGTHS, TOKENS, outputs, pooled, saved

import nnefc
from nnefc.frontends.huggingface.frontend import read

NAMES = {"nomic_bert": "nomic-bert", "modernbert": "modern-bert", "gemma": "gemma-embedding", "qwen3": "qwen3"}
POOLINGS = {"mean": gguf.PoolingType.MEAN, "last": gguf.PoolingType.LAST}


def write(path: Path, architecture: str, config: dict[str, Any], tensors: dict[str, np.ndarray], pooling: str) -> None:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_pooling_type(POOLINGS[pooling])
    is_rms = "rms_norm_eps" in config
    if is_rms:
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    else:
        writer.add_layer_norm_eps(config.get("layer_norm_eps") or config["norm_eps"])
    rotary = config["rope_parameters"]
    writer.add_rope_freq_base(rotary.get("full_attention", rotary)["rope_theta"])
    if "query_pre_attn_scalar" in config:
        writer.add_attention_scale(config["query_pre_attn_scalar"] ** -0.5)
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])
    elif "local_attention" in config:
        writer.add_sliding_window_pattern(3)
    if window := config.get("sliding_window") or config.get("local_attention"):
        writer.add_sliding_window(window)
    for name, value in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_embeddings_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    kind, options, pooling, _ = CASES[name]
    model = saved(kind, options, tmp_path)
    wanted = pooled(np.asarray(outputs(model).last_hidden_state, np.float64), pooling)
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    config = json.loads((tmp_path / "config.json").read_text())
    tensors = {label: tensor.value_as_floats() for label, tensor in read(tmp_path).weights.tensors.items()}
    write(tmp_path / "m.gguf", NAMES[name], config, tensors, pooling)
    with nnefc.compile(tmp_path / "m.gguf", strict=True, context=32).load(threads=1) as compiled:
        for rows in ([0, 1, 2], [2]):
            width = max(LENGTHS[n] for n in rows)
            found = np.asarray(compiled(np.ascontiguousarray(TOKENS[rows, :width])))
            assert np.abs(found - wanted[rows]).max() < 1e-4 * np.abs(wanted).max()
