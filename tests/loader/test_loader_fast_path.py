"""Calls with arrays of exactly the inputs' types and shapes, whose results are those of all other calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import nnefc
from nnefc.loader import Model, RunError

_FLOAT = TensorProto.FLOAT
_SMALL, _LARGE = 3, 3000
"""Elements of tensors that are copied, and of tensors that are not."""


def _compiled(folder: Path, nodes: list[onnx.NodeProto], inputs: dict[str, Any], outputs: dict[str, Any]) -> Path:
    infos = [
        [helper.make_tensor_value_info(name, _FLOAT, shape) for name, shape in side.items()]
        for side in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "network", *infos)
    nnefc.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])).export(folder / "network.so")
    return folder / "network.so"


@pytest.fixture(scope="module")
def negation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = -x for any number of rows."""
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    return _compiled(tmp_path_factory.mktemp("negation"), nodes, {"x": ["rows", _SMALL]}, {"y": ["rows", _SMALL]})


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small and large inputs and outputs: sum = a + b, c = -d."""
    nodes = [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Neg", ["d"], ["c"])]
    inputs = {"a": [_SMALL], "d": [_LARGE], "b": [_SMALL]}
    return _compiled(tmp_path_factory.mktemp("pair"), nodes, inputs, {"c": [_LARGE], "sum": [_SMALL]})


@pytest.fixture
def model(negation: Path) -> Iterator[Model]:
    with nnefc.load(negation, threads=1) as loaded:
        for _ in range(3):  # the sizes are those of calls before
            loaded(_rows(2, 0))
        yield loaded


def _rows(count: int, value: float) -> np.ndarray:
    return np.full((count, _SMALL), value, np.float32)


def _values(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    sizes = {"a": _SMALL, "d": _LARGE, "b": _SMALL}
    return {name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()}


def test_results_are_arrays_of_their_own(model: Model) -> None:
    x = _rows(2, 1)
    results = []
    for value in range(4):
        x[:] = value
        results.append(model(x))
    assert model._session.run_exact((x,)) is not None, "these are such calls"
    assert [result.tolist() for result in results] == [_rows(2, -value).tolist() for value in range(4)]
    assert all(result.flags.owndata and result.flags.writeable for result in results)


def test_several_inputs_and_outputs_by_position_and_name(pair: Path) -> None:
    with nnefc.load(pair, threads=1) as model:
        for seed in range(3):
            values = _values(seed)
            assert model._session.run_exact(tuple(values.values())) is not None, "these are such calls"
            for c, total in (
                model(*values.values()),
                model.run(values).values(),
                model.run(dict(reversed(values.items()))).values(),
                model(**values),
                model.run(values, outputs=["c", "sum"]).values(),
            ):
                np.testing.assert_array_equal(c, -values["d"])
                np.testing.assert_array_equal(total, values["a"] + values["b"])
        found = model.run(values, outputs=["sum"])
        np.testing.assert_array_equal(found["sum"], values["a"] + values["b"])
        assert list(found) == ["sum"]
        np.testing.assert_array_equal(model(*values.values())[0], -values["d"], "all outputs again")


def test_outputs_in_arrays_of_the_caller(pair: Path) -> None:
    with nnefc.load(pair, threads=1) as model:
        values = _values(5)
        out = {"c": np.empty(_LARGE, np.float32), "sum": np.empty(_SMALL, np.float32)}
        found = model.run(values, out)
        assert all(found[name] is array for name, array in out.items())
        np.testing.assert_array_equal(out["c"], -values["d"])
        np.testing.assert_array_equal(out["sum"], values["a"] + values["b"])
        large = np.empty(_LARGE, np.float32)
        for targets in ((large, large[:_SMALL]), (values["d"], out["sum"]), (large, values["a"][::1])):
            with pytest.raises(RunError, match="overlaps"):
                model(*values.values(), out=targets)


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        (np.empty((2, _SMALL), np.float64), "float64"),
        (np.empty((_SMALL, 2), np.float32), "shape"),
        (np.empty((2, 2 * _SMALL), np.float32)[:, ::2], "dense"),
        (np.broadcast_to(np.float32(0), (2, _SMALL)), "writable"),
    ],
    ids=["type", "shape", "strided", "read-only"],
)
def test_arrays_that_do_not_fit_are_refused_after_calls_with_others(model: Model, out: Any, reason: str) -> None:
    x = _rows(2, 1)
    model(x, out=np.empty_like(x))
    with pytest.raises(RunError, match=reason):
        model(x, out=out)
    with pytest.raises(RunError, match="overlaps"):
        model(x, out=x)
    with pytest.raises(RunError, match="float64"):
        model(x.astype(np.float64))
    with pytest.raises(RunError, match="missing"):
        model()


def test_sizes_change_between_calls(model: Model) -> None:
    for rows in (2, 2, 5, 2, 5, 5, 5, 0, 0, 0, 2000, 2000, 2000, 1):
        np.testing.assert_array_equal(model(_rows(rows, rows)), _rows(rows, -rows))
    model.reserve({"rows": 3000})
    np.testing.assert_array_equal(model(_rows(1, 7)), _rows(1, -7))


def test_threads_that_share_a_model_get_their_own_results(model: Model) -> None:
    wrong: list[float] = []

    def work(value: int) -> None:
        x, out = _rows(1 + value % 2, value), _rows(1 + value % 2, 0)
        for _ in range(300):
            if not (model(x) == -value).all() or not (model(x, out=out) == -value).all():
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(value,)) for value in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_closed_model_runs_no_longer(negation: Path) -> None:
    with nnefc.load(negation, threads=1) as model:
        for _ in range(3):
            model(_rows(1, 1))
    with pytest.raises(RunError, match="closed"):
        model(_rows(1, 1))
