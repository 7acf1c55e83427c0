"""Compiles modules and exported programs of PyTorch to a module that runs the library."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, Unpack

import numpy as np
import torch
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.utils import _pytree as pytree

from nnefc.driver.artifact import Artifact
from nnefc.driver.compile import compile_model
from nnefc.driver.option_keywords import CompileKeywords, compile_options
from nnefc.driver.options import CompileOptions
from nnefc.driver.terminal_progress import session_progress
from nnefc.driver.torch_programs import PROGRAM_SUFFIX, load_program, not_exported, write_onnx
from nnefc.loader import Model
from nnefc.support.diagnostics import CompileError
from nnefc.support.output_files import temporary_folder

from .functional import Functional, functional
from .states import TRAINING_STEP, bind_states
from .transforms import ends_transforms

__all__ = ["AnyModule", "CompiledModule", "compile", "export_module"]

_COUNTS = 1 << 62
"""Of values for the state that counts runs, which random numbers follow from; it comes after a module's own states."""

AnyModule: TypeAlias = "torch.nn.Module | torch.export.ExportedProgram | str | os.PathLike[str]"
"""A module, a program of `torch.export.export`, or the file of one (`.pt2`)."""


def compile(
    module: AnyModule,
    *example: Any,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    threads: int | None = None,
    target: str = "llvm",
    **options: Unpack[CompileKeywords],
) -> CompiledModule:
    """Compiles a module of PyTorch, whose parameters become constants.

    Buffers that the module writes, such as the keys and values that a decoder has seen, become states of the library.

    Args:
        module: in the mode to compile, usually after `module.eval()`; or an exported program, or its file, for which
            the arguments that follow are not given.
        example: positional arguments of a call; sizes that `dynamic_shapes` names may differ later.
        kwargs: keyword arguments of a call.
        dynamic_shapes: as for `torch.export.export`: the sizes that stay dynamic, such as
            `({0: torch.export.Dim("batch")},)`.
        threads: threads of the session; None: all processors that the process may use.
        target: as of `nnefc.compile`.
        options: of `nnefc.compile`.

    Raises:
        CompileError: PyTorch cannot export the module, or nnefc cannot compile what it exports.
    """
    chosen = compile_options("nnefc.torch.compile", options, target)
    if isinstance(module, torch.nn.Module):
        return CompiledModule(
            export_module(module, example, kwargs, dynamic_shapes), type(module).__name__, threads, chosen
        )
    if example or kwargs or dynamic_shapes is not None:
        raise CompileError("an exported program has its example and its dynamic shapes: give none with it")
    if isinstance(module, torch.export.ExportedProgram):
        return CompiledModule(module, "program", threads, chosen)
    path = Path(module)
    if path.suffix != PROGRAM_SUFFIX:
        raise CompileError(
            f"'{path}' is not a program of torch.export's, whose name ends with {PROGRAM_SUFFIX}",
            hint="nnefc.compile compiles files of models",
        )
    return CompiledModule(load_program(path), path.stem, threads, chosen)


def export_module(
    module: torch.nn.Module, example: tuple[Any, ...], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any
) -> torch.export.ExportedProgram:
    """Exports a module for inference: arguments as of :func:`compile`.

    Raises:
        CompileError: PyTorch cannot export it.
    """
    try:
        with ends_transforms(), torch.no_grad(), _without_fast_path():
            example, kwargs = _each_its_own((example, dict(kwargs or {})))
            return torch.export.export(module, example, kwargs, dynamic_shapes=dynamic_shapes)
    except Exception as error:  # torch.export raises what the module's own code does, too
        raise not_exported(type(module).__name__, error) from error


