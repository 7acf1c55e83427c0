"""Networks whose matrices are of all element types of GGUF, compared with the numbers that the package gguf decodes."""

from __future__ import annotations

from pathlib import Path

import gguf
import language_models as models
import numpy as np
import pytest

import nnefc
from nnefc.frontends.tensor_types import GGML_TYPES

KINDS = gguf.GGMLQuantizationType
RNG = np.random.default_rng(11)
SCALES = {
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
}
"""Where the floats of 16 bits of a block are, if there is not one at its beginning."""
WITHOUT = ("F32", "F64", "IQ1_M", "MXFP4", "NVFP4", "Q1_0", "Q2_0")
"""F64 is no type of matrices; the last two are unknown to the package, and the others have no such float."""
OTHERS = [number for number, kind in GGML_TYPES.items() if kind.name not in WITHOUT]


def matrix(number: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Random bytes with small scales, and the numbers that they are."""
    kind = GGML_TYPES[number]
    if kind.elements == 1:
        given = (RNG.standard_normal(shape) * 0.05).astype(np.float32)
        data = given.astype("<f2") if kind.name == "F16" else gguf.quants.quantize(given, KINDS(number))
        return data, gguf.quants.dequantize(data, KINDS(number)).astype(np.float32)
    blocks = RNG.integers(0, 256, (shape[0] * shape[1] // kind.elements, kind.block_bytes), np.uint8)
    for offset in SCALES.get(kind.name, (0, 2) if kind.name in ("Q4_1", "Q5_1") else (0,)):
        blocks[:, offset : offset + 2] = (RNG.uniform(-1, 1, (len(blocks), 1)) * 4e-4).astype("<f2").view(np.uint8)
    data = blocks.reshape(shape[0], -1)
    return data, gguf.quants.dequantize(data, KINDS(number)).reshape(shape)


@pytest.mark.slow
def test_matrices_of_all_types_are_the_numbers_that_they_stand_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embeddings are of Q6_K, as in the files that llama.cpp's tool writes."""
    for name, value in (("SIZE", 256), ("INNER", 256), ("WIDTH", 64), ("WORDS", 40)):
        monkeypatch.setattr(models, name, value)
    monkeypatch.setitem(models.MODELS, "llama", models.Model(neighbours=True, width=64, rotated=64))
    shapes = models._shapes(models.MODELS["llama"], 3, tied=False)
    matrices = [name for name, shape in shapes.items() if len(shape) > 1 and name != "token_embd"]
    kinds = {name: OTHERS[n % len(OTHERS)] for n, name in enumerate(matrices)} | {"token_embd": 14}
    assert set(kinds.values()) == set(OTHERS)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_block_count(3)
    models._write_fields(writer, models.MODELS["llama"])
    values = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            data = values[name] = np.ones(shape, np.float32)
            writer.add_tensor(f"{name}.weight", data)
        else:
            data, values[name] = matrix(kinds[name], shape)
            writer.add_tensor(f"{name}.weight", data, raw_dtype=KINDS(kinds[name]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tokens = RNG.integers(0, 40, 6).tolist()
    wanted = models.logits(values, tokens)
    with nnefc.compile(tmp_path / "m.gguf", strict=True, context=8).load(threads=1) as model:
        (found,) = np.asarray(model(np.array([tokens])))
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=3e-2 * np.abs(wanted).max())
