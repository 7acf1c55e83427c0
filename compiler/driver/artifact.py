"""The result of a compilation: a network as machine code in memory, which can be exported or loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from nnefc.driver.library_description import described_level
from nnefc.driver.specializations import Specializations
from nnefc.ir.network import Network
from nnefc.loader import Model, listed, load
from nnefc.passes.backend import Code, Lowered
from nnefc.support.diagnostics import CompileError
from nnefc.support.mapped_files import aligned_copy, is_mapped
from nnefc.support.output_files import output_folder, temporary_folder, write_together
from nnefc.targets.codegen.c.code import CSourceCode
from nnefc.targets.codegen.cpu.checks import Checks
from nnefc.targets.codegen.cpu.isa_levels import IsaLevelsCode
from nnefc.targets.codegen.cpu.objects import MachineCode
from nnefc.targets.description.library import (
    LibraryDescription,
    TensorDescription,
)
from nnefc.targets.link.compilers import command_of
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.encrypted_weights import read_key
from nnefc.targets.link.generated_c import prefix_of, write_c_source
from nnefc.targets.link.outputs import write_network
from nnefc.targets.link.vocabulary import write_chat_program, write_vocabulary
from nnefc.targets.machine.any_target import AnyTarget
from nnefc.targets.machine.system import is_hosted

__all__ = ["Artifact", "Trial", "build"]


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
    described = [described_level(network, own, programs, last, device, special) for own, programs in levels]
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
