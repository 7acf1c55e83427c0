"""Models of llama's architecture with random weights, as files of GGUF: of any size, in one format of blocks.

Integers of matrices are random bytes and scales random numbers of the sizes that a quantizer makes, so that a file of a
gigabyte is written in seconds. Speeds are those of trained values: no engine looks at what the numbers are. `Q4_K_M` is
a mixture: llama.cpp's quantizer stores embeddings, and of half of the layers the values' and the last matrices, in
Q6_K, and all others in Q4_K. Trained weights can be written in another format, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

__all__ = ["SIZES", "LlamaSizes", "requantize", "write_llama"]


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
    "Qwen2.5-0.5B": LlamaSizes(24, 896, 14, 2, 4864, 151936, 1000000.0),
    "Llama-3.2-1B": LlamaSizes(16, 2048, 32, 8, 8192, 128256, 500000.0),
}

_Field = tuple[str, str] | tuple[str, str, int]


@dataclass(frozen=True)
class _Block:
    """A format: elements of a block, its fields, and the means of those that are float16; all others are random bytes.

    Attributes:
        signed: whether scales have either sign, as where a block's largest element gets the code of largest magnitude.
    """

    elements: int
    fields: Sequence[_Field]
    means: Mapping[str, float]
    signed: bool = False


_BLOCKS = {
    "Q4_0": _Block(32, [("scale", "<f2"), ("quants", "u1", 16)], {"scale": 2.0**-8}, signed=True),
    "Q4_1": _Block(
        32, [("scale", "<f2"), ("min", "<f2"), ("quants", "u1", 16)], {"scale": 2.0**-8, "min": -7.5 * 2.0**-8}
    ),
    "Q8_0": _Block(32, [("scale", "<f2"), ("quants", "u1", 32)], {"scale": 2.0**-12}),
    "Q4_K": _Block(
        256,
        [("scale", "<f2"), ("min", "<f2"), ("scales", "u1", 12), ("quants", "u1", 128)],
        {"scale": 2.0**-13, "min": 7.5 * 2.0**-13},
    ),
    "Q6_K": _Block(
        256, [("low", "u1", 128), ("high", "u1", 64), ("scales", "i1", 16), ("scale", "<f2")], {"scale": 2.0**-13}
    ),
}
_MAX_SCALE = 16  # of signed scales of blocks in blocks
_DEVIATION = 0.2  # standard deviation of the largest of 32 normal numbers, over its mean


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
    writer.add_file_type(_file_type(kind))
    writer.add_vocab_size(sizes.words)
    writer.add_tokenizer_model("no_vocab")
    random = np.random.default_rng(0)
    for name, shape in _shapes(sizes):
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", np.ones(shape, np.float32))
        else:
            form = _format(name, sizes, kind)
            stored = gguf.GGMLQuantizationType[form]
            writer.add_tensor(f"{name}.weight", _matrix(random, shape, _BLOCKS[form]), raw_dtype=stored)
    _finish(writer, path)


def requantize(source: Path, path: Path, kind: str) -> None:
    """Write a file of GGUF again with all of its matrices in one format: `Q4_0`, `Q4_1` or `Q8_0`."""
    reader = gguf.GGUFReader(source)
    stored = gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(path.with_suffix(".part"), reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            writer.add_key_value(name, field.contents(), field.types[0], field.types[-1] if field.types[1:] else None)
    writer.add_file_type(_file_type(kind))
    for tensor in reader.tensors:
        if len(tensor.shape) == 1:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        else:
            data = gguf.quants.quantize(gguf.quants.dequantize(tensor.data, tensor.tensor_type), stored)
            writer.add_tensor(tensor.name, data, raw_dtype=stored)
    _finish(writer, path)


def _file_type(kind: str) -> int:
    """The number of the format that matrices have, in a file's metadata."""
    return int(gguf.LlamaFileType[f"MOSTLY_{kind}"])  # words: allowed


def _finish(writer: gguf.GGUFWriter, path: Path) -> None:
    """Write all, and give the file its name."""
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


def _format(name: str, sizes: LlamaSizes, kind: str) -> str:
    """The format of a matrix."""
    if kind != "Q4_K_M":
        return kind
    _, layer, *part = name.split(".") if "." in name else ("", "0")
    first, last = sizes.layers // 8, 7 * sizes.layers // 8
    precise = not first <= int(layer) < last or (int(layer) - first) % 3 == 2
    return "Q6_K" if not part or (precise and part[0] in ("attn_v", "ffn_down")) else "Q4_K"


def _matrix(random: np.random.Generator, shape: Sequence[int], block: _Block) -> npt.NDArray[np.uint8]:
    """Rows of blocks, as bytes."""
    rows, columns = shape
    blocks = np.empty((rows, columns // block.elements), np.dtype(list(block.fields)))
    deviation = random.normal(1, _DEVIATION, blocks.shape)  # of a scale and the minimum that belongs to it
    deviation *= random.choice([-1, 1], blocks.shape) if block.signed else 1
    for name, mean in block.means.items():
        blocks[name] = mean * deviation
    for name in [field[0] for field in block.fields if field[0] not in block.means]:
        signed = blocks[name].dtype == np.int8
        least, end = (-_MAX_SCALE, _MAX_SCALE) if signed else (0, 256)
        blocks[name] = random.integers(least, end, blocks[name].shape, blocks[name].dtype)
    return blocks.view(np.uint8).reshape(rows, -1)
