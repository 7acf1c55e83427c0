"""Schedules products by pairs of blocks: one instruction multiplies 256 rows, of which each block has half.

    producer, one thread of each block              consumers
    for tile of the depth:                          first block, thread 0: for tile of the depth:
        wait for `empty` of the tile's stage            wait for `full` of the tile's stage
        first block: arrive at `full`, which            begin the products of both blocks
            expects the bytes of both blocks            let them arrive at `empty` of the stage in both
        begin to copy its rows, and its half of     first block, thread 0: let them arrive at `complete` in both
            the columns, to `full` of the first     both: wait for `complete`, write the results of their rows
    wait for `empty` of all stages
                            both blocks meet; a warp of each frees the tensor memory

The instruction reads the rows and half of the columns from the shared memory of each block, where they lie alike, and
writes the sums of a block's rows, of all columns, to its tensor memory (PTX ISA, "tcgen05.mma", `.cta_group::2`): a
block fetches, and its tensor cores read, half of the right operand. A block that begins or ends alone would leave the
other one without barriers, memory or operands: both meet before and after. The producers wait until nothing arrives at
barriers any more.

Code for devices without tensor memory has no pairs: each block multiplies its rows with one half of the columns after
the other, on the same stages.
"""

from __future__ import annotations

from collections.abc import Mapping

from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call

from nnefc.passes.schedule.cuda.bulk_copies import wait_for_tile
from nnefc.passes.schedule.cuda.bulk_launch import BulkLaunch
from nnefc.passes.schedule.cuda.tensor_memory_launch import TensorMemoryLaunch
from nnefc.passes.schedule.cuda.warpgroup_launch import BrainLaunch, ByteLaunch
from nnefc.passes.schedule.gpu.nest import sequence, synchronize
from nnefc.passes.tir.common.expressions import number
from nnefc.targets.machine.cuda.capabilities import TENSOR_MEMORY_FEATURES

__all__ = ["PAIR_LAUNCHES"]

_IS_PAIR = f"""
__device__ __forceinline__ int nnefc_is_pair() {{
#if {TENSOR_MEMORY_FEATURES}
  return 1;
#else
  return 0;
#endif
}}
"""
_EXPECT = f"""
__device__ __forceinline__ void nnefc_expect_bytes_of_pair(void *barrier, int bytes, int block) {{
  unsigned at = (unsigned)__cvta_generic_to_shared(barrier);
#if {TENSOR_MEMORY_FEATURES}
  if (block) return;  // its bytes complete on the barrier of the first one
  bytes *= 2;
#endif
  asm volatile ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(at), "r"(bytes) : "memory");
}}
"""
_PUBLISH = """
__device__ __forceinline__ void nnefc_publish_barriers_to_pair() {
  asm volatile ("fence.mbarrier_init.release.cluster;" : : : "memory");
}
"""
_MEET = f"""
__device__ __forceinline__ void nnefc_meet_in_pair() {{
#if {TENSOR_MEMORY_FEATURES}
  asm volatile ("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" : : : "memory");
#endif
}}
"""


class _PairLaunch(TensorMemoryLaunch):
    """Products of float16."""

    def _block(self, block: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
        self._own_number = self._nest.simplify(tirx.floormod(block, number(self._tile.blocks_of_cluster)))
        return super()._block(block, thread)

    @property
    def _number(self) -> tirx.Expr:
        return self._own_number

    def _initialize(self, thread: tirx.Expr) -> tirx.Stmt:
        publish = tirx.Evaluate(cuda_func_call("nnefc_publish_barriers_to_pair", source_code=_PUBLISH))
        return sequence(super()._initialize(thread), tirx.IfThenElse(tirx.EQ(thread, number(0)), publish, None))

    def _meet(self) -> tirx.Stmt:
        return sequence(synchronize(), tirx.Evaluate(cuda_func_call("nnefc_meet_in_pair", source_code=_MEET)))

    def _expect(self, barrier: tirx.Expr, count: int) -> tirx.Stmt:
        arguments = (barrier, number(count), self._number)
        return tirx.Evaluate(cuda_func_call("nnefc_expect_bytes_of_pair", *arguments, source_code=_EXPECT))

    def _produce(self, batch: tirx.Expr, row: tirx.Expr, column: tirx.Expr) -> tirx.Stmt:
        nest, tiles = self._nest, self._tiling.tiles_of_slice

        def copies(half: tirx.Expr, before: int) -> tirx.Stmt:
            at, copied = (row, column + half * number(self._tile.fetched_columns)), number(before * tiles)
            return nest.rolled(tiles, lambda step: self._copy_step(batch, at, step, step + copied), "step")

        def wait(index: tirx.Expr) -> tirx.Stmt:
            step = index + number(tiles)
            return wait_for_tile(self._empty(self._stage(step)), number(1) - self._parity(step))

        second = tirx.IfThenElse(_is_pair(), nest.rolled(self._stages, wait, "stage"), copies(number(1), 1))
        return sequence(copies(tirx.Select(_is_pair(), self._number, number(0)), 0), second)

    def _multiply(self) -> tirx.Stmt:
        tiles = number(self._tiling.tiles_of_slice)
        second = self._multiply_tiles(tiles, number(self._count // self._tile.blocks_of_cluster))
        return sequence(super()._multiply(), tirx.IfThenElse(tirx.Not(_is_pair()), second, None))


def _is_pair() -> tirx.Expr:
    """Returns whether two blocks multiply together, which devices without tensor memory cannot."""
    return cuda_func_call("nnefc_is_pair", source_code=_IS_PAIR, return_type="int32") != number(0)


class _PairBrainLaunch(_PairLaunch, BrainLaunch):
    """The same with bfloat16."""


class _PairByteLaunch(_PairLaunch, ByteLaunch):
    """The same with bytes or floats of 8 bits."""


class _PairSingleLaunch(_PairLaunch):
    """The same with single precision, which copies round to TF32."""

    _element = "float32"


PAIR_LAUNCHES: Mapping[str, type[BulkLaunch]] = {
    "float16": _PairLaunch,
    "bfloat16": _PairBrainLaunch,
    "int8": _PairByteLaunch,
    "float32": _PairSingleLaunch,
}
"""By the type of the operands in shared memory."""
