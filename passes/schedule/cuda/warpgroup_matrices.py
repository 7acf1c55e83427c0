"""Declares the instructions of warpgroups: products of matrices in shared memory, and what orders them.

`wgmma.mma_async` multiplies 64 rows and 16 depths with up to 256 columns, both in shared memory, while threads go on
(PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions"). A matrix descriptor says where an
operand is, by bits:

    0 to 13    address / 16
    16 to 29   bytes / 16 from one group of positions to the next, where rows are depths
    32 to 45   bytes / 16 from one group of eight rows to the next
    62, 63     the swizzle: 1, 2 and 3 for rows of 128, 64 and 32 bytes

Code for these instructions runs on one architecture alone. Code for others, as PTX that newer devices compile, has
`mma.sync` and `ldmatrix` on the same tiles, and fences that do nothing.
"""

from __future__ import annotations

from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call

from nnefc.passes.schedule.cuda.nest import load
from nnefc.passes.schedule.cuda.operand_tile import OperandTile
from nnefc.passes.schedule.cuda.swizzled_tile import SwizzledTile
from nnefc.targets.machine.cuda.gpus import (
    LOAD_BYTES,
    MATRIX_INSTRUCTIONS,
    SPECIFIC_FEATURES,
    WARP,
    WARPGROUP,
    WARPGROUP_INSTRUCTION,
)

__all__ = ["begin_products", "commit_products", "fence_copies", "multiply_matrices", "wait_for_products"]

_MACRO = SPECIFIC_FEATURES[WARPGROUP_INSTRUCTION.oldest]

_FENCE_COPIES = f"""
__device__ __forceinline__ void nnefc_fence_copies() {{
#ifdef {_MACRO}
  asm volatile ("fence.proxy.async.shared::cta;" : : : "memory");
#endif
}}
"""
_BEGIN = """
__device__ __forceinline__ void nnefc_begin_products_{count}(float *sums) {{
#ifdef {macro}
  #pragma unroll
  for (int i = 0; i < {count}; ++i) asm volatile ("" : "+f"(sums[i]) : : "memory");  // what was written comes before
  asm volatile ("wgmma.fence.sync.aligned;" : : : "memory");
#endif
}}
"""
_COMMIT = f"""
__device__ __forceinline__ void nnefc_commit_products() {{
#ifdef {_MACRO}
  asm volatile ("wgmma.commit_group.sync.aligned;" : : : "memory");
#endif
}}
"""
_WAIT = """
__device__ __forceinline__ void nnefc_wait_for_products_{pending}_{count}(float *sums) {{
#ifdef {macro}
  asm volatile ("wgmma.wait_group.sync.aligned {pending};" : : : "memory");
  #pragma unroll
  for (int i = 0; i < {count}; ++i) asm volatile ("" : "+f"(sums[i]) : : "memory");  // what reads it comes after
#endif
}}
"""
_MULTIPLY = """
__device__ __forceinline__ void {name}(float *sums, const void *left, const void *right) {{
  unsigned left_at = (unsigned)__cvta_generic_to_shared(left), right_at = (unsigned)__cvta_generic_to_shared(right);
#ifdef {macro}
  unsigned long long left_matrix = {left_layout}ull | (left_at & 0x3ffff) >> 4;
  unsigned long long right_matrix = {right_layout}ull | (right_at & 0x3ffff) >> 4;
  asm volatile (
      "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{type}.{type} {{{registers}}}, "
      "%{count}, %{next}, 1, 1, 1, {left_transposed}, {right_transposed};"
      : {sums}
      : "l"(left_matrix), "l"(right_matrix));
#else
  unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, eighth = lane % 8, second = lane / 8 % 2;
  unsigned last = lane / 16, a[4], b[4];
  {{
    unsigned position = {left_position}, depth = {left_depth};
    unsigned at = {left_address};
    {read_left}
  }}
  #pragma unroll
  for (unsigned i = 0; i < {pairs}; ++i) {{
    unsigned position = {right_position}, depth = {right_depth};
    unsigned at = {right_address};
    {read_right}
    #pragma unroll
    for (unsigned j = 0; j < 2; ++j) {{
      float *own = sums + 8 * i + 4 * j;
      asm volatile (
          "mma.sync.aligned.m16n8k16.row.col.f32.{type}.{type}.f32 {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, "
          "{{%10, %11, %12, %13}};"
          : "=f"(own[0]), "=f"(own[1]), "=f"(own[2]), "=f"(own[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * j]), "r"(b[2 * j + 1]), "f"(own[0]), "f"(own[1]),
            "f"(own[2]), "f"(own[3]));
    }}
  }}
#endif
}}
"""
_READ = """\
asm volatile ("ldmatrix.sync.aligned.m8n8.x4{option}.shared.b16 {{%0, %1, %2, %3}}, [%4];"
        : "=r"({to}[0]), "=r"({to}[1]), "=r"({to}[2]), "=r"({to}[3])
        : "r"(at ^ (at >> 7 & {mask}) << 4)
        : "memory");"""
_SWIZZLES = {8: 1, 4: 2, 2: 3}  # by the vectors of a row
_TYPES = {"float16": "f16", "bfloat16": "bf16"}


def fence_copies() -> tirx.Stmt:
    """Makes what the thread copied to shared memory, and has waited for, visible to products."""
    return tirx.Evaluate(cuda_func_call("nnefc_fence_copies", source_code=_FENCE_COPIES))


