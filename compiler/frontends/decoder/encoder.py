"""Builds the network of an encoder: embeddings, layers, and one result for each text."""

from __future__ import annotations

from nnefc.frontends.decoder.blocks import Parts, Positions, activated, matrix_product, normalized
from nnefc.frontends.decoder.description import Decoder, Encoding
from nnefc.frontends.decoder.document import Document, Literal, Tensor
from nnefc.frontends.decoder.layers import added_layer, angles_of
from nnefc.frontends.decoder.layout import arrange
from nnefc.frontends.decoder.network import BuiltModel, Session, refuse_unused
from nnefc.frontends.decoder.weights import StoredTensor, Weights
from nnefc.support.diagnostics import CompileError

__all__ = ["POOLINGS", "built_encoder"]

POOLINGS = ("cls", "last", "max", "mean", "mean_sqrt_len")


def built_encoder(
    decoder: Decoder, has_embedding_norm: bool, has_final_norm: bool, form: Encoding, weights: Weights, session: Session
) -> BuiltModel:
    """Builds the network of an encoder with its trained values.

    Tokens are `[B, S]`; those behind the end of a shorter text are -1. Results are `[B, N]`.

    Args:
        decoder: the layers; their attention may see positions behind a query.
        has_embedding_norm, has_final_norm: whether embeddings, and the rows behind the last layer, are normalized.
        form: how the rows of a text become one result.
        weights: the trained values.
        session: how many texts, and tokens, a run has at most.

    Raises:
        CompileError: a tensor is missing, has another shape, or is none of this architecture's.
    """
    arrange(weights, decoder)
    document = Document(decoder.name)
    builder = _Builder(document, decoder, form, weights, session)
    x = builder.embedded()
    whole = Parts(document, weights, builder.used)
    if has_embedding_norm:
        x = normalized(document, x, decoder.norm, whole, "token_embd_norm", decoder.size)
    for n, layer in enumerate(decoder.layers):
        x = added_layer(document, decoder, layer, Parts(document, weights, builder.used, f"blk.{n}."), builder.at, x)
    if has_final_norm:
        x = normalized(document, x, decoder.norm, whole, "output_norm", decoder.size)
    result = builder.result(x, whole)
    refuse_unused(weights, decoder.name)
    return BuiltModel(document.text(builder.inputs, [result]), builder.used)


