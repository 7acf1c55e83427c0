"""What lowerings build with: operands, constants and one dataflow block of Relax."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from tvm import relax
from tvm.ir import GenericConst

from nnefc.diagnostics import CompileError
from nnefc.frontends.nnef.declarations import Shape, Tensor, Value

__all__ = ["DTYPES", "Lowering", "Operand", "by_definition", "check_table", "dtype_of", "integers", "shape_of_operand"]

Operand: TypeAlias = "npt.NDArray[Any] | relax.Expr"
"""A tensor while lowering: an array if its value is known at compile time, else a Relax expression."""

DTYPES: Mapping[str, str] = {"scalar": "float32", "integer": "int32", "logical": "bool"}
"""Element types by the content of a tensor; a variable of `integer` content stored in 64 bits stays int64."""

_MAX_TABLE = 1 << 24


class Lowering:
    """The state while a flattened graph becomes one Relax function.

    Attributes:
        builder: the block builder, inside the function's dataflow block.
        hint: what the tensors that are built now should be called: the first result of the invocation at hand.
    """

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.builder = builder
        self.hint = ""
        self._operands: dict[Tensor, Operand] = {}
        self._constants: dict[object, tuple[npt.NDArray[Any], GenericConst]] = {}

    def bind(self, tensor: Tensor, operand: Operand) -> None:
        """Let `tensor` stand for `operand` from now on."""
        self._operands[tensor] = operand

    def operand(self, value: Value) -> Operand:
        """The operand for a tensor, or for a primitive value in the place of one: an array of rank 0."""
        match value:
            case Tensor():
                return self._operands[value]
            case bool():
                return np.array(value)
            case int():
                return integers(value)
            case float():
                with np.errstate(over="ignore"):  # beyond float32 is infinity
                    return np.array(value, np.float32)
            case _:
                raise TypeError(f"not a tensor: {value!r}")

    def operands(self, values: Iterable[Value]) -> list[Operand]:
        """The operands for an array of tensors."""
        return [self.operand(value) for value in values]

    def expr(self, operand: Operand) -> relax.Expr:
        """The operand as a Relax expression; one array becomes one constant, however often it is used."""
        if not isinstance(operand, np.ndarray):
            return operand
        key = _identity(operand)
        if key not in self._constants:
            value = np.ascontiguousarray(operand).reshape(operand.shape)
            # Without the type, 64-bit items would be narrowed. The array is kept: its place must not be used again.
            self._constants[key] = (operand, relax.const(value, str(value.dtype)))
        return self._constants[key][1]

    def emit(self, expr: relax.Expr, part: str = "part") -> relax.Var:
        """Bind an intermediate expression to a variable; the final one of an invocation is returned unbound."""
        return self.builder.emit(expr, f"{self.hint}_{part}")

    def compute(self, function: Callable[..., Any], *operands: Operand, name: str) -> relax.Expr:
        """A TE computation over the operands as a call of a TIR function called `name`."""
        return self.builder.call_te(function, *map(self.expr, operands), primfunc_name_hint=name)


def check_table(entries: int) -> None:
    """Refuse a table of positions along an axis that no real network needs, before memory is taken for it.

    Raises:
        CompileError: without a place; the lowering of the invocation adds it.
    """
    if entries > _MAX_TABLE:
        raise CompileError(
            f"the operation needs a table of {entries} entries along one dimension, more than {_MAX_TABLE}"
        )


def integers(values: int | list[int]) -> npt.NDArray[np.int32]:
    """Integers of a document as an array.

    Raises:
        CompileError: one does not fit into 32 bits; who lowers the invocation adds its place.
    """
    try:
        return np.array(values, np.int32)
    except OverflowError:
        raise CompileError("integers in tensors have 32 bits, a value is beyond them") from None


def _identity(array: npt.NDArray[Any]) -> object:
    """What two arrays have in common that may be one constant: numbers their value, others their place in memory."""
    if array.ndim == 0:
        return array.dtype.str, array.tobytes()
    return array.dtype.str, array.shape, array.strides, array.__array_interface__["data"][0]


def shape_of_operand(operand: Operand) -> Shape:
    """The shape of an array or a Relax expression."""
    if isinstance(operand, np.ndarray):
        return operand.shape
    return tuple(int(extent) for extent in operand.ty.shape)


def dtype_of(operand: Operand) -> str:
    """The element type of an array or a Relax expression."""
    return str(operand.dtype if isinstance(operand, np.ndarray) else operand.ty.dtype)


def by_definition(lowering: Lowering, args: object) -> None:
    """Stands where an operation is lowered as the composition that the standard defines it by.

    The evaluator expands such operations (see `nnefc.frontends.nnef.frontend`), so this is never called.
    """
    raise AssertionError("an operation that is lowered by its definition was not expanded")
