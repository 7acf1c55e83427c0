"""Declares bulk copies of boxes of tensors to shared memory, and the barriers there on which they complete.

One thread begins to copy a whole box: the device computes its addresses, writes zeros for what is outside of the
tensor, and swizzles rows (PTX ISA, "cp.async.bulk.tensor"). A tensor map, an argument of the kernel that the host
encodes, describes the tensor and the box. A barrier (`mbarrier`) counts arrivals of threads and bytes of copies; when
none is missing, its phase is complete, and the next one begins. A wait names the parity of a phase: a new barrier is in
phase 0, and the phase before it, of parity 1, is complete. Copies of float32 round it to TF32, for tensor cores would
cut off what is too long: the tensor map has the type for that.

Copies write shared memory through another proxy than loads and stores do. A thread that has waited for their barrier
sees what they wrote; loads must be fenced before a copy overwrites what they read, reads by `wgmma` need not be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call
from tvm.ir.expr import TensorLoad

from nnefc.ir.tensor_maps import TensorMap
from nnefc.passes.schedule.cuda.swizzled_tile import SwizzledTile
from nnefc.passes.schedule.gpu.contractions.analysis import Factor
from nnefc.passes.schedule.gpu.nest import Nest, load
from nnefc.passes.tir.common.expressions import is_number, number, size_of_index
from nnefc.passes.tir.common.shapes import Size
from nnefc.support.element_types import element_bytes
from nnefc.symbolic.dims import ceil_div, is_known, is_size, known_less, may_exceed
from nnefc.targets.machine.cuda.capabilities import (
    SPECIFIC_FEATURES,
    TENSOR_MEMORY_FEATURES,
    WARPGROUP_INSTRUCTION,
)
from nnefc.targets.machine.gpu.description import LOAD_BYTES, WARP

__all__ = [
    "BoxedOperand",
    "boxed",
    "copy_box",
    "expect_bytes",
    "initialize_barrier",
    "publish_barriers",
    "release_tile",
    "set_registers",
    "wait_for_tile",
]

_INITIALIZE = """
__device__ __forceinline__ void nnefc_initialize_barrier(void *barrier, int arrivals) {
  unsigned at = (unsigned)__cvta_generic_to_shared(barrier);
  asm volatile ("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(at), "r"(arrivals) : "memory");
}
"""
_PUBLISH = """
__device__ __forceinline__ void nnefc_publish_barriers() {
  asm volatile ("fence.proxy.async.shared::cta;" : : : "memory");
}
"""
_EXPECT = """
__device__ __forceinline__ void nnefc_expect_bytes(void *barrier, int bytes) {
  unsigned at = (unsigned)__cvta_generic_to_shared(barrier);
  asm volatile ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(at), "r"(bytes) : "memory");
}
"""
_WAIT = """
__device__ __forceinline__ void nnefc_wait_for_tile(void *barrier, int parity) {
  unsigned at = (unsigned)__cvta_generic_to_shared(barrier), complete = 0;
  while (!complete)
    asm volatile ("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(complete) : "r"(at), "r"(parity) : "memory");
}
"""
_FEATURES = SPECIFIC_FEATURES[WARPGROUP_INSTRUCTION.oldest]
_REGISTERS = """
__device__ __forceinline__ void nnefc_{verb}_registers_{count}() {{
#ifdef {features}
  asm volatile ("setmaxnreg.{way}.sync.aligned.u32 {count};");
#endif
}}
"""
_RELEASE = f"""
__device__ __forceinline__ void nnefc_release_tile(void *barrier) {{
#ifndef {_FEATURES}
  asm volatile ("fence.proxy.async.shared::cta;" : : : "memory");  // its threads have read the tile themselves
#endif
  __syncwarp();
  unsigned at = (unsigned)__cvta_generic_to_shared(barrier);
  if (threadIdx.x % {WARP} == 0) asm volatile ("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(at) : "memory");
}}
"""
_COPY = """
__device__ __forceinline__ void {name}(void *shared, const void *, void *barrier, const CUtensorMap &map,
                                       {parameters}) {{
  unsigned to = (unsigned)__cvta_generic_to_shared(shared), at = (unsigned)__cvta_generic_to_shared(barrier);
{of_pair}  asm volatile (
      "cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {{{coordinates}}}], [%{last}];"
      : : "r"(to), "l"(&map), {values}, "r"(at) : "memory");
}}
"""
_COPY_OF_PAIR = f"""\
#if {TENSOR_MEMORY_FEATURES}
  asm volatile ("mapa.shared::cluster.u32 %0, %0, 0;" : "+r"(at));
  asm volatile (
      "cp.async.bulk.tensor.{{rank}}d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {{{{{{coordinates}}}}}}], [%{{last}}];"
      : : "r"(to), "l"(&map), {{values}}, "r"(at) : "memory");
  return;
#endif
"""

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class BoxedOperand:
    """An operand whose elements lie at constant distances along the depth, the positions and the batch.

    Attributes:
        source, first: the buffer, and the offset in it of the first element.
        along_depth: whether elements of neighbouring depths are neighbours, rather than those of positions.
        sizes: along the dimension of neighbours, along the other one, and of the batch; any may be dynamic.
        strides: from an element to the next along the second and the third of these.
        has_inner_batch: whether the batch has the shorter stride, as heads of attention within a token's row have. Then
            it is the second dimension of the tensor map.
    """

    source: tirx.Var
    first: int
    along_depth: bool
    sizes: tuple[Size, Size, Size]
    strides: tuple[Size, Size]
    has_inner_batch: bool

    def map_of(self, tile: SwizzledTile) -> tirx.Expr:
        """Returns the tensor map, whose box has the rows of the tile: all of them, or a group along positions."""
        rows = tile.positions if self.along_depth else tile.depths
        (near, *others), (far, batch) = self.sizes, self.strides
        y, z = self._ordered(*others)
        box = (tile.row_vectors * tile.lanes, *self._ordered(rows, 1))
        tensor_map = TensorMap((near, y, z), self._ordered(far, batch), box, (1, 1, 1), tile.row_vectors)
        return tensor_map.call(load(self.source, number(self.first)))

    def coordinates(self, near: tirx.Expr, far: tirx.Expr, batch: tirx.Expr) -> tuple[tirx.Expr, ...]:
        """Returns the coordinates of an element in the tensor map."""
        return near, *self._ordered(far, batch)

    def _ordered(self, far: _Value, batch: _Value) -> tuple[_Value, _Value]:
        return (batch, far) if self.has_inner_batch else (far, batch)


def boxed(operand: Factor) -> BoxedOperand | None:
    """Returns how bulk copies see an operand; None if it lies in memory as they cannot."""
    sizes = operand.batch.size, operand.positions.size, operand.depth.size
    if not operand.aligned:
        return None
    nest = Nest(operand.aligned)
    index = [nest.variable(name, size) for name, size in zip(("batch", "position", "depth"), sizes, strict=True)]
    value = operand.at(nest, *index)
    if not isinstance(value, TensorLoad):
        return None
    offset, zeros = value.indices[0], (0, 0, 0)
    units = [tuple(int(axis == which) for axis in range(3)) for which in range(3)]
    at = [_offset(operand, nest, position) for position in (zeros, *units)]
    known = [found for found in at if found is not None]
    if len(known) < len(at):
        return None
    first, *following = known
    steps = [0 if size == 1 else step - first for step, size in zip(following, sizes, strict=True)]
    linear = sum((var * number(step) for var, step in zip(index, steps, strict=True)), number(first))
    if not is_number(nest.simplify(offset - linear), 0):
        return None
    return _checked(value.source, first, sizes, steps)


def _offset(operand: Factor, nest: Nest, position: Sequence[int]) -> Size | None:
    value = operand.at(nest, *map(number, position))
    offset = value.indices[0] if isinstance(value, TensorLoad) else None
    return size_of_index(offset) if offset is not None and is_size(offset) else None


def _checked(
    source: tirx.Var, first: Size, sizes: tuple[Size, Size, Size], steps: Sequence[Size]
) -> BoxedOperand | None:
    """Returns the operand if tensor maps can have these strides.

    They must be multiples of 16 bytes. The shorter one must be no shorter than a row, and the longer one a multiple of
    it that is no shorter than all rows at its distance (CUDA driver API, `cuTensorMapEncodeTiled`). Of dynamic sizes
    that must be known for all their values. Tensors without elements have no map.
    """
    (batch, positions, depth), (next_batch, next_position, next_depth) = sizes, steps
    lanes = LOAD_BYTES // element_bytes(str(source.dtype))
    along_depth = next_depth == 1 and depth != 1
    if not along_depth and (next_position != 1 or positions == 1):
        return None
    near, far, step = (depth, positions, next_position) if along_depth else (positions, depth, next_depth)
    row = ceil_div(near, lanes) * lanes
    if far == 1:
        step = row if batch == 1 else next_batch
    strides = (step, step * far if batch == 1 else next_batch)
    is_nested = 1 in (far, batch)
    has_inner_batch = not is_nested and known_less(next_batch, step)
    inner, outer = reversed(strides) if has_inner_batch else strides
    if not is_known(first) or first % lanes or may_exceed(near, inner):
        return None
    if any(stride == 0 or may_exceed(0, stride) or stride % lanes != 0 for stride in strides):
        return None
    if not is_nested and (outer % inner != 0 or may_exceed(inner * (batch if has_inner_batch else far), outer)):
        return None
    return BoxedOperand(source, first, along_depth, (near, far, batch), strides, has_inner_batch)


def initialize_barrier(barrier: tirx.Expr, arrivals: tirx.Expr) -> tirx.Stmt:
    """Makes eight bytes of shared memory a barrier whose phases have so many arrivals."""
    call = cuda_func_call("nnefc_initialize_barrier", barrier, arrivals, source_code=_INITIALIZE)
    return tirx.Evaluate(call)


def publish_barriers() -> tirx.Stmt:
    """Lets copies see the barriers that the thread has initialized; other threads do after a barrier of the block."""
    return tirx.Evaluate(cuda_func_call("nnefc_publish_barriers", source_code=_PUBLISH))


def expect_bytes(barrier: tirx.Expr, count: int) -> tirx.Stmt:
    """Arrives at a barrier, whose phase waits for bytes of copies besides."""
    return tirx.Evaluate(cuda_func_call("nnefc_expect_bytes", barrier, number(count), source_code=_EXPECT))


def wait_for_tile(barrier: tirx.Expr, parity: tirx.Expr) -> tirx.Stmt:
    """Waits until the phase of a parity is complete."""
    return tirx.Evaluate(cuda_func_call("nnefc_wait_for_tile", barrier, parity, source_code=_WAIT))


def set_registers(count: int, rises: bool) -> tirx.Stmt:
    """Lets the threads of a warpgroup have so many registers each, more or fewer than before.

    Those that rise wait until other warpgroups of the block have given back enough ("setmaxnreg" in the PTX ISA).
    """
    verb, way = ("take", "inc") if rises else ("give", "dec")
    source = _REGISTERS.format(verb=verb, way=way, count=count, features=_FEATURES)
    return tirx.Evaluate(cuda_func_call(f"nnefc_{verb}_registers_{count}", source_code=source))


def release_tile(barrier: tirx.Expr) -> tirx.Stmt:
    """Arrives at a barrier, once for each warp, when its threads have read a tile."""
    return tirx.Evaluate(cuda_func_call("nnefc_release_tile", barrier, source_code=_RELEASE))


def copy_box(
    to: tuple[tirx.Expr, tirx.Expr], barrier: tirx.Expr, tensor_map: tirx.Expr, at: Sequence[tirx.Expr], blocks: int = 1
) -> tirx.Stmt:
    """Begins to copy a box, whose bytes complete on a barrier: of a pair of blocks, on that of its first one.

    Args:
        to: the addresses of its first and its last element in shared memory.
        at: the coordinates of its first element in the tensor.
        blocks: 1, or 2 of a pair.
    """
    rank, name = len(at), f"nnefc_copy_box_{len(at)}d{'_of_pair' if blocks > 1 else ''}"
    parts = {
        "rank": rank,
        "coordinates": ", ".join(f"%{i + 2}" for i in range(rank)),
        "values": ", ".join(f'"r"(at{i})' for i in range(rank)),
        "last": rank + 2,
    }
    of_pair = _COPY_OF_PAIR.format(**parts) if blocks > 1 else ""
    parameters = ", ".join(f"int at{i}" for i in range(rank))
    source = _COPY.format(name=name, of_pair=of_pair, parameters=parameters, **parts)
    return tirx.Evaluate(cuda_func_call(name, *to, barrier, tensor_map, *at, source_code=source))
