"""Small random language models in files of GGUF, and what they compute, written with NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

__all__ = ["MODELS", "SIDE_BY_SIDE", "TEMPLATE", "WORDS", "Model", "logits", "write_model"]

WORDS, SIZE, HEADS, KEY_HEADS, WIDTH, INNER, LAYERS = 300, 64, 4, 2, 16, 96, 2
EPSILON, BASE = 1e-5, 10000.0
SIDE_BY_SIDE: dict[str, Any] = {"context": 192, "sequences": 3, "kv_cache": "f32"}
"""How tests compile models of several sequences: with the same options, most of their kernels are the same."""
TEMPLATE = "{% for m in messages %}<|s|>{{ m['role'] }}\n{{ m['content'] }}<|e|>{% endfor %}<|s|>assistant\n"


@dataclass(frozen=True)
class Model:
    """An architecture.

    Attributes:
        width: of a head; `rotated` elements of it turn with the position, neighbours or those of two halves together.
        biased: what has biases besides weights.
        normed: whether heads of queries and keys are normed.
        post_norms: whether what a layer adds is normed.
        centered: whether norms take away the mean.
        joined: whether queries, keys and values are one tensor, and gates are in one with what they multiply.
        gelu, gated, parallel: of the feed-forward layer.
        scaled: whether embeddings are multiplied by the root of their size.
        caps: of scores and of logits, or none.
        window: of the layers but every `whole_every`-th.
        local_base: of the angles of these.
        stretch: of the other angles; `factors`: whether a tensor has more of these.
    """

    width: int = WIDTH
    rotated: int = 0
    neighbours: bool = False
    biased: tuple[str, ...] = ()
    normed: bool = False
    post_norms: bool = False
    centered: bool = False
    joined: bool = False
    gelu: bool = False
    gated: bool = True
    parallel: bool = False
    scaled: bool = False
    caps: tuple[float, float] | None = None
    window: int = 0
    whole_every: int = 1000
    local_base: float = BASE
    stretch: float = 1.0
    factors: bool = False


_BIASED = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down", "attn_norm", "output_norm", "output")
MODELS = {
    "llama": Model(neighbours=True, rotated=WIDTH, factors=True),
    "qwen2": Model(biased=("attn_q", "attn_k", "attn_v")),
    "qwen3": Model(width=2 * WIDTH, normed=True),
    "gemma": Model(width=2 * WIDTH, gelu=True, scaled=True),
    "gemma2": Model(gelu=True, scaled=True, post_norms=True, caps=(2.0, 3.0), window=4, whole_every=2),
    "gemma3": Model(
        gelu=True, scaled=True, post_norms=True, normed=True, window=4, whole_every=2, local_base=100.0, stretch=8.0
    ),
    "phi2": Model(rotated=8, biased=_BIASED, centered=True, joined=True, gelu=True, gated=False, parallel=True),
    "phi3": Model(rotated=12, joined=True, window=5),
}


def quantized(rows: np.ndarray, kind: gguf.GGMLQuantizationType) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of a matrix, and the numbers that they are."""
    if kind is gguf.GGMLQuantizationType.F32:
        return rows, rows
    data = gguf.quants.quantize(rows, kind)
    return data, gguf.quants.dequantize(data, kind)


