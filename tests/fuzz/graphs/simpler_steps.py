"""What :mod:`simpler` makes simpler operators with: nodes that stand for one, and attention, which several have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import helper

__all__ = ["Steps", "attended", "chosen"]


class Steps:
    """Nodes that stand for one node.

    Args:
        node: that one.

    Attributes:
        given: its attributes, texts as such.
        made: the nodes in order, none at first.
    """

    def __init__(self, node: onnx.NodeProto) -> None:
        self.node = node
        self.given: dict[str, Any] = {}
        for attribute in node.attribute:
            value = helper.get_attribute_value(attribute)
            self.given[attribute.name] = value.decode() if isinstance(value, bytes) else value
        self.made: list[onnx.NodeProto] = []

    def inputs(self, count: int) -> list[str]:
        """The first inputs, "" for each that is left out."""
        return [*self.node.input, *[""] * (count - len(self.node.input))][:count]

    def results(self, count: int) -> list[str]:
        """The first results, "" for each that is not asked for."""
        return [*self.node.output, *[""] * (count - len(self.node.output))][:count]

    def add(self, kind: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        """One more node; its result, of this name if there is one."""
        name = result or f"{self.node.output[0]}_{len(self.made)}"
        self.made.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def added(self, x: str, *others: str) -> str:
        """A sum; those that are left out add nothing."""
        for other in filter(None, others):
            x = self.add("Add", x, other)
        return x

    def end(self, x: str, index: int = 0) -> list[onnx.NodeProto]:
        """All nodes, of which this tensor is a result, the first by default."""
        for made in self.made:
            made.output[:] = [self.node.output[index] if name == x else name for name in made.output]
            made.input[:] = [self.node.output[index] if name == x else name for name in made.input]
        return self.made

    def rounded(self, real: str, zero: str) -> list[onnx.NodeProto]:
        """All nodes, the last of which rounds real numbers to integers of the zero point's type."""
        return self.end(self.add("Requantized", real, zero))


def chosen(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Those attributes that are given."""
    return {name: given[name] for name in names if name in given}


def attended(
    steps: Steps,
    parts: Sequence[str],
    given: Mapping[str, Any],
    mask: str = "",
    past: Sequence[str] = ("", ""),
    filled: str = "",
    seen: str = "",
) -> tuple[str, Sequence[str], Sequence[str]]:
    """Attention as ONNX has it: its result, the scores after each stage, and the keys and values of all positions.

    Args:
        parts: queries, keys, values.
        given: the attributes of ONNX's operator.
        mask: booleans, or numbers that are added to scores.
        past: keys and values before those.
        filled: how many keys there are in each sequence.
        seen: booleans next to a mask of numbers.
    """
    heads = given.get("q_num_heads", 0)
    query, key, value = (
        steps.add("AttentionHeads", part, heads=given.get(f"{name}_num_heads", 0))
        for part, name in zip(parts, ("q", "kv", "kv"), strict=True)
    )
    if past[0]:
        key, value = (steps.add("Concat", old, new, axis=2) for old, new in zip(past, (key, value), strict=True))
    stages = [steps.add("AttentionProducts", query, key, **chosen(given, "scale"))]
    cap = given.get("softcap")
    stages.append(steps.add("AttentionCap", stages[-1], softcap=cap) if cap else stages[-1])
    masked = steps.add("AttentionMask", stages[-1], mask) if mask else stages[-1]
    bounds = chosen(given, "is_causal", "left_window_size", "right_window_size")
    stages.append(steps.add("AttentionSeen", masked, seen or mask, past[0], filled, **bounds))
    stages.append(steps.add("AttentionWeights", stages[-1]))
    made = steps.add("AttentionValues", stages[-1], value)
    return steps.add("AttentionMerged", made) if heads else made, stages, (key, value)
