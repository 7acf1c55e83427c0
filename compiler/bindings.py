"""The bindings of a function of Relax: what their values read."""

from __future__ import annotations

from collections.abc import Iterator

from tvm import relax

__all__ = ["variables_read"]


def variables_read(expr: relax.Expr) -> Iterator[relax.Var]:
    """The variables that the value of a binding reads, each as often as it does."""
    match expr:
        case relax.Var():
            yield expr
        case relax.Tuple():
            for field in expr.fields:
                yield from variables_read(field)
        case relax.TupleGetItem():
            yield from variables_read(expr.tuple_value)
        case relax.Call():
            for arg in expr.args:
                yield from variables_read(arg)
