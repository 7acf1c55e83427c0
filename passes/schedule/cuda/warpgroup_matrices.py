"""Declares the instructions of warpgroups: products of matrices in shared memory, and what orders them.

`wgmma.mma_async` multiplies 64 rows and 16 depths of 16-bit floats, or 32 depths of bytes and floats of 8 bits, with up
to 256 columns, both in shared memory, while threads go on (PTX ISA, "Asynchronous Warpgroup Level Matrix
Multiply-Accumulate Instructions").
A matrix descriptor says where an operand is, by bits:

    0 to 13    address / 16
    16 to 29   bytes / 16 from one group of positions to the next, where rows are depths; without a swizzle, from one
               vector of a position to the next
    32 to 45   bytes / 16 from one group of eight rows to the next
    62, 63     the swizzle: 1, 2 and 3 for rows of 128, 64 and 32 bytes, 0 for rows of 16 bytes without one

Code for these instructions runs on one architecture alone. Code for others, as PTX that newer devices compile, has
`mma.sync` and `ldmatrix` on the same tiles, and fences that do nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call

from nnefc.passes.schedule.cuda.nest import load
from nnefc.passes.schedule.cuda.operand_tile import OperandTile
from nnefc.passes.schedule.cuda.swizzled_tile import SwizzledTile
from nnefc.passes.schedule.cuda.tensor_launch import FLOATS
from nnefc.passes.schedule.cuda.warp_matrices import ELEMENTS, SUMS
from nnefc.targets.machine.cuda.gpus import (
    LOAD_BYTES,
    MATRIX_INSTRUCTIONS,
    SPECIFIC_FEATURES,
    WARP,
    WARPGROUP,
    WARPGROUP_INSTRUCTION,
)

__all__ = [
    "ProductTypes",
    "begin_products",
    "commit_products",
    "fence_copies",
    "multiply_matrices",
    "wait_for_products",
]

_MACRO = SPECIFIC_FEATURES[WARPGROUP_INSTRUCTION.oldest]

_FENCE_COPIES = f"""
__device__ __forceinline__ void nnefc_fence_copies() {{
#ifdef {_MACRO}
  asm volatile ("fence.proxy.async.shared::cta;" : : : "memory");
#endif
}}
"""
_BEGIN = """
__device__ __forceinline__ void {name}({total} *sums) {{
#ifdef {macro}
  #pragma unroll
  for (int i = 0; i < {count}; ++i) asm volatile ("" : "+{kind}"(sums[i]) : : "memory");  // after writes to it
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
__device__ __forceinline__ void {name}({total} *sums) {{
#ifdef {macro}
  asm volatile ("wgmma.wait_group.sync.aligned {pending};" : : : "memory");
  #pragma unroll
  for (int i = 0; i < {count}; ++i) asm volatile ("" : "+{kind}"(sums[i]) : : "memory");  // before reads of it
#endif
}}
"""
_MULTIPLY = """
__device__ __forceinline__ void {name}({total} *sums, const void *left, const void *right) {{
  unsigned left_at = (unsigned)__cvta_generic_to_shared(left), right_at = (unsigned)__cvta_generic_to_shared(right);
#ifdef {macro}
  unsigned long long left_matrix = {left_layout}ull | (left_at & 0x3ffff) >> 4;
  unsigned long long right_matrix = {right_layout}ull | (right_at & 0x3ffff) >> 4;
  asm volatile (
      "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{types} {{{registers}}}, "
      "%{count}, %{next}, 1{options};"
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
      {total} *own = sums + 8 * i + 4 * j;
      asm volatile (
          "mma.sync.aligned.m16n8k{depth}.row.col.{types}.{of_sums} {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, "
          "{{%8, %9}}, {{%10, %11, %12, %13}};"
          : "={kind}"(own[0]), "={kind}"(own[1]), "={kind}"(own[2]), "={kind}"(own[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * j]), "r"(b[2 * j + 1]), "{kind}"(own[0]),
            "{kind}"(own[1]), "{kind}"(own[2]), "{kind}"(own[3]));
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
_SWIZZLES = {8: 1, 4: 2, 2: 3, 1: 0}  # by the vectors of a row


@dataclass(frozen=True)
class ProductTypes:
    """The element types of a product's operands, and of its sums."""

    left: str
    right: str
    sums: str

    @property
    def depth(self) -> int:
        """Returns the products of each sum by one instruction."""
        return MATRIX_INSTRUCTIONS[self.left].depth

    @property
    def ptx(self) -> str:
        """Returns the types of the sums and of the operands, as instructions have them."""
        return f"{SUMS[self.sums][2]}.{ELEMENTS[self.left]}.{ELEMENTS[self.right]}"

    @property
    def name(self) -> str:
        """Returns what functions are called by; the types are mostly equal."""
        left, right = ELEMENTS[self.left], ELEMENTS[self.right]
        return left if left == right else f"{left}_{right}"


def fence_copies() -> tirx.Stmt:
    """Makes what the thread copied to shared memory, and has waited for, visible to products."""
    return tirx.Evaluate(cuda_func_call("nnefc_fence_copies", source_code=_FENCE_COPIES))


def begin_products(sums: tirx.Var, count: int) -> tirx.Stmt:
    """Orders what the thread did with `count` accumulators before the products that follow."""
    name = f"nnefc_begin_products_{count}{_suffix(sums)}"
    source = _BEGIN.format(name=name, count=count, macro=_MACRO, **_of_sums(str(sums.dtype)))
    return tirx.Evaluate(cuda_func_call(name, _first(sums), source_code=source))


def commit_products() -> tirx.Stmt:
    """Makes the products since the last of these statements one group."""
    return tirx.Evaluate(cuda_func_call("nnefc_commit_products", source_code=_COMMIT))


def wait_for_products(pending: int, sums: tirx.Var, count: int) -> tirx.Stmt:
    """Waits for all groups of products but the last `pending` ones, which write `count` accumulators."""
    name = f"nnefc_wait_for_products_{pending}_{count}{_suffix(sums)}"
    source = _WAIT.format(name=name, pending=pending, count=count, macro=_MACRO, **_of_sums(str(sums.dtype)))
    return tirx.Evaluate(cuda_func_call(name, _first(sums), source_code=source))


def multiply_matrices(
    sums: tirx.Var,
    at: tirx.Expr,
    types: ProductTypes,
    columns: int,
    shared: tirx.Var,
    sides: tuple[OperandTile, OperandTile],
    offsets: tuple[tirx.Expr, tirx.Expr],
) -> tirx.Stmt:
    """Begins to add the products of one instruction to the accumulators from `at` on.

    Args:
        columns: of the right operand's tile; the left one has a warpgroup's 64 rows.
        shared: the buffer of both operands.
        sides: how they are laid out.
        offsets: where their rows begin, see `SwizzledTile.rows_at`.
    """
    left, right = sides
    assert isinstance(left, SwizzledTile) and isinstance(right, SwizzledTile)
    name = f"nnefc_multiply_warpgroup_{types.name}_{columns}_{_name_of(left)}_{_name_of(right)}"
    addresses = (tirx.address_of(load(sums, at)), *(tirx.address_of(load(shared, offset)) for offset in offsets))
    return tirx.Evaluate(
        cuda_func_call(name, *addresses, source_code=_multiply_source(name, types, columns, left, right))
    )


def _suffix(sums: tirx.Var) -> str:
    return "" if str(sums.dtype) == "float32" else f"_{sums.dtype}"


def _of_sums(dtype: str) -> dict[str, str]:
    """Returns the type of sums in C, and as an operand of assembly."""
    total, kind, _ = SUMS[dtype]
    return {"total": total, "kind": kind}


def _first(sums: tirx.Var) -> tirx.Expr:
    return tirx.address_of(load(sums, tirx.IntImm("int32", 0)))


def _name_of(side: SwizzledTile) -> str:
    """Returns a name of what the instruction must know of an operand's layout."""
    if side.row_vectors == 1:
        return f"vectors{side.positions}"
    if side.along_depth:
        return f"depths{side.depths}"
    return f"positions{side.row_vectors * side.lanes}x{side.depths}"


def _multiply_source(name: str, types: ProductTypes, columns: int, left: SwizzledTile, right: SwizzledTile) -> str:
    instruction = MATRIX_INSTRUCTIONS[types.left]
    signs = ", 1, 1" if types.sums == "float32" else ""  # integers have none
    transposed = f", {int(not left.along_depth)}, {int(not right.along_depth)}" if types.left in FLOATS else ""
    count = columns * WARPGROUP_INSTRUCTION.rows // WARPGROUP
    warp_rows = WARPGROUP_INSTRUCTION.rows * WARP // WARPGROUP
    return _MULTIPLY.format(
        name=name,
        macro=_MACRO,
        **_of_sums(types.sums),
        types=types.ptx,
        of_sums=SUMS[types.sums][2],
        depth=types.depth,
        options=signs + transposed,
        columns=columns,
        count=count,
        next=count + 1,
        pairs=columns // (2 * instruction.columns),
        registers=", ".join(f"%{i}" for i in range(count)),
        sums=", ".join(f'"+{SUMS[types.sums][1]}"(sums[{i}])' for i in range(count)),
        left_layout=hex(_layout(left)),
        right_layout=hex(_layout(right)),
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
    return f"{side.lanes} * {block}" if side.along_depth else f"8 * {block} + eighth"


def _address(side: SwizzledTile, first: str) -> str:
    """Returns in C the address of a vector as it would be without the swizzle, which is a function of this address."""
    row, lanes = side.row_vectors * LOAD_BYTES, side.lanes
    if side.along_depth:
        return f"{first} + {row} * position + depth / {lanes} * {side.leading_bytes}"
    group, vector = side.row_vectors * lanes, f"position % {side.row_vectors * lanes} / {lanes} * {LOAD_BYTES}"
    return f"{first} + position / {group} * {side.leading_bytes} + {row} * depth + {vector}"


def _read(side: SwizzledTile, to: str) -> str:
    return _READ.format(option="" if side.along_depth else ".trans", to=to, mask=side.row_vectors - 1)
