"""Support vector machines of ai.onnx.ml: scores are weighted sums of a sample's similarities to the support vectors.

The similarity of two vectors is a kernel: `a·b`, `(g a·b + c)^d`, `tanh(g a·b + c)`, or `exp(-g |a - b|²)`, whose
distances are summed up as they are: `|a|² - 2 a·b + |b|²` would lose them where they are small.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, dtype_of, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.matrix import Gemm, MatMul
from nnefc.operators.math.reduction import ArgMinMax
from nnefc.operators.ml.features import as_samples
from nnefc.operators.ml.scores import of_two, transformed
from nnefc.operators.statements import T, each, looped
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.unification import unify_dims

__all__ = ["KERNELS", "SimilarityKernel", "SupportVectorClassifier", "SupportVectorRegressor"]

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


@dataclass(frozen=True, eq=False)
class SimilarityKernel:
    """How similar samples are to the support vectors.

    Attributes:
        kind: one of `KERNELS`.
        gamma, offset, degree: of the formulas above.
        vectors: float32 `[vectors, features]`.
    """

    kind: str
    gamma: float
    offset: float
    degree: float
    vectors: Array

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        """The similarities `[samples, vectors]` of samples `[samples, features]`."""
        if not unify_dims(shape_of(x)[1], self.vectors.shape[1]):
            raise CompileError(f"vectors of {self.vectors.shape[1]} features do not fit samples {list(shape_of(x))}")
        if self.kind == "RBF":
            return self._of_distances(ctx, x)
        dot = ctx.apply(MatMul(transpose_b=True), x, self.vectors.astype(dtype_of(x)))
        if self.kind == "LINEAR":
            made: Operand = dot
            return made
        gamma, offset, degree = (ctx.expr(ctx.number(v, x)) for v in (self.gamma, self.offset, self.degree))
        inner = ctx.emit(relax.op.add(ctx.emit(relax.op.multiply(ctx.expr(dot), gamma)), offset))
        if self.kind == "SIGMOID":
            return ctx.emit(relax.op.tanh(inner))
        if self.kind == "POLY":
            return self._power(ctx, inner) if self.degree in range(1, 9) else ctx.emit(relax.op.power(inner, degree))
        raise CompileError(f"the kernel '{self.kind}' is unknown")

    def _power(self, ctx: Emitter, inner: relax.Expr) -> relax.Expr:
        """Emit the power by multiplications, which are right for negative bases, too."""
        made = inner
        for _ in range(int(self.degree) - 1):
            made = ctx.emit(relax.op.multiply(made, inner))
        return made

    def _of_distances(self, ctx: Emitter, x: Operand) -> Operand:
        features = shape_of(x)[1]
        transposed = np.ascontiguousarray(self.vectors.T).astype(dtype_of(x))

        def distances(x: te.Tensor, vectors: te.Tensor) -> te.Tensor:
            k = te.reduce_axis((0, features), "feature")

            def element(n: tirx.Var, j: tirx.Var) -> Any:
                difference = x(n, k) - vectors(k, j)
                return te.sum(difference * difference, axis=k)

            return te.compute((x.shape[0], vectors.shape[1]), element, name="distances")

        squares = ctx.emit(ctx.compute(distances, x, transposed, name="distances"))
        return ctx.emit(relax.op.exp(ctx.emit(relax.op.multiply(squares, ctx.expr(ctx.number(-self.gamma, x))))))


@dataclass(frozen=True, eq=False)
class SupportVectorRegressor(Operator):
    """A value for each sample, float32 `[samples, 1]`. ai.onnx.ml `SVMRegressor`.

    Attributes:
        kernel: the support vectors; or None if the coefficients weigh features.
        coefficients: float32, one for each vector or feature.
        rho: added to the sum.
        one_class: whether the value becomes 1 or -1, by its sign.
        transform: what becomes of the value, one of `TRANSFORMS`.
    """

    kernel: SimilarityKernel | None
    coefficients: Array
    rho: float
    one_class: bool
    transform: str

    def shape(self, x: Shape) -> Shape:
        """A row for each sample, of a matrix or a vector."""
        return (x[0] if len(x) == 2 else 1), 1

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        x = as_samples(ctx, x)
        similar = x if self.kernel is None else self.kernel.lower(ctx, x)
        if not unify_dims(shape_of(similar)[1], len(self.coefficients)):
            raise CompileError(f"there are {len(self.coefficients)} coefficients for {list(shape_of(similar))} values")
        column = self.coefficients.reshape(-1, 1).astype(dtype_of(x))
        score = ctx.apply(Gemm(), similar, column, ctx.number(self.rho, x).reshape(1))
        score = ctx.apply(Cast("float32"), score)
        if not self.one_class:
            return transformed(ctx, score, self.transform)

        def sign(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            inside = tensors[0](*index) > tirx.const(0, "float32")
            return tirx.Select(inside, tirx.const(1, "float32"), tirx.const(-1, "float32"))

        return ctx.elements(shape_of(score), sign, score, name="one_class")


@dataclass(frozen=True, eq=False)
class SupportVectorClassifier(Operator):
    """The number of the class of each sample, int64, and scores, float32. ai.onnx.ml `SVMClassifier`.

    With support vectors each pair of classes has a score, whose sign votes for one of the two; the class with the most
    votes is taken. With `platt`, a score becomes the probability of the first of two, and the scores are those
    probabilities of classes that fit these best (Wu, Lin, Weng, "Probability Estimates for Multi-class Classification
    by Pairwise Coupling", 2004, second method, with the steps of LIBSVM). Without support vectors, each class
    has a weighted sum of features.

    Attributes:
        kernel: the support vectors, class by class; or None.
        counts: of each class, its support vectors.
        coefficients: float32 `[classes - 1, vectors]`, or `[classes, features]`: a vector of class `i` has the weight
            in row `j` against class `j + 1` if `j >= i`, else against class `j`.
        rho: float32, added to the scores of the pairs (0, 1), (0, 2), …, (1, 2), …; without vectors its first, to all
            sums.
        platt: float32, `a` and `b` of the probabilities `1 / (1 + exp(a score + b))`, `[2, pairs]`; or None.
        transform: what becomes of scores, one of `TRANSFORMS`.
    """

    kernel: SimilarityKernel | None
    counts: tuple[int, ...]
    coefficients: Array
    rho: Array
    platt: Array | None
    transform: str

    def shape(self, x: Shape) -> tuple[Shape, Shape]:
        """A number, and a row of scores of classes or of pairs, for each sample."""
        samples, classes = (x[0] if len(x) == 2 else 1), self._classes
        columns = classes if self.kernel is None or self.platt is not None else max(2, classes * (classes - 1) // 2)
        return (samples,), (samples, columns)

    @property
    def _classes(self) -> int:
        return len(self.coefficients) if self.kernel is None else len(self.counts)

    def lower(self, ctx: Emitter, x: Operand) -> tuple[Operand, Operand]:
        x = as_samples(ctx, x)
        if self.kernel is None:
            return self._linear(ctx, x)
        pairs = self._of_pairs(ctx, x)
        if self.platt is not None:
            votes = self._votes(ctx, pairs)
            found = self._coupled(ctx, pairs)
            return ctx.apply(ArgMinMax((1,)), votes), transformed(ctx, found, self.transform)
        best = ctx.apply(ArgMinMax((1,)), self._votes(ctx, pairs))
        scores = ctx.apply(Cast("float32"), pairs)
        if self._classes == 2:
            return best, of_two(ctx, scores, self.transform, "negative")
        return best, transformed(ctx, scores, self.transform)

    def _linear(self, ctx: Emitter, x: Operand) -> tuple[Operand, Operand]:
        weights = self.coefficients.astype(dtype_of(x))
        if not unify_dims(shape_of(x)[1], weights.shape[1]):
            raise CompileError(f"{weights.shape[1]} coefficients do not fit the samples {list(shape_of(x))}")
        scores = ctx.apply(Gemm(transpose_b=True), x, weights, self.rho[:1].astype(dtype_of(x)))
        scores = ctx.apply(Cast("float32"), scores)
        return ctx.apply(ArgMinMax((1,)), scores), transformed(ctx, scores, self.transform)

    def _of_pairs(self, ctx: Emitter, x: Operand) -> Operand:
        """The scores `[samples, pairs]`."""
        assert self.kernel is not None
        similar = self.kernel.lower(ctx, x)
        ends = list(accumulate(self.counts, initial=0))
        own = [slice(*pair) for pair in pairwise(ends)]
        couples = list(combinations(range(self._classes), 2))
        weights = np.zeros((ends[-1], len(couples)), np.float32)
        for column, (i, j) in enumerate(couples):
            weights[own[i], column] = self.coefficients[j - 1, own[i]]
            weights[own[j], column] = self.coefficients[i, own[j]]
        made: Operand = ctx.apply(Gemm(), similar, weights.astype(dtype_of(x)), self.rho.astype(dtype_of(x)))
        return made

    def _votes(self, ctx: Emitter, pairs: Operand) -> Operand:
        """Returns how many pairs decide for each class, float32 `[samples, classes]`."""
        (samples, count), classes = shape_of(pairs), self._classes

        def write(scores: Any, votes: Any) -> None:
            with T.serial(0, samples) as sample:
                with T.serial(0, classes) as i:
                    votes[sample * classes + i] = tirx.const(0, "float32")
                with T.serial(0, classes) as i, T.serial(0, classes - 1 - i) as k:
                    first = scores[sample * count + _pair(i, classes) + k] > tirx.const(0, dtype_of(pairs))
                    winner = T.bind(sample * classes + tirx.Select(first, i, i + 1 + k))
                    votes[winner] = votes[winner] + tirx.const(1, "float32")

        return looped(ctx, write, [pairs], [((samples, classes), "float32")], "vote")[0]

    def _coupled(self, ctx: Emitter, pairs: Operand) -> Operand:
        """The probabilities of classes, float32 `[samples, classes]`, from those of pairs."""
        assert self.platt is not None
        (samples, count), classes = shape_of(pairs), self._classes
        square = classes * classes

        def write(
            scores: Any, platt: Any, out: Any, best: Any, matrix: Any, found: Any, moves: Any, state: Any
        ) -> None:
            with each(samples, samples * square * 16) as sample:
                parts = _Parts(classes, sample * classes, sample * square, sample * 4)
                with T.serial(0, classes) as i, T.serial(0, classes - 1 - i) as k:
                    pair, j = _pair(i, classes) + k, i + 1 + k
                    power = platt[pair] * scores[sample * count + pair].astype("float64") + platt[count + pair]
                    one = T.bind(tirx.const(1, "float64") / (tirx.const(1, "float64") + tirx.exp(power)))
                    one = T.bind(tirx.max(tirx.const(_MIN, "float64"), tirx.min(one, tirx.const(1 - _MIN, "float64"))))
                    best[parts.square + i * classes + j] = one
                    best[parts.square + j * classes + i] = tirx.const(1, "float64") - one
                _couple(parts, best, matrix, found, moves, state)
                with T.serial(0, classes) as i:
                    out[parts.row + i] = found[parts.row + i].astype("float32")

        results = [
            ((samples, classes), "float32"),
            *[((samples, square), "float64")] * 2,
            *[((samples, classes), "float64")] * 2,
            ((samples, 4), "float64"),
        ]
        return looped(ctx, write, [pairs, self.platt.astype(np.float64)], results, "couple")[0]


_MIN = 1e-7
"""The smallest probability of a class against another."""


def _pair(i: Any, classes: int) -> Any:
    """The number of the first pair whose first class is `i`."""
    return tirx.floordiv(i * (2 * classes - 1 - i), 2)


@dataclass(frozen=True)
class _Parts:
    """Offsets of a sample's values: those of classes, of pairs of classes in a matrix, and of its state."""

    classes: int
    row: Any
    square: Any
    state: Any


def _couple(at: _Parts, one: Any, matrix: Any, found: Any, moves: Any, state: Any) -> None:
    """Let `found` be the probabilities of classes whose ratios are nearest to those of pairs, `one`: the minimum of
    `p Q p` with a sum of 1, by turns along each class. `moves` is `Q p`, the first of `state` is `p Q p`.
    """
    count, zero = at.classes, tirx.const(0, "float64")
    with T.serial(0, count) as t:
        found[at.row + t] = tirx.const(1 / count, "float64")
        matrix[at.square + t * count + t] = zero
        with T.serial(0, count) as j, T.If(j != t), T.Then():
            other = T.bind(one[at.square + j * count + t])
            matrix[at.square + t * count + t] = matrix[at.square + t * count + t] + other * other
            matrix[at.square + t * count + j] = zero - other * one[at.square + t * count + j]
    state[at.state + 1] = tirx.const(max(100, count), "float64")
    with T.While(state[at.state + 1] > zero):
        state[at.state] = zero
        with T.serial(0, count) as t:
            moves[at.row + t] = zero
            with T.serial(0, count) as j:
                moves[at.row + t] = moves[at.row + t] + matrix[at.square + t * count + j] * found[at.row + j]
            state[at.state] = state[at.state] + found[at.row + t] * moves[at.row + t]
        state[at.state + 2] = zero
        with T.serial(0, count) as t:
            away = tirx.abs(moves[at.row + t] - state[at.state])
            state[at.state + 2] = tirx.max(state[at.state + 2], away)
        state[at.state + 1] = tirx.Select(
            state[at.state + 2] < tirx.const(0.005 / count, "float64"),
            tirx.const(-1, "float64"),
            state[at.state + 1] - tirx.const(1, "float64"),
        )
        with T.If(state[at.state + 1] >= zero), T.Then(), T.serial(0, count) as t:
            _move(at, t, matrix, found, moves, state)


def _move(at: _Parts, t: Any, matrix: Any, found: Any, moves: Any, state: Any) -> None:
    """Go to the minimum along one class."""
    count, one, two = at.classes, tirx.const(1, "float64"), tirx.const(2, "float64")
    own = T.bind(matrix[at.square + t * count + t])
    step = T.bind((state[at.state] - moves[at.row + t]) / own)
    found[at.row + t] = found[at.row + t] + step
    scale = T.bind(one / (one + step))
    state[at.state] = (state[at.state] + step * (step * own + two * moves[at.row + t])) * scale * scale
    with T.serial(0, count) as j:
        moves[at.row + j] = (moves[at.row + j] + step * matrix[at.square + t * count + j]) * scale
        found[at.row + j] = found[at.row + j] * scale
