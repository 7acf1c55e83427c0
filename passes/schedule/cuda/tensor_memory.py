"""Declares products of matrices in shared memory whose sums are in tensor memory, and what orders them.

One thread begins `tcgen05.mma`, which multiplies 128 rows and 32 bytes of the depth with up to 256 columns. Its sums
are 128 lanes, one for each row, of columns of tensor memory, which a warp allocates for its block. `tcgen05.commit`
arrives at a barrier in shared memory (`mbarrier`) when all products that the thread has begun are complete; then warps
load sums, each from 32 lanes, by its number in its warpgroup (PTX ISA, "TensorCore 5th Generation Family
Instructions"). A matrix descriptor says where an operand is, by bits:

    0 to 13    address / 16
    16 to 29   bytes / 16 from one group of positions to the next, where rows are depths; without a swizzle, from one
               vector of a position to the next
    32 to 45   bytes / 16 from one group of eight rows to the next
    46 to 48   1
    61 to 63   the swizzle: 2, 4 and 6 for rows of 128, 64 and 32 bytes, 0 for rows of 16 bytes without one

and an instruction descriptor what is multiplied:

    4, 5       the type of sums: 1 for float32, 2 for int32
    7 to 9     the type of the left operand, which depends on the kind of the instruction; from 10 on the right one's
    15, 16     whether the rows in shared memory of the left, and of the right operand are depths
    17 to 22   columns / 8
    24 to 28   rows / 16

Code for these instructions runs on few architectures. Code for others has products by warps on the same tiles, with
sums in registers (`portable_products.py`): all threads but the producer's begin products there.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call

from nnefc.passes.schedule.cuda.portable_products import ProductTypes, c_type, portable_product
from nnefc.passes.schedule.cuda.swizzled_tile import SwizzledTile
from nnefc.passes.schedule.gpu.nest import load
from nnefc.passes.tir.common.expressions import number
from nnefc.targets.machine.cuda.capabilities import (
    MATRIX_INSTRUCTIONS,
    TENSOR_MEMORY_FEATURES,
    TENSOR_MEMORY_INSTRUCTION,
)
from nnefc.targets.machine.gpu.description import LOAD_BYTES, WARP

__all__ = [
    "LOADED_COLUMNS",
    "MemoryProduct",
    "allocate_sums",
    "arrivals_of_tile",
    "begins_products",
    "commit_tile",
    "free_sums",
    "load_sums",
    "order_after_wait",
]

LOADED_COLUMNS = 32
"""Columns of the sums that a warp loads at once, of 16 rows."""

_ALLOCATE = f"""
__device__ __forceinline__ void {{name}}(void *address) {{{{
#if {TENSOR_MEMORY_FEATURES}
  unsigned at = (unsigned)__cvta_generic_to_shared(address);
  if (threadIdx.x < {WARP}) {{{{
    asm volatile ("tcgen05.alloc.cta_group::{{blocks}}.sync.aligned.shared::cta.b32 [%0], {{columns}};"
        : : "r"(at) : "memory");
    asm volatile ("tcgen05.relinquish_alloc_permit.cta_group::{{blocks}}.sync.aligned;");
  }}}}
#endif
}}}}
"""
_FREE = f"""
__device__ __forceinline__ void {{name}}(unsigned address) {{{{
#if {TENSOR_MEMORY_FEATURES}
  if (threadIdx.x < {WARP}) {{{{
    asm volatile ("tcgen05.fence::after_thread_sync;" : : : "memory");
    asm volatile ("tcgen05.dealloc.cta_group::{{blocks}}.sync.aligned.b32 %0, {{columns}};"
        : : "r"(address) : "memory");
  }}}}
#endif
}}}}
"""
_ARRIVALS = f"""
__device__ __forceinline__ int nnefc_arrivals_of_tile(int warps) {{
#if {TENSOR_MEMORY_FEATURES}
  return 1;
#else
  return warps;
#endif
}}
"""
_BEGINS = f"""
__device__ __forceinline__ int nnefc_begins_products(int block) {{
#if {TENSOR_MEMORY_FEATURES}
  return threadIdx.x == 0 && block == 0;
#else
  return 1;
#endif
}}
"""
_ORDER = f"""
__device__ __forceinline__ void nnefc_order_after_wait() {{
#if {TENSOR_MEMORY_FEATURES}
  asm volatile ("tcgen05.fence::after_thread_sync;" : : : "memory");
#endif
}}
"""
_COMMIT = f"""
__device__ __forceinline__ void {{name}}(void *barrier) {{{{
  unsigned at = (unsigned)__cvta_generic_to_shared(barrier);
#if {TENSOR_MEMORY_FEATURES}
  {{commit}}
#else
  asm volatile ("fence.proxy.async.shared::cta;" : : : "memory");  // threads have read the tile themselves
  __syncwarp();
  if (threadIdx.x % {WARP} == 0) asm volatile ("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(at) : "memory");
#endif
}}}}
"""
_COMMITS = {
    1: """asm volatile ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
      : : "r"(at) : "memory");""",
    2: """asm volatile (
      "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
      : : "r"(at), "h"((unsigned short)3) : "memory");""",
}
"""By the blocks at whose barrier a commit arrives."""
_MULTIPLY = """
__device__ __forceinline__ void {name}({total} *sums, unsigned memory, const void *left, const void *right,
                                       int accumulates) {{
  unsigned left_at = (unsigned)__cvta_generic_to_shared(left), right_at = (unsigned)__cvta_generic_to_shared(right);
#if {features}
  unsigned long long left_matrix = {left_layout}ull | (left_at & 0x3ffff) >> 4;
  unsigned long long right_matrix = {right_layout}ull | (right_at & 0x3ffff) >> 4;
  asm volatile (
      "{{ .reg .pred p; setp.ne.b32 p, %4, 0; "
      "tcgen05.mma.cta_group::{blocks}.kind::{kind}{rows} [%0], %1, %2, %3, p; }}"
      : : "r"(memory), "l"(left_matrix), "l"(right_matrix), "r"({instruction}u), "r"(accumulates) : "memory");
#else
{portable}
#endif
}}
"""
_BUFFERED_ROWS = {
    (True, True): "",
    (True, False): ".collector::a::fill",
    (False, False): ".collector::a::use",
    (False, True): ".collector::a::lastuse",
}
"""By whether an instruction is the first, and the last, of those that multiply the same rows."""
_LOAD = """
__device__ __forceinline__ void {name}({total} *part, const {total} *sums, int index, unsigned lower, unsigned upper) {{
#if {features}
  __syncwarp();
{loads}
  asm volatile ("tcgen05.wait::ld.sync.aligned;" : : : "memory");
  #pragma unroll
  for (int i = 0; i < {count}; ++i) asm volatile ("" : "+{kind}"(part[i]) : : "memory");  // before reads of it
  asm volatile ("tcgen05.fence::before_thread_sync;" : : : "memory");
#else
  #pragma unroll
  for (int i = 0; i < {count}; ++i) part[i] = sums[{count} * index + i];
#endif
}}
"""
_LOAD_SOME = """\
  asm volatile (
      "tcgen05.ld.sync.aligned.16x256b.x2.b32 {{{registers}}}, [%{count}];"
      : {results} : "r"({address} + ({row} << 16)) : "memory");"""
_ROW = "(threadIdx.x / 32 % 4 * 32 + threadIdx.x / 128 * 16)"  # the first of a warp's 16
_SWIZZLES = {8: 2, 4: 4, 2: 6, 1: 0}  # by the vectors of a row
_SUMS = {"float32": 1, "int32": 2}
_KINDS = {
    "float16": ("f16", 0),
    "bfloat16": ("f16", 1),
    "float32": ("tf32", 2),
    "uint8": ("i8", 0),
    "int8": ("i8", 1),
    "float8_e4m3fn": ("f8f6f4", 0),
    "float8_e5m2": ("f8f6f4", 1),
}  # of the instruction, and the operand's type


def allocate_sums(address: tirx.Expr, columns: int, blocks: int = 1) -> tirx.Stmt:
    """Allocates columns of tensor memory for the block, and writes where they are to shared memory: the first warp.

    Of a pair of blocks, both do, and get the same columns.
    """
    name = f"nnefc_allocate_sums_{columns}{_suffix(blocks)}"
    return _call(name, address, source=_ALLOCATE.format(name=name, columns=columns, blocks=blocks))


def free_sums(address: tirx.Expr, columns: int, blocks: int = 1) -> tirx.Stmt:
    """Gives columns of tensor memory back, after a barrier that all warps have reached with their sums: the first.

    Of a pair of blocks, both do, after a barrier of both.
    """
    name = f"nnefc_free_sums_{columns}{_suffix(blocks)}"
    return _call(name, address, source=_FREE.format(name=name, columns=columns, blocks=blocks))


def arrivals_of_tile(warps: int) -> tirx.Expr:
    """Returns the arrivals of `commit_tile`, for so many warps of which threads may begin products."""
    return cuda_func_call("nnefc_arrivals_of_tile", number(warps), source_code=_ARRIVALS, return_type="int32")


def begins_products(block: tirx.Expr) -> tirx.Expr:
    """Returns whether the thread begins products: one of the first block of those that share an instruction, whose
    number among these is `block`, or all threads with sums in registers."""
    begins = cuda_func_call("nnefc_begins_products", block, source_code=_BEGINS, return_type="int32")
    return begins != number(0)


def order_after_wait() -> tirx.Stmt:
    """Orders what the thread does with tensor memory from now on after what a barrier has let it wait for."""
    return _call("nnefc_order_after_wait", source=_ORDER)


def commit_tile(barrier: tirx.Expr, blocks: int = 1) -> tirx.Stmt:
    """Arrives at a barrier when the products that the thread has begun are complete; of a pair, at that of each
    block."""
    name = f"nnefc_commit_tile{_suffix(blocks)}"
    return _call(name, barrier, source=_COMMIT.format(name=name, commit=_COMMITS[blocks]))


@dataclass(frozen=True)
class MemoryProduct:
    """The products of one instruction.

    Of a tile with several instructions of a depth, the first one keeps the rows that it reads in the buffer that tensor
    cores have for them, and the others multiply the rows in there (PTX ISA, "tcgen05.mma", `.collector::a`).

    Attributes:
        types: of the elements.
        blocks: that share the instruction: each has 128 rows of the left operand, and a part of the right one.
        left, right: how the operands' tiles are laid out.
        part: the columns of the right tile that the instruction multiplies.
    """

    types: ProductTypes
    blocks: int
    left: SwizzledTile
    right: SwizzledTile
    part: range

    def begin(
        self,
        sums: tirx.Expr,
        memory: tirx.Expr,
        shared: tirx.Var,
        offsets: tuple[tirx.Expr, tirx.Expr],
        accumulates: tirx.Expr,
    ) -> tirx.Stmt:
        """Begins the products.

        Args:
            sums: the address of the first one in registers, where there is no tensor memory.
            memory: the address of the sums in tensor memory.
            shared: the buffer of both operands.
            offsets: where their rows begin, see `SwizzledTile.rows_at`.
            accumulates: whether products are added to the sums in tensor memory, rather than written there.
        """
        kept = self._rows.replace(".collector::a::", "_") if self._rows else ""
        sides = f"{self.left.name}_{self.right.name}{kept}{_suffix(self.blocks)}"
        name = f"nnefc_multiply_into_memory_{self.types.name}_{self._columns}_{sides}"
        addresses = (tirx.address_of(load(shared, offset)) for offset in offsets)
        arguments = (sums, memory, *addresses, tirx.Cast("int32", accumulates))
        return _call(name, *arguments, source=self._source(name))

    @property
    def _columns(self) -> int:
        """Returns the columns of the sums."""
        return len(self.part) * self.blocks

    @property
    def _rows(self) -> str:
        """Returns what the instruction does with the buffer for rows."""
        is_first, is_last = self.part.start == 0, self.part.stop == self.right.positions
        return _BUFFERED_ROWS[is_first, is_last]

    def _source(self, name: str) -> str:
        return _MULTIPLY.format(
            name=name,
            features=TENSOR_MEMORY_FEATURES,
            total=c_type(self.types.sums)["total"],
            blocks=self.blocks,
            kind=_KINDS[self.types.left][0],
            rows=self._rows,
            instruction=hex(self._instruction),
            left_layout=hex(_layout(self.left)),
            right_layout=hex(_layout(self.right)),
            portable=portable_product(self.types, len(self.part), self.left, self.right, _ROW),
        )

    @property
    def _instruction(self) -> int:
        """Returns the instruction descriptor."""
        operands = _KINDS[self.types.left][1] << 7 | _KINDS[self.types.right][1] << 10
        transposed = (not self.left.along_depth) << 15 | (not self.right.along_depth) << 16
        size = self._columns // 8 << 17 | TENSOR_MEMORY_INSTRUCTION.rows * self.blocks // 16 << 24
        return _SUMS[self.types.sums] << 4 | operands | transposed | size


def load_sums(part: tirx.Var, sums: tirx.Var, index: tirx.Expr, memory: tuple[tirx.Expr, tirx.Expr]) -> tirx.Stmt:
    """Loads the sums of `LOADED_COLUMNS` columns and of the warp's 16 rows, as fragments of `mma.sync` have them.

    Args:
        part: registers for them.
        sums: all sums of the warp in registers, where there is no tensor memory.
        index: how many times `LOADED_COLUMNS` the first column is.
        memory: the addresses in tensor memory of the lower, and of the upper half of the columns.
    """
    dtype = str(part.dtype)
    count = LOADED_COLUMNS * MATRIX_INSTRUCTIONS["float16"].rows // WARP
    kind = c_type(dtype)["kind"]
    name = f"nnefc_load_sums_{dtype}"
    loads = (
        _LOAD_SOME.format(
            row=_ROW,
            address=address,
            count=count // 2,
            registers=", ".join(f"%{i}" for i in range(count // 2)),
            results=", ".join(f'"={kind}"(part[{first + i}])' for i in range(count // 2)),
        )
        for first, address in ((0, "lower"), (count // 2, "upper"))
    )
    source = _LOAD.format(
        name=name, features=TENSOR_MEMORY_FEATURES, count=count, loads="\n".join(loads), **c_type(dtype)
    )
    first = (tirx.address_of(load(of, number(0))) for of in (part, sums))
    return _call(name, *first, index, *memory, source=source)


def _call(name: str, *arguments: tirx.Expr, source: str) -> tirx.Stmt:
    return tirx.Evaluate(cuda_func_call(name, *arguments, source_code=source))


def _suffix(blocks: int) -> str:
    """Returns what names of functions end with, by the blocks that share their instruction."""
    return "_of_pair" if blocks > 1 else ""


def _layout(side: SwizzledTile) -> int:
    """Returns a matrix descriptor without its address."""
    leading, stride = side.leading_bytes // LOAD_BYTES, side.stride_bytes // LOAD_BYTES
    return leading << 16 | stride << 32 | 1 << 46 | _SWIZZLES[side.row_vectors] << 61
