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
from nnefc.ir.attributes import RULE
from nnefc.ir.constant_evaluation import external_calls
from nnefc.ir.network import Network
from nnefc.passes.backend import KernelUse
from nnefc.passes.manager import PassManager
from nnefc.passes.pipeline import optimized
from nnefc.passes.plan.program import Buffer, MemoryKind, Program, kernel_stages, program_of
from nnefc.passes.plan.symbols import exported
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.arithmetic import arithmetic_of
from nnefc.passes.schedule.in_place import in_place_of
from nnefc.targets.machine.cpu.target import Target

__all__ = ["KernelTime", "kernel_times"]

BUDGET = 0.15  # seconds for each kernel
_ANNOTATED = "nnefc_iterations"


@dataclass(frozen=True)
class KernelTime:
    """What one kernel takes.

    Attributes:
        rule: the schedule rule that it got.
        calls: in one run of the network.
        seconds: of processor time, for one call on one thread: the smallest of several.
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
    backend = backend_of(target)
    backend.check()
    manager = PassManager(backend, backend.settings(strict))
    with target.to_tvm():
        network = optimized(network, manager)
    program = program_of(network)
    steps = list(kernel_stages(program))
    reads = {step.kernel.name_hint: step.reads for step in steps}
    calls = Counter(step.kernel.name_hint for step in steps)
    results = {step.kernel: len(step.writes) for step in steps}
    kernels = {}
    for gv, func in program.kernels.items():
        if _is_timed(func):
            kernel = KernelAnalysis(func)
            kernels[gv] = backend.lower(
                KernelUse(gv.name_hint, kernel, results[gv], in_place_of(kernel), aligned=True), manager
            )
    library = _compiled({gv.name_hint: kernel.host for gv, kernel in kernels.items()}, target)
    found = []
    for gv, kernel in kernels.items():
        source = kernel.scheduled
        sizes = [_bytes(param) for param in source.params]
        operands = [_operand(read, program) for read in reads[gv.name_hint]]
        tail = [_random(size) for size in [*sizes[len(operands) :], kernel.workspace_bytes]]
        found.append(
            KernelTime(
                name=gv.name_hint,
                rule=str(source.attrs[RULE]),
                calls=calls[gv.name_hint],
                seconds=_minimum(library[gv.name_hint], [*operands, *tail][: len(kernel.host.params)]),
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
    functions = {_ANNOTATED: exported(_nothing_annotated(), _ANNOTATED)}
    for name, kernel in kernels.items():
        symbol = str(kernel.attrs["global_symbol"])
        params = [tirx.Var(param.name, param.ty) for param in kernel.params]
        call = tirx.Evaluate(tirx.call_extern("int32", symbol, *params))
        functions[symbol] = kernel
        functions[name] = tirx.PrimFunc(params, call).with_attr("global_symbol", name)
    with tvm.transform.PassContext(config={"tirx.disable_storage_rewrite": True}):
        return tvm.compile(tvm.IRModule(functions), target=target.to_tvm())


def _nothing_annotated() -> tirx.PrimFunc:
    """What kernels call before their parallel loops: in a library, its runtime."""
    params = [tirx.Var(name, "int64") for name in ("trip_count", "cycles")]
    return tirx.PrimFunc(params, tirx.Return(tirx.IntImm("int32", 0)), ret_type=tvm.ir.PrimType("int32"))


def _bytes(buffer: tirx.Var) -> int:
    return math.prod(int(size) for size in buffer.shape) * max(1, tvm.DataType(str(buffer.dtype)).bits // 8)


def _operand(buffer: Buffer, program: Program) -> np.ndarray:
    """A constant as it is; else zeros for whole numbers, for both may hold indices; anything else at random."""
    if buffer.kind is MemoryKind.CONSTANT:
        return program.constants[buffer.index]
    return _random(buffer.bytes) if "float" in buffer.dtype else np.zeros(buffer.bytes + 64, np.uint8)


def _random(size: int) -> np.ndarray:
    return np.random.default_rng(0).random(size // 4 + 16, dtype=np.float32)


def _minimum(function: Callable[..., None], buffers: Sequence[np.ndarray]) -> float:
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
