"""Make scheduled kernels callable by the entry: private functions of raw pointers that return a status.

    kernel(A: Buffer, B: Buffer)     →     kernel(A: pointer, B: pointer, workspace: pointer) -> int32

Buffers that a kernel needs for itself as a whole become parts of `workspace`, which the memory plan provides; those
inside loops stay, and live on the stack or in a worker's scratch memory (:mod:`scratch`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import PointerType, PrimType
from tvm.ir.expr import Call

from nnefc.ir.attributes import CONDITIONAL_VALUES, DYNAMIC_SHAPES, JOINED_ROWS
from nnefc.passes.tir.aligned_frames import with_aligned_frames
from nnefc.passes.tir.alignment import aligned
from nnefc.passes.tir.bound_offsets import with_bound_offsets
from nnefc.passes.tir.bound_quotients import with_bound_quotients
from nnefc.passes.tir.cut_loops import with_cut_loops
from nnefc.passes.tir.cut_windows import with_cut_windows
from nnefc.passes.tir.expressions import IF_THEN_ELSE, variables_of
from nnefc.passes.tir.lane_sums import with_lane_sums
from nnefc.passes.tir.loaded_lanes import with_loaded_lanes
from nnefc.passes.tir.masked_vectors import with_masked_vectors
from nnefc.passes.tir.matrix_tiles import with_matrix_tiles
from nnefc.passes.tir.named_sizes import named_sizes
from nnefc.passes.tir.prefetched_panels import with_prefetched_panels
from nnefc.passes.tir.remainders import tiled_axes, with_remainders
from nnefc.passes.tir.repeated_halves import with_repeated_halves
from nnefc.passes.tir.row_pairs import with_row_pairs
from nnefc.passes.tir.scratch import (
    THREADS,
    Frames,
    scratch_bytes,
    with_small_buffers_on_the_stack,
    without_large_scratch,
    without_scratch,
)
from nnefc.passes.tir.serial_loops import with_serial_loops
from nnefc.passes.tir.shared_tiles import with_shared_tiles
from nnefc.passes.tir.size_ranges import with_decided_extremes, within_ranges
from nnefc.passes.tir.sizes import Size, tensor_bytes
from nnefc.passes.tir.streamed_panels import with_streamed_panels
from nnefc.passes.tir.turned_loads import with_turned_loads
from nnefc.passes.tir.tvm_workarounds.opaque_bounds import with_ends_shown, without_ends
from nnefc.passes.tir.whole_vectors import with_whole_vectors
from nnefc.passes.tir.workspace import with_workspace_parameters
from nnefc.sizes import dimension, expression, substituted

__all__ = ["Kernel", "lower_kernel", "of_open_sizes"]

_COMPACT = tvm.ir.transform.Sequential(
    [s_tir.transform.ConvertBlocksToOpaque(), s_tir.transform.CompactBufferAllocation()]
)
_FLATTEN = tvm.ir.transform.Sequential(
    [
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.StmtSimplify(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
    ]
)


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


def lower_kernel(
    func: tirx.PrimFunc,
    sizes: Sequence[tirx.Var] = (),
    once: bool = False,
    frames: Frames = THREADS,
    observe: Callable[[str, tirx.PrimFunc], None] | None = None,
) -> Kernel:
    """Lower a scheduled kernel to flat loops over raw pointers.

    Args:
        sizes: what it is written with that is known at run time, which become its last parameters.
        once: whether its result may be where an operand is, so that it computes nothing again.
        frames: what it may have on the stack.
        observe: if there is one, called after each pass with its name and the kernel as it is then.
    """
    func, own = with_workspace_parameters(func if frames.scratch else with_serial_loops(func))
    every = [*sizes, *(var for var, _ in named_sizes(func))]
    compact = with_ends_shown(_COMPACT(tvm.IRModule({"main": without_ends(func)}))["main"])
    func = with_decided_extremes(compact, every)
    func = within_ranges(_FLATTEN(tvm.IRModule({"main": func}))["main"], every)
    if observe is not None:
        observe("flatten", func)
    body, chooses = func.body, bool(sizes) and _chooses(func.body, set(every))
    for name, change in _passes(func, sizes, once):
        body = change(body)
        if observe is not None:
            observe(name, tirx.PrimFunc(func.params, body, func.ret_type, func.attrs))
    func = tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
    func = with_small_buffers_on_the_stack(func, frames)
    func, more = without_large_scratch(func, every) if frames.scratch else without_scratch(func)
    own += more
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
        lowered = of_open_sizes(lowered, chooses)
    for var, size in reversed(named_sizes(func)):  # callers know the kernel's parameters alone
        offset = substituted(offset, {var: dimension(size)})
    return Kernel(lowered.without_attr("global_symbol"), offset, scratch_bytes(func.body))


def of_open_sizes(func: tirx.PrimFunc, chooses: bool) -> tirx.PrimFunc:
    """A flat function that code generators know to compute open sizes; `chooses`: see :data:`CONDITIONAL_VALUES`."""
    return func.with_attrs({DYNAMIC_SHAPES: True, CONDITIONAL_VALUES: chooses})


def _passes(
    func: tirx.PrimFunc, sizes: Sequence[tirx.Var], once: bool
) -> Iterator[tuple[str, Callable[[tirx.Stmt], tirx.Stmt]]]:
    """What changes the statements of a flat kernel, in order, by name."""
    yield "cut loops", with_cut_loops
    yield "prefetched panels", with_prefetched_panels
    yield "streamed panels", with_streamed_panels
    axes = tiled_axes(func)
    if not axes:  # loops over tiles are cut where the last whole one ends
        yield "cut windows", with_cut_windows
    if not sizes and axes:  # of known sizes, whose last tile is smaller
        known = dict(named_sizes(func))
        yield "remainders", lambda body: _with_values(with_remainders(body, axes, once), known)
    if sizes:
        yield "remainders", lambda body: with_remainders(body, axes, once)
        if JOINED_ROWS in func.attrs:
            yield "shared tiles", lambda body: with_shared_tiles(body, axes)
        yield "bound quotients", with_bound_quotients
        yield "masked vectors", lambda body: with_masked_vectors(body, axes)
        yield "bound offsets", with_bound_offsets
    yield "matrix tiles", with_matrix_tiles
    yield "row pairs", with_row_pairs
    yield "lane sums", with_lane_sums
    yield "loaded lanes", with_loaded_lanes
    yield "repeated halves", with_repeated_halves
    rest = tirx.ForKind.SERIAL if sizes else tirx.ForKind.UNROLLED
    yield "whole vectors", lambda body: with_whole_vectors(body, rest)
    yield "turned loads", with_turned_loads
    yield "aligned frames", with_aligned_frames


def _with_values(stmt: tirx.Stmt, values: Mapping[tirx.Var, tirx.Expr]) -> tirx.Stmt:
    return tvm_ffi.structural_map(stmt, (tirx.Var, lambda var: values.get(var, var)))


def _chooses(stmt: tirx.Stmt, sizes: Set[tirx.Var]) -> bool:
    """Whether values depend on conditions that are not about open sizes, as what is beside an image is."""
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
