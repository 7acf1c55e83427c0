"""Code for CPUs: tensors in blocked layouts, kernels that LLVM makes objects of, all memory the processor's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import tvm
from tvm import tirx

from nnefc.ir.attributes import CHECKED, ELEMENT_RANGES, RULE
from nnefc.passes.backend import Backend, GraphPasses, KernelUse, Lowered, LoweredKernel, NamedPass
from nnefc.passes.compute.byte_functions import use_byte_functions
from nnefc.passes.graph.assign_layouts import AssignLayouts
from nnefc.passes.graph.choose_algorithms import choose_algorithms
from nnefc.passes.graph.choose_precision import moves_on, sums_on, uses_on
from nnefc.passes.graph.compute_in_integers import ComputeInIntegers
from nnefc.passes.graph.compute_in_single import ComputeInSingle
from nnefc.passes.graph.fast_algorithms import FastAlgorithms
from nnefc.passes.graph.fold_constants import FoldConstants
from nnefc.passes.graph.fold_permutations import FoldPermutations
from nnefc.passes.graph.join_attention import JoinAttention
from nnefc.passes.graph.narrow_constants import NarrowConstants
from nnefc.passes.graph.narrow_results import NarrowResults
from nnefc.passes.graph.steps_apart import values_between, values_spread
from nnefc.passes.graph.tabulate_bytes import TabulateBytes
from nnefc.passes.graph.use_narrow_floats import UseNarrowFloats, check_names
from nnefc.passes.legalize.element_wise import ELEMENT_WISE
from nnefc.passes.legalize.pack_block_matmul import PackBlockMatmul, WidenBlocks
from nnefc.passes.legalize.pack_matmul import PackMatmul
from nnefc.passes.legalize.pack_narrow_matmul import PackNarrowMatmul
from nnefc.passes.legalize.quantization import QUANTIZATION
from nnefc.passes.plan.entry_memory import HostMemory, Memory
from nnefc.passes.plan.symbols import ENTRY, exported, kernel_symbol
from nnefc.passes.schedule.cpu import CPU_RULES, tile_functions
from nnefc.passes.schedule.cpu.contraction import ContractionRule
from nnefc.passes.schedule.cpu.dot_sums import with_dot_sums
from nnefc.passes.schedule.cpu.few_rows import (
    has_few_rows,
    is_of_one_row,
    of_few_rows,
    sizes_of_one_row,
    with_sizes,
    with_version,
)
from nnefc.passes.schedule.cpu.functions_of_bytes import with_functions_of_bytes
from nnefc.passes.schedule.cpu.half_sums import with_half_sums
from nnefc.passes.schedule.cpu.llvm_functions import with_llvm_functions
from nnefc.passes.schedule.cpu.tanh_sigmoids import with_tanh_sigmoids
from nnefc.passes.schedule.rule import scheduled, with_sizes_named
from nnefc.passes.tir.added_roundings import with_added_roundings
from nnefc.passes.tir.announced_rounds import with_announced_rounds
from nnefc.passes.tir.assembled_tiles import with_assembled_tiles
from nnefc.passes.tir.float_extremes import use_float_extremes, with_float_extremes
from nnefc.passes.tir.half_conversions import with_integer_conversions
from nnefc.passes.tir.integer_rounding import use_rounding, with_integer_rounding
from nnefc.passes.tir.kernels import Kernel, lower_kernel
from nnefc.passes.tir.known_divisors import with_multiplied_quotients
from nnefc.passes.tir.lane_sums import use_lane_sums
from nnefc.passes.tir.loop_pointers import with_loop_pointers
from nnefc.passes.tir.rounding_conversions import use_rounding_conversions, with_rounding_conversions
from nnefc.passes.tir.scratch import ALONE, BARE, THREADS, Frames
from nnefc.passes.tir.turned_loads import use_turned_loads
from nnefc.passes.tir.tvm_workarounds.disable_unrolling import with_rolled_loops
from nnefc.passes.tir.tvm_workarounds.opaque_constants import without_refused_constants
from nnefc.passes.tir.widened_bytes import use_widened_bytes, with_widened_bytes
from nnefc.sizes import is_known
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
    shows_steps = True

    def __init__(self, target: Target, levels: Sequence[Target] = ()) -> None:
        """`levels` are all that a library has code for, if it has any besides that for `target`."""
        self.target = target
        self._levels = tuple(map(machine_of_passes, levels))
        self._of_passes, self._of_schedules = machine_of_passes(target), machine_of_schedules(target)
        self.patches = target.patches
        self.merges_kernels = target.small
        self.takes_profile = target.hosted and target.format is not FileFormat.WASM  # others have no clock

    @property
    def levels(self) -> Sequence[Backend]:
        levels = self.target.levels
        return tuple(CpuBackend(level, levels) for level in levels) or (self,)

    def check(self) -> None:
        """Nothing is needed: TVM brings LLVM."""
        use_rounding()
        use_rounding_conversions()
        use_widened_bytes()
        use_float_extremes()
        use_lane_sums()
        use_turned_loads()
        use_byte_functions()

    def graph_passes(self, strict: bool, memory_budget: float) -> GraphPasses:
        target = self._of_passes

        def contractions(modules: Sequence[tvm.IRModule]) -> Sequence[NamedPass]:
            algorithms = (
                FastAlgorithms()
                if strict or target.runs_alone
                else choose_algorithms(modules, target, memory_budget, self._levels)
            )
            return [
                *([] if strict else [("join attention", JoinAttention(target))]),
                *self._narrowing(modules, algorithms),
                ("assign layouts", AssignLayouts(target, algorithms, strict)),
                ("pack block matmul", PackBlockMatmul(target, strict)),
                ("widen blocks", WidenBlocks()),
                ("pack matmul", PackMatmul(target, algorithms)),
                ("pack narrow matmul", PackNarrowMatmul(target)),
            ]

        return GraphPasses(
            integers=[
                ("compute in single", ComputeInSingle()),
                ("tabulate bytes", TabulateBytes(target, {**ELEMENT_WISE, **QUANTIZATION})),
                ("compute in integers", ComputeInIntegers(strict, target.quirks.keeps_ranges)),
                ("fold moved constants", FoldConstants(keep=("dequantize",))),
                ("narrow constants", NarrowConstants(target, strict)),
            ],
            shuffles=[("fold permutations", FoldPermutations())],
            contractions=contractions,
            rows=target,
            scans=target,
            cuts=[values_between, values_spread],
            moves=[] if target.hosted else [NarrowResults()],
        )

    def _narrowing(self, modules: Sequence[tvm.IRModule], algorithms: FastAlgorithms) -> Sequence[NamedPass]:
        """What makes half floats of the operands of contractions, if the user asked for them."""
        dtype = self._of_passes.half_float
        if dtype is None:
            return ()
        check_names(modules, self._of_passes.keep_wide)
        use = uses_on(self._of_passes, dtype, algorithms)
        moves, sums = moves_on(self._of_passes, dtype), sums_on(self._of_passes)
        return [("use narrow floats", UseNarrowFloats(dtype, use, moves, self._of_passes.keep_wide, sums))]

    def lower(self, kernel: KernelUse) -> LoweredKernel:
        once = bool(kernel.in_place.overwritable)
        func, lowered = self._lowered(kernel, once)
        unobserved = replace(kernel, observe=None)
        ones = sizes_of_one_row(kernel.kernel)
        if ones:
            rest = [var for var in kernel.sizes if var not in ones]
            _, single = self._lowered(replace(unobserved, kernel=with_sizes(kernel.kernel, ones), sizes=rest), once)
            if is_known(single.workspace_bytes) and not single.workspace_bytes:
                lowered = with_version(lowered, single, is_of_one_row(ones))
        few = of_few_rows(kernel.kernel, self._of_schedules) if func.attrs[RULE] == ContractionRule.__name__ else None
        if few is not None:
            _, version = self._lowered(replace(unobserved, kernel=few[0]), once)
            if is_known(version.workspace_bytes) and not version.workspace_bytes:
                lowered = with_version(lowered, version, has_few_rows(few[1]))
        extremes = with_float_extremes(lowered.func, self._of_schedules)
        announced = with_announced_rounds(extremes, self._of_schedules)
        # of checked libraries each load is looked at by itself
        assembled = announced if kernel.checked else with_assembled_tiles(announced, self.target)
        pointed = with_loop_pointers(with_llvm_functions(assembled, self._of_schedules))
        instructed = with_rolled_loops(pointed)
        if kernel.observe is not None:
            steps = {
                "pointers": lowered.func,
                "float extremes": extremes,
                "announced rounds": announced,
                "assembled tiles": assembled,
            }
            for step, made in steps.items():
                kernel.observe(step, with_llvm_functions(made, self.target))
            kernel.observe("loop pointers", pointed)
            kernel.observe("rolled loops", instructed)
        if kernel.checked:
            ranges = {str(position): list(pair) for position, pair in kernel.item_ranges.items()}
            instructed = instructed.with_attrs({CHECKED: True, ELEMENT_RANGES: ranges})
        return LoweredKernel(
            func,
            [param.ty for param in lowered.func.params[: len(lowered.func.params) - len(kernel.sizes)]],
            lowered.workspace_bytes,
            lowered.scratch_bytes,
            host=exported(instructed, kernel_symbol(kernel.name)),
            features=tile_functions.features_of_tiles(lowered.func, self.target),
        )

    def _lowered(self, use: KernelUse, once: bool) -> tuple[tirx.PrimFunc, Kernel]:
        """A kernel with its schedule, and lowered; `once`: see :func:`lower_kernel`."""
        return with_sizes_named(use.kernel, lambda named: self._lowered_as_named(replace(use, kernel=named), once))

    def _lowered_as_named(self, use: KernelUse, once: bool) -> tuple[tirx.PrimFunc, Kernel]:
        def observed(step: str, func: tirx.PrimFunc) -> None:
            if use.observe is not None:
                use.observe(step, with_llvm_functions(func, self._of_schedules))

        target = self._of_schedules
        func = with_half_sums(with_dot_sums(scheduled(use.kernel, CPU_RULES, target)))
        observed(str(func.attrs.get(RULE, "schedule")), func)
        if not (self.target.reproducible or use.strict):
            func = with_tanh_sigmoids(func)
            observed("sigmoids for tanh", func)
            func = with_functions_of_bytes(func, target.features)
            observed("functions of bytes", func)
        if not target.widens("float16"):
            func = with_integer_conversions(func)
            observed("integer conversions", func)
        if not target.hosted:
            func = with_integer_rounding(func, target.features)
            observed("integer rounding", func)
        if target.quirks.rounding_conversion is not None:
            func = with_rounding_conversions(func, target.quirks.rounding_conversion, target.lanes("float32"))
            observed("rounding conversions", func)
        func = with_widened_bytes(func, target.triple.split("-")[0])
        observed("widened bytes", func)
        if target.quirks.calls_rounding:
            func = with_added_roundings(func)
            observed("added roundings", func)
        if target.rounds_products_once:
            func = with_multiplied_quotients(func)
            observed("multiplied quotients", func)
        func = without_refused_constants(func)
        observed("refused constants", func)
        return func, lower_kernel(func, use.sizes, once, self._frames, None if use.observe is None else observed)

    @property
    def _frames(self) -> Frames:
        if not self.target.hosted:
            return BARE
        return ALONE if self.target.small else THREADS

    def memory(self) -> Memory:
        return HostMemory(self.target.size_type)

    def finish(self, lowered: Lowered, objects: tuple[bytes, ...], dump: Callable[[str, str], None]) -> MachineCode:
        names = sorted(gv.name_hint for gv in lowered.module.functions)
        entries = tuple(name for name in names if re.fullmatch(rf"{ENTRY}(_level\d+)?(_\d+)?", name))
        return MachineCode(objects, self.target, lowered.module, entries)


make_backend = CpuBackend
