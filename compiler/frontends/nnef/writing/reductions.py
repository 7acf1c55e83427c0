"""Writes reductions; NNEF keeps reduced dimensions."""

from __future__ import annotations

from typing import Any

from nnefc.frontends.nnef.writing.document import Document, Unsayable
from nnefc.frontends.nnef.writing.rules import says
from nnefc.operators.math.reduction import (
    AllTrue,
    AnyTrue,
    ArgMinMax,
    LogSumExp,
    Maximum,
    Mean,
    Minimum,
    Reduction,
    Sum,
)
from nnefc.operators.nn.normalization import LpNormalization

_NAMES: dict[type[Reduction], str] = {
    Sum: "sum_reduce",
    Mean: "mean_reduce",
    Maximum: "max_reduce",
    Minimum: "min_reduce",
    AnyTrue: "any_reduce",
    AllTrue: "all_reduce",
}


@says(*_NAMES)
def _reduction(document: Document, operator: Reduction, x: Any) -> Any:
    name = _NAMES[type(operator)]
    value = document.tensor(x)
    if document.is_logical(value):
        name = {"max_reduce": "any_reduce", "min_reduce": "all_reduce"}.get(name, name)
    return _reduced(document, name, operator, value)


def _reduced(document: Document, name: str, operator: Reduction, value: Any) -> Any:
    if not operator.axes:
        return value
    made = document.call(name, input=value, axes=list(operator.axes))
    return made if operator.keepdims else document.call("squeeze", input=made, axes=list(operator.axes))


@says(ArgMinMax)
def _arg_min_max(document: Document, operator: ArgMinMax, x: Any) -> Any:
    if operator.last:
        raise Unsayable("NNEF finds the first of equal elements, here the last one is looked for")
    name = "argmax_reduce" if operator.largest else "argmin_reduce"
    made = document.call(name, input=document.tensor(x), axes=list(operator.axes))
    if operator.keepdims or not operator.axes:
        return made
    return document.call("squeeze", input=made, axes=list(operator.axes))


_LARGEST = 3.4028234663852886e38
"""The largest 32-bit float."""


@says(LogSumExp)
def _log_sum_exp(document: Document, operator: LogSumExp, x: Any) -> Any:
    """The largest element is taken out first, unless it is infinite."""
    value, axes = document.tensor(x), list(operator.axes)
    if not axes:
        return value
    largest = document.call("max_reduce", input=value, axes=axes)
    is_finite = document.call("le", x=document.call("abs", x=largest), y=_LARGEST)
    finite = document.call("select", condition=is_finite, true_value=largest, false_value=0.0)
    powers = document.call("exp", x=document.call("sub", x=value, y=finite))
    total = document.call("log", x=document.call("sum_reduce", input=powers, axes=axes))
    made = document.call("add", x=total, y=finite)
    return made if operator.keepdims else document.call("squeeze", input=made, axes=axes)


@says(LpNormalization)
def _lp_normalization(document: Document, operator: LpNormalization, x: Any) -> Any:
    if operator.order not in (1, 2) or operator.epsilon is None:
        raise Unsayable(f"NNEF normalizes by the norms 1 and 2, and divides by a smallest number, here {operator}")
    return document.call(
        f"l{int(operator.order)}_normalization",
        input=document.tensor(x),
        axes=list(operator.axes),
        bias=float(operator.bias),
        epsilon=float(operator.epsilon),
    )
