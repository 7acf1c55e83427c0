"""How compiled networks run on a GPU: as graphs or not, with steps on the processor, with states, on streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from emulated_networks import on_cuda
from fake_driver import FakeDriver
from onnx import TensorProto, helper
from small_networks import Net, body

import nnefc
from nnefc.loader import Model

STATEFUL = """version 1.0;
graph sums( x ) -> ( y )
{
    x = external<scalar>(shape = [1, 8]);
    s = variable<scalar>(shape = [1, 8], label = 's');
    r = relu(x);
    y = add(r, s);
    t = update(s, y);
}
"""


@contextmanager
def both(path: Path) -> Iterator[tuple[Model, Model, FakeDriver]]:
    """The model as code for this CPU and for a GPU, and the GPU's driver, whose log begins with the first run."""
    with nnefc.compile(path).load(threads=1) as wanted, on_cuda(), nnefc.compile(path).load() as found:
        driver = FakeDriver.install()
        driver.clear()
        yield wanted, found, driver


def compare(net: Net, outputs: list[str], folder: Path, runs: int = 3) -> list[str]:
    """Run a network several times, and compare; the names of the driver's functions that were called."""
    path = folder / "network.onnx"
    path.write_bytes(net.model(outputs).SerializeToString())
    with both(path) as (wanted, found, driver):
        for run in range(runs):
            inputs = {name: np.roll(array, run) for name, array in net.inputs.items()}
            for name, array in wanted.run(inputs).items():
                np.testing.assert_allclose(found.run(inputs)[name], array, rtol=1e-5, atol=1e-6)
        return driver.names


def test_a_step_on_the_processor_is_a_part_of_the_graph(tmp_path: Path) -> None:
    net = Net(seed=2)
    row = net.do("Relu", net.floats(1, 6000))  # nothing that threads could share
    best, positions = net.several("TopK", 2, row, net.constant(np.array([8], np.int64)))
    names = compare(net, [net.do("Neg", best), positions], tmp_path)
    assert names.count("cuStreamBeginCapture_v2") == names.count("cuLaunchHostFunc") == 1
    assert names.count("cuGraphLaunch") == 6  # three runs for each of the two outputs that are compared


def test_a_loop_with_a_known_trip_count_is_a_part_of_the_graph(tmp_path: Path) -> None:
    net = Net(seed=3)
    outputs = net.several("Loop", 2, net.constant(np.int64(4)), "", net.floats(3, 6), body=body("s", 0.5))
    names = compare(net, outputs, tmp_path)
    assert (names.count("cuStreamBeginCapture_v2"), names.count("cuGraphLaunch")) == (1, 6)


def test_a_step_of_a_recurrent_layer_and_a_deep_product_are_one_launch(tmp_path: Path) -> None:
    """And no copy: states are read where the step before wrote them. The product's last block adds up its slices."""
    net, steps = Net(seed=6), 9
    x = net.floats(steps, 1, 12)
    outputs = net.several(
        "LSTM", 3, x, net.weight(1, 128, 12), net.weight(1, 128, 32), net.weight(1, 256), hidden_size=32
    )
    outputs += net.several(
        "GRU", 2, x, net.weight(1, 96, 12), net.weight(1, 96, 32), net.weight(1, 192), hidden_size=32,
        linear_before_reset=1,
    )  # fmt: skip
    outputs.append(net.do("MatMul", net.floats(1, 1024), net.weight(1024, 40)))
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model(outputs).SerializeToString())
    driver = FakeDriver.install()
    with nnefc.compile(path).load(threads=1) as wanted, on_cuda(checks=True), nnefc.compile(path).load() as found:
        driver.clear()
        results = [found.run(net.inputs) for _ in range(2)]
        names = driver.names
        for name, array in wanted.run(net.inputs).items():
            np.testing.assert_allclose(results[0][name], array, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(results[0][name], results[1][name])
    assert names.count("cuLaunchKernel") <= 2 * steps + 8
    assert names.count("cuMemcpyDtoDAsync_v2") <= 4
    assert "cuMemsetD32Async" not in names


@pytest.mark.slow
def test_a_choice_runs_without_a_graph(tmp_path: Path) -> None:
    net = Net(seed=4)
    x = net.floats(3, 6)
    first = net.do("Gather", net.do("Flatten", x, axis=0), net.constant(np.int64(0)), axis=1)
    high = net.do("Squeeze", net.do("Greater", first, net.constant(np.float32(0))))
    info = helper.make_tensor_value_info("y", TensorProto.FLOAT, (3, 6))
    branches = {
        f"{name}_branch": helper.make_graph([helper.make_node(op, [x], ["y"])], name, [], [info])
        for name, op in (("then", "Exp"), ("else", "Neg"))
    }
    names = compare(net, [net.do("If", high, **branches)], tmp_path, runs=6)
    assert "cuStreamBeginCapture_v2" not in names and "cuGraphLaunch" not in names


@pytest.fixture
def stateful(tmp_path: Path) -> Path:
    nnef = pytest.importorskip("nnef")
    (tmp_path / "graph.nnef").write_text(STATEFUL)
    with (tmp_path / "s.dat").open("wb") as file:
        nnef.write_tensor(file, np.full((1, 8), 2, np.float32))
    return tmp_path


def test_states_stay_on_the_gpu_from_run_to_run(stateful: Path) -> None:
    x = np.random.default_rng(1).standard_normal((1, 8)).astype(np.float32)
    with both(stateful) as (wanted, found, driver):
        for run in range(8):
            if run == 5:
                wanted.reset()
                found.reset()
            np.testing.assert_array_equal(found(x), wanted(x))
        assert driver.names.count("cuStreamBeginCapture_v2") == 1
        with found.session() as other:
            wanted.reset()
            np.testing.assert_array_equal(other(x), wanted(x))


def test_runs_on_a_stream_follow_each_other(stateful: Path) -> None:
    x = np.random.default_rng(1).standard_normal((1, 8)).astype(np.float32)
    with both(stateful) as (wanted, found, driver):
        y = found(x, out="device")
        first = wanted(x)
        driver.clear()
        sums = [found(y, stream=1) for _ in range(4)]
        assert not {"cuStreamSynchronize", "cuEventSynchronize"} & set(driver.names)
        for array in sums:
            np.testing.assert_array_equal(array.numpy(), wanted(first))
        del y, sums, array
