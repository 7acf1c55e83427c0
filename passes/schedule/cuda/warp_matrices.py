"""Declares the instructions of warps that tensor-core kernels share: products, loads of fragments, and conversions.

`mma.sync` multiplies 16 rows and 16 depths of 16-bit floats, or 32 depths of bytes
and floats of 8 bits, with 8 columns. `ldmatrix` reads
four blocks of 8 rows of 16 bytes from shared memory (PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions").
"""

from __future__ import annotations

from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call

from nnefc.passes.schedule.gpu.nest import load

__all__ = ["ELEMENTS", "SUMS", "byte_multiplier", "multiplier", "pack_pairs", "read_matrices"]

ELEMENTS = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "tf32",
    "int8": "s8",
    "uint8": "u8",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
}
"""Names of the types of operands in PTX."""

SUMS = {"float32": ("float", "f", "f32"), "int32": ("int", "r", "s32")}
"""Names of the types of sums: in C, as an operand of assembly, in PTX."""

_MULTIPLY = """
__device__ __forceinline__ void nnefc_multiply_{type}(float *sums, const unsigned *left, const unsigned *right) {{
  asm volatile (
      "mma.sync.aligned.m16n8k16.row.col.f32.{type}.{type}.f32 {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, "
      "{{%10, %11, %12, %13}};"
      : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]), "f"(sums[0]),
        "f"(sums[1]), "f"(sums[2]), "f"(sums[3]));
}}
"""
_MULTIPLY_BYTES = """
__device__ __forceinline__ void {name}({total} *sums, const unsigned *left, const unsigned *right) {{
  asm volatile (
      "mma.sync.aligned.m16n8k32.row.col.{sums}.{left}.{right}.{sums} {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, "
      "{{%8, %9}}, {{%10, %11, %12, %13}};"
      : "={kind}"(sums[0]), "={kind}"(sums[1]), "={kind}"(sums[2]), "={kind}"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]), "{kind}"(sums[0]),
        "{kind}"(sums[1]), "{kind}"(sums[2]), "{kind}"(sums[3]));
}}
"""
_READ = """
__device__ __forceinline__ void nnefc_read_matrices{name}(unsigned *registers, const void *row) {{
  unsigned address = (unsigned)__cvta_generic_to_shared(row);
  asm volatile ("ldmatrix.sync.aligned.m8n8.x4{option}.shared.b16 {{%0, %1, %2, %3}}, [%4];"
      : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
      : "r"(address)
      : "memory");
}}
"""
_PACK = """
__device__ __forceinline__ unsigned nnefc_pack_{type}(float low, float high) {{
  unsigned both;
  asm ("cvt.rn.{type}x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}}
"""


def multiplier(dtype: str) -> tuple[str, str]:
    """Returns the name and the source of the product of `f16` or `bf16`, which adds to four sums of a thread."""
    return f"nnefc_multiply_{dtype}", _MULTIPLY.format(type=dtype)


def byte_multiplier(left: str, right: str, dtype: str) -> tuple[str, str]:
    """Returns the name and the source of the product of two types of 8 bits, which adds to four sums of `dtype`."""
    types = {"left": ELEMENTS[left], "right": ELEMENTS[right]}
    total, kind, sums = SUMS[dtype]
    name = "nnefc_multiply_{left}_{right}".format(**types)
    return name, _MULTIPLY_BYTES.format(name=name, total=total, kind=kind, sums=sums, **types)


def read_matrices(
    registers: tirx.Var, at: tirx.Expr, shared: tirx.Var, position: tirx.Expr, transposed: bool = False
) -> tirx.Stmt:
    """Reads four registers of a thread from `at` on; the thread names the row of a block that begins at `position`."""
    name, option = ("_transposed", ".trans") if transposed else ("", "")
    return tirx.Evaluate(
        cuda_func_call(
            f"nnefc_read_matrices{name}",
            tirx.address_of(load(registers, at)),
            tirx.address_of(load(shared, position)),
            source_code=_READ.format(name=name, option=option),
        )
    )


def pack_pairs(dtype: str, low: tirx.Expr, high: tirx.Expr) -> tirx.Expr:
    """Returns two numbers rounded to `f16` or `bf16`, in one register."""
    source = _PACK.format(type=dtype)
    return cuda_func_call(f"nnefc_pack_{dtype}", low, high, source_code=source, return_type="uint32")
