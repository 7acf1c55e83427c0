"""Declares the instructions of warpgroups: products of matrices in shared memory, and what orders them.

`wgmma.mma_async` multiplies 64 rows and 16 depths of 16-bit floats, 32 depths of bytes and floats of 8 bits, or 8 of
float32, of which it ignores the last 13 bits (TF32), with up to 256 columns, both in shared memory, while threads go on
(PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions"). Of 16-bit floats alone, rows in
shared memory may be depths.
A matrix descriptor says where an operand is, by bits:

    0 to 13    address / 16
    16 to 29   bytes / 16 from one group of positions to the next, where rows are depths; without a swizzle, from one
               vector of a position to the next
    32 to 45   bytes / 16 from one group of eight rows to the next
    62, 63     the swizzle: 1, 2 and 3 for rows of 128, 64 and 32 bytes, 0 for rows of 16 bytes without one

Code for these instructions runs on one architecture alone. Code for others has products by warps on the same tiles
(`portable_products.py`), and fences that do nothing.
"""

from __future__ import annotations

from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call

from nnefc.passes.schedule.cuda.portable_products import ProductTypes, c_type, portable_product
from nnefc.passes.schedule.cuda.swizzled_tile import SwizzledLayout
from nnefc.passes.schedule.cuda.tensor_launch import FLOATS
from nnefc.passes.schedule.cuda.warp_matrices import SUMS
from nnefc.passes.schedule.gpu.nest import load
from nnefc.targets.machine.cuda.capabilities import SPECIFIC_FEATURES, WARPGROUP, WARPGROUP_INSTRUCTION
from nnefc.targets.machine.gpu.description import LOAD_BYTES, WARP

