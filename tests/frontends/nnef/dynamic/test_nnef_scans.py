"""Loops of networks in tract's dialect: scans over fragments, which tract runs and which compile again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import tract
from onnx import TensorProto, helper, numpy_helper
from onnx_models import graph, info, model, node, save

import nnefc
from nnefc.support.diagnostics import CompileError

RNG = np.random.default_rng(31)


def real(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


def dynamic_info(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def outs(*names: str) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]


def by_tract(path: Path, values: dict[str, np.ndarray], sizes: dict[str, int]) -> list[np.ndarray]:
    form = tract.nnef().load(str(path))
    if sizes:
        form.transform(tract.SetSymbols(sizes))
    return [each.to_numpy() for each in form.into_runnable().run(list(values.values()))]


def check(path: Path, values: dict[str, np.ndarray], sizes: dict[str, int] | None = None) -> str:
    """Converted, tract and nnefc compute what onnxruntime computes of the original; the document."""
    again = path.with_suffix(".nnef")
    nnefc.convert(path, again, registry="tract_core")
    expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, values)
    made = nnefc.compile(again).run(values).values()
    for one, other, wanted in zip(made, by_tract(again, values, sizes or {}), expected, strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(other, wanted, rtol=1e-4, atol=1e-5)
    return (again / "graph.nnef").read_text()


@pytest.mark.parametrize(
    ("kind", "direction"),
    [("LSTM", "forward"), ("GRU", "reverse"), pytest.param("RNN", "reverse", marks=pytest.mark.slow)],
)
@pytest.mark.sample(1)
def test_recurrent_layers_of_any_length_are_scans(kind: str, direction: str, tmp_path: Path) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    values = {"w": real(1, gates * 6, 5), "r": real(1, gates * 6, 6), "b": real(1, 2 * gates * 6)}
    nodes = [node(kind, ["x", "w", "r", "b"], ["y", "last"], hidden_size=6, direction=direction)]
    made = graph(
        nodes,
        [dynamic_info("x", "T", 2, 5)],
        outs("y", "last"),
        [numpy_helper.from_array(v, n) for n, v in values.items()],
    )
    text = check(save(model(made), tmp_path), {"x": real(7, 2, 5)}, {"T": 7})
    assert text.count("tract_core_scan") == 1 and "fragment body1(" in text


def test_long_layers_are_scans_and_short_ones_are_not(tmp_path: Path) -> None:
    weights = [numpy_helper.from_array(real(1, 4, *shape), n) for n, shape in {"w": (3,), "r": (4,)}.items()]
    for steps, scans in ((32, 0), (33, 1)):
        nodes = [node("RNN", ["x", "w", "r"], ["y"], hidden_size=4)]
        path = save(model(graph(nodes, [dynamic_info("x", steps, 1, 3)], outs("y"), weights)), tmp_path)
        assert check(path, {"x": real(steps, 1, 3)}).count("tract_core_scan") == scans


def test_a_scan_of_onnx_with_a_state_and_what_is_the_same_in_all_iterations(tmp_path: Path) -> None:
    body = graph(
        [node("Mul", ["item", "k"], ["m"]), node("Add", ["m", "state"], ["next"]), node("Exp", ["next"], ["out"])],
        [dynamic_info("state", 3), dynamic_info("item", 3)],
        [dynamic_info("next", 3), dynamic_info("out", 3)],
    )
    nodes = [
        node("Abs", ["k0"], ["k"]),
        node("Scan", ["s", "x"], ["last", "y"], body=body, num_scan_inputs=1, scan_input_directions=[1]),
    ]
    inputs = [dynamic_info("s", 3), dynamic_info("x", "n", 3), dynamic_info("k0", 3)]
    path = save(model(graph(nodes, inputs, outs("last", "y"))), tmp_path)
    check(path, {"s": real(3), "x": real(5, 3), "k0": real(3)}, {"n": 5})


def test_a_loop_that_uses_its_number(tmp_path: Path) -> None:
    body = graph(
        [
            node("Cast", ["i"], ["number"], to=TensorProto.FLOAT),
            node("Add", ["state", "number"], ["next"]),
            node("Sin", ["next"], ["out"]),
            node("Identity", ["go"], ["on"]),
        ],
        [info("i", (), TensorProto.INT64), info("go", (), TensorProto.BOOL), dynamic_info("state", 2)],
        [info("on", (), TensorProto.BOOL), dynamic_info("next", 2), dynamic_info("out", 2)],
    )
    constants = [numpy_helper.from_array(np.array(value), name) for name, value in {"yes": True, "zero": 0}.items()]
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["count"]),
        node("Loop", ["count", "yes", "s"], ["last", "y"], body=body),
        node("Add", ["y", "x"], ["z"]),
    ]
    inputs = [dynamic_info("s", 2), dynamic_info("x", "n", 2)]
    path = save(model(graph(nodes, inputs, outs("last", "z"), constants)), tmp_path)
    assert "tract_core_range" in check(path, {"s": real(2), "x": real(6, 2)}, {"n": 6})


@pytest.mark.parametrize("registry", [None, "tract_core"])
def test_recurrent_layers_of_integers_are_named(registry: str | None, tmp_path: Path) -> None:
    values = {
        "w": np.ones((1, 3, 8), np.int8),
        "r": np.ones((1, 2, 8), np.int8),
        **dict.fromkeys(("ws", "rs"), np.ones(1, np.float32)),
        **dict.fromkeys(("wz", "rz"), np.zeros(1, np.int8)),
    }
    inputs = ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"]
    nodes = [node("DynamicQuantizeLSTM", inputs, ["y"], name="layer", hidden_size=2, domain="com.microsoft")]
    weights = [numpy_helper.from_array(value, name) for name, value in values.items()]
    path = save(
        model(graph(nodes, [dynamic_info("x", 40, 1, 3)], outs("y"), weights), imports={"com.microsoft": 1}), tmp_path
    )
    with pytest.raises(CompileError, match=r"'layer' .*no operation for recurrent layers of integers"):
        nnefc.convert(path, tmp_path / "out.nnef", registry=registry)


def test_the_standard_has_no_loops(tmp_path: Path) -> None:
    body = graph(
        [node("Add", ["item", "state"], ["next"])],
        [dynamic_info("state", 3), dynamic_info("item", 3)],
        [dynamic_info("next", 3)],
    )
    nodes = [node("Scan", ["s", "x"], ["last"], body=body, num_scan_inputs=1)]
    path = save(model(graph(nodes, [dynamic_info("s", 3), dynamic_info("x", "n", 3)], outs("last"))), tmp_path)
    with pytest.raises(CompileError, match="no branches and loops"):
        nnefc.convert(path, tmp_path / "out.nnef")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("n = concat([i, s], axis = 0);", r"float32\[1, 2\], but after an iteration 'n' is float32\[2, 2\]"),
        ("n = tile(i, repeats = [400000, 1]);", r"but after an iteration 'n' is float32\[400000, 2\]"),
        ("n = tract_core_cast(s, to = 'f64');", r"but after an iteration 'n' is float64\[1, 2\]"),
    ],
)
@pytest.mark.parametrize("count", [1, 3])
def test_states_stay_as_large_as_they_are(body: str, message: str, count: int, tmp_path: Path) -> None:
    text = (
        "version 1.0;\nextension tract_registry tract_core;\n"
        f"fragment b(i: tensor<scalar>, s: tensor<scalar>) -> (n: tensor<scalar>) {{ {body} }}\n"
        f"graph g(x) -> (y) {{ x = external<scalar>(shape = [{count}, 2]);"
        " y = tract_core_scan(body = 'b', scan = [('i', x, 0, 1)], state = [('s', [[0.0, 0.0]], 'n')],"
        " output = [('n', 'last', 0, 1)]); }"
    )
    (tmp_path / "graph.nnef").write_text(text)
    with pytest.raises(CompileError, match=message):
        nnefc.compile(tmp_path)
