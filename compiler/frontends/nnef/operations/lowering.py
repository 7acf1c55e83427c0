"""Emitter of the standard's lowerings: operands, constants and one Relax dataflow block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
from tvm import relax

from nnefc.frontends.nnef.declarations import Tensor, Value
from nnefc.operators.base import Emitter, Operand, dtype_of
from nnefc.operators.base import shape_of as shape_of_operand
from nnefc.support.diagnostics import CompileError

__all__ = ["DTYPES", "Lowering", "Operand", "by_definition", "dtype_of", "integers", "shape_of_operand"]

DTYPES: Mapping[str, str] = {"scalar": "float32", "integer": "int32", "logical": "bool"}
"""Element types by the content of a tensor; a variable of `integer` content stored in 64 bits stays int64."""


class Lowering(Emitter):
    """The state while a flattened graph becomes one Relax function; `hint` is the first result of the invocation."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        super().__init__(builder)
        self._operands: dict[Tensor, Operand] = {}

    def bind(self, tensor: Tensor, operand: Operand) -> None:
        """Let `tensor` stand for `operand` from now on."""
        self._operands[tensor] = operand

    def operand(self, value: Value) -> Operand:
        """The operand for a tensor, or for a primitive value instead of one: an array of rank 0."""
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

    def emit(self, expr: relax.Expr, part: str = "part") -> relax.Var:
        """Bind an intermediate expression to a variable; the final one of an invocation is returned unbound."""
        return self.builder.emit(expr, f"{self.hint}_{part}")


def integers(values: int | list[int]) -> npt.NDArray[np.int32]:
    """Integers of a document as an array.

    Raises:
        CompileError: one does not fit into 32 bits; who lowers the invocation adds its location.
    """
    try:
        return np.array(values, np.int32)
    except OverflowError:
        raise CompileError("integers in tensors have 32 bits, a value is beyond them") from None


def by_definition(lowering: Lowering, args: object) -> None:
    """Stands where an operation is lowered as the composition that the standard defines it by.

    The evaluator expands such operations (see `nnefc.frontends.nnef.frontend`), so this is never called.
    """
    raise AssertionError("an operation that is lowered by its definition was not expanded")
