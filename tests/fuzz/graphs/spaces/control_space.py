"""Branches and loops with random bodies, which read tensors and constants from outside, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from graph import Tensor, element_type
from onnx import helper
from steps import Rejected, Step, needed_for
from walk import Walk

from spaces.declared import BOOL, I64, SPACES, axis_of, space
from spaces.strings_space import WITH_STRINGS
from spaces.values_space import WITH_SEQUENCES

_NOT_INSIDE = frozenset(("Compress", "If", "Loop", "NonZero", "Scan")) | WITH_STRINGS | WITH_SEQUENCES
"""Bodies in bodies, steps of several nodes, and results with data-dependent sizes."""


@dataclass(frozen=True)
class _Body:
    """Steps that end in a tensor of a certain shape.

    Attributes:
        steps: that are needed for it.
        result: the tensor.
        more: another one on the way to it; None if there is none.
    """

    steps: Sequence[Step]
    result: Tensor
    more: Tensor | None

    def graph(self, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> onnx.GraphProto:
        """The body as a graph of a node's attribute."""
        infos = (
            [helper.make_tensor_value_info(t.name, element_type(t.array), t.shape) for t in part]
            for part in (inputs, outputs)
        )
        return helper.make_graph([step.node for step in self.steps], name, *infos)


def _body(w: Walk, name: str, given: Sequence[Tensor], like: Tensor) -> _Body:
    """A random body, which reads the first of the tensors that are given, and whose result is like another tensor."""
    walk = w.inside(name, given)
    walk.take({kind: make for kind, make in SPACES.items() if kind not in _NOT_INSIDE}, w.number(1, 4))
    made = walk.tensors[len(given) :]
    fitting = [t for t in made if t.shape == like.shape and t.array.dtype == like.array.dtype]
    for result in reversed(fitting):
        steps, needed = needed_for([result.name], walk.steps)
        if given[0].name in needed:
            others = [t for t in made if t.name in needed and t is not result]
            return _Body(steps, result, w.one(*others) if others else None)
    raise Rejected("no result fits")


def _node_with_bodies(w: Walk, node: onnx.NodeProto, inner: Sequence[Step]) -> list[Tensor]:
    tensors = {t.name: t for t in (*w.tensors, *w.constants)}
    w.check(node, [tensors[name] if name else None for name in node.input])
    step = Step(node, inner, w.opset)
    values = {name: tensor.exact for name, tensor in tensors.items()}
    return w.added(step, [values[name] if name else None for name in step.inputs])


def _same(source: str, name: str) -> Step:
    return Step(helper.make_node("Identity", [source], [name]))


@space("If")
def _branch(w: Walk, name: str) -> object:
    x = w.pick()
    condition = w.new_input((), BOOL)
    bodies = [_body(w, side, [x, *w.tensors[-3:]], x) for side in ("a", "b")]
    then, other = (body.graph(side, [], [body.result]) for side, body in zip("ab", bodies, strict=True))
    (result,) = w.names(1)
    node = helper.make_node(name, [condition.name], [result], then_branch=then, else_branch=other)
    taken = bodies[0 if condition.array else 1]
    return _node_with_bodies(w, node, [*taken.steps, _same(taken.result.name, result)])


@space("Loop")
def _loop(w: Walk, name: str) -> object:
    start, count = w.pick(), w.number(1, 4)
    prefix = f"{w.prefix}l{len(w.steps)}_"
    state = Tensor(f"{prefix}state", start.array, start.exact)
    body = _body(w, "l", [state, *w.tensors[-2:]], state)
    number = Tensor(f"{prefix}number", np.array(0, I64), np.array(0, I64))
    on, going = (Tensor(f"{prefix}{part}", np.array(True), np.array(True)) for part in ("on", "going"))
    collected = [body.more] if body.more is not None and w.chance(0.6) else []
    graph = body.graph("l", [number, on, state], [going, body.result, *collected])
    graph.node.insert(0, helper.make_node("Identity", [on.name], [going.name]))
    results = w.names(1 + len(collected))
    trips = w.constant(count, I64)
    node = helper.make_node(name, [trips.name, "", start.name], results, body=graph)
    return _node_with_bodies(w, node, _unrolled(body, collected, state, start, [{}] * count, results))


@space("Scan")
def _scan(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 5))
    axis, backwards = axis_of(w, x), w.number(0, 1)
    count = x.shape[axis]
    if count > 8:
        raise Rejected("too many steps")
    prefix = f"{w.prefix}s{len(w.steps)}_"
    part = Tensor.of(f"{prefix}part", np.take(x.exact, -1 if backwards else 0, axis), w.floats)
    start = w.constant(w.random(part.shape))
    state = Tensor(f"{prefix}state", start.array, start.exact)
    body = _body(w, "s", [state, part], state)
    collected = [body.more] if body.more is not None and w.chance(0.6) else []
    graph = body.graph("s", [state, part], [body.result, *collected])
    results = w.names(1 + len(collected))
    node = helper.make_node(
        name,
        [start.name, x.name],
        results,
        body=graph,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_input_directions=[backwards],
    )
    taken = [f"{prefix}part_{trip}" for trip in range(count)]
    order = range(count - 1, -1, -1) if backwards else range(count)
    split = [
        Step(helper.make_node("Part", [x.name], [each], axis=axis, index=index))
        for each, index in zip(taken, order, strict=True)
    ]
    trips = [{part.name: each} for each in taken]
    return _node_with_bodies(w, node, [*split, *_unrolled(body, collected, state, start, trips, results)])


def _unrolled(
    body: _Body,
    collected: Sequence[Tensor],
    state: Tensor,
    start: Tensor,
    trips: Sequence[Mapping[str, str]],
    results: Sequence[str],
) -> list[Step]:
    """The steps of all trips of a body, each with names of its own for what it makes.

    Args:
        collected: tensors of the body, of which all trips together are a result.
        state: what the body reads of the trip before, and of the first one `start`.
        trips: what else the body reads in each of them, by its name in the body.
        results: the names of the last state, and of what is collected.
    """
    steps: list[Step] = []
    last, parts = start.name, []
    for trip, read in enumerate(trips):
        own = {name: f"{name}_{trip}" for step in body.steps for name in step.node.output}
        names = {state.name: last, **read, **own}
        steps += [step.renamed(names) for step in body.steps]
        last = names[body.result.name]
        parts += [names[each.name] for each in collected]
    steps.append(_same(last, results[0]))
    if collected:
        steps.append(Step(helper.make_node("Stack", parts, results[1:])))
    return steps
