"""Strings, between tensors of numbers: nodes that take and give them are one step together."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper
from steps import Rejected
from walk import Walk

from spaces.declared import BOOL, I32, I64, Nodes, computed_indices, space

__all__ = ["WITH_STRINGS"]

_WORDS = ("", "a", "aa", "A", "b c", " b  c ", "näive", "日本", "x,y,,z", "0", "-0", "ab" * 20)
_NUMBERS = ("0", "1", "-7", "250", "1.5", "-2e3", "0.1", "+4", "1e-3", "123456")
_PATTERNS = ("a+", "[a-z ]*", ".*c.*", "(ab)+", r"\d", "", "[^,]*")


def _constant(w: Walk, nodes: Nodes, words: tuple[str, ...], shape: tuple[int, ...]) -> str:
    """Random strings."""
    count = int(np.prod(shape))
    chosen = [w.one(*words).encode() for _ in range(count)]
    return nodes.add("Constant", value=helper.make_tensor("strings", TensorProto.STRING, shape, chosen))


def _strings(w: Walk, nodes: Nodes, words: tuple[str, ...] = _WORDS) -> tuple[str, tuple[int, ...]]:
    """Some strings that depend on numbers: chosen by indices or conditions, or numbers that are written."""
    match w.one("gathered", "chosen", "written"):
        case "gathered":
            table = (w.number(1, 6), *(w.size() for _ in range(w.number(0, 1))))
            shape = tuple(w.number(1, 5) for _ in range(w.number(0, 2)))
            indices = computed_indices(w, shape, table[0])
            return nodes.add("Gather", _constant(w, nodes, words, table), indices.name), (*shape, *table[1:])
        case "chosen":
            condition = w.pick([BOOL], ranks=range(4))
            sides = [_constant(w, nodes, words, condition.shape if w.chance(0.5) else ()) for _ in range(2)]
            return nodes.add("Where", condition.name, *sides), condition.shape
        case _:
            numbers = w.pick([I64, I32, np.int8, np.uint8], ranks=range(4))
            return nodes.add("Cast", numbers.name, to=TensorProto.STRING), numbers.shape


def _moved(w: Walk, strings: str, shape: tuple[int, ...], nodes: Nodes) -> tuple[str, tuple[int, ...]]:
    """The same strings, or some of them, at other indices."""
    match w.one("same", "flat", "transposed", "reversed", "joined", "repeated"):
        case "flat":
            return nodes.add("Reshape", strings, w.integers(-1).name), (int(np.prod(shape)),)
        case "transposed" if shape:
            order = [int(axis) for axis in w.rng.permutation(len(shape))]
            return nodes.add("Transpose", strings, perm=order), tuple(shape[axis] for axis in order)
        case "reversed" if shape:
            ends = [w.integers(number).name for number in (-1, -100, 0, -1)]
            return nodes.add("Slice", strings, *ends), shape
        case "joined" if shape:
            return nodes.add("Concat", strings, strings, axis=0), (2 * shape[0], *shape[1:])
        case "repeated":
            return nodes.add("Unsqueeze", strings, w.integers(0).name), (1, *shape)
    return strings, shape


def _start(w: Walk, words: tuple[str, ...] = _WORDS) -> tuple[Nodes, str, tuple[int, ...]]:
    nodes = Nodes(w)
    strings, shape = _strings(w, nodes, words)
    for _ in range(w.number(0, 2)):
        strings, shape = _moved(w, strings, shape, nodes)
    if not all(shape):
        raise Rejected("no strings")
    return nodes, strings, shape


@space("StringConcat")
def _concatenated(w: Walk, name: str) -> object:
    """Strings that are compared with others, or read as numbers."""
    are_numbers = w.chance(0.4)
    words, ends = (_NUMBERS, ("", "0", "1", "e1")) if are_numbers else (_WORDS, _WORDS)
    nodes, strings, shape = _start(w, words)
    others = strings if w.chance(0.2) else _constant(w, nodes, ends, shape if w.chance(0.5) else ())
    if are_numbers:
        return nodes.step(
            nodes.add("Cast", nodes.add(name, strings, others), to=helper.np_dtype_to_tensor_dtype(np.dtype(w.floats)))
        )
    joined = nodes.add(name, *((strings, others) if w.chance(0.5) else (others, strings)))
    looked_for = tuple(a + b for a in (*words[:4], "1", "-3") for b in words[:4])
    right = _constant(w, nodes, looked_for, shape if w.chance(0.5) else ())
    return nodes.step(nodes.add("Equal", joined, right))


@space("StringSplit")
def _split(w: Walk, name: str) -> object:
    nodes, strings, _ = _start(w)
    attributes: dict[str, Any] = {}
    if w.chance(0.5):
        attributes["delimiter"] = w.one("a", ",", "", "b")
    if w.chance(0.4):
        attributes["maxsplit"] = w.number(1, 2)
    return nodes.step(nodes.add_several(name, 2, strings, **attributes)[1])


@space("RegexFullMatch")
def _matched(w: Walk, name: str) -> object:
    nodes, strings, _ = _start(w)
    return nodes.step(nodes.add(name, strings, pattern=w.one(*_PATTERNS)))


WITH_STRINGS = frozenset(("RegexFullMatch", "StringConcat", "StringSplit"))
"""Entries whose steps are of several nodes."""
