"""Replaces an operator of PyTorch's layers for inference, which its ONNX exporter does not know, by its definition."""

from __future__ import annotations

import torch
from torch.nn import functional as nn

__all__ = ["replace_fast_paths"]


def replace_fast_paths(graph: torch.fx.GraphModule) -> None:
    """Makes calls of `torch._transformer_encoder_layer_fwd` in a graph calls of :func:`_encoder_layer`."""
    nodes = graph.graph.find_nodes(op="call_function", target=torch._transformer_encoder_layer_fwd)
    for node in nodes:
        node.target = _encoder_layer
    if nodes:
        graph.recompile()


def _encoder_layer(
    x: torch.Tensor,
    width: int,
    heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    out_weight: torch.Tensor,
    out_bias: torch.Tensor,
    uses_gelu: bool,
    norm_first: bool,
    epsilon: float,
    scale: torch.Tensor,
    shift: torch.Tensor,
    scale2: torch.Tensor,
    shift2: torch.Tensor,
    inner_weight: torch.Tensor,
    inner_bias: torch.Tensor,
    outer_weight: torch.Tensor,
    outer_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    """Computes a layer of `torch.nn.TransformerEncoderLayer`, for x of shape [batch, length, width].

    Args:
        scale, shift, scale2, shift2: of two normalizations.
        inner_weight, inner_bias, outer_weight, outer_bias: of two linear layers.
        mask: other than zero for what is not attended: by `mask_type` of shape [length, length] (0), [batch, length]
            (1) or [batch, heads, length, length] (2).
    """
    attended = None if mask is None else mask.to(torch.bool).logical_not()
    if attended is not None and mask_type == 1:
        attended = attended[:, None, None]

    def attention(y: torch.Tensor) -> torch.Tensor:
        q, k, v = nn.linear(y, qkv_weight, qkv_bias).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.scaled_dot_product_attention(q, k, v, attn_mask=attended)
        return nn.linear(mixed.transpose(1, 2).flatten(2), out_weight, out_bias)

    def feed_forward(y: torch.Tensor) -> torch.Tensor:
        inner = nn.linear(y, inner_weight, inner_bias)
        return nn.linear(nn.gelu(inner) if uses_gelu else nn.relu(inner), outer_weight, outer_bias)

    def first(y: torch.Tensor) -> torch.Tensor:
        return nn.layer_norm(y, (width,), scale, shift, epsilon)

    def second(y: torch.Tensor) -> torch.Tensor:
        return nn.layer_norm(y, (width,), scale2, shift2, epsilon)

    if norm_first:
        x = x + attention(first(x))
        return x + feed_forward(second(x))
    x = first(x + attention(x))
    return second(x + feed_forward(x))
