"""Values that names of an ONNX graph are bound to during lowering: tensors, sequences, optionals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from tvm import relax

from nnefc.operators.dtypes import FLOAT16_TYPES, STORAGE, dtype_name, numpy_dtype
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.arrays import is_dynamic
from nnefc.symbolic.dims import Dimension, is_known

__all__ = [
    "FLOAT16_TYPES",
    "STORAGE",
    "AnyValue",
    "Array",
    "Map",
    "Optional",
    "SparseTensor",
    "Stacked",
    "TensorSequence",
    "Value",
    "dtype_name",
    "numpy_dtype",
    "same_values",
]

Array: TypeAlias = "npt.NDArray[Any]"


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor: known at compile time (`array`), made of dynamic sizes (`sizes`), or computed by the program (`expr`).

    Attributes:
        shape: sizes.
        dtype: element type, as `dtype_name` spells it. Of the types in `STORAGE` the expression holds the storage type.
        array: the value, if it is known at compile time; must not be written to.
        expr: the Relax expression otherwise: a variable of the dataflow block, or a parameter.
        fixed: whether it is computed from values known at compile time alone, so that it could become known.
        sizes: the value where it is made of sizes that are known at run time; see `of_sizes`.
        stored: the constant of 16-bit floats that the expression converts to float32, where it is one.
        wide: whether the expression of a 16-bit float is float32, and not rounded to the 16-bit float's type.
        indexed: of indices that a pooling made, the shape of the tensor that they are into.
    """

    shape: tuple[int, ...]
    dtype: str
    array: Array | None = None
    expr: relax.Expr | None = None
    fixed: bool = False
    wide: bool = False
    sizes: Array | None = None
    stored: Array | None = None
    indexed: tuple[int, ...] | None = None

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @classmethod
    def known(cls, array: npt.ArrayLike) -> Value:
        """A tensor whose value is known at compile time."""
        made = np.asarray(array)
        return cls(made.shape, dtype_name(made.dtype), array=made, fixed=True)

    @classmethod
    def of_sizes(cls, sizes: Array, dtype: str) -> Value:
        """A tensor whose elements are known, or known when sizes are.

        Args:
            sizes: an array of objects: numbers and `Size`s, `Quotient`s of a real type, `Condition`s of booleans.
        """
        if not is_dynamic(sizes):
            return cls.known(sizes.astype(numpy_dtype(dtype)))
        return cls(sizes.shape, dtype, sizes=sizes)

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: str) -> Value:
        """A tensor without elements, and so known: an array, or neither that nor a variable if other sizes are open.

        Raises:
            CompileError: NumPy has no such array: its other sizes are too large.
        """
        if not is_known(*shape):
            return cls(shape, dtype)
        try:
            return cls.known(np.zeros(shape, numpy_dtype(dtype)))
        except ValueError:
            raise CompileError(f"a tensor without elements has the shape {list(shape)}, which is too large") from None


@dataclass(frozen=True, eq=False)
class TensorSequence:
    """A sequence of tensors (or of sequences, …), of a length known at compile time.

    Attributes:
        elements: the values.
        dtype: element type of the tensors, for an empty sequence too; empty where nothing tells.
    """

    elements: tuple[AnyValue, ...]
    dtype: str = ""


@dataclass(frozen=True, eq=False)
class Stacked:
    """A sequence of tensors of one shape, of any length.

    Attributes:
        tensor: the elements along its first dimension.
    """

    tensor: Value

    @property
    def length(self) -> Dimension:
        """How many elements there are."""
        return self.tensor.shape[0]

    @property
    def dtype(self) -> str:
        """Element type of the elements."""
        return self.tensor.dtype

    @property
    def element(self) -> Value:
        """An element's shape and type."""
        return Value(self.tensor.shape[1:], self.dtype)


@dataclass(frozen=True, eq=False)
class Optional:
    """An optional value, of which it is known at compile time whether it is there: `element` is None if it is not."""

    element: AnyValue | None
    dtype: str = ""


@dataclass(frozen=True, eq=False)
class Map:
    """A map from integers or strings to values, all known at compile time."""

    elements: dict[int | str, Any]


@dataclass(frozen=True, eq=False)
class SparseTensor:
    """A sparse tensor, as an attribute or an initializer.

    Attributes:
        values: `[n]`, the elements that are not zero.
        indices: `[n]` int64, their indices in the flattened tensor, ascending.
        shape: of the tensor.
    """

    values: Array
    indices: Array
    shape: tuple[int, ...]

    def dense(self) -> Array:
        """The tensor with its zeros."""
        result = np.zeros(int(np.prod(self.shape, dtype=np.int64)), self.values.dtype)
        result[self.indices] = self.values
        return result.reshape(self.shape)


def same_values(one: Array | None, other: Array | None) -> bool:
    """Returns whether both are known and can stand for each other: 0.0 and -0.0 cannot, a NaN can for its like."""
    if one is None or other is None or (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return one.tolist() == other.tolist() if one.dtype == object else one.tobytes() == other.tobytes()


AnyValue: TypeAlias = "Value | TensorSequence | Stacked | Optional | Map"
