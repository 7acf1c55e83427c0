"""Encoders in files of GGUF, compared with NumPy: texts of several lengths in one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoders import OPTIONS, encoded, write_bert
from gguf import PoolingType

import nnefc
from nnefc.chat import ChatError, Encoder

TEXTS = ["a bad cab", "h", "head", "dead beef a a a a a"]


@pytest.mark.parametrize(
    ("pooling", "options"),
    [
        (PoolingType.MEAN, OPTIONS),
        pytest.param(PoolingType.CLS, {"strict": True}, marks=pytest.mark.slow),
        pytest.param(PoolingType.LAST, OPTIONS, marks=pytest.mark.slow),
    ],
)
def test_embeddings(pooling: PoolingType, options: dict[str, Any], tmp_path: Path) -> None:
    values = write_bert(tmp_path / "m.gguf", pooling)
    with nnefc.compile(tmp_path / "m.gguf", **options).load(threads=1) as model:
        encoder = Encoder(model)
        found = encoder.embeddings(TEXTS)
        rows = [model.tokenize(text) for text in TEXTS]
        wanted = np.array([encoded(values, row, pooling) for row in rows])
        assert (encoder.size, encoder.context, encoder.has_scores) == (32, 24, False)
        assert encoder.rows == options.get("sequences", encoder.rows) > 1
        np.testing.assert_allclose(found, wanted, atol=1e-5)
        with pytest.raises(ChatError, match="27 tokens, and the model reads 24"):
            encoder.embeddings(["a " * 25])
        with pytest.raises(ChatError, match="scores no pairs"):
            encoder.scores("a", ["b"])


@pytest.mark.filterwarnings("ignore:.*longer than")
def test_scores_of_pairs(tmp_path: Path) -> None:
    """Of two texts with the tokens around and between them, and with their segments; `all_logits` changes nothing."""
    values = write_bert(tmp_path / "m.gguf", PoolingType.RANK)
    with nnefc.compile(tmp_path / "m.gguf", all_logits=True, **OPTIONS).load(threads=1) as model:
        encoder = Encoder(model)
        found = encoder.scores("a b", TEXTS)
        cls, sep, query = 2, 3, model.tokenize("a b", begin_and_end=False)
        wanted = []
        for text in TEXTS:
            second = model.tokenize(text, begin_and_end=False)
            wanted.append(encoded(values, [cls, *query, sep, *second, sep], PoolingType.RANK, len(query) + 2))
        np.testing.assert_allclose(found, wanted, atol=1e-5)
        with pytest.raises(ChatError, match="makes no embeddings"):
            encoder.embeddings(["a"])
    with pytest.raises(nnefc.CompileError, match="leave out candidates"):
        nnefc.compile(tmp_path / "m.gguf", candidates=4)
    with pytest.raises(nnefc.CompileError, match="embeddings of 24 positions: the context is 25"):
        nnefc.compile(tmp_path / "m.gguf", context=25)
