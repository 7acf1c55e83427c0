"""Random loops of data-dependent sizes, each compiled once and run at ten sizes compared with onnxruntime.

What a kernel would read or write outside its buffers ends the process.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from guarded_memory import CAN_GUARD, guarded, run_apart
from random_data_dependent_loops import random_feeds, random_loop

import nnefc


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (17, *range(100, 160)))])
def test_random_loops(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(random_loop(seed).SerializeToString())
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with guarded() if CAN_GUARD else nullcontext():
        artifact = nnefc.compile(path)
    feeds = random_feeds(seed, 10)
    for made, feed in zip(run_apart(artifact, feeds), feeds, strict=True):
        assert isinstance(made, dict), made
        for found, wanted in zip(made.values(), session.run(None, feed), strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)
