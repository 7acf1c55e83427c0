"""Computes a network's parameters, multiply-adds and memory from its Relax function.

The numbers are those of the network as its front end returns it, before any pass: batch normalizations are already
converted to scales and shifts, but nothing is fused. Dynamic dimensions have their size hints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate

import tvm
from tvm import relax

from nnefc.ir.dataflow import bindings_of
from nnefc.ir.network import Body, Control, DynamicDimension, Loop, Network, control_index, result_types, size_by_name
from nnefc.support.element_types import element_bytes
from nnefc.symbolic.dims import dimensions, ranges, size_hint

__all__ = ["BoundaryTensor", "Inspection", "inspect_network"]

# Operations whose result is the same bytes in the same order: it needs no memory of its own.
_VIEWS = {"relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten", "relax.nn.batch_flatten"}


@dataclass(frozen=True)
class BoundaryTensor:
    """An input or output of a network; dynamic sizes are names of dimensions, or formulas of these."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class Inspection:
    """The summary of a network.

    Attributes:
        parameters: elements of all trained values and other constants, each constant once.
        parameter_bytes: the same in bytes.
        multiply_adds: of convolutions and matrix products in one run: for If the maximum of both branches, for loops
            with an unknown trip count one iteration.
        live_bytes: the maximum memory of the activations that are live at the same time. An activation is live from the
            operation that computes it to the last one that reads it; inputs from the start, outputs to the end.
        inputs, outputs: of the network.
        dimensions: the dynamic dimensions.
        metadata: of the model.
    """

    name: str
    inputs: tuple[BoundaryTensor, ...]
    outputs: tuple[BoundaryTensor, ...]
    states: tuple[BoundaryTensor, ...]
    parameters: int
    parameter_bytes: int
    multiply_adds: int
    live_bytes: int
    dimensions: tuple[DynamicDimension, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)


def inspect_network(network: Network) -> Inspection:
    """Return the summary of a network."""
    with ranges(network.ranges):
        return _inspected(network)


def _inspected(network: Network) -> Inspection:
    function = network.module["main"]
    constants: dict[tvm.ir.GenericConst, None] = {}
    multiply_adds = _count(network, constants)
    tensors = [_tensor(network, name, v.ty) for name, v in zip(_border_names(network), function.params, strict=True)]
    results = result_types(function)[: len(network.outputs)]  # the states' new values follow
    return Inspection(
        name=network.name,
        inputs=tuple(tensors[: len(network.inputs)]),
        outputs=tuple(_tensor(network, name, ty) for name, ty in zip(network.outputs, results, strict=True)),
        states=tuple(tensors[len(network.inputs) :]),
        parameters=sum(math.prod(_sizes(c.ty)) for c in constants),
        parameter_bytes=sum(_bytes(c.ty) for c in constants),
        multiply_adds=multiply_adds,
        live_bytes=_live_bytes(network, list(function.params)),
        dimensions=network.dynamic_dimensions,
        metadata=network.metadata,
    )


def _count(part: Network | Body, constants: dict[tvm.ir.GenericConst, None]) -> int:
    """Add the constants of a network or an inner body to `constants`; return its multiply-adds."""
    function, total = part.module["main"], 0
    constants |= dict.fromkeys(_constants(function))
    for binding in bindings_of(function):
        index = control_index(binding.value)
        if index is not None:
            control = part.controls[index]
            each = [_count(body, constants) for body in control.bodies]
            total += max(each) * _trip_count(control)
        elif isinstance(binding.value, relax.Call):
            total += _multiply_adds(binding.value)
    return total


def _trip_count(control: Control) -> int:
    return size_hint(control.trip_count) if isinstance(control, Loop) and control.trip_count is not None else 1


def _border_names(network: Network) -> tuple[str, ...]:
    return network.inputs + tuple(state.name for state in network.states)


def _tensor(network: Network, name: str, ty: relax.TensorType) -> BoundaryTensor:
    shape = tuple(size_by_name(size, network.dynamic_dimensions) for size in dimensions(ty.shape.values))
    return BoundaryTensor(name, "string" if name in network.texts else str(ty.dtype), shape)


