"""Implements `torch.compile(module, backend="nnefc")`: compiles captured graphs, and runs in PyTorch what it cannot."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.utils import _pytree as pytree

from nnefc.driver.option_keywords import compile_options
from nnefc.driver.torch_programs import not_exported
from nnefc.loader import LoadError, RunError
from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.any_target import parse_any_target

from .fast_paths import replace_fast_paths
from .functional import changed_values
from .module import CompiledModule, export_module
from .transforms import ends_transforms, without_transforms

__all__ = ["backend"]


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
    counters, are not detected: call `torch._dynamo.reset()` after them. Tensors that the graph changes in place are
    changed.

    The graph runs in PyTorch where gradients are recorded, where parameters were created in inference mode, which has
    no version counters, and where PyTorch cannot export it or nnefc cannot compile it; a warning says why, once for
    each graph.

    Args:
        graph: the graph of the module or a part of it.
        inputs: examples of its inputs.
        mode: ignored: nnefc has one mode.
        options: options of `nnefc.compile`, and `target` and `threads`.

    Raises:
        CompileError: there are no such options, or there is no such target.
    """
    del inputs, mode
    return _Captured(graph, dict(options or {}))


@dataclass(frozen=True)
class _Version:
    """A library of a captured graph, and what it was compiled for.

    Attributes:
        states: of the constants. Modules that are alike share a graph, and each has constants of its own.
        held: the constants and their data, so that no other tensors get their addresses.
    """

    states: list[_State]
    numbers: list[Any]
    library: CompiledModule
    held: list[tuple[torch.Tensor, torch.Tensor]]

    def is_outdated(self, states: Sequence[_State]) -> bool:
        """Whether one of the constants has changed since."""
        return any(own[0] == now[0] and own != now for own, now in zip(self.states, states, strict=False))


class _Captured:
    """Compiles a graph that torch.compile captured for the arguments of its calls."""

    def __init__(self, graph: torch.fx.GraphModule, options: dict[str, Any]) -> None:
        replace_fast_paths(graph)
        self._floats = _unwrapped_floats(graph)
        self._graph = graph
        self._views = _views_of_inputs(graph)
        self._threads = options.pop("threads", None)
        target = options.pop("target", "llvm")
        self._options = compile_options("torch.compile with nnefc", options, target)
        parse_any_target(target)
        nodes = graph.graph.find_nodes(op="placeholder")
        examples = [node.meta.get("example_value") for node in nodes]
        static = [(node.meta.get("tensor_dict") or {}).get("_dynamo_static_input_type") for node in nodes]
        self._kinds = [
            _kind(example, examples, bool(constant)) for example, constant in zip(examples, static, strict=True)
        ]
        for index in self._floats:
            self._kinds[index] = _NUMBER
        self._open = [_dynamic_axes(example) for example in examples]
        self._compiled: list[_Version] = []  # that of the latest call last
        self._refused: list[tuple[list[Any], list[torch.Size]]] = []
        self._warned: set[str] = set()

    def __call__(self, *given: Any) -> Any:
        values = [value.item() if index in self._floats else value for index, value in enumerate(given)]
        if torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in values):
            return self._in_pytorch(values, _RECORDED)
        if any(constant.is_inference() for constant in self._of_kind(values, _CONSTANT)):
            return self._in_pytorch(values, _UNCOUNTED)
        try:
            compiled = self._for(values)
            if compiled is not None:
                results = compiled(*self._of_kind(values, _TENSOR))
                return self._with_views(values, results) if self._views else results
        except (CompileError, LoadError, RunError) as error:
            self._refused.append(self._key(values))
            return self._in_pytorch(values, _text(error))
        return self._graph(*values)

    def _with_views(self, values: Sequence[Any], results: Any) -> Any:
        """Returns the results with views of the inputs instead of the copies that the library makes."""
        leaves, structure = pytree.tree_flatten(results)
        for index, (source, size, stride, offset) in self._views.items():
            leaves[index] = values[source].as_strided(size, stride, values[source].storage_offset() + offset)
        return pytree.tree_unflatten(leaves, structure)

    def _for(self, values: Sequence[Any]) -> CompiledModule | None:
        """Returns the library for these values; None if there is none.

        Raises:
            CompileError: the graph cannot be compiled.
        """
        states = self._states(values)
        self._compiled = [made for made in self._compiled if not made.is_outdated(states)]
        tensors, numbers = self._of_kind(values, _TENSOR), self._of_kind(values, _NUMBER)
        for index, made in enumerate(self._compiled):
            if (made.states, made.numbers) == (states, numbers) and made.library.takes(tensors):
                self._compiled.append(self._compiled.pop(index))
                return made.library
        if len(self._refused) >= _ATTEMPTS or self._key(values) in self._refused:
            return None
        library = self._compile(values)  # which may find that a constant is none
        constants = self._of_kind(values, _CONSTANT)
        held = [(constant, constant.detach()) for constant in constants]
        self._compiled = [
            *self._compiled[1 - _VERSIONS :],
            _Version(self._states(values), self._of_kind(values, _NUMBER), library, held),
        ]
        return library

    def _states(self, values: Sequence[Any]) -> list[_State]:
        return [(id(each), each.data_ptr(), each._version) for each in self._of_kind(values, _CONSTANT)]

    def _of_kind(self, values: Sequence[Any], wanted: object) -> list[Any]:
        return [value for value, kind in zip(values, self._kinds, strict=True) if kind is wanted]

    def _key(self, values: Sequence[Any]) -> tuple[list[Any], list[torch.Size]]:
        """Returns what a library depends on, besides the constants."""
        return self._of_kind(values, _NUMBER), [tensor.shape for tensor in self._of_kind(values, _TENSOR)]

    def _in_pytorch(self, values: Sequence[Any], why: str) -> Any:
        if why not in self._warned:
            warnings.warn(f"nnefc runs a part of the program in PyTorch: {why}", stacklevel=3)
            self._warned.add(why)
        return self._graph(*values)

    def _compile(self, values: Sequence[Any]) -> CompiledModule:
        if any(isinstance(value, torch.Tensor) and value.is_complex() for value in values):
            raise CompileError("nnefc has no complex numbers")
        program = self._exported(values)
        try:
            with torch.no_grad():
                changed = {change.name for change in changed_values(program) if change.is_buffer}
        except Exception as error:  # of PyTorch's decompositions
            raise not_exported(_NAME, error) from error
        if changed:  # they are no constants
            self._kinds = [_TENSOR if f"constant{index}" in changed else kind for index, kind in enumerate(self._kinds)]
            program = self._exported(values)
        return CompiledModule(program, _NAME, self._threads, self._options)

    def _exported(self, values: Sequence[Any]) -> torch.export.ExportedProgram:
        axes = [dynamic_axes for dynamic_axes, kind in zip(self._open, self._kinds, strict=True) if kind is _TENSOR]
        shapes = tuple(dict.fromkeys(own, torch.export.Dim.AUTO) for own in axes)
        tensors = tuple(self._of_kind(values, _TENSOR))
        try:
            with ends_transforms():
                graph = without_transforms(self._graph, values)
        except Exception as error:  # of PyTorch's transforms
            raise not_exported(_NAME, error) from error
        module = _Bound(graph, self._kinds, values)
        return export_module(module, tensors, None, {"tensors": shapes} if tensors else None)


