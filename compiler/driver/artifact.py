"""The result of a compilation: a network as machine code in memory, which can be exported or loaded."""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import reduce
from operator import or_
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from nnefc.driver.specializations import Specializations
from nnefc.ir.constant_evaluation import external_calls
from nnefc.ir.network import DynamicDimension, Network, size_by_name
from nnefc.loader import Model, listed, load
from nnefc.passes.backend import Code, Lowered, TimedKernel
from nnefc.passes.graph.index_bounds import index_limits
from nnefc.passes.plan.data_independence import runs_with_any_values
from nnefc.passes.plan.entry_sizes import data_dependent_sizes, output_parts
from nnefc.passes.plan.memory import MemoryPlan
from nnefc.passes.plan.program import Buffer, Program
from nnefc.support.diagnostics import CompileError
from nnefc.support.distribution import COMPILERS, installed_version, versions_of
from nnefc.support.mapped_files import aligned_copy, is_mapped
from nnefc.support.output_files import output_folder, temporary_folder, write_together
from nnefc.symbolic.dims import Dimension, bounds, is_known, ranges, widest
from nnefc.symbolic.formulas import factor_of
from nnefc.symbolic.named_formulas import Formula, names_in
from nnefc.targets.codegen.c.code import CSourceCode
from nnefc.targets.codegen.cpu.checks import Checks
from nnefc.targets.codegen.cpu.isa_levels import IsaLevelsCode
from nnefc.targets.codegen.cpu.objects import MachineCode
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
from nnefc.targets.link.compilers import command_of
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.encrypted_weights import read_key
from nnefc.targets.link.generated_c import prefix_of, write_c_source
from nnefc.targets.link.outputs import write_network
from nnefc.targets.link.vocabulary import write_chat_program, write_vocabulary
from nnefc.targets.machine.any_target import AnyTarget
from nnefc.targets.machine.cpu.target import Target
from nnefc.targets.machine.system import FileFormat, is_hosted

__all__ = ["Artifact", "Trial", "build", "compiler_version"]


@dataclass(frozen=True)
class Trial:
    """The measurement of one precision by `--precision auto`.

    Attributes:
        precision: `fp32`, `bf16`, `fp16` or `int8`.
        error: the largest error of a result, relative to the largest value of its output.
        seconds: of the shortest run; None if it was not timed, because its error is too large or no other precision is
            exact enough.
        taken: whether the artifact has this precision.
    """

    precision: str
    error: float
    seconds: float | None
    taken: bool


