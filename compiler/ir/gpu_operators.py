"""Declares the operators of TIR that GPUs have in common, for kernels that hold for every GPU.

    exchange(value, 16)      →      __shfl_xor_sync(0xffffffff, value, 16, 32)      in CUDA

A back end registers with TVM what a call becomes in its language (`targets/codegen/cuda/gpu_operators.py`). Barriers of
a block are TVM's own `tvm_storage_sync`.
"""

from __future__ import annotations

from tvm import tirx
from tvm.ir import _ffi_api as ir_ffi
from tvm.ir import register_op_attr

__all__ = [
    "COMMIT_COPIES",
    "COPY",
    "COPY_EITHER",
    "EXCHANGE",
    "IS_LAST",
    "MAXIMUM",
    "POWER_OF_TWO",
    "RANK",
    "UNPACK",
    "WAIT_FOR_COPIES",
    "commit_copies",
    "copy_either",
    "copy_vector",
    "exchanged",
    "is_last",
    "maximum",
    "power_of_two",
    "rank",
    "unpacked",
    "wait_for_copies",
]

_PURE, _OPAQUE = 1, 3  # TVM's CallEffectKind


def _declared(name: str, meaning: str, effect: int = _OPAQUE) -> str:
    name = f"nnefc.gpu.{name}"
    ir_ffi.RegisterOp(name, meaning)
    register_op_attr(name, "TCallEffectKind", effect)
    register_op_attr(name, "TScriptPrinterName", name)
    return name


EXCHANGE = _declared("exchange", "a value of another thread of the warp")
POWER_OF_TWO = _declared("power_of_two", "2 to the power of a product")
MAXIMUM = _declared("maximum", "the larger of two numbers, without NaN", _PURE)
COPY = _declared("copy", "begins to copy a vector to shared memory")
COPY_EITHER = _declared("copy_either", "begins to copy one of two vectors to shared memory")
COMMIT_COPIES = _declared("commit_copies", "ends a group of copies")
WAIT_FOR_COPIES = _declared("wait_for_copies", "waits for all but the last groups of copies")
RANK = _declared("rank", "how many threads before this one are selected")
IS_LAST = _declared("is_last", "whether all other blocks have arrived")
UNPACK = _declared("unpack", "an integer of few bits as a float")


def exchanged(value: tirx.Expr, distance: tirx.Expr | int) -> tirx.Expr:
    """Returns the value that the thread of the same warp has whose number differs by a power of two."""
    distance = tirx.const(distance, "int32") if isinstance(distance, int) else distance
    return tirx.call_intrin(str(value.expr_ty().dtype), EXCHANGE, value, distance)


def power_of_two(value: tirx.Expr, factor: float) -> tirx.Expr:
    """Returns 2 to the power of a float32 times a factor, with an error of 2 parts in 2^22 at most."""
    return tirx.call_intrin("float32", POWER_OF_TWO, value, tirx.const(factor, "float32"))


def maximum(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """Returns the larger of two float32, or the other one if one is NaN."""
    return tirx.call_intrin("float32", MAXIMUM, a, b)


def copy_vector(to: tuple[tirx.Expr, tirx.Expr], source: tirx.Expr, inside: tirx.Expr) -> tirx.Stmt:
    """Begins to copy what one instruction of a thread loads at most to shared memory, past the registers.

    Args:
        to: the addresses of the first and of the last element there; TVM makes buffers as small as they are named.
        source: the address of the first element.
        inside: whether it is copied; zeros are written otherwise.
    """
    return tirx.Evaluate(tirx.call_intrin("void", COPY, *to, source, inside))


def copy_either(
    to: tuple[tirx.Expr, tirx.Expr],
    sources: tuple[tirx.Expr, tirx.Expr],
    is_first: tirx.Expr,
    inside: tirx.Expr,
) -> tirx.Stmt:
    """Begins to copy as :func:`copy_vector` does, from the first of two addresses where `is_first` holds."""
    return tirx.Evaluate(tirx.call_intrin("void", COPY_EITHER, *to, *sources, is_first, inside))


def commit_copies() -> tirx.Stmt:
    """Makes the thread's copies since the last of these statements one group."""
    return tirx.Evaluate(tirx.call_intrin("void", COMMIT_COPIES))


def wait_for_copies(count: int) -> tirx.Stmt:
    """Waits for the thread's copies, but for those of the last `count` groups."""
    return tirx.Evaluate(tirx.call_intrin("void", WAIT_FOR_COPIES, tirx.const(count, "int32")))


def rank(selected: tirx.Expr, of_warps: tirx.Expr, of_block: tirx.Expr, threads: int) -> tirx.Expr:
    """Returns how many threads of the block with lower numbers are selected, an int32; a barrier of the block.

    Args:
        selected: an int32, not 0 if this thread is selected.
        of_warps: the address of an int32 for each warp in shared memory.
        of_block: the address of an int32 of the thread, which becomes the number of all selected threads.
        threads: of the block.
    """
    return tirx.call_intrin("int32", RANK, selected, of_warps, of_block, tirx.const(threads, "int32"))


def is_last(arrived: tirx.Expr, blocks: int) -> tirx.Expr:
    """Returns whether this block is the last of several to arrive, and sees what the others have written, as an int32.

    Args:
        arrived: the address of their counter, a uint32 that is 0 before the first and after the last arrives.
        blocks: how many arrive.
    """
    return tirx.call_intrin("int32", IS_LAST, arrived, tirx.const(blocks, "int32"))


def unpacked(word: tirx.Expr, shift: int, mask: int, origin: float) -> tirx.Expr:
    """Returns the float32 whose bits are `word >> shift & mask | 0x4b000000`, that is 2^23 and a number, less `origin`.

    Args:
        word: a uint32.
        mask: selects bits of the fraction, which has 23.
    """
    arguments = tirx.const(shift, "int32"), tirx.const(mask, "uint32"), tirx.const(origin, "float32")
    return tirx.call_intrin("float32", UNPACK, word, *arguments)
