"""Linear models of ai.onnx.ml: scores are weighted sums of features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, dtype_of, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.matrix import Gemm
from nnefc.operators.math.reduction import ArgMinMax
from nnefc.operators.ml.features import as_samples
from nnefc.operators.ml.scores import of_two, positive, transformed
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.unification import unify_dims

__all__ = ["LinearClassifier", "LinearRegressor"]


@dataclass(frozen=True, eq=False)
class _Linear(Operator):
    """The base of linear models.

    Attributes:
        weights: float32 `[scores, features]`.
        bias: float32 `[scores]`, or None.
        transform: the function that is applied to the scores, one of `TRANSFORMS`.
    """

    weights: Array
    bias: Array | None
    transform: str

    def _check(self, x: Shape) -> tuple[int, int]:
        """The numbers of samples, of a matrix or a vector, and of scores."""
        scores, features = self.weights.shape
        if len(x) not in (1, 2) or not unify_dims(x[-1], features):
            raise CompileError(f"{scores} times {features} coefficients do not fit the features of {list(x)}")
        if self.bias is not None and len(self.bias) not in (1, scores):
            raise CompileError(f"there are {len(self.bias)} intercepts for {scores} scores")
        return (x[0] if len(x) == 2 else 1), scores

    def _sums(self, ctx: Emitter, x: Operand) -> Operand:
        """The scores `[samples, scores]`, float64 if the samples are, else float32."""
        self._check(shape_of(x))
        x = as_samples(ctx, x)
        weights, bias = (None if c is None else ctx.apply(Cast(dtype_of(x)), c) for c in (self.weights, self.bias))
        made: Operand = ctx.apply(Gemm(transpose_b=True), x, weights, bias)
        return made


@dataclass(frozen=True, eq=False)
class LinearRegressor(_Linear):
    """Weighted sums of the features of each sample, float32 `[samples, targets]`. ai.onnx.ml `LinearRegressor`."""

    def shape(self, x: Shape) -> Shape:
        """A row for each sample."""
        return self._check(x)

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        return transformed(ctx, ctx.apply(Cast("float32"), self._sums(ctx, x)), self.transform)


@dataclass(frozen=True, eq=False)
class LinearClassifier(_Linear):
    """The number of the class with the highest score, int64, and the scores, float32. ai.onnx.ml `LinearClassifier`.

    With one row of weights for two classes it decides between these by the sign of its score; the other class has the
    negative score, or what it lacks of 1 where nothing, or a quantile, is made of scores. The standard does not say.

    Attributes:
        classes: how many there are.
    """

    classes: int

    def shape(self, x: Shape) -> tuple[Shape, Shape]:
        """A number, and a row of scores, for each sample."""
        samples, scores = self._check(x)
        return (samples,), (samples, 2 if self.classes == 2 else scores)

    def lower(self, ctx: Emitter, x: Operand) -> tuple[Operand, Operand]:
        scores = ctx.apply(Cast("float32"), self._sums(ctx, x))
        rows = len(self.weights)
        if rows == 1:
            best = positive(ctx, scores)
            if self.classes == 2:
                other: Literal["negative", "complement"]
                other = "complement" if self.transform in ("NONE", "PROBIT") else "negative"
                return best, of_two(ctx, scores, self.transform, other)
            return best, transformed(ctx, scores, self.transform)
        if rows != self.classes:
            raise CompileError(f"there are {rows} rows of coefficients for {self.classes} classes")
        return ctx.apply(ArgMinMax((1,)), scores), transformed(ctx, scores, self.transform)
