"""Every operator that formats share, written in NNEF and in tract's dialect: read again it computes the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from computations import COMPUTATIONS
from formats import Computation, network_from_onnx
from nnef_cases import run_network
from nnef_writing import converted, results_of, round_trip, values_for
from nnef_writing_page import PAGE, page
from onnx import helper
from onnx_models import INT64, graph, info, model, node, save, tensor

import nnefc
from nnefc.frontends.nnef import load as load_nnef
from nnefc.frontends.nnef.files.tensor_file import write_tensor
from nnefc.support.diagnostics import CompileError, ModelWarning

WITHOUT_TRACT = 16
"""How many operators cannot be written in tract's dialect, at most."""

CASES = [computation for computation in COMPUTATIONS if computation.onnx is not None]


def attempt(computation: Computation, folder: Path) -> bool:
    """Whether NNEF can say it; then what is read again computes the same."""
    try:
        made = round_trip(lambda: network_from_onnx(computation, folder), folder)
    except CompileError as error:
        assert "NNEF" in error.message and error.hint
        return False
    made.check(1e-4)
    return True


@pytest.mark.parametrize("part", range(4))
@pytest.mark.sample(1)
def test_operators_are_written_in_nnef(part: int, tmp_path: Path) -> None:
    written = {case.name: attempt(case, tmp_path) for case in CASES[part::4]}
    assert sum(written.values()) > 2 * len(written) // 3


RUNNER = """
import json, sys, numpy, tract
for folder in json.loads(sys.argv[1]):
    inputs = numpy.load(folder + "/inputs.npz")
    model = tract.nnef().load(folder + "/model").into_runnable()
    made = model.run([inputs[name] for name in sorted(inputs)])
    numpy.savez(folder + "/tract.npz", *[output.to_numpy() for output in made])
"""


@pytest.mark.parametrize("step", [12, pytest.param(2, marks=pytest.mark.slow)])
def test_tract_runs_what_is_written_in_its_dialect(step: int, tmp_path: Path) -> None:
    """As nnefc reads it, and as the network itself computes."""
    expected, folders, refused = {}, [], []
    for number, computation in enumerate(CASES[::step]):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            network = converted(lambda c=computation, f=folder: network_from_onnx(c, f), folder / "model", "tract_core")
        except CompileError:
            refused.append(computation.name)
            continue
        values = values_for(network)
        expected[folder] = results_of(network, values)
        again = load_nnef(folder / "model")
        for result, own in zip(expected[folder], run_network(again, values), strict=True):
            assert result.dtype == own.dtype, computation.name
            np.testing.assert_allclose(own, result, 1e-4, 1e-5, err_msg=computation.name)
        np.savez(folder / "inputs.npz", **{f"{i:03d}": value for i, value in enumerate(values)})
        folders.append(str(folder))
    assert len(refused) <= WITHOUT_TRACT / step, refused
    # In a process of its own: tract ends it where it fails an assertion.
    subprocess.run([sys.executable, "-c", RUNNER, json.dumps(folders)], check=True, timeout=120)
    for folder, results in expected.items():
        found = np.load(folder / "tract.npz")
        for index, result in enumerate(results):
            text = (folder / "model" / "graph.nnef").read_text()
            np.testing.assert_allclose(found[f"arr_{index}"], result, 1e-3, 1e-4, err_msg=text)


def test_the_page_of_what_is_written_is_up_to_date(tmp_path: Path) -> None:
    assert PAGE.read_text() == page(tmp_path), "run: python tests/operators/nnef_writing_page.py"


def test_dynamic_sizes_are_unknown_in_nnef_and_symbols_for_tract(tmp_path: Path) -> None:
    made = graph(
        [node("Reshape", ["x", "shape"], ["r"]), node("Softmax", ["r"], ["y"], axis=1)],
        [info("x", ("batch", 2, 3))],
        [info("y", ("batch", 6))],
        [tensor("shape", [0, 6], np.int64)],
    )
    path = save(model(made), tmp_path)
    nnefc.convert(path, tmp_path / "standard.nnef")
    nnefc.convert(path, tmp_path / "tract.nnef", registry="tract_core")
    standard, tract = ((tmp_path / name / "graph.nnef").read_text() for name in ("standard.nnef", "tract.nnef"))
    assert "external<scalar>(shape = [0, 2, 3])" in standard
    assert "reshape<scalar>(x, shape = [0, 6]" in standard
    assert "extension tract_symbol batch;\nextension tract_assert batch >= 0;" in tract
    assert "shape = [batch, 2, 3]" in tract
    values = np.random.default_rng(0).standard_normal((5, 2, 3)).astype(np.float32)
    results = [nnefc.compile(tmp_path / name).run({"x": values})["y"] for name in ("standard.nnef", "tract.nnef")]
    np.testing.assert_array_equal(*results)


