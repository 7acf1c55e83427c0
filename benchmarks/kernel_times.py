"""Every kernel of a network, compiled and timed by itself."""

from __future__ import annotations

import ctypes
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from nnefc.backends import backend_of
from nnefc.evaluation import external_calls
from nnefc.network import Network
from nnefc.passes.compute.dot_product import use_dot_products
from nnefc.passes.compute.vector_math import use_vector_math
from nnefc.passes.pipeline import optimized
from nnefc.passes.plan.program import Buffer, Kind, Program, program_of
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.arithmetic import arithmetic_of
from nnefc.passes.schedule.cpu import CPU_RULES
from nnefc.passes.schedule.in_place import in_place_of
from nnefc.passes.schedule.rule import scheduled
from nnefc.passes.tir.kernels import lower_kernel
from nnefc.targets.machine.target import Target

__all__ = ["KernelTime", "kernel_times"]

BUDGET = 0.15  # seconds for each kernel


@dataclass(frozen=True)
class KernelTime:
    """What one kernel takes.

    Attributes:
        rule: the schedule rule that it got.
        calls: in one run of the network.
        seconds: of processor time, for one call on one thread: the least of several.
        flops: of one call, additions and multiplications counted each; without the steps that move data only.
        bytes: of all operands and results, once.
        shapes: of operands and results.
    """

    name: str
    rule: str
    calls: int
    seconds: float
    flops: float
    bytes: int
    shapes: tuple[tuple[int, ...], ...]


def kernel_times(network: Network, target: Target, strict: bool = False) -> list[KernelTime]:
    """The kernels of `network`, the costliest first; without those that report errors."""
    use_vector_math()
    use_dot_products()
    with target.to_tvm():
        network = optimized(network, backend_of(target), lambda _name, _module: None, strict)
    program = program_of(network)
    reads = {step.kernel.name_hint: step.reads for step in program.steps}
    calls = Counter(step.kernel.name_hint for step in program.steps)
    timed = {gv: KernelAnalysis(func) for gv, func in program.kernels.items() if _is_timed(func)}
    sources = {gv: scheduled(kernel, CPU_RULES, target) for gv, kernel in timed.items()}
    kernels = {gv: lower_kernel(func) for gv, func in sources.items()}
    library = _compiled({gv.name_hint: kernel.func for gv, kernel in kernels.items()}, target)
    found = []
    for gv, kernel in kernels.items():
        source = sources[gv]
        sizes = [_bytes(param) for param in source.params]
        operands = [_operand(read, program) for read in reads[gv.name_hint]]
        rest = [_random(size) for size in [*sizes[len(operands) :], kernel.workspace_bytes]]
        found.append(
            KernelTime(
                name=gv.name_hint,
                rule=str(source.attrs["nnefc.rule"]),
                calls=calls[gv.name_hint],
                seconds=_least(library[gv.name_hint], [*operands, *rest][: len(kernel.func.params)]),
                flops=float(arithmetic_of(program.kernels[gv])),
                bytes=sum(sizes),
                shapes=tuple(tuple(int(length) for length in param.shape) for param in source.params),
            )
        )
    return sorted(found, key=lambda kernel: -kernel.seconds * kernel.calls)


def _is_timed(func: tirx.PrimFunc) -> bool:
    """Whether the memory plan leaves something to do, and it needs no library's runtime, as reports of errors do."""
    allowed = in_place_of(KernelAnalysis(func))
    return not (allowed.is_view or "nnefc_kernel_error" in external_calls(func))


def _compiled(kernels: dict[str, tirx.PrimFunc], target: Target) -> Any:
    """Kernels have the calling convention of C; functions around them can be called from here."""
    functions = {}
    for name, kernel in kernels.items():
        private = tvm.ir.GlobalVar(f"private_{name}")
        params = [tirx.Var(param.name, param.ty) for param in kernel.params]
        call = tirx.Evaluate(tvm.ir.Call(private, params, ret_ty="int32"))
        functions[private] = kernel
        functions[tvm.ir.GlobalVar(name)] = tirx.PrimFunc(params, call).with_attr("global_symbol", name)
    with tvm.transform.PassContext(config={"tirx.disable_storage_rewrite": True}):
        return tvm.compile(tvm.IRModule(functions), target=target.to_tvm())


def _bytes(buffer: tirx.Var) -> int:
    return math.prod(int(size) for size in buffer.shape) * max(1, tvm.DataType(str(buffer.dtype)).bits // 8)


def _operand(buffer: Buffer, program: Program) -> np.ndarray:
    """A constant as it is; else zeros for whole numbers, for both may hold indices; anything else at random."""
    if buffer.kind is Kind.CONSTANT:
        return program.constants[buffer.index]
    return _random(buffer.bytes) if "float" in buffer.dtype else np.zeros(buffer.bytes + 64, np.uint8)


def _random(size: int) -> np.ndarray:
    return np.random.default_rng(0).random(size // 4 + 16, dtype=np.float32)


def _least(function: Callable[..., None], buffers: Sequence[np.ndarray]) -> float:
    pointers = [ctypes.c_void_p(buffer.ctypes.data) for buffer in buffers]
    function(*pointers)
    best, spent, calls = math.inf, 0.0, 1
    while spent < BUDGET:
        start = time.thread_time()
        for _ in range(calls):
            function(*pointers)
        took = time.thread_time() - start
        spent += took
        if took < 1e-4:  # too short for the clock
            calls *= 4
        else:
            best = min(best, took / calls)
    return best