__all__ = [
    "begin_products",
    "commit_products",
    "fence_copies",
    "multiply_matrices",
    "multiply_registers",
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
__device__ __forceinline__ void {name}({parameters}) {{
#ifdef {macro}
{after}
  asm volatile ("wgmma.fence.sync.aligned;" : : : "memory");
#endif
}}
"""
_AFTER = """\
  #pragma unroll
  for (int i = 0; i < {count}; ++i) asm volatile ("" : "+{kind}"({register}[i]) : : "memory");  // after writes to it"""
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
__device__ __forceinline__ void {name}({total} *sums, const {left_type} *left, const void *right) {{
  unsigned {addresses};
#ifdef {macro}
{matrices}
  asm volatile (
      "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{types} {{{registers}}}, "
      "{left}, %{right}, {adds}{options};"
      : {sums}
      : {operands});
#else
{begin}{portable}
#endif
}}
"""
_MATRIX = "  unsigned long long {side}_matrix = {layout}ull | ({side}_at & 0x3ffff) >> 4;"
_ADDRESS = "{side}_at = (unsigned)__cvta_generic_to_shared({side})"
_ZEROS = """\
  #pragma unroll
  for (int i = 0; i < {count}; ++i) sums[i] = 0;
"""
_KINDS = {"uint32": ("unsigned", "r"), **{dtype: (total, kind) for dtype, (total, kind, _) in SUMS.items()}}
"""Types of registers in C, and as operands of assembly."""
_SWIZZLES = {8: 1, 4: 2, 2: 3, 1: 0}  # by the vectors of a row


def fence_copies() -> tirx.Stmt:
    """Makes what the thread copied to shared memory, and has waited for, visible to products."""
    return tirx.Evaluate(cuda_func_call("nnefc_fence_copies", source_code=_FENCE_COPIES))


def begin_products(*registers: tuple[tirx.Var, int]) -> tirx.Stmt:
    """Orders what the thread did with registers before the products that follow.

    Args:
        registers: accumulators and left operands of these products, as buffers of so many elements.
    """
    name = "nnefc_begin_products" + "".join(f"_{count}{_suffix(each)}" for each, count in registers)
    kinds = [(count, *_KINDS[str(each.dtype)]) for each, count in registers]
    source = _BEGIN.format(
        name=name,
        macro=_MACRO,
        parameters=", ".join(f"{c_name} *part{i}" for i, (_, c_name, _) in enumerate(kinds)),
        after="\n".join(
            _AFTER.format(count=count, kind=kind, register=f"part{i}") for i, (count, _, kind) in enumerate(kinds)
        ),
    )
    return tirx.Evaluate(cuda_func_call(name, *(_first(each) for each, _ in registers), source_code=source))


def commit_products() -> tirx.Stmt:
    """Makes the products since the last of these statements one group."""
    return tirx.Evaluate(cuda_func_call("nnefc_commit_products", source_code=_COMMIT))


def wait_for_products(pending: int, sums: tirx.Var, count: int) -> tirx.Stmt:
    """Waits for all groups of products but the last `pending` ones, which write `count` accumulators."""
    name = f"nnefc_wait_for_products_{pending}_{count}{_suffix(sums)}"
    source = _WAIT.format(name=name, pending=pending, count=count, macro=_MACRO, **c_type(str(sums.dtype)))
    return tirx.Evaluate(cuda_func_call(name, _first(sums), source_code=source))


def multiply_matrices(
    sums: tirx.Var,
    at: tirx.Expr,
    types: ProductTypes,
    columns: int,
    shared: tirx.Var,
    sides: tuple[SwizzledLayout, SwizzledLayout],
    offsets: tuple[tirx.Expr, tirx.Expr],
    adds: bool = True,
) -> tirx.Stmt:
    """Begins to add the products of one instruction to the accumulators from `at` on.

    Args:
        columns: of the right operand's tile; the left one has a warpgroup's 64 rows.
        shared: the buffer of both operands.
        sides: how they are laid out.
        offsets: where their rows begin, see `SwizzledLayout.rows_at`.
        adds: whether they are added to the accumulators, rather than written there.
    """
    left, right = sides
    name = f"nnefc_multiply_warpgroup_{types.name}_{columns}_{left.name}_{right.name}" + ("" if adds else "_first")
    addresses = (tirx.address_of(load(sums, at)), *(tirx.address_of(load(shared, offset)) for offset in offsets))
    source = _multiply_source(name, types, columns, left, right, adds)
    return tirx.Evaluate(cuda_func_call(name, *addresses, source_code=source))


def multiply_registers(
    sums: tirx.Var,
    types: ProductTypes,
    columns: int,
    left: tuple[tirx.Var, tirx.Expr],
    shared: tirx.Var,
    right: SwizzledLayout,
    offset: tirx.Expr,
) -> tirx.Stmt:
    """Begins to add the products of one instruction to the accumulators; the left operand is in registers.

    Args:
        columns: of the right operand's tile.
        left: four registers of a thread, as `mma.sync` has them of the 16 rows of its warp, from an index on. They
            must not change before the products are waited for.
        shared, right, offset: the buffer of the right operand, its layout, and where its rows begin.
    """
    name = f"nnefc_multiply_warpgroup_{types.name}_{columns}_registers_{right.name}"
    addresses = (_first(sums), tirx.address_of(load(*left)), tirx.address_of(load(shared, offset)))
    source = _multiply_source(name, types, columns, None, right, adds=True)
    return tirx.Evaluate(cuda_func_call(name, *addresses, source_code=source))


def _suffix(sums: tirx.Var) -> str:
    return "" if str(sums.dtype) == "float32" else f"_{sums.dtype}"


def _first(sums: tirx.Var) -> tirx.Expr:
    return tirx.address_of(load(sums, tirx.IntImm("int32", 0)))


def _multiply_source(
    name: str, types: ProductTypes, columns: int, left: SwizzledLayout | None, right: SwizzledLayout, adds: bool
) -> str:
    """Returns the source of a product of two matrices in shared memory, or of registers and one of these."""
    signs = ", 1, 1" if types.sums == "float32" else ""  # integers have none
    sides = {"right": right} if left is None else {"left": left, "right": right}
    flips = [f", {int(not side.along_depth)}" for side in sides.values()] if types.left in FLOATS else []
    count = columns * WARPGROUP_INSTRUCTION.rows // WARPGROUP
    of_left = [f'"r"(left[{i}])' for i in range(4)] if left is None else ['"l"(left_matrix)']
    numbers = [f"%{count + i}" for i in range(len(of_left))]
    warp_rows = WARPGROUP_INSTRUCTION.rows * WARP // WARPGROUP
    return _MULTIPLY.format(
        name=name,
        macro=_MACRO,
        total=c_type(types.sums)["total"],
        left_type="unsigned" if left is None else "void",
        addresses=", ".join(_ADDRESS.format(side=side) for side in sides),
        matrices="\n".join(_MATRIX.format(side=side, layout=hex(_layout(of))) for side, of in sides.items()),
        begin="" if adds else _ZEROS.format(count=count),
        types=types.ptx,
        depth=types.depth,
        adds=int(adds),
        options=signs + "".join(flips),
        columns=columns,
        left=f"{{{', '.join(numbers)}}}" if left is None else numbers[0],
        right=count + len(of_left),
        registers=", ".join(f"%{i}" for i in range(count)),
        sums=", ".join(f'"+{SUMS[types.sums][1]}"(sums[{i}])' for i in range(count)),
        operands=", ".join((*of_left, '"l"(right_matrix)')),
        portable=portable_product(types, columns, left, right, f"{warp_rows} * (threadIdx.x / 32 % 4)"),
    )


def _layout(side: SwizzledLayout) -> int:
    """Returns a matrix descriptor without its address."""
    leading, stride = side.leading_bytes // LOAD_BYTES, side.stride_bytes // LOAD_BYTES
    return leading << 16 | stride << 32 | _SWIZZLES[side.row_vectors] << 62
