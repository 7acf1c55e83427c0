"""Builds the network of a decoder: embeddings, layers, logits, and the choice of a token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nnefc.frontends.decoder.alternating_updates import RowsOfPositions
from nnefc.frontends.decoder.blocks import Kept, Parts, Positions, matrix_product, normalized
from nnefc.frontends.decoder.choice import CHOICE, chosen
from nnefc.frontends.decoder.description import Decoder
from nnefc.frontends.decoder.document import Document, Literal, Tensor
from nnefc.frontends.decoder.layers import added_layer, angles_of
from nnefc.frontends.decoder.layout import arrange
from nnefc.frontends.decoder.weights import StoredTensor, Weights, shown
from nnefc.support.diagnostics import CompileError

__all__ = ["BuiltModel", "Session", "built", "refuse_unused"]


@dataclass(frozen=True)
class Session:
    """The state and the results of a session of a language model.

    Attributes:
        context: the maximum number of tokens of a conversation.
        sequences: the number of conversations in the state.
        candidates: of how many of the likeliest tokens the network chooses one; 0 for logits.
        quantize: to what matrices of floats are rounded; None for nothing.
        cache: how keys and values are kept, `f16`, `q8` or `f32`.
        rewind: how many of its last tokens a conversation can forget where layers have windows.
        all_logits: whether the logits are those of the tokens that the input `rows` lists, and not of the last ones.
    """

    context: int
    sequences: int = 1
    candidates: int = 0
    quantize: str | None = None
    cache: str = "f16"
    rewind: int = 256
    all_logits: bool = False


@dataclass(frozen=True)
class BuiltModel:
    """A model as a document of NNEF, and its tensors by their labels."""

    text: str
    tensors: Mapping[str, StoredTensor]


def built(decoder: Decoder, weights: Weights, session: Session) -> BuiltModel:
    """Builds the network of a decoder with its trained values.

    Raises:
        CompileError: a tensor is missing, has another shape, or is none of this architecture's.
    """
    arrange(weights, decoder)
    used: dict[str, StoredTensor] = {}
    document = Document(decoder.name)
    inputs, outputs = _graph(document, decoder, weights, used, session)
    refuse_unused(weights, decoder.name)
    return BuiltModel(document.text(inputs, outputs), used)


def refuse_unused(weights: Weights, architecture: str) -> None:
    """Refuses a model with a tensor that its network does not have.

    Raises:
        CompileError: there is one.
    """
    unknown = next(weights.unused(), None)
    if unknown is not None:
        raise CompileError(
            f"'{weights.source}': the tensor '{shown(unknown)}' is none of the architecture '{architecture}'",
            hint="such models are not supported",
        )


def _graph(
    document: Document, decoder: Decoder, weights: Weights, used: dict[str, StoredTensor], session: Session
) -> tuple[list[Tensor], list[Tensor]]:
    several = session.sequences > 1
    rows = document.symbol("B", session.sequences, "sequences of this run") if several else Literal("1")
    document.symbol("S", session.context, "tokens of this run")
    flat = Literal("B * S" if several else "S")
    external = "tract_core_external"
    tokens = document.named("tokens", external, "integer", shape=[rows, Literal("S")], datum_type="i64")
    inputs = [tokens]
    if several:
        inputs.append(document.named("sequences", external, "integer", shape=[rows], datum_type="i64"))
    given = {
        name: document.named(name, external, content, shape=[rows], datum_type=dtype)
        for name, (dtype, content) in (CHOICE.items() if session.candidates > 1 else ())
    }
    listed = _listed(document, session) if session.all_logits else None
    at, lengths = _positions(document, decoder, used, inputs, session, rows, flat)

    def rows_with_logits(x: Tensor) -> Tensor:
        if listed is None:
            return _last_rows(document, x, at, lengths, several)
        return document.call("tract_core_gather", x, listed, axis=0, name="listed")

    hidden = _hidden(document, decoder, weights, used, at, tokens, several, rows_with_logits)
    logits = _logits(document, decoder, Parts(document, weights, used), hidden)
    if not session.candidates:
        return inputs if listed is None else [*inputs, listed], [logits]
    return [*inputs, *given.values()], [chosen(document, logits, given, min(session.candidates, decoder.vocabulary))]


def _listed(document: Document, session: Session) -> Tensor:
    """Adds the input of the tokens' indices whose logits are returned, among all tokens of a run."""
    count = document.symbol("R", max(session.context, session.sequences), "tokens whose logits are returned")
    return document.named("rows", "tract_core_external", "integer", shape=[count], datum_type="i64")


