"""Builds decoders with several rows for each position, one of which layers compute (Baykal et al., 2023).

    predicted = x + a(x) x                        x is [B · S, rows, D], and `a` a matrix that the active row chooses
    y = layer(predicted[active])
    x = predicted + b(y) ⊗ (y - predicted[active])

The layers are those of Gemma 3n: they have a residual of low rank, and a table of embeddings of their own, whose rows
are added to all but the first of a position's rows.
"""

from __future__ import annotations

import math

import numpy as np

from nnefc.frontends.decoder.blocks import (
    Parts,
    Positions,
    activated,
    attended_to,
    key_of,
    matrix_product,
    normalized,
    unit,
    value_of,
)
from nnefc.frontends.decoder.description import AlternatingUpdates, Attention, Decoder, Layer
from nnefc.frontends.decoder.document import Document, Tensor
from nnefc.frontends.decoder.layers import second_block
from nnefc.frontends.decoder.weights import StoredTensor, Weights

__all__ = ["RowsOfPositions"]

_SMALLEST = 1e-5
"""The minimum of mean squares."""


class RowsOfPositions:
    """The rows of positions, from the embeddings of tokens to the operand of the logits."""

    def __init__(
        self,
        document: Document,
        decoder: Decoder,
        form: AlternatingUpdates,
        weights: Weights,
        used: dict[str, StoredTensor],
        at: Positions,
    ) -> None:
        """Begins to build; `used` gets the tensors that the document has."""
        self._document, self._decoder, self._form = document, decoder, form
        self._weights, self._used, self._at = weights, used, at
        self._whole = Parts(document, weights, used)
        self._keys: dict[int, tuple[Tensor, Tensor]] = {}

    def embedded(self, x: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Adds the rows of positions, `[B · S, rows, D]`, and the embeddings of all layers, `[B · S, layers, P]`.

        Args:
            x: embeddings of tokens, `[B · S, D]`, scaled.
            tokens: `[B · S]`.
        """
        document, form, size, parts = self._document, self._form, self._decoder.size, self._whole
        others = matrix_product(document, x, parts, "altup_proj", ((form.count - 1) * size, size), "projections")
        others = document.call("reshape", others, shape=[self._at.flat, form.count - 1, size])
        others = self._as_large(others, document.call("unsqueeze", x, axes=[1]), 2)
        rows = document.call("concat", [document.call("unsqueeze", x, axes=[1]), others], axis=1, name="rows")
        return rows, self._own_embeddings(x, tokens)

    def _own_embeddings(self, x: Tensor, tokens: Tensor) -> Tensor:
        document, form, decoder, parts = self._document, self._form, self._decoder, self._whole
        layers = len(decoder.layers)
        table = parts.matrix("per_layer_token_embd.weight", (form.tokens, layers * form.width), "own_embeddings")
        known = document.call(
            "select", document.infix("<", tokens, form.tokens, content="logical"), tokens, 0, content="integer"
        )
        found = document.call("tract_core_gather", table, known, axis=0)
        found = document.infix("*", found, math.sqrt(form.width))
        made = matrix_product(
            document, x, parts, "per_layer_model_proj", (layers * form.width, decoder.size), "own_projection"
        )
        shape = [self._at.flat, layers, form.width]
        made = document.call("reshape", document.infix("*", made, decoder.size**-0.5), shape=shape)
        weight = parts.matrix("per_layer_proj_norm.weight", (form.width,), "weight")
        made = document.infix("*", unit(document, made, decoder.norm, 2), document.call("unsqueeze", weight, axes=[0]))
        found = document.call("reshape", found, shape=shape)
        return document.infix("*", document.infix("+", made, found), math.sqrt(0.5), "own")

    def after_layer(self, rows: Tensor, own: Tensor, n: int) -> Tensor:
        """Adds layer `n`."""
        document, decoder, form, size = self._document, self._decoder, self._form, self._decoder.size
        layer, parts = decoder.layers[n], Parts(document, self._weights, self._used, f"blk.{n}.")
        coefficients = matrix_product(
            document, self._routed(self._row(rows, form.active), parts), parts, "altup_predict_coef",
            (form.count**2, form.count), "predict",
        )  # fmt: skip
        matrices = document.call("reshape", coefficients, shape=[self._at.flat, form.count, form.count])
        predicted = document.infix("+", rows, document.call("matmul", matrices, rows), "predicted")
        active = self._row(predicted, form.active)
        made = self._computed(active, layer, parts, n)
        shares = matrix_product(
            document, self._routed(made, parts), parts, "altup_correct_coef", (form.count, form.count), "correct"
        )
        shares = document.call("unsqueeze", document.infix("+", shares, 1.0), axes=[2])
        change = document.call("unsqueeze", document.infix("-", made, active), axes=[1])
        corrected = document.infix("+", predicted, document.infix("*", change, shares), "corrected")

        chosen = self._row(corrected, form.active)
        if form.scales:
            chosen = document.infix("*", chosen, parts.matrix("altup_correct_scale.weight", (size,), "scale"))
        gate = matrix_product(document, chosen, parts, "inp_gate", (form.width, size), "gate")
        assert layer.feed_forward is not None
        gated = document.infix("*", activated(document, gate, layer.feed_forward.activation), self._row(own, n))
        added = matrix_product(document, gated, parts, "proj", (size, form.width), "projection")
        added = normalized(document, added, decoder.norm, parts, "post_norm", size)
        first = document.call("slice", corrected, axes=[1], begin=[0], end=[1])
        others = document.call("slice", corrected, axes=[1], begin=[1], end=[form.count])
        others = document.infix("+", others, document.call("unsqueeze", added, axes=[1]))
        return document.call("concat", [first, others], axis=1, name="rows")

    def _computed(self, x: Tensor, layer: Layer, parts: Parts, n: int) -> Tensor:
        """Adds attention, the residual of low rank, and the feed-forward layer."""
        document, norm, size, at = self._document, self._decoder.norm, self._decoder.size, self._at
        operand = normalized(document, x, norm, parts, "attn_norm", size)
        rank = parts.rows_of("laurel_l.weight")
        low = matrix_product(document, operand, parts, "laurel_l", (rank, size), "left")
        low = matrix_product(document, low, parts, "laurel_r", (size, rank), "right")
        low = document.infix("+", operand, normalized(document, low, norm, parts, "laurel_post_norm", size))
        form = layer.mixer
        assert isinstance(form, Attention) and layer.feed_forward is not None
        if form.keys_of is None:
            self._keys[n] = (
                document.block("keys", lambda body, x: key_of(body, x, form, parts, at, size), operand),
                document.block("values", lambda body, x: value_of(body, x, form, parts, at, size), operand),
            )
        key, value = self._keys[n if form.keys_of is None else form.keys_of]
        found = attended_to(document, operand, key, value, form, parts, at, size)
        found = normalized(document, found, norm, parts, "post_attention_norm", size)
        middle = document.infix("+", document.infix("+", x, found), low)
        middle = document.infix("*", middle, math.sqrt(0.5), "a")
        made = normalized(document, middle, norm, parts, "ffn_norm", size)
        made = second_block(document, made, layer.feed_forward, parts, at, size)
        return document.infix("+", middle, normalized(document, made, norm, parts, "post_ffw_norm", size), "y")

    def joined(self, rows: Tensor) -> Tensor:
        """Adds the mean of the rows of each position, `[N, rows, D]` as `[N, D]`."""
        document, form, size = self._document, self._form, self._decoder.size
        first = self._row(rows, 0)
        total = first
        for n in range(1, form.count):
            made = matrix_product(
                document, self._row(rows, n), self._whole, f"altup_unembd_proj.{n - 1}", (size, size), "unembedding"
            )
            total = document.infix("+", total, self._as_large(made, first, 1))
        return document.infix("*", total, 1 / form.count, "last")

    def _row(self, rows: Tensor, n: int) -> Tensor:
        """Adds one of the rows of each position."""
        made = self._document.call("slice", rows, axes=[1], begin=[n], end=[n + 1])
        return self._document.call("squeeze", made, axes=[1], name="row")

    def _routed(self, x: Tensor, parts: Parts) -> Tensor:
        """Adds the numbers from -1 to 1 that coefficients are products with."""
        document, size = self._document, self._decoder.size
        made = normalized(document, x, self._decoder.norm, parts, "altup_router_norm", size)
        made = document.infix("*", made, 1 / size)
        return document.call(
            "tanh", matrix_product(document, made, parts, "altup_router", (self._form.count, size), "router")
        )

    def _as_large(self, x: Tensor, like: Tensor, axis: int) -> Tensor:
        """Adds rows scaled to the mean square of others."""

        def mean_square(body: Document, x: Tensor) -> Tensor:
            return body.call("mean_reduce", body.infix("*", x, x), axes=[axis])

        document = self._document
        wanted = document.call("sqrt", mean_square(document, like))
        found = document.call("sqrt", document.call("max", mean_square(document, x), np.float32(_SMALLEST)))
        return document.infix("/", document.infix("*", x, wanted), found)
