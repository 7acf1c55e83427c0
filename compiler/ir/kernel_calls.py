"""Marks kernels that use symbolic variables beyond their operands' shapes, so that TVM does not merge two of them.

    kernel(x[m, 4], y[m, 4]): t = buffer[n, 4] …         made for x[n, 4], with the network's own variable n inside
    kernel(x[m, 4], y[m, 4]): t = buffer[k, 4] …         the same, made for x[k, 4]

TVM's builder merges kernels that differ only in the names of such variables, even where they stand for different sizes.
An attribute of each kernel that lists its variables prevents the merge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.utils import gen_call_tir_inputs

from nnefc.ir.attributes import CAPTURED_DIMENSIONS
from nnefc.symbolic.dims import dynamic_variables, variables

__all__ = ["call_te", "emit_te", "kept_apart"]


def call_te(
    builder: relax.BlockBuilder,
    function: Callable[..., Any],
    *args: Any,
    name: str,
    attrs: Mapping[str, Any] | None = None,
) -> relax.Call:
    """Wraps `builder.call_te` for functions that capture dynamic dimensions.

    Args:
        builder: takes in the kernel.
        function: from tensors of TE, for the operands among `args`, to one or several tensors.
        args: operands, sizes and whatever else the function takes.
        name: of the kernel.
        attrs: of the kernel.
    """
    kernel, operands, results = gen_call_tir_inputs(function, *args, primfunc_attrs=dict(attrs) if attrs else None)
    return relax.call_tir(builder.add_func(kept_apart(kernel), name), operands, results)


def emit_te(
    builder: relax.BlockBuilder,
    function: Callable[..., Any],
    *args: Any,
    name: str,
    attrs: Mapping[str, Any] | None = None,
) -> relax.Var:
    """The variable that is bound to a call; see :func:`call_te`."""
    return builder.emit(call_te(builder, function, *args, name=name, attrs=attrs))


def kept_apart(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel that TVM takes for no other one with other dynamic dimensions inside."""
    names = _captured(kernel)
    return kernel.with_attr(CAPTURED_DIMENSIONS, names) if names else kernel


def _captured(kernel: tirx.PrimFunc) -> list[str]:
    """The names of the dynamic dimensions in a kernel that none of its parameters is, or shows by itself in its
    shape."""
    known = dynamic_variables()
    if not known:
        return []
    shown: set[tvm.ir.Var] = set(kernel.params)
    used: set[tvm.ir.Var] = set(tirx.analysis.undefined_vars(kernel.body, []))
    for param in kernel.params:
        for size in param.shape if isinstance(param.ty, tirx.BufferType) else ():
            shown |= {size} if isinstance(size, tirx.Var) else set()
            used |= set(variables(size))
    return [str(var.name) for var in known if var in used and var not in shown]