class _Builder:
    """The inputs of an encoder, and what follows from the lengths of texts."""

    def __init__(
        self, document: Document, decoder: Decoder, form: Encoding, weights: Weights, session: Session
    ) -> None:
        self._document, self._decoder, self._form, self._weights = document, decoder, form, weights
        self.used: dict[str, StoredTensor] = {}
        rows = document.symbol("B", session.sequences, "texts of this run")
        columns = document.symbol("S", session.context, "tokens of the longest one")
        self._columns, self._context = columns, session.context
        shape, external = [rows, columns], "tract_core_external"
        self._tokens = document.named("tokens", external, "integer", shape=shape, datum_type="i64")
        self.inputs = [self._tokens]
        if form.takes_segments:
            self.inputs.append(document.named("segments", external, "integer", shape=shape, datum_type="i64"))
        given = document.infix(">=", self._tokens, 0, "given", "logical")
        ones = document.call("select", given, 1, 0, content="integer")
        total = document.call("sum_reduce", ones, axes=[1], content="integer")
        self._lengths = document.call("squeeze", total, axes=[1], name="lengths", content="integer")
        self._given = document.call("unsqueeze", given, axes=[2], name="given", content="logical")
        self._steps = document.call("tract_core_range", 0, columns, step=1, name="steps", content="integer")
        self.at = Positions(None, rows, Literal("B * S"), self._angles(), self._lengths)

    def _angles(self) -> dict[str, tuple[Tensor, Tensor]]:
        decoder, document = self._decoder, self._document
        if not decoder.rotations:
            return {}
        column = document.call("unsqueeze", self._steps, axes=[0, 1, 3], content="integer")
        column = document.call("tract_core_cast", column, to="f32", name="column")
        width = decoder.angle_width
        return {name: angles_of(document, each, width, column, self.used) for name, each in decoder.rotations.items()}

    def embedded(self) -> Tensor:
        """Adds the embeddings of tokens, positions and segments, as far as there are tensors of them: `[B · S, D]`."""
        document, decoder, at = self._document, self._decoder, self.at
        parts = Parts(document, self._weights, self.used)
        known = document.call("max", self._tokens, 0, content="integer")
        x = self._rows_of(parts, "token_embd.weight", decoder.vocabulary, known)
        if decoder.embedding_scale != 1:
            x = document.infix("*", x, decoder.embedding_scale, "x")
        if parts.has("token_types.weight"):
            count = parts.rows_of("token_types.weight")
            if self._form.takes_segments:
                x = document.infix("+", x, self._rows_of(parts, "token_types.weight", count, self.inputs[1]), "x")
            else:
                types = parts.matrix("token_types.weight", (count, decoder.size), "types")
                x = document.infix("+", x, document.call("slice", types, axes=[0], begin=[0], end=[1]), "x")
        if parts.has("position_embd.weight"):
            count = parts.rows_of("position_embd.weight")
            if self._context > count:
                raise CompileError(
                    f"'{self._weights.source}' has embeddings of {count:,} positions: the context is {self._context:,}"
                )
            positions = parts.matrix("position_embd.weight", (count, decoder.size), "positions")
            rows = document.call("tract_core_gather", positions, self._steps, axis=0)
            apart = document.call("reshape", x, shape=[at.rows, self._columns, decoder.size])
            summed = document.infix("+", apart, document.call("unsqueeze", rows, axes=[0]))
            x = document.call("reshape", summed, shape=[at.flat, decoder.size], name="x")
        return x

    def _rows_of(self, parts: Parts, name: str, count: int, numbers: Tensor) -> Tensor:
        """Rows of a table, `[B · S, D]`."""
        table = parts.matrix(name, (count, self._decoder.size), "embeddings")
        flat = self._document.call("reshape", numbers, shape=[self.at.flat], content="integer")
        return self._document.call("tract_core_gather", table, flat, axis=0, name="x")

    def result(self, x: Tensor, parts: Parts) -> Tensor:
        """Adds the result of each text, of its rows."""
        document, form = self._document, self._form
        made, size = self._pooled(x), self._decoder.size
        for layer in form.layers:
            count = parts.rows_of(f"{layer.name}.weight")
            made = matrix_product(document, made, parts, layer.name, (count, size), "dense")
            made, size = made if layer.activation is None else activated(document, made, layer.activation), count
            if layer.norm is not None:
                made = normalized(document, made, self._decoder.norm, parts, layer.norm, size)
        if form.is_normalized:
            squares = document.call("sum_reduce", document.infix("*", made, made), axes=[1])
            made = document.infix("/", made, document.call("max", document.call("sqrt", squares), 1e-12))
        return document.call("copy", made, name="scores" if form.scores else "embeddings")

    def _pooled(self, x: Tensor) -> Tensor:
        """Adds the pooling of `[B · S, D]`: `[B, D]`."""
        document, at, pooling = self._document, self.at, self._form.pooling
        if pooling in ("cls", "last"):
            numbers = document.call("tract_core_range", 0, at.rows, step=1, content="integer")
            index = document.infix("*", numbers, self._columns, content="integer")
            if pooling == "last":
                last = document.infix(
                    "-", document.call("max", self._lengths, 1, content="integer"), 1, content="integer"
                )
                index = document.infix("+", index, last, content="integer")
            return document.call("tract_core_gather", x, index, axis=0, name="pooled")
        apart = document.call("reshape", x, shape=[at.rows, self._columns, self._decoder.size])
        hidden = -3.4e38 if pooling == "max" else 0.0
        kept = document.call("select", self._given, apart, hidden)
        reduce = "max_reduce" if pooling == "max" else "sum_reduce"
        made = document.call("squeeze", document.call(reduce, kept, axes=[1]), axes=[1], name="pooled")
        if pooling == "max":
            return made
        count = document.call("max", document.call("tract_core_cast", self._lengths, to="f32"), 1.0)
        count = count if pooling == "mean" else document.call("sqrt", count)
        return document.infix("/", made, document.call("unsqueeze", count, axes=[1]), "pooled")
