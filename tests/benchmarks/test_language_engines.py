"""What is made for the comparison of language models' engines has the weights of the file of GGUF, and prompts are read
as they were asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from gguf import GGUFReader
from gguf.quants import dequantize
from models.decoders import feeds
from models.genai_folder import write_genai_folder
from models.llama_gguf import LlamaSizes, requantize, write_llama
from models.llama_reference import reference_logits
from token_worker import likeliest

SIZES = LlamaSizes(layers=2, size=128, heads=4, key_heads=2, inner=192, words=97)


def test_a_folder_for_onnxruntime_genai_computes_what_the_file_says(tmp_path: Path) -> None:
    write_llama(tmp_path / "m.gguf", SIZES, "Q4_0")
    write_genai_folder(tmp_path / "m.gguf", tmp_path / "folder", 32)
    config = json.loads((tmp_path / "folder" / "genai_config.json").read_text())["model"]["decoder"]
    session = onnxruntime.InferenceSession(tmp_path / "folder" / config["filename"])
    layers = range(config["num_hidden_layers"])
    given = [config["inputs"][f"past_{part}_names"] % layer for layer in layers for part in ("key", "value")]
    made = [config["outputs"][f"present_{part}_names"] % layer for layer in layers for part in ("key", "value")]
    assert {value.name for value in session.get_inputs()} == {"input_ids", "attention_mask", *given}
    assert {value.name for value in session.get_outputs()} == {"logits", *made}

    tokens = [1, 2, 3, 50, 96]
    caches = {name: np.zeros((1, SIZES.key_heads, 0, config["head_size"]), np.float32) for name in made}
    names = ["logits", *made]
    for start, end in ((0, 4), (4, 5)):  # a prompt, and a token after it
        results = session.run(names, feeds(np.array([tokens[start:end]]), end, caches))
        logits, caches = results[0], dict(zip(made, results[1:], strict=True))
        wanted = reference_logits(tmp_path / "m.gguf", tokens[:end])
        assert logits.shape == (1, 1, SIZES.words)
        assert np.abs(logits[0, 0] - wanted).max() < 0.01 * np.ptp(wanted)


def test_a_folder_has_weights_in_q4_0_alone(tmp_path: Path) -> None:
    write_llama(tmp_path / "m.gguf", SIZES, "Q8_0")
    with pytest.raises(ValueError, match="attn_q: Q8_0, not Q4_0"):
        write_genai_folder(tmp_path / "m.gguf", tmp_path / "folder", 32)


def test_requantized_files_keep_names_metadata_and_values(tmp_path: Path) -> None:
    write_llama(tmp_path / "a.gguf", SIZES, "Q8_0")
    requantize(tmp_path / "a.gguf", tmp_path / "b.gguf", "Q4_0")
    before, after = GGUFReader(tmp_path / "a.gguf"), GGUFReader(tmp_path / "b.gguf")
    same = before.fields.keys() - {"general.file_type"}
    assert after.fields.keys() == before.fields.keys()
    assert [name for name in same if before.fields[name].contents() != after.fields[name].contents()] == []
    for old, new in zip(before.tensors, after.tensors, strict=True):
        assert (old.name, *old.shape) == (new.name, *new.shape)
        assert new.tensor_type.name == ("F32" if len(old.shape) == 1 else "Q4_0")
        values = dequantize(old.data, old.tensor_type)
        step = np.abs(values).max() / 8
        assert np.abs(values - dequantize(new.data, new.tensor_type)).max() <= step * 1.01


class _Counting:
    """Logits are largest at the number of tokens read so far."""

    version = "counting"

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def read(self, tokens: Sequence[int], start: int) -> np.ndarray:
        self.calls.append((start, len(tokens)))
        return np.eye(2048)[start + len(tokens)]


def test_tokens_follow_a_prompt_in_parts() -> None:
    model = _Counting()
    written = likeliest(model, [7] * 1000, 3, 0)
    assert written.tokens == [1000, 1001, 1002]
    assert len(written.seconds) == 3
    assert model.calls == [(0, 512), (512, 488), (1000, 1), (1001, 1)]


def test_known_tokens_are_not_read_again() -> None:
    model = _Counting()
    assert likeliest(model, [7] * 1000, 2, 999).tokens == [1000, 1001]
    assert model.calls == [(999, 1), (1000, 1)]