def _constants(function: relax.Function) -> list[tvm.ir.GenericConst]:
    """Return the constants of a function, each once."""
    found: dict[tvm.ir.GenericConst, None] = {}

    def visit(node: relax.Expr) -> None:
        if isinstance(node, tvm.ir.GenericConst):
            found[node] = None

    relax.analysis.post_order_visit(function, visit)
    return list(found)


def _sizes(tensor: relax.TensorType) -> tuple[int, ...]:
    """Return the shape for cost counts, with size hints for dynamic dimensions."""
    return tuple(map(size_hint, dimensions(tensor.shape.values)))


def _bytes(value: tvm.ir.Type) -> int:
    """Return the bytes of a tensor, or of all tensors of a tuple."""
    match value:
        case relax.TupleType():
            return sum(map(_bytes, value.fields))
        case relax.TensorType():
            return math.prod(_sizes(value)) * element_bytes(str(value.dtype))
    return 0


def _multiply_adds(call: relax.Call) -> int:
    if not isinstance(call.op, tvm.ir.Op):
        return 0
    operands = [a.ty for a in call.args if isinstance(a.ty, relax.TensorType)]
    match str(call.op.name):
        case "relax.nn.conv1d" | "relax.nn.conv2d" | "relax.nn.conv3d":
            return _products_of_filter(_sizes(call.ty), call, operands[1], "O")
        case "relax.nn.conv1d_transpose" | "relax.nn.conv2d_transpose" | "relax.nn.conv3d_transpose":
            return _products_of_filter(_sizes(operands[0]), call, operands[1], "I")
        case "relax.matmul":
            return math.prod(_sizes(call.ty)) * _sizes(operands[0])[-1]
    return 0


def _products_of_filter(shape: tuple[int, ...], call: relax.Call, filter: relax.TensorType, channel: str) -> int:
    """Return the multiply-adds of a convolution: each element of `shape` is multiplied by all elements of the filter
    that belong to its channel.

    Args:
        shape: of the output, or for a transposed convolution of the input.
        call: the convolution.
        filter: the type of the filter.
        channel: the axis of the filter for the channel of `shape`: "O", or for a transposed convolution "I".
    """
    sizes = _sizes(filter)
    own = sizes[str(call.attrs.kernel_layout).index(channel)]
    return math.prod(shape) * (math.prod(sizes) // own)


def _live_bytes(part: Network | Body, own: list[relax.Var]) -> int:
    """Return the maximum memory of activations that are live at the same time, with the parameters `own` included.

    Times are numbers of operations; 0 is before the first one.
    """
    function = part.module["main"]
    owners = {param: (param,) for param in function.params}  # whose memory a variable's value is in
    born = dict.fromkeys(own, 0)
    last = dict.fromkeys(function.params, 0)
    inside: dict[int, int] = {}  # what bodies need for themselves, by time
    end = 1
    for binding in bindings_of(function):
        read = [owner for var in _tensors_of(binding.value) for owner in owners[var]]
        last.update(dict.fromkeys(read, end))
        if _has_own_memory(binding.value):
            owners[binding.var] = (binding.var,)
            born[binding.var] = last[binding.var] = end
        else:
            owners[binding.var] = tuple(read)
        index = control_index(binding.value)
        if index is not None:
            inside[end] = max(_live_bytes(body, []) for body in part.controls[index].bodies)
        end += 1
    for var in _tensors_of(function.body.body):
        last.update(dict.fromkeys(owners[var], end))

    change = [0] * (end + 2)
    for var, time in born.items():
        change[time] += _bytes(var.ty)
        change[last[var] + 1] -= _bytes(var.ty)
    for time, size in inside.items():
        change[time] += size
        change[time + 1] -= size
    return max(accumulate(change))


def _tensors_of(value: relax.Expr) -> list[relax.Var]:
    """Return the variables in an expression, except for those of dynamic sizes."""
    return [var for var in relax.analysis.free_vars(value) if not isinstance(var.ty, tvm.ir.PrimType)]


def _has_own_memory(value: relax.Expr) -> bool:
    """Return whether a value needs memory of its own: it is a call other than a view, not a part, a tuple or another
    name of existing values.
    """
    return isinstance(value, relax.Call) and not (isinstance(value.op, tvm.ir.Op) and str(value.op.name) in _VIEWS)