@dataclass(frozen=True, repr=False, eq=False)
class Artifact:
    """A compiled network in memory. It is immutable and can be pickled, to be sent from the process that compiles it.

    Attributes:
        description: names, types and shapes, and the memory of a session.
        target: the machine that the code is for.
        lower_bound_bytes: a lower bound for the workspace of any memory plan.
        code: the network's code: for CPUs a `MachineCode`, for GPUs a `CudaCode`.
        trials: of `--precision auto`: all precisions that were tried, in turn.
        checks: the number of access checks in its kernels, and of those that were proved to be redundant; None without
            checks.
        files: the names of files next to the model that affect the result, those that do not exist included.
        _vocabulary, _chat_program: of a language model, serialized; empty for other networks.
    """

    description: LibraryDescription
    target: AnyTarget
    lower_bound_bytes: int
    code: Code
    _constants: Constants | None
    trials: tuple[Trial, ...] = ()
    checks: Checks | None = None
    files: tuple[str, ...] = ()
    _vocabulary: bytes = b""
    _chat_program: bytes = b""

    def __repr__(self) -> str:
        interface = f"{listed(self.inputs)} -> {listed(self.outputs)}"
        return f"<Artifact {self.description.model} for {self.target.name}: {interface}>"

    def _repr_html_(self) -> str:
        from nnefc.loader.notebook import interface_html  # pages: notebooks alone show them

        kinds = (("input", self.inputs), ("output", self.outputs), ("state", self.description.states))
        facts = [
            ("constants", f"{self.description.constant_bytes:,} bytes"),
            ("workspace", f"{self.description.workspace_bytes:,} bytes a session"),
        ]
        shown = interface_html(f"Artifact {self.description.model} for {self.target.name}", kinds, facts)
        if self.description.kernels:
            from nnefc.inspect.html.page import graph_fragment
            from nnefc.inspect.library_graph import graph_of_library

            shown += graph_fragment("kernels", graph_of_library(self.description))
        return shown

    def __copy__(self) -> Artifact:
        return self

    def __deepcopy__(self, _: object) -> Artifact:
        return self

    @property
    def inputs(self) -> tuple[TensorDescription, ...]:
        """Names, types and shapes of the inputs."""
        return self.description.inputs

    @property
    def outputs(self) -> tuple[TensorDescription, ...]:
        """Names, types and shapes of the outputs."""
        return self.description.outputs

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        weights: str | None = None,
        encrypt: bytes | str | os.PathLike[str] | None = None,
        weights_version: int | None = None,
        cc: str | None = None,
    ) -> None:
        """Write the network as a library of the kind that the end of `path` asks for; whole or not at all.

        A shared library ends with `.so` (`.dylib`, `.dll` or `.wasm` where the target has those), a static one with
        `.a`, an object file with `.o`. The latter two come with a C header next to them, `NAME.h`. Networks for the
        target `generic-c` are C source, which ends with `.c` and comes with a header too.

        Args:
            path: the file.
            name: what the names of the functions begin with, `NAME_create` and so on, so that several networks can be
                linked into one program; `nnefc` without it, and the file's name for C source. Shared libraries have the
                functions by both names.
            weights: where the trained values are: "embedded" in the library, or "separate" in a file next to it, whose
                name ends with `.weights`. None: in the library, or in a file if they are to be encrypted.
            encrypt: a key for the file of trained values, 32 bytes or a file of these, which `load` needs then. Without
                an operating system, and for C source, programs decrypt it by their own AES; 16 bytes are a key, too.
            weights_version: a number from 0 to 2^32 - 1 in such an encrypted image; programs may refuse lower ones.
                None: 0.
            cc: the command of a compiler and linker for the target that takes GCC's options, in place of zig.

        Raises:
            CompileError: an option or a name that does not fit, a file that cannot be written, a failure of the linker.
        """
        if name is None and isinstance(self.code, CSourceCode):
            name = prefix_of(Path(path))
        description = replace(self.description, prefix=name) if name is not None else self.description
        key = encrypt if encrypt is None or isinstance(encrypt, bytes) else read_key(Path(encrypt))
        form = weights or ("embedded" if key is None else "separate")
        mapped = not isinstance(self.code, CSourceCode) and is_hosted(self.target.zig_target)
        if weights_version is not None and (key is None or mapped):
            raise CompileError(
                "weights_version is for encrypted weights of C source and of machines without an operating system",
                hint="leave it out",
            )
        if isinstance(self.code, CSourceCode):
            if cc is not None:
                raise CompileError("cc is for libraries, and not for C source", hint="leave it out")
            write_c_source(self.code.program, self._constants, description, Path(path), form, key, weights_version or 0)
            return
        with temporary_folder("nnefc-") as folder:
            files = [folder / f"{number}.o" for number in range(len(self.code.objects))]
            for file, content in zip(files, self.code.objects, strict=True):
                file.write_bytes(content)
            files += self.code.write_sources(folder)
            if self._vocabulary:
                files.append(write_vocabulary(self._vocabulary, folder))
            if self._chat_program:
                files.append(write_chat_program(self._chat_program, folder))
            target, command = self.target.zig_target, command_of(cc) if cc is not None else ()
            write_network(
                files,
                self._constants,
                description,
                Path(path),
                zig_target=target,
                cc=command,
                weights=form,
                key=key,
                weights_version=weights_version or 0,
                zig_cpu=self.target.host.zig_cpu,
            )

    def emit(self, kind: str, folder: str | os.PathLike[str]) -> None:
        """Write the code as text into `folder`.

        Args:
            kind: "llvm-ir" (files that end with `.ll`, optimized) or "asm" (`.s`), a file for each module of LLVM's:
                `entry` and `kernels0`, `kernels1`, …; or "cuda", for GPUs: `kernels.cu`.
            folder: made if it is not there. Files of an earlier call are replaced.

        Raises:
            CompileError: another kind, one that the target does not have, a folder that cannot be written, or an
                artifact that was pickled: it has machine code only.
        """
        if kind not in self.code.texts:
            raise CompileError(
                f"there is no {kind} in code for the target {self.target.name}",
                hint=f"choose one of {', '.join(self.code.texts)}",
            )
        path = Path(folder)
        with output_folder(path):
            old = {file for pattern in self.code.texts[kind] for file in path.glob(pattern)}
            new = write_together(path, lambda scratch: self.code.write_text(kind, scratch))
        for file in sorted(old - set(new)):
            file.unlink(missing_ok=True)

    def load(self, *, threads: int | None = None, device: int = 0, flush_subnormals: bool = True) -> Model:
        """Load the network into this process, without leaving a file; arguments as of `nnefc.load`."""
        with temporary_folder("nnefc-") as folder:  # Windows removes no file that is loaded
            path = folder / f"network{self.target.format.suffix}"
            self.export(path)
            loaded = load(path, threads=threads, device=device, flush_subnormals=flush_subnormals)
            loaded._library.shown = f"the model {self.description.model}"
            return loaded

    def run(self, inputs: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
        """Run the network once; for more than one run, :meth:`load` it."""
        with self.load() as model:
            return model.run(inputs)


def build(
    network: Network,
    target: AnyTarget,
    levels: Sequence[tuple[AnyTarget, Sequence[Lowered]]],
    codes: Sequence[Code],
    special: Specializations,
) -> Artifact:
    """Combine the lowered programs of a network and their code to an artifact.

    Args:
        network: the network for all sizes.
        levels: the target and the programs of each ISA level: the general program, then the specializations.
        codes: of each level.
    """
    last = levels[-1][1][-1]
    device = codes[0].device
    several = len(levels) > 1
    described = [_level(network, own, programs, last, device, special) for own, programs in levels]
    description = replace(described[0], target=target.name, arrival_bytes=codes[0].arrival_bytes)
    if several:
        maximum = {
            name: max(getattr(level, name) for level in described) for name in ("workspace_bytes", "scratch_bytes")
        }
        called = any(level.is_called for level in described)
        description = replace(description, levels=tuple(described), is_called=called, **maximum)
    constants = _constants(network, last, description.constant_bytes)
    code = IsaLevelsCode(tuple(code for code in codes if isinstance(code, MachineCode))) if several else codes[0]
    lower_bound = levels[0][1][0].plan.lower_bound
    return Artifact(
        description,
        target,
        lower_bound,
        code,
        constants,
        _vocabulary=network.vocabulary,
        _chat_program=network.chat_program,
    )


def _level(
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


def _constants(network: Network, lowered: Lowered, size: int) -> Constants | None:
    """Return the trained values and the states' initial values, with their offsets; None without any."""
    if not size:
        return None
    plan = lowered.plan
    arrays = [(at, _kept(array)) for at, array in zip(plan.constant_offsets, lowered.constants, strict=True)]
    for state, offset in zip(network.states, plan.state_offsets, strict=True):
        if plan.constant_bytes + offset < size:
            arrays.append((plan.constant_bytes + offset, np.ascontiguousarray(state.initial)))
    return Constants(size, tuple(arrays))


def _kept(array: np.ndarray) -> np.ndarray:
    """Return an array that does not change if the model's files are overwritten: memory-mapped arrays are copied."""
    return aligned_copy(array) if is_mapped(array) else array


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
