"""Sessions that threads share."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx.parser
import pytest
from relax_programs import network_of, program, target

import nnefc
from nnefc.driver.compile import compile_network
from nnefc.ir.network import State
from nnefc.loader import session

SUMS = """
<ir_version: 8, opset_import: ["" : 17]>
rows (float[batch, 3] x, float[batch, 3] w) => (float[batch, 3] product, float[batch] total) {
    product = Mul (x, w)
    total = ReduceSum <keepdims = 0> (product, axes)
}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[nnefc.Model]:
    """Products and their sums, of any number of rows."""
    path = tmp_path_factory.mktemp("pool") / "rows.onnx"
    proto = onnx.parser.parse_model(SUMS.replace("{\n", "\n<int64[1] axes = {1}>\n{\n", 1))
    onnx.save(proto, path)
    with nnefc.compile(path).load(threads=1) as loaded:
        yield loaded


def rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.random((count, 3), np.float32), rng.random((count, 3), np.float32)


def check(found: tuple[np.ndarray, np.ndarray], x: np.ndarray, w: np.ndarray) -> None:
    np.testing.assert_allclose(found[0], x * w, rtol=1e-6)
    np.testing.assert_allclose(found[1], np.sum(x * w, 1), rtol=1e-6)


def test_futures_have_the_results(model: nnefc.Model) -> None:
    given = [rows(size, size) for size in (1, 5, 2, 17, 3)]
    with nnefc.SessionPool(model, 2) as pool:
        futures = [pool.submit(x, w=w) for x, w in given]
        for future, (x, w) in zip(futures, given, strict=True):
            check(future.result(), x, w)


def test_results_come_in_the_order_of_the_inputs_which_are_read_a_little_ahead(model: nnefc.Model) -> None:
    read = []

    def inputs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for size in range(1, 12):
            read.append(size)
            yield rows(size, size)

    with nnefc.SessionPool(model, 2) as pool:
        for size, found in enumerate(pool.map(inputs()), 1):
            assert read[-1] <= size + 2 * 2
            check(found, *rows(size, size))
    assert read == list(range(1, 12))


@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_a_batch_is_split(model: nnefc.Model, count: int) -> None:
    x, w = rows(count)
    with nnefc.SessionPool(model, 3) as pool:
        check(pool.split(x, w), x, w)
        check(pool.split(x, w=w), x, w)


