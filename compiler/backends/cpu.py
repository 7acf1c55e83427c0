"""CPU backend: tensors in blocked layouts, kernels compiled by LLVM, host memory.

The passes are in `cpu_passes.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from tvm import tirx

from nnefc.backends.cpu_passes import PASSES
from nnefc.backends.cpu_steps import CpuSettings, Objects, lower_for_host
from nnefc.passes.backend import MEMORY_BUDGET, Backend, KernelUse, Lowered, LoweredKernel
from nnefc.passes.compute.int8_activations import use_byte_functions
from nnefc.passes.manager import PassManager, PassRun, Phase
from nnefc.passes.plan.entry_memory import HostMemory, Memory
from nnefc.passes.plan.symbols import ENTRY
from nnefc.passes.schedule.cpu import tile_functions
from nnefc.passes.schedule.cpu.llvm_functions import call_llvm_functions
from nnefc.passes.tir.cpu.convert_with_rounding import use_rounding_conversions
from nnefc.passes.tir.cpu.high_products import use_high_products
from nnefc.passes.tir.cpu.lower_dot_accumulate import use_dot_accumulate
from nnefc.passes.tir.cpu.lower_fmin_fmax import use_fmin_fmax
from nnefc.passes.tir.cpu.permute_lanes import use_permuted_loads
from nnefc.passes.tir.cpu.round_as_integers import use_rounding
from nnefc.passes.tir.cpu.widen_int8_loads import use_int8_widening
from nnefc.targets.codegen.cpu.objects import MachineCode
from nnefc.targets.machine.cpu.reproducible import machine_of_passes, machine_of_schedules
from nnefc.targets.machine.cpu.target import Target
from nnefc.targets.machine.system import FileFormat

__all__ = ["CpuBackend", "make_backend"]


class CpuBackend(Backend):
    """A CPU."""

    target: Target
    takes_specializations = True
    takes_text = True
    takes_checks = True
    compares_kernels = True
    passes = PASSES

    def __init__(self, target: Target, levels: Sequence[Target] = ()) -> None:
        """`levels` are all that a library has code for, if it has any besides that for `target`."""
        self.target = target
        self._levels = tuple(map(machine_of_passes, levels))
        self.patches = target.patches
        self.merges_kernels = target.small
        self.names_by_content = target.hosted and not target.small and target.format is not FileFormat.WASM
        self.takes_profile = target.hosted and target.format is not FileFormat.WASM  # others have no clock
        self.cancellable = self.takes_profile and not target.small  # others run on the calling thread alone

    @property
    def levels(self) -> Sequence[Backend]:
        levels = self.target.levels
        return tuple(CpuBackend(level, levels) for level in levels) or (self,)

    def check(self) -> None:
        """Nothing is needed: TVM brings LLVM."""
        use_rounding()
        use_rounding_conversions()
        use_high_products()
        use_int8_widening()
        use_fmin_fmax()
        use_dot_accumulate()
        use_permuted_loads()
        use_byte_functions()

    def settings(self, strict: bool = False, memory_budget: float = MEMORY_BUDGET) -> CpuSettings:
        return CpuSettings(self.target, strict, memory_budget, self._levels)

    def lower(self, kernel: KernelUse, manager: PassManager) -> LoweredKernel:
        lowered = lower_for_host(kernel, manager, self.target)
        assert lowered.host is not None
        return replace(lowered, features=tile_functions.features_of_tiles(lowered.host, self.target))

    def runnable(self, run: PassRun) -> tirx.PrimFunc | None:
        func: tirx.PrimFunc = run.after
        if run.step.phase is Phase.BLOCKS and run.step is not self.passes.named("flatten buffers"):
            return None  # conditions are opaque, or blocks half lowered
        has_functions = isinstance(func.body, tirx.AttrStmt) and func.body.attr_key == "pragma_import_llvm"
        return func if has_functions else call_llvm_functions(func, machine_of_schedules(self.target))

    def objects(self, manager: PassManager) -> Objects:
        return Objects(manager, self.target)

    def memory(self) -> Memory:
        return HostMemory(self.target.size_type)

    def finish(
        self,
        lowered: Lowered,
        objects: tuple[bytes, ...],
        manager: PassManager,
        dump: Callable[[str, str], None] | None = None,
    ) -> MachineCode:
        names = sorted(gv.name_hint for gv in lowered.module.functions)
        entries = tuple(name for name in names if re.fullmatch(rf"{ENTRY}(_level\d+)?(_\d+)?", name))
        compiled = {symbol: kernel.lower for symbol, kernel in lowered.compiled.items()}
        compile = self.objects(manager.unobserved())
        return MachineCode(objects, self.target, lowered.module, entries, compile, compiled)


make_backend = CpuBackend
