"""The whole way of a network, on one page: model files → Relax → TIR → objects → a library."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import tvm

from nnefc.artifact import Artifact, build
from nnefc.diagnostics import CompileError
from nnefc.formats import load_network
from nnefc.network import Network
from nnefc.passes.pipeline import Observer, lower
from nnefc.provenance import source_digest
from nnefc.targets.cpu import CodeGenerator
from nnefc.targets.target import Target, parse_target

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
    shape: Mapping[str, tuple[int, ...]] | None = None,
    values: Mapping[str, Any] | None = None,
    graph: str | None = None,
    dialect: str | None = None,
    entry: str | None = None,
    overridable: bool = False,
    output_tensors: tuple[str, ...] = (),
    max_depth: int | None = None,
    max_operations: int | None = None,
    strict: bool = False,
    dump: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Artifact:
    """Compile a trained network to code for one kind of machine.

    Args:
        model: an NNEF model (a folder, a `.tgz` or `.tar` of it, or a document), an `.onnx` file, or a `.pnnx.param`
            file with its `.pnnx.bin` beside it.
        target: `llvm` is this machine with all that it can do, `llvm -mcpu=NAME` another CPU.
        random_weights: a seed; variables without a file get random values from it.
        shape: extents of inputs, by name, for models that leave them open; of ONNX's named dimensions too.
        values: inputs of an ONNX model whose values are known now, by name; the library does not have them then.
        graph: which graph of an NNEF document with several.
        dialect: `provisional` or `final`, of an NNEF document; without it the document tells.
        entry: what of an ONNX model to compile in place of its graph: `training:0` is a step of its first training.
        overridable: whether initializers of an ONNX model that are inputs too, are inputs of the library.
        output_tensors: names of tensors to return instead of the network's own outputs.
        max_depth: how many fragments of an NNEF document may be expanded inside each other, 2,000 by default.
        max_operations: how many operations an NNEF document may have when flattened, 100,000 by default.
        strict: no algorithm that rounds otherwise than the plain sum does, such as Winograd's: slower, and closer.
        dump: a folder for the program after every phase, as text.
        progress: told of the phases.

    Raises:
        CompileError: the model, an option or the target is not as it must be.
    """
    progress = progress or _Silent()
    machine = parse_target(target)
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
        artifact = compile_network(network, machine, strict=strict, dump=dump, progress=progress)
        return replace(artifact, description=replace(artifact.description, source=source.result()))


def compile_network(
    network: Network,
    target: Target,
    *,
    strict: bool = False,
    dump: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Artifact:
    """The second half of :func:`compile`: from a front end's network on."""
    progress = progress or _Silent()
    with CodeGenerator(target) as generator:
        with progress.phase("lower"):
            lowered = lower(network, target, _dumper(dump), strict=strict, receive=generator.add)
        with progress.phase("generate code"):
            objects = generator.finish(lowered.entry)
    return build(network, target, lowered, objects)


def _dumper(folder: str | os.PathLike[str] | None) -> Observer:
    """An observer that writes each phase's program into `folder`, numbered; constants as references only."""
    if folder is None:
        return lambda _name, _module: None
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CompileError(f"cannot write to {place}: {error.strerror}") from error
    count = 0

    def write(name: str, module: tvm.IRModule) -> None:
        nonlocal count
        path = place / f"{count:02d}_{name.replace(' ', '_')}.py"
        try:
            path.write_text(module.script() + "\n")
        except OSError as error:
            raise CompileError(f"cannot write to {path}: {error.strerror}") from error
        count += 1

    return write
