"""Checks whether control flow and memory accesses of a program are independent of tensor values.

    y[i] = x[i] * w[i]                      independent
    y[i] = table[index[i]]                  the index depends on a tensor
    for i in range(int32(count[0])): …      the trip count depends on a tensor

An independent program can run before its inputs and its trained values are available.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad

from nnefc.passes.tir.common.expressions import IF_THEN_ELSE, inside

__all__ = ["runs_with_any_values"]

_INTEGERS = ("int", "uint", "bool")
_CALLS = ("tirx.call_extern", "tirx.call_pure_extern")
_INDEPENDENT = ("nnefc_sums_", "nnefc_kernel_", "nnefc_iterations")
"""Name prefixes of functions whose control flow depends on integer arguments alone: assembly loops, kernels, and the
runtime's function that reads a trip count.
"""


def runs_with_any_values(module: tvm.IRModule, entry: str) -> bool:
    """Whether the control flow and memory accesses of a program, given as its kernels and its entry, are independent of
    tensor values.
    """
    kernels = [func for var, func in module.functions.items() if var.name_hint != entry]
    return _is_straight(module[entry].body) and not any(map(_goes_by_values, kernels))


def _is_straight(body: tirx.Stmt) -> bool:
    """Whether there are no branches or loops."""
    found: list[tirx.Stmt] = []
    tvm_ffi.structural_walk(body, ((tirx.IfThenElse, tirx.For, tirx.While), found.append))
    return not found


def _goes_by_values(kernel: tirx.PrimFunc) -> bool:
    """Whether a kernel's indices or loops may depend on tensor values."""
    known: set[tirx.Var] = set()
    found: list[bool] = []

    def is_of_values(*exprs: tirx.Expr) -> bool:
        return any(isinstance(part, TensorLoad) or part in known for expr in exprs for part in inside(expr))

    def bound(node: tirx.Bind | tirx.Let) -> None:
        if is_of_values(node.value):
            known.add(node.var)

    def called(call: Call) -> None:
        name = str(getattr(call.op, "name", ""))
        if name in IF_THEN_ELSE:
            found.append(_compares_integers(call.args[0], known))
        elif name in _CALLS:
            found.append(name == _CALLS[0] and not str(call.args[0].value).startswith(_INDEPENDENT))

    looks: list[tuple[object, Callable[..., None]]] = [
        ((tirx.Bind, tirx.Let), bound),
        (tirx.For, lambda loop: found.append(is_of_values(loop.min, loop.extent))),
        (tirx.While, lambda _: found.append(True)),
        (tirx.IfThenElse, lambda branch: found.append(_compares_integers(branch.condition, known))),
        (TensorLoad, lambda load: found.append(is_of_values(*load.indices))),
        (tirx.BufferStore, lambda store: found.append(is_of_values(*store.indices))),
        (Call, called),
    ]
    tvm_ffi.structural_walk(kernel.body, looks, order="pre")  # bindings come before their uses
    return any(found)


def _compares_integers(condition: tirx.Expr, known: Collection[tirx.Var]) -> bool:
    """Whether a condition may check an index that was read from a tensor."""
    for part in inside(condition):
        if isinstance(part, TensorLoad) or part in known:
            return str(part.expr_ty().dtype).startswith(_INTEGERS)
    return False
