"""Mixtures of experts: layers of which each row uses a few (Shazeer et al., 2017).

    y[t] = sum over j of share[t, j] * second(activation(first(x[t]))), layers of the expert chosen[t, j]

The layers of all experts are one matrix with the rows of each expert below those of the one before, so that matrices in
blocks stay what they are: `passes/legalize/pack_block_matmul.py` dequantizes inside of the products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from tvm import te, tirx

from nnefc.ir.attributes import EXPERT_PRODUCTS
from nnefc.operators.base import Emitter, Operand, Operator, Shape, shape_of
from nnefc.operators.math.elementwise import Clip, apply
from nnefc.operators.math.reduction import Sum
from nnefc.operators.nn.activation import Gelu, Relu, Silu, Softmax
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.sorting import TopK
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import dimensions
from nnefc.symbolic.unification import unify_dims, unify_shapes

__all__ = ["ChosenExperts", "ExpertLayer", "MixtureOfExperts", "expert_products"]


class ExpertLayer(NamedTuple):
    """A layer of all experts.

    Attributes:
        weights: `[experts · out, in]`.
        bias: `[experts, out]`; None for none.
    """

    weights: Operand
    bias: Operand | None


def expert_products(x: te.Tensor, chosen: te.Tensor, weights: te.Tensor, total: int) -> te.Tensor:
    """`[T, in]` or `[T, k, in]` rows times the matrices that `[T, k]` numbers choose: `[T, k, out]`.

    Args:
        x: rows.
        chosen: numbers of experts; one out of range counts as the nearest.
        weights: `[total · out, in]`, which may be of a narrower type than rows.
        total: how many experts there are.
    """
    (rows, count), (lines, inputs) = dimensions(chosen.shape), dimensions(weights.shape)
    outputs, last = lines // total, total - 1
    k = te.reduce_axis((0, inputs), "k")

    def element(t: tirx.Var, j: tirx.Var, o: tirx.Var) -> tirx.Expr:
        scalar = x(t, k) if len(x.shape) == 2 else x(t, j, k)
        expert = tirx.max(tirx.min(chosen(t, j).astype("int64"), last), tirx.const(0, "int64"))
        return te.sum(scalar * weights(expert * outputs + o, k).astype(x.dtype), axis=[k])

    return te.compute((rows, count, outputs), element, name="experts")


@dataclass(frozen=True)
class ChosenExperts(Operator):
    """A network of two layers for each row, the sum of those of the experts that are chosen for it.

    Attributes:
        total: how many experts there are.
        activation: of the first layer: "relu", "gelu", "gelu_tanh", "silu", "identity"; "swiglu" of both halves of its
            results, or "clamped" of its results and those of the third layer.
        alpha, beta, limit: of "swiglu" and "clamped": `g sigmoid(alpha g) (l + beta)`, of `g` and `l` that are cut off
            at the limit.
        interleaved: whether `g` and `l` of the first layer take turns; else all of `g` come first.
    """

    total: int
    activation: str
    alpha: float = 1.0
    beta: float = 0.0
    limit: float | None = None
    interleaved: bool = False

    def shape(self, x: Shape, chosen: Shape, shares: Shape, *layers: Any) -> Shape:
        """Return the shape of the rows, `[T, width]`."""
        if len(chosen) != 2 or not unify_shapes(chosen, shares) or not unify_dims(x[0], chosen[0]):
            raise CompileError(f"the chosen experts {list(chosen)} do not fit the rows {list(x)}")
        return x

    def lower(
        self,
        ctx: Emitter,
        x: Operand,
        chosen: Operand,
        shares: Operand,
        first: ExpertLayer,
        second: ExpertLayer,
        third: ExpertLayer | None = None,
    ) -> Operand:
        """Lower it.

        Args:
            ctx: where to build.
            x: rows, `[T, width]`.
            chosen: numbers of experts, `[T, k]`.
            shares: what their results are multiplied with, `[T, k]`.
            first, second: the layers.
            third: a factor of the first layer's activation; None for none.
        """
        self.shape(shape_of(x), shape_of(chosen), shape_of(shares))
        inner = self._products(ctx, x, chosen, first)
        linear = None if third is None else self._products(ctx, x, chosen, third)
        if self.activation == "clamped" and linear is not None:
            inner = self._clamped(ctx, inner, linear)
        else:
            inner = self._activated(ctx, inner)
            inner = inner if linear is None else apply(ctx, "multiply", inner, linear)
        made = self._products(ctx, inner, chosen, second)
        weighted = apply(ctx, "multiply", made, ctx.reshaped(shares, (*shape_of(shares), 1)))
        return Sum((1,)).lower(ctx, weighted)

    def _products(self, ctx: Emitter, x: Operand, chosen: Operand, layer: ExpertLayer) -> Operand:
        """A layer of each of a row's experts, `[T, k, out]`, of rows `[T, in]` or `[T, k, in]`."""
        lines, inputs = shape_of(layer.weights)
        if not unify_dims(shape_of(x)[-1], inputs) or lines % self.total:
            raise CompileError(f"the weights {list(shape_of(layer.weights))} do not fit {list(shape_of(x))}")

        def products(x: te.Tensor, chosen: te.Tensor, weights: te.Tensor) -> te.Tensor:
            return expert_products(x, chosen, weights, self.total)

        attrs = {EXPERT_PRODUCTS: self.total}
        made: Operand = ctx.emit(ctx.compute(products, x, chosen, layer.weights, name="experts", attrs=attrs))
        return made if layer.bias is None else apply(ctx, "add", made, ctx.apply(Gather(0), layer.bias, chosen))

    def _activated(self, ctx: Emitter, x: Operand) -> Operand:
        made: Operand
        if self.activation == "swiglu":
            return self._gated(ctx, x)
        kinds: dict[str, Operator | None] = {
            "relu": Relu(),
            "gelu": Gelu(),
            "gelu_tanh": Gelu(approximate=True),
            "silu": Silu(),
            "identity": None,
        }
        if self.activation not in kinds:
            raise CompileError(f"the activation '{self.activation}' is not supported")
        kind = kinds[self.activation]
        made = x if kind is None else ctx.apply(kind, x)
        return made

    def _gated(self, ctx: Emitter, x: Operand) -> Operand:
        """`[T, k, 2 n]` as `[T, k, n]`."""
        *outer, width = shape_of(x)
        half = width // 2

        def part(offset: int) -> Operand:
            def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
                *position, i = index
                return tensors[0](*position, 2 * i + offset if self.interleaved else i + offset * half)

            return ctx.emit(ctx.elements((*outer, half), element, x, name="half"))

        return self._clamped(ctx, part(0), part(1))

    def _clamped(self, ctx: Emitter, gate: Operand, linear: Operand) -> Operand:
        """`g sigmoid(alpha g) (l + beta)` of numbers that are cut off at the limit."""
        if self.limit is not None:
            high, low = ctx.number(self.limit, gate), ctx.number(-self.limit, gate)
            gate, linear = ctx.apply(Clip(), gate, None, high), ctx.apply(Clip(), linear, low, high)
        gate = ctx.apply(Silu(self.alpha), gate)
        return apply(ctx, "multiply", gate, apply(ctx, "add", linear, ctx.number(self.beta, linear)))


