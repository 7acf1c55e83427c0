"""Writes the operators of all GPUs in CUDA: those of `compiler/ir/gpu_operators.py`.

Functions around an instruction in PTX are written once in the source of a module that calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call
from tvm.ir.expr import Call

from nnefc.ir.gpu_operators import (
    COMMIT_COPIES,
    COPY,
    COPY_EITHER,
    EXCHANGE,
    IS_LAST,
    MAXIMUM,
    POWER_OF_TWO,
    RANK,
    UNPACK,
    WAIT_FOR_COPIES,
)
from nnefc.targets.machine.gpu.description import WARP

__all__ = ["register_gpu_operators"]

_POWER = """
__device__ __forceinline__ float nnefc_power(float difference, float factor) {
  float power;
  asm ("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(difference * factor));
  return power;
}
"""
_COPY = """
__device__ __forceinline__ void nnefc_copy(void *shared, const void *, const void *global, bool is_inside) {
  unsigned address = (unsigned)__cvta_generic_to_shared(shared);
  int bytes = is_inside ? 16 : 0;  // others are zero
  asm volatile ("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(address), "l"(global), "r"(bytes) : "memory");
}
"""
_COPY_EITHER = """
__device__ __forceinline__ void nnefc_copy_either(void *shared, const void *, const void *first, const void *second,
                                                  bool is_first, bool is_inside) {
  unsigned address = (unsigned)__cvta_generic_to_shared(shared);
  const void *global = is_first ? first : second;
  int bytes = is_inside ? 16 : 0;  // others are zero
  asm volatile ("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(address), "l"(global), "r"(bytes) : "memory");
}
"""
_COMMIT = """
__device__ __forceinline__ void nnefc_commit_copies() {
  asm volatile ("cp.async.commit_group;" : : : "memory");
}
"""
_WAIT = """
__device__ __forceinline__ void nnefc_wait_for_copies_{count}() {{
  asm volatile ("cp.async.wait_group {count};" : : : "memory");
}}
"""
_RANK = """
__device__ __forceinline__ int nnefc_rank_{warps}(int selected, int *of_warps, int *of_block) {{
  const unsigned mask = __ballot_sync(0xffffffffu, selected);
  const int lane = threadIdx.x % {warp_size}, warp = threadIdx.x / {warp_size};
  __syncthreads();
  if (lane == 0) of_warps[warp] = __popc(mask);
  __syncthreads();
  int before = 0, all = 0;
  for (int other = 0; other < {warps}; ++other) {{
    before += other < warp ? of_warps[other] : 0;
    all += of_warps[other];
  }}
  *of_block = all;
  return before + __popc(mask & ((1u << lane) - 1u));
}}
"""
_IS_LAST = """
__device__ __forceinline__ int nnefc_is_last(unsigned *arrived, int blocks) {
  __syncthreads();
  int last = 0;
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicInc(arrived, (unsigned)blocks - 1) == (unsigned)blocks - 1;
    __threadfence();
  }
  return __syncthreads_or(last);
}
"""
_UNPACK = """
__device__ __forceinline__ float nnefc_integer(unsigned word, int shift, unsigned mask, float origin) {
  unsigned bits;
  asm ("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(bits) : "r"(word >> shift), "r"(mask), "r"(0x4b000000));  // & and |
  return __uint_as_float(bits) - origin;
}
"""


def register_gpu_operators() -> None:
    """Registers with TVM what each operator becomes in CUDA; a second time replaces the first."""
    for name, written in _OPERATORS.items():
        tirx.register_intrin_lowering(name, target="cuda", f=written, level=100)


def _called(function: str, source: str) -> Callable[[Call], tirx.Expr]:
    """Calls a function of CUDA with the operator's operands."""
    return lambda call: cuda_func_call(function, *call.args, source_code=source, return_type=_dtype(call))


def _exchanged(call: Call) -> tirx.Expr:
    mask, warp = tirx.const(0xFFFFFFFF, "uint32"), tirx.const(WARP, "int32")
    return tirx.call_intrin(_dtype(call), "tirx.cuda.__shfl_xor_sync", mask, *call.args, warp)


def _maximum(call: Call) -> tirx.Expr:
    """Calls `fmaxf`, which is one instruction."""
    return tirx.call_pure_extern("float32", "fmaxf", *call.args)


def _waits(call: Call) -> tirx.Expr:
    count = int(call.args[0])
    return cuda_func_call(f"nnefc_wait_for_copies_{count}", source_code=_WAIT.format(count=count))


def _rank(call: Call) -> tirx.Expr:
    *operands, threads = call.args
    warps = int(threads) // WARP
    source = _RANK.format(warp_size=WARP, warps=warps)
    return cuda_func_call(f"nnefc_rank_{warps}", *operands, source_code=source, return_type="int32")


def _dtype(call: Call) -> str:
    return str(call.expr_ty().dtype)


_OPERATORS: Mapping[str, Callable[[Call], tirx.Expr]] = {
    EXCHANGE: _exchanged,
    POWER_OF_TWO: _called("nnefc_power", _POWER),
    MAXIMUM: _maximum,
    COPY: _called("nnefc_copy", _COPY),
    COPY_EITHER: _called("nnefc_copy_either", _COPY_EITHER),
    COMMIT_COPIES: _called("nnefc_commit_copies", _COMMIT),
    WAIT_FOR_COPIES: _waits,
    RANK: _rank,
    IS_LAST: _called("nnefc_is_last", _IS_LAST),
    UNPACK: _called("nnefc_integer", _UNPACK),
}
