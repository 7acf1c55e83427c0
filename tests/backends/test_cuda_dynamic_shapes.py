"""Networks with dynamic dimensions for GPUs, executed without one, and the driver's arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import test_onnx_dynamic_shapes as onnx_models
from emulated_networks import on_cuda
from fake_driver import FakeDriver
from relax_programs import network_of, opened, program
from test_dynamic_shapes import NETWORKS, inputs
from test_dynamic_shapes import network as sample
from virtual_machine import run_in_virtual_machine

import nnefc
from nnefc.backends import cuda
from nnefc.backends.cuda import CudaBackend
from nnefc.driver.artifact import Artifact
from nnefc.driver.compile import compile_network
from nnefc.ir.network import DynamicDimension, Network, State
from nnefc.loader import Model, RunError
from nnefc.passes.schedule.gpu.fallback import FallbackRule
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Range
from nnefc.targets.codegen.cuda.code import CudaCode
from nnefc.targets.description.library import DEVICES
from nnefc.targets.machine.cpu.parsing import parse_target
from nnefc.targets.machine.cuda.capabilities import default_gpu
from nnefc.targets.machine.cuda.target import CudaTarget, parse_cuda_target

QUICK = (
    "layers of perceptrons, softmax",
    "convolutions in blocks, pooling, mean",
    "sums, minima, maxima and transpositions along dynamic dimensions",
    "joined tensors",
)
SUMS = """x[n, 6] -> y
a = R.exp(x)
b = R.add(a, R.max(x, [0], keepdims=True))
y = R.nn.softmax(b)"""


def network(text: str, maximum: int = 4096, states: Sequence[State] = (), **constants: np.ndarray) -> Network:
    """A network whose dimension n is open."""
    made = opened(network_of(program(text.replace("[n,", '["n",').replace("[n]", '["n"]'), **constants), states))
    dimensions = tuple(DynamicDimension(d.name, d.var, Range(1, maximum, 8)) for d in made.dynamic_dimensions)
    return Network(**{**made.__dict__, "dynamic_dimensions": dimensions})


@pytest.fixture
def driver() -> Iterator[FakeDriver]:
    """The driver, in whose log are the calls alone of what a test runs."""
    with on_cuda():
        yield FakeDriver.install()


def loaded(network: Network) -> Model:
    return compile_network(network, parse_target("llvm")).load()


@pytest.fixture(scope="module")
def sums() -> Artifact:
    with on_cuda():
        return compile_network(network(SUMS), parse_target("llvm"))


def check(model: Model, rows: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 6)).astype(np.float32)
    e = np.exp(np.exp(x) + x.max(axis=0))
    np.testing.assert_allclose(model(x), e / e.sum(axis=1, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NETWORKS])
@pytest.mark.sample(1)
def test_every_size_gives_what_tvm_computes_and_no_access_is_wrong(name: str) -> None:
    with on_cuda(checks=True), loaded(sample(name)) as model:
        for sizes in NETWORKS[name][2][::2]:
            given = inputs(model, sizes)
            made = model(*given)
            expected = run_in_virtual_machine(sample(name, sizes).module, given)
            for result, other in zip([made] if isinstance(made, np.ndarray) else made, expected, strict=True):
                assert result.shape == other.shape
                np.testing.assert_allclose(result, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("convolutions in blocks, pooling, mean", "fp16"),
        pytest.param("strides, groups and transposed convolutions", "fp16", marks=pytest.mark.slow),
        pytest.param("attention", "fp16", marks=pytest.mark.slow),
        pytest.param("attention", "tf32", marks=pytest.mark.slow),
    ],
)
def test_tensor_cores_take_any_size(name: str, precision: str) -> None:
    with on_cuda(checks=True, precision=precision) as made, loaded(sample(name)) as model:
        for sizes in NETWORKS[name][2][::2]:
            given = inputs(model, sizes)
            (expected,) = run_in_virtual_machine(sample(name, sizes).module, given)
            np.testing.assert_allclose(model(*given), expected, rtol=0.02, atol=0.02)
    code = made[0].code
    assert isinstance(code, CudaCode)
    assert "mma.sync" in code.kernels.source


@pytest.mark.parametrize(
    "model",
    [
        onnx_models.test_convolutional_networks_take_any_batch_and_image,
        onnx_models.test_shapes_that_the_model_computes_follow_the_sizes,
        onnx_models.test_positions_and_masks_of_dynamic_sizes,
    ],
)
@pytest.mark.slow
def test_onnx_models_give_what_onnxruntime_gives(model: object, tmp_path: Path) -> None:
    assert callable(model)
    with on_cuda():
        model(tmp_path)


def test_the_compiler_for_gpus_takes_the_kernels_and_has_registers_for_all() -> None:
    code = compile_network(sample("attention"), parse_cuda_target("cuda -arch=sm_80")).code
    assert isinstance(code, CudaCode)
    assert {launch.kernel for launch in code.kernels.launches} == {usage.kernel for usage in code.image.usage}
    assert all(usage.spill_stores == usage.spill_loads == 0 for usage in code.image.usage)


def test_divisions_by_sizes_truncate() -> None:
    """Sizes are positive, and positions are not negative: no code looks at signs."""
    with on_cuda() as made:
        compile_network(network("x[n, 6] -> y\ny = R.permute_dims(x, [1, 0])"), parse_target("llvm"))
    code = made[0].code
    assert isinstance(code, CudaCode)
    assert " % " in code.kernels.source
    assert "rmod" not in code.kernels.source
    assert "int64_t" not in code.kernels.source.partition('extern "C"')[2]


def test_a_size_is_a_graph_when_it_comes_again(driver: FakeDriver, sums: Artifact) -> None:
    with sums.load() as model:
        model.reserve()
        calls = []
        for rows in (5, 5, 7, 5, 7, 7, 5):
            driver.clear()
            check(model, rows)
            made, launched = (driver.names.count(f"cuGraph{name}") for name in ("InstantiateWithFlags", "Launch"))
            calls.append((rows, made, launched))
    assert calls == [(5, 0, 0), (5, 1, 1), (7, 0, 0), (5, 0, 1), (7, 1, 1), (7, 0, 1), (5, 0, 1)]


def test_the_graph_that_was_not_used_for_longest_goes(driver: FakeDriver, sums: Artifact) -> None:
    with sums.load() as model:
        model.reserve()
        for rows in range(1, 34):  # one more than are kept
            check(model, rows)
            check(model, rows)
        driver.clear()
        check(model, 2)
        check(model, 1)
        check(model, 1)
        assert driver.names.count("cuGraphInstantiateWithFlags") == 1


def test_memory_grows_with_the_sizes_and_never_shrinks(driver: FakeDriver, sums: Artifact) -> None:
    def allocations(rows: int) -> int:
        driver.clear()
        check(model, rows)
        return sum(driver.names.count(name) for name in ("cuMemAllocAsync", "cuMemHostAlloc"))

    with sums.load() as model:
        assert [allocations(rows) > 0 for rows in (40, 40, 3, 64, 40, 64, 1)] == [
            True,
            False,
            False,
            True,
            *[False] * 3,
        ]
        model.reserve({"n": 1000})
        assert [allocations(rows) for rows in (1000, 999, 64)] == [0, 0, 0]


def test_memory_that_is_refused_leaves_a_session_that_goes_on(driver: FakeDriver, sums: Artifact) -> None:
    with sums.load() as model:
        check(model, 3)
        for function in ("cuMemAllocAsync", "cuMemHostAlloc"):
            driver.fail(1, 2, function)
            with pytest.raises(RunError, match="out of memory"):
                check(model, 500)
            driver.clear()
            check(model, 5)


def test_states_stay_when_memory_grows(driver: FakeDriver) -> None:
    text = "x[n, 6]; s[6] -> y, t\nt = R.add(s, R.sum(x, [0]))\ny = R.add(x, t)"
    state = State("s", np.zeros(6, np.float32))
    made = network(text, states=[state])
    with compile_network(made, parse_target("llvm")).load() as model:
        total = np.zeros(6, np.float32)
        for rows in (2, 300, 5):
            x = np.random.default_rng(rows).standard_normal((rows, 6)).astype(np.float32)
            total += x.sum(axis=0)
            np.testing.assert_allclose(model(x), x + total, rtol=1e-4, atol=1e-4)


def test_arrays_of_the_gpu_have_any_size_on_any_stream(driver: FakeDriver, sums: Artifact) -> None:
    with sums.load() as model, driver.context():
        stream = driver.stream()
        for rows in (4, 9, 4, 4):
            x = np.random.default_rng(rows).standard_normal((rows, 6)).astype(np.float32)
            wanted = model(x)
            on_device = model(x, out="device")
            assert on_device.shape == (rows, 6)
            np.testing.assert_allclose(on_device.numpy(), wanted, rtol=1e-6)
            again = model(on_device, stream=stream)
            np.testing.assert_allclose(again.numpy(), model(wanted), rtol=1e-5)
            del on_device, again
        assert driver.dll.cuStreamDestroy_v2(stream) == 0


def test_tensors_of_more_elements_than_kernels_count_are_refused(driver: FakeDriver) -> None:
    assert CudaBackend.max_elements == DEVICES["cuda"].max_elements
    with loaded(network(SUMS, maximum=1 << 30)) as model:
        with pytest.raises(RunError, match='more than 1073741824 elements: dimension 0 of input "x" is 178956971'):
            model.reserve({"n": (1 << 30) // 6 + 1})
        check(model, 3)


@pytest.mark.parametrize(("tail", "threads"), [((6,), 6), ((), 1)], ids=["shared", "in order"])
@pytest.mark.sample(1)
def test_scatters_of_dynamic_sizes_stay_on_the_gpu(tail: tuple[int, ...], threads: int, tmp_path: Path) -> None:
    """Threads share a loop of dynamic length whose iterations are independent; what depends on the order is one's."""
    nodes = [
        onnx_models.node("Cast", "x", "i", to=7),
        onnx_models.node("Exp", "x", "u"),
        onnx_models.node("ScatterElements", "x i u", "y", axis=0),
    ]
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_models.model_of(nodes, ["n", *tail]).SerializeToString())
    with on_cuda(checks=True) as made, nnefc.compile(path).load() as model:
        for rows in (7, 7, 40, 1):
            x = np.random.default_rng(rows).integers(0, rows, (rows, *tail)).astype(np.float32)
            wanted = x.copy()
            for position in np.ndindex(x.shape):  # the last of several updates of a position is what stays
                wanted[(int(x[position]), *position[1:])] = np.exp(x[position])
            np.testing.assert_allclose(model(x), wanted, rtol=1e-5)
    code = made[0].code
    assert isinstance(code, CudaCode)
    assert "nnefc_cuda_host_step" not in code.launches
    last = [launch for launch in code.kernels.launches if "scatter" in launch.kernel][-1]
    assert last.block[0] == threads


