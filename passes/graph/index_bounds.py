"""Derives bounds of integer inputs that are used as indices: the range of `ids` in `y = table[ids]`.

    ids: int64[1, 8]  →  cast  →  reshape  →  gather of a table of 32,000 rows: ids are below 32,000

Nothing is changed. A value counts as a position where it is, or decides about, an index of a tensor; from there the
limit goes back over what only moves, converts or clamps elements to the network's inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import tvm
from tvm import relax, s_tir, tirx
from tvm.ir.expr import Call, TensorLoad

from nnefc.ir.constant_evaluation import external_calls
from nnefc.ir.dataflow import bindings_of
from nnefc.ir.network import Body, Control, If, Loop, Network, control_index
from nnefc.symbolic.dims import dimension, is_known

__all__ = ["index_limits"]

Limits: TypeAlias = "dict[relax.Var, int]"

_MOVES = {
    f"relax.{name}"
    for name in (
        "astype", "broadcast_to", "concat", "expand_dims", "flatten", "flip", "permute_dims", "repeat", "reshape",
        "split", "squeeze", "stack", "strided_slice", "take", "tile", "where",
    )
}  # fmt: skip


def index_limits(network: Network) -> dict[str, int]:
    """Returns, for each input whose elements are indices, the smallest size of the axes that they index.

    Inputs with any other use, or with one that is not recognized, have no entry.
    """
    function = network.module["main"]
    inputs = dict(zip(network.inputs, function.params, strict=False))
    if not any(_is_integer(var) for var in inputs.values()):
        return {}
    limits = _limits_of(network)
    return {name: limits[var] for name, var in inputs.items() if var in limits}


def _limits_of(part: Network | Body) -> Limits:
    """Returns the limits of the variables of a network or of a body in it."""
    function = part.module["main"]
    bindings = bindings_of(function)
    reached = {var for var in function.params if _is_integer(var)}
    for binding in bindings:  # forward, so that nothing is looked at that integer inputs do not reach
        if _is_integer(binding.var) and any(var in reached for var in relax.analysis.free_vars(binding.value)):
            reached.add(binding.var)
    limits: Limits = {}
    for binding in reversed(bindings):
        if any(var in reached for var in relax.analysis.free_vars(binding.value)):
            _go_back(part, binding.value, limits.get(binding.var), limits)
    return limits


def _go_back(part: Network | Body, value: relax.Expr, limit: int | None, limits: Limits) -> None:
    """Propagates the limit of a value to its operands."""
    index = control_index(value)
    if index is not None:
        _into_control(part.controls[index], list(value.args[1].fields), limits)
    elif isinstance(value, relax.TupleGetItem) and limit is not None:
        _demand(limits, value.tuple_value, limit)
    elif isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
        name = str(value.op.name)
        if name == "relax.call_tir":
            positions, moved = _uses(part.module[value.args[0]])
            if isinstance(value.ty, relax.TupleType):
                moved = set()  # the bound is not known to hold for one of the results
            for offset, operand in enumerate(value.args[1].fields):
                if offset in positions:
                    _demand(limits, operand, positions[offset])
                if offset in moved and limit is not None:
                    _demand(limits, operand, limit)
        elif name in _MOVES:
            operands = list(_tensors(value))
            if name == "relax.take":
                axis = int(value.attrs.axis) if value.attrs.axis is not None else 0
                size = dimension(operands[0].ty.shape.values[axis])
                if is_known(size):
                    _demand(limits, operands[1], size)
                operands = operands[:1]
            if limit is not None:
                for operand in operands:
                    _demand(limits, operand, limit)
    elif isinstance(value, relax.Var) and limit is not None:
        _demand(limits, value, limit)


def _into_control(control: Control, operands: list[relax.Expr], limits: Limits) -> None:
    """Propagates the bounds that the bodies of an If or a loop need; see `nnefc.ir.network` for operand order."""
    match control:
        case If(then, other):
            first = len(then.module["main"].params)
            parts = [(then, operands[1 : 1 + first], 0), (other, operands[1 + first :], 0)]
        case Loop(body):
            parts = [(body, operands[control.has_trip_count :], 1)]  # the first parameter is the iteration number
    for body, given, skipped in parts:
        inner = _limits_of(body)
        parameters = list(body.module["main"].params)[skipped : skipped + len(given)]
        for parameter, operand in zip(parameters, given, strict=False):
            if parameter in inner and operand.ty.dtype == parameter.ty.dtype:
                _demand(limits, operand, inner[parameter])


def _tensors(call: relax.Call) -> Iterator[relax.Expr]:
    for argument in call.args:
        if isinstance(argument, relax.Tuple):
            yield from argument.fields
        elif isinstance(argument.ty, relax.TensorType | relax.TupleType):
            yield argument


def _demand(limits: Limits, operand: relax.Expr, limit: int) -> None:
    if isinstance(operand, relax.Var) and limit > 0:
        limits[operand] = min(limit, limits.get(operand, limit))


def _is_integer(var: relax.Var) -> bool:
    match var.ty:
        case relax.TensorType(dtype=dtype):
            return str(dtype).startswith(("int", "uint"))
        case relax.TupleType(fields=fields):
            return any(str(getattr(field, "dtype", "")).startswith(("int", "uint")) for field in fields)
    return False


# Kernels.


def _uses(function: tirx.PrimFunc) -> tuple[dict[int, int], set[int]]:
    """Returns the bounds of parameters that are used as indices, by number, and the parameters that are only moved."""
    offsets = {param: offset for offset, param in enumerate(function.params)}
    positions: dict[int, int] = {}
    moved: set[int] = set()

    def position(index: tirx.Expr, size: object) -> None:
        if isinstance(size, tirx.IntImm):
            for load in _elements(index):
                offset = offsets.get(load.source)
                if offset is not None:
                    positions[offset] = min(int(size), positions.get(offset, int(size)))

    checks = "nnefc_kernel_error" in external_calls(function)
    for node in _nodes(function.body):
        match node:
            case tirx.BufferStore(value=value):
                moved.update(offsets[load.source] for load in _elements(value) if load.source in offsets)
                for index, size in zip(node.indices, node.buffer.ty.shape, strict=True):
                    position(index, size)
            case TensorLoad():
                for index, size in zip(node.indices, node.source.ty.shape, strict=True):
                    position(index, size)
            case tirx.LT(a=a, b=b) | tirx.GE(a=a, b=b):  # a check of a position
                if isinstance(b, tirx.IntImm) and int(b) > 0 and checks:
                    position(a, b)
    return positions, moved


_PARTS = (  # where statements and expressions have parts of their own
    "body", "block", "then_case", "else_case", "seq", "init", "value", "condition", "indices", "a", "b", "true_value",
    "false_value", "args", "source",
)  # fmt: skip


def _nodes(root: tirx.Stmt) -> Iterator[object]:
    """All statements and expressions in a statement."""
    waiting: list[object] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tirx.Stmt | tvm.ir.Expr | s_tir.SBlock):
            yield node
            waiting.extend(part for name in _PARTS if (part := getattr(node, name, None)) is not None)
        elif not isinstance(node, str) and isinstance(node, Sequence):
            waiting.extend(node)


def _elements(value: tirx.Expr) -> Iterator[TensorLoad]:
    """The elements that a value is one of, converted or clamped."""
    match value:
        case TensorLoad():
            yield value
        case tirx.Cast(value=inner):
            yield from _elements(inner)
        case tirx.Select(true_value=yes, false_value=no):
            yield from _elements(yes)
            yield from _elements(no)
        case tirx.Min(a=a, b=b) | tirx.Max(a=a, b=b):
            if isinstance(b, tirx.IntImm):
                yield from _elements(a)
        case Call(op=tvm.ir.Op(name="tirx.if_then_else"), args=args):
            yield from _elements(args[1])
            yield from _elements(args[2])
