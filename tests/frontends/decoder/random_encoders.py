"""Random encoders of `transformers`, and what they compute of texts of several lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

__all__ = ["CASES", "CLASSIFIERS", "LABELS", "LENGTHS", "SEEN", "SIZE", "TOKENS", "outputs", "pooled", "saved"]

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

WORDS, SIZE = 96, 64
COMMON = {
    "vocab_size": WORDS, "hidden_size": SIZE, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 40, "pad_token_id": 0, "attn_implementation": "eager",
}  # fmt: skip
GROUPED = {"num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 3}
GEMMA = {
    **GROUPED, "sliding_window": 4, "use_bidirectional_attention": True, "query_pre_attn_scalar": 24,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}  # fmt: skip
MODERN = {"num_hidden_layers": 4, "local_attention": 8}
LABELS = {"num_labels": 3}

CASES: dict[str, tuple[str, dict[str, Any], str, bool]] = {
    "bert": ("BertModel", {}, "mean", False),
    "bert-cls": ("BertModel", {"hidden_act": "gelu_new"}, "cls", True),
    "bert-max": ("BertForMaskedLM", {"type_vocab_size": 1}, "max", False),
    "xlm-roberta": ("XLMRobertaModel", {"pad_token_id": 1}, "mean_sqrt_len", False),
    "nomic_bert": ("NomicBertModel", {}, "mean", True),
    "modernbert": ("ModernBertModel", MODERN, "mean", False),
    "gemma": ("Gemma3TextModel", GEMMA, "mean", True),
    "qwen3": ("Qwen3Model", GROUPED, "last", True),
}
"""The class, its configuration, the pooling, and whether results are normalized."""

CLASSIFIERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertForSequenceClassification", {}),
    "xlm-roberta": ("XLMRobertaForSequenceClassification", {"pad_token_id": 1, "type_vocab_size": 1}),
    "modernbert": ("ModernBertForSequenceClassification", {**MODERN, "classifier_pooling": "mean"}),
    "qwen3": ("Qwen3ForSequenceClassification", GROUPED),
}
LENGTHS = (13, 1, 7)
RNG = np.random.default_rng(7)
TOKENS = np.where(np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None], RNG.integers(3, WORDS, (3, 13)), -1)
SEEN = TOKENS >= 0


def saved(kind: str, options: dict[str, Any], folder: Path) -> Any:
    """A model with random weights, also of norms and biases, as a folder; as it is read again."""
    torch.manual_seed(3)
    model_class = getattr(transformers, kind)
    model = model_class(model_class.config_class(**COMMON | options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.ndim > 1 else 0.3))
    model.save_pretrained(folder)
    return model_class.from_pretrained(folder, attn_implementation="eager").eval()


def outputs(model: Any, **more: np.ndarray) -> Any:
    """What a model computes of all texts in one run."""
    padding, more = model.config.pad_token_id, {name: torch.tensor(value) for name, value in more.items()}
    tokens, mask = torch.tensor(np.where(SEEN, TOKENS, padding)), torch.tensor(SEEN.astype(np.int64))
    with torch.no_grad():
        return model(input_ids=tokens, attention_mask=mask, **more)


def pooled(rows: np.ndarray, pooling: str) -> np.ndarray:
    """One result of the rows of each text."""
    count = np.array(LENGTHS)[:, None]
    match pooling:
        case "cls":
            return rows[:, 0]
        case "last":
            return rows[np.arange(len(rows)), count[:, 0] - 1]
        case "max":
            return np.where(SEEN[..., None], rows, -np.inf).max(1)
    total = (rows * SEEN[..., None]).sum(1)
    return total / (count if pooling == "mean" else np.sqrt(count))
