"""Every operation of NNEF through the whole compiler: a document, a library, numbers of an independent reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import nnef_reference as reference
import numpy as np
import pytest
import test_operations_compound
import test_operations_elementwise
import test_operations_roi
import test_operations_shape
import test_operations_window
from nnef_cases import Case, compare, document, inputs_of

import nnefc
from nnefc.frontends.nnef.declarations import STANDARD, Dialect
from nnefc.frontends.nnef.evaluation import evaluate
from nnefc.frontends.nnef.language.parser import parse

Cases = Sequence[Case]


def wide_cases() -> list[Case]:
    """Sizes beyond a vector and a block of any schedule, none of them a multiple of anything."""
    rng = np.random.default_rng(31)

    def values(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    cases = []
    for shape, filter_, bias, options in (
        ((1, 17, 19, 23), (35, 17, 3, 3), (1, 35), ""),
        ((1, 17, 19, 23), (35, 17, 1, 1), (1, 35), ", stride = [2, 2], padding = [(0, 0), (0, 0)]"),
        ((2, 37, 11, 13), (37, 1, 3, 3), (1, 37), ", groups = 0"),
        ((1, 6, 101), (36, 2, 7), (1, 36), ", groups = 3, dilation = [2]"),
        ((1, 5, 5, 7, 9), (19, 5, 3, 3, 3), (1, 19), ", padding = [(1, 1), (0, 2), (1, 0)]"),
    ):
        x, w, b = values(*shape), values(*filter_) / 8, values(*bias)
        statement = f"$s = conv($x, $w, $b{options}); $y = relu($s);"
        expected = np.maximum(eval(f"reference.conv(x, w, b{options})"), 0)
        cases.append(Case(statement, {"x": x, "w": w, "b": b}, {"y": expected}, 1e-4, frozenset({"w", "b"})))
    x, w = values(1, 19, 7, 9), values(19, 21, 3, 3) / 8
    expected = reference.deconv(x, w, stride=[2, 2])
    cases.append(Case("$y = deconv($x, $w, stride = [2, 2]);", {"x": x, "w": w}, {"y": expected}, 1e-4))
    a, b = values(67, 133), values(133, 39)
    cases.append(Case("$y = matmul($a, $b);", {"a": a, "b": b}, {"y": a.astype(np.float64) @ b}, 1e-4))
    a, b = values(3, 29, 41), values(3, 35, 41)
    product = np.einsum("nik,njk->nij", a.astype(np.float64), b)
    cases.append(Case("$y = matmul($a, $b, transposeB = true);", {"a": a, "b": b}, {"y": product}, 1e-4))
    x = values(3, 1003)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    cases.append(Case("$y = softmax($x);", {"x": x}, {"y": e / e.sum(1, keepdims=True)}))
    x, scale = values(2, 37, 13, 11), values(1, 37)
    cases.append(
        Case(
            "$p = $x * $s + 1.0; $q = max_reduce($p, axes = [2, 3]); $y = sigmoid($p - $q); "
            "$m = mean_reduce($p, axes = [1]);",
            {"x": x, "s": scale},
            _chain(x.astype(np.float64), scale.astype(np.float64)),
        )
    )
    x = values(1, 35, 17, 21)
    pooled = reference.max_pool(x, (1, 1, 3, 3), stride=(1, 1, 2, 2), border="ignore")
    cases.append(
        Case(
            "$y = max_pool($x, size = [1, 1, 3, 3], stride = [1, 1, 2, 2], border = 'ignore');", {"x": x}, {"y": pooled}
        )
    )
    cases.append(Case("$y = transpose($x, axes = [0, 2, 3, 1]);", {"x": x}, {"y": x.transpose(0, 2, 3, 1)}))
    positions = x.reshape(35, -1).argmax(0).reshape(1, 1, 17, 21).astype(np.int32)
    cases.append(Case("$i = argmax_reduce($x, axes = [1]);", {"x": x}, {"i": positions}))
    return cases


def _chain(x: np.ndarray, scale: np.ndarray) -> dict[str, np.ndarray]:
    p = x * scale[:, :, None, None] + 1
    return {"y": 1 / (1 + np.exp(p.max((2, 3), keepdims=True) - p)), "m": p.mean(1, keepdims=True)}


GROUPS: dict[str, tuple[Callable[[], Cases], str]] = {
    "element-wise": (lambda: test_operations_elementwise.FINAL, "final"),
    "element-wise, provisional": (lambda: test_operations_elementwise.PROVISIONAL, "provisional"),
    "shape and reduction": (lambda: test_operations_shape.FINAL, "final"),
    "shape and reduction, provisional": (lambda: test_operations_shape.PROVISIONAL, "provisional"),
    "compound": (lambda: test_operations_compound.FINAL, "final"),
    "compound, provisional": (lambda: test_operations_compound.PROVISIONAL, "provisional"),
    "regions of interest": (test_operations_roi.cases, "final"),
    "pools": (lambda: test_operations_window.pool_cases(31, spatial_only=False), "final"),
    "spatial pools": (lambda: test_operations_window.pool_cases(32, spatial_only=True)[::3], "provisional"),
    "transposed windows": (lambda: test_operations_window.transposed_cases(33, output_shapes=True), "final"),
    "transposed windows, provisional": (
        lambda: test_operations_window.transposed_cases(38, output_shapes=False)[::3],
        "provisional",
    ),
    "convolution": (lambda: test_operations_window.conv_cases(34, "final"), "final"),
    "planewise convolution": (lambda: test_operations_window.conv_cases(35, "provisional")[::2], "provisional"),
    "transposed convolution": (lambda: test_operations_window.deconv_cases(36, "final"), "final"),
    "planewise transposed convolution": (
        lambda: test_operations_window.deconv_cases(37, "provisional")[::2],
        "provisional",
    ),
    "large sizes": (wide_cases, "final"),
}


STEPS = {
    "element-wise": 3,
    "compound, provisional": 3,
    "pools": 5,
    "spatial pools": 3,
    "transposed windows": 4,
    "convolution": 3,
    "planewise convolution": 3,
    "transposed convolution": 3,
}
"""Groups of which `make test` takes every so manieth case: windows of random sizes, and what both dialects have."""


@pytest.mark.parametrize(
    ("group", "step"),
    [
        *(pytest.param(group, STEPS.get(group, 1), id=group) for group in GROUPS),
        *(pytest.param(group, 1, id=f"{group}, all", marks=pytest.mark.slow) for group in STEPS),
    ],
)
@pytest.mark.sample(1)
def test_libraries_compute_what_the_standard_says(group: str, step: int, tmp_path: Path) -> None:
    make, dialect = GROUPS[group]
    cases = make()[::step]
    text, names = document(cases, dialect)
    (tmp_path / "graph.nnef").write_text(text)
    artifact = nnefc.compile(tmp_path, dialect=dialect)
    artifact.export(tmp_path / "cases.so")
    with nnefc.load(tmp_path / "cases.so", threads=2) as library:
        assert [output.name for output in library.outputs] == names
        inputs = dict(zip([port.name for port in library.inputs], inputs_of(cases), strict=True))
        results = library.run(inputs)
    compare(cases, [results[name] for name in names])


# Operations with variables or with inputs of a kind that the provisional dialect cannot declare; the final `select` and
# `desample` are lowered by the same functions.
ELSEWHERE = {"external", "variable", "update"}
LAYERS = {"conv_layer", "deconv_layer", "linear_layer", "max_pool_layer", "avg_pool_layer", "batch_normalization_layer"}
SHARED = {"select", "desample"}


@pytest.mark.slow
def test_no_operation_is_left_out() -> None:
    used = {dialect: set(ELSEWHERE) for dialect in Dialect}
    for make, dialect in GROUPS.values():
        text, _ = document(make(), dialect)
        flat = evaluate(parse(text, "cases", Dialect(dialect)), registry=STANDARD)
        used[Dialect(dialect)] |= {invocation.operation.name for invocation in flat.invocations}
    both = used[Dialect.FINAL] | used[Dialect.PROVISIONAL]
    missing = {
        (operation.name, *sorted(dialect.value for dialect in operation.dialects))
        for operation in STANDARD
        if operation.name not in LAYERS
        if operation.name
        not in (
            both if len(operation.dialects) == 2 or operation.name in SHARED else used[next(iter(operation.dialects))]
        )
    }
    assert not missing, sorted(missing)
