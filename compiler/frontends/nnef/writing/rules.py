"""Rules that write operators of the library in NNEF: one per operator class, the inverse of its reading.

    @says(Relu)
    def _relu(document: Document, operator: Relu, x: Operand) -> Value:
        return document.call("relu", x=x)

An operator without a rule is written as the operators that it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from nnefc.frontends.nnef.values import Tensor
from nnefc.frontends.nnef.writing.document import Document, Unsayable
from nnefc.operators.base import Operator, Shape
from nnefc.operators.base import shape_of as shape_of_operand

__all__ = ["RULES", "Rule", "aligned", "reshaped", "says", "shape_of", "transposed"]

Rule: TypeAlias = Callable[..., Any]
"""Takes the document, the operator and its operands; returns the result, or a list of several. Raises `Unsayable`."""

RULES: dict[type[Operator], Rule] = {}

_Function = TypeVar("_Function", bound=Rule)


def says(*kinds: type[Operator]) -> Callable[[_Function], _Function]:
    """Declare the rule of one kind of operator, or of several."""

    def declare(rule: _Function) -> _Function:
        for kind in kinds:
            assert kind not in RULES, kind
            RULES[kind] = rule
        return rule

    return declare


def shape_of(operand: Any) -> Shape:
    """The shape of an array, an expression of Relax, or a tensor of a document."""
    if isinstance(operand, Tensor):
        return operand.shape
    if isinstance(operand, bool | int | float):
        return ()
    return shape_of_operand(operand)


def reshaped(document: Document, x: Any, shape: Sequence[int]) -> Any:
    """The same elements in another shape; of a constant in the document's file."""
    own, target = shape_of(x), list(shape)
    if own == tuple(target):
        return x
    if isinstance(x, np.ndarray):
        return x.reshape(target)
    if document.takes_symbols:
        if not target:  # tract has no empty lists of sizes
            return document.call("squeeze", input=x, axes=list(range(len(own))))
        return document.call("reshape", input=x, shape=target)
    for axis, size in enumerate(target):
        if not isinstance(size, int) and axis < len(own) and own[axis] == size:
            target[axis] = 0
    opened = [axis for axis, size in enumerate(target) if not isinstance(size, int)]
    if len(opened) > 1:
        raise Unsayable(
            f"a tensor of the shape {list(own)} becomes one of {list(shape)}, which has several dynamic sizes"
        )
    if opened:
        target[opened[0]] = -1
    return document.call("reshape", input=x, shape=target)


def transposed(document: Document, x: Any, order: Sequence[int]) -> Any:
    """The dimensions in another order; of a constant in the document's file."""
    if list(order) == sorted(order):
        return x
    if isinstance(x, np.ndarray):
        return np.ascontiguousarray(x.transpose(order))
    return document.call("transpose", input=x, axes=list(order))


def aligned(document: Document, operands: Sequence[Any]) -> list[Any]:
    """Operands of one rank: NNEF matches dimensions from the first, the library from the last.

    Constants of one element become numbers, which fit all shapes, where another operand has the rank of the result.
    """
    ranks = [len(shape_of(operand)) for operand in operands]
    rank = max(ranks)
    whole = [not isinstance(operand, np.ndarray) for operand in operands]
    made = []
    for number, (operand, own) in enumerate(zip(operands, ranks, strict=True)):
        others = any(whole[i] and ranks[i] == rank for i in range(len(operands)) if i != number)
        if _is_number(document, operand) and others:
            made.append(operand.reshape(()))
        elif own == rank or (own == 0 and (_is_number(document, operand) or not isinstance(operand, np.ndarray))):
            made.append(operand)
        elif isinstance(operand, np.ndarray):
            made.append(operand.reshape((1,) * (rank - own) + operand.shape))
        else:
            made.append(document.call("unsqueeze", input=operand, axes=list(range(rank - own))))
    return made


def _is_number(document: Document, operand: Any) -> bool:
    """Returns whether a constant may be written as a number."""
    if not isinstance(operand, np.ndarray) or operand.size != 1 or not document.is_number(operand):
        return False
    return bool(operand.dtype.kind != "f" or np.isfinite(operand).all())
