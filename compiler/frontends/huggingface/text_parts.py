"""Takes what generates text of a folder that has more: of models that read images and sounds, the text part, and of
those with layers that predict tokens ahead, the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nnefc.frontends.decoder import StoredTensor
from nnefc.frontends.huggingface.config import MODEL_TYPES

__all__ = ["text_configuration", "text_tensors", "without_predictors"]

_LAYER = re.compile(r"(?:model\.)?layers\.(\d{1,4})\.")
_PREFIXES = ("model.language_model.", "language_model.model.", "model.text_model.")
"""Prefixes of the tensors of a multimodal model's text part, in place of `model.`."""


def text_configuration(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the configuration of a model's text part; of other models, their own."""
    part = config.get("text_config")
    if not isinstance(part, Mapping) or not _has_text_part(config):
        return config
    shared = {key: config[key] for key in ("quantization_config", "tie_word_embeddings") if key in config}
    return {**shared, **part}


def text_tensors(config: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Returns the tensors of a model's text part, under the names that they have where there is no other."""
    if not _has_text_part(config):
        return dict(tensors)
    found = {_text_label(label): tensor for label, tensor in tensors.items()}
    return {label: tensor for label, tensor in found.items() if label is not None}


def _has_text_part(config: Mapping[str, Any]) -> bool:
    """Returns whether a model is none of text alone, and its text part is one that is known."""
    part = config.get("text_config")
    kind = part.get("model_type") if isinstance(part, Mapping) else None
    return config.get("model_type") not in MODEL_TYPES and isinstance(kind, str) and kind in MODEL_TYPES


def _text_label(label: str) -> str | None:
    """Returns what a tensor is called in a model of text alone; None for one of another part."""
    for prefix in _PREFIXES:
        if label.startswith(prefix):
            return f"model.{label.removeprefix(prefix)}"
    own = label.removeprefix("language_model.")
    return own if own.startswith("lm_head.") else None


def without_predictors(tensors: Mapping[str, StoredTensor], layers: int) -> dict[str, StoredTensor]:
    """Returns the tensors without those of layers behind the last one, which predict further tokens."""
    found = {label: _LAYER.match(label) for label in tensors}
    return {label: tensors[label] for label, layer in found.items() if layer is None or int(layer[1]) < layers}
