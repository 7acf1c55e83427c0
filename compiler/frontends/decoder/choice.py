"""Builds the choice of the next token among the likeliest ones: temperature, top-k and top-p."""

from __future__ import annotations

from collections.abc import Mapping

from nnefc.frontends.decoder.document import Document, Scope, Tensor

__all__ = ["CHOICE", "chosen"]

CHOICE = {
    "temperature": ("f32", "scalar"),
    "top_k": ("i64", "integer"),
    "top_p": ("f32", "scalar"),
    "chance": ("f32", "scalar"),
}
"""The inputs of a network that chooses tokens, one element for each sequence."""


def chosen(document: Document, logits: Tensor, given: Mapping[str, Tensor], count: int) -> Tensor:
    """Adds the choice of one of the `count` likeliest tokens; without inputs, of the likeliest."""
    if not given:
        best = document.call("argmax_reduce", logits, axes=[1], content="integer")
        flat = document.call("squeeze", best, axes=[1], content="integer")
        return document.call("tract_core_cast", flat, to="i64", name="token", content="integer")

    def build(body: Scope, logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, chance: Tensor) -> Tensor:
        return _drawn(body, logits, temperature, top_k, top_p, chance, count)

    made = document.block("chosen", build, logits, *given.values())
    return document.call("copy", made, name="token", content="integer")


def _drawn(
    body: Scope, logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, chance: Tensor, count: int
) -> Tensor:
    """Adds the draw: `chance`, from 0 up to 1, is a share of the probabilities that are kept."""

    def column(x: Tensor) -> Tensor:
        return body.call("unsqueeze", x, axes=[1], content=x.content)

    def total(x: Tensor) -> Tensor:
        return body.call("sum_reduce", x, axes=[1])

    best, tokens = body.calls("tract_core_topk", ["best", "tokens"], ["scalar", "integer"], logits, k=count, axis=1)
    shifted = body.infix("-", best, body.call("max_reduce", best, axes=[1]))
    powers = body.call("exp", body.infix("/", shifted, body.call("max", column(temperature), 1e-6)))
    steps = body.call("tract_core_range", 0, count, step=1, content="integer")
    ranks = body.call("unsqueeze", steps, axes=[0], content="integer")
    listed = body.call("select", body.infix("<", ranks, column(top_k)), powers, 0.0)
    before = body.call("tract_core_cumsum", listed, axis=1, exclusive=True)
    limit = body.infix("*", column(top_p), total(listed))
    kept = body.call("select", body.infix("<", before, limit), listed, 0.0)
    passed = body.infix(
        "<=", body.call("tract_core_cumsum", kept, axis=1), body.infix("*", column(chance), total(kept))
    )
    index = total(body.call("select", passed, 1, 0, content="integer"))
    last = body.infix("-", total(body.call("select", body.infix(">", kept, 0.0), 1, 0, content="integer")), 1)
    index = body.call("max", body.call("min", index, last), 0, content="integer")
    drawn = body.call("select", body.infix(">", column(temperature), 0.0), index, 0, content="integer")
    token = body.call("tract_core_gather_elements", tokens, drawn, axis=1, content="integer")
    return body.call("squeeze", token, axes=[1], name="token", content="integer")
