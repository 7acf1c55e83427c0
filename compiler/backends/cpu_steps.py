"""Implements the passes of the CPU backend that need the program context, and the conditions of its pass list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from nnefc.backends.kernel_context import KernelContext
from nnefc.ir.attributes import CHECKED, DYNAMIC_SHAPES, ELEMENT_RANGES, JOINED_ROWS, NO_ALIAS, STAGED
from nnefc.ir.rebuild import with_fields
from nnefc.passes.backend import KernelUse, LoweredKernel, Settings
from nnefc.passes.graph.algorithms.choose_algorithms import choose_algorithms
from nnefc.passes.graph.algorithms.fast_algorithms import FastAlgorithms
from nnefc.passes.graph.precision.choose_precision import moves_on, sums_on, uses_on
from nnefc.passes.graph.precision.use_16bit_floats import check_names, use_16bit_floats
from nnefc.passes.manager import Pass, PassCondition, PassManager, Phase, Property
from nnefc.passes.pipeline import GraphContext
from nnefc.passes.plan.symbols import exported, kernel_symbol
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu import CPU_RULES
from nnefc.passes.schedule.cpu.contraction import ContractionRule
from nnefc.passes.schedule.cpu.specialize_row_count import (
    has_few_rows,
    is_of_one_row,
    of_few_rows,
    sizes_of_one_row,
    with_sizes,
    with_version,
)
from nnefc.passes.tir.common.allocate_scratch import ALONE, BARE, THREADS, Frames
from nnefc.passes.tir.common.assume_dim_ranges import simplify_min_max
from nnefc.passes.tir.common.lower_kernel import Kernel, with_values
from nnefc.passes.tir.common.name_symbolic_dims import named_sizes
from nnefc.passes.tir.common.partition_windows import partition_windows
from nnefc.passes.tir.common.peel_tail_tiles import peel_tails, tiled_axes
from nnefc.passes.tir.common.signs import decide_signs
from nnefc.passes.tir.common.split_vector_tail import split_loop_tails
from nnefc.symbolic.dims import is_known
from nnefc.targets.codegen.cpu.object_passes import where_values_are_chosen
from nnefc.targets.codegen.cpu.portable_arithmetic import check_functions
from nnefc.targets.machine.cpu.reproducible import machine_of_passes, machine_of_schedules
from nnefc.targets.machine.cpu.target import Target

# Conditions on the target and options.


@dataclass(frozen=True)
class CpuSettings(Settings):
    """The settings of a CPU.

    Attributes:
        levels: all machines that passes over the graph plan for, if the library has code for several.
    """

    target: Target
    levels: tuple[Target, ...] = ()

    @cached_property
    def graph(self) -> Target:
        """The machine that passes over the graph plan for; another one than the target for reproducible results."""
        return machine_of_passes(self.target)

    @cached_property
    def schedules(self) -> Target:
        """The machine that schedules, and the passes over scheduled kernels, plan for."""
        return machine_of_schedules(self.target)


NOT_STRICT = PassCondition("without --strict", lambda s: not s.strict)
NARROW = PassCondition("with --precision bf16 or fp16", lambda s: s.graph.float16_type is not None)
FREE_TO_ROUND = PassCondition(
    "without --strict and --reproducible", lambda s: not (s.target.host.reproducible or s.strict)
)
REPRODUCIBLE = PassCondition("with --reproducible", lambda s: s.target.host.reproducible)
SMALL = PassCondition("with --small", lambda s: s.target.host.small)
PATCHES = PassCondition("with --patches", lambda s: s.target.host.patches)
THREADED = PassCondition("targets with threads", lambda s: s.target.host.hosted and not s.target.host.small)
SINGLE_THREADED = PassCondition("targets with one thread", lambda s: not THREADED.holds(s))
SOFT_FP16 = PassCondition("targets that do not convert fp16", lambda s: not s.schedules.widens("float16"))
SOFT_ROUNDING = PassCondition("targets without an operating system", lambda s: not s.schedules.hosted)
ROUNDING_CONVERSIONS = PassCondition(
    "targets whose conversions round", lambda s: s.schedules.quirks.rounding_conversion is not None
)
HIGH_PRODUCTS = PassCondition(
    "targets where LLVM widens both factors of upper halves", lambda s: s.schedules.quirks.widens_high_products
)
NO_ROUNDING = PassCondition("targets without an instruction that rounds", lambda s: s.schedules.quirks.calls_rounding)
FUSED_PRODUCTS = PassCondition("targets that round a product and a sum once", lambda s: s.schedules.fuses_multiply_add)

# Conditions on kernels.

TILED = PassCondition("kernels with tiled axes", lambda context: bool(context.tiled))
NOT_TILED = PassCondition("kernels without tiled axes", lambda context: not context.tiled)
UNCHECKED = PassCondition("kernels without checks", lambda context: not context.use.checked)
CHECKED_KERNELS = PassCondition("kernels with checks", lambda context: context.use.checked)
JOINED = PassCondition("kernels of joined rows", lambda context: context.has_attribute(JOINED_ROWS))
MERGED = PassCondition("programs of one level without checks", lambda context: context.merges)

# Conditions on objects.

DYNAMIC_OBJECTS = PassCondition("objects with dynamic dimensions", lambda context: context.is_dynamic)
STATIC_OBJECTS = PassCondition("objects of known shapes", lambda context: not context.is_dynamic)
CHECKED_OBJECTS = PassCondition("objects with checks", lambda context: context.is_checked)


# Passes over the graph.


def choose(module: tvm.IRModule, context: GraphContext) -> tvm.IRModule:
    """Chooses the algorithms of convolutions and matrix products, from all modules of the network."""
    settings: CpuSettings = context.settings
    context.algorithms = (
        FastAlgorithms()
        if settings.strict or settings.graph.runs_alone
        else choose_algorithms(context.modules, settings.graph, settings.memory_budget, settings.levels)
    )
    if settings.graph.float16_type is not None:
        check_names(context.modules, settings.graph.keep_wide)
    return module


def narrow_floats(module: tvm.IRModule, context: GraphContext) -> tvm.IRModule:
    """Converts operands of convolutions and matrix products to 16-bit floats."""
    machine: Target = context.settings.graph
    dtype = machine.float16_type
    assert dtype is not None
    use = uses_on(machine, dtype, context.algorithms)
    return use_16bit_floats(module, dtype, use, moves_on(machine, dtype), machine.keep_wide, sums_on(machine))


# Passes over kernels.


def frames_of(target: Target) -> Frames:
    """Returns what kernels may have on the stack."""
    if not target.hosted:
        return BARE
    return ALONE if target.small else THREADS


def lower_for_host(kernel: KernelUse, manager: PassManager, target: Target) -> LoweredKernel:
    """Runs the passes over one kernel, from its computation to a flat function of pointers."""
    machine = manager.settings.schedules
    context = KernelContext(manager, kernel, machine, CPU_RULES, kernel.sizes, frames_of(target))
    made, func = context.run(Phase.BLOCKS, Phase.FLAT, Phase.POINTERS)
    assert made.scheduled is not None
    return LoweredKernel(
        made.scheduled,
        [param.ty for param in func.params[: len(func.params) - len(kernel.sizes)]],
        made.workspace_bytes,
        made.scratch_bytes,
        host=func,
    )


def decide_min_and_max(func: tirx.PrimFunc, context: KernelContext) -> tirx.PrimFunc:
    """Replaces minima and maxima of dimensions whose ranges decide them, and those of 0 and sizes or indices."""
    dimensions = context.dimensions(func)
    return decide_signs(simplify_min_max(func, dimensions)) if dimensions else func


def partition_into_vectors(func: tirx.PrimFunc, context: KernelContext) -> tirx.PrimFunc:
    """Partitions loops over windows; interiors become vectors, which overlap where elements may be computed twice."""
    machine: Target = context.machine

    once = bool(context.use.in_place.overwritable)
    return with_fields(func, body=partition_windows(func.body, None if once else machine.lanes))


def mark_staged(func: tirx.PrimFunc, context: KernelContext) -> tirx.PrimFunc:
    """Marks kernels that copy parts of an operand and then overwrite them: LLVM must not move the reads behind that."""
    steps = context.use.kernel.steps
    staged = context.use.in_place.overwritable and any(STAGED in step.node.annotations for step in steps)
    return func.with_attr(NO_ALIAS, False) if staged else func


def peel_tail_tiles(func: tirx.PrimFunc, context: KernelContext) -> tirx.PrimFunc:
    """Splits loops over tiles into full tiles and smaller ones for the tail."""
    once = bool(context.use.in_place.overwritable)
    body = peel_tails(func.body, tiled_axes(func), once)
    return with_fields(func, body=body if context.sizes else with_values(body, dict(named_sizes(func))))


def split_vector_tails(func: tirx.PrimFunc, context: KernelContext) -> tirx.PrimFunc:
    """Splits vectorized loops with a condition on lanes into full vectors and their tail."""
    tail = tirx.ForKind.SERIAL if context.sizes else tirx.ForKind.UNROLLED
    return with_fields(func, body=split_loop_tails(func.body, tail))


def add_row_versions(func: tirx.PrimFunc, context: KernelContext) -> tirx.PrimFunc:
    """Adds code of its own for one row, and for few rows, to products whose number of rows is dynamic."""
    use = context.use
    kernel = Kernel(func, context.workspace_bytes, context.scratch_bytes)
    ones = sizes_of_one_row(use.kernel)
    if ones:
        tail = [var for var in context.sizes if var not in ones]
        version = _version(context, "of_one_row", with_sizes(use.kernel, ones), tail)
        kernel = _with_version(kernel, version, is_of_one_row(ones))
    if context.rule == ContractionRule.__name__:
        few = of_few_rows(use.kernel, context.machine)
        if few is not None:
            analysis, rows = few
            version = _version(context, "of_few_rows", analysis, context.sizes)
            kernel = _with_version(kernel, version, has_few_rows(rows))
    context.scratch_bytes = kernel.scratch_bytes
    return kernel.func


def _version(context: KernelContext, name: str, kernel: KernelAnalysis, sizes: Sequence[tirx.Var]) -> Kernel:
    return lowered(context.version(name, kernel, sizes), version=True)


def _with_version(kernel: Kernel, version: Kernel, chosen: tirx.Expr) -> Kernel:
    needs_nothing = is_known(version.workspace_bytes) and not version.workspace_bytes
    return with_version(kernel, version, chosen) if needs_nothing else kernel


def lowered(context: KernelContext, version: bool = False) -> Kernel:
    """Returns a kernel as a function of pointers."""
    made, func = context.run(Phase.BLOCKS, Phase.FLAT, version=version)
    return Kernel(func, made.workspace_bytes, made.scratch_bytes)


def mark_checks(func: tirx.PrimFunc, context: KernelContext) -> tirx.PrimFunc:
    """Asks for checks of indices and divisors, which the code generator adds."""
    ranges = {str(position): list(pair) for position, pair in context.use.element_ranges.items()}
    return func.with_attrs({CHECKED: True, ELEMENT_RANGES: ranges})


def export(func: tirx.PrimFunc, context: KernelContext) -> tirx.PrimFunc:
    """Gives a kernel its symbol and the calling convention of C."""
    return exported(func, context.use.symbol or kernel_symbol(context.use.name))


# Passes over objects.


@dataclass(frozen=True)
class ObjectContext:
    """What passes over the functions of an object file know.

    Attributes:
        target: the CPU that code is generated for.
        path: of the file, which is written and removed.
        is_dynamic: whether some function has dynamic dimensions.
        is_checked: whether some function checks what it does.
    """

    target: Target
    path: Path
    is_dynamic: bool
    is_checked: bool


@dataclass(frozen=True)
class Objects:
    """Compiles functions of the host by the passes over objects of a manager."""

    manager: PassManager
    target: Target

    def __call__(self, functions: Sequence[tirx.PrimFunc], path: Path) -> Callable[[], bytes]:
        """Runs the passes before LLVM's; returns what makes the content of a file, in any thread."""
        module, context = self._given(functions, path)
        steps = self.manager.of(Phase.OBJECT)
        first = next(number for number, step in enumerate(steps) if Property.BUILTINS in step.requires)
        lowered = self._after(steps[:first], module, context)

        def generated() -> bytes:
            content: bytes = self._after(steps[first:], lowered, context)
            return content

        return generated

    def loaded(self, functions: Sequence[tirx.PrimFunc]) -> tvm.runtime.Module:
        """Returns functions that can be called here."""
        module, context = self._given(functions, Path("loaded"))
        return self._after(self.manager.of(Phase.OBJECT)[:-1], module, context)  # the last one writes a file

    def _after(self, steps: Sequence[Pass], module: Any, context: ObjectContext) -> Any:
        """Returns what some passes make of a module."""
        for step in steps:
            if step.where.holds(context):
                module = self.manager.apply(step, module, context, context.path.stem)
        return module

    def _given(self, functions: Sequence[tirx.PrimFunc], path: Path) -> tuple[tvm.IRModule, ObjectContext]:
        """Returns what the first pass is given."""
        module = tvm.IRModule({str(func.attrs["global_symbol"]): func for func in functions})
        is_dynamic = any(DYNAMIC_SHAPES in func.attrs for func in functions)
        is_checked = any(CHECKED in func.attrs for func in functions)
        return module, ObjectContext(self.target, path, is_dynamic, is_checked)


def check_reproducible(module: tvm.IRModule, _context: ObjectContext) -> tvm.IRModule:
    """Refuses functions whose results differ between processors."""
    check_functions(module.functions.values())
    return module


@cache
def narrow_data_type(bits: int) -> tvm.transform.Pass:
    """Returns TVM's pass that gives indices this many bits."""
    return tirx.transform.NarrowDataType(bits)


def tvm_step(change: tvm.transform.Pass) -> Callable[[tvm.IRModule, Any], tvm.IRModule]:
    """Returns the run of a pass of TVM over a module, which heeds the level of optimization."""
    only = tvm.ir.transform.Sequential([change])
    return lambda module, _context: only(module)


def chosen_first(change: tvm.transform.Pass) -> Callable[[tvm.IRModule, ObjectContext], tvm.IRModule]:
    """Returns the run of a pass that leaves alone functions with dynamic dimensions in which no value is chosen."""
    everywhere = tvm.ir.transform.Sequential([change])
    where_chosen = where_values_are_chosen(True, everywhere)
    return lambda module, context: (where_chosen if context.is_dynamic else everywhere)(module)
