"""Models of single operators of TFLite: operands, cases, and one model for many cases, so that it is compiled once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tflite_files import Graph

__all__ = ["OUT", "QO", "RNG", "C", "Case", "F", "Q", "T", "family_model", "sample"]

RNG = np.random.default_rng(11)


@dataclass(frozen=True, eq=False)
class T:
    """An operand: an input with random elements between `low` and `high`, or a constant."""

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    value: Any = None
    scale: Any = None
    zero: Any = 0
    axis: int = 0
    low: float = -3.0
    high: float = 3.0
    fields: dict[str, Any] = field(default_factory=dict)

    def random(self) -> np.ndarray:
        """Values for a run."""
        if self.dtype == "bool":
            return RNG.integers(0, 2, self.shape).astype(bool)
        if self.dtype.startswith("float"):
            return RNG.uniform(self.low, self.high, self.shape).astype(self.dtype)
        ends = np.iinfo(self.dtype)
        narrow = ends.bits <= 16 and (self.low, self.high) == (-3.0, 3.0)
        low, high = (ends.min, ends.max) if narrow else (int(self.low), int(self.high))
        return RNG.integers(low, high, self.shape, dtype=self.dtype, endpoint=True)


@dataclass(frozen=True, eq=False)
class Case:
    """One operator.

    Attributes:
        tolerance: relative to the largest element, of results that are reals.
        apart: by how much results that are integers may differ.
    """

    name: str
    inputs: Sequence[T | None]
    outputs: Sequence[T]
    options: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 2e-6
    apart: int = 0


def sample(cases: Sequence[Case]) -> list[Case]:
    """Returns few cases that have every feature of all of them.

    The features of an operator are the element types that it reads and makes, and the values of its options.
    """
    features = [_features(case) for case in cases]
    missing = set().union(*features)
    chosen = set()
    while missing:
        best = max(range(len(cases)), key=lambda index: (len(features[index] & missing), -index))
        chosen.add(best)
        missing -= features[best]
    return [cases[index] for index in sorted(chosen)]


def _features(case: Case) -> set[tuple[object, ...]]:
    types = [each and each.dtype for each in (*case.inputs[:2], case.outputs[0])]
    return {(case.name, *types), *((case.name, name, repr(value)) for name, value in case.fields.items())}


def family_model(cases: Sequence[Case]) -> tuple[Graph, list[np.ndarray], list[Case]]:
    """The model of all cases, values of its inputs, and the case that each output is of."""
    graph, values, owners = Graph(), [], []
    for case in cases:
        given = []
        for each in case.inputs:
            if each is None:
                given.append(-1)
                continue
            tensor = dict(scale=each.scale, zero=each.zero, axis=each.axis, **each.fields)
            if each.fields.get("is_variable"):
                given.append(graph.tensor(each.shape, each.dtype, **tensor))
            elif each.value is None:
                given.append(graph.input(each.shape, each.dtype, **tensor))
                values.append(each.random())
            else:
                value = np.asarray(each.value)
                given.append(graph.tensor(value.shape, each.dtype, value, **tensor))
        made = [graph.output(o.shape, o.dtype, scale=o.scale, zero=o.zero, **o.fields) for o in case.outputs]
        graph.add(case.name, given, made, case.options, **case.fields)
        owners += [case] * len(made)
    return graph, values, owners


F = T
OUT = T()


def C(value: Any, dtype: str = "int32", **options: Any) -> T:
    """A constant."""
    array = np.asarray(value, "int8" if dtype in ("int4",) else dtype)
    return T(array.shape, dtype, array, **options)


def Q(*shape: int, dtype: str = "int8", scale: float = 0.03, zero: int | None = None) -> T:
    """A quantized input."""
    zero = {"int8": 5, "uint8": 121, "int16": 0}[dtype] if zero is None else zero
    return T(shape, dtype, scale=scale, zero=zero)


def QO(dtype: str = "int8", scale: float = 0.05, zero: int | None = None) -> T:
    """A quantized result."""
    zero = {"int8": -9, "uint8": 133, "int16": 0}[dtype] if zero is None else zero
    return T((), dtype, scale=scale, zero=zero)
