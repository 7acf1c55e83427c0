"""The definitions that the language model example is compared with, compared with transformers, where that is
installed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import language_models as own
import numpy as np
import pytest
from language_models import MODELS, logits, write_model

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

CLASSES = {
    "llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma": "Gemma", "gemma2": "Gemma2", "gemma3": "Gemma3Text",
    "phi2": "Phi", "phi3": "Phi3",
}  # fmt: skip
MODEL_CLASSES = {"gemma3": "Gemma3ForCausalLM"}


def configuration(architecture: str) -> Any:
    """Of the same sizes in transformers' words."""
    model = MODELS[architecture]
    angles: dict[str, Any] = {"rope_theta": own.BASE, "rope_type": "default"}
    partly = model.rotated / model.width if model.rotated else 1.0
    if architecture.startswith("phi"):
        angles["partial_rotary_factor"] = partly
    if model.local_base != own.BASE:
        whole = {"rope_theta": own.BASE, "rope_type": "linear", "factor": model.stretch}
        angles = {"full_attention": whole, "sliding_attention": angles | {"rope_theta": model.local_base}}
    caps = dict(zip(("attn_logit_softcapping", "final_logit_softcapping"), model.caps or (), strict=False))
    windows = {"sliding_window": model.window, "use_sliding_window": True} if model.window else {}
    if 0 < model.whole_every < 1000:
        kinds = ("full_attention", "sliding_attention")
        windows["layer_types"] = [kinds[bool((n + 1) % model.whole_every)] for n in range(own.LAYERS)]
    return getattr(transformers, f"{CLASSES[architecture]}Config")(
        vocab_size=own.WORDS, hidden_size=own.SIZE, intermediate_size=own.INNER, num_hidden_layers=own.LAYERS,
        num_attention_heads=own.HEADS, num_key_value_heads=own.KEY_HEADS, head_dim=model.width,
        query_pre_attn_scalar=model.width, rms_norm_eps=own.EPSILON, layer_norm_eps=own.EPSILON, rope_parameters=angles,
        tie_word_embeddings=architecture != "phi2", attn_implementation="eager", pad_token_id=0,
        **caps, **windows,
    )  # fmt: skip


def tensors(architecture: str, values: Mapping[str, np.ndarray], names: list[str]) -> dict[str, Any]:
    """The numbers by transformers' names, in its order, and without the 1 that files of Gemma add to norms."""
    model, known = MODELS[architecture], gguf.get_tensor_name_map(_number_of(architecture), own.LAYERS)
    made = {}
    for name in names:
        stem, _, end = name.rpartition(".")
        found = "output" if stem == "lm_head" else known.get_name(stem)
        joined = found.rpartition(".")[0] + ".attn_qkv"
        suffix = ".bias" if end == "bias" else ""
        if found + suffix not in values and joined + suffix in values:
            counts = np.cumsum([own.HEADS * model.width, own.KEY_HEADS * model.width])
            value = np.split(values[joined + suffix], counts)["qkv".index(found[-1])]
        elif found == "output" and found not in values:
            value = values["token_embd"]
        else:
            value = values[found + suffix]
        if architecture.startswith("gemma") and found.endswith("norm"):
            value = value - 1
        if model.neighbours and found.endswith(("attn_q", "attn_k")):
            pairs = value.reshape(-1, model.width // 2, 2, own.SIZE)
            value = pairs.swapaxes(1, 2).reshape(value.shape)
        made[name] = torch.tensor(np.ascontiguousarray(value, np.float32))
    return made


def _number_of(architecture: str) -> gguf.MODEL_ARCH:
    return next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)


@pytest.mark.parametrize("architecture", MODELS)
def test_definitions_agree_with_transformers(architecture: str, tmp_path: Path) -> None:
    values = write_model(tmp_path / "m.gguf", architecture != "phi2", architecture=architecture)
    values.pop("rope_freqs", None)
    name = MODEL_CLASSES.get(architecture, f"{CLASSES[architecture]}ForCausalLM")
    model = getattr(transformers, name)(configuration(architecture)).eval()
    model.load_state_dict(tensors(architecture, values, list(model.state_dict())))
    tokens = np.random.default_rng(5).integers(0, own.WORDS, 11).tolist()
    with torch.no_grad():
        found = model(torch.tensor([tokens])).logits[0, -1].numpy()
    wanted = logits(values, tokens, architecture)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3 * abs(wanted).max())
