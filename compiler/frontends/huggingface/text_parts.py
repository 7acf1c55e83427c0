"""Takes what generates text of a folder that has more: of models that read images and sounds, the text part, and of
those with layers that predict tokens ahead, the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nnefc.frontends.decoder import StoredTensor

__all__ = ["text_configuration", "text_tensors", "without_predictors"]

_WHOLE = ("gemma3n",)
"""What `model_type` calls models with a text part."""
_LAYER = re.compile(r"(?:model\.)?layers\.(\d{1,4})\.")
_PREFIX, _OTHERS = "model.language_model.", ("model.vision_tower.", "model.audio_tower.", "model.embed_")


def text_configuration(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the configuration of a model's text part; of other models, their own."""
    part = config.get("text_config")
    if config.get("model_type") not in _WHOLE or not isinstance(part, Mapping):
        return config
    shared = {key: config[key] for key in ("quantization_config", "tie_word_embeddings") if key in config}
    return {**shared, **part}


def text_tensors(config: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Returns the tensors of a model's text part, under the names that they have where there is no other."""
    if config.get("model_type") not in _WHOLE:
        return dict(tensors)
    return {
        f"model.{label.removeprefix(_PREFIX)}" if label.startswith(_PREFIX) else label: tensor
        for label, tensor in tensors.items()
        if not label.startswith(_OTHERS)
    }


def without_predictors(tensors: Mapping[str, StoredTensor], layers: int) -> dict[str, StoredTensor]:
    """Returns the tensors without those of layers behind the last one, which predict further tokens."""
    found = {label: _LAYER.match(label) for label in tensors}
    return {label: tensors[label] for label, layer in found.items() if layer is None or int(layer[1]) < layers}
