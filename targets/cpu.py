"""From a module of TIR to machine code for a CPU."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tvm

from nnefc.targets.target import Target

__all__ = ["CODE_SUFFIXES", "write_objects"]

CODE_SUFFIXES = {"llvm-ir": "ll", "asm": "s"}
"""Texts that the code may be written as, and how their files end."""

_PARTS = 4  # the same on every machine, so that the same input gives the same bytes
_LEAST_KERNELS = 4  # that are worth a part of their own


def write_objects(module: tvm.IRModule, target: Target, entry: str, folder: Path, *, suffix: str = "o") -> list[Path]:
    """Compile the functions of `module` into object files in `folder`: the function `entry`, and the others in parts.

    With the suffix "s" the files are assembly, with "ll" LLVM's intermediate representation, as text.

    The entry is apart so that LLVM does not inline kernels into it. TVM tells LLVM that two buffers never overlap,
    which holds within a kernel, but not from one kernel to the next: they share the workspace. The kernels know
    nothing of each other, so that several processors can compile them at the same time.

    Kernels are already scheduled and their memory is planned: TVM must not plan it once more.
    """
    entries = {gv: func for gv, func in module.functions.items() if gv.name_hint == entry}
    kernels = [(gv, func) for gv, func in module.functions.items() if gv.name_hint != entry]
    kernels.sort(key=lambda item: item[0].name_hint)
    parts = max(1, min(_PARTS, len(kernels) // _LEAST_KERNELS))
    named = [("entry", entries), *((f"kernels{part}", dict(kernels[part::parts])) for part in range(parts))]

    def write(name: str, functions: dict[tvm.ir.GlobalVar, object]) -> Path:
        path = folder / f"{name}.{suffix}"
        with tvm.transform.PassContext(config={"tirx.disable_storage_rewrite": True}):
            library = tvm.compile(tvm.IRModule(functions), target=target.to_tvm())
        library.mod.write_to_file(str(path), suffix)
        return path

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda part: write(*part), [part for part in named if part[1]]))
