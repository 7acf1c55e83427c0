"""Builds what layers of decoders and of encoders have in common: their blocks, and the angles of positions."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.decoder.blocks import Parts, Positions, attended, fed, normalized
from nnefc.frontends.decoder.description import (
    Attention,
    Decoder,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    Mixer,
    Rotation,
    ShortConvolution,
)
from nnefc.frontends.decoder.document import Document, Tensor
from nnefc.frontends.decoder.experts import mixed
from nnefc.frontends.decoder.latent_attention import latently_attended
from nnefc.frontends.decoder.short_convolution import convolved
from nnefc.frontends.decoder.state_space import scanned
from nnefc.frontends.decoder.weights import StoredTensor, float_tensor

__all__ = ["added_layer", "angles_of", "second_block"]


def added_layer(document: Document, decoder: Decoder, layer: Layer, parts: Parts, at: Positions, x: Tensor) -> Tensor:
    """Adds a layer."""
    size, norm = decoder.size, decoder.norm

    def before(x: Tensor, name: str, has_norm: bool = True) -> Tensor:
        return normalized(document, x, norm, parts, name, size) if layer.pre_norm and has_norm else x

    def after(x: Tensor, name: str) -> Tensor:
        x = normalized(document, x, norm, parts, name, size) if layer.post_norm else x
        return x if layer.residual_scale == 1 else document.infix("*", x, layer.residual_scale)

    def summed(x: Tensor, y: Tensor, hint: str, name: str) -> Tensor:
        total = document.infix("+", x, y, hint)
        return normalized(document, total, norm, parts, name, size) if layer.sum_norm else total

    operand = before(x, "attn_norm", layer.has_attention_norm)
    found = after(_first(document, operand, layer.mixer, parts, at, size), "post_attention_norm")
    if layer.feed_forward is None:
        return summed(x, found, "x", "attn_output_norm")
    middle = summed(x, found, "a", "attn_output_norm")
    operand = operand if layer.is_parallel else before(middle, "ffn_norm")
    made = after(second_block(document, operand, layer.feed_forward, parts, at, size), "post_ffw_norm")
    return summed(middle, made, "x", "layer_output_norm")


def second_block(
    document: Document, x: Tensor, form: FeedForward | Experts, parts: Parts, at: Positions, size: int
) -> Tensor:
    """Adds the block that computes each row by itself."""
    if isinstance(form, FeedForward):
        return fed(document, x, form, parts, size)
    return mixed(document, x, form, parts, at, size)


def _first(document: Document, x: Tensor, form: Mixer, parts: Parts, at: Positions, size: int) -> Tensor:
    """Adds the block that lets positions see others."""
    match form:
        case Attention():
            return attended(document, x, form, parts, at, size)
        case LatentAttention():
            return latently_attended(document, x, form, parts, at, size)
        case ShortConvolution():
            return convolved(document, x, form, parts, at, size)
        case _:
            return scanned(document, x, form, parts, at, size)


def angles_of(
    document: Document, rotation: Rotation, width: int, column: Tensor, used: dict[str, StoredTensor]
) -> tuple[Tensor, Tensor]:
    """Adds cosines and sines, `[B, 1, S, E]`; pairs of elements that are not rotated have the angle 0."""
    pairs = rotation.frequencies
    tail = np.zeros(width // 2 - len(pairs))
    prefix = "" if rotation.name == "global" else f"{rotation.name}_"

    def table(name: str, values: np.ndarray) -> Tensor:
        used[f"{prefix}{name}"] = float_tensor(np.tile(values, 2).reshape(1, 1, 1, -1))
        return document.variable(f"{prefix}{name}", (1, 1, 1, width), name)

    angle = document.infix("*", column, table("frequencies", np.concatenate([pairs, tail])), f"{prefix}angles")
    made = [document.call(name, angle, name=f"{prefix}{hint}") for name, hint in (("cos", "cosine"), ("sin", "sine"))]
    if rotation.scale != 1:
        scales = table("rotation_scales", np.concatenate([np.full(len(pairs), rotation.scale), tail + 1]))
        made = [document.infix("*", each, scales, each.hint) for each in made]
    return made[0], made[1]
