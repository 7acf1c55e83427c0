"""ONNX's own node tests as data: a model, inputs, expected outputs, and what a static compiler must be told of them."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

__all__ = ["SUITES", "Case", "collect", "mismatch", "sample", "stored"]

_STORED = ("simple", "pytorch-operator", "pytorch-converted")


@dataclass(frozen=True, eq=False)
class Case:
    """One node test.

    Attributes:
        inputs, outputs: arrays, lists of arrays for sequences, None for optionals that are not there; by name.
        rtol, atol: the test's own tolerances.
    """

    name: str
    model: onnx.ModelProto
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    rtol: float
    atol: float

    @property
    def operators(self) -> set[str]:
        """Operators of the nodes, without those of subgraphs."""
        return {node.op_type for node in self.model.graph.node}

    def fixable(self) -> dict[str, Any]:
        """Inputs that can hold shapes, axes, counts and the like: tensors of rank 0 or 1, the first one only if it is a
        scalar, integers, booleans or strings."""
        first = next(iter(self.inputs), None)
        found = {}
        for name, value in self.inputs.items():
            if not isinstance(value, np.ndarray) or value.ndim > 1:
                continue
            if name != first or value.ndim == 0 or value.dtype.kind in "iubO":
                found[name] = value
        return found


def collect() -> list[Case]:
    """All node tests of the installed package onnx, in its order."""
    from onnx.backend.test.case import base
    from onnx.backend.test.case.node import collect_testcases

    base.process_snippet = lambda *_: None  # it reads each test's source, for onnx's own pages
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [_case(case) for case in collect_testcases(None)]


def _case(case: Any) -> Case:
    inputs, outputs = case.data_sets[0]
    graph = case.model.graph
    return Case(
        case.name,
        case.model,
        {info.name: _plain(value) for info, value in zip(graph.input, inputs, strict=False)},
        {info.name: _plain(value) for info, value in zip(graph.output, outputs, strict=False)},
        case.rtol,
        case.atol,
    )


def stored() -> list[Case]:
    """The small models that the package onnx carries with inputs and outputs: made by hand, or exported by PyTorch."""
    root = Path(onnx.__file__).parent / "backend" / "test" / "data"
    folders = sorted(path.parent for kind in _STORED for path in (root / kind).glob("*/model.onnx"))
    return [_stored(folder) for folder in folders if (folder / "test_data_set_0").is_dir()]


def _stored(folder: Path) -> Case:
    proto = onnx.load(folder / "model.onnx")
    known = {tensor.name for tensor in proto.graph.initializer}
    inputs = [info for info in proto.graph.input if info.name not in known]
    data = folder / "test_data_set_0"
    return Case(
        f"{folder.parent.name}/{folder.name}",
        proto,
        {info.name: _read(data / f"input_{index}.pb", info) for index, info in enumerate(inputs)},
        {info.name: _read(data / f"output_{index}.pb", info) for index, info in enumerate(proto.graph.output)},
        1e-3,
        1e-5,
    )


def _read(path: Path, info: onnx.ValueInfoProto) -> Any:
    kinds = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}
    proto = kinds.get(info.type.WhichOneof("value"), onnx.TensorProto)()
    proto.ParseFromString(path.read_bytes())
    return _plain(proto)


def _plain(value: Any) -> Any:
    match value:
        case None:
            return None
        case onnx.TensorProto():
            return numpy_helper.to_array(value)
        case onnx.SequenceProto():
            return [_plain(item) for item in numpy_helper.to_list(value)]
        case onnx.OptionalProto():
            return _plain(numpy_helper.to_optional(value))
        case list() | tuple():
            return [_plain(item) for item in value]
    return np.asarray(value)


def sample(cases: list[Case], count: int, always: tuple[str, ...]) -> list[Case]:
    """`count` cases by the hash of their names, all whose names begin with one of `always`, each operator once."""
    ordered = sorted(cases, key=lambda case: hashlib.sha256(case.name.encode()).digest())
    chosen = {case.name for case in ordered[:count]}
    chosen |= {case.name for case in cases if case.name.startswith(always)}
    covered = {operator for case in cases if case.name in chosen for operator in case.operators}
    for case in ordered:
        if not case.operators <= covered:
            chosen.add(case.name)
            covered |= case.operators
    return [case for case in cases if case.name in chosen]


def mismatch(case: Case, found: dict[str, Any]) -> str | None:
    """How results differ from what is expected; None if they do not.

    Relative differences up to the test's own tolerance or 1e-3, whichever is larger, are none; absolute ones up to
    the test's own or 1e-5.
    """
    for name, expected in case.outputs.items():
        for path, left, right in _pairs(name, found.get(name), expected):
            text = _difference(left, right, max(case.rtol, 1e-3), max(case.atol, 1e-5))
            if text is not None:
                return f"{path}: {text}"
    return None


def _pairs(name: str, found: Any, expected: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, (left, right) in enumerate(zip(found, expected, strict=True)):
            yield from _pairs(f"{name}.{index}", left, right)
    else:
        yield name, found, expected


def _difference(found: Any, expected: Any, rtol: float, atol: float) -> str | None:
    if not isinstance(found, np.ndarray) or not isinstance(expected, np.ndarray):
        return None if found is None and expected is None else f"{_kind(found)} instead of {_kind(expected)}"
    if found.shape != expected.shape:
        return f"shape {list(found.shape)} instead of {list(expected.shape)}"
    if found.dtype != expected.dtype:
        return f"{found.dtype} instead of {expected.dtype}"
    if found.dtype.kind in "OSU" or found.dtype.kind in "biu":
        return None if np.array_equal(found, expected) else "other values"
    left, right = (_wide(array) for array in (found, expected))
    if np.allclose(left, right, rtol=rtol, atol=atol, equal_nan=True):
        return None
    with np.errstate(all="ignore"):
        worst = np.nanmax(np.abs(left - right))
    return f"other values, by {worst:.3g} at most"


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _kind(value: Any) -> str:
    return f"a sequence of {len(value)}" if isinstance(value, list) else "nothing" if value is None else "a tensor"


SUITES: dict[str, Callable[[], list[Case]]] = {"node": collect, "stored": stored}
"""Sets of tests by name."""