def write_model(
    path: Path,
    tied: bool,
    other: str = "",
    architecture: str = "llama",
    layers: int = LAYERS,
    mixed: bool = True,
    template: str = TEMPLATE,
) -> dict[str, np.ndarray]:
    """A random model in a file of GGUF, whose matrices are of several kinds or of one; its numbers by name."""
    kinds, rng = gguf.GGMLQuantizationType, np.random.default_rng(3)
    of_matrices = (kinds.Q4_1, kinds.Q8_0, kinds.Q4_0, kinds.F32) if mixed else (kinds.Q8_0,) * 4
    model = MODELS[architecture]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(layers)
    _write_fields(writer, model)
    _write_words(writer, template)
    shapes = _shapes(model, layers, tied) | ({other: (SIZE,)} if other else {})
    values = {}
    for position, (name, shape) in enumerate(shapes.items()):
        given = (rng.standard_normal(shape) * (0.3 if len(shape) > 1 else 1)).astype(np.float32)
        given = np.abs(given) + 0.5 if name == "rope_freqs" else given
        kind = kinds.F32 if len(shape) == 1 else of_matrices[position % 4]
        data, values[name] = quantized(given, kind)
        writer.add_tensor(name if name.endswith(".bias") else f"{name}.weight", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def _write_fields(writer: gguf.GGUFWriter, model: Model) -> None:
    writer.add_embedding_length(SIZE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    if model.width != WIDTH:
        writer.add_key_length(model.width)
        writer.add_value_length(model.width)
    if model.rotated:
        writer.add_rope_dimension_count(model.rotated)
    writer.add_rope_freq_base(BASE)
    (writer.add_layer_norm_eps if model.centered else writer.add_layer_norm_rms_eps)(EPSILON)
    if model.stretch != 1:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(model.stretch)
    if model.local_base != BASE:
        writer.add_float32(f"{writer.arch}.rope.freq_base_swa", model.local_base)
    if model.window:
        writer.add_sliding_window(model.window)
        if model.whole_every < 1000:
            writer.add_sliding_window_pattern(model.whole_every)
    if model.caps:
        writer.add_attn_logit_softcapping(model.caps[0])
        writer.add_final_logit_softcapping(model.caps[1])


def _write_words(writer: gguf.GGUFWriter, template: str) -> None:
    letters = [chr(code) for code in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]
    tokens = [*letters, *(f"word{n}" for n in range(WORDS - 4 - len(letters))), "he", "<|s|>", "<|e|>", "llo"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges(["h e"])
    writer.add_eos_token_id(tokens.index("<|e|>"))
    writer.add_chat_template(template)


def _shapes(model: Model, layers: int, tied: bool) -> dict[str, tuple[int, ...]]:
    """Of all tensors, by their names without `.weight`."""
    queries, keys = HEADS * model.width, KEY_HEADS * model.width
    layer: dict[str, tuple[int, ...]] = {"attn_norm": (SIZE,)}
    if model.joined:
        layer |= {"attn_qkv": (queries + 2 * keys, SIZE)}
    else:
        layer |= {"attn_q": (queries, SIZE), "attn_k": (keys, SIZE), "attn_v": (keys, SIZE)}
    layer |= {"attn_output": (SIZE, queries)}
    layer |= {} if model.parallel else {"ffn_norm": (SIZE,)}
    both = 2 if model.joined and model.gated else 1
    layer |= {"ffn_up": (both * INNER, SIZE), "ffn_down": (SIZE, INNER)}
    layer |= {"ffn_gate": (INNER, SIZE)} if model.gated and not model.joined else {}
    layer |= {"attn_q_norm": (model.width,), "attn_k_norm": (model.width,)} if model.normed else {}
    layer |= {"post_attention_norm": (SIZE,), "post_ffw_norm": (SIZE,)} if model.post_norms else {}
    shapes = {"token_embd": (WORDS, SIZE), "output_norm": (SIZE,)} | ({} if tied else {"output": (WORDS, SIZE)})
    shapes |= {f"blk.{n}.{name}": shape for n in range(layers) for name, shape in layer.items()}
    biased = {*model.biased, *({"attn_qkv"} if model.joined and model.biased else {})}
    shapes |= {f"{name}.bias": shape[:1] for name, shape in shapes.items() if name.split(".")[-1] in biased}
    return shapes | ({"rope_freqs": (model.width // 2,)} if model.factors else {})


# What they compute.


def rotated(x: np.ndarray, model: Model, frequencies: np.ndarray) -> np.ndarray:
    """Neighbouring elements of each head, or those of its halves, rotated by an angle that grows with the position."""
    count = 2 * len(frequencies)
    angles = np.arange(x.shape[1])[:, None] * frequencies
    parts = slice(0, count // 2), slice(count // 2, count)
    first, second = (slice(0, count, 2), slice(1, count, 2)) if model.neighbours else parts
    made = x.copy()
    made[..., first] = x[..., first] * np.cos(angles) - x[..., second] * np.sin(angles)
    made[..., second] = x[..., first] * np.sin(angles) + x[..., second] * np.cos(angles)
    return made


class _Layer:
    """A layer's numbers, and what it does with rows."""

    def __init__(self, model: Model, wide: Mapping[str, np.ndarray], n: int) -> None:
        self.model, self.wide, self.prefix = model, wide, f"blk.{n}."
        self.window = model.window if (n + 1) % model.whole_every else 0
        count = model.rotated or model.width
        base = model.local_base if self.window and model.local_base != BASE else BASE
        self.frequencies = base ** -(np.arange(0, count, 2) / count)
        if base == BASE:
            self.frequencies = self.frequencies / model.stretch / wide.get("rope_freqs", 1)

    def product(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self.wide[self.prefix + name].T + self.wide.get(f"{self.prefix}{name}.bias", 0)

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return normed(x, self.wide, self.prefix + name, self.model.centered)

    def attention(self, x: np.ndarray) -> np.ndarray:
        model, count = self.model, len(x)
        sizes = np.cumsum([HEADS, KEY_HEADS]) * model.width
        rows = (
            np.split(self.product(x, "attn_qkv"), sizes, 1)
            if model.joined
            else [self.product(x, f"attn_{part}") for part in "qkv"]
        )
        q, k, v = (part.reshape(count, -1, model.width).swapaxes(0, 1) for part in rows)
        if model.normed:
            q, k = self.norm(q, "attn_q_norm"), self.norm(k, "attn_k_norm")
        q, k = (rotated(part, model, self.frequencies) for part in (q, k))
        k, v = k.repeat(HEADS // KEY_HEADS, 0), v.repeat(HEADS // KEY_HEADS, 0)
        scores = q @ k.swapaxes(1, 2) / np.sqrt(model.width)
        scores = capped(scores, model.caps[0]) if model.caps else scores
        seen = np.tri(count, dtype=bool) & ~np.tri(count, k=-(self.window or count), dtype=bool)
        scores = np.where(seen, scores, -np.inf)
        chances = np.exp(scores - scores.max(-1, keepdims=True))
        found = chances / chances.sum(-1, keepdims=True) @ v
        return self.product(found.swapaxes(0, 1).reshape(count, -1), "attn_output")

    def feed_forward(self, x: np.ndarray) -> np.ndarray:
        model, up = self.model, self.product(x, "ffn_up")
        if not model.gated:
            return self.product(activated(up, model.gelu), "ffn_down")
        gate, up = np.split(up, 2, 1) if model.joined else (self.product(x, "ffn_gate"), up)
        return self.product(activated(gate, model.gelu) * up, "ffn_down")

    def __call__(self, x: np.ndarray) -> np.ndarray:
        model, y = self.model, self.norm(x, "attn_norm")
        if model.parallel:
            return x + self.attention(y) + self.feed_forward(y)
        y = self.attention(y)
        x = x + (self.norm(y, "post_attention_norm") if model.post_norms else y)
        y = self.feed_forward(self.norm(x, "ffn_norm"))
        return x + (self.norm(y, "post_ffw_norm") if model.post_norms else y)


def normed(x: np.ndarray, wide: Mapping[str, np.ndarray], name: str, centered: bool) -> np.ndarray:
    x = x - x.mean(-1, keepdims=True) if centered else x
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPSILON) * wide[name] + wide.get(f"{name}.bias", 0)


def activated(x: np.ndarray, gelu: bool) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) if gelu else x / (1 + np.exp(-x))


def capped(x: np.ndarray, cap: float) -> np.ndarray:
    return cap * np.tanh(x / cap)


def logits(values: Mapping[str, np.ndarray], tokens: list[int], architecture: str = "llama") -> np.ndarray:
    """Of the last position, in double precision."""
    model, wide = MODELS[architecture], {name: value.astype(np.float64) for name, value in values.items()}
    x = wide["token_embd"][tokens] * (np.sqrt(SIZE) if model.scaled else 1)
    for n in range(len({name.split(".")[1] for name in values if name.startswith("blk.")})):
        x = _Layer(model, wide, n)(x)
    x = normed(x[-1], wide, "output_norm", model.centered)
    found = x @ wide.get("output", wide["token_embd"]).T + wide.get("output.bias", 0)
    return capped(found, model.caps[1]) if model.caps else found
