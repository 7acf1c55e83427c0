"""Nodes of one operator each, many of them compiled as one network, and what others compute for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from nnefc.driver.compile import compile_network
from nnefc.frontends.onnx import load
from nnefc.targets.machine.cpu.parsing import parse_target

HOST = parse_target("llvm")

SAMPLE_AND_ALL = pytest.mark.parametrize(
    "whole", [pytest.param(False, id="sample"), pytest.param(True, id="all", marks=pytest.mark.slow)]
)
"""Runs a test on a sample of its cases, and on all of them in `make test-all`."""


@dataclass(frozen=True)
class Case:
    """One node. `constant` counts the inputs that are initializers; None is an input left out.

    `types` are those of outputs that are not float32, by their locations, where shape inference does not know them.
    """

    op: str
    inputs: Sequence[np.ndarray | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constant: frozenset[int] = frozenset()
    outputs: int = 1
    domain: str = ""
    types: Mapping[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        shapes = [None if x is None else f"{x.dtype}{list(x.shape)}" for x in self.inputs]
        return f"{self.op}({shapes}, {dict(self.attributes)})"


def sample(cases: Sequence[Case], whole: bool = False) -> list[int]:
    """Returns the indices of few cases that have every feature of all of them, or of all cases where `whole` is set.

    The features of an operator are the ranks and element types of its inputs, which of them are constants or left out,
    and the values of its attributes.
    """
    if whole:
        return list(range(len(cases)))
    features = [_features(case) for case in cases]
    missing = set().union(*features)
    chosen = []
    while missing:
        best = max(range(len(cases)), key=lambda index: (len(features[index] & missing), -index))
        chosen.append(best)
        missing -= features[best]
    return sorted(chosen)


def _features(case: Case) -> set[tuple[object, ...]]:
    found: set[tuple[object, ...]] = {(case.op, case.outputs, len(case.inputs))}
    for index, array in enumerate(case.inputs):
        found.add((case.op, index, None if array is None else (array.dtype.name, index in case.constant)))
        if array is not None:
            found.add((case.op, index, "rank", array.ndim))
    for name, value in case.attributes.items():
        found.add((case.op, name, "list" if isinstance(value, list) else value))
    return found


def model_of(cases: Sequence[Case], opset: int) -> onnx.ModelProto:
    """A model with a node for each case; inputs are `x{case}_{index}`, outputs `y{case}_{index}`."""
    nodes, inputs, outputs, initializers = [], [], [], []
    for number, case in enumerate(cases):
        names = []
        for index, array in enumerate(case.inputs):
            name = "" if array is None else f"x{number}_{index}"
            names.append(name)
            if array is None:
                continue
            if index in case.constant:
                initializers.append(onnx.numpy_helper.from_array(array, name))
                continue
            kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
        made = [f"y{number}_{index}" for index in range(case.outputs)]
        nodes.append(onnx.helper.make_node(case.op, names, made, domain=case.domain, **case.attributes))
        outputs += [onnx.ValueInfoProto(name=name) for name in made]
    graph = onnx.helper.make_graph(nodes, "cases", inputs, outputs, initializers)
    domains = {case.domain for case in cases if case.domain}
    imports = [onnx.helper.make_opsetid("", opset), *(onnx.helper.make_opsetid(domain, 1) for domain in domains)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(model)
    kinds = {info.name: info for info in inferred.graph.output}
    declared_types = {
        f"y{number}_{index}": kind for number, case in enumerate(cases) for index, kind in case.types.items()
    }
    for info in model.graph.output:
        kind = kinds[info.name].type.tensor_type.elem_type or declared_types.get(info.name)
        info.type.tensor_type.elem_type = kind or onnx.TensorProto.FLOAT
    return model


def feeds_of(cases: Sequence[Case]) -> dict[str, np.ndarray]:
    """The inputs that are not initializers."""
    return {
        f"x{number}_{index}": array
        for number, case in enumerate(cases)
        for index, array in enumerate(case.inputs)
        if array is not None and index not in case.constant
    }


def compiled(cases: Sequence[Case], opset: int, threads: int = 1, target: str = "llvm") -> list[list[np.ndarray]]:
    """What nnefc's library computes: the outputs of every case. One compilation for all."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model_of(cases, opset).SerializeToString())
        network = load(path)
    with compile_network(network, parse_target(target)).load(threads=threads) as model:
        results = model.run(feeds_of(cases))
    return _by_case(cases, results)


def onnxruntime_session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """One of a single thread: what several share, onnxruntime quantizes in parts, each with a scale of its own."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def by_onnxruntime(cases: Sequence[Case], opset: int) -> list[list[np.ndarray]]:
    """What onnxruntime computes."""
    session = onnxruntime_session(model_of(cases, opset))
    names = [output.name for output in session.get_outputs()]
    return _by_case(cases, dict(zip(names, session.run(names, feeds_of(cases)), strict=True)))


def by_reference(cases: Sequence[Case], opset: int) -> list[list[np.ndarray]]:
    """What ONNX's reference implementation computes."""
    evaluator = ReferenceEvaluator(model_of(cases, opset))
    return _by_case(cases, dict(zip(evaluator.output_names, evaluator.run(None, feeds_of(cases)), strict=True)))


def _by_case(cases: Sequence[Case], results: Mapping[str, np.ndarray]) -> list[list[np.ndarray]]:
    return [[np.asarray(results[f"y{n}_{i}"]) for i in range(case.outputs)] for n, case in enumerate(cases)]


def check(
    cases: Sequence[Case], found: list[list[np.ndarray]], wanted: list[list[np.ndarray]], tolerance: float = 1e-5
) -> None:
    """Compare: integers and booleans exactly, reals within `tolerance` of the largest."""
    for case, got, want in zip(cases, found, wanted, strict=True):
        for one, other in zip(got, want, strict=True):
            assert one.shape == other.shape, f"{case}: {one.shape} is not {other.shape}"
            assert one.dtype == other.dtype, f"{case}: {one.dtype} is not {other.dtype}"
            if other.dtype.kind in "biu":
                np.testing.assert_array_equal(one, other, err_msg=str(case))
            else:
                limit = tolerance * max(1.0, float(np.abs(other[np.isfinite(other)]).max(initial=0)))
                np.testing.assert_allclose(one, other, rtol=tolerance, atol=limit, err_msg=str(case))
