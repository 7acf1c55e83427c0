"""Rewrites kernels to use the network's own variables for dynamic dimensions (canonical symbolic dimensions).

    kernel(x[m, 4], k, y[m, k + 1])      called with x[n, 4] and k = h      →      kernel(x[n, 4], y[n, h + 1])

What makes kernels, here and in TVM, gives each variables of its own, and passes those that no shape shows as scalars.
After this pass, sizes can be compared across the network, and all operands are tensors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from string import digits

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.ir import PrimType

from nnefc.ir.attributes import CAPTURED_DIMENSIONS, DYNAMIC_DIMENSIONS, OPERAND_SHAPES
from nnefc.ir.rebuild import with_fields
from nnefc.passes.graph.rewriter import Rewriter, is_call
from nnefc.symbolic.dims import dimensions, dynamic_variables, expression, is_known, structural_key, variables

__all__ = ["canonicalize_dims"]


def canonicalize_dims(mod: tvm.IRModule) -> tvm.IRModule:
    """Rewrites the kernel of each call in the sizes of its operands; networks without dynamic dimensions stay as they
    are.
    """
    if not any(isinstance(f, tirx.PrimFunc) and _is_dynamic(f) for f in mod.functions.values()):
        return mod
    return relax.transform.DeadCodeElimination()(_Renamer(mod).transform())


def _is_dynamic(func: tirx.PrimFunc) -> bool:
    """Whether there are dynamic dimensions, in the shapes of tensors or, after fusion, in the body of a kernel
    alone.
    """
    if not dynamic_variables():
        return False
    shown = (
        not isinstance(param.ty, tirx.BufferType) or not is_known(*dimensions(param.shape)) for param in func.params
    )
    return any(shown) or bool(_free(func))


class _Renamer(Rewriter):
    def __init__(self, mod: tvm.IRModule) -> None:
        self._open = {gv: f for gv, f in mod.functions.items() if isinstance(f, tirx.PrimFunc) and _is_dynamic(f)}
        self._free = {gv: _free(func) for gv, func in self._open.items()}
        self._made: dict[object, tuple[tvm.ir.GlobalVar, list[relax.TensorType]]] = {}
        # Their names are free again: TVM counts them as it meets their variables, in no certain order.
        super().__init__(tvm.IRModule({gv: f for gv, f in mod.functions.items() if gv not in self._open}, mod.attrs))

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if not is_call(call, "call_tir") or call.args[0] not in self._open:
            return call
        results = call.ty_args[0]
        types = list(results.fields) if isinstance(results, relax.TupleType) else [results]
        operands = list(call.args[1].fields)
        tensors = [operand for operand in operands if isinstance(operand.ty, relax.TensorType)]
        given = [operand.ty if isinstance(operand.ty, relax.TensorType) else operand for operand in operands]
        key = call.args[0], structural_key([*given, *types])
        if key not in self._made:
            self._made[key] = self._own(call.args[0], [*given, *types], len(tensors))
        own, types = self._made[key]
        return relax.call_tir(own, tensors, types if len(types) > 1 else types[0])

    def _own(
        self, kernel: tvm.ir.GlobalVar, operands: Sequence[relax.Expr | relax.TensorType], count: int
    ) -> tuple[tvm.ir.GlobalVar, list[relax.TensorType]]:
        """Returns a kernel rewritten in the sizes of these operands, of which the first `count` are read; and the types
        of its results.
        """
        func, free = self._open[kernel], self._free[kernel]
        sizes = _sizes(func, operands, free)
        own = _in_simplest_form(_with_sizes(func, sizes)).without_attr(CAPTURED_DIMENSIONS)
        # Fusion leaves variables of its own in the types of results: the kernel says what these are.
        shapes = [relax.TensorType(param.shape, str(param.dtype)) for param in own.params]
        used = {var for size in free for var in variables(sizes.get(size, size))}
        own = own.with_attrs(
            {OPERAND_SHAPES: str(shapes), DYNAMIC_DIMENSIONS: [var for var in dynamic_variables() if var in used]}
        )
        return self.builder.add_func(own, str(kernel.name_hint).rstrip(digits)), shapes[count:]


def _in_simplest_form(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns the kernel with the sizes of its operands in one form, `n + 15` for `n + 1 + 14`: fusion
    compares forms.
    """
    found: list[tuple[tirx.Expr, tirx.Expr]] = []
    for param in func.params:
        for size, simple in zip(param.shape, map(expression, dimensions(param.shape)), strict=True):
            if not tvm_ffi.structural_equal(size, simple):
                found.append((size, simple))

    def change(expr: tirx.Expr) -> tirx.Expr:
        return next((simple for size, simple in found if tvm_ffi.structural_equal(expr, size)), expr)

    kinds = tuple(dict.fromkeys(type(size) for size, _ in found))
    return tvm_ffi.structural_map(func, (kinds, change)) if found else func


def _free(func: tirx.PrimFunc) -> list[tirx.Var]:
    """Numbers that a kernel uses and does not bind, each once, in the order of their uses."""
    axes: set[tirx.Var] = set()

    def note(block: s_tir.SBlock) -> None:
        axes.update(axis.var for axis in block.iter_vars)

    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, note))
    shown = (var for param in func.params if isinstance(param.ty, tirx.BufferType) for var in _of_shape(param))
    free = dict.fromkeys([*shown, *tirx.analysis.undefined_vars(func.body, [])])
    return [var for var in free if isinstance(var.ty, PrimType) and var not in axes]


def _of_shape(tensor: tirx.Var) -> Iterator[tirx.Var]:
    for size in tensor.shape:
        yield from variables(size)


def _sizes(
    func: tirx.PrimFunc, operands: Sequence[relax.Expr | relax.TensorType], free: Collection[tirx.Var]
) -> dict[tirx.Var, tirx.Expr]:
    """Returns the dimensions that the kernel's variables in `free` stand for in a call with these operand types."""
    found: dict[tirx.Var, tirx.Expr] = {}
    for param, operand in zip(func.params, operands, strict=True):
        if not isinstance(operand, relax.TensorType):
            found[param] = operand
            continue
        if operand.shape is None:  # of a result: fusion could not say it with the variables that it has
            continue
        for size, value in zip(param.shape, operand.shape, strict=True):
            if isinstance(size, tirx.Var):
                found.setdefault(size, value)
    # Fusion renames variables that no shape of an operand shows by themselves, and keeps their names.
    own = {str(var.name): var for var in dynamic_variables()}
    for var, value in found.items():
        if isinstance(value, tirx.Var):
            found[var] = own.get(str(value.name), value)
    for var in free:
        if var not in found and str(var.name) in own:
            found[var] = own[str(var.name)]
    return found


def _with_sizes(func: tirx.PrimFunc, sizes: Mapping[tirx.Var, tirx.Expr]) -> tirx.PrimFunc:
    """Returns the kernel with expressions in place of its variables, and without scalars among its parameters."""
    tensors = [param for param in func.params if isinstance(param.ty, tirx.BufferType)]
    others = {var: value for var, value in sizes.items() if not var.same_as(value)}
    if others or len(tensors) < len(func.params):
        # By way of new variables, so that no tensor with a dynamic dimension is one of another kernel's: TVM fails on
        # modules whose functions share such tensors.
        new = {var: tirx.Var(str(var.name), var.ty) for var in sizes}
        func = with_fields(func, params=[*tensors, *sizes]).specialize(new)
        func = with_fields(func, params=[*func.params, *new.values()]).specialize(
            {var: sizes[old] for old, var in new.items()}
        )
    return func