def test_a_batch_that_cannot_be_split(model: nnefc.Model, tmp_path: Path) -> None:
    with nnefc.SessionPool(model, 2) as pool:
        with pytest.raises(nnefc.RunError, match="equal for all"):
            pool.split(rows(4)[0], rows(5)[1])
        with pytest.raises(nnefc.RunError, match="equal for all"):
            pool.split()
    text = """<ir_version: 8, opset_import: ["" : 17]>
    all (float[batch, 3] x) => (float[1, 3] y) <int64[1] axes = {0}> { y = ReduceSum (x, axes) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "all.onnx")
    with (
        nnefc.compile(tmp_path / "all.onnx").load(threads=1) as whole,
        nnefc.SessionPool(whole, 2) as pool,
        pytest.raises(nnefc.RunError, match=r'"y" has the shape \[1, 3\] for a batch of 2'),
    ):
        pool.split(rows(4)[0])


def test_threads_run_at_the_same_time(model: nnefc.Model) -> None:
    """As many as there are sessions hold one; a further one waits."""
    inside, all_inside, further = [], threading.Barrier(3), threading.Event()

    def hold() -> None:
        with pool.session() as session:
            inside.append(session)
            all_inside.wait(10)

    def wait() -> None:
        pool(*rows(2))
        further.set()

    with nnefc.SessionPool(model, 2) as pool:
        threads = [threading.Thread(target=hold) for _ in range(2)]
        for thread in threads:
            thread.start()
        while len(inside) < 2:
            pass
        last = threading.Thread(target=wait)
        last.start()
        assert not further.wait(0.05)
        all_inside.wait(10)
        for thread in (*threads, last):
            thread.join(10)
        assert further.is_set()
    assert len({id(session) for session in inside}) == 2


def test_a_failing_run_gives_its_session_back(model: nnefc.Model) -> None:
    with nnefc.SessionPool(model, 1) as pool:
        for _ in range(3):
            with pytest.raises(nnefc.RunError, match="x"):
                pool(np.zeros((2, 4), np.float32), np.zeros((2, 3), np.float32))
        check(pool(*rows(2)), *rows(2))


def test_a_closed_pool_refuses_runs(model: nnefc.Model) -> None:
    pool = nnefc.SessionPool(model, 2)
    future = pool.submit(*rows(9))
    pool.close()
    pool.close()
    check(future.result(), *rows(9))
    for call in (pool, pool.submit, pool.split):
        with pytest.raises(nnefc.RunError, match="closed"):
            call(*rows(2))
    check(model(*rows(2)), *rows(2))


def test_unused_results_are_not_computed(model: nnefc.Model) -> None:
    with nnefc.SessionPool(model, 1) as pool:
        results = pool.map(rows(size) for size in range(1, 100))
        next(results)
        results.close()  # type: ignore[attr-defined]
    with pytest.raises((CancelledError, StopIteration)):
        next(results)


def test_no_sessions_and_states_are_refused(model: nnefc.Model) -> None:
    with pytest.raises(nnefc.RunError, match="at least one"):
        nnefc.SessionPool(model, 0)
    module = program(
        """x[1, 3]; s[1, 3] -> t, t
        t = R.add(s, x)"""
    )
    network = network_of(module, [State("s", np.zeros((1, 3), np.float32))])
    with (
        compile_network(network, target("llvm")).load(threads=1) as counting,
        pytest.raises(nnefc.RunError, match="states"),
    ):
        nnefc.SessionPool(counting)


def test_threads_close_a_pool_together(model: nnefc.Model) -> None:
    """They wait for a run that has begun; no other run begins, not even one that waits for a session."""
    pool = nnefc.SessionPool(model, sessions=1, threads=1)
    errors: list[nnefc.RunError] = []

    def wait_for_a_session() -> None:
        try:
            pool(*rows(3))
        except nnefc.RunError as error:
            errors.append(error)

    with pool.session():
        waiting = threading.Thread(target=wait_for_a_session, daemon=True)
        waiting.start()
        while not pool._waiting:
            time.sleep(0.001)
        closing = [threading.Thread(target=pool.close, daemon=True) for _ in range(3)]
        for thread in closing:
            thread.start()
        waiting.join(10)
        assert [str(error) for error in errors] == ["the pool of sessions is closed"]
        assert all(thread.is_alive() for thread in closing)
    for thread in closing:
        thread.join(10)
    assert not any(thread.is_alive() for thread in closing)
    pool.close()


def test_memory_is_not_reserved_for_sizes_beyond_all_integers(model: nnefc.Model) -> None:
    with pytest.raises(nnefc.RunError, match="no memory holds"):
        model.reserve({"batch": 2**64 + 5})


def test_a_session_without_its_gpu_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    destroyed: list[int] = []

    def no_gpu(number: int) -> None:
        raise nnefc.RunError(f"no GPU {number}")

    monkeypatch.setattr(session, "GpuContext", no_gpu)
    library = SimpleNamespace(device="cuda", create=lambda *_: 5, destroy=destroyed.append)
    with pytest.raises(nnefc.LoadError, match="no GPU 1"):
        session.Session(library, 1, 1, True)  # type: ignore[arg-type]
    assert destroyed == [5]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_pool_works_in_a_forked_child(model: nnefc.Model) -> None:
    x, w = rows(5)
    with nnefc.SessionPool(model, 2) as pool:
        check(pool.submit(x, w).result(), x, w)
        with pool.session():  # a session that the child must not wait for
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    found = [pool.submit(x, w).result(20) for _ in range(3)]
                    status = int(not all(np.allclose(one[0], x * w) for one in found))
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
        check(pool(x, w), x, w)