def begin_products(sums: tirx.Var, count: int) -> tirx.Stmt:
    """Orders what the thread did with `count` accumulators before the products that follow."""
    source = _BEGIN.format(count=count, macro=_MACRO)
    return tirx.Evaluate(cuda_func_call(f"nnefc_begin_products_{count}", _first(sums), source_code=source))


def commit_products() -> tirx.Stmt:
    """Makes the products since the last of these statements one group."""
    return tirx.Evaluate(cuda_func_call("nnefc_commit_products", source_code=_COMMIT))


def wait_for_products(pending: int, sums: tirx.Var, count: int) -> tirx.Stmt:
    """Waits for all groups of products but the last `pending` ones, which write `count` accumulators."""
    source = _WAIT.format(pending=pending, count=count, macro=_MACRO)
    name = f"nnefc_wait_for_products_{pending}_{count}"
    return tirx.Evaluate(cuda_func_call(name, _first(sums), source_code=source))


def multiply_matrices(
    sums: tirx.Var,
    at: tirx.Expr,
    columns: int,
    shared: tirx.Var,
    sides: tuple[OperandTile, OperandTile],
    offsets: tuple[tirx.Expr, tirx.Expr],
) -> tirx.Stmt:
    """Begins to add products of 16 depths to the accumulators from `at` on.

    Args:
        columns: of the right operand's tile; the left one has a warpgroup's 64 rows.
        shared: the buffer of both operands.
        sides: how they are laid out.
        offsets: where their rows begin, see `SwizzledTile.rows_at`.
    """
    left, right = sides
    assert isinstance(left, SwizzledTile) and isinstance(right, SwizzledTile)
    dtype = _TYPES[str(shared.dtype)]
    name = f"nnefc_multiply_warpgroup_{dtype}_{columns}_{_name_of(left)}_{_name_of(right)}"
    addresses = (tirx.address_of(load(sums, at)), *(tirx.address_of(load(shared, offset)) for offset in offsets))
    return tirx.Evaluate(
        cuda_func_call(name, *addresses, source_code=_multiply_source(name, dtype, columns, left, right))
    )


def _first(sums: tirx.Var) -> tirx.Expr:
    return tirx.address_of(load(sums, tirx.IntImm("int32", 0)))


def _name_of(side: SwizzledTile) -> str:
    """Returns a name of what the instruction must know of an operand's layout."""
    if side.along_depth:
        return f"depths{side.depths}"
    return f"positions{side.row_vectors * side.lanes}x{side.depths}"


def _multiply_source(name: str, dtype: str, columns: int, left: SwizzledTile, right: SwizzledTile) -> str:
    instruction = MATRIX_INSTRUCTIONS["float16"]
    count = columns * WARPGROUP_INSTRUCTION.rows // WARPGROUP
    warp_rows = WARPGROUP_INSTRUCTION.rows * WARP // WARPGROUP
    return _MULTIPLY.format(
        name=name,
        macro=_MACRO,
        type=dtype,
        columns=columns,
        count=count,
        next=count + 1,
        pairs=columns // (2 * instruction.columns),
        registers=", ".join(f"%{i}" for i in range(count)),
        sums=", ".join(f'"+f"(sums[{i}])' for i in range(count)),
        left_layout=hex(_layout(left)),
        right_layout=hex(_layout(right)),
        left_transposed=int(not left.along_depth),
        right_transposed=int(not right.along_depth),
        left_position=_position(left, f"{warp_rows} * warp", "second"),
        left_depth=_depth(left, "last"),
        left_address=_address(left, "left_at"),
        read_left=_read(left, "a"),
        right_position=_position(right, f"{2 * instruction.columns} * i", "last"),
        right_depth=_depth(right, "second"),
        right_address=_address(right, "right_at"),
        read_right=_read(right, "b"),
    )


def _layout(side: SwizzledTile) -> int:
    """Returns a matrix descriptor without its address."""
    leading, stride = side.leading_bytes // LOAD_BYTES, side.stride_bytes // LOAD_BYTES
    return leading << 16 | stride << 32 | _SWIZZLES[side.row_vectors] << 62


def _position(side: SwizzledTile, first: str, block: str) -> str:
    """Returns in C the position of the row of a block of 8 by 8 that a thread addresses."""
    return f"{first} + 8 * {block} + eighth" if side.along_depth else f"{first} + 8 * {block}"


def _depth(side: SwizzledTile, block: str) -> str:
    return f"8 * {block}" if side.along_depth else f"8 * {block} + eighth"


def _address(side: SwizzledTile, first: str) -> str:
    """Returns in C the address of a vector as it would be without the swizzle, which is a function of this address."""
    row, lanes = side.row_vectors * LOAD_BYTES, side.lanes
    if side.along_depth:
        return f"{first} + {row} * position + depth / {lanes} * {LOAD_BYTES}"
    group, vector = side.row_vectors * lanes, f"position % {side.row_vectors * lanes} / {lanes} * {LOAD_BYTES}"
    return f"{first} + position / {group} * {side.leading_bytes} + {row} * depth + {vector}"


def _read(side: SwizzledTile, to: str) -> str:
    return _READ.format(option="" if side.along_depth else ".trans", to=to, mask=side.row_vectors - 1)
