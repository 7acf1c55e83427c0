"""Where the time of a network goes: every kernel by itself, beside the peak of the machine.

    python benchmarks/kernels.py MODEL [--rows N]

prints, for each kernel of the compiled network, how often it is called, its time in all, its rate, and the schedule
rule that it got. One thread; the minimum of several runs, in processor time, so that other programs disturb little.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from pathlib import Path

import numpy as np
import tvm
from tvm import tirx

from nnefc.formats import load_network
from nnefc.network import Network
from nnefc.passes.compute.vector_math import use_vector_math
from nnefc.passes.kernels import lower_kernel
from nnefc.passes.pipeline import graph_passes
from nnefc.passes.schedule.cpu import CPU_RULES
from nnefc.passes.schedule.rule import ScheduleKernels
from nnefc.passes.steps import program_of
from nnefc.targets.target import Target, parse_target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--rows", type=int, default=25)
    parser.add_argument("--target", default="llvm")
    options = parser.parse_args()
    profile(
        load_network(Path(options.model), random_weights=0 if options.model.endswith(".nnef") else None),
        parse_target(options.target),
        options.rows,
    )


def profile(network: Network, target: Target, shown: int) -> None:
    """Print the kernels of `network`, the costliest first."""
    use_vector_math()
    module = network.module
    with target.to_tvm():
        for _, transform in graph_passes(target):
            module = transform(module)
    program = program_of(type(network)(network.name, module, network.inputs, network.outputs, network.states))
    calls = Counter(step.kernel.name_hint for step in program.steps)
    scheduled = ScheduleKernels(CPU_RULES, target)(tvm.IRModule(program.kernels))
    rows = []
    functions = {}
    for gv, func in scheduled.functions.items():
        kernel = lower_kernel(func)
        private = tvm.ir.GlobalVar(f"private_{gv.name_hint}")
        params = [tirx.Var(p.name, p.ty) for p in kernel.func.params]
        call = tirx.Evaluate(tvm.ir.Call(private, params, ret_ty="int32"))
        functions[private] = kernel.func
        functions[tvm.ir.GlobalVar(gv.name_hint)] = tirx.PrimFunc(params, call).with_attr("global_symbol", gv.name_hint)
    with tvm.transform.PassContext(config={"tirx.disable_storage_rewrite": True}):
        library = tvm.compile(tvm.IRModule(functions), target=target.to_tvm())
    for gv, func in scheduled.functions.items():
        kernel = lower_kernel(func)
        buffers = [np.random.default_rng(0).random(_bytes(p) // 4 + 16, dtype=np.float32) for p in func.params]
        buffers.append(np.zeros(kernel.workspace_bytes + 64, np.uint8))
        pointers = [tvm_pointer(b) for b in buffers[: len(kernel.func.params)]]
        seconds = _best(library[gv.name_hint], pointers)
        flops = float(tvm.s_tir.analysis.estimate_tir_flops(tvm.IRModule({"main": program.kernels[gv]})))
        count = calls[gv.name_hint]
        rule = str(func.attrs["nnefc.rule"])
        shapes = " ".join("x".join(str(int(d)) for d in p.shape) for p in func.params)
        rows.append((seconds * count, count, flops / seconds / 1e9, rule, gv.name_hint, shapes))
    rows.sort(reverse=True)
    total = sum(row[0] for row in rows)
    print(f"{total * 1e3:.2f} ms in {len(rows)} kernels")
    for seconds, count, rate, rule, name, shapes in rows[:shown]:
        share = 100 * seconds / total
        print(f"{seconds * 1e3:8.3f} ms {share:5.1f} % {count:3d} × {rate:7.1f} G/s {rule:18} {name[:44]:44} {shapes}")


def tvm_pointer(array: np.ndarray):
    import ctypes

    return ctypes.c_void_p(array.ctypes.data)


def _bytes(buffer: tirx.Var) -> int:
    return math.prod(int(e) for e in buffer.shape) * max(1, tvm.DataType(str(buffer.dtype)).bits // 8)


def _best(function, pointers, budget: float = 0.15) -> float:
    best, spent = math.inf, 0.0
    function(*pointers)
    while spent < budget:
        start = time.thread_time()
        function(*pointers)
        took = time.thread_time() - start
        best, spent = min(best, max(took, 1e-9)), spent + took
    return best


if __name__ == "__main__":
    main()
