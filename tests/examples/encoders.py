"""Small random encoders in files of GGUF, and what they compute, written with NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from math import erf
from pathlib import Path
from typing import Any

import gguf
import numpy as np

__all__ = ["LETTERS", "OPTIONS", "encoded", "write_bert"]

SIZE, HEADS, INNER, LAYERS, CONTEXT, EPSILON = 32, 2, 48, 2, 24, 1e-12
LETTERS = "abcdefgh"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"▁{letter}" for letter in LETTERS), *LETTERS]
"""Each letter at the beginning of a word, and within one."""
OPTIONS: dict[str, Any] = {"strict": True, "sequences": 3}
"""How tests compile these models: with the same options, their kernels are the same."""


def write_bert(path: Path, pooling: gguf.PoolingType) -> dict[str, np.ndarray]:
    """A random BERT in a file of GGUF; its numbers by name."""
    rng, writer = np.random.default_rng(5), gguf.GGUFWriter(path, "bert")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(SIZE)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(EPSILON)
    writer.add_causal_attention(False)
    writer.add_pooling_type(pooling)
    writer.add_tokenizer_model("bert")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * 4 + [1] * (len(TOKENS) - 4))
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)
    values = {}
    for name, shape in _shapes(pooling == gguf.PoolingType.RANK).items():
        spread = 0.3 if len(shape) > 1 else 0.2
        values[name] = (rng.standard_normal(shape) * spread + name.endswith("norm.weight")).astype(np.float32)
        writer.add_tensor(name, values[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def _shapes(has_scores: bool) -> dict[str, tuple[int, ...]]:
    layer: dict[str, tuple[int, ...]] = {f"attn_{part}": (SIZE, SIZE) for part in ("q", "k", "v", "output")}
    layer |= {
        "attn_output_norm": (SIZE,),
        "ffn_up": (INNER, SIZE),
        "ffn_down": (SIZE, INNER),
        "layer_output_norm": (SIZE,),
    }
    whole: dict[str, tuple[int, ...]] = {"token_embd_norm": (SIZE,)}
    whole |= {f"blk.{n}.{name}": shape for n in range(LAYERS) for name, shape in layer.items()}
    whole |= {"cls": (SIZE, SIZE), "cls.output": (1, SIZE)} if has_scores else {}
    made = {
        "token_embd.weight": (len(TOKENS), SIZE),
        "token_types.weight": (2, SIZE),
        "position_embd.weight": (CONTEXT, SIZE),
    }
    for name, shape in whole.items():
        made |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return made


def encoded(
    values: dict[str, np.ndarray], tokens: Sequence[int], pooling: gguf.PoolingType, second: int | None = None
) -> np.ndarray:
    """The result of a text, or of a pair of texts, the second of which begins at `second`."""
    wide = {name: value.astype(np.float64) for name, value in values.items()}
    segments = (np.arange(len(tokens)) >= (len(tokens) if second is None else second)).astype(int)

    def product(x: np.ndarray, name: str) -> np.ndarray:
        return x @ wide[f"{name}.weight"].T + wide[f"{name}.bias"]

    def normed(x: np.ndarray, name: str) -> np.ndarray:
        unit = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + EPSILON)
        return unit * wide[f"{name}.weight"] + wide[f"{name}.bias"]

    x = wide["token_embd.weight"][list(tokens)] + wide["position_embd.weight"][: len(tokens)]
    x = normed(x + wide["token_types.weight"][segments], "token_embd_norm")
    for n in range(LAYERS):
        prefix = f"blk.{n}."
        q, k, v = (product(x, f"{prefix}attn_{part}").reshape(len(tokens), HEADS, -1).swapaxes(0, 1) for part in "qkv")
        scores = q @ k.swapaxes(1, 2) / np.sqrt(SIZE // HEADS)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        found = (powers / powers.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(len(tokens), SIZE)
        x = normed(x + product(found, f"{prefix}attn_output"), f"{prefix}attn_output_norm")
        up = product(x, f"{prefix}ffn_up")
        up = up * 0.5 * (1 + np.vectorize(erf)(up / np.sqrt(2)))
        x = normed(x + product(up, f"{prefix}ffn_down"), f"{prefix}layer_output_norm")
    if pooling == gguf.PoolingType.RANK:
        return product(np.tanh(product(x[0], "cls")), "cls.output")
    row = {gguf.PoolingType.MEAN: x.mean(0), gguf.PoolingType.CLS: x[0], gguf.PoolingType.LAST: x[-1]}[pooling]
    return row / np.linalg.norm(row)
