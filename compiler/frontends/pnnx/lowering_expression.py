"""Types PNNX expressions by PyTorch's rules, and folds the parts that depend on numbers alone.

steps in reverse Polish order ──_Typing──▶ steps of the library's functions ──Expression──▶ one kernel
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from nnefc.frontends.pnnx.expression import NodeKind, StackStep, Tree, to_rpn
from nnefc.frontends.pnnx.functions import FUNCTIONS, ExpressionFunction, TypeRule
from nnefc.frontends.pnnx.lowering import Lowering, Shape, check_list, dtype_of, shape_of
from nnefc.frontends.pnnx.promotion import DEFAULT_FLOAT, Typed, category, result_type
from nnefc.operators.math.elementwise import broadcast_shapes
from nnefc.operators.math.expression import Expression
from nnefc.operators.math.expression_nodes import ExpressionNode as Computed
from nnefc.operators.math.expression_nodes import Given, Made
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Size

__all__ = ["lower"]

Number: TypeAlias = "int | float | bool"

_MAX_NODES = 100_000  # of one expression
_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


@dataclass(frozen=True)
class _Tensor:
    """A tensor while an expression is typed: an operand, or the result of a step that is computed."""

    source: Given | Made
    dtype: str
    shape: Shape


_Element: TypeAlias = "_Tensor | Number | tuple[Any, ...] | None"


def lower(tree: Tree, operands: Sequence[Any], ctx: Lowering) -> Any:
    """The value of an expression: a tensor, or a number or tuple of numbers where that is known now.

    Args:
        tree: the expression.
        operands: what `@0`, `@1`, … stand for: Relax expressions, arrays, numbers or tuples of numbers.
        ctx: where to build.

    Raises:
        CompileError: operands do not fit: shapes that do not broadcast, types that a function does not take; the
            expression, or a list in it, is too large.
    """
    if len(tree.nodes) > _MAX_NODES:
        raise CompileError(
            f"the expression has {len(tree.nodes):,} numbers, operands and functions, more than {_MAX_NODES:,}",
            location=tree.location.at(0),
        )
    typing = _Typing(tree, operands)
    result = typing.result()
    check_list(result)
    return _lowered(result, typing.computed, operands, ctx)


def _lowered(element: _Element, steps: list[Computed], operands: Sequence[Any], ctx: Lowering) -> Any:
    """Lower an element of the result; each tensor in a list is a kernel of its own."""
    match element:
        case tuple():
            return tuple(_lowered(inner, steps, operands, ctx) for inner in element)
        case _Tensor(source=Given(index=index)):
            return operands[index]
        case _Tensor(source=Made(index=index)):
            return Expression.ending_at(steps, index).lower(ctx, *operands)
    return element


class _Typing:
    """Runs the steps of an expression with types and shapes for values; computes what depends on numbers alone."""

    def __init__(self, tree: Tree, operands: Sequence[Any]) -> None:
        self.computed: list[Computed] = []
        self._tree = tree
        self._operands = operands

    def result(self) -> _Element:
        stack: list[_Element] = []
        for step in to_rpn(self._tree):
            arguments = tuple(stack[len(stack) - step.count :])
            del stack[len(stack) - step.count :]
            match step.kind:
                case NodeKind.NUMBER:
                    assert not isinstance(step.value, str)
                    stack.append(step.value)
                case NodeKind.OPERAND:
                    stack.append(self._operand(step))
                case NodeKind.LIST | NodeKind.TUPLE:
                    stack.append(arguments)
                case NodeKind.CALL:
                    stack.append(self._call(step, arguments))
        return stack[0]

    def _error(self, step: StackStep, message: str) -> CompileError:
        return CompileError(message, location=self._tree.location.at(step.position))

    def _operand(self, step: StackStep) -> _Element:
        number = step.value
        assert isinstance(number, int)
        if number >= len(self._operands):
            raise self._error(step, f"there is no operand '@{number}': the operator has {len(self._operands)}")
        operand = self._operands[number]
        if operand is None or isinstance(operand, bool | int | float | tuple | Size):
            return operand
        if isinstance(operand, str | complex):
            raise self._error(step, f"the operand '@{number}' is neither a tensor nor a number")
        return _Tensor(Given(number), dtype_of(operand), shape_of(operand))

    def _call(self, step: StackStep, arguments: tuple[_Element, ...]) -> _Element:
        function = FUNCTIONS[str(step.value)]
        if function.rule is TypeRule.SIZE:
            return self._size(step, arguments)
        values: list[_Tensor | Number] = []
        for argument in arguments:
            if argument is None or isinstance(argument, tuple):
                raise self._error(step, f"'{step.value}' takes no lists and no None")
            values.append(argument)
        if not any(isinstance(value, _Tensor) for value in values):
            return self._of_numbers(step, function, values)
        return self._of_tensors(step, function, tuple(values))

    def _size(self, step: StackStep, arguments: tuple[_Element, ...]) -> _Element:
        tensor = arguments[0]
        if not isinstance(tensor, _Tensor):
            raise self._error(step, "'size' is for tensors")
        if len(arguments) == 1:
            return tuple(tensor.shape)
        axis = arguments[1]
        if isinstance(axis, bool) or not isinstance(axis, int):
            raise self._error(step, "the dimension that 'size' is asked for must be an integer known at compile time")
        if not -len(tensor.shape) <= axis < len(tensor.shape):
            raise self._error(step, f"there is no dimension {axis} in a tensor of rank {len(tensor.shape)}")
        return tensor.shape[axis]

    def _of_numbers(self, step: StackStep, function: ExpressionFunction, values: list[Any]) -> Number:
        if function.rule is TypeRule.INTEGER and not all(isinstance(value, int | Size) for value in values):
            raise self._error(step, f"'{step.value}' is for integers and booleans")
        try:
            result: Number = function.number(*values)
        except ZeroDivisionError:
            raise self._error(step, f"'{step.value}' divides by zero") from None
        except (OverflowError, ValueError):
            raise self._error(step, f"'{step.value}' of these numbers has no value") from None
        if isinstance(result, int) and not -(1 << 63) <= result < 1 << 63:
            raise self._error(step, f"the result of '{step.value}' does not fit into 64 bits")
        return result

    def _of_tensors(
        self, step: StackStep, function: ExpressionFunction, values: tuple[_Tensor | Number, ...]
    ) -> _Tensor:
        if any(isinstance(value, Size) for value in values):
            raise self._error(step, f"'{step.value}' takes no sizes that are known at run time next to tensors")
        typed = [_typed(value) for value in values]
        computes, dtype = self._types(step, function, typed)
        shape: Shape = ()
        for value in values:
            if isinstance(value, _Tensor):
                try:
                    shape = broadcast_shapes(shape, value.shape)
                except CompileError as error:
                    raise self._error(step, error.message) from None
            elif isinstance(value, int) and not _fits(value, computes):
                raise self._error(step, f"the number {value} does not fit into the type {computes}")
        arguments = [value.source if isinstance(value, _Tensor) else value for value in values]
        arguments = arguments[::-1] if function.swapped else arguments
        name = None if function.rule is TypeRule.CONVERSION else function.name
        self.computed.append(Computed(name, tuple(arguments), computes))
        return _Tensor(Made(len(self.computed) - 1), dtype, shape)

    def _types(self, step: StackStep, function: ExpressionFunction, typed: list[Typed]) -> tuple[str, str]:
        """The type in which a function computes, and that of its result."""
        common = result_type(typed)
        match function.rule:
            case TypeRule.CONVERSION:
                return function.name, function.name
            case TypeRule.LOGICAL:
                return "bool", "bool"
            case TypeRule.COMPARISON:
                return common, "bool"
            case TypeRule.REAL if category(common) != 2:
                return DEFAULT_FLOAT, DEFAULT_FLOAT
            case TypeRule.INTEGER if category(common) == 2:
                raise self._error(step, f"'{step.value}' is for integers and booleans, not for {common}")
        if common == "bool" and not function.truth:
            raise self._error(step, f"'{step.value}' is not for booleans")
        return common, common


def _typed(value: _Tensor | Number) -> Typed:
    match value:
        case _Tensor():
            return Typed(value.dtype, len(value.shape))
        case bool():
            return Typed("bool", 0, number=True)
        case int():
            return Typed("int64", 0, number=True)
    return Typed("float64", 0, number=True)


def _fits(value: int, dtype: str) -> bool:
    if dtype in _INTEGERS:
        return -(1 << _INTEGERS[dtype] - 1) <= value < 1 << _INTEGERS[dtype] - 1
    return dtype != "uint8" or 0 <= value < 256
