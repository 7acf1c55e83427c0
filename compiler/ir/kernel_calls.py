"""Makes kernels of functions of TE and calls them, also for functions that capture dynamic dimensions.

A kernel is written with the network's own dynamic dimensions. An attribute lists those beyond its operands' shapes:

    kernel(x[m, 4], y[m, 4]): t = buffer[n, 4] …         made for x[n, 4], with the network's own variable n inside
    kernel(x[m, 4], y[m, 4]): t = buffer[k, 4] …         the same, made for x[k, 4]

TVM's builder merges kernels that differ only in the names of such variables, even where they stand for different sizes.
The attribute prevents the merge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, te, tirx

from nnefc.ir.attributes import CAPTURED_DIMENSIONS
from nnefc.ir.rebuild import with_fields
from nnefc.symbolic.dims import Size, dynamic_variables, variables

__all__ = ["TeKernel", "call_te", "emit_te", "kept_apart", "te_kernel"]


def call_te(
    builder: relax.BlockBuilder,
    function: Callable[..., Any],
    *args: Any,
    name: str,
    attrs: Mapping[str, Any] | None = None,
) -> relax.Call:
    """Return the call of a kernel that is made from a TE function.

    Args:
        builder: to which the kernel is added.
        function: from TE tensors, for the operands among `args`, to one or several tensors.
        args: operands, sizes and other arguments of the function.
        name: of the kernel.
        attrs: of the kernel.
    """
    made = te_kernel(function, args, attrs or {})
    return relax.call_tir(builder.add_func(made.kernel, name), relax.Tuple([*made.tensors, *made.sizes]), made.types)


def emit_te(
    builder: relax.BlockBuilder,
    function: Callable[..., Any],
    *args: Any,
    name: str,
    attrs: Mapping[str, Any] | None = None,
) -> relax.Var:
    """Emit the call of a kernel, and return the variable that is bound to it; see :func:`call_te`."""
    return builder.emit(call_te(builder, function, *args, name=name, attrs=attrs))


@dataclass(frozen=True)
class TeKernel:
    """A kernel that is made from a TE function, and the arguments of its call.

    Attributes:
        tensors: the operands among the arguments.
        sizes: dynamic dimensions in the arguments, which are scalar operands after the tensors.
        types: of the results.
    """

    kernel: tirx.PrimFunc
    tensors: list[relax.Expr]
    sizes: list[tirx.Var]
    types: list[relax.TensorType]


def te_kernel(function: Callable[..., Any], args: Sequence[Any], attrs: Mapping[str, Any]) -> TeKernel:
    """Return the kernel of a TE function, with placeholders for the tensors among its arguments."""
    tensors: list[relax.Expr] = []
    operands: list[te.Tensor] = []
    sizes: dict[tirx.Var, None] = {}

    def given(arg: Any) -> Any:
        if isinstance(arg, relax.Expr) and isinstance(arg.ty, relax.TensorType):
            name = str(arg.name) if isinstance(arg, relax.Var) else f"operand{len(tensors)}"
            tensors.append(arg)
            operands.append(te.placeholder(list(arg.ty.shape.values), str(arg.ty.dtype), name))
            return operands[-1]
        if isinstance(arg, relax.ShapeExpr):
            return list(map(given, arg.values))
        if isinstance(arg, list | tuple):
            return getattr(arg, "_make", type(arg))(map(given, arg))
        if isinstance(arg, Size | tirx.Expr):
            sizes.update(dict.fromkeys(variables(arg.expr if isinstance(arg, Size) else arg)))
        return arg

    made = function(*map(given, args))
    results = [made] if isinstance(made, te.Tensor) else list(made)
    kernel = te.create_prim_func([*operands, *results], "int64").without_attr("global_symbol")
    if sizes:
        count = len(operands)
        kernel = with_fields(kernel, params=[*kernel.params[:count], *sizes, *kernel.params[count:]])
    types = [relax.TensorType(result.shape, result.dtype) for result in results]
    return TeKernel(kept_apart(kernel.with_attrs(attrs) if attrs else kernel), tensors, list(sizes), types)


def kept_apart(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a kernel with an attribute that keeps TVM from merging it with kernels for other dynamic dimensions."""
    names = _captured(kernel)
    return kernel.with_attr(CAPTURED_DIMENSIONS, names) if names else kernel


def _captured(kernel: tirx.PrimFunc) -> list[str]:
    """Return the names of the dynamic dimensions in a kernel that are neither parameters nor sizes in the shapes of
    parameters.
    """
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
