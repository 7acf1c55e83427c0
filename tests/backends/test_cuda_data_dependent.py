"""Data-dependent sizes, in networks for GPUs, executed without one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import test_onnx_data_dependent_bodies as bodies
import test_onnx_data_dependent_sizes as counts
from emulated_networks import on_cuda
from fake_driver import FakeDriver
from onnx import TensorProto

import nnefc
from nnefc.loader import Model, RunError
from nnefc.targets.codegen.cuda.code import CudaCode


@pytest.fixture
def driver() -> Iterator[FakeDriver]:
    """The driver, in whose log are the calls alone of what a test runs."""
    with on_cuda():
        yield FakeDriver.install()


def loaded(nodes: list[object], folder: Path, inputs: dict[str, list[object]], outputs: dict[str, int]) -> Model:
    path = folder / "model.onnx"
    path.write_bytes(counts.model_of(nodes, inputs, outputs).SerializeToString())
    return nnefc.compile(path).load()


def found(folder: Path) -> Model:
    """A network of the positions of what is not zero: at most as many as there are elements."""
    return loaded([counts.node("NonZero", "x", "y")], folder, {"x": ["n", 5]}, {"y": TensorProto.INT64})


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> nnefc.Artifact:
    """A network of results whose sizes have no limit: as many rows as the sum of its input."""
    path = tmp_path_factory.mktemp("counts") / "model.onnx"
    path.write_bytes(counts.spoken().SerializeToString())
    with on_cuda():
        return nnefc.compile(path)


def check(model: Model, total: int) -> None:
    feed = counts.lengths(total - 1, 1)
    session = onnxruntime.InferenceSession(counts.spoken().SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, feed)
    for result, expected in zip(model(*feed.values()), wanted, strict=True):
        assert result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


CASES = {
    "what is not zero": partial(counts.test_what_is_not_zero_goes_through_a_network, "n"),
    "what is not zero, of a known size": partial(counts.test_what_is_not_zero_goes_through_a_network, 4),
    "boxes": partial(counts.test_boxes_that_remain, maximum=20),
    "candidates": counts.test_what_detectors_do_with_candidates,
    "unique": partial(counts.test_elements_that_differ, 0, 1),
    "unique in the order of occurrence": partial(counts.test_elements_that_differ, None, 0),
    "compress": counts.test_elements_that_a_condition_keeps,
    "slices": counts.test_slices_end_where_the_data_say,
    "without a limit": counts.test_results_may_be_as_long_as_the_data_say,
    "in branches": counts.test_branches_may_count,
    "in loops": partial(counts.test_loops_give_as_many_rows_as_iterations, True),
    "memory of iterations": bodies.test_memory_of_one_iteration_that_depend_on_data,
}


QUICK = (
    "what is not zero",
    "candidates",
    "unique in the order of occurrence",
    "without a limit",
    "memory of iterations",
)
KEPT = {"what is not zero", "what is not zero, of a known size", "boxes", "unique", "compress"}
"""Networks that are graphs: no host waits for their counts. It has to know those of the others, or computes by itself
what has a data-dependent size."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
@pytest.mark.sample(1)
def test_networks_with_counts_give_what_onnxruntime_gives(name: str, tmp_path: Path) -> None:
    with on_cuda() as made:
        CASES[name](tmp_path)
    launches = [artifact.code.launches for artifact in made if isinstance(artifact.code, CudaCode)]
    assert all((".capturable = 1," in each) == (name in KEPT) for each in launches)


def test_a_count_stays_on_the_gpu_and_no_access_is_wrong(tmp_path: Path) -> None:
    """Runs of the same sizes are one graph, whatever the count is: the size of the result is read behind it."""
    with on_cuda(checks=True), found(tmp_path) as model:
        driver = FakeDriver.install()
        graphs = []
        for rows, part in ((4, 0.5), (4, 0.0), (4, 1.0), (1, 1.0), (300, 0.3)):
            x = counts.some(rows, 5, part)
            driver.clear()
            np.testing.assert_array_equal(model(x), np.nonzero(x))
            waits = driver.names.count("cuStreamSynchronize") - driver.names.count("cuMemAllocAsync")
            assert waits == 2  # for the size, and for the copy of the result; on an idle stream for new memory
            graphs.append("cuGraphLaunch" in driver.names)
        assert graphs == [False, True, True, False, False]