WINDOW = np.hanning(12).astype(np.float32)
MATRIX = np.random.default_rng(2).integers(-128, 128, (6, 3)).astype(np.int8)
STEPS: dict[str, tuple[list[onnx.NodeProto], tuple[int | str, ...], list[onnx.TensorProto]]] = {
    "frames of real signals": (
        [node("STFT", ["x", "step", "window", "length"], ["y"], onesided=1)],
        (2, "n", 1),
        [tensor("step", 5, np.int64), tensor("length", 12, np.int64), tensor("window", WINDOW)],
    ),
    "a spectrum, longer than the signal": (
        [node("DFT", ["x", "length", "axis"], ["y"], onesided=1)],
        ("n", 7, 1),
        [tensor("length", 9, np.int64), tensor("axis", 1, np.int64)],
    ),
    "a spectrum, and back": (
        [node("DFT", ["x", "", "axis"], ["t"]), node("DFT", ["t", "", "axis"], ["y"], inverse=1)],
        ("n", 10, 2),
        [tensor("axis", 1, np.int64)],
    ),
    "a product of integers that are made in the run": (
        [
            node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
            node("MatMulInteger", ["q", "w", "zero", "w_zero"], ["sums"]),
            node("Cast", ["sums"], ["reals"], to=1),
            node("Mul", ["reals", "scale"], ["y"]),
        ],
        ("n", 6),
        [tensor("w", MATRIX, np.int8), tensor("w_zero", 3, np.int8)],
    ),
    "a slice up to where the size of another dimension says": (
        [
            node("Shape", ["x"], ["rows"], start=0, end=1),
            node("Concat", ["x", "x"], ["xx"], axis=1),
            node("Slice", ["xx", "zero", "rows", "one"], ["s"]),
            node("ReduceSum", ["s", "one"], ["y"]),
        ],
        ("n", "n"),
        [tensor("zero", [0], np.int64), tensor("one", [1], np.int64)],
    ),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.sample(2)
def test_steps_that_only_the_dialect_of_tract_says(name: str, tmp_path: Path) -> None:
    """Sizes stay open; tract computes what is written, too."""
    nodes, shape, constants = STEPS[name]
    path = save(model(graph(nodes, [info("x", shape)], [info("y", None)], constants)), tmp_path)
    nnefc.convert(path, tmp_path / "model", registry="tract_core")
    values = np.random.default_rng(0).standard_normal([28 if size == "n" else int(size) for size in shape])
    x = values.astype(np.float32)
    expected = onnxruntime.InferenceSession(path).run(None, {"x": x})[0]
    np.testing.assert_allclose(nnefc.compile(tmp_path / "model").run({"x": x})["y"], expected, 1e-4, 1e-4)
    np.savez(tmp_path / "inputs.npz", x=x)
    subprocess.run([sys.executable, "-c", RUNNER, json.dumps([str(tmp_path)])], check=True, timeout=120)
    np.testing.assert_allclose(np.load(tmp_path / "tract.npz")["arr_0"], expected, 1e-4, 1e-4)


def test_a_size_that_nnef_cannot_say_names_the_operator(tmp_path: Path) -> None:
    made = graph(
        [node("Reshape", ["x", "shape"], ["y"])],
        [info("x", ("rows", 2, "columns", 3))],
        [info("y", ("rows", "columns2", 3))],
        [tensor("shape", [0, -1, 3], np.int64)],
    )
    path = save(model(made), tmp_path)
    nnefc.convert(path, tmp_path / "out.nnef")  # 0 and -1 say it
    made = graph([node("Tile", ["x", "s"], ["y"])], [info("x", (1, "n"))], [info("y", ("m", "n"))])
    made.node.insert(0, node("Shape", ["x"], ["s"]))
    with pytest.raises(CompileError, match=r"(?i)tile.*depends on a dynamic size") as caught:
        nnefc.convert(save(model(made), tmp_path), tmp_path / "out.nnef")
    assert "--registry tract_core" in (caught.value.hint or "")


def test_quantized_networks_keep_their_integers_in_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    weights = rng.integers(-127, 128, (4, 6)).astype(np.int8)
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        node("Gather", ["w", "ids"], ["rows"]),
        node("DequantizeLinear", ["rows", "ws", "wz"], ["wd"]),
        node("MatMul", ["xd", "wd"], ["y"]),
    ]
    initializers = [
        tensor("xs", 0.05),
        tensor("xz", 3, np.uint8),
        tensor("w", weights, np.int8),
        tensor("ws", 0.02),
        tensor("wz", 0, np.int8),
    ]
    made = graph(nodes, [info("x", (2, 3)), info("ids", (3,), INT64)], [info("y", (2, 6))], initializers)
    path = save(model(made), tmp_path)
    with pytest.warns(ModelWarning, match="32 bits"):
        nnefc.convert(path, tmp_path / "out.nnef")
    assert (tmp_path / "out.nnef" / "w.dat").stat().st_size == 128 + weights.size
    x, ids = rng.standard_normal((2, 3)).astype(np.float32), np.array([0, 2, 3])
    first = nnefc.compile(path).run({"x": x, "ids": ids})["y"]
    second = nnefc.compile(tmp_path / "out.nnef").run({"x": x, "ids": ids.astype(np.int32)})["y"]
    np.testing.assert_allclose(second, first, 1e-5)


