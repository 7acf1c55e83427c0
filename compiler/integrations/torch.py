"""Compiles PyTorch networks in memory through torch.export and torch's ONNX exporter.

    import nnefc.integrations.torch
    compiled = nnefc.torch.compile(module, image)      # a module of PyTorch that runs the library
    compiled.export("net.so")                          # for elsewhere

    fast = torch.compile(module, backend="nnefc")      # compiles what it is called with
    with torch.no_grad():
        scores = fast(image)

It needs the packages torch (2.6 or later) and onnxscript.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, Unpack

import numpy as np
import torch
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.utils import _pytree as pytree

from nnefc.driver.artifact import Artifact
from nnefc.driver.compile import compile_model
from nnefc.driver.option_keywords import CompileKeywords, compile_options
from nnefc.driver.options import CompileOptions
from nnefc.loader import Model
from nnefc.support.diagnostics import CompileError
from nnefc.support.output_files import temporary_folder

__all__ = ["CompiledModule", "backend", "compile"]


def compile(
    module: torch.nn.Module,
    *example: Any,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    threads: int | None = None,
    target: str = "llvm",
    **options: Unpack[CompileKeywords],
) -> CompiledModule:
    """Compiles a module of PyTorch, whose parameters become constants.

    Args:
        module: in the mode to compile; usually after `module.eval()`.
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
    return _compile(
        module, example, kwargs, dynamic_shapes, threads, compile_options("nnefc.torch.compile", options, target)
    )


