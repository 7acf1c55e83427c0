"""Caches of keys and values in 16 and in 8 bits: attention to the rounded numbers, and what a session holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nnefc

HEADS, KEY_HEADS, CONTEXT = 4, 2, 200
DOCUMENT = """version 1.0;
extension tract_registry tract_core;
extension tract_registry nnefc;
extension tract_symbol S;
extension tract_assert S >= 1;
extension tract_assert S <= {context};

graph g(tokens, q, k, v) -> (y, z) {{
    tokens = tract_core_external(shape = [1, S], datum_type = 'i64');
    q = tract_core_external(shape = [1, {heads}, S, {width}], datum_type = 'f32');
    k = tract_core_external(shape = [1, {keys}, S, {width}], datum_type = 'f32');
    v = tract_core_external(shape = [1, {keys}, S, {width}], datum_type = 'f32');
    (before, lengths) = nnefc_positions(tokens, context = {context});
    y = nnefc_cached_attention(q, k, v, before, storage = 'f16');
    z = nnefc_cached_attention(q, k, v, before, storage = 'q8', window = 9);
}}
"""


def rounded(x: np.ndarray, storage: str) -> np.ndarray:
    """The numbers that a cache holds."""
    if storage == "f16":
        return x.astype(np.float16).astype(np.float64)
    scales = np.maximum(np.abs(x).max(-1, keepdims=True), np.float32(1e-30)) / np.float32(127)
    return np.rint(x / scales) * scales.astype(np.float64)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, window: int) -> np.ndarray:
    """Of the last queries, `[H, L, E]`, to all keys, `[G, S, E]`."""
    k, v = (np.repeat(x, HEADS // KEY_HEADS, 0) for x in (k, v))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
    query, key = np.arange(k.shape[1] - q.shape[1], k.shape[1])[:, None], np.arange(k.shape[1])
    scores = np.where((key <= query) & (key > query - window), scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("width", [pytest.param(16, marks=pytest.mark.slow), 6])
def test_attention_reads_what_a_cache_holds(width: int, tmp_path: Path) -> None:
    """A prompt of more than a block of keys, some tokens, and single ones; rows of zeros and of large numbers."""
    text = DOCUMENT.format(context=CONTEXT, heads=HEADS, keys=KEY_HEADS, width=width)
    (tmp_path / "graph.nnef").write_text(text)
    rng = np.random.default_rng(2)
    q, k, v = (
        rng.standard_normal((count, CONTEXT, width)).astype(np.float32) for count in (HEADS, KEY_HEADS, KEY_HEADS)
    )
    v[:, 3], v[:, 5] = 0, 1000 * v[:, 5]
    artifact = nnefc.compile(tmp_path, dump=tmp_path / "dump", dump_after=["join attention"])
    (joined,) = (tmp_path / "dump").glob("*join_attention.py")
    kernels = [line for line in joined.read_text().splitlines() if "def attention" in line]
    assert ["float16" in line or "int8" in line for line in kernels] == [True, True]  # caches are read as they are
    with artifact.load(threads=1) as model:
        kinds = sorted(state.dtype for state in model.states)
        assert kinds == ["float16", "float16", "float32", "float32", "int64", "int8", "int8"]
        for start, end in ((0, 150), (150, 163), (163, 164), (164, 165)):
            own = [x[None, :, start:end] for x in (q, k, v)]
            results = model(np.zeros((1, end - start), np.int64), *own)
            for found, storage, window in zip(results, ("f16", "q8"), (CONTEXT, 9), strict=True):
                kept = [rounded(x[:, :end], storage) for x in (k, v)]
                wanted = attention(q[:, start:end].astype(np.float64), *kept, window)
                bound = 1e-5 * np.abs(kept[1]).max()
                np.testing.assert_allclose(
                    np.asarray(found)[0], wanted, rtol=0, atol=bound, err_msg=f"{storage} {start}"
                )


def test_an_unknown_storage_is_refused(tmp_path: Path) -> None:
    text = DOCUMENT.format(context=CONTEXT, heads=HEADS, keys=KEY_HEADS, width=16).replace("'q8'", "'q9'")
    (tmp_path / "graph.nnef").write_text(text)
    with pytest.raises(nnefc.CompileError, match="'storage' is 'q9', not one of f32, f16, q8"):
        nnefc.compile(tmp_path)
