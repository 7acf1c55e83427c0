"""Models of llama's architecture with random weights, as files of GGUF: of any size, in one format of blocks.

Matrices are random bytes with one small scale, so that a file of a gigabyte is written in seconds. Speeds are those of
trained values: no engine looks at what the numbers are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

__all__ = ["SIZES", "LlamaSizes", "write_llama"]


@dataclass(frozen=True)
class LlamaSizes:
    """Of a model: rows of `size` numbers, of which each head of queries has `size / heads`."""

    layers: int
    size: int
    heads: int
    key_heads: int
    inner: int
    words: int
    base: float = 10000.0

    @property
    def parameters(self) -> int:
        """Numbers of all matrices, those of the embeddings once."""
        narrow = self.size * self.key_heads // self.heads
        layer = 2 * self.size * self.size + 2 * narrow * self.size + 3 * self.inner * self.size
        return self.layers * layer + self.words * self.size


SIZES = {
    "SmolLM2-135M": LlamaSizes(30, 576, 9, 3, 1536, 49152),
    "Llama-3.2-1B": LlamaSizes(16, 2048, 32, 8, 8192, 128256, 500000.0),
}

# Of a block of 32 numbers: bytes before the numbers (scales, as float16, and a least one), and bytes of the numbers.
_BLOCKS = {"Q4_0": ([2.0**-8], 16), "Q4_1": ([2.0**-8, -(2.0**-5)], 16), "Q8_0": ([2.0**-12], 32)}


def write_llama(path: Path, sizes: LlamaSizes, kind: str) -> None:
    """Write a file of GGUF with matrices of one format, unless it is there; the last one is that of the embeddings."""
    if path.exists():
        return
    writer = gguf.GGUFWriter(path.with_suffix(".part"), "llama")
    writer.add_block_count(sizes.layers)
    writer.add_context_length(1 << 13)
    writer.add_embedding_length(sizes.size)
    writer.add_feed_forward_length(sizes.inner)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.key_heads)
    writer.add_rope_dimension_count(sizes.size // sizes.heads)
    writer.add_rope_freq_base(sizes.base)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(sizes.words)
    writer.add_tokenizer_model("no_vocab")
    random = np.random.default_rng(0)
    for name, shape in _shapes(sizes):
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", np.ones(shape, np.float32))
        else:
            stored = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(f"{name}.weight", _matrix(random, shape, kind), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.with_suffix(".part").rename(path)


def _shapes(sizes: LlamaSizes) -> Iterator[tuple[str, Sequence[int]]]:
    narrow = sizes.size * sizes.key_heads // sizes.heads
    yield "token_embd", (sizes.words, sizes.size)
    for layer in range(sizes.layers):
        yield f"blk.{layer}.attn_norm", (sizes.size,)
        yield f"blk.{layer}.attn_q", (sizes.size, sizes.size)
        yield f"blk.{layer}.attn_k", (narrow, sizes.size)
        yield f"blk.{layer}.attn_v", (narrow, sizes.size)
        yield f"blk.{layer}.attn_output", (sizes.size, sizes.size)
        yield f"blk.{layer}.ffn_norm", (sizes.size,)
        yield f"blk.{layer}.ffn_gate", (sizes.inner, sizes.size)
        yield f"blk.{layer}.ffn_up", (sizes.inner, sizes.size)
        yield f"blk.{layer}.ffn_down", (sizes.size, sizes.inner)
    yield "output_norm", (sizes.size,)


def _matrix(random: np.random.Generator, shape: Sequence[int], kind: str) -> npt.NDArray[np.uint8]:
    """Rows of blocks of bytes."""
    scales, stored = _BLOCKS[kind]
    head = np.array(scales, np.float16).view(np.uint8)
    rows, columns = shape
    blocks = np.empty((rows, columns // 32, len(head) + stored), np.uint8)
    blocks[..., : len(head)] = head
    blocks[..., len(head) :] = random.integers(0, 256, (rows, columns // 32, stored), np.uint8)
    return blocks.reshape(rows, -1)
