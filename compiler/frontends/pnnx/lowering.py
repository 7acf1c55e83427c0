"""What lowerings build with: operands, constants and one dataflow block of Relax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx

from nnefc.diagnostics import CompileError
from nnefc.frontends.pnnx.functions import truth

__all__ = [
    "MAX_LIST_ITEMS",
    "Array",
    "Lowering",
    "Shape",
    "Tensor",
    "broadcast_shapes",
    "check_list",
    "dtype_of",
    "rank_of",
    "shape_of",
]

MAX_LIST_ITEMS = 4096
"""Items of a list or tuple, those of the lists in it counted too: each may be a tensor, and a kernel."""

_MOST_NESTED = 16
"""Lists inside each other."""

Shape: TypeAlias = tuple[int, ...]
Array: TypeAlias = npt.NDArray[Any]
Tensor: TypeAlias = Array | relax.Expr
"""A tensor while lowering: an array if its value stands in the file, else a Relax expression."""


def shape_of(tensor: Tensor) -> Shape:
    """The extents of an array or a Relax expression."""
    if isinstance(tensor, np.ndarray):
        return tensor.shape
    return tuple(int(extent) for extent in tensor.ty.shape)


def rank_of(tensor: Tensor) -> int:
    """The number of dimensions of an array or a Relax expression."""
    return len(shape_of(tensor))


def dtype_of(tensor: Tensor) -> str:
    """The element type of an array or a Relax expression."""
    return str(tensor.dtype if isinstance(tensor, np.ndarray) else tensor.ty.dtype)


def broadcast_shapes(left: Shape, right: Shape) -> Shape | None:
    """The shape to which both broadcast, aligned at the last dimension; None if they do not."""
    rank = max(len(left), len(right))
    left, right = (1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right
    if any(a != b and 1 not in (a, b) for a, b in zip(left, right, strict=True)):
        return None
    return tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))


def check_list(value: Any) -> None:
    """Check that a list is not too large or too deep; a list may hold one that it is made of many times over.

    Raises:
        CompileError: it is.
    """
    waiting, count = [(value, 0)], 0
    while waiting:
        item, depth = waiting.pop()
        count += 1
        if count > 1 + MAX_LIST_ITEMS:
            raise CompileError(f"a list has more than {MAX_LIST_ITEMS} items, those of the lists in it counted too")
        if depth > _MOST_NESTED:
            raise CompileError(f"lists are nested deeper than {_MOST_NESTED}")
        if isinstance(item, tuple):
            waiting += [(inner, depth + 1) for inner in item[: 1 + MAX_LIST_ITEMS]]


class Lowering:
    """The state while a network becomes one Relax function.

    Attributes:
        builder: the block builder, inside the function's dataflow block.
        hint: what the values that are built now should be called: the operator's name.
        results: how many results the operator at hand has in the file.
    """

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.builder = builder
        self.hint = ""
        self.results = 1
        self._constants: dict[object, tuple[Array, relax.Expr]] = {}

    def expr(self, tensor: Tensor) -> relax.Expr:
        """The tensor as a Relax expression; one array becomes one constant, however often it is used."""
        if not isinstance(tensor, np.ndarray):
            return tensor
        key: object = (tensor.dtype.str, tensor.tobytes()) if tensor.ndim == 0 else id(tensor)
        if key not in self._constants:
            # The array is kept too, so that its id is not given to another one.
            constant = relax.const(np.ascontiguousarray(tensor).reshape(tensor.shape), str(tensor.dtype))
            self._constants[key] = (tensor, constant)
        return self._constants[key][1]

    def emit(self, expr: relax.Expr) -> relax.Var:
        """Bind an expression to a variable."""
        return self.builder.emit(expr, self.hint)

    def compute(self, function: Callable[..., Any], *operands: Tensor, name: str) -> relax.Expr:
        """A TE computation over the operands as a call of a TIR function called `name`."""
        return self.builder.call_te(function, *map(self.expr, operands), primfunc_name_hint=name)

    def call(
        self, func: tirx.PrimFunc, arguments: Sequence[relax.Expr], shape: Shape, dtype: str, name: str
    ) -> relax.Expr:
        """A call of a TIR function whose last parameter is its result."""
        added = self.builder.add_func(func, name)
        return relax.call_tir(added, list(arguments), out_ty=relax.TensorType(shape, dtype))

    def convert(self, tensor: Tensor, dtype: str) -> relax.Expr:
        """The tensor in another element type, reals cut off towards zero where they become integers."""
        expr = self.expr(tensor)
        if dtype_of(tensor) == dtype:
            return expr
        if dtype == "bool":
            return self.elements(shape_of(tensor), lambda inputs, index: truth(inputs[0](*index)), expr, name="truth")
        return relax.op.astype(expr, dtype)

    def elements(self, shape: Shape, element: Callable[..., Any], *operands: Tensor, name: str) -> relax.Var:
        """A tensor computed element by element: `element(inputs, index)` gives the one at `index`."""

        def compute(*inputs: te.Tensor) -> te.Tensor:
            return te.compute(shape, lambda *index: element(inputs, index), name=name)

        return self.emit(self.compute(compute, *operands, name=name))
