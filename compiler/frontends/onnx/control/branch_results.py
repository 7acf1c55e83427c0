"""Brings the outputs of both branches of an If to one type.

If: [a, a]    else: [a]             sequences of different lengths: one tensor each, of two elements and of one
If: x[n, 4]   else: zeros[0, 4]     a tensor without elements: the body writes one element, and the result has none
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from nnefc.frontends.onnx.control.bodies import leaves, structure
from nnefc.frontends.onnx.control.tensor_sequences import stacked
from nnefc.frontends.onnx.operator import Context
from nnefc.frontends.onnx.values import AnyValue, Stacked, TensorSequence, Value

__all__ = ["NO_FORMS", "Forms", "one_element"]


@dataclass(frozen=True)
class Forms:
    """The forms that the outputs of branches get, so that both branches have the same.

    Attributes:
        stacks: an element's form of each output, by number, that is a sequence of any length.
        filled: the tensors that outputs are made of, by number, of which one branch gives no elements, the other some.
    """

    stacks: Mapping[int, Value] = field(default_factory=dict)
    filled: frozenset[int] = frozenset()

    def of(self, ctx: Context, outputs: Sequence[AnyValue]) -> list[AnyValue]:
        """A branch's outputs in their forms."""
        return [
            stacked(ctx, value, self.stacks[index])
            if isinstance(value, TensorSequence) and index in self.stacks
            else value
            for index, value in enumerate(outputs)
        ]

    def tensors(self, ctx: Context, outputs: Sequence[AnyValue]) -> list[Value]:
        """Return the tensors of a branch's outputs; those without elements are replaced."""
        return [
            one_element(leaf) if 0 in leaf.shape else leaf
            for number, leaf in enumerate(leaves(outputs))
            if 0 not in leaf.shape or number in self.filled
        ]

    def common(self, one: Sequence[AnyValue], other: Sequence[AnyValue]) -> Forms:
        """The forms in which outputs of both branches are of one kind, as far as there are such; these if they are."""
        stacks = {
            index: like
            for index, pair in enumerate(zip(one, other, strict=False))
            if (like := _common_element(*pair)) is not None
        }
        if stacks:
            return replace(self, stacks={**self.stacks, **stacks})
        if list(map(structure, one)) != list(map(structure, other)):
            return self
        pairs = enumerate(zip(leaves(one), leaves(other), strict=True))
        filled = self.filled | {number for number, pair in pairs if _differ_in_elements(*pair)}
        return replace(self, filled=filled) if filled != self.filled else self


NO_FORMS = Forms()
"""The forms of branches whose outputs stay as they are."""


def one_element(empty: Value) -> Value:
    """Returns a tensor of one element, 0, of the type and the rank of a tensor without elements."""
    return Value((1,) * empty.rank, empty.dtype)


def _common_element(one: AnyValue, other: AnyValue) -> Value | None:
    """Return the form of the elements of two sequences of different lengths, if all are tensors of the same shape."""
    if structure(one) == structure(other):
        return None
    elements: list[AnyValue] = []
    for value in (one, other):
        match value:
            case TensorSequence(own):
                elements += own
            case Stacked():
                elements.append(value.element)
            case _:
                return None
    tensors = [element for element in elements if isinstance(element, Value)]
    like = tensors[0]
    return like if len(tensors) == len(elements) and all(_is_like(element, like) for element in tensors) else None


def _is_like(one: Value, other: Value) -> bool:
    return (one.dtype, one.shape) == (other.dtype, other.shape)


def _differ_in_elements(one: Value, other: Value) -> bool:
    """Returns whether one of two tensors of one type and rank has no elements, and the other may have some."""
    same_kind = one.dtype == other.dtype != "string" and one.rank == other.rank
    return same_kind and (0 in one.shape) != (0 in other.shape)
