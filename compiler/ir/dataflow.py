"""Collects the bindings of a Relax function and the variables that their values read."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

__all__ = ["bindings_of", "variables_read"]


def bindings_of(func: relax.Function) -> list[relax.Binding]:
    """Returns the bindings of a function, in order."""
    return [binding for block in func.body.blocks[:] for binding in block.bindings[:]]


def variables_read(expr: relax.Expr) -> list[relax.Var]:
    """Return the variables that an expression reads, each as often as it is read."""
    kind = type(expr)
    found = _READ.get(kind)  # all passes ask it of all bindings: each class is looked up once
    if found is None:
        found = _READ[kind] = _read_by(kind)
    return found(expr)


_READ: dict[type, Callable[[relax.Expr], list[relax.Var]]] = {}


def _read_by(kind: type) -> Callable[[relax.Expr], list[relax.Var]]:
    """Return the function that finds the variables in an expression of a class."""
    if issubclass(kind, relax.Var):
        return lambda expr: [expr]
    if issubclass(kind, relax.Tuple):
        return lambda expr: [var for field in expr.fields[:] for var in variables_read(field)]
    if issubclass(kind, relax.TupleGetItem):
        return lambda expr: variables_read(expr.tuple_value)
    if issubclass(kind, relax.Call):
        return lambda expr: [var for arg in expr.args[:] for var in variables_read(arg)]
    return lambda _expr: []