def _compile(
    module: torch.nn.Module,
    example: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    threads: int | None,
    options: CompileOptions,
) -> CompiledModule:
    """Exports a module of PyTorch and compiles it: see :func:`compile`."""
    try:
        with torch.no_grad():
            example, kwargs = _each_its_own((example, dict(kwargs or {})))
            program = torch.export.export(module, example, kwargs, dynamic_shapes=dynamic_shapes)
    except Exception as error:  # torch.export raises what the module's own code does, too
        raise _not_exported(module, error) from error
    return CompiledModule(program, type(module).__name__, threads, options)


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

    The module has no parameters, and records no gradients.

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
        mutations = program.run_decompositions({}).graph_signature  # the exported program itself may hide them
        changed = [*mutations.buffers_to_mutate.values(), *mutations.user_inputs_to_mutate.values()]
        if changed:
            raise CompileError(
                f"{name} changes {', '.join(changed)} while it runs",
                hint="compile it in eval mode, and let it return new values in place of changing others",
            )
        signature = program.graph_signature
        with temporary_folder("nnefc-") as folder:
            path = folder / f"{name}.onnx"
            try:
                with torch.no_grad(), _quiet():
                    torch.onnx.export(program, (), path, dynamo=True, verbose=False, external_data=True)
            except Exception as error:  # the exporter's own errors, and those of the translations it calls
                raise _not_exported(name, error) from error
            self.artifact = compile_model(path, options)
        self.model = self.artifact.load(threads=threads)
        given = [spec.arg for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
        self._inputs = [None if isinstance(argument, ConstantArgument) else argument.name for argument in given]
        self._results = tuple(signature.user_outputs)
        self._structures = program.call_spec.in_spec, program.call_spec.out_spec
        self._examples = pytree.tree_leaves(program.example_inputs)

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
        made = self.model(*given)
        arrays = made if isinstance(made, tuple) else (made,)
        tensors = iter([_tensor(array, kind.dtype) for array, kind in zip(arrays, self.model.outputs, strict=True)])
        results = [next(tensors) if isinstance(name, str) else name for name in self._results]
        return pytree.tree_unflatten(results, outside)

    def takes(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Returns whether tensors have the sizes that are fixed in the library."""
        return all(
            own == size or not isinstance(own, int)
            for known, tensor in zip(self.model.inputs, tensors, strict=True)
            for own, size in zip(known.shape, tensor.shape, strict=True)
        )

    def export(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Writes the library; arguments as for `Artifact.export`."""
        self.artifact.export(path, **options)


def backend(
    graph: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compiles a graph that `torch.compile(module, backend="nnefc", options={…})` captures.

    A graph is compiled when it first runs; symbolic sizes of torch stay dynamic. Parameters are constants: a graph is
    compiled again after they change. In-place changes through `.data`, which do not increment PyTorch's version
    counters, are not detected: call `torch._dynamo.reset()` after them. The graph runs in PyTorch where gradients are
    recorded, and where parameters were created in inference mode, which has no version counters.

    Args:
        graph: the graph of the module or a part of it.
        inputs: examples of its inputs.
        mode: ignored: nnefc has one mode.
        options: options of `nnefc.compile`, and `target` and `threads`.
    """
    del inputs, mode
    return _Captured(graph, dict(options or {}))


class _Captured:
    """Compiles a graph that torch.compile captured for the arguments of its calls."""

    def __init__(self, graph: torch.fx.GraphModule, options: dict[str, Any]) -> None:
        self._graph = graph
        self._threads = options.pop("threads", None)
        target = options.pop("target", "llvm")
        self._options = compile_options("torch.compile with nnefc", options, target)
        nodes = graph.graph.find_nodes(op="placeholder")
        examples = [node.meta.get("example_value") for node in nodes]
        static = [(node.meta.get("tensor_dict") or {}).get("_dynamo_static_input_type") for node in nodes]
        self._kinds = [
            _kind(example, examples, bool(constant)) for example, constant in zip(examples, static, strict=True)
        ]
        self._open = [_dynamic_axes(example) for example in examples]
        self._versions: list[tuple[int, int, int]] = []
        self._held: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._compiled: list[tuple[list[Any], CompiledModule]] = []
        self._has_warned = False

    def __call__(self, *values: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in values):
            return self._as_it_is(values, _RECORDED)
        constants = [value for value, kind in zip(values, self._kinds, strict=True) if kind is _CONSTANT]
        if any(constant.is_inference() for constant in constants):
            return self._as_it_is(values, _UNCOUNTED)
        versions = [(id(constant), constant.data_ptr(), constant._version) for constant in constants]
        if versions != self._versions:
            self._compiled.clear()
            self._versions = versions
            self._held = [(constant, constant.detach()) for constant in constants]  # no other gets their addresses
        tensors = [value for value, kind in zip(values, self._kinds, strict=True) if kind is _TENSOR]
        numbers = [value for value, kind in zip(values, self._kinds, strict=True) if kind is _NUMBER]
        for made_for, compiled in self._compiled:
            if made_for == numbers and compiled.takes(tensors):
                return compiled(*tensors)
        compiled = self._compile(values, tensors)
        self._compiled.append((numbers, compiled))
        return compiled(*tensors)

    def _as_it_is(self, values: Sequence[Any], why: str) -> Any:
        if not self._has_warned:
            warnings.warn(f"nnefc compiles nothing {why}", stacklevel=3)
            self._has_warned = True
        return self._graph(*values)

    def _compile(self, values: Sequence[Any], tensors: Sequence[torch.Tensor]) -> CompiledModule:
        axes = [dynamic_axes for dynamic_axes, kind in zip(self._open, self._kinds, strict=True) if kind is _TENSOR]
        shapes = tuple(dict.fromkeys(own, torch.export.Dim.AUTO) for own in axes)
        bound = _Bound(self._graph, self._kinds, values)
        return _compile(bound, tuple(tensors), None, {"tensors": shapes}, self._threads, self._options)


_RECORDED = "where gradients are recorded: use torch.no_grad() or torch.inference_mode()"
_UNCOUNTED = "whose parameters were made in inference mode, for their changes are not counted: make them outside of it"

_CONSTANT, _NUMBER, _TENSOR = object(), object(), object()
"""Kinds of inputs of a captured graph: a parameter, a number, a tensor of the call."""

_Size: TypeAlias = "tuple[int, int]"
"""A number that is a size of an input: index of the input, and axis."""


def _kind(example: Any, examples: Sequence[Any], is_constant: bool) -> Any:
    """Returns one of the kinds above, or a _Size."""
    if is_constant:
        return _CONSTANT
    if isinstance(example, torch.Tensor):
        return _TENSOR
    for number, other in enumerate(examples):
        if isinstance(other, torch.Tensor):
            for axis in _dynamic_axes(other):
                if isinstance(example, torch.SymInt) and other.shape[axis].node.expr == example.node.expr:
                    return number, axis
    return _NUMBER


def _dynamic_axes(example: Any) -> list[int]:
    """Returns the axes of a tensor whose sizes are symbolic in torch."""
    if not isinstance(example, torch.Tensor):
        return []
    return [axis for axis, size in enumerate(example.shape) if isinstance(size, torch.SymInt)]


class _Bound(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """Binds the parameters and numbers of a captured graph; called with the other tensors."""

    def __init__(self, graph: torch.fx.GraphModule, kinds: Sequence[Any], values: Sequence[Any]) -> None:
        super().__init__()
        self.graph = graph
        self._kinds = list(kinds)
        self._numbers = {at: value for at, value in enumerate(values) if kinds[at] is _NUMBER}
        for at, value in enumerate(values):
            if kinds[at] is _CONSTANT:
                self.register_buffer(f"constant{at}", value.detach())

    def forward(self, *tensors: torch.Tensor) -> Any:
        iterator = iter(tensors)
        values = [next(iterator) if kind is _TENSOR else None for kind in self._kinds]
        for at, kind in enumerate(self._kinds):
            if kind is _CONSTANT:
                values[at] = getattr(self, f"constant{at}")
            elif kind is _NUMBER:
                values[at] = self._numbers[at]
            elif kind is not _TENSOR:
                tensor, axis = kind
                values[at] = values[tensor].shape[axis]
        return self.graph(*values)


def _readable(leaf: Any) -> Any:
    """Converts an argument to a form that the loader reads."""
    return leaf.detach() if isinstance(leaf, torch.Tensor) else np.asarray(leaf)


def _tensor(array: np.ndarray, dtype: str) -> torch.Tensor:
    """Converts a result to a tensor; bfloat16 comes as its bits, for NumPy has no such type."""
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses the exporter's messages on itself and on packages that are not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _not_exported(module: Any, error: Exception) -> CompileError:
    name = module if isinstance(module, str) else type(module).__name__
    first = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return CompileError(f"PyTorch cannot export {name}: {first}", hint="torch.export.export(module, inputs) says more")