@dataclass(frozen=True)
class MixtureOfExperts(Operator):
    """A network of two layers for each row, the sum of those of a few experts (Shazeer et al., 2017).

    Attributes:
        count: how many experts a row has: those of the largest probabilities.
        activation, alpha, beta, limit, interleaved: see :class:`ChosenExperts`.
        normalized: whether the probabilities of a row's experts are divided by their sum.
        gate: what makes probabilities of scores: "softmax", "sigmoid" of each, or "none".
    """

    count: int
    activation: str
    normalized: bool = False
    alpha: float = 1.0
    beta: float = 0.0
    limit: float | None = None
    interleaved: bool = False
    gate: str = "softmax"

    def shape(self, x: Shape, scores: Shape, *layers: Shape | None) -> Shape:
        """Return the shape of the rows, `[T, width]`."""
        if len(scores) != 2 or not unify_dims(x[0], scores[0]) or not 0 < self.count <= scores[1]:
            raise CompileError(f"{self.count} of the experts in {list(scores)} do not fit the rows {list(x)}")
        for layer in layers:
            if layer is not None and not unify_dims(layer[0], scores[1]):
                raise CompileError(
                    f"the layers {list(layer)} are not those of the {scores[1]} experts that have scores"
                )
        return x

    def lower(
        self,
        ctx: Emitter,
        x: Operand,
        scores: Operand,
        first: Operand,
        first_bias: Operand | None,
        second: Operand,
        second_bias: Operand | None = None,
        third: Operand | None = None,
        third_bias: Operand | None = None,
    ) -> Operand:
        """Weights are `[experts, out, in]`, biases `[experts, out]`; the third layer is a factor of the first's."""
        parts = (first, first_bias, second, second_bias, third, third_bias)
        self.shape(shape_of(x), shape_of(scores), *(None if part is None else shape_of(part) for part in parts))
        if self.gate == "softmax":
            scores = ctx.apply(Softmax((1,)), scores)
        elif self.gate == "sigmoid":
            scores = apply(ctx, "sigmoid", scores)
        shares, chosen = ctx.apply(TopK(1, self.count), scores)
        if self.normalized:
            shares = apply(ctx, "divide", shares, ctx.apply(Sum((1,), keepdims=True), shares))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        layers = [None if weights is None else _layer(ctx, weights, bias) for weights, bias in pairs]
        assert layers[0] is not None and layers[1] is not None
        operator = ChosenExperts(
            shape_of(first)[0], self.activation, self.alpha, self.beta, self.limit, self.interleaved
        )
        return operator.lower(ctx, x, chosen, shares, layers[0], layers[1], layers[2])


def _layer(ctx: Emitter, weights: Operand, bias: Operand | None) -> ExpertLayer:
    """A layer of `[experts, out, in]` weights."""
    shape = shape_of(weights)
    return ExpertLayer(ctx.reshaped(weights, (math.prod(shape[:-1]), shape[-1])), bias)
