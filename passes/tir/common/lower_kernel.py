"""Makes kernels callable by the entry: private functions of raw pointers that return a status.

    kernel(A: Buffer, B: Buffer)     →     kernel(A: pointer, B: pointer, workspace: pointer) -> int32

Buffers that a kernel needs for itself as a whole become parts of `workspace`, which the memory plan provides; those
inside loops stay, and live on the stack or in a worker's scratch memory (:mod:`allocate_scratch`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import tvm_ffi
from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.ir.expr import Call

from nnefc.ir.attributes import CONDITIONAL_VALUES, DYNAMIC_SHAPES
from nnefc.passes.tir.common.alignment import aligned
from nnefc.passes.tir.common.allocate_scratch import scratch_bytes
from nnefc.passes.tir.common.expressions import IF_THEN_ELSE, variables_of
from nnefc.passes.tir.common.name_symbolic_dims import named_sizes
from nnefc.passes.tir.common.shapes import Size, tensor_bytes
from nnefc.symbolic.dims import dimension, expression, substituted

__all__ = ["Kernel", "chooses_values", "with_dynamic_shapes", "with_raw_pointers", "with_values"]


@dataclass(frozen=True)
class Kernel:
    """A lowered kernel.

    Attributes:
        func: its parameters are pointers to what it reads, to what it writes, then one to its workspace, if it has one.
        workspace_bytes: what it needs for itself during a call.
        scratch_bytes: what one worker needs at most during a call, besides its stack.
    """

    func: tirx.PrimFunc
    workspace_bytes: Size
    scratch_bytes: int


def with_raw_pointers(func: tirx.PrimFunc, own: Sequence[tirx.Var], sizes: Sequence[tirx.Var], chooses: bool) -> Kernel:
    """Returns a flat kernel as a function of pointers, then of dimensions, that returns a status.

    Args:
        own: the buffers, as they were allocated, that its last parameters are, and that are parts of its workspace.
        sizes: the dimensions that it is written with.
        chooses: see :data:`CONDITIONAL_VALUES`.
    """
    pointers = [_pointer(param) for param in func.params]
    count = len(pointers) - len(own)
    params = pointers[:count]
    prologue: list[tirx.Stmt] = [tirx.Bind(var, size) for var, size in named_sizes(func)]
    offset: Size = 0
    if own:
        workspace = tirx.Var("workspace", PointerType(PrimType("uint8")))
        params.append(workspace)
        base = tirx.decl_buffer((1 << 40,), "uint8", name="workspace", data=workspace)
        prologue.append(tirx.DeclBuffer(base, data=workspace))
        for pointer, buffer in zip(pointers[count:], own, strict=True):
            address = tirx.address_of(base[expression(offset)])
            prologue.append(tirx.Bind(pointer, tirx.reinterpret(pointer.ty, address)))
            offset += aligned(tensor_bytes(buffer))
    views = [tirx.DeclBuffer(param, data=pointer) for param, pointer in zip(func.params, pointers, strict=True)]
    # Scratch buffers of 1024 bytes and more ask for the device; the body must return a status.
    body = tirx.AttrStmt(
        "default",
        "device_id",
        tirx.IntImm("int32", 0),
        tirx.AttrStmt("default", "device_type", tirx.IntImm("int32", 1), func.body),
    )
    statement = tirx.SeqStmt([*prologue, *views, body, tirx.Return(tirx.IntImm("int32", 0))])
    lowered = tirx.PrimFunc([*params, *sizes], statement, ret_type=PrimType("int32"), attrs=func.attrs)
    if sizes:
        lowered = with_dynamic_shapes(lowered, chooses)
    for var, size in reversed(named_sizes(func)):  # callers know the kernel's parameters alone
        offset = substituted(offset, {var: dimension(size)})
    return Kernel(lowered.without_attr("global_symbol"), offset, scratch_bytes(func.body))


def with_dynamic_shapes(func: tirx.PrimFunc, chooses: bool) -> tirx.PrimFunc:
    """Marks a flat function as one with dynamic dimensions; `chooses`: see :data:`CONDITIONAL_VALUES`."""
    return func.with_attrs({DYNAMIC_SHAPES: True, CONDITIONAL_VALUES: chooses})


def with_values(stmt: tirx.Stmt, values: Mapping[tirx.Var, tirx.Expr]) -> tirx.Stmt:
    """Replaces variables in statements by values."""
    return tvm_ffi.structural_map(stmt, (tirx.Var, lambda var: values.get(var, var)))


def chooses_values(stmt: tirx.Stmt, sizes: Set[tirx.Var]) -> bool:
    """Returns whether values depend on conditions that are not about dimensions, such as the padding of an image."""
    conditions: list[tirx.Expr] = []

    def note(node: Call | tirx.Select) -> None:
        if isinstance(node, tirx.Select):
            conditions.append(node.condition)
        elif getattr(node.op, "name", "") in IF_THEN_ELSE:
            conditions.append(node.args[0])

    tvm_ffi.structural_walk(stmt, ((Call, tirx.Select), note))
    return not all(sizes & variables_of([condition]) for condition in conditions)


def _pointer(buffer: tirx.Var) -> tirx.Var:
    return tirx.Var(f"{buffer.name}_data", PointerType(PrimType(_storage_type(str(buffer.dtype)))))


def _storage_type(dtype: str) -> str:
    return "int8" if dtype == "bool" else dtype