def _positions(
    document: Document,
    decoder: Decoder,
    used: dict[str, StoredTensor],
    inputs: list[Tensor],
    session: Session,
    rows: Literal,
    flat: Literal,
) -> tuple[Positions, Tensor]:
    """Adds the positions of the tokens, and the angles by which they rotate heads."""
    count = {"count": session.sequences} if session.sequences > 1 else {}
    before, lengths = document.calls(
        "nnefc_positions", ["before", "lengths"], ["integer"] * 2, *inputs, **count, context=session.context
    )
    steps = document.call("tract_core_range", 0, Literal("S"), step=1, name="steps", content="integer")
    starts = document.call("unsqueeze", before, axes=[1], content="integer")
    row = document.call("unsqueeze", steps, axes=[0], content="integer")
    positions = document.infix("+", starts, row, "positions", "integer")
    column = document.call("unsqueeze", positions, axes=[1, 3], content="integer")
    column = document.call("tract_core_cast", column, to="f32", name="column")
    width = decoder.angle_width
    angles = {name: angles_of(document, rotation, width, column, used) for name, rotation in decoder.rotations.items()}
    kept = Kept(session.context, session.rewind, session.cache)
    return Positions(before, rows, flat, angles, lengths, kept), lengths


def _hidden(
    document: Document,
    decoder: Decoder,
    weights: Weights,
    used: dict[str, StoredTensor],
    at: Positions,
    tokens: Tensor,
    several: bool,
    rows_with_logits: Callable[[Tensor], Tensor],
) -> Tensor:
    """Adds the embeddings and all layers; returns the rows of the tokens whose logits are returned."""
    embeddings = Parts(document, weights, used).matrix(
        "token_embd.weight", (decoder.vocabulary, decoder.size), "embeddings"
    )
    known = document.call("max", tokens, 0, content="integer") if several else tokens  # -1 follows shorter sequences
    known = document.call("reshape", known, shape=[at.flat], content="integer")
    x = document.call("tract_core_gather", embeddings, known, axis=0, name="x")
    if decoder.embedding_scale != 1:
        x = document.infix("*", x, decoder.embedding_scale, "x")
    if decoder.updates is not None:
        rows = RowsOfPositions(document, decoder, decoder.updates, weights, used, at)
        x, own = rows.embedded(x, known)
        for n in range(len(decoder.layers)):
            x = rows.after_layer(x, own, n)
        return rows.joined(rows_with_logits(x))
    for n, layer in enumerate(decoder.layers):
        x = added_layer(document, decoder, layer, Parts(document, weights, used, f"blk.{n}."), at, x)
    return rows_with_logits(x)


def _last_rows(document: Document, x: Tensor, at: Positions, lengths: Tensor, several: bool) -> Tensor:
    """Adds the row of each sequence's last token."""
    if not several:
        return document.call("slice", x, axes=[0], begin=[-1], end=[0], name="last")
    starts = document.infix("*", document.call("tract_core_range", 0, at.rows, step=1, content="integer"), Literal("S"),
                            content="integer")  # fmt: skip
    ends = document.infix("+", starts, document.call("max", lengths, 1, content="integer"), content="integer")
    ends = document.infix("-", ends, 1, content="integer")
    return document.call("tract_core_gather", x, ends, axis=0, name="last")


def _logits(document: Document, decoder: Decoder, parts: Parts, last: Tensor) -> Tensor:
    last = normalized(document, last, decoder.norm, parts, "output_norm", decoder.size)
    shape = (decoder.vocabulary, decoder.size)
    if parts.has("output.weight"):
        made = matrix_product(document, last, parts, "output", shape, "output")
    else:
        embeddings = parts.matrix("token_embd.weight", shape, "embeddings")
        made = document.call("matmul", last, embeddings, transposeB=True)
    if decoder.logit_scale != 1:
        made = document.infix("*", made, decoder.logit_scale)
    if decoder.logit_cap:
        small = document.call("tanh", document.infix("/", made, decoder.logit_cap))
        made = document.infix("*", small, decoder.logit_cap)
    return document.call("copy", made, name="logits")
