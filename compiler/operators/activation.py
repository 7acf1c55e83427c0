"""Activations by formulas that neither overflow nor lose what is small."""

from __future__ import annotations

from tvm import tirx

__all__ = ["mish", "softplus"]


def softplus(x: tirx.Expr) -> tirx.Expr:
    """log(1 + eˣ) of a real as max(x, 0) + log1p(e^-|x|): eˣ for large negative x, where 1 + eˣ would be 1."""
    return tirx.max(x, _like(x, 0)) + tirx.log1p(tirx.exp(-tirx.abs(x)))


def mish(x: tirx.Expr) -> tirx.Expr:
    """x tanh(softplus(x)) (Misra, Mish: A Self Regularized Non-Monotonic Activation Function, 2019).

    tanh(log(1 + p)) = n / (n + 2) with p = eˣ and n = p (p + 2); from x = 20 on it is 1.
    """
    power = tirx.exp(tirx.min(_like(x, 20), x))  # in this order for NaN
    n = power * (power + _like(x, 2))
    return x * (n / (n + _like(x, 2)))


def _like(x: tirx.Expr, value: float) -> tirx.Expr:
    return tirx.const(value, str(x.expr_ty().dtype))
