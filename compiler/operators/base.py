"""What every operator is, and what operators are lowered with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
from tvm import relax, te
from tvm.ir import GenericConst

from nnefc.diagnostics import CompileError

__all__ = ["Array", "Emitter", "Operand", "Operator", "Shape", "check_table", "dtype_of", "rank_of", "shape_of"]

Array: TypeAlias = npt.NDArray[Any]
Shape: TypeAlias = tuple[int, ...]
Operand: TypeAlias = Array | relax.Expr
"""A tensor: an array where its value is known at compile time, else an expression of Relax."""

_MAX_TABLE = 1 << 24


def shape_of(operand: Operand) -> Shape:
    """The shape of an array or an expression of Relax."""
    if isinstance(operand, np.ndarray):
        return operand.shape
    return tuple(int(extent) for extent in operand.ty.shape)


def rank_of(operand: Operand) -> int:
    """The number of dimensions of an array or an expression of Relax."""
    return len(shape_of(operand))


def dtype_of(operand: Operand) -> str:
    """The element type of an array or an expression of Relax."""
    return str(operand.dtype if isinstance(operand, np.ndarray) else operand.ty.dtype)


def check_table(entries: int) -> None:
    """Refuse a table of positions along an axis that no real network needs, before memory is taken for it.

    Raises:
        CompileError: without a place; whoever lowers the operator adds it.
    """
    if entries > _MAX_TABLE:
        raise CompileError(
            f"the operation needs a table of {entries} entries along one dimension, more than {_MAX_TABLE}"
        )


class Emitter:
    """Emits into one dataflow block of Relax.

    Attributes:
        builder: the block builder, inside the block.
        hint: what the tensors that are built now should be called.
    """

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.builder = builder
        self.hint = ""
        self._constants: dict[object, tuple[Array, relax.Expr]] = {}

    def expr(self, operand: Operand) -> relax.Expr:
        """The operand as an expression of Relax; one array becomes one constant, however often it is used."""
        if not isinstance(operand, np.ndarray):
            return operand
        key = _identity(operand)
        if key not in self._constants:
            value = np.ascontiguousarray(operand).reshape(operand.shape)
            # Without the type, 64-bit items would be narrowed. The array is kept: its place must not be used again.
            self._constants[key] = (operand, relax.const(value, str(value.dtype)))
        return self._constants[key][1]

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """Bind an intermediate expression to a variable; who asks for an operator binds its result."""
        return self.builder.emit(expr, self.hint)

    def parts(self, expr: relax.Expr) -> list[relax.Expr]:
        """The results of an expression that has several, each bound to a variable."""
        whole = self.builder.emit(expr, self.hint)
        return [self.emit(relax.TupleGetItem(whole, index)) for index in range(len(whole.ty.fields))]

    def bound(self, operand: Operand) -> Operand:
        """The operand, bound to a variable if it is an expression that is computed."""
        if isinstance(operand, np.ndarray | relax.Var | GenericConst):
            return operand
        return self.emit(operand)

    def number(self, value: float, like: Operand) -> Array:
        """A constant without axes, of the element type of `like`."""
        return np.array(value).astype(_numpy_dtype(dtype_of(like)))

    def compute(
        self,
        function: Callable[..., Any],
        *operands: Operand,
        name: str,
        attrs: Mapping[str, Any] = MappingProxyType({}),
    ) -> relax.Expr:
        """A computation in TE over the operands, as a call of a kernel called `name` with these attributes."""
        given = map(self.expr, operands)
        return self.builder.call_te(function, *given, primfunc_name_hint=name, primfunc_attrs=dict(attrs) or None)

    def elements(
        self,
        shape: Sequence[int],
        element: Callable[[tuple[Any, ...], tuple[Any, ...]], Any],
        *operands: Operand,
        name: str,
    ) -> relax.Expr:
        """A tensor computed element by element: `element(tensors, index)` is the one at `index`."""

        def compute(*tensors: te.Tensor) -> te.Tensor:
            return te.compute(tuple(shape), lambda *index: element(tensors, index), name=name)

        return self.compute(compute, *operands, name=name)

    def reshaped(self, operand: Operand, shape: Sequence[int]) -> Operand:
        """The same items in another shape."""
        if shape_of(operand) == tuple(shape):
            return operand
        if isinstance(operand, np.ndarray):
            return operand.reshape(tuple(shape))
        return self.emit(relax.op.reshape(operand, tuple(shape)))


def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes

        name = ml_dtypes.bfloat16  # NumPy does not know its name
    return np.dtype(name)


def _identity(array: Array) -> object:
    """What two arrays have in common that may be one constant: numbers their value, others their place in memory."""
    if array.ndim == 0:
        return array.dtype.str, str(array.dtype), array.tobytes()
    return array.dtype.str, array.shape, array.strides, array.__array_interface__["data"][0]


class Operator:
    """An operator with its attributes; subclasses are frozen dataclasses.

    `shape` takes the shapes of the operands and returns that of the result, `lower` takes the operands and returns the
    result, an expression that is not bound yet or an array. Both take and return tuples where there are several
    results.

    Raises:
        CompileError: the attributes and the operands do not fit each other. Front ends add the place.
    """

    KINDS: ClassVar[list[type[Operator]]] = []
    """All operators, in the order of their declaration."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Operator.KINDS.append(cls)

    def shape(self, *shapes: Any) -> Any:
        """The shape of the result, from those of the operands."""
        raise NotImplementedError

    def lower(self, at: Emitter, *operands: Any) -> Any:
        """The result, built with `at`."""
        raise NotImplementedError
