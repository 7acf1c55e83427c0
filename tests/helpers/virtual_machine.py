"""Networks as TVM's own virtual machine runs them: no pass of ours has a part in it.

A run checks what a front end made, once, on little data. So each kernel takes the shortest way from blocks to machine
code, without the passes that are for speed: TVM's usual way takes three times as long.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tvm
from runtime_samples import ZIG_CC
from tvm import relax, s_tir, tirx

__all__ = ["run_in_virtual_machine"]

_TARGET = tvm.target.Target({"kind": "llvm", "opt-level": 0})
_MANY = 4
"""Operations from which on linking takes less time than compiling in memory."""
_PIPELINE = "shortest"


def _shortest() -> tuple[tvm.transform.Pass, object, object]:
    """What TVM's code generator needs, of the passes of `s_tir`'s own pipeline, in its order."""
    passes = [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.BF16ComputeLegalize(),
        tirx.transform.VectorizeLoop(False),
        tirx.transform.FP8ComputeLegalize(),
        tirx.transform.AnnotateEntryFunc(),
        tirx.transform.SplitHostDevice(),
        tirx.transform.MakePackedAPI(),
        tirx.transform.FP8StorageLegalize(),
        tirx.transform.BF16StorageLegalize(),
    ]

    def last() -> tvm.transform.Pass:
        return tvm.ir.transform.Sequential([tirx.transform.LowerTVMBuiltin(), tirx.transform.LowerIntrin()])

    return tvm.ir.transform.Sequential(passes), last, last


tirx.register_tir_pipeline(_PIPELINE, _shortest)


def run_in_virtual_machine(module: tvm.IRModule, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compile a module of Relax and run its `main` once; it returns a tuple."""
    executable = relax.build(module, _TARGET, tir_pipeline=_PIPELINE)
    if sum(len(block.bindings) for block in module["main"].body.blocks) > _MANY:
        _link_kernels(executable.mod)
    machine = relax.VirtualMachine(executable, tvm.cpu())
    results = machine["main"](*(tvm.runtime.tensor(np.array(value, order="C")) for value in inputs))
    return [result.numpy() for result in results]


def _link_kernels(program: tvm.runtime.Module) -> None:
    """Have the kernels in a library; in memory, TVM's just-in-time compiler optimizes them whatever the target says."""
    parts = list(program.imports)
    program.clear_imports()
    for part in parts:
        program.import_module(_linked(part) if part.kind == "llvm" else part)


def _linked(kernels: tvm.runtime.Module) -> tvm.runtime.Module:
    with tempfile.TemporaryDirectory(prefix="nnefc-machine-") as folder:
        code, library = str(Path(folder) / "kernels.o"), str(Path(folder) / "kernels.so")
        kernels.write_to_file(code)
        subprocess.run([*ZIG_CC, "-shared", "-Wl,-z,undefs", code, "-o", library], check=True)
        return tvm.runtime.load_module(library)
