"""Builds attention whose keys and values are products with one short vector a position.

    score = q · (K c) = (Kᵀ q) · c            result = Σ p V c = V (Σ p c)

Caches hold `c` and the rotated part of keys alone, as keys of one head that all heads of queries share. `layout.py` has
the parts of stored matrices apart: `attn_q_nope`, `attn_q_rope`, `attn_kv_c`, `attn_k_rope`, `attn_k_b`, `attn_v_b`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnefc.frontends.decoder.blocks import Parts, Positions, heads_apart, heads_joined, matrix_product, normalized
from nnefc.frontends.decoder.description import LatentAttention
from nnefc.frontends.decoder.document import Scope, Tensor

__all__ = ["latently_attended"]


def latently_attended(scope: Scope, x: Tensor, form: LatentAttention, parts: Parts, at: Positions, size: int) -> Tensor:
    """Adds latent attention of rows to all positions before, which a session keeps."""
    heads, rank = form.heads, form.rank

    def build(body: Scope, x: Tensor) -> Tensor:
        source, depth = x, size
        if form.query_rank:
            depth = form.query_rank
            source = matrix_product(body, x, parts, "attn_q_a", (depth, size), "q_a")
            source = normalized(body, source, form.norm, parts, "attn_q_a_norm", depth)

        def query(name: str, width: int) -> Tensor:
            made = matrix_product(body, source, parts, f"attn_q_{name}", (heads * width, depth), f"q_{name}")
            return heads_apart(body, made, heads, width, at)

        angles = at.angles[form.rotation]
        keys = parts.matrix("attn_k_b.weight", (1, heads, rank, form.unrotated), "k_b")
        inner = body.call("matmul", query("nope", form.unrotated), keys, transposeB=True)
        rotated = body.call("tract_transformers_apply_rope", query("rope", form.rotated), *angles)
        latent = matrix_product(body, x, parts, "attn_kv_c", (rank, size), "kv_c")
        latent = normalized(body, latent, form.norm, parts, "attn_kv_a_norm", rank)
        latent = heads_apart(body, latent, 1, rank, at)
        shared = matrix_product(body, x, parts, "attn_k_rope", (form.rotated, size), "k_rope")
        shared = body.call("tract_transformers_apply_rope", heads_apart(body, shared, 1, form.rotated, at), *angles)
        options: dict[str, Any] = {"scale": np.float32(form.scale)} | at.kept.options()
        found = body.call(
            "nnefc_cached_attention",
            body.call("concat", [inner, rotated], axis=3),
            body.call("concat", [latent, shared], axis=3),
            latent,
            at.before,
            name="found",
            **options,
        )
        values = parts.matrix("attn_v_b.weight", (1, heads, form.value, rank), "v_b")
        rows = heads_joined(body, body.call("matmul", found, values, transposeB=True), heads, form.value, at)
        return matrix_product(body, rows, parts, "attn_output", (size, heads * form.value), "o")

    return scope.block("latent_attention", build, x)
