"""Folders of random encoders, each compared with `transformers`: texts of several lengths in one run, and one alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_encoders import CASES, CLASSIFIERS, LABELS, LENGTHS, SEEN, SIZE, TOKENS, outputs, pooled, saved

import nnefc

RNG = np.random.default_rng(8)


def write_modules(folder: Path, pooling: str, is_normalized: bool, dense: int = 0) -> np.ndarray | None:
    """The files of sentence-transformers; returns the weights of the layer behind the pooling."""
    from safetensors.numpy import save_file

    own = {"last": "lasttoken", "mean_sqrt_len": "mean_sqrt_len_tokens"}.get(pooling, pooling)
    own = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}.get(own, own)
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling")] + [("Dense", "2_Dense")] * bool(dense)
    kinds += [("Normalize", "3_Normalize")] * is_normalized
    modules = [
        {"idx": n, "path": path, "type": f"sentence_transformers.models.{kind}"} for n, (kind, path) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    config = {"word_embedding_dimension": SIZE, f"pooling_mode_{own}": True, "pooling_mode_other": False}
    (folder / "1_Pooling/config.json").write_text(json.dumps(config))
    if not dense:
        return None
    weight = RNG.standard_normal((dense, SIZE)).astype(np.float32)
    (folder / "2_Dense").mkdir()
    config = {
        "in_features": SIZE,
        "out_features": dense,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    (folder / "2_Dense/config.json").write_text(json.dumps(config))
    save_file({"linear.weight": weight}, folder / "2_Dense/model.safetensors")
    return weight


def compare(folder: Path, wanted: np.ndarray, *segments: np.ndarray, **options: Any) -> None:
    """Compares the results of all texts in one run, of one alone, and of fewer."""
    bound = 1e-4 * np.abs(wanted).max()
    with nnefc.compile(folder, strict=True, context=32, **options).load(threads=1) as model:
        for rows in ([0, 1, 2], [2], [1, 2]):
            width = max(LENGTHS[n] for n in rows)
            found = np.asarray(model(*(np.ascontiguousarray(x[rows, :width]) for x in (TOKENS, *segments))))
            assert np.abs(found - wanted[rows]).max() < bound, rows


FAST = ("bert-cls", "gemma")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in FAST else [pytest.mark.slow]) for n in CASES])
def test_embeddings_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    kind, options, pooling, is_normalized = CASES[name]
    model = saved(kind, options, tmp_path)
    weight = None
    if name != "bert":  # a folder that says nothing has means
        weight = write_modules(tmp_path, pooling, is_normalized, 24 if name == "gemma" else 0)
    base = model.bert if kind == "BertForMaskedLM" else model
    wanted = pooled(np.asarray(outputs(base).last_hidden_state, np.float64), pooling)
    wanted = wanted if weight is None else wanted @ weight.T
    wanted = wanted / np.linalg.norm(wanted, axis=1, keepdims=True) if is_normalized else wanted
    compare(tmp_path, wanted)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n == "bert" else [pytest.mark.slow]) for n in CLASSIFIERS]
)
def test_scores_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    kind, options = CLASSIFIERS[name]
    model = saved(kind, {**options, **LABELS}, tmp_path)
    segments = np.where(np.arange(13) > 2, 1, 0) * SEEN
    more = {"token_type_ids": segments} if name == "bert" else {}
    wanted = np.asarray(outputs(model, **more).logits, np.float64)
    compare(tmp_path, wanted, *([segments] if name == "bert" else []))
