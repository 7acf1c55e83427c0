"""Folds expressions over constants at compile time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

from nnefc.ir.constant_evaluation import Budget, external_calls
from nnefc.ir.constant_evaluation import evaluate as evaluate_bindings

Array = npt.NDArray[Any]

__all__ = ["evaluate"]


def evaluate(
    builder: relax.BlockBuilder, expr: relax.Expr, known: Mapping[relax.Var, Array], budget: Budget
) -> Array | None:
    """The value of an expression.

    Args:
        builder: where the variables that it uses are bound; none of them may depend on a parameter.
        expr: a variable.
        known: values of variables.
        budget: what may be spent.

    Returns:
        The value; None if it would cost too much, or a kernel reports errors to the runtime, which is not there at
        compile time.
    """
    bindings = [relax.VarBinding(var, builder.lookup_binding(var)) for var in _needed(builder, expr, known)]
    functions = builder.get().functions
    kernels = {gv: functions[gv] for binding in bindings for gv in _called(binding.value)}
    if any(external_calls(kernel) for kernel in kernels.values()):
        return None
    if not budget.starts() or not all(budget.covers(binding, kernels) for binding in bindings):
        return None
    read = dict.fromkeys(var for binding in bindings for var in relax.analysis.free_vars(binding.value))
    values = {var: tvm.runtime.tensor(_contiguous(known[var])) for var in read if var in known}
    (value,) = evaluate_bindings(bindings, [expr], kernels, values)
    made: Array = value.numpy()
    return made


def _contiguous(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(array.shape)  # which has one axis at least, without the reshape


def _called(expr: relax.Expr) -> list[tvm.ir.GlobalVar]:
    return [arg for arg in expr.args if isinstance(arg, tvm.ir.GlobalVar)] if isinstance(expr, relax.Call) else []


def _needed(builder: relax.BlockBuilder, expr: relax.Expr, known: Mapping[relax.Var, Array]) -> list[relax.Var]:
    """The variables that `expr` is made of, itself too, each after those that it is made of; none that is known."""
    order: dict[relax.Var, None] = {}
    waiting: list[tuple[relax.Var, bool]] = [(expr, False)]
    while waiting:
        var, ready = waiting.pop()
        if var in order:
            continue
        if ready:
            order[var] = None
            continue
        waiting.append((var, True))
        used = relax.analysis.free_vars(builder.lookup_binding(var))
        waiting += [(other, False) for other in used if other not in order and other not in known]
    return list(order)