def test_kernels_are_launched_for_the_limit_and_read_the_count(tmp_path: Path) -> None:
    """Sizes that are multiples of a count, a result whose size is known, and a count of what another count tells."""
    nodes = [
        counts.node("NonZero", "x", "a"),
        counts.node("Cast", "a", "real", to=TensorProto.FLOAT),
        counts.node("Concat", "real real", "twice", axis=1),
        counts.node("Relu", "twice", "y"),
        counts.node("ReduceSum", "twice", "z", keepdims=0),
        counts.node("NonZero", "y", "b"),
    ]
    outputs = {"y": TensorProto.FLOAT, "z": TensorProto.FLOAT, "b": TensorProto.INT64}
    with on_cuda() as made, loaded(nodes, tmp_path, {"x": [6, 50]}, outputs) as model:
        for part in (0.5, 0.0, 1.0):
            x = counts.some(6, 50, part)
            twice = np.concatenate([np.nonzero(x)] * 2, 1).astype(np.float32)
            y, z, b = model(x)
            np.testing.assert_array_equal(y, twice)
            assert z == twice.sum()
            np.testing.assert_array_equal(b, np.nonzero(twice))
    code = made[-1].code
    assert isinstance(code, CudaCode)
    assert ".capturable = 1," in code.launches
    assert "nnefc_rank" in code.kernels.source, "what is not zero is found by a block of threads"
    assert "int64_t nnefc_added_size0" in code.kernels.source


def test_a_kept_size_that_the_network_does_not_take_fails_the_run(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    nodes = [counts.node("NonZero", "x", "y")]
    path.write_bytes(counts.model_of(nodes, {"x": [4, 5]}, {"y": TensorProto.INT64}).SerializeToString())
    with on_cuda(), nnefc.compile(path, shape={"nonzero": "2..7"}).load() as model:
        for number in (2, 7, 1, 0, 8, 20, 5):
            x = (np.arange(20) < number).astype(np.float32).reshape(4, 5)
            if 2 <= number <= 7:
                np.testing.assert_array_equal(model(x), np.nonzero(x))
                continue
            with pytest.raises(RunError, match="the data ask for a size 'nonzero' that the network does not take"):
                model(x)


def test_outputs_of_the_gpu_have_their_data_dependent_shape(driver: FakeDriver, tmp_path: Path) -> None:
    with found(tmp_path) as model, driver.context():
        stream = driver.stream()
        for part in (0.5, 0.0, 1.0):
            x = counts.some(3, 5, part)
            result = model(x, out="device")
            assert result.shape == (2, int(x.sum()))
            np.testing.assert_array_equal(result.numpy(), np.nonzero(x))
            del result
        assert driver.dll.cuStreamDestroy_v2(stream) == 0


def test_memory_without_a_limit_grows_in_the_run_and_never_shrinks(driver: FakeDriver, spoken: nnefc.Artifact) -> None:
    with spoken.load() as model:
        grown = []
        for total in (70, 3, 0, 70, 500):
            driver.clear()
            check(model, total)
            grown.append("cuMemAllocAsync" in driver.names)
        assert grown == [True, False, False, False, True]
        model.reserve({"n": 4, "range": 2000})
        driver.clear()
        check(model, 2000)
        assert "cuMemAllocAsync" not in driver.names
        for function in ("cuMemAllocAsync", "cuMemHostAlloc"):
            driver.fail(1, 2, function)
            with pytest.raises(RunError, match="out of memory"):
                check(model, 9000)
            driver.clear()
            check(model, 5)


def test_where_a_run_tells_the_sizes_it_takes_neither_streams_nor_arrays(
    driver: FakeDriver, spoken: nnefc.Artifact
) -> None:
    with spoken.load() as model, driver.context():
        stream = driver.stream()
        (x,) = counts.lengths(4).values()
        for options in ({"stream": stream}, {"out": "device"}, {"out": [np.empty((4, 5), np.float32)] * 3}):
            with pytest.raises(RunError, match="only a run tells how large the outputs"):
                model(x, **options)
        assert driver.dll.cuStreamDestroy_v2(stream) == 0


def test_a_size_that_the_network_does_not_take_fails_the_run(driver: FakeDriver, spoken: nnefc.Artifact) -> None:
    with spoken.load() as model:
        for wrong in (-7, -1):
            with pytest.raises(RunError, match="the data ask for a size 'range' that the network does not take"):
                model(*counts.lengths(wrong).values())
            check(model, 6)
