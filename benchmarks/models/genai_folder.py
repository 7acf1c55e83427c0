"""A model of llama's architecture in a file of GGUF as a folder that onnxruntime-genai runs, with the same weights.

The decoder is one that the package's model builder writes with its fastest forms for CPUs: queries, keys and values of
one product, products of rows in 8 bits (`accuracy_level` 4), embeddings that share the last matrix, logits of the last
position alone. Q4_0 and symmetric `MatMulNBits` are the same numbers: `(q - 8) * scale` in blocks of 32.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from gguf import GGMLQuantizationType, GGUFReader, ReaderTensor
from models.decoders import Heads, Sizes, decoder

__all__ = ["write_genai_folder"]

_BLOCK = 32
_Q4_0 = np.dtype([("scale", "<f2"), ("quants", "u1", _BLOCK // 2)])
_END = 2  # a token that ends texts


def write_genai_folder(gguf: Path, folder: Path, context: int) -> None:
    """Write `model.onnx`, its data and `genai_config.json` of a model in Q4_0, for `context` positions.

    Raises:
        ValueError: a matrix is not in Q4_0, or the file has a last matrix of its own.
    """
    weights = _StoredWeights(gguf, context)
    folder.mkdir(parents=True, exist_ok=True)
    model = decoder(weights, [Heads(packed=True)] * weights.layers, weights.sizes, last_alone=True)
    (folder / "model.onnx.data").unlink(missing_ok=True)
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data")
    (folder / "genai_config.json").write_text(json.dumps(_config(weights.sizes, weights.layers), indent=4))


class _StoredWeights:
    """The parameters of a file of GGUF, as :class:`models.decoders.Weights` asks for them."""

    def __init__(self, gguf: Path, context: int) -> None:
        reader = GGUFReader(gguf)
        self._tensors = {tensor.name.removesuffix(".weight"): tensor for tensor in reader.tensors}
        if "output" in self._tensors:
            raise ValueError(f"{gguf}: embeddings do not share the last matrix")
        number = {
            name: reader.fields[f"llama.{name}"].contents()
            for name in ("block_count", "attention.head_count", "attention.head_count_kv", "rope.freq_base")
        }
        heads, groups = number["attention.head_count"], number["attention.head_count_kv"]
        words, width = self._tensors["token_embd"].data.shape[0], int(self._tensors["token_embd"].shape[0])
        inner = self._tensors["blk.0.ffn_up"].data.shape[0]
        self.layers = int(number["block_count"])
        self.sizes = Sizes(heads, groups, width // heads, inner, words, context, float(number["rope.freq_base"]))
        self._scales = {"g0": "blk.0.attn_norm", f"n{self.layers}_scale": "output_norm"}
        self._matrices = {"head": ["token_embd"]}
        for layer in range(self.layers):
            block = f"blk.{layer}"
            self._scales[f"m{layer}_scale"] = f"{block}.ffn_norm"
            self._scales.setdefault(f"n{layer}_scale", f"{block}.attn_norm")
            self._matrices |= {
                f"qkv{layer}": [f"{block}.attn_q", f"{block}.attn_k", f"{block}.attn_v"],
                f"o{layer}": [f"{block}.attn_output"],
                f"gate{layer}": [f"{block}.ffn_gate"],
                f"up{layer}": [f"{block}.ffn_up"],
                f"down{layer}": [f"{block}.ffn_down"],
            }

    def table(self, _words: int, _width: int) -> np.ndarray | None:
        return None

    def scale(self, name: str, _width: int) -> np.ndarray:
        return np.asarray(self._tensors[self._scales[name]].data, np.float32)

    def matrix(self, name: str, depth: int, columns: int) -> np.ndarray | dict[str, Any]:
        blocks = np.concatenate([self._rows(tensor) for tensor in self._matrices[name]])
        low, high = blocks["quants"] & 15, blocks["quants"] >> 4  # of the first and of the last elements of a block
        codes = np.concatenate([low, high], axis=-1)
        attributes = {"K": depth, "N": columns, "bits": 4, "block_size": _BLOCK, "accuracy_level": 4}
        return {
            "b": codes[..., ::2] | codes[..., 1::2] << 4,
            "scales": blocks["scale"].astype(np.float32),
            "attributes": attributes,
        }

    def _rows(self, name: str) -> np.ndarray:
        """The blocks of a matrix, `[rows, blocks]`; pairs that positions rotate are those of the two parts of a head,
        where GGUF has neighbors."""
        tensor: ReaderTensor = self._tensors[name]
        if tensor.tensor_type != GGMLQuantizationType.Q4_0:
            raise ValueError(f"{name}: {tensor.tensor_type.name}, not Q4_0")
        blocks = np.ascontiguousarray(tensor.data).view(_Q4_0)
        if name.endswith(("attn_q", "attn_k")):
            pairs = blocks.reshape(-1, self.sizes.size // 2, 2, blocks.shape[1])
            return pairs.swapaxes(1, 2).reshape(blocks.shape)
        return blocks


def _config(sizes: Sizes, layers: int) -> dict[str, Any]:
    """The text of `genai_config.json`: caches are written where they are."""
    inputs = {
        "input_ids": "input_ids",
        "attention_mask": "attention_mask",
        "past_key_names": "past.%d.key",
        "past_value_names": "past.%d.value",
    }
    outputs = {"logits": "logits", "present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}
    network = {
        "session_options": {"provider_options": []},
        "filename": "model.onnx",
        "head_size": sizes.size,
        "hidden_size": sizes.width,
        "inputs": inputs,
        "outputs": outputs,
        "num_attention_heads": sizes.heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": sizes.groups,
    }
    model = {
        "type": "llama",
        "bos_token_id": 1,
        "eos_token_id": _END,
        "pad_token_id": _END,
        "context_length": sizes.longest,
        "vocab_size": sizes.words,
        "decoder": network,
    }
    search = {"do_sample": False, "max_length": sizes.longest, "past_present_share_buffer": True}
    return {"model": model, "search": search}
