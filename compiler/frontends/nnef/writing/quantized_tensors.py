"""Writes tensors quantized to 8-bit integers as entries in `graph.quant`.

q = quantize(x, s, z)                "x": zero_point_linear_quantize(zero_point = z, scale = s, bits = 8, …);
y = dequantize(q, s, z)        →     and y is written as x

w = dequantize(integers, t, 0)   →   a variable whose file has the integers, and an entry
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax
from tvm.ir import GenericConst

from nnefc.frontends.nnef.language.signatures import spell_value
from nnefc.frontends.nnef.values import Tensor
from nnefc.frontends.nnef.writing.document import Document
from nnefc.ir.dataflow import bindings_of, variables_read

__all__ = ["Rounded"]

Array = npt.NDArray[Any]

_NARROW = ("uint8", "int8")


class Rounded:
    """The quantized tensors of a network's function.

    Attributes:
        entries: of `graph.quant`, without the name, by the tensors of the document.
    """

    def __init__(self, document: Document, main: relax.Function) -> None:
        self._document = document
        bindings = bindings_of(main)
        self._definitions = {binding.var: binding.value for binding in bindings}
        values = [*self._definitions.values(), main.body.body]
        self._uses = Counter(var for value in values for var in variables_read(value))
        self.entries: dict[Tensor, str] = {}

    def dequantized(self, value: relax.Expr) -> Tensor | None:
        """Writes a binding of a quantized tensor; returns None for other bindings.

        Raises:
            Unsayable: what is rounded cannot be written.
        """
        if not _calls(value, "relax.dequantize"):
            return None
        data, *parameters = value.args
        constants = [_known(parameter) for parameter in parameters]
        scale, zero = constants[0], constants[1]
        if scale is None or zero is None or str(value.attrs.out_dtype) != "float32":
            return None
        axis = int(value.attrs.axis) % max(1, len(data.ty.shape.values)) if scale.size > 1 else None
        codes = _known(data)
        if codes is not None:
            return self._variable(codes, scale, zero, axis)
        source = self._definitions.get(data)
        if source is None or not _calls(source, "relax.quantize") or str(data.ty.dtype) not in _NARROW:
            return None
        own_scale, own_zero = (_known(parameter) for parameter in source.args[1:])
        if own_scale is None or own_zero is None:
            return None
        same = np.array_equal(own_scale, scale) and np.array_equal(own_zero, zero)
        if not same or (axis is not None and int(source.attrs.axis) != int(value.attrs.axis)):
            return None
        return self._tensor(source.args[0], _entry(str(data.ty.dtype), scale, zero, axis, symmetric=False))

    def _variable(self, codes: Array, scale: Array, zero: Array, axis: int | None) -> Tensor:
        document = self._document
        if str(codes.dtype) not in _NARROW:  # such as a bias: what it stands for
            along = [-1 if dimension == axis else 1 for dimension in range(codes.ndim)] if axis is not None else []
            reals = (codes.astype(np.float64) - zero.reshape(along)) * scale.astype(np.float64).reshape(along)
            return document.variable(reals.astype(np.float32))
        name = document.constant_name(codes)
        made = document.coded(codes)
        if name is not None:
            document.named.setdefault(made, name)
        symmetric = codes.dtype == np.int8 and not zero.any() and bool(codes.min(initial=0) > -128)
        self.entries[made] = _entry(str(codes.dtype), scale, zero, axis, symmetric)
        return made

    def _tensor(self, source: relax.Expr, entry: str) -> Tensor:
        document = self._document
        made = document.tensor(source)
        shared = self._uses.get(source, 0) > 1 if isinstance(source, relax.Var) else True
        alias = any(value is made and not var.same_as(source) for var, value in document.values.items())
        if shared or alias or made in document.variables or made in self.entries:
            made = document.call("copy", x=made)
        self.entries[made] = entry
        return made

    def text(self, names: Mapping[Tensor, str]) -> str:
        """`graph.quant`, of the tensors that have a name."""
        return "".join(f'"{names[tensor]}": {entry};\n' for tensor, entry in self.entries.items() if tensor in names)


def _entry(dtype: str, scale: Array, zero: Array, axis: int | None, symmetric: bool) -> str:
    arguments: dict[str, Any] = {
        "zero_point": _along(zero.astype(int), axis),
        "scale": _along(scale.astype(float), axis),
        "bits": 8,
        "signed": dtype == "int8",
        "symmetric": symmetric,
    }
    listed = ", ".join(f"{name} = {spell_value(value)}" for name, value in arguments.items())
    return f"zero_point_linear_quantize({listed})"


def _along(values: Array, axis: int | None) -> Any:
    """Return a number, or nested lists of the values along an axis; NNEF aligns dimensions from the first one."""
    if axis is None or values.size == 1:
        return values.reshape(-1)[0].item()
    if not values.any():
        return 0.0 if values.dtype.kind == "f" else 0
    return values.reshape((1,) * axis + (-1,)).tolist()


def _known(expr: relax.Expr) -> Array | None:
    return expr.value.numpy() if isinstance(expr, GenericConst) else None


def _calls(expr: relax.Expr, name: str) -> bool:
    return isinstance(expr, relax.Call) and getattr(expr.op, "name", "") == name
