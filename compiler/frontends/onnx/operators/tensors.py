"""Helpers that lowerings share: operands of nodes, their shapes and values, and computations over index spaces."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from nnefc.frontends.onnx.data_dependent_sizes import sizes_of
from nnefc.frontends.onnx.hints import advice_on_data
from nnefc.frontends.onnx.operator import Context, Node, Value
from nnefc.frontends.onnx.values import Array
from nnefc.operators.dtypes import is_float
from nnefc.operators.tensor.shape import Transpose
from nnefc.support.diagnostics import CompileError

__all__ = [
    "Array",
    "channels_first",
    "channels_last",
    "dtype_of",
    "fail",
    "has_input",
    "input_at",
    "integers",
    "is_float",
    "known",
    "normal_axes",
    "normal_axis",
    "optional_input",
    "required_value",
    "settled",
    "shape_of",
    "spell",
]

Shape = tuple[int, ...]


def fail(node: Node | None, message: str, hint: str | None = None) -> CompileError:
    """An error about a node, to be raised."""
    return CompileError(message if node is None else f"{node.description}: {message}", hint=hint)


def spell(shape: Sequence[int]) -> str:
    """A shape as messages show it."""
    return f"[{','.join(map(str, shape))}]"


def has_input(node: Node, index: int) -> bool:
    """Returns whether an optional input is given."""
    return index < len(node.inputs) and node.inputs[index] is not None


def optional_input(node: Node, index: int) -> Value | None:
    """An input, or None where it is left out."""
    return node.inputs[index] if index < len(node.inputs) else None


def input_at(node: Node, index: int) -> Value:
    """An input that must be there.

    Raises:
        CompileError: it is not.
    """
    value = optional_input(node, index)
    if value is None:
        raise fail(node, f"input {index} is missing")
    return value


def shape_of(value: Value) -> Shape:
    """The sizes of a tensor."""
    return value.shape


def dtype_of(value: Value) -> str:
    """The element type of a tensor, as NumPy and TVM spell it."""
    return value.dtype


def known(ctx: Context, array: Array) -> Value:
    """A tensor whose value is known at compile time."""
    return ctx.known(array)


def settled(ctx: Context, value: Value) -> Value:
    """The value itself, or as an array if constants alone determine it."""
    array = ctx.constant(value)
    return value if array is None else ctx.known(array)


def required_value(ctx: Context, node: Node, index: int, name: str) -> Array:
    """The value of an input that must be known at compile time.

    Raises:
        CompileError: it is not known at compile time.
    """
    array = ctx.constant(input_at(node, index))
    if array is None:
        hint = advice_on_data(node.operand_names, index, _is_input(input_at(node, index)))
        raise fail(node, f"its input '{name}' must be known at compile time", hint)
    return array


_OF_DATA = frozenset(
    {
        "AffineGrid",
        "ConstantOfShape",
        "DFT",
        "Expand",
        "OneHot",
        "Pad",
        "Range",
        "Reshape",
        "Resize",
        "Split",
        "SplitToSequence",
        "Tile",
    }
)
"""Operators that take sizes from data."""


def _is_input(value: Value) -> bool:
    """Returns whether a value is an input of the network itself."""
    return isinstance(value.expr, relax.Var) and not isinstance(value.expr, relax.DataflowVar)


def integers(ctx: Context, node: Node, index: int, name: str) -> list[int] | None:
    """The elements of an integer input that shapes depend on, dynamic sizes among them; None where it is left out."""
    if not has_input(node, index):
        return None
    value = input_at(node, index)
    of_data = node.op_type in _OF_DATA and value.dtype.startswith("int")
    sizes = sizes_of(ctx, value, node.op_type.lower()) if of_data else value.sizes
    if sizes is not None:
        return list(sizes.reshape(-1).tolist())
    return [int(element) for element in required_value(ctx, node, index, name).reshape(-1)]


def tells_at_run_time(ctx: Context, node: Node, index: int) -> bool:
    """Returns whether the sizes in an input are neither known nor follow from others."""
    if not has_input(node, index):
        return False
    value = input_at(node, index)
    return value.sizes is None and ctx.constant(value) is None


def normal_axis(node: Node, axis: int, rank: int) -> int:
    """An axis, from the front.

    Raises:
        CompileError: the tensor has no such axis.
    """
    if not -rank <= axis < rank:
        raise fail(node, f"axis {axis} is out of range for a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def normal_axes(node: Node, axes: Sequence[int], rank: int) -> list[int]:
    """Axes, from the front, in the given order.

    Raises:
        CompileError: the tensor has no such axis, or one occurs twice.
    """
    result = [normal_axis(node, axis, rank) for axis in axes]
    if len(set(result)) != len(result):
        raise fail(node, f"the axes {spell(axes)} name an axis twice")
    return result


def channels_first(ctx: Context, x: Value) -> Value:
    """`[N, …, C]` as `[N, C, …]`."""
    made: Value = ctx.apply(Transpose((0, x.rank - 1, *range(1, x.rank - 1))), x)
    return made


def channels_last(ctx: Context, x: Value) -> Value:
    """`[N, C, …]` as `[N, …, C]`."""
    made: Value = ctx.apply(Transpose((0, *range(2, x.rank), 1)), x)
    return made
