"""Ends runs between two kernels, from another thread and by the clock."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import nnefc
from nnefc.loader import Model, RunCancelled, RunError, RunTimedOut, SessionPool

_FOREVER = 1 << 60


def _loop() -> onnx.ModelProto:
    """Returns y = x + trips, by a loop of so many iterations."""
    value, flag = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL
    body = helper.make_graph(
        [helper.make_node("Add", ["before", "one"], ["after"]), helper.make_node("Identity", ["going"], ["goes"])],
        "body",
        [
            helper.make_tensor_value_info("i", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info("going", flag, []),
            helper.make_tensor_value_info("before", value, [5]),
        ],
        [helper.make_tensor_value_info("goes", flag, []), helper.make_tensor_value_info("after", value, [5])],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)],
        "loop",
        [
            helper.make_tensor_value_info("trips", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info("x", value, [5]),
        ],
        [helper.make_tensor_value_info("y", value, [5])],
        [onnx.numpy_helper.from_array(np.float32(1), "one")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with nnefc.compile(_loop()).load(threads=1) as loaded:
        yield loaded


def _run(model: Model | SessionPool, trips: int) -> np.ndarray:
    return model(np.int64(trips), np.arange(5, dtype=np.float32))


def _cancelled(model: Model) -> BaseException | None:
    """Returns what a run without an end raises when another thread cancels it."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            _run(model, _FOREVER)
        except RunError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        model.cancel()  # until the run has begun it does nothing
        thread.join(0.001)
    return raised[0] if raised else None


def test_another_thread_ends_a_run(model: Model) -> None:
    assert isinstance(_cancelled(model), RunCancelled)
    np.testing.assert_array_equal(_run(model, 3), np.arange(3, 8, dtype=np.float32))


def test_without_a_run_it_does_nothing(model: Model) -> None:
    model.cancel()
    np.testing.assert_array_equal(_run(model, 2), np.arange(2, 7, dtype=np.float32))


def test_other_sessions_go_on(model: Model) -> None:
    with model.session(threads=1) as other:
        stop = threading.Event()
        wrong: list[np.ndarray] = []

        def run() -> None:
            while not stop.is_set():
                found = _run(other, 10)
                if not np.array_equal(found, np.arange(10, 15, dtype=np.float32)):
                    wrong.append(found)

        thread = threading.Thread(target=run)
        thread.start()
        assert isinstance(_cancelled(model), RunCancelled)
        stop.set()
        thread.join()
        assert not wrong


def test_a_closed_session_has_nothing_to_end() -> None:
    model = nnefc.compile(_loop()).load(threads=1)
    model.close()
    model.cancel()


def test_a_time_limit_ends_each_later_run(model: Model) -> None:
    model.set_time_limit(0.001)
    for _ in range(2):
        with pytest.raises(TimeoutError, match=r"the run of \w+ took longer than its time limit") as error:
            _run(model, _FOREVER)
        assert isinstance(error.value, RunTimedOut)
    for limit in (None, float("inf")):
        model.set_time_limit(limit)
        np.testing.assert_array_equal(_run(model, 3), np.arange(3, 8, dtype=np.float32))
    model.set_time_limit(None)


def test_sessions_made_of_a_session_have_its_time_limit(model: Model) -> None:
    with model.session(threads=1) as limited:
        limited.set_time_limit(0.001)
        with limited.fork(threads=1) as fork, SessionPool(limited, sessions=1) as pool:
            for session in (fork, pool):
                with pytest.raises(RunTimedOut):
                    _run(session, _FOREVER)
    assert model.session(threads=1)._session.time_limit is None


@pytest.mark.parametrize("limit", [0, -1.0, float("nan"), "1", True])
def test_other_limits_are_refused(model: Model, limit: Any) -> None:
    with pytest.raises(RunError, match="not a positive number of seconds"):
        model.set_time_limit(limit)


def test_libraries_compiled_for_size_refuse() -> None:
    with nnefc.compile(_loop(), small=True).load() as model:
        with pytest.raises(RunError, match="nnefc_cancel"):
            model.cancel()
        with pytest.raises(RunError, match="nnefc_set_time_limit"):
            model.set_time_limit(1)
