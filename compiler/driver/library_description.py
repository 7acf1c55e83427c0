"""Describes the programs of a network: the metadata of their library."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, replace
from functools import reduce
from operator import or_

import numpy as np

from nnefc.driver.specializations import Specializations
from nnefc.ir.constant_evaluation import external_calls
from nnefc.ir.network import DynamicDimension, Network, size_by_name
from nnefc.passes.backend import Lowered, TimedKernel
from nnefc.passes.graph.index_bounds import index_limits
from nnefc.passes.plan.data_independence import runs_with_any_values
from nnefc.passes.plan.entry_sizes import data_dependent_sizes, output_parts
from nnefc.passes.plan.memory import MemoryPlan
from nnefc.passes.plan.program import Buffer, Program
from nnefc.support.diagnostics import CompileError
from nnefc.support.distribution import COMPILERS, installed_version, versions_of
from nnefc.symbolic.dims import Dimension, bounds, is_known, ranges, widest
from nnefc.symbolic.formulas import factor_of
from nnefc.symbolic.named_formulas import Formula, names_in
from nnefc.targets.description.library import (
    CallDescription,
    DimensionDescription,
    FormulaDescription,
    KernelDescription,
    LibraryDescription,
    OperandDescription,
    OwnDimension,
    SpecializationDescription,
    TensorDescription,
)
from nnefc.targets.machine.any_target import AnyTarget
from nnefc.targets.machine.cpu.target import Target
from nnefc.targets.machine.system import FileFormat

__all__ = ["compiler_version", "described_level"]


def described_level(
    network: Network,
    target: AnyTarget,
    programs: Sequence[Lowered],
    last: Lowered,
    device: str,
    special: Specializations,
) -> LibraryDescription:
    """Return the metadata of one ISA level; `last` is the program that has the constants of all programs."""
    description = replace(
        _description(network, target, programs[0], last.plan, device),
        scratch_bytes=max(program.scratch_bytes for program in programs),
        cpu_features=_features(target.host, programs),
        kernels=tuple(_described_kernel(timed) for program in programs for timed in program.timed),
        is_called=network.has_text or any(map(_calls_runtime, programs)),
        cancellable=any(program.cancellable for program in programs),
        calls=tuple(CallDescription(*astuple(call)) for program in programs for call in program.calls),
        logs=target.host.hosted and not target.host.small and target.host.format is not FileFormat.WASM,
    )
    description = replace(description, memory_users=_memory_users(description, programs))
    description = replace(description, warms_up=_warms_up(description, target.host, programs))
    description = _with_specializations(description, programs, special) if special.networks else description
    return _only_specialized(description) if special.only else description


def _sequence_axes(network: Network, target: Target) -> tuple[int, ...]:
    """Return the axis of token positions of each state, -1 for states without one; empty if the library has no
    functions for sequences.
    """
    if not target.hosted or target.small or not any(state.positions is not None for state in network.states):
        return ()
    return tuple(-1 if state.positions is None else state.positions for state in network.states)


def _memory_users(description: LibraryDescription, programs: Sequence[Lowered]) -> tuple[int, ...]:
    """Return for each output a bit mask of the outputs for whose computation any of the programs uses its memory.

    One bit more stands for every run: at its end, each run reads all elements of outputs of strings.
    """
    users = [reduce(or_, each) for each in zip(*(p.memory_users for p in programs if p.calls), strict=True)]
    in_every_run = 1 << len(description.outputs)
    return tuple(
        of | in_every_run if output.dtype == "string" else of
        for output, of in zip(description.outputs, users, strict=False)
    )


_CALLED = {"nnefc_kernel_error", "nnefc_run_failed"}  # functions of the runtime that ask which session runs
"""Functions of the runtime that need to know the running session."""


def _calls_runtime(program: Lowered) -> bool:
    """Return whether a program calls a function of `_CALLED`."""
    return any(_CALLED & external_calls(func) for func in program.module.functions.values()) or any(
        _CALLED & kernel.calls for kernel in program.compiled.values()
    )


def _warms_up(description: LibraryDescription, target: Target, programs: Sequence[Lowered]) -> bool:
    """Return whether a library may run once before its trained values are loaded: see `runtime/engine.c`."""
    if target.format is not FileFormat.WASM or description.small or description.is_dynamic or description.has_text:
        return False
    return all(runs_with_any_values(program.module, program.symbol) for program in programs)


def _described_kernel(timed: TimedKernel) -> KernelDescription:
    return KernelDescription(
        timed.kernel,
        timed.tensors,
        timed.rule,
        timed.operations,
        timed.bytes,
        timed.operators,
        tuple(OperandDescription(*astuple(operand)) for operand in timed.reads),
        tuple(OperandDescription(*astuple(operand)) for operand in timed.writes),
        timed.operation_formula,
    )


def _features(target: Target, programs: Sequence[Lowered]) -> tuple[str, ...]:
    """Return the CPU features that the library checks for; those of a matrix unit only if the code uses it."""
    of_kernels = {feature for program in programs for kernel in program.kernels for feature in kernel.features}
    return (*target.features, *(feature for feature in target.tiles if feature in of_kernels))


def _with_specializations(
    description: LibraryDescription, programs: Sequence[Lowered], special: Specializations
) -> LibraryDescription:
    """Add the metadata of specialized programs; those with dynamic dimensions have buffers in the workspace as well.

    These buffers come before the last one, the workspace of the other programs, and their lifetimes are disjoint from
    those of other programs.
    """
    numbers = {dimension.name: number for number, dimension in enumerate(description.dimensions)}
    *lifetimes, _ = description.lifetimes
    end = 1 + max((last for _, last in lifetimes), default=0)
    parts, workspaces = [], [] if special.only else [description.dynamic_workspaces]
    known = zip(special.sizes, programs[1:], special.networks, special.zeros, strict=True)
    for sizes, program, network, zeros in known:
        plan, opened = program.plan, network.dynamic_dimensions
        own = tuple(OwnDimension(numbers.get(d.name), d.minimum, d.maximum, d.multiple) for d in opened)
        lifetimes += [(end + storage.first, end + storage.last) for storage in plan.storages]
        end = 1 + max((last for _, last in lifetimes), default=0)
        bytes_, limits = plan.workspace_bytes, (*_limits(opened), *((formula, 0, 0) for formula in zeros))
        shapes = tuple(tuple(n if is_known(n) else None for n in output.shape) for output in program.program.outputs)
        ranks = [len(output.shape) for output in description.outputs]
        outputs = None if list(map(len, shapes)) == ranks else shapes
        parts.append(SpecializationDescription(sizes, bytes_, own, len(plan.storages), limits, outputs))
        size_hint, maximum = ({d.var: getattr(d.values, which) for d in opened} for which in ("size_hint", "maximum"))
        workspaces.append((plan.workspace_at(size_hint), plan.workspace_at(maximum)))
    return replace(
        description,
        specializations=tuple(parts),
        lifetimes=(*lifetimes, (end, end)),
        parts=(),
        dynamic_workspaces=(workspaces[0][0], max(maximum for _, maximum in workspaces)),
    )


def _limits(dimensions: Sequence[DynamicDimension]) -> tuple[tuple[Formula, int, int], ...]:
    """Return formulas with a minimum and a maximum that the ranges of their dimensions do not imply."""
    found = []
    with ranges({dimension.var: dimension.values for dimension in dimensions}):
        for each in dimensions:
            if each.formula is not None and each.value is not None:
                minimum, maximum = bounds(each.value)
                if minimum < each.minimum or maximum > each.maximum:
                    found.append((each.formula, each.minimum, each.maximum))
    return tuple(found)


def _only_specialized(description: LibraryDescription) -> LibraryDescription:
    """Return the description of a library without general code: ranges span the specialized sizes, the first of
    which is the size hint.
    """
    sizes = zip(description.dimensions, *(part.sizes for part in description.specializations), strict=True)
    return replace(
        description, dimensions=tuple(_between(dimension, each) for dimension, *each in sizes), only_specialized=True
    )


def _between(dimension: DimensionDescription, sizes: Sequence[int | None]) -> DimensionDescription:
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return dimension
    return replace(dimension, minimum=min(known), maximum=max(known), size_hint=known[0])


def _description(
    network: Network, target: AnyTarget, lowered: Lowered, whole: MemoryPlan, device: str
) -> LibraryDescription:
    """Return the metadata of the general program.

    Args:
        network: the network for all sizes.
        target: the machine.
        lowered: the general program.
        whole: the memory plan with the constants of all programs.
        device: on which the network runs.
    """
    plan, program = lowered.plan, lowered.program
    dimensions = [*network.dynamic_dimensions, *(count.dimension for count in network.unbounded_data_dependent_sizes)]
    numbers = {dimension.var: number for number, dimension in enumerate(dimensions)}
    return LibraryDescription(
        model=network.name,
        target=target.name,
        compiler=compiler_version(),
        inputs=_scaled(_described(network.inputs, program.inputs, network.dynamic_dimensions, network.texts), network),
        outputs=_limited(
            _scaled(_described(network.outputs, program.outputs, dimensions, network.texts), network), program
        ),
        states=_described([state.name for state in network.states], program.states),
        sequence_axes=_sequence_axes(network, target.host),
        workspace_bytes=plan.workspace_bytes,
        scratch_bytes=lowered.scratch_bytes,
        constant_bytes=whole.constant_bytes + _initial_bytes(network, whole),
        state_bytes=whole.state_bytes,
        state_initial_offset=whole.constant_bytes,
        variables=() if target.host.small else network.variables,
        small=target.host.small,
        reproducible=target.host.reproducible,
        index_limits=tuple(
            (name, maximum) for name, maximum in index_limits(network).items() if name not in network.texts
        ),
        device=device,
        dimensions=tuple(
            DimensionDescription(d.name, d.minimum, d.maximum, d.multiple, d.size_hint) for d in dimensions
        ),
        formulas=_formulas(network.dynamic_dimensions, network.input_shapes),
        data_dependent=tuple(data_dependent_sizes(program)),
        labels=tuple(network.labels.items()),
        metadata=() if target.host.small else tuple(network.metadata.items()),
        has_text=network.has_text,
        has_vocabulary=bool(network.vocabulary),
        has_chat=bool(network.chat_program),
        lifetimes=tuple((storage.first, storage.last) for storage in plan.storages),
        dynamic_workspaces=(
            plan.workspace_at({d.var: d.values.size_hint for d in dimensions}),
            plan.workspace_at({d.var: d.values.maximum for d in dimensions}),
        ),
        parts=tuple(storage.part for storage in plan.storages),
        output_parts=output_parts(program),
        part_dimensions=tuple(numbers[var] for var in program.parts),
    )


def _formulas(
    dimensions: Sequence[DynamicDimension], inputs: Mapping[str, tuple[Dimension, ...]]
) -> tuple[FormulaDescription, ...]:
    """Return the formulas by which a library checks derived dimensions, and solves them for dimensions that no input
    has.

    Raises:
        CompileError: a dimension is not determined by the shapes of the inputs.
    """
    stated = {size_by_name(size, dimensions) for shape in inputs.values() for size in shape}
    known = {dimension.name for dimension in dimensions if dimension.formula is None and dimension.name in stated}
    named = {dimension.name: dimension for dimension in dimensions}
    left = [dimension for dimension in dimensions if dimension.formula is not None]
    made: list[FormulaDescription] = []
    while left:
        for each in left:
            assert each.formula is not None
            unknown = [name for name in names_in(each.formula) if name not in known]
            is_solved = len(unknown) == 1 and each.name in stated and each.value is not None
            factor = factor_of(each.value or 0, named[unknown[0]].var) if is_solved else None
            if not unknown or factor is not None:
                break
        else:
            break
        left.remove(each)
        made.append(FormulaDescription(each.name, each.formula, *((unknown[0], factor) if factor is not None else ())))
        known |= {each.name, *unknown}
    for name in named:
        if name not in known:
            raise CompileError(
                f"the shapes of the inputs do not tell the size of '{name}'", hint=f"give it: --shape {name}=64"
            )
    return tuple(made)


@functools.cache
def compiler_version() -> str:
    """Return the name and version of the compiler, as in the description of libraries."""
    versions = versions_of(COMPILERS)
    return f"nnefc {next(iter(versions.values()), None) or installed_version()}"


def _initial_bytes(network: Network, plan: MemoryPlan) -> int:
    """Returns the bytes of initial states to store in the library, without trailing zero bytes."""
    kept = zip(network.states, plan.state_offsets, strict=True)
    ends = (offset + state.initial.nbytes for state, offset in kept if state.initial.reshape(-1).view(np.uint8).any())
    return max(ends, default=0)


def _described(
    names: tuple[str, ...] | list[str],
    buffers: tuple[Buffer, ...],
    dimensions: Sequence[DynamicDimension] = (),
    texts: Collection[str] = (),
) -> tuple[TensorDescription, ...]:
    return tuple(
        TensorDescription(
            name,
            "string" if name in texts else buffer.dtype,
            tuple(size_by_name(size, dimensions) for size in buffer.shape),
        )
        for name, buffer in zip(names, buffers, strict=True)
    )


def _limited(tensors: tuple[TensorDescription, ...], program: Program) -> tuple[TensorDescription, ...]:
    """Return the tensors with upper bounds of data-dependent sizes, where all bounds of a tensor are known."""
    shapes = [[widest(size, program.limits) for size in output.shape] for output in program.outputs]
    return tuple(
        tensor if is_known(*buffer.shape) or not is_known(*shape) else replace(tensor, limits=tuple(map(int, shape)))
        for tensor, buffer, shape in zip(tensors, program.outputs, shapes, strict=True)
    )


def _scaled(tensors: tuple[TensorDescription, ...], network: Network) -> tuple[TensorDescription, ...]:
    """Return the tensors with scale and zero point, where they are quantized."""
    known = network.scalings
    return tuple(
        replace(tensor, scale=known[tensor.name].scale, zero_point=known[tensor.name].zero_point)
        if tensor.name in known
        else tensor
        for tensor in tensors
    )
