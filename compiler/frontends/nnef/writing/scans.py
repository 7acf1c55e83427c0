"""Writes loops in tract's dialect: `tract_core_scan`, whose body is a fragment of the document.

    fragment body1(item1: tensor<scalar>, state1: tensor<scalar>) -> (next1: tensor<scalar>, out1: tensor<scalar>) { … }

    (y, h) = tract_core_scan(body = 'body1', scan = [('item1', x, 0, 1)], state = [('state1', h0, 'next1')],
                             output = [('out1', 'full', 0, 1), ('next1', 'last', 0, 1)], reset_every_turn = true);

Loops go over the first axis of tensors, forwards or backwards. One with a data-dependent trip count cannot be written
so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from nnefc.frontends.nnef.values import Tensor
from nnefc.frontends.nnef.writing import recurrent
from nnefc.frontends.nnef.writing.document import Document, Unsayable
from nnefc.frontends.nnef.writing.rules import shape_of
from nnefc.frontends.nnef.writing.tract import TractDocument, TractFragment, tract_says
from nnefc.ir.network import Loop
from nnefc.operators.nn.recurrent import Recurrence, RecurrentWeights
from nnefc.operators.tensor.creation import Arange
from nnefc.operators.tensor.shape import Squeeze, Unsqueeze

__all__ = ["Write", "scanned_loop"]

_MAX_STEPS = 32
"""Steps of recurrent layers that are written one after the other: more are a scan."""


@dataclass(frozen=True)
class _Going:
    """A tensor that a scan takes apart, or puts together, along the first axis."""

    tensor: Any
    backwards: bool = False

    @property
    def pace(self) -> int:
        return -1 if self.backwards else 1


Build = Callable[[TractDocument, list[Tensor], list[Tensor], list[Tensor]], tuple[list[Any], list[Any]]]
"""A function that writes a body, from its document, elements, loop invariants and states; returns the
new states and the outputs of an iteration."""


def _scan(
    document: TractDocument,
    elements: Sequence[_Going],
    same: Sequence[Any],
    states: Sequence[Any],
    backwards: Sequence[bool],
    build: Build,
) -> tuple[list[Tensor], list[Tensor]]:
    """Add a scan; the last values of its states, and its outputs of all iterations.

    Args:
        backwards: for each output, whether the first iteration's is the last element.
    """
    inner, number = document.inside(), len(document.fragments) + 1
    tensors = [document.tensor(each.tensor) for each in elements]
    parts = [inner.parameter(f"item{i}", t.content, (1, *t.shape[1:])) for i, t in enumerate(tensors, 1)]
    kept = [document.tensor(each) for each in same]
    own = [inner.parameter(f"same{i}", t.content, t.shape) for i, t in enumerate(kept, 1)]
    before = [document.tensor(each) for each in states]
    now = [inner.parameter(f"state{i}", t.content, t.shape) for i, t in enumerate(before, 1)]
    squeezed = [inner.tensor(inner.say(Squeeze((0,)), part)) for part in parts]
    new, outputs = build(inner, squeezed, own, now)
    made = [inner.result(f"next{i}", value) for i, value in enumerate(new, 1)]
    wide = [inner.say(Unsqueeze((0,)), inner.tensor(value)) for value in outputs]
    made += [inner.result(f"out{i}", value) for i, value in enumerate(wide, 1)]
    fragment = TractFragment(f"body{number}", (*parts, *own, *now), tuple(made), inner)
    document.fragments.append(fragment)
    count = tensors[0].shape[0]
    results = [(t.content, t.shape) for t in made[: len(now)]]
    results += [(t.content, (count, *t.shape[1:])) for t in made[len(now) :]]
    found = document.scan(
        results,
        body=fragment.name,
        scan=[(f"item{i}", t, 0, e.pace) for i, (t, e) in enumerate(zip(tensors, elements, strict=True), 1)],
        full=[(f"same{i}", t) for i, t in enumerate(kept, 1)],
        state=[(f"state{i}", t, f"next{i}") for i, t in enumerate(before, 1)],
        output=[
            *((f"next{i}", "last", 0, 1) for i in range(1, 1 + len(now))),
            *((f"out{i}", "full", 0, -1 if b else 1) for i, b in enumerate(backwards, 1)),
        ],
    )
    return found[: len(now)], found[len(now) :]


@tract_says(Recurrence)
def _recurrence(
    document: TractDocument,
    operator: Recurrence,
    x: Any,
    weights: RecurrentWeights,
    states: Sequence[Any],
    lengths: Any = None,
) -> list[Any]:
    """A layer of few steps as in the standard, others as a scan over the products with the inputs."""
    recurrent.check(operator, x, weights, lengths)
    time = shape_of(x)[0]
    if isinstance(time, int) and time <= _MAX_STEPS:
        return recurrent.recurrence(document, operator, x, weights, states, lengths)
    given = document.tensor(recurrent.projected(document, operator, x, weights))
    same = [part for part in weights[1:] if isinstance(part, Tensor)]
    if same or not all(recurrent.is_constant(part) for part in weights[1:]):
        raise Unsayable("the weights of a recurrent layer are computed")

    def build(
        inner: TractDocument, elements: list[Tensor], _: list[Tensor], now: list[Tensor]
    ) -> tuple[list[Any], list[Any]]:
        made = recurrent.step(inner, operator.cell, elements[0], list(now), weights)
        return made, made[:1]

    last, (hidden,) = _scan(document, [_Going(given, operator.backwards)], [], states, [operator.backwards], build)
    return [hidden, *last]


Write = Callable[[Document, relax.Function, Sequence[Any]], list[Tensor]]
"""A function that writes a body's function into a document, from its arguments; returns its results."""


def scanned_loop(document: Document, loop: Loop, operands: Sequence[Any], write: Write) -> list[Tensor]:
    """The results of a loop of a network: its last states, and its outputs.

    Raises:
        Unsayable: it is no scan, or the document is none of tract's dialect.
    """
    if not isinstance(document, TractDocument):
        raise Unsayable("NNEF has no branches and loops, and the network repeats here")
    if loop.conditional or loop.has_trip_count or loop.trip_count is None or loop.body.counts:
        raise Unsayable(
            "tract's scans have as many iterations as tensors have elements, and here their number is data-dependent"
        )
    main = loop.body.module["main"]
    count, scanned = loop.body.states, len(loop.reversed_inputs)
    first = len(operands) - count - scanned
    same, states, tail = operands[:first], operands[first : first + count], operands[first + count :]
    numbers = document.tensor(document.say(Arange(0, loop.trip_count, 1, "int64")))
    elements = [_Going(numbers), *map(_Going, tail, loop.reversed_inputs)]

    def build(
        inner: TractDocument, own: list[Tensor], kept: list[Tensor], now: list[Tensor]
    ) -> tuple[list[Any], list[Any]]:
        results = write(inner, main, [own[0], *kept, *own[1:], *now])
        outputs = len(loop.reversed_outputs)
        return results[outputs : outputs + count], results[:outputs]

    last, outputs = _scan(document, elements, same, states, loop.reversed_outputs, build)
    return [*last, *outputs]
