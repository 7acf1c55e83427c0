"""Makes exported programs functional: values that a program writes in place become results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

__all__ = ["Changed", "Functional", "changed_values", "functional"]


@dataclass(frozen=True)
class Changed:
    """A value that a program writes in place.

    Attributes:
        name: of the buffer, or of the input.
        is_buffer: whether it is a buffer of the module.
    """

    name: str
    is_buffer: bool


@dataclass(frozen=True)
class Functional:
    """A program without changes in place.

    Attributes:
        program: takes the buffers of `changed`, then the tensors of the program's user inputs; returns the new values
            of `changed`, then the program's results that are tensors.
        changed: buffers first.
        initial: the values of these buffers.
    """

    program: torch.export.ExportedProgram
    changed: tuple[Changed, ...]
    initial: tuple[torch.Tensor, ...]


def functional(program: torch.export.ExportedProgram) -> Functional | None:
    """Returns a program in functional form; None if it changes nothing in place.

    Args:
        program: as of `torch.export.export`.
    """
    decomposed = program.run_decompositions(_decompositions())
    changed = _changed(decomposed)
    if not changed:
        return None
    order = sorted(range(len(changed)), key=lambda index: not changed[index].is_buffer)
    module = _Lifted(decomposed, [changed[index].name for index in order if changed[index].is_buffer], order)
    tensors = [*module.initial, *_example_tensors(decomposed)]
    axes: list[list[int]] = [*([] for _ in module.initial), *map(_dynamic_axes, module.inputs)]
    shapes = {"tensors": tuple(dict.fromkeys(each, torch.export.Dim.AUTO) for each in axes)}
    made = torch.export.export(module, tuple(tensors), dynamic_shapes=shapes)
    return Functional(made, tuple(changed[index] for index in order), tuple(module.initial))


def changed_values(program: torch.export.ExportedProgram) -> list[Changed]:
    """Returns what a program writes in place, which an exported program itself may hide in its operators."""
    return _changed(program.run_decompositions(_decompositions()))


def _changed(decomposed: torch.export.ExportedProgram) -> list[Changed]:
    kinds = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)
    written = [spec for spec in decomposed.graph_signature.output_specs if spec.kind in kinds]
    return [Changed(str(spec.target), spec.kind is OutputKind.BUFFER_MUTATION) for spec in written]


def _decompositions() -> Any:
    """Returns the decompositions of normalizations that update their statistics.

    The ONNX exporter writes them as normalizations by the statistics of before, and those of `instance_norm` are in no
    signature (PyTorch 2.14, onnxscript 0.7).
    """
    instance_norm = torch.ops.aten.instance_norm.default
    found = get_decompositions([torch.ops.aten._native_batch_norm_legit_functional])
    return {**found, instance_norm: torch.export.default_decompositions()[instance_norm]}


class _Lifted(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """Runs the graph of a decomposed program, in which parameters, buffers and changes are inputs and outputs.

    Attributes:
        inputs: the nodes of the user's tensors in the graph.
        initial: the values of the buffers that are given in each call.
    """

    def __init__(self, program: torch.export.ExportedProgram, buffers: Sequence[str], order: Sequence[int]) -> None:
        super().__init__()
        self.graph = program.graph_module
        self._order = list(order)
        values = {**program.state_dict, **program.constants}
        nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
        tensors = (InputKind.USER_INPUT, InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
        self.inputs: list[torch.fx.Node] = []
        self.initial = [values[name].detach() for name in buffers]
        self._sources: list[tuple[str, Any]] = []
        for number, (node, spec) in enumerate(zip(nodes, program.graph_signature.input_specs, strict=True)):
            if spec.kind not in tensors or not isinstance(node.meta.get("val"), torch.Tensor):
                self._sources.append(("value", getattr(spec.arg, "value", None)))
            elif spec.kind is InputKind.USER_INPUT:
                self._sources.append(("tensor", len(buffers) + len(self.inputs)))
                self.inputs.append(node)
            elif spec.target in buffers:
                self._sources.append(("tensor", buffers.index(spec.target)))
            else:
                self.register_buffer(f"constant{number}", values[spec.target].detach())
                self._sources.append(("constant", f"constant{number}"))

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = [
            tensors[source] if kind == "tensor" else getattr(self, source) if kind == "constant" else source
            for kind, source in self._sources
        ]
        results = torch.fx.Interpreter(self.graph).run(*given)
        count = len(self._order)
        changed = [results[index] for index in self._order]
        return (*changed, *(result for result in results[count:] if isinstance(result, torch.Tensor)))


def _example_tensors(program: torch.export.ExportedProgram) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves(program.example_inputs)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _dynamic_axes(node: torch.fx.Node) -> list[int]:
    """Returns the axes of a tensor whose sizes are symbolic."""
    return [axis for axis, size in enumerate(node.meta["val"].shape) if isinstance(size, torch.SymInt)]
