"""Checks that values of attributes have the declared types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import PrimType

from nnefc.ir.attributes import ValueType

__all__ = ["IS", "is_scalar"]


def is_scalar(param: tirx.Var) -> bool:
    return isinstance(param.ty, PrimType) and str(param.ty.dtype) in ("int32", "int64")


def _integer(value: Any) -> int | None:
    if isinstance(value, tirx.IntImm):
        return int(value.value)
    return int(value) if isinstance(value, bool | int) else None


def _is_dimension(value: Any) -> bool:
    return _integer(value) is not None or isinstance(value, tirx.Expr)


def _is_text(value: Any) -> bool:
    return isinstance(value, str | tvm.ir.StringImm)


def _all(kind: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether a value is a list whose elements all satisfy a predicate."""
    return lambda value: isinstance(value, list | tuple | tvm_ffi.Array) and all(map(kind, value))


def _is_integer(value: Any) -> bool:
    return _integer(value) is not None


def _is_variable(value: Any) -> bool:
    return isinstance(value, tirx.Var)


def _is_binding(value: Any) -> bool:
    return len(value) == 2 and _is_variable(value[0]) and _is_dimension(value[1])


def _is_tiled_axis(value: Any) -> bool:
    return len(value) >= 3 and all(map(_is_variable, value[:2])) and all(map(_is_integer, value[2:]))


def _is_range(value: Any) -> bool:
    return len(value) == 2 and all(map(_is_integer, value))


IS: Mapping[ValueType, Callable[[Any], bool]] = {
    ValueType.FLAG: lambda value: _integer(value) == 1,
    ValueType.BOOLEAN: lambda value: _integer(value) in (0, 1),
    ValueType.INTEGER: _is_integer,
    ValueType.INTEGERS: _all(_is_integer),
    ValueType.FLOATS: _all(lambda value: isinstance(value, int | float | tirx.FloatImm)),
    ValueType.TEXT: _is_text,
    ValueType.TEXTS: _all(_is_text),
    ValueType.DIMENSION: _is_dimension,
    ValueType.DIMENSIONS: _all(_is_dimension),
    ValueType.VARIABLES: _all(_is_variable),
    ValueType.BINDINGS: _all(_is_binding),
    ValueType.TILED_AXES: _all(_is_tiled_axis),
    ValueType.RANGES: lambda value: isinstance(value, dict | tvm_ffi.Map) and all(map(_is_range, value.values())),
    ValueType.NAME: _is_text,
}
