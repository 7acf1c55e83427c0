"""Experts in blocks, as files of GGUF have them: they stay so, and the network is that of their numbers."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

import nnefc

SIZE, INNER, EXPERTS, WORDS = 64, 32, 4, 40
KINDS = gguf.GGMLQuantizationType
SHAPES = {
    "token_embd": (WORDS, SIZE), "output_norm": (SIZE,), "blk.0.attn_norm": (SIZE,), "blk.0.ffn_norm": (SIZE,),
    "blk.0.attn_q": (SIZE, SIZE), "blk.0.attn_k": (32, SIZE), "blk.0.attn_v": (32, SIZE),
    "blk.0.attn_output": (SIZE, SIZE), "blk.0.attn_q_norm": (16,), "blk.0.attn_k_norm": (16,),
    "blk.0.ffn_gate_inp": (EXPERTS, SIZE), "blk.0.ffn_gate_exps": (EXPERTS, INNER, SIZE),
    "blk.0.ffn_up_exps": (EXPERTS, INNER, SIZE), "blk.0.ffn_down_exps": (EXPERTS, SIZE, INNER),
}  # fmt: skip


def write(path: Path, in_blocks: bool) -> None:
    """A model whose experts are of Q8_0 and Q4_0, or of the same numbers as floats."""
    rng, writer = np.random.default_rng(9), gguf.GGUFWriter(path, "qwen3moe")
    for name, value in (
        ("block_count", 1), ("embedding_length", SIZE), ("attention.head_count", 4), ("attention.head_count_kv", 2),
        ("expert_count", EXPERTS), ("expert_used_count", 2),
    ):  # fmt: skip
        writer.add_uint32(f"qwen3moe.{name}", value)
    writer.add_float32("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6)
    for name, shape in SHAPES.items():
        value = rng.standard_normal(shape).astype(np.float32) * 0.3 + (len(shape) == 1)
        if not name.endswith("exps"):
            writer.add_tensor(f"{name}.weight", value)
            continue
        kind = KINDS.Q4_0 if "down" in name else KINDS.Q8_0
        data = gguf.quants.quantize(value, kind)
        if in_blocks:
            writer.add_tensor(f"{name}.weight", data, raw_dtype=kind)
        else:
            writer.add_tensor(f"{name}.weight", gguf.quants.dequantize(data, kind).reshape(shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("strict", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_experts_in_blocks_are_those_of_their_numbers(strict: bool, tmp_path: Path) -> None:
    """A prompt, and a single token; blocks take the bytes of the file, and not those of floats."""
    found, sizes = [], []
    for in_blocks in (True, False):
        write(tmp_path / "m.gguf", in_blocks)
        artifact = nnefc.compile(tmp_path / "m.gguf", strict=strict, context=8, kv_cache="f32")
        sizes.append(artifact.description.constant_bytes)
        with artifact.load(threads=1) as model:
            found.append([np.asarray(model(np.array([tokens]))) for tokens in ([3, 7, 11, 2, 30], [9])])
    bound = 1e-5 if strict else 1e-3  # rows are rounded to two bytes where products of bytes are quick
    for blocks, floats in zip(*found, strict=True):
        np.testing.assert_allclose(blocks, floats, rtol=0, atol=bound * np.abs(floats).max())
    experts = EXPERTS * INNER * SIZE * 3 * 4
    assert sizes[0] < sizes[1] - experts / 2
