"""Whole networks on a GPU: the same results as by code for this CPU, in every precision, run after run."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
import test_onnx_dynamic_shapes as onnx_models
from models.attention_spellings import SPELLINGS, side_by_side
from real_device import TOLERANCES, agree, on_device, results
from small_networks import NETWORKS, Net
from test_dynamic_shapes import NETWORKS as OPEN_NETWORKS
from test_dynamic_shapes import inputs as open_inputs
from test_dynamic_shapes import network as open_network
from virtual_machine import run_in_virtual_machine

import nnefc
from nnefc.driver.compile import compile_network
from nnefc.loader import DeviceArray, RunError, load
from nnefc.targets.machine.cpu.parsing import parse_target

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "model.nnef"


@pytest.mark.parametrize("precision", TOLERANCES)
def test_digits_are_the_same(precision: str) -> None:
    agree(DIGITS, {"image": np.random.default_rng(0).random((1, 1, 8, 8), dtype=np.float32)}, precision)


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_small_network_is_the_same(name: str, precision: str, tmp_path: Path) -> None:
    net = Net(seed=len(name))
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model(NETWORKS[name](net)).SerializeToString())
    agree(path, net.inputs, precision)


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("queries", [1, 37, 300])
def test_attention_is_the_same_however_it_is_spelled(queries: int, precision: str, tmp_path: Path) -> None:
    prefixes = {name: f"s{number}_" for number, name in enumerate(SPELLINGS)}
    sizes = {"b": 2, "n": queries, "m": 19, "past": 130, "t": 5, "i": 44, "w": 16}
    onnx.save(side_by_side(prefixes, sizes), tmp_path / "spellings.onnx")
    values = {k: v for name, prefix in prefixes.items() for k, v in SPELLINGS[name].values(sizes, prefix).items()}
    agree(tmp_path / "spellings.onnx", values, precision)


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("name", OPEN_NETWORKS)
def test_every_size_of_an_open_network_is_right(name: str, precision: str) -> None:
    """Each size three times: launched kernel by kernel, captured, and from the graph that was kept."""
    tolerance = 1e-4 if precision == "fp32" else 0.06 if precision == "bf16" else 0.02
    with on_device(precision), compile_network(open_network(name), parse_target("llvm")).load() as model:
        for sizes in OPEN_NETWORKS[name][2] * 3:
            given = open_inputs(model, sizes)
            made = model(*given)
            expected = run_in_virtual_machine(open_network(name, sizes).module, given)
            for result, other in zip([made] if isinstance(made, np.ndarray) else made, expected, strict=True):
                assert result.shape == other.shape
                np.testing.assert_allclose(result, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "model",
    [
        onnx_models.test_convolutional_networks_take_any_batch_and_image,
        onnx_models.test_shapes_that_the_model_computes_follow_the_sizes,
        onnx_models.test_positions_and_masks_of_dynamic_sizes,
    ],
)
def test_onnx_models_of_dynamic_sizes_give_what_onnxruntime_gives(model: object, tmp_path: Path) -> None:
    assert callable(model)
    with on_device():
        model(tmp_path)


def _perceptron(folder: Path, width: int = 256) -> tuple[Path, np.ndarray]:
    net = Net(seed=5)
    x = net.floats(8, width)
    for _ in range(3):
        x = net.do("Relu", net.do("MatMul", x, net.weight(width, width, scale=width**-0.5)))
    path = folder / "network.onnx"
    path.write_bytes(net.model([x]).SerializeToString())
    return path, net.inputs["input0"]


def test_sessions_run_side_by_side_in_threads(tmp_path: Path) -> None:
    path, x = _perceptron(tmp_path)
    wrong: list[int] = []
    with on_device(), nnefc.compile(path).load() as first:
        wanted = first(x)

        def work(number: int) -> None:
            with first.session() as own:
                for turn in range(50):
                    scale = np.float32(1 + (number + turn) % 3)  # a perceptron without shifts: homogeneous
                    if not np.allclose(own(x * scale), wanted * scale, rtol=1e-5, atol=1e-5):
                        wrong.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_arrays_of_the_gpu_and_runs_one_after_the_other(tmp_path: Path) -> None:
    path, x = _perceptron(tmp_path)
    (wanted,) = results(path, {"input0": x}, 1)[0].values()
    twice = results(path, {"input0": wanted}, 1)[0]
    with on_device(), nnefc.compile(path).load() as model:
        y = model(x, out="device")
        assert isinstance(y, DeviceArray)
        np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-4, atol=1e-5)
        for _ in range(3):
            again = model(y, out="device")
            np.testing.assert_allclose(again.numpy(), *twice.values(), rtol=1e-4, atol=1e-5)


def test_arrays_and_streams_of_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    path, x = _perceptron(tmp_path)
    (wanted,) = results(path, {"input0": x}, 1)[0].values()
    with on_device(), nnefc.compile(path).load() as model:
        given, stream = torch.from_numpy(x).cuda(), torch.cuda.Stream()
        torch.cuda.synchronize()
        for turn in range(5):
            with torch.cuda.stream(stream):
                y = model(given * (turn + 1), stream=stream)
                found = torch.from_dlpack(y) * 1.0
            stream.synchronize()
            np.testing.assert_allclose(found.cpu().numpy(), wanted * (turn + 1), rtol=1e-4, atol=1e-4)
        model.synchronize()
        out = torch.empty(wanted.shape, device="cuda")
        for _ in range(3):
            model(given, out=out)
            np.testing.assert_allclose(out.cpu().numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_states_go_on_and_are_reset(tmp_path: Path) -> None:
    document = tmp_path / "graph.nnef"
    document.write_text(
        "version 1.0;\ngraph counting(x) -> (y)\n{\n    x = external(shape = [1, 6]);\n"
        "    s = variable(label = 's', shape = [1, 6]);\n    y = x + s;\n    update(s, y);\n}\n"
    )
    with on_device(), nnefc.compile(document, random_weights=1).load() as model, model.session() as other:
        x = np.ones((1, 6), np.float32)
        begin = model(x) - 1
        for run in range(2, 6):
            np.testing.assert_allclose(model(x), begin + run, rtol=1e-5)
        np.testing.assert_allclose(other(x), begin + 1, rtol=1e-5)
        model.reset()
        np.testing.assert_allclose(model(x), begin + 1, rtol=1e-5)


def test_an_index_out_of_range_fails_the_run_alone(tmp_path: Path) -> None:
    net = Net(seed=1)
    positions = net.given(np.array([2, -3, 9], np.int64))
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model([net.do("Gather", net.floats(5, 4), positions)]).SerializeToString())
    with on_device(), nnefc.compile(path).load() as network:
        right = {**net.inputs, positions: np.array([2, -3, 0], np.int64)}
        for _ in range(3):
            with pytest.raises(RunError, match="Gather: an index is out of range"):
                network.run(net.inputs)
            (found,) = network.run(right).values()
            np.testing.assert_array_equal(found, net.inputs["input1"][[2, 2, 0]])


def test_libraries_come_and_go_without_leaving_memory_behind(tmp_path: Path) -> None:
    path, x = _perceptron(tmp_path, width=1024)
    library = tmp_path / "network.so"
    with on_device():
        nnefc.compile(path).export(library)

    def once() -> None:
        with load(library) as model, model.session() as other:
            model(x), other(x), model(x, out="device")

    once()
    once()
    before = _free_bytes()
    for _ in range(20):
        once()
    assert before - _free_bytes() < 8 << 20  # twelve megabytes of trained values, twenty times


def _free_bytes() -> int:
    """Of the GPU's memory, in its primary context."""
    driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0
    assert driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    assert driver.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0
    assert driver.cuDevicePrimaryCtxRelease_v2(0) == 0
    return free.value
