"""Operators of ONNX that random graphs have not, with what NumPy computes for them in float64."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx.parser
from onnx import helper, numpy_helper

import nnefc

__all__ = ["CASES", "ELSEWHERE", "Case", "check"]

Array = npt.NDArray[Any]
RNG = np.random.default_rng(31)
_TYPES = {"float32": "float", "int64": "int64", "int32": "int32", "bool": "bool", "int8": "int8", "uint8": "uint8"}


def real(*shape: int) -> Array:
    """Random numbers in float32."""
    return RNG.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """Nodes of ONNX, and what they give.

    Attributes:
        operator: that is computed, with its domain where that is not ONNX's own.
        nodes: in ONNX's text; their results are called y, z, …, those that are compared y alone.
        imports: operator sets, in ONNX's text.
        inputs: by name.
        expected: `y` of the inputs, and of the constants by their names; of reals in float64.
        constants: by name.
        attributes: of the first node, those that the text does not say.
        result: the element type of `y`.
    """

    operator: str
    nodes: str
    imports: str
    inputs: Mapping[str, Array]
    expected: Callable[..., Array]
    constants: Mapping[str, Array]
    attributes: Mapping[str, Any]
    result: str = "float"
    tolerance: float = 1e-5

    def __str__(self) -> str:
        return self.operator

    def model(self) -> onnx.ModelProto:
        """The model."""
        inputs = ", ".join(f"{_TYPES[v.dtype.name]}{list(v.shape)} {name}" for name, v in self.inputs.items())
        text = f"<ir_version: 8, opset_import: [{self.imports}]> g ({inputs}) => ({self.result} y) {{ {self.nodes} }}"
        made = onnx.parser.parse_model(text)
        made.graph.initializer.extend(numpy_helper.from_array(v, name) for name, v in self.constants.items())
        made.graph.node[0].attribute.extend(helper.make_attribute(name, v) for name, v in self.attributes.items())
        made.graph.output[0].type.tensor_type.ClearField("shape")
        return made


def case(
    operator: str, nodes: str, imports: str, inputs: Mapping[str, Array], expected: Callable[..., Array], **more: Any
) -> Case:
    """A case whose constants and attributes may be left out."""
    return Case(operator, nodes, imports, inputs, expected, **{"constants": {}, "attributes": {}} | more)


def check(one: Case, folder: Path) -> None:
    """Compile, and compare."""
    path = folder / "model.onnx"
    onnx.save(one.model(), path)
    with nnefc.compile(path).load(threads=1) as library:
        found = library.run(dict(one.inputs))["y"]
    given = {
        name: value.astype(np.float64) if value.dtype.kind == "f" else value
        for name, value in {**one.inputs, **one.constants}.items()
    }
    wanted = np.asarray(one.expected(**given))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, one.tolerance, one.tolerance)


def _blocked(x: Array, scores: Array) -> Array:
    """Words that would end a sequence of two for a second time."""
    found = scores.copy()
    for row, words in enumerate(x):
        for before, after in itertools.pairwise(words):
            if before == words[-1]:
                found[row, after] = -np.inf
    return found


def _scattered(x: Array, i: Array, u: Array) -> Array:
    found = x.copy()
    np.put_along_axis(found, i, u, 1)
    return found


_VECTORS, _WEIGHTS, _RHO = real(6, 4), real(2, 6), real(3)


def _votes(x: Array) -> Array:
    """Decisions of three classes with two support vectors each (Chang, Lin, 2011), by a kernel of Gauss."""
    vectors, weights = _VECTORS.astype(np.float64), _WEIGHTS.astype(np.float64)
    kernel = np.exp(-0.5 * ((x[:, None] - vectors) ** 2).sum(2))
    pairs = [(0, 1), (0, 2), (1, 2)]
    rows = []
    for number, (one, other) in enumerate(pairs):
        first, second = slice(2 * one, 2 * one + 2), slice(2 * other, 2 * other + 2)
        sums = kernel[:, first] @ weights[other - 1, first] + kernel[:, second] @ weights[one, second]
        rows.append(sums + float(_RHO[number]))
    return np.stack(rows, 1)


def _quantized(x: Array) -> Array:
    """Rounded to bytes by its own range, as `DynamicQuantizeLinear` does it."""
    minimum, maximum = min(x.min(), 0.0), max(x.max(), 0.0)
    step = (maximum - minimum) / 255
    zero = np.clip(np.rint(-minimum / step), 0, 255)
    return np.asarray((np.clip(np.rint(x / step) + zero, 0, 255) - zero) * step)


def _lstm(x: Array, w: Array, r: Array, ws: Array, wz: Array, rs: Array, rz: Array) -> Array:
    """Gates are in, out, forget, new."""
    inward, back = (w[0] - wz.astype(int)) * ws, (r[0] - rz.astype(int)) * rs
    hidden = cell = np.zeros((x.shape[1], 3))
    rows = []
    for step in _quantized(x):
        gates = step @ inward + (_quantized(hidden) @ back if hidden.any() else 0)
        enter, leave, keep, new = np.split(gates, 4, 1)
        cell = cell / (1 + np.exp(-keep)) + np.tanh(new) / (1 + np.exp(-enter))
        hidden = np.tanh(cell) / (1 + np.exp(-leave))
        rows.append(hidden[None])
    return np.stack(rows)


def _attended(q: Array, k: Array, v: Array) -> Array:
    scores = np.exp(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]))
    return scores / scores.sum(-1, keepdims=True) @ v


_ML, _OWN = '"" : 17, "ai.onnx.ml" : {}', '"" : 17, "com.microsoft" : 1'
_BYTES = {
    "w": RNG.integers(-100, 100, (1, 4, 12)).astype(np.int8),
    "r": RNG.integers(-100, 100, (1, 3, 12)).astype(np.int8),
    "ws": np.array([0.01], np.float32),
    "wz": np.array([0], np.int8),
    "rs": np.array([0.02], np.float32),
    "rz": np.array([0], np.int8),
}
_TREE = {
    "tree_roots": [0],
    "nodes_featureids": [0, 2, 1],
    "nodes_splits": numpy_helper.from_array(np.array([0.1, -0.2, 0.3], np.float32)),
    "nodes_modes": numpy_helper.from_array(np.array([0, 0, 0], np.uint8)),  # x <= split
    "nodes_truenodeids": [1, 0, 2],
    "nodes_trueleafs": [0, 1, 1],
    "nodes_falsenodeids": [2, 1, 3],
    "nodes_falseleafs": [0, 1, 1],
    "leaf_targetids": [0, 0, 0, 0],
    "leaf_weights": numpy_helper.from_array(np.array([1.5, -2.0, 0.25, 4.0], np.float32)),
    "n_targets": 1,
}

CASES: Sequence[Case] = [
    case(
        "Upsample", 'y = Upsample <mode = "nearest"> (x, s)', '"" : 9', {"x": real(1, 2, 3, 4)},
        lambda x, s: x.repeat(2, 2).repeat(3, 3), constants={"s": np.array([1, 1, 2, 3], np.float32)},
    ),
    case(
        "Scatter", "y = Scatter <axis = 1> (x, i, u)", '"" : 9',
        {"x": real(3, 5), "i": np.array([[0, 4], [2, 1], [3, 0]]), "u": real(3, 2)}, _scattered,
    ),
    case(
        "com.microsoft.NGramRepeatBlock", "y = com.microsoft.NGramRepeatBlock <ngram_size = 2> (x, scores)", _OWN,
        {"x": np.array([[3, 1, 3, 2, 3], [0, 1, 2, 4, 0]]), "scores": real(2, 6)}, _blocked,
    ),
    case(
        "com.microsoft.DynamicQuantizeLSTM",
        "y = com.microsoft.DynamicQuantizeLSTM <hidden_size = 3> (x, w, r, , , , , , ws, wz, rs, rz)", _OWN,
        {"x": real(5, 1, 4)}, _lstm, constants=_BYTES, tolerance=1e-4,
    ),
    case(
        "ai.onnx.ml.SVMClassifier", "l, y = ai.onnx.ml.SVMClassifier (x)", _ML.format(1), {"x": real(7, 4)}, _votes,
        attributes={
            "kernel_type": "RBF", "kernel_params": [0.5, 0.0, 0.0], "classlabels_ints": [0, 1, 2],
            "vectors_per_class": [2, 2, 2], "support_vectors": _VECTORS.ravel().tolist(),
            "coefficients": _WEIGHTS.ravel().tolist(), "rho": _RHO.tolist(),
        },
    ),
    case(
        "ai.onnx.ml.TreeEnsemble", "y = ai.onnx.ml.TreeEnsemble (x)", _ML.format(5), {"x": real(9, 3)},
        lambda x: np.where(
            x[:, :1] <= np.float32(0.1), np.where(x[:, 2:] <= np.float32(-0.2), 1.5, -2.0),
            np.where(x[:, 1:2] <= np.float32(0.3), 0.25, 4.0),
        ),
        attributes=_TREE,
    ),
    case(
        "ai.onnx.preview.FlexAttention", "y = ai.onnx.preview.FlexAttention (q, k, v)",
        '"" : 23, "ai.onnx.preview" : 1', {"q": real(1, 2, 5, 8), "k": real(1, 2, 7, 8), "v": real(1, 2, 7, 3)},
        _attended,
    ),
    case(
        "ai.onnx.preview.training.Gradient",
        'p = Mul (x, x) z = Mul (p, k) y = ai.onnx.preview.training.Gradient <xs = ["x"], zs = ["k"], y = "z"> (a, k)',
        '"" : 17, "ai.onnx.preview.training" : 1', {"x": real(2, 3), "k": real(2, 3), "a": real(2, 3)},
        lambda x, k, a: 2 * a * k,
    ),
]  # fmt: skip

_ONNX = "tests/frontends/onnx"
ELSEWHERE: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        (f"{_ONNX}/operators/test_operators_random.py", "random: the generator's words, and how numbers are spread"),
    ),
    "ImageDecoder": (f"{_ONNX}/test_onnx_images.py", "takes files of images"),
    "StringNormalizer": (f"{_ONNX}/test_onnx_text.py", "strings"),
    "com.microsoft.Tokenizer": (f"{_ONNX}/test_onnx_text.py", "strings"),
    "ai.onnx.ml.CategoryMapper": (f"{_ONNX}/test_onnx_labels.py", "strings"),
    "ai.onnx.ml.CastMap": (f"{_ONNX}/operators/test_operators_classical.py", "takes a map"),
    "ai.onnx.ml.DictVectorizer": (f"{_ONNX}/operators/test_operators_classical.py", "takes a map"),
    "ai.onnx.ml.ZipMap": (f"{_ONNX}/operators/test_operators_classical.py", "gives maps"),
}
"""Operators whose results are no function of numbers: the file of the tests that compare them, and why."""
