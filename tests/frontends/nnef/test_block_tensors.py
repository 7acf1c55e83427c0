"""Constants that stay in blocks: products and gathers read them as they are stored."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnefc

RNG = np.random.default_rng(7)
GGML = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 8}
HAS_AVX512 = "avx512f" in Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else False
TARGETS = [
    "llvm",
    "x86-64-v3",
    pytest.param("x86-64-v4", marks=pytest.mark.skipif(not HAS_AVX512, reason="needs: a processor with AVX-512")),
]


def fp16_values(count: int, scale: float) -> np.ndarray:
    return (RNG.standard_normal((count, 1)) * scale).astype("<f2")


def slow_unless(kind: str, *kinds: str) -> Any:
    """Marks a kind of blocks as slow that is none of `kinds`."""
    return pytest.param(kind, marks=[] if kind in kinds else [pytest.mark.slow])


def blocks(kind: str, rows: int, depth: int) -> tuple[bytes, np.ndarray]:
    """Random blocks of ggml's types, as they are defined, and the matrix `[rows, depth]` that they are."""
    count = rows * depth // 32
    scales = fp16_values(count, 0.1)
    wide = scales.astype(np.float32)
    if kind == "Q8_0":
        elements = RNG.integers(-128, 128, (count, 32)).astype(np.int8)
        return np.hstack([scales.view(np.uint8), elements.view(np.uint8)]).tobytes(), (elements * wide).reshape(
            rows, depth
        )
    elements = RNG.integers(0, 16, (count, 32)).astype(np.uint8)
    packed = elements[:, :16] | elements[:, 16:] << 4
    if kind == "Q4_0":
        values = (elements.astype(np.float32) - 8) * wide
        return np.hstack([scales.view(np.uint8), packed]).tobytes(), values.reshape(rows, depth)
    minimum = fp16_values(count, 0.5)
    values = elements * wide + minimum.astype(np.float32)
    return np.hstack([scales.view(np.uint8), minimum.view(np.uint8), packed]).tobytes(), values.reshape(rows, depth)


def written(folder: Path, kind: str, rows: int, depth: int, body: str, inputs: str) -> np.ndarray:
    """A model of one such matrix `w`; `body` makes `y`."""
    data, values = blocks(kind, rows, depth)
    code = 0x4747 << 16 | GGML[kind]
    header = struct.pack(
        "<2sBBII8III19I", b"\x4e\xef", 1, 0, len(data), 2, rows, depth, *[0] * 6, 0xFFFFFFFF, code, *[0] * 19
    )
    folder.mkdir(exist_ok=True)
    (folder / "w.dat").write_bytes(header + data)
    variable = f"w = variable<scalar>(shape = [{rows}, {depth}], label = 'w');"
    (folder / "graph.nnef").write_text(f"version 1.0;\ngraph g(x) -> (y) {{\n{inputs}\n{variable}\n{body}\n}}")
    return values


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("kind", "strict"),
    [
        pytest.param(kind, strict, marks=[] if (kind == "Q4_1") == strict else [pytest.mark.slow])
        for kind in GGML
        for strict in (True, False)
    ],
)
@pytest.mark.sample(3)
def test_products_read_blocks_as_they_are(kind: str, target: str, strict: bool, tmp_path: Path) -> None:
    """Rows are rounded to 16 bits where the processor multiplies bytes, unless the user wants direct sums."""
    error = 1e-5 if strict else 1e-4
    inputs = "x = external<scalar>(shape = [3, 96]);"
    values = written(tmp_path / "m", kind, 50, 96, "y = matmul(x, w, transposeB = true);", inputs)
    artifact = nnefc.compile(tmp_path / "m", target=target, strict=strict)
    x = RNG.standard_normal((3, 96), dtype=np.float32)
    wanted = x.astype(np.float64) @ values.T
    np.testing.assert_allclose(artifact.run({"x": x})["y"], wanted, rtol=error, atol=error * abs(wanted).max())
    assert artifact.description.constant_bytes < 0.5 * values.nbytes  # 50 columns fill up 64


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] if number == 1 else []) for number, kind in enumerate(GGML)]
)
def test_gathers_read_blocks_that_a_product_reads_too(kind: str, tmp_path: Path) -> None:
    """As a language model's embeddings, which are its last product's matrix: there is one copy."""
    body = "e = gather(w, x, axis = 0); y = matmul(e, w, transposeB = true);"
    inputs = "x = external<integer>(shape = [7]);"
    values = written(tmp_path / "m", kind, 64, 96, body, inputs)
    artifact = nnefc.compile(tmp_path / "m")
    x = np.array([0, 63, 5, -1, 17, 31, 32], np.int32)
    wanted = values[x].astype(np.float64) @ values.T
    np.testing.assert_allclose(artifact.run({"x": x})["y"], wanted, rtol=1e-5, atol=1e-5 * abs(wanted).max())
    assert artifact.description.constant_bytes < 0.4 * values.nbytes


@pytest.mark.parametrize(
    "kind", [kind if number == 1 else pytest.param(kind, marks=pytest.mark.slow) for number, kind in enumerate(GGML)]
)
def test_what_else_reads_blocks_has_them_wide(kind: str, tmp_path: Path) -> None:
    inputs = "x = external<scalar>(shape = [4, 64]);"
    values = written(tmp_path / "m", kind, 4, 64, "y = add(x, w);", inputs)
    x = RNG.standard_normal((4, 64), dtype=np.float32)
    np.testing.assert_allclose(nnefc.compile(tmp_path / "m").run({"x": x})["y"], x + values, rtol=1e-6, atol=1e-6)
