"""Builds the kernel graph of a library from the workspace ranges of each kernel's operands in its description.

workspace  0 ........ 4096 ........ 8192      conv1 writes 0 to 4096, pool1 reads 0 to 4096: an edge between them
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nnefc.inspect.about import Fact, about_rows, bytes_text
from nnefc.inspect.html.graph import BoxGraph, Edge, Node
from nnefc.targets.description.library import KernelDescription, LibraryDescription, OperandDescription

__all__ = ["Lifetime", "about_library", "graph_of_library", "lifetimes", "title_of", "workspace_text"]

_MAX_NAMES = 12
_FAR = 1 << 44
"""Bytes from which a limit of the workspace counts as unlimited, because dimensions have no maximum."""


@dataclass(frozen=True)
class Lifetime:
    """A range of bytes in the workspace, from the number of the kernel that writes them to that of the last one that
    reads them.
    """

    offset: int
    bytes: int
    type: str
    first: int
    last: int


def title_of(kernel: KernelDescription) -> str:
    """Return the operators of the model that a kernel computes, or its own name."""
    return " + ".join(kernel.operators) or kernel.kernel


def graph_of_library(
    found: LibraryDescription, weights: Sequence[float] | None = None, shares: Sequence[float] | None = None
) -> BoxGraph:
    """Return a graph with a box for each kernel, in the order of their calls, and the network's inputs and outputs.

    Args:
        found: the description of a library that was compiled with --profile; others do not describe their kernels.
        weights: the length of each kernel's bar, from 0 to 1.
        shares: each kernel's share of the run time.
    """
    nodes: list[Node] = []
    memory = _Memory()
    for base, tensors in (("input", found.inputs), ("state", found.states)):
        for index, tensor in enumerate(tensors):
            memory.write(OperandDescription(base, index, 0, 0, ""), len(nodes))
            nodes.append(Node("input", base, tensor.name, (("type", str(tensor)),)))
    edges: dict[tuple[int, int], str] = {}
    for call, kernel in enumerate(found.kernels):
        number = len(nodes)
        share = shares[call] if shares is not None else None
        weight = weights[call] if weights is not None else None
        nodes.append(_node(kernel, weight, share))
        for operand in kernel.reads:
            for source in memory.read(operand):
                edges.setdefault((source, number), operand.type)
        if call and not any(target == number for _, target in edges):
            edges[number - 1, number] = "called before"
        for operand in kernel.writes:
            memory.write(operand, number)
    for index, tensor in enumerate(found.outputs):
        for source in memory.read(OperandDescription("output", index, 0, 0, "")):
            edges[source, len(nodes)] = str(tensor)
        nodes.append(Node("output", "output", tensor.name, (("type", str(tensor)),)))
    lines = tuple(Edge(*ends, text) for ends, text in edges.items())
    return BoxGraph(f"{found.model}, kernels", tuple(nodes), lines, about_library(found))


def about_library(found: LibraryDescription) -> tuple[Fact, ...]:
    """Return the facts about a library: target, memory, interface, metadata."""
    head = [("network", found.model), ("target", found.target), ("compiled by", found.compiler)]
    head += [("constants", bytes_text(found.constant_bytes)), ("workspace", workspace_text(found))]
    dimensions = [(each.name, each.minimum, each.maximum) for each in found.dimensions]
    return about_rows(head, found.inputs, found.outputs, found.states, dimensions, dict(found.metadata))


def workspace_text(found: LibraryDescription) -> str:
    """Return the memory between kernels; with dynamic dimensions, at size hints and at the maximum."""
    if not found.is_dynamic:
        return bytes_text(found.workspace_bytes)
    hint, maximum = found.dynamic_workspaces
    hints = ", ".join(f"{each.name} {each.size_hint:,}" for each in found.dimensions)
    most = f"; at most {bytes_text(maximum)}" if maximum < _FAR else ""
    return f"{bytes_text(hint)} at the sizes {hints}{most}"


def lifetimes(kernels: Sequence[KernelDescription]) -> list[Lifetime]:
    """Return the lifetimes of workspace buffers whose offsets are known at compile time."""
    written: list[tuple[OperandDescription, int]] = []
    last: list[int] = []
    memory = _Memory()
    for index, kernel in enumerate(kernels):
        for operand in kernel.reads:
            for number in memory.read(operand) if operand.base == "workspace" else ():
                last[number] = index
        for operand in kernel.writes:
            if operand.base == "workspace" and operand.offset is not None and operand.bytes:
                memory.write(operand, len(written))
                written.append((operand, index))
                last.append(index)
    return [
        Lifetime(operand.offset or 0, operand.bytes, operand.type, first, end)
        for (operand, first), end in zip(written, last, strict=True)
    ]


def _node(kernel: KernelDescription, weight: float | None, share: float | None) -> Node:
    constants = sum(operand.bytes for operand in kernel.reads if operand.base == "constant")
    facts = [
        ("tensors", ", ".join(kernel.tensors[:_MAX_NAMES])),
        ("kernel", kernel.kernel),
        ("schedule rule", kernel.rule),
        ("share of the time", "" if share is None else f"{100 * share:.1f} %"),
        ("arithmetic of a call", f"{kernel.operations:,} operations" if kernel.operations else ""),
        ("memory of a call", f"{kernel.bytes:,} bytes" if kernel.bytes else ""),
        ("reads", "\n".join(f"{o.base}: {o.type}" for o in kernel.reads)),
        ("writes", "\n".join(f"{o.base}: {o.type}" for o in kernel.writes)),
        ("constants", f"{constants:,} bytes" if constants else ""),
    ]
    name = kernel.tensors[-1] if kernel.tensors else kernel.kernel
    return Node(title_of(kernel), title_of(kernel), name, tuple(fact for fact in facts if fact[1]), weight)


_WHOLE = 1 << 62


def _bytes(operand: OperandDescription) -> int:
    """Return the bytes of an operand; for inputs and outputs of dynamic size, a range of all bytes."""
    return operand.bytes or _WHOLE


class _Memory:
    """Tracks which kernel has last written each byte."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, int], list[tuple[int, int, int]]] = {}  # begin, end, who; apart, in order

    def read(self, operand: OperandDescription) -> Iterator[int]:
        """Yield the kernels that wrote the bytes of an operand, each once."""
        if operand.offset is not None:
            first, last = self._overlap(operand)
            yield from dict.fromkeys(who for _, _, who in self._parts.get(self._key(operand), [])[first:last])

    def write(self, operand: OperandDescription, who: int) -> None:
        """Set the writer of an operand's bytes; parts that the operand overlaps are divided."""
        if operand.offset is None or (operand.base == "workspace" and not operand.bytes):
            return
        parts = self._parts.setdefault(self._key(operand), [])
        first, last = self._overlap(operand)
        begin, end = operand.offset, operand.offset + _bytes(operand)
        left = [(b, begin, w) for b, _, w in parts[first : first + 1] if first < last and b < begin]
        right = [(end, e, w) for _, e, w in parts[last - 1 : last] if first < last and e > end]
        parts[first:last] = [*left, (begin, end, who), *right]

    def _overlap(self, operand: OperandDescription) -> tuple[int, int]:
        """Return the range of indices, its end excluded, of the parts that an operand overlaps."""
        parts = self._parts.get(self._key(operand), [])
        begin = operand.offset or 0
        first = max(0, bisect_right(parts, (begin, 1 << 63, 0)) - 1)
        if first < len(parts) and parts[first][1] <= begin:
            first += 1
        last = first
        while last < len(parts) and parts[last][0] < begin + _bytes(operand):
            last += 1
        return first, last

    def _key(self, operand: OperandDescription) -> tuple[str, int]:
        return operand.base, operand.index