_NAME = "graph"
"""What errors and libraries call a captured graph."""

_ATTEMPTS = 4
"""A graph that could not be compiled so many times, for several sizes, is not tried again."""

_VERSIONS = 64
"""Libraries of a graph that are kept, for different constants, numbers and sizes: those of the latest calls."""

_RECORDED = "gradients are recorded (torch.no_grad() and torch.inference_mode() switch that off)"
_UNCOUNTED = "its parameters were made in inference mode, and their changes are not tracked (make them outside of it)"

_CONSTANT, _NUMBER, _TENSOR = object(), object(), object()
"""Kinds of inputs of a captured graph: a parameter, a number, a tensor of the call."""

_State: TypeAlias = "tuple[int, int, int]"
"""A constant: the identity of the tensor, the address of its data, and PyTorch's version counter."""

_Size: TypeAlias = "tuple[int, int]"
"""A number that is a size of an input: index of the input, and axis."""

_View: TypeAlias = "tuple[int, tuple[int, ...], tuple[int, ...], int]"
"""A result that is a view: index of the input, sizes, strides, and how many elements later it begins."""


def _text(error: Exception) -> str:
    """Returns the first line of an error, without the word that it begins with in a terminal."""
    return str(getattr(error, "message", error)).strip().partition("\n")[0].replace(_Bound.__name__, _NAME)


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


def _unwrapped_floats(graph: torch.fx.GraphModule) -> set[int]:
    """Makes the inputs of a graph that are floats in tensors, of which it reads the element, floats; returns which."""
    found = set()
    for index, node in enumerate(graph.graph.find_nodes(op="placeholder")):
        reads = list(node.users)
        if getattr(node.meta.get("grapharg"), "pass_arg_as_tensor", False) and all(
            (read.op, read.target) == ("call_method", "item") for read in reads
        ):
            for read in reads:
                read.replace_all_uses_with(node)
                graph.graph.erase_node(read)
            found.add(index)
    if found:
        graph.recompile()
    return found


def _views_of_inputs(graph: torch.fx.GraphModule) -> dict[int, _View]:
    """Returns the results that are views of inputs, by index.

    Views whose sizes are symbolic are left out, and those of inputs that share memory with others: they are copies.
    """
    sources: dict[int, list[tuple[int, torch.Tensor]]] = {}
    for index, node in enumerate(graph.graph.find_nodes(op="placeholder")):
        example = node.meta.get("example_value")
        if _has_strides(example):
            sources.setdefault(example.untyped_storage()._cdata, []).append((index, example))
    found = {}
    for index, result in enumerate(pytree.tree_leaves(graph.graph.output_node().args[0])):
        view: Any = result.meta.get("example_value") if isinstance(result, torch.fx.Node) else None
        owners = sources.get(view.untyped_storage()._cdata, []) if _has_strides(view) else []
        if len(owners) != 1 or owners[0][1].dtype != view.dtype:
            continue
        (source, viewed) = owners[0]
        size, stride = tuple(view.size()), tuple(view.stride())
        offset = view.storage_offset() - viewed.storage_offset()
        if all(type(number) is int for number in (*size, *stride, offset)):
            found[index] = (source, size, stride, offset)
    return found


def _has_strides(example: Any) -> bool:
    return isinstance(example, torch.Tensor) and example.layout is torch.strided


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
