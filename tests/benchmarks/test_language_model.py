"""Models with random weights for the benchmark of language models: every format is read, of the size it says, and
computed as the reference in float64 does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from models.llama_gguf import SIZES, LlamaSizes, write_llama
from models.llama_reference import reference_logits

import nnefc


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q4_K_M", "Q8_0"])
@pytest.mark.slow
def test_random_models_run(kind: str, tmp_path: Path) -> None:
    sizes = LlamaSizes(layers=2, size=256, heads=4, key_heads=2, inner=512, words=97)
    write_llama(tmp_path / "m.gguf", sizes, kind)
    reader = GGUFReader(tmp_path / "m.gguf")
    assert sum(int(t.n_elements) for t in reader.tensors if len(t.shape) > 1) == sizes.parameters
    with nnefc.compile(tmp_path / "m.gguf", context=32).load(threads=1) as model:
        logits = np.asarray(model(np.array([[1, 2, 3]])))
    assert logits.shape == (1, 97)
    wanted = reference_logits(tmp_path / "m.gguf", [1, 2, 3])
    assert 0.01 < wanted.std() < 100
    assert np.abs(logits[0] - wanted).max() < 1e-3 * np.ptp(wanted)


def test_sizes_are_those_of_the_models_that_are_named() -> None:
    assert round(SIZES["SmolLM2-135M"].parameters / 1e6) == 134
    assert round(SIZES["Qwen2.5-0.5B"].parameters / 1e9, 2) == 0.49
    assert round(SIZES["Llama-3.2-1B"].parameters / 1e9, 2) == 1.24
