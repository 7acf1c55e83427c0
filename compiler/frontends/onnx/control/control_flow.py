"""Lowers `If`, `Loop` and `Scan`: folds or unrolls them at compile time where possible and short, else at run time.

A condition that is known picks its branch; one that the program computes picks a body of the network when it runs. A
loop with a small, known trip count is unrolled: iterations then know their number, and states may change their types
from one to the next. Any other runs as a loop, unless it can only be unrolled: see `loops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.defs

from nnefc.frontends.onnx.checks.types import OnnxTensorType
from nnefc.frontends.onnx.control.branches import choose
from nnefc.frontends.onnx.control.loops import EndlessLoop, Repetition, repeat
from nnefc.frontends.onnx.operator import AnyValue, Context, Node, Subgraph, Value, operator
from nnefc.frontends.onnx.operators.tensors import settled
from nnefc.frontends.onnx.values import Array
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.shape import Reshape, Slice, Transpose, Unsqueeze
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, greatest, is_known
from nnefc.symbolic.unification import unify_shapes

__all__: list[str] = []

_MAX_SHORT = 1024
"""Nodes that a loop comes to when it is unrolled although it could run as a loop."""

_MAX_ITERATIONS = 100_000
"""Iterations of a loop that can only be unrolled; the number of nodes that it comes to is limited too."""


def _versions(op_type: str, minimum: int = 1) -> tuple[int, ...]:
    """All since-versions of an operator."""
    schemas = onnx.defs.get_all_schemas_with_history()
    return tuple(s.since_version for s in schemas if s.name == op_type and not s.domain and s.since_version >= minimum)


@operator("If", since=_versions("If"))
def _if(ctx: Context, node: Node) -> list[AnyValue]:
    condition = _tensor(node, node.operands[0], "the condition")
    then, other = node.attributes["then_branch"], node.attributes["else_branch"]
    known = _flag(ctx, condition)
    if known is None:
        return choose(ctx, condition, then, other)
    return ctx.run_graph(then if known else other, [])


@operator("Loop", since=_versions("Loop"))
def _loop(ctx: Context, node: Node) -> list[AnyValue]:
    body = node.attributes["body"]
    states = [operand for operand in node.operands[2:] if operand is not None]
    carried = len(body.input_names) - 2
    if len(states) != len(node.operands) - 2 or carried != len(states):
        raise CompileError(
            f"its body takes {carried} values from one iteration to the next, the node gives {len(states)}"
        )

    def iteration(
        number: Value, before: list[AnyValue], _elements: list[Value]
    ) -> tuple[Value, list[AnyValue], list[Value]]:
        given = [_as_declared(ctx, body, i, each) for i, each in enumerate((number, ctx.known(np.array(True))))]
        results = ctx.run_graph(body, [*given, *before])
        outputs = [_tensor(node, element, "a scan output") for element in results[1 + carried :]]
        return _condition(node, results[0]), results[1 : 1 + carried], outputs

    limit, count = _trip_count(ctx, node)
    running = _condition(node, node.operands[1]) if _has(node, 1) else ctx.known(np.array(True))
    outputs = len(body.output_names) - 1 - carried
    loop = Repetition(iteration, states, limit, count, running, (), (), (False,) * outputs)
    return _run(ctx, loop, body, [0] * outputs)


def _as_declared(ctx: Context, body: Any, index: int, scalar: Value) -> Any:
    """The number of the iteration, or the condition: vectors of one element where the body declares them so.

    The standard has scalars alone; old exporters wrote vectors, and onnxruntime gives them.
    """
    declared = body.graph.inputs[index].type
    rank = len(declared.shape) if isinstance(declared, OnnxTensorType) and declared.shape is not None else 0
    return ctx.apply(Reshape((1,)), scalar) if rank == 1 else scalar


def _condition(node: Node, value: AnyValue | None) -> Value:
    condition = _tensor(node, value, "the condition")
    if condition.dtype != "bool" or any(size != 1 for size in condition.shape):
        raise CompileError(f"its condition must be one bool, it is {condition.dtype}{list(condition.shape)}")
    return condition


def _trip_count(ctx: Context, node: Node) -> tuple[Dimension | None, Value | None]:
    """The greatest trip count, known or computed; neither if only the condition ends the loop."""
    if not _has(node, 0):
        return None, None
    value = _tensor(node, node.operands[0], "the trip count")
    if any(size != 1 for size in value.shape):
        raise CompileError(f"its trip count must be a scalar, its shape is {list(value.shape)}")
    if value.sizes is not None:
        return greatest(value.sizes.reshape(-1)[0], 0), None
    array = ctx.constant(value)
    if array is None:
        return None, value
    # Exporters write the greatest integer for a loop that the condition alone ends.
    count = int(_element(array, "the trip count"))
    return None if count >= (1 << 31) - 1 else max(count, 0), None


def _run(ctx: Context, loop: Repetition, body: Subgraph, axes: Sequence[int]) -> list[AnyValue]:
    """The results of a loop, its outputs along these axes: unrolled if it is short or cannot be had otherwise."""
    forget = ctx.emitter.checkpoint()
    made = _unrolled(ctx, loop, body, axes, _MAX_SHORT)
    if made is not None:
        return made
    forget()
    try:
        states, outputs = repeat(ctx, loop)
    except EndlessLoop:
        raise
    except CompileError:
        made = _unrolled(ctx, loop, body, axes, None)
        if made is None:
            raise
        return made
    return [*states, *(_moved(ctx, o, 0, _axis(axis, o.rank)) for o, axis in zip(outputs, axes, strict=True))]


def _unrolled(
    ctx: Context, loop: Repetition, body: Subgraph, axes: Sequence[int], maximum: int | None
) -> list[AnyValue] | None:
    """A loop without a loop; None if it may not be unrolled, or comes to more nodes than `maximum`."""
    limit, running, states = loop.limit, loop.running, loop.states
    if loop.count is not None and _flag(ctx, running) is not False:
        return None
    if limit is not None and not is_known(limit):
        return None
    if limit is not None and maximum is not None and limit * body.size > maximum:
        return None
    scanned: list[list[Value]] = [[] for _ in axes]
    number = 0
    while limit is None or number < limit:
        known = _flag(ctx, running)
        if known is False:
            break
        if known is None or (maximum is not None and (number + 1) * body.size > maximum):
            return None
        if number >= _MAX_ITERATIONS:
            raise CompileError(f"it runs for more than {_MAX_ITERATIONS} iterations, which is too many to unroll")
        elements = [
            _element_at(ctx, source, source.shape[0] - 1 - number if backwards else number)
            for source, backwards in zip(loop.scanned, loop.reversed_inputs, strict=True)
        ]
        running, states, outputs = loop.iteration(ctx.known(np.array(number, np.int64)), states, elements)
        for column, element in zip(scanned, outputs, strict=True):
            column.append(element)
        number += 1
    stacked = [
        _stacked(ctx, column[::-1] if backwards else column, body, len(body.output_names) - len(axes) + index, axis)
        for index, (column, axis, backwards) in enumerate(zip(scanned, axes, loop.reversed_outputs, strict=True))
    ]
    return [*states, *stacked]


def _stacked(ctx: Context, elements: Sequence[Value], body: Subgraph, index: int, axis: int) -> Value:
    """The elements of output `index` of a body, of all iterations, along a new axis."""
    if not elements:
        return _no_iterations(body, index, axis)
    first = elements[0]
    axis = _axis(axis, first.rank + 1)
    for element in elements:
        if (element.dtype, element.shape) != (first.dtype, first.shape):
            raise CompileError(
                f"its scan output {index} is {first.dtype}{list(first.shape)} in one iteration and "
                f"{element.dtype}{list(element.shape)} in another"
            )
    arrays = [element.array for element in elements]
    if all(array is not None for array in arrays):
        return ctx.known(np.stack([array for array in arrays if array is not None], axis))
    return _joined(ctx, [_expanded(ctx, element, axis) for element in elements], axis)


def _no_iterations(graph: Any, index: int, axis: int) -> Value:
    """The scan output of a loop without iterations: no elements, of the declared type."""
    declared = graph.graph.outputs[index].type
    if not isinstance(declared, OnnxTensorType) or not declared.dtype:
        raise CompileError("it has no iterations, and its body does not declare the types of its scan outputs")
    shape = tuple(size if isinstance(size, int) else 0 for size in declared.shape or ())
    axis = _axis(axis, len(shape) + 1)
    return Value.empty((*shape[:axis], 0, *shape[axis:]), declared.dtype)


def _expanded(ctx: Context, value: Value, axis: int) -> Value:
    made: Value = ctx.apply(Unsqueeze((axis,)), settled(ctx, value))
    return made


def _joined(ctx: Context, values: Sequence[Value], axis: int) -> Value:
    return values[0] if len(values) == 1 else ctx.apply(Concat(axis), *values)


@operator("Scan", since=(8,))
def _scan_8(ctx: Context, node: Node) -> list[AnyValue]:
    """The first version has a batch in front: each element of it is scanned by itself."""
    if node.operands[0] is not None and _tensor(node, node.operands[0], "sequence_lens").shape:
        lengths = ctx.constant(_tensor(node, node.operands[0], "sequence_lens"))
        whole = _tensor(node, node.operands[-1], "a scan input").shape[1]
        if lengths is None or not (lengths == whole).all():
            raise CompileError("sequences of different lengths are not supported")
    operands = [_tensor(node, operand, "an operand") for operand in node.operands[1:]]
    count = node.attributes["num_scan_inputs"]
    directions = tuple(node.attributes.get("directions") or (0,) * count)
    batch, parts = operands[0].shape[0], []
    if not is_known(batch):
        raise CompileError(
            "Scan of opset 8 goes through a batch whose size must be known",
            hint="give the size of its first axis with --shape",
        )
    for element in range(batch):
        single = [_element_at(ctx, operand, element) for operand in operands]
        parts.append(_scan(ctx, node, single, directions))
    return [
        _stacked(ctx, [_tensor(node, p, "a result") for p in column], node.attributes["body"], i, 0)
        for i, column in enumerate(zip(*parts, strict=True))
    ]


@operator("Scan", since=_versions("Scan", 9))
def _scan_9(ctx: Context, node: Node) -> list[AnyValue]:
    count = node.attributes["num_scan_inputs"]
    operands = [_tensor(node, operand, "an operand") for operand in node.operands]
    return _scan(
        ctx,
        node,
        operands,
        node.attributes.get("scan_input_directions") or (0,) * count,
        node.attributes.get("scan_input_axes"),
        node.attributes.get("scan_output_axes"),
        node.attributes.get("scan_output_directions"),
    )


def _scan(
    ctx: Context,
    node: Node,
    operands: list[Value],
    directions: Sequence[int],
    axes: Sequence[int] | None = None,
    output_axes: Sequence[int] | None = None,
    output_directions: Sequence[int] | None = None,
) -> list[AnyValue]:
    body, count = node.attributes["body"], node.attributes["num_scan_inputs"]
    axes = axes or (0,) * count
    if not 1 <= count <= len(operands) or len(axes) != count or len(directions) != count:
        raise CompileError(f"'num_scan_inputs' is {count}, which does not fit its {len(operands)} inputs and its axes")
    carried = len(operands) - count
    outputs = len(body.output_names) - carried
    output_axes, output_directions = output_axes or (0,) * outputs, output_directions or (0,) * outputs
    if len(output_axes) != outputs or len(output_directions) != outputs:
        raise CompileError(f"its {outputs} scan outputs do not fit their axes and directions")
    sources = operands[carried:]
    scanned = [_moved(ctx, source, _axis(axis, source.rank), 0) for axis, source in zip(axes, sources, strict=True)]
    lengths = [source.shape[0] for source in scanned]
    if not unify_shapes(lengths, lengths[:1] * count):
        raise CompileError(f"its scan inputs have the lengths {', '.join(map(str, lengths))}: they must be equal")

    def iteration(
        _number: Value, before: list[AnyValue], elements: list[Value]
    ) -> tuple[Value, list[AnyValue], list[Value]]:
        results = ctx.run_graph(body, [*before, *elements])
        made = [_tensor(node, element, "a scan output") for element in results[carried:]]
        return ctx.known(np.array(True)), results[:carried], made

    loop = Repetition(
        iteration,
        states=list(operands[:carried]),
        limit=lengths[0],
        count=None,
        running=ctx.known(np.array(True)),
        scanned=tuple(scanned),
        reversed_inputs=tuple(map(bool, directions)),
        reversed_outputs=tuple(map(bool, output_directions)),
    )
    return _run(ctx, loop, body, output_axes)


def _moved(ctx: Context, value: Value, source: int, target: int) -> Any:
    """Moves one axis of a tensor to another position."""
    if source == target:
        return value
    order = [axis for axis in range(value.rank) if axis != source]
    order.insert(target, source)
    return ctx.apply(Transpose(tuple(order)), settled(ctx, value))


def _element_at(ctx: Context, value: Value, index: int) -> Any:
    """Return the element at `index` along the first axis, without this axis."""
    element = ctx.apply(Slice({0: (index, 1, 1)}), settled(ctx, value))
    return ctx.apply(Reshape(value.shape[1:]), element)


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise CompileError(f"the axis {axis} is out of range for the rank {rank}")
    return axis % rank


def _has(node: Node, index: int) -> bool:
    return index < len(node.operands) and node.operands[index] is not None


def _tensor(node: Node, value: AnyValue | None, what: str) -> Value:
    if not isinstance(value, Value):
        raise CompileError(f"{node.description}: {what} must be a tensor")
    return value


def _flag(ctx: Context, value: Value) -> bool | None:
    """A condition's value, if it is known."""
    array = ctx.constant(value)
    return None if array is None else bool(_element(array, "the condition"))


def _element(array: Array, what: str) -> Any:
    if array.size != 1:
        raise CompileError(f"{what} must be one element, not {array.size}")
    return array.reshape(())[()]