def test_indices_of_dynamic_sizes_are_checked_by_threads(tmp_path: Path) -> None:
    table = np.random.default_rng(3).standard_normal((50, 4)).astype(np.float32)
    nodes = [onnx_models.node("Cast", "x", "i", to=7), onnx_models.node("Gather", "t i", "y")]
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_models.model_of(nodes, ["n", "m"], t=table).SerializeToString())
    with on_cuda(checks=True), nnefc.compile(path).load() as model:
        for shape in ((3, 5), (1, 700), (3, 5)):
            x = np.random.default_rng(1).integers(-50, 50, shape).astype(np.float32)
            np.testing.assert_array_equal(model(x), table[x.astype(np.int64)])
            x[-1, -1] = 50
            with pytest.raises(RunError, match="Gather: an index is out of range"):
                model(x)


def test_the_processor_computes_what_no_gpu_is_good_at_for_any_size(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Operands go there and back, in memory that grows with them; such a network is no graph."""
    monkeypatch.setattr(CudaTarget, "gpu", replace(default_gpu(80), serial_trip_count=10))
    monkeypatch.setattr(cuda, "CUDA_RULES", (FallbackRule(),))
    nodes = [
        onnx_models.node("Exp", "x", "e"),
        onnx_models.node("TopK", "e k", "t order", axis=1),
        onnx_models.node("GatherElements", "x order", "g", axis=1),
        onnx_models.node("Add", "g t", "y"),
    ]
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_models.model_of(nodes, ["n", 9], k=np.array([3], np.int64)).SerializeToString())
    with nnefc.compile(path).load() as model:
        for rows in (7, 300, 7, 1):
            driver.clear()
            x = np.random.default_rng(rows).standard_normal((rows, 9)).astype(np.float32)
            best = -np.sort(-x, axis=1)[:, :3]
            np.testing.assert_allclose(model(x), best + np.exp(best), rtol=1e-5)
            assert "cuGraphLaunch" not in driver.names
            assert driver.names.count("cuMemcpyDtoHAsync_v2") > 1
        failures = [  # memory for what is copied, and for the operands, which grow; what is waited for
            ("cuMemHostAlloc", 1, 2000, "out of memory"),
            ("cuMemHostAlloc", 2, 4000, "out of memory"),
            ("cuStreamSynchronize", 2, 5, "waiting"),
        ]
        for function, call, rows, message in failures:
            driver.clear()
            driver.fail(call, 2, function)
            with pytest.raises(RunError, match=message):
                model(np.zeros((rows, 9), np.float32))
            driver.clear()
            model(np.zeros((5, 9), np.float32))


def test_code_of_its_own_for_some_sizes_is_refused(tmp_path: Path) -> None:
    nodes = [onnx_models.node("Relu", "x", "y")]
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_models.model_of(nodes, ["n", 4]).SerializeToString())
    with on_cuda(), pytest.raises(CompileError, match="code of its own for some sizes is for processors") as error:
        nnefc.compile(path, specialize=[{"n": 8}])
    assert "--shape NAME=SIZE" in str(error.value)


@pytest.mark.usefixtures("driver")
def test_sizes_that_conditions_choose_are_computed_before_a_launch(tmp_path: Path) -> None:
    """Of slices that may begin before the first element: `s - 5`, plus `s` where that is negative, but at least 0."""
    onnx_models.test_slices_count_from_the_end_where_their_ends_are_negative(tmp_path)


@pytest.mark.usefixtures("driver")
def test_a_kernel_of_sizes_in_which_tvm_finds_no_multiples_keeps_its_rule(tmp_path: Path) -> None:
    """Without a warning of a rule that was left out, which is an error here."""
    values = {"zero": [0], "two": [2], "end": [-4], "axis": [2]}
    constants = {name: np.array(value, np.int64) for name, value in values.items()}
    nodes = [
        onnx_models.node("Slice", "x zero end axis", "a"),
        onnx_models.node("Slice", "x zero two axis", "b"),
        onnx_models.node("Concat", "a b", "c", axis=2),
        onnx_models.node("Transpose", "c", "y", perm=[0, 2, 1]),
    ]
    model = onnx_models.model_of(nodes, [2, 8, "w"], **constants)
    onnx_models.check(model, tmp_path, {"w": "2..40"}, [(2, 8, width) for width in (2, 4, 5, 33)])


@pytest.mark.usefixtures("driver")
def test_dimensions_may_be_called_as_cpp_calls_something_else(tmp_path: Path) -> None:
    """Kernels of 64-bit integers have their sizes as arguments: `new` is no name in C++."""
    nodes = [onnx_models.node("Transpose", "x", "a"), onnx_models.node("Cast", "a", "y", to=7)]
    model = onnx_models.model_of(nodes, ["max", "new"])
    model.graph.output[0].type.tensor_type.elem_type = 7
    onnx_models.check(model, tmp_path, {"max": "1..9", "new": "1..40"}, [(1, 1), (3, 33)])
