"""What compiling returns: a network as machine code, not yet in a file of its own."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import ArrayLike

from nnefc.diagnostics import CompileError
from nnefc.loader import Model, listed, load
from nnefc.network import Network
from nnefc.passes.cuda_pipeline import LoweredForCuda
from nnefc.passes.graph.index_limits import index_limits
from nnefc.passes.pipeline import Lowered
from nnefc.passes.plan.entry import ENTRY
from nnefc.passes.plan.program import Buffer
from nnefc.targets.codegen.cpu.objects import CODE_SUFFIXES, write_texts
from nnefc.targets.codegen.cuda.program import DeviceProgram
from nnefc.targets.description.library import LibraryDescription, TensorDescription
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.outputs import write_network, write_together
from nnefc.targets.link.toolchain import command_of
from nnefc.targets.machine.any_target import AnyTarget
from nnefc.targets.machine.cuda_target import CudaTarget
from nnefc.targets.machine.target import Target

__all__ = ["Artifact", "build", "build_for_cuda"]

_ALIGNMENT = 64


@dataclass(frozen=True, repr=False, eq=False)
class Artifact:
    """A compiled network. It never changes; it can be pickled, and so be sent from the process that compiles it.

    Attributes:
        description: names, types and shapes, and the memory that a session takes.
        target: the machine that the code is for.
        lower_bound_bytes: what no plan of the workspace could go below.
        device: the code for GPUs, for such targets.
    """

    description: LibraryDescription
    target: AnyTarget
    lower_bound_bytes: int
    _module: tvm.IRModule | None
    _objects: tuple[bytes, ...]
    _constants: Constants | None
    device: DeviceProgram | None = None

    def __repr__(self) -> str:
        face = f"{listed(self.inputs)} -> {listed(self.outputs)}"
        return f"<Artifact {self.description.model} for {self.target.name}: {face}>"

    def __copy__(self) -> Artifact:
        return self

    def __deepcopy__(self, _: object) -> Artifact:
        return self

    def __getstate__(self) -> dict[str, Any]:
        """All but the program, which TVM cannot write down (0.27 crashes); only :meth:`emit` needs it."""
        return {**self.__dict__, "_module": None}

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
        weights: str = "embedded",
        cc: str | None = None,
    ) -> None:
        """Write the network as a library of the kind that the end of `path` asks for; whole or not at all.

        A shared library ends with `.so` (`.dylib`, `.dll` or `.wasm` where the target has those), a static one with
        `.a`, an object file with `.o`. The latter two come with a C header beside them, `NAME.h`.

        Args:
            path: the file.
            name: what the names of the functions begin with, `NAME_create` and so on, so that several networks can be
                linked into one program; `nnefc` without it. Shared libraries have the functions by both names.
            weights: where the trained values are: "embedded" in the library, or "separate" in a file beside it, whose
                name ends with `.weights`.
            cc: the command of a compiler and linker for the target that takes GCC's options, in place of zig.

        Raises:
            CompileError: an option or a name that does not fit, a file that cannot be written, a failure of the linker.
        """
        description = replace(self.description, prefix=name) if name is not None else self.description
        with tempfile.TemporaryDirectory(prefix="nnefc-") as folder:
            objects = [Path(folder) / f"{number}.o" for number in range(len(self._objects))]
            for file, code in zip(objects, self._objects, strict=True):
                file.write_bytes(code)
            if self.device is not None:
                objects += self.device.write(Path(folder))
            target, command = self.target.zig_target, command_of(cc) if cc is not None else ()
            write_network(
                objects, self._constants, description, Path(path), zig_target=target, cc=command, weights=weights
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
        kinds = (*CODE_SUFFIXES, "cuda")
        if kind not in kinds:
            raise CompileError(f"cannot emit {kind!r}", hint=f"choose one of {', '.join(kinds)}")
        if (kind == "cuda") != (self.device is not None):
            raise CompileError(
                f"there is no {kind} in code for the target {self.target.name}",
                hint=f"choose {'llvm-ir or asm' if kind == 'cuda' else 'cuda'}",
            )
        if kind in CODE_SUFFIXES and self._module is None:
            raise CompileError(
                "an artifact that was pickled has machine code only, none as text",
                hint="call emit before pickling, or compile here",
            )
        place = Path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CompileError(f"cannot write to {place}: {error.strerror}") from error
        if self.device is not None:
            self._emit_source(self.device.code.source, place)
        else:
            self._emit_modules(CODE_SUFFIXES[kind], place)

    def _emit_source(self, source: str, place: Path) -> None:
        def write(new: Path) -> list[Path]:
            (new / "kernels.cu").write_text(source)
            return [new / "kernels.cu"]

        write_together(place, write)

    def _emit_modules(self, suffix: str, place: Path) -> None:
        assert isinstance(self.target, Target) and self._module is not None
        target, module = self.target, self._module
        old = [*place.glob(f"entry.{suffix}"), *place.glob(f"kernels[0-9]*.{suffix}")]
        new = write_together(place, lambda new: write_texts(module, target, ENTRY, new, suffix))
        for file in set(old) - set(new):
            file.unlink(missing_ok=True)

    def load(self, *, threads: int | None = None, device: int = 0, flush_subnormals: bool = True) -> Model:
        """Load the network into this process, without leaving a file; arguments as of `nnefc.load`."""
        # Windows removes no file that is loaded
        with tempfile.TemporaryDirectory(prefix="nnefc-", ignore_cleanup_errors=sys.platform == "win32") as folder:
            path = Path(folder) / f"network{self.target.format.suffix}"
            self.export(path)
            return load(path, threads=threads, device=device, flush_subnormals=flush_subnormals)

    def run(self, inputs: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
        """Run the network once; for more than one run, :meth:`load` it."""
        with self.load() as model:
            return model.run(inputs)


def build(network: Network, target: Target, lowered: Lowered, objects: tuple[bytes, ...]) -> Artifact:
    """Put a lowered network and its machine code together."""
    description = _description(network, target.name, target, lowered)
    constants = _constants(network, lowered, description.constant_bytes)
    return Artifact(description, target, lowered.plan.lower_bound, lowered.module, objects, constants)


def build_for_cuda(
    network: Network, target: CudaTarget, lowered: LoweredForCuda, objects: tuple[bytes, ...], device: DeviceProgram
) -> Artifact:
    """Put a lowered network, the host's machine code and the device's together."""
    description = replace(_description(network, target.name, target.host, lowered), device="cuda")
    constants = _constants(network, lowered, description.constant_bytes)
    module = tvm.IRModule({ENTRY: lowered.entry})
    return Artifact(description, target, lowered.plan.lower_bound, module, objects, constants, device)


def _description(network: Network, name: str, host: Target, lowered: Lowered | LoweredForCuda) -> LibraryDescription:
    plan, program = lowered.plan, lowered.program
    return LibraryDescription(
        model=network.name,
        target=name,
        compiler=f"nnefc {version('nnefc')}",
        inputs=_described(network.inputs, program.inputs),
        outputs=_described(network.outputs, program.outputs),
        states=_described([state.name for state in network.states], program.states),
        workspace_bytes=plan.workspace_bytes,
        scratch_bytes=lowered.scratch_bytes,
        constant_bytes=plan.constant_bytes + plan.state_bytes,
        state_bytes=plan.state_bytes,
        state_initial_offset=plan.constant_bytes,
        cpu_features=host.features,
        variables=network.variables,
        index_limits=tuple(index_limits(network).items()),
    )


def _constants(network: Network, lowered: Lowered | LoweredForCuda, size: int) -> Constants | None:
    """The trained values, and after them the states' initial values, with the offsets of their area."""
    if not size:
        return None
    plan = lowered.plan
    arrays = list(zip(plan.constant_offsets, lowered.constants, strict=True))
    for state, offset in zip(network.states, plan.state_offsets, strict=True):
        arrays.append((plan.constant_bytes + offset, np.ascontiguousarray(state.initial)))
    return Constants(size, tuple(arrays))


def _described(names: tuple[str, ...] | list[str], buffers: tuple[Buffer, ...]) -> tuple[TensorDescription, ...]:
    return tuple(TensorDescription(n, b.dtype, b.shape) for n, b in zip(names, buffers, strict=True))
