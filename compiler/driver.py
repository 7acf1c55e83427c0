"""The whole way of a network, on one page: model files → Relax → TIR → objects → a library."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import tvm

from nnefc.artifact import Artifact, build
from nnefc.backends import backend_of
from nnefc.diagnostics import CompileError, memory_errors
from nnefc.formats import ShapeLike, load_network
from nnefc.network import Network
from nnefc.passes.backend import MEMORY_BUDGET
from nnefc.passes.pipeline import lower
from nnefc.provenance import source_digest
from nnefc.targets.codegen.cpu.objects import CodeGenerator
from nnefc.targets.machine.any_target import AnyTarget, parse_any_target
from nnefc.turns import in_turn

__all__ = ["Progress", "compile", "compile_network"]


class Progress(Protocol):
    """Told of the phases of a compilation as they begin and end."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Entered when the phase `name` begins, left when it ends; phases may be inside one another."""


class _Silent:
    def phase(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()


def compile(
    model: str | os.PathLike[str],
    target: str = "llvm",
    *,
    random_weights: int | None = None,
    shape: Mapping[str, ShapeLike] | None = None,
    values: Mapping[str, Any] | None = None,
    graph: str | None = None,
    dialect: str | None = None,
    entry: str | None = None,
    overridable: bool = False,
    output_tensors: tuple[str, ...] = (),
    max_depth: int | None = None,
    max_operations: int | None = None,
    strict: bool = False,
    memory_budget: float = MEMORY_BUDGET,
    precision: str | None = None,
    dump: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Artifact:
    """Compile a trained network to code for one kind of machine. Several threads may compile at the same time.

    Args:
        model: an NNEF model (a folder, a `.tgz` or `.tar` of it, or a document), an `.onnx` file, or a `.pnnx.param`
            file with its `.pnnx.bin` beside it.
        target: `llvm` is this machine with all that it can do, `llvm -mcpu=NAME` another CPU, `cuda` NVIDIA GPUs.
        random_weights: a seed; variables without a file get random values from it.
        shape: extents of inputs, by name, for models that leave them open, and the extent of ONNX's named dimensions:
            `{"image": (1, 3, 224, 224)}`, `{"batch": 1}`.
        values: inputs of an ONNX model whose values are known now, by name; the library does not have them then.
        graph: which graph of an NNEF document with several.
        dialect: `provisional` or `final`, of an NNEF document; without it the document tells.
        entry: what of an ONNX model to compile in place of its graph: `training:0` is a step of its first training.
        overridable: whether initializers of an ONNX model that are inputs too, are inputs of the library.
        output_tensors: names of tensors to return instead of the network's own outputs.
        max_depth: how many fragments of an NNEF document may be expanded inside each other, 2,000 by default.
        max_operations: how many operations an NNEF document may have when flattened, 100,000 by default.
        strict: no algorithm that rounds otherwise than the plain sum does, such as Winograd's: slower, and closer.
        memory_budget: what the trained values may grow to, as a factor, so that convolutions and matrix products can be
            computed by algorithms that need larger ones and less time: 1 keeps them as they are, `math.inf` takes all.
            On GPUs there are none such.
        precision: of GPUs, what convolutions and matrix products multiply: `fp32`, `tf32` (float32 of which tensor
            cores read 10 bits of the fraction) or `fp16`. Sums are float32; inputs and outputs stay as they are.
        dump: a folder for the program after every phase, as text.
        progress: told of the phases.

    Raises:
        CompileError: the model, an option or the target is not as it must be.
    """
    progress = progress or _Silent()
    if not memory_budget >= 1:
        raise CompileError(
            f"the memory budget {memory_budget} is less than the trained values",
            hint="it is a factor: 1 keeps them as they are, 1.25 lets them grow by a quarter",
        )
    machine = parse_any_target(target, precision)
    with _without_collections():
        with progress.phase("read"):
            network = load_network(
                Path(model),
                random_weights=random_weights,
                shape=shape,
                values=values,
                graph=graph,
                dialect=dialect,
                entry=entry,
                overridable=overridable,
                output_tensors=tuple(output_tensors),
                max_depth=max_depth,
                max_operations=max_operations,
            )
        with ThreadPoolExecutor(1) as pool:  # beside the compilation: large files take a while
            source = pool.submit(source_digest, Path(model), network.files)
            artifact = compile_network(
                network, machine, strict=strict, memory_budget=memory_budget, dump=dump, progress=progress
            )
            return replace(artifact, description=replace(artifact.description, source=source.result()))


@contextmanager
def _without_collections() -> Iterator[None]:
    """Leave cycles of objects alone: Python would look for them again and again among all that a network is made of."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def compile_network(
    network: Network,
    target: AnyTarget,
    *,
    strict: bool = False,
    memory_budget: float = MEMORY_BUDGET,
    dump: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Artifact:
    """The second half of :func:`compile`: from a front end's network on."""
    progress, folder, backend = progress or _Silent(), _Dump(dump), backend_of(target)
    backend.check()
    with (
        memory_errors("the network takes more memory to compile than there is"),
        CodeGenerator(target.host) as generator,
    ):
        with progress.phase("lower"), in_turn():
            lowered = lower(network, backend, folder.module, strict, generator.add, memory_budget)
        with progress.phase("generate code"):
            code = backend.finish(lowered, generator.finish(lowered.entry), folder.text)
    return build(network, target, lowered, code)


class _Dump:
    """Writes each phase's program into a folder, if there is one, numbered; constants as references only."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._place = Path(folder) if folder is not None else None
        self._count = 0
        if self._place is not None:
            try:
                self._place.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CompileError(f"cannot write to {self._place}: {error.strerror}") from error

    def module(self, name: str, module: tvm.IRModule) -> None:
        """Called after each phase with its name and the module as it is then."""
        if self._place is not None:
            self.text(f"{name.replace(' ', '_')}.py", module.script() + "\n")

    def text(self, name: str, text: str) -> None:
        """Called with what is no module."""
        if self._place is None:
            return
        path = self._place / f"{self._count:02d}_{name}"
        try:
            path.write_text(text)
        except OSError as error:
            raise CompileError(f"cannot write to {path}: {error.strerror}") from error
        self._count += 1
