"""Data-dependent sizes, and a language model with states and packed weights, on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import test_llm
from real_device import on_device
from test_cuda_data_dependent import CASES

import nnefc


@pytest.mark.parametrize("name", CASES)
def test_networks_with_counts_give_what_onnxruntime_gives(name: str, tmp_path: Path) -> None:
    with on_device():
        CASES[name](tmp_path)


def test_a_language_model_agrees_with_its_definition(tmp_path: Path) -> None:
    values = test_llm.write_model(tmp_path / "m.gguf", tied=False)
    test_llm.convert(tmp_path / "m.gguf", tmp_path / "m", 24)
    with on_device():
        test_llm.test_a_model_agrees_with_its_definition((values, nnefc.compile(tmp_path / "m")))
