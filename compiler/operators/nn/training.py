"""Optimizer steps: compute the new value of a parameter and of its optimizer state from the gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import tirx

from nnefc.operators.base import Emitter, Operand, Operator, Shape, shape_of
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.unification import unify_shapes

__all__ = ["Adagrad", "Adam", "Momentum"]


def _like(x: Any, value: float) -> tirx.Expr:
    return tirx.const(value, str(x.expr_ty().dtype))


def _as(value: Any, x: Any) -> tirx.Expr:
    return value.astype(str(x.expr_ty().dtype))


_Formula = Callable[..., tirx.Expr]


@dataclass(frozen=True)
class _Step(Operator):
    """The base of optimizers, as ai.onnx.preview.training defines them.

    The operands are the learning rate, the number of steps before, int64, both without dimensions, a parameter, its
    gradient, and what is kept for it. The results are the parameter's new value, and those of what is kept.

    Attributes:
        norm_coefficient: the parameter, multiplied by it, is added to the gradient.
    """

    norm_coefficient: float
    kept: ClassVar[int] = 1
    """How many tensors are kept for a parameter."""

    def shape(self, rate: Shape, steps: Shape, x: Shape, *others: Shape) -> tuple[Shape, ...]:
        """Return the shape of the parameter for all."""
        if rate or steps or not all(unify_shapes(x, other) for other in others):
            shapes = ", ".join(str(list(shape)) for shape in others)
            raise CompileError(f"the gradient and what is kept for a parameter {list(x)} have other shapes: {shapes}")
        return (x,) * (1 + self.kept)

    def lower(self, ctx: Emitter, rate: Operand, steps: Operand, x: Operand, *others: Operand) -> tuple[Operand, ...]:
        def of(formula: _Formula) -> Callable[..., tirx.Expr]:
            return lambda tensors, index: formula(tensors[0](), tensors[1](), *(t(*index) for t in tensors[2:]))

        name = type(self).__name__.lower()
        operands = (rate, steps, x, *others)
        self.shape(*map(shape_of, operands))
        return tuple(ctx.elements(shape_of(x), of(formula), *operands, name=name) for formula in self._formulas())

    def _formulas(self) -> Sequence[_Formula]:
        """The results as functions of the elements of the operands."""
        raise NotImplementedError

    def _regularized(self, x: Any, gradient: Any) -> Any:
        return gradient + x * _like(x, self.norm_coefficient)


@dataclass(frozen=True)
class Momentum(_Step):
    """Gradient descent with momentum: the velocity is kept.

    Attributes:
        alpha: of the velocity that stays.
        beta: of the gradient that is added to it, after the first step.
        nesterov: whether the parameter moves by the gradient and the velocity after it (Nesterov, 1983).
    """

    alpha: float
    beta: float
    nesterov: bool

    def _formulas(self) -> Sequence[_Formula]:
        return self._parameter, self._velocity

    def _velocity(self, _rate: Any, steps: Any, x: Any, gradient: Any, velocity: Any) -> Any:
        beta = tirx.Select(steps > tirx.const(0, "int64"), _like(x, self.beta), _like(x, 1))
        return velocity * _like(x, self.alpha) + beta * self._regularized(x, gradient)

    def _parameter(self, rate: Any, steps: Any, x: Any, gradient: Any, velocity: Any) -> Any:
        new = self._velocity(rate, steps, x, gradient, velocity)
        if self.nesterov:
            new = self._regularized(x, gradient) + new * _like(x, self.alpha)
        return x - _as(rate, x) * new


@dataclass(frozen=True)
class Adagrad(_Step):
    """Duchi, Hazan, Singer, "Adaptive Subgradient Methods" (2011): the sum of squared gradients is kept."""

    epsilon: float
    decay_factor: float

    def _formulas(self) -> Sequence[_Formula]:
        return self._parameter, self._squares

    def _squares(self, _rate: Any, _steps: Any, x: Any, gradient: Any, squares: Any) -> Any:
        gradient = self._regularized(x, gradient)
        return squares + gradient * gradient

    def _parameter(self, rate: Any, steps: Any, x: Any, gradient: Any, squares: Any) -> Any:
        rate = _as(rate, x) / (_like(x, 1) + _as(steps, x) * _like(x, self.decay_factor))
        root = tirx.sqrt(self._squares(rate, steps, x, gradient, squares)) + _like(x, self.epsilon)
        return x - rate * self._regularized(x, gradient) / root


@dataclass(frozen=True)
class Adam(_Step):
    """Kingma, Ba, "Adam: A Method for Stochastic Optimization" (2015): running means of gradients and their squares.

    Attributes:
        alpha, beta: of the running means that stay.
        norm_coefficient_post: the parameter shrinks by this part of it after the step.
    """

    alpha: float
    beta: float
    epsilon: float
    norm_coefficient_post: float
    kept: ClassVar[int] = 2

    def _formulas(self) -> Sequence[_Formula]:
        return self._parameter, self._first, self._second

    def _first(self, _rate: Any, _steps: Any, x: Any, gradient: Any, first: Any, _second: Any) -> Any:
        return first * _like(x, self.alpha) + self._regularized(x, gradient) * _like(x, 1 - self.alpha)

    def _second(self, _rate: Any, _steps: Any, x: Any, gradient: Any, _first: Any, second: Any) -> Any:
        gradient = self._regularized(x, gradient)
        return second * _like(x, self.beta) + gradient * gradient * _like(x, 1 - self.beta)

    def _parameter(self, rate: Any, steps: Any, x: Any, gradient: Any, *kept: Any) -> Any:
        one, count, uncorrected = _like(x, 1), _as(steps, x), _as(rate, x)
        corrected = uncorrected * tirx.sqrt(one - tirx.power(_like(x, self.beta), count))
        corrected = corrected / (one - tirx.power(_like(x, self.alpha), count))
        step = tirx.Select(steps > tirx.const(0, "int64"), corrected, uncorrected)
        first, second = (mean(rate, steps, x, gradient, *kept) for mean in (self._first, self._second))
        moved = x - step * (first / (tirx.sqrt(second) + _like(x, self.epsilon)))
        return moved * _like(x, 1 - self.norm_coefficient_post)
