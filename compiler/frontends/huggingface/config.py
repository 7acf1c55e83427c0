"""Reads the hyperparameters of a decoder from a folder's config.json, and the names of all architectures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnefc.frontends.decoder import Hyperparameters, Routing, architecture_named
from nnefc.frontends.decoder.rotary import RotaryScaling
from nnefc.frontends.decoder.weights import shown
from nnefc.frontends.huggingface.keys import Keys, epsilon_of
from nnefc.frontends.huggingface.mixers import state_space_decoder, with_mixers, with_rows_of_positions
from nnefc.support.diagnostics import CompileError

__all__ = ["MODEL_TYPES", "architecture_of", "hyperparameters_of"]

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
    "gemma3n_text": "gemma3n",
    "phi": "phi2",
    "phi3": "phi3",
    "glm4": "glm4",
    "cohere2": "cohere2",
    "exaone4": "exaone4",
    "gpt_oss": "gpt-oss",
    "mixtral": "llama",
    "granitemoe": "granitemoe",
    "granitemoeshared": "granitemoe",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "kimi_k2": "deepseek2",
    "lfm2": "lfm2",
    "mamba2": "mamba2",
    "granitemoehybrid": "granitehybrid",
    "bert": "bert",
    "roberta": "bert",
    "xlm-roberta": "bert",
    "camembert": "bert",
    "nomic_bert": "nomic-bert",
    "modernbert": "modern-bert",
}
"""`model_type` → the name of the architecture."""

_SILU = ("silu", "swish")
_GELU = ("gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu")
_FULL, _SLIDING = "full_attention", "sliding_attention"
_NORMALIZED = ("llama", "granitemoe", "granitehybrid", "gpt-oss")
"""Architectures whose shares are divided by their sum, which no key says; of others without the key they are not."""


def architecture_of(config: Mapping[str, Any], path: Path) -> str:
    """Returns the name of the architecture.

    Raises:
        CompileError: it is not known.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        raise CompileError(
            f"'{path}': the model_type '{shown(kind)}' is not supported", hint=f"supported are {', '.join(MODEL_TYPES)}"
        )
    if kind == "gemma3_text" and config.get("use_bidirectional_attention"):
        return "gemma-embedding"
    return MODEL_TYPES[kind]


def hyperparameters_of(config: Mapping[str, Any], architecture: str, path: Path) -> Hyperparameters:
    """Returns what a configuration says of its decoder.

    Raises:
        CompileError: a key is missing, or is not as it must be.
    """
    keys = Keys(config, path)
    _check_activation(keys, architecture)
    layers = keys.integer("num_hidden_layers")
    if layers > 1000:
        raise keys.refuse("num_hidden_layers", f"is {layers:,}, more than 1,000")
    mixers = architecture_named(architecture).mixers
    if architecture == "mamba2":
        return state_space_decoder(keys, layers)
    found = _with_attention(keys, config, architecture, layers)
    if architecture == "gemma3n":
        return with_rows_of_positions(keys, found)
    return with_mixers(keys, found, mixers) if mixers else found


def _with_attention(keys: Keys, config: Mapping[str, Any], architecture: str, layers: int) -> Hyperparameters:
    """Returns what is common to all decoders with attention."""
    size, heads = keys.integer("hidden_size"), keys.integer("num_attention_heads")
    if not heads:
        raise keys.refuse("num_attention_heads", "is 0")
    head_size = keys.integer("head_dim", 0) or size // heads
    whole, local = _rotary(keys)
    base = keys.real("rope_theta", architecture_named(architecture).base)
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
        epsilon=epsilon_of(keys),
        context=keys.integer("max_position_embeddings", 0),
        base=(whole.real("rope_theta") if whole else 0.0) or base,
        local_base=(local.real("rope_theta") if local else 0.0) or keys.real("rope_local_base_freq") or None,
        scaling=_scaling(keys, whole),
        window=_window(keys),
        window_pattern=None if architecture_named(architecture).mixers else _window_pattern(keys, layers),
        rotary_pattern=None if rotary is None else tuple(map(bool, rotary)),
        attention_scale=keys.real("attention_multiplier") or _root(keys.real("query_pre_attn_scalar")),
        attention_cap=keys.real("attn_logit_softcapping"),
        logit_scale=_inverse(keys.real("logits_scaling")) or keys.real("logit_scale"),
        logit_cap=keys.real("final_logit_softcapping"),
        embedding_scale=keys.real("embedding_multiplier"),
        residual_scale=keys.real("residual_multiplier"),
        routing=_routing(keys, architecture, layers),
        clamp=keys.real("swiglu_limit"),
    )


def _routing(keys: Keys, architecture: str, layers: int) -> Routing | None:
    """Returns how experts are chosen; None without them."""
    count = next((keys.integer(key) for key in _EXPERT_COUNTS if keys.get(key) is not None), 0)
    if not count:
        return None
    used = keys.integer("num_experts_per_tok")
    if not 0 < used <= count:
        raise keys.refuse("num_experts_per_tok", f"is {used} of {count} experts")
    is_latest = keys.get("model_type") in ("deepseek_v3", "kimi_k2")
    method = keys.get("topk_method") or ("noaux_tc" if is_latest else "greedy")
    if method not in _TOP_METHODS:
        raise keys.refuse("topk_method", f"is '{shown(method)}', which is not supported")
    has_groups = method != "greedy" and architecture == "deepseek2"
    groups, groups_used = (keys.integer(key, 1) if has_groups else 1 for key in ("n_group", "topk_group"))
    if not 0 < groups_used <= groups or count % groups:
        raise keys.refuse("n_group", f"is {groups}, of which {groups_used} are used, for {count} experts")
    shared = keys.integer("n_shared_experts", 0) or keys.integer("shared_intermediate_size", 0)
    return Routing(
        used=used,
        layers=_expert_layers(keys, layers),
        is_normalized=_is_normalized(keys, architecture, is_latest),
        has_shared=architecture == "qwen2moe" or shared > 0,
        scoring="sigmoid" if is_latest else "softmax",
        scale=keys.real("routed_scaling_factor", 1.0) or 1.0,
        groups=groups,
        groups_used=groups_used,
        group_terms=2 if is_latest else 1,
    )


_EXPERT_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts")
_TOP_METHODS = ("greedy", "group_limited_greedy", "noaux_tc")


def _is_normalized(keys: Keys, architecture: str, is_latest: bool) -> bool:
    """Returns whether shares are divided by their sum: the second version of DeepSeek has the key, and does not."""
    if architecture in _NORMALIZED:
        return True
    if architecture == "deepseek2" and not is_latest:
        return False
    return bool(is_latest if keys.get("norm_topk_prob") is None else keys.get("norm_topk_prob"))


def _check_activation(keys: Keys, architecture: str) -> None:
    own = architecture_named(architecture).activation
    known = _SILU if own in _SILU else _GELU
    found = keys.get("hidden_activation", "hidden_act")
    if found is not None and found not in known:
        raise keys.refuse("hidden_act", f"is '{shown(found)}', which is not supported for this architecture")


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
    if kind in ("linear", "dynamic", "llama3") and not given.real("factor"):
        raise given.refuse("factor", f"is missing or 0, which positions scaled as '{kind}' need")
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
    first, every = keys.integer("first_k_dense_replace", 0), keys.get("moe_layer_freq")
    if every not in (None, 1):
        raise keys.refuse("moe_layer_freq", f"is {shown(every)}, which is not supported")
    return tuple(n not in dense and n >= first and bool(step) and (n + 1) % step == 0 for n in range(layers))