@pytest.mark.parametrize(
    ("kind", "gates", "attributes"),
    [
        ("LSTM", 4, {}),
        ("LSTM", 4, {"direction": "reverse", "input_forget": 1, "clip": 0.5}),
        ("GRU", 3, {"linear_before_reset": 1}),
        ("GRU", 3, {"linear_before_reset": 0, "direction": "reverse"}),
        ("RNN", 1, {"activations": ["Relu"]}),
    ],
)
@pytest.mark.sample(1)
def test_recurrent_layers_are_written_step_by_step(
    kind: str, gates: int, attributes: dict[str, object], tmp_path: Path
) -> None:
    rng, (steps, batch, depth, size) = np.random.default_rng(4), (5, 2, 3, 4)

    def real(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / 2).astype(np.float32)

    names = ["x", "w", "r", "b", "", "h0", *(["c0", "p"] if kind == "LSTM" else [])]
    initializers = [
        tensor("w", real(1, gates * size, depth)),
        tensor("r", real(1, gates * size, size)),
        tensor("b", real(1, 2 * gates * size)),
        *([tensor("c0", real(1, batch, size)), tensor("p", real(1, 3 * size))] if kind == "LSTM" else []),
    ]
    nodes = [node(kind, names, ["y", "h"], hidden_size=size, **attributes)]
    inputs, outputs = (
        [info("x", (steps, batch, depth)), info("h0", (1, batch, size))],
        [info("y", None), info("h", None)],
    )
    proto = model(graph(nodes, inputs, outputs, initializers))
    nnefc.convert(save(proto, tmp_path), tmp_path / "out.nnef")
    values = {"x": real(steps, batch, depth), "h0": real(1, batch, size)}
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    found = run_network(load_nnef(tmp_path / "out.nnef"), list(values.values()))
    for expected, result in zip(session.run(None, values), found, strict=True):
        np.testing.assert_allclose(result, expected, 1e-4, 1e-5)


def test_fp16_is_written_for_tract(tmp_path: Path) -> None:
    kinds = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT16, (2, 3)) for name in "xy"]
    half = np.array([1, 2, 3], np.float16)
    nodes = [node("Mul", ["x", "w"], ["y"])]
    path = save(model(graph(nodes, kinds[:1], kinds[1:], [tensor("w", half, np.float16)])), tmp_path)
    nnefc.convert(path, tmp_path / "out.nnef", registry="tract_core")
    assert "datum_type = 'f16'" in (tmp_path / "out.nnef" / "graph.nnef").read_text()
    x = np.ones((2, 3), np.float16)
    np.testing.assert_array_equal(nnefc.compile(tmp_path / "out.nnef").run({"x": x})["y"], x * half)


def test_states_are_updated_variables(tmp_path: Path) -> None:
    text = """version 1.0;
    graph counter(x) -> (y) {
        x = external<scalar>(shape = [2]);
        s = variable<scalar>(shape = [2], label = 'total');
        y = add(x, s);
        t = update(s, y);
    }"""
    (tmp_path / "graph.nnef").write_text(text)
    write_tensor(tmp_path / "total.dat", np.array([10, 20], np.float32))
    made = round_trip(lambda: load_nnef(tmp_path), tmp_path)
    assert made.same_relax
    assert [state.name for state in made.again.states] == ["total"]
    assert "update<scalar>(" in made.text
    with pytest.raises(CompileError, match="keeps states between runs"):
        nnefc.convert(tmp_path, tmp_path / "out.nnef", registry="tract_core")