@contextmanager
def _without_fast_path() -> Iterator[None]:
    """Lets layers of transformers be exported as their operators, not as one that the ONNX exporter does not know."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def _each_its_own(arguments: Any) -> Any:
    """Copies each tensor that occurs more than once: torch.export would make one input of equal objects."""
    seen: set[int] = set()

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or id(leaf) not in seen:
            seen.add(id(leaf))
            return leaf
        return leaf.clone()

    return pytree.tree_map(own, arguments)


class CompiledModule(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """Runs a compiled network; it is called like the original module, with tensors as arguments and results.

    The module has no parameters, and records no gradients. Arguments that the original module changes in place are
    changed. Random numbers follow from PyTorch's generator, so `torch.manual_seed` repeats them; they are not those
    that PyTorch draws itself. Copies, also by pickle, have a session of their own, with the states that this one has at
    that time.

    Attributes:
        artifact: the compiled network, to export.
        model: the loaded library.
    """

    artifact: Artifact
    model: Model

    def __init__(
        self, program: torch.export.ExportedProgram, name: str, threads: int | None, options: CompileOptions
    ) -> None:
        """Compiles an exported program; see :func:`compile`."""
        super().__init__()
        made = _functional(program, name)
        states = () if made is None else made.initial
        if states and options.read.entry is not None:
            raise CompileError(f"{name} has states, and no entries")
        with temporary_folder("nnefc-") as folder:
            path = folder / f"{name}.onnx"
            write_onnx(program if made is None else made.program, path, name)
            if made is not None and states:
                bind_states(path, [change.name for change in made.changed if change.is_buffer], states)
                options = replace(options, read=replace(options.read, entry=TRAINING_STEP))
            self.artifact = compile_model(path, options, session_progress(name))
        self._state_count = len(states)
        self._threads = threads
        self.model = self.artifact.load(threads=threads)
        self._counters = [state.name for state in self.model.states[len(states) :]]
        signature = program.graph_signature
        given = [spec.arg for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
        self._inputs = [None if isinstance(argument, ConstantArgument) else argument.name for argument in given]
        changed = () if made is None else made.changed
        self._changed = [self._inputs.index(change.name) for change in changed if not change.is_buffer]
        self._results = tuple(signature.user_outputs)
        self._structures = program.call_spec.in_spec, program.call_spec.out_spec
        self._examples = [
            None if isinstance(leaf, torch.Tensor) else leaf for leaf in pytree.tree_leaves(program.example_inputs)
        ]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the network.

        Raises:
            RunError: tensors do not fit, or are in memory that the library cannot read.
            CompileError: the arguments have another structure than when the network was compiled, or arguments that are
                no tensors have other values.
        """
        inside, outside = self._structures
        leaves, structure = pytree.tree_flatten((args, kwargs))
        if structure != inside:
            raise CompileError(f"called with {structure}, but compiled for {inside}")
        for leaf, name, example in zip(leaves, self._inputs, self._examples, strict=True):
            if name is None and leaf != example:
                raise CompileError(
                    f"an argument is {leaf!r}, but the module was compiled with {example!r}, which became part of it",
                    hint="compile it for this value, too",
                )
        given = [_readable(leaf) for leaf, name in zip(leaves, self._inputs, strict=True) if name is not None]
        for counter in self._counters:
            self.model.write_state(counter, int(torch.randint(_COUNTS, ())))
        made = self.model(*given)
        arrays = made if isinstance(made, tuple) else (made,)
        results = zip(arrays, self.model.outputs, strict=True)
        tensors = islice((_tensor(array, kind.dtype) for array, kind in results), self._state_count, None)
        with torch.no_grad():
            for index in self._changed:
                leaves[index].copy_(next(tensors))
        made = [next(tensors) if isinstance(name, str) else name for name in self._results]
        return pytree.tree_unflatten(made, outside)

    def takes(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Returns whether tensors have the sizes that are fixed in the library."""
        return all(
            own == size or not isinstance(own, int)
            for known, tensor in zip(self.model.inputs, tensors, strict=True)
            for own, size in zip(known.shape, tensor.shape, strict=True)
        )

    def reset(self) -> None:
        """Gives the states, which are the buffers that the module writes, their first values."""
        self.model.reset()

    def export(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Writes the library; arguments as for `Artifact.export`."""
        self.artifact.export(path, **options)

    def __getstate__(self) -> dict[str, Any]:
        states = {state.name: self.model.read_state(state.name) for state in self.model.states}
        return {**self.__dict__, "model": states}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        values = state["model"]
        self.model = self.artifact.load(threads=self._threads)
        for name, value in values.items():
            self.model.write_state(name, value)


def _functional(program: torch.export.ExportedProgram, name: str) -> Functional | None:
    """Returns the program in functional form; None if it changes nothing in place.

    Raises:
        CompileError: PyTorch cannot make it functional.
    """
    try:
        with torch.no_grad():
            return functional(program)
    except Exception as error:  # of PyTorch's decompositions
        raise not_exported(name, error) from error


def _readable(leaf: Any) -> Any:
    """Converts an argument to a form that the loader reads."""
    return leaf.detach() if isinstance(leaf, torch.Tensor) else np.asarray(leaf)


def _tensor(array: np.ndarray, dtype: str) -> torch.Tensor:
    """Converts a result to a tensor; bfloat16 comes as its bits, for NumPy has no such type."""
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor
