"""Several libraries and sessions in one process at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
from runtime_samples import INITIAL_COUNT, WEIGHTS, sample_library

from nnefc.loader import Model, RunError, load

THREADS, RUNS = 8, 1000
SCALES = (1.0, 2.0, 0.5, -4.0)  # of four libraries, exact in binary


def in_threads(count: int, body: Callable[[int], None]) -> None:
    """Run body(0) to body(count - 1) at the same time; the first failure is raised here."""
    failures: list[BaseException] = []

    def guarded(index: int) -> None:
        try:
            body(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def image(seed: int) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal(1024).astype(np.float32)
    x[0] = 1  # the sample network takes negative values there as orders
    return x


def expected(x: np.ndarray, scale: float) -> np.ndarray:
    return x * (WEIGHTS * np.float32(scale))


def libraries() -> list[Model]:
    return [load(sample_library(f"concurrent{i}", scale), threads=1) for i, scale in enumerate(SCALES)]


def test_eight_threads_with_sessions_of_four_libraries() -> None:
    models = libraries()

    def work(index: int) -> None:
        sessions = [model.session(threads=1 + (index + i) % 2) for i, model in enumerate(models)]
        x = image(index)
        wanted = [expected(x, scale) for scale in SCALES]
        out = (np.empty(1024, np.float32), np.empty(1, np.int64))
        for run in range(RUNS):
            library = (run + index) % 4
            y, count = sessions[library](x, out=out)
            assert np.array_equal(y, wanted[library])
            assert count[0] == INITIAL_COUNT + run // 4 + 1
        for session in sessions:
            session.close()

    in_threads(THREADS, work)
    for model in models:
        model.close()


def test_eight_threads_share_one_model_of_each_library() -> None:
    models = libraries()
    counts = [np.zeros(THREADS, np.int64) for _ in models]

    def work(index: int) -> None:
        x = image(index)
        wanted = [expected(x, scale) for scale in SCALES]
        for _ in range(RUNS // 4):
            for library, model in enumerate(models):
                y, count = model(x)
                assert np.array_equal(y, wanted[library])
                counts[library][index] = max(counts[library][index], count[0])

    in_threads(THREADS, work)
    for model, last in zip(models, counts, strict=True):
        # every run counts once: none was lost, none was interrupted
        assert last.max() == INITIAL_COUNT + THREADS * RUNS // 4
        model.close()


def test_loading_and_closing_at_the_same_time() -> None:
    x = image(0)

    def work(index: int) -> None:
        for run in range(50):
            i = (index + run) % 4
            with (
                load(sample_library(f"concurrent{i}", SCALES[i]), threads=2) as model,
                model.session(threads=1) as other,
            ):
                for session in (model, other):
                    y, count = session(x)
                    assert np.array_equal(y, expected(x, SCALES[i]))
                    assert count[0] == INITIAL_COUNT + 1

    for i, scale in enumerate(SCALES):
        sample_library(f"concurrent{i}", scale)
    in_threads(THREADS, work)


def test_making_sessions_while_the_last_one_closes() -> None:
    """The library is unloaded at one moment or another: before it, sessions work; after it, there is an error."""
    x = image(0)
    for _ in range(30):
        model = load(sample_library(), threads=1)

        def work(index: int, model: Model = model) -> None:
            if index == 0:
                model.close()
                return
            try:
                with model.session(threads=1) as session:
                    assert np.array_equal(session(x)[0], expected(x, 1.0))
            except RunError as error:
                assert "is closed" in str(error)

        in_threads(4, work)


def test_closing_while_others_run_is_an_error_there_and_no_crash() -> None:
    for _ in range(20):
        model = load(sample_library(), threads=2)
        running = threading.Event()

        def work(index: int, model: Model = model, running: threading.Event = running) -> None:
            if index == 0:
                running.wait()
                model.close()
                return
            try:
                while True:
                    model(image(1))
                    running.set()
            except RunError as error:
                assert "is closed" in str(error)

        in_threads(3, work)
