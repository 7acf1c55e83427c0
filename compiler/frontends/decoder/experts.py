"""Builds mixtures of experts: a router that chooses a few for each row, and the layers of those."""

from __future__ import annotations

from typing import Any

from nnefc.frontends.decoder.blocks import Parts, Positions, fed, matrix_product
from nnefc.frontends.decoder.description import Experts
from nnefc.frontends.decoder.document import Scope, Tensor

__all__ = ["mixed"]

_NEVER = -1e9
"""A score that no expert has."""
_LAYERS = (("w1", "gate"), ("w2", "down"), ("w3", "up"))


def mixed(scope: Scope, x: Tensor, form: Experts, parts: Parts, at: Positions, size: int) -> Tensor:
    """Adds experts, and the layer that all rows use besides."""
    count = parts.rows_of("ffn_gate_inp.weight")
    inner = parts.rows_of("ffn_up_exps.weight") // count

    def build(body: Scope, x: Tensor) -> Tensor:
        chosen, shares = _routed(body, x, form, parts, at, (count, size))
        shapes = {"gate": (inner, size), "up": (inner, size), "down": (size, inner)}
        layers = [
            parts.matrix(f"ffn_{part}_exps.weight", (count * shapes[part][0], shapes[part][1]), part)
            for _, part in _LAYERS
        ]
        options: dict[str, Any] = {"count": count, "activation": form.activation}
        for key, part in _LAYERS:
            bias = parts.optional(f"ffn_{part}_exps.bias", (count, shapes[part][0]), f"{part}_bias")
            options |= {} if bias is None else {f"{key}_bias": bias}
        options |= {"alpha": form.alpha, "limit": form.limit} if form.limit else {}
        return body.call("nnefc_experts", x, chosen, shares, *layers, **options)

    made = scope.block("experts", build, x)
    if form.shared is None:
        return made
    shared = fed(scope, x, form.shared, parts, size, "_shexp")
    if parts.has("ffn_gate_inp_shexp.weight"):
        weight = parts.matrix("ffn_gate_inp_shexp.weight", parts.shape_of("ffn_gate_inp_shexp.weight"), "shared_gate")
        score = scope.call("sigmoid", scope.call("matmul", x, weight, transposeB=True))
        shared = scope.infix("*", shared, score)
    return scope.infix("+", made, shared)


def _routed(
    body: Scope, x: Tensor, form: Experts, parts: Parts, at: Positions, shape: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Adds the choice of experts: their numbers and their shares, `[B · S, k]`."""
    scores = matrix_product(body, x, parts, "ffn_gate_inp", shape, "router")
    if form.scoring == "sigmoid":
        chances = body.call("sigmoid", scores, name="chances")
    else:
        chances = body.call("softmax", scores, axes=[1], name="chances")
    bias = parts.optional("exp_probs_b.bias", shape[:1], "choice_bias")
    choice = chances if bias is None else body.infix("+", chances, bias, "choice")
    if form.groups > 1:
        choice = _of_best_groups(body, choice, form, at, shape[0])
    _, chosen = body.calls("tract_core_topk", ["best", "chosen"], ["scalar", "integer"], choice, k=form.count, axis=1)
    shares = body.call("tract_core_gather_elements", chances, chosen, axis=1, name="shares")
    if form.is_normalized:
        shares = body.infix("/", shares, body.call("sum_reduce", shares, axes=[1]), "shares")
    return chosen, shares if form.scale == 1 else body.infix("*", shares, form.scale, "shares")


def _of_best_groups(body: Scope, choice: Tensor, form: Experts, at: Positions, count: int) -> Tensor:
    """Adds the scores, `[B · S, experts]`, as they are in the groups with the best ones, and too small elsewhere."""
    apart = body.call("reshape", choice, shape=[at.flat, form.groups, count // form.groups], name="apart")
    if form.group_terms == 1:
        best = body.call("max_reduce", apart, axes=[2])
    else:
        contents = ["scalar", "integer"]
        terms, _ = body.calls("tract_core_topk", ["terms", "numbers"], contents, apart, k=form.group_terms, axis=2)
        best = body.call("sum_reduce", terms, axes=[2])
    best = body.call("squeeze", best, axes=[2])
    contents = ["scalar", "integer"]
    _, used = body.calls("tract_core_topk", ["best", "used"], contents, best, k=form.groups_used, axis=1)
    marks = body.call("tract_core_one_hot", used, axis=2, dim=form.groups, value_off=0.0, value_on=1.0)
    marked = body.call("transpose", body.call("sum_reduce", marks, axes=[1]), axes=[0, 2, 1])
    kept = body.call("select", body.infix(">", marked, 0.5, content="logical"), apart, _NEVER)
    return body.call("reshape", kept, shape=[at.flat, count], name="choice")
