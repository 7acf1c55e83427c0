"""Reads the hyperparameters of a decoder from a folder's config.json, and the names of all architectures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnefc.frontends.decoder import Hyperparameters, architecture_named
from nnefc.frontends.decoder.rotary import RotaryScaling
from nnefc.frontends.decoder.weights import shown
from nnefc.support.diagnostics import CompileError

__all__ = ["MODEL_TYPES", "Keys", "architecture_of", "hyperparameters_of"]

MODEL_TYPES = {
    "llama": "llama",
    "mistral": "mistral",
    "ministral": "mistral",
    "smollm3": "smollm3",
    "granite": "granite",
    "olmo2": "olmo2",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "phi": "phi2",
    "phi3": "phi3",
    "glm4": "glm4",
    "cohere2": "cohere2",
    "exaone4": "exaone4",
    "bert": "bert",
    "roberta": "bert",
    "xlm-roberta": "bert",
    "camembert": "bert",
    "nomic_bert": "nomic-bert",
    "modernbert": "modern-bert",
}
"""What `model_type` calls the architectures of the builder."""

_SILU = ("silu", "swish")
_GELU = ("gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu")
_FULL, _SLIDING = "full_attention", "sliding_attention"


def architecture_of(config: Mapping[str, Any], path: Path) -> str:
    """Returns the name of the architecture.

    Raises:
        CompileError: it is not known.
    """
    kind = config.get("model_type")
    if kind not in MODEL_TYPES:
        raise CompileError(
            f"'{path}': the model_type '{shown(kind)}' is not supported", hint=f"supported are {', '.join(MODEL_TYPES)}"
        )
    if kind == "gemma3_text" and config.get("use_bidirectional_attention"):
        return "gemma-embedding"
    return MODEL_TYPES[kind]


class Keys:
    """The keys of a configuration, each of a type that is checked."""

    def __init__(self, config: Mapping[str, Any], path: Path) -> None:
        self._config, self._path = config, path

    def refuse(self, key: str, reason: str) -> CompileError:
        """Returns an error that names a key."""
        return CompileError(f"'{self._path}': the key '{key}' {reason}")

    def get(self, *keys: str) -> Any:
        """Returns the value of the first key that has one."""
        return next((found for key in keys if (found := self._config.get(key)) is not None), None)

    def integer(self, key: str, default: int | None = None) -> int:
        """Returns an integer from 0 on."""
        found = self.get(key)
        if found is None and default is not None:
            return default
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 1 << 40:
            raise self.refuse(
                key, "is missing" if found is None else f"is {shown(repr(found))}, not a number of something"
            )
        return found

    def real(self, key: str, default: float = 0.0) -> float:
        """Returns a number."""
        found = self.get(key)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < 1e30:
            raise self.refuse(key, f"is {shown(repr(found))}, not a number")
        return float(found)

    def listed(self, key: str, count: int) -> list[Any] | None:
        """Returns a list with one element for each layer; None without it."""
        found = self.get(key)
        if found is not None and (not isinstance(found, list) or len(found) != count):
            raise self.refuse(key, f"is no list of {count} elements, one for each layer")
        return found

    def inside(self, key: str) -> Keys | None:
        """Returns the keys of an object; None without it."""
        found = self.get(key)
        if found is not None and not isinstance(found, Mapping):
            raise self.refuse(key, "is no object")
        return None if found is None else Keys(found, self._path)


def hyperparameters_of(config: Mapping[str, Any], architecture: str, path: Path) -> Hyperparameters:
    """Returns what a configuration says of its decoder.

    Raises:
        CompileError: a key is missing, or is not as it must be.
    """
    keys = Keys(config, path)
    _check_activation(keys, architecture)
    size, heads = keys.integer("hidden_size"), keys.integer("num_attention_heads")
    if not heads:
        raise keys.refuse("num_attention_heads", "is 0")
    layers, head_size = keys.integer("num_hidden_layers"), keys.integer("head_dim", 0) or size // heads
    if layers > 1000:
        raise keys.refuse("num_hidden_layers", f"is {layers:,}, more than 1,000")
    whole, local = _rotary(keys)
    partial = (whole.real("partial_rotary_factor") if whole else 0.0) or keys.real("partial_rotary_factor") or 1.0
    rotary = keys.listed("no_rope_layers", layers)
    return Hyperparameters(
        size=size,
        layers=layers,
        heads=heads,
        key_heads=keys.integer("num_key_value_heads", heads),
        head_size=head_size,
        vocabulary=keys.integer("vocab_size"),
        rotated=int(head_size * partial),
        epsilon=_epsilon(keys),
        context=keys.integer("max_position_embeddings", 0),
        base=(whole.real("rope_theta") if whole else 0.0) or keys.real("rope_theta", 10000.0),
        local_base=(local.real("rope_theta") if local else 0.0) or keys.real("rope_local_base_freq") or None,
        scaling=_scaling(keys, whole),
        window=_window(keys),
        window_pattern=_window_pattern(keys, layers),
        rotary_pattern=None if rotary is None else tuple(map(bool, rotary)),
        attention_scale=keys.real("attention_multiplier") or _root(keys.real("query_pre_attn_scalar")),
        attention_cap=keys.real("attn_logit_softcapping"),
        logit_scale=_inverse(keys.real("logits_scaling")) or keys.real("logit_scale"),
        logit_cap=keys.real("final_logit_softcapping"),
        embedding_scale=keys.real("embedding_multiplier"),
        residual_scale=keys.real("residual_multiplier"),
        experts_used=keys.integer("num_experts_per_tok", 0) if architecture.endswith("moe") else 0,
        expert_layers=_expert_layers(keys, layers),
        normalized_shares=bool(config.get("norm_topk_prob", False)),
        has_shared_expert=architecture == "qwen2moe",
    )


def _check_activation(keys: Keys, architecture: str) -> None:
    own = architecture_named(architecture).activation
    known = _SILU if own in _SILU else _GELU
    found = keys.get("hidden_activation", "hidden_act")
    if found is not None and found not in known:
        raise keys.refuse("hidden_act", f"is '{shown(found)}', which is not supported for this architecture")


def _epsilon(keys: Keys) -> float:
    for key in ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"):
        if keys.get(key) is not None:
            return keys.real(key)
    raise keys.refuse("rms_norm_eps", "is missing")


def _root(value: float) -> float:
    return value**-0.5 if value > 0 else 0.0


def _inverse(value: float) -> float:
    return 1 / value if value else 0.0


def _rotary(keys: Keys) -> tuple[Keys | None, Keys | None]:
    """Returns the parameters of positions in all layers, and in layers with a window where these have others."""
    found = keys.inside("rope_parameters")
    if found is None:
        return keys.inside("rope_scaling"), None
    whole = found.inside(_FULL)
    return (found, None) if whole is None else (whole, found.inside(_SLIDING))


def _scaling(keys: Keys, given: Keys | None) -> RotaryScaling:
    kind = "none" if given is None else given.get("rope_type", "type") or "none"
    if given is None or kind in ("default", "none", "mrope"):
        return RotaryScaling()
    context = keys.integer("max_position_embeddings", 0)
    original = given.integer("original_max_position_embeddings", 0) or keys.integer(
        "original_max_position_embeddings", 0
    )
    original = original or context
    factor = given.real("factor") or (context / original if original else 1.0)
    names = ("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "low_freq_factor", "high_freq_factor")
    options = {name: given.real(name) for name in names if given.get(name) is not None}
    if given.get("truncate") is not None:
        options["truncate"] = float(bool(given.get("truncate")))
    return RotaryScaling(
        kind={"su": "longrope"}.get(str(kind), str(kind)),
        factor=factor,
        original_context=original,
        attention_factor=given.real("attention_factor") or None,
        options=options,
        short_factors=_numbers(given, "short_factor"),
        long_factors=_numbers(given, "long_factor"),
    )


def _numbers(keys: Keys, key: str) -> tuple[float, ...]:
    found = keys.get(key) or []
    if not isinstance(found, list) or not all(isinstance(each, int | float) and each > 0 for each in found):
        raise keys.refuse(key, "is no list of numbers above 0")
    return tuple(map(float, found))


def _window(keys: Keys) -> int:
    return 0 if keys.get("use_sliding_window") is False else keys.integer("sliding_window", 0)


def _window_pattern(keys: Keys, layers: int) -> tuple[bool, ...] | None:
    kinds = keys.listed("layer_types", layers)
    if kinds is not None:
        unknown = next((kind for kind in kinds if kind not in (_FULL, _SLIDING)), None)
        if unknown is not None:
            raise keys.refuse("layer_types", f"has layers of the kind '{shown(unknown)}', which are not supported")
        return tuple(kind == _SLIDING for kind in kinds)
    every = keys.get("sliding_window_pattern")
    if isinstance(every, int) and every > 0:
        return tuple(bool((n + 1) % every) for n in range(layers))
    if keys.get("max_window_layers") is not None and keys.get("use_sliding_window"):
        return tuple(n >= keys.integer("max_window_layers") for n in range(layers))
    return None


def _expert_layers(keys: Keys, layers: int) -> tuple[bool, ...] | None:
    step, dense = keys.integer("decoder_sparse_step", 1), keys.get("mlp_only_layers") or []
    if not isinstance(dense, list):
        raise keys.refuse("mlp_only_layers", "is no list")
    return tuple(n not in dense and bool(step) and (n + 1) % step == 0 for n in range(layers))
