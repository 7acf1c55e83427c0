"""Control flow, variables and signatures give what LiteRT gives, run after run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tflite_files import Graph, model_file, reference

import nnefc
from nnefc.frontends.tflite import load, outline
from nnefc.support.diagnostics import CompileError

pytest.importorskip("ai_edge_litert")

RNG = np.random.default_rng(3)


def written(folder: Path, content: bytes) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(content)
    return path


def branch(name: str, operator: str) -> Graph:
    """`operator` of an input and itself."""
    graph = Graph(name)
    x = graph.input((2, 3))
    graph.add(operator, [x, x], [graph.output((2, 3))], f"{operator.capitalize()}Options")
    return graph


def test_if_runs_the_branch_that_its_condition_says(tmp_path: Path) -> None:
    main = Graph()
    condition, x = main.input((1,), "bool"), main.input((2, 3))
    fields = {"then_subgraph_index": 1, "else_subgraph_index": 2}
    main.add("IF", [condition, x], [main.output((2, 3))], "IfOptions", **fields)
    content = model_file(main, branch("then", "ADD"), branch("else", "MUL"))
    network = nnefc.compile(written(tmp_path, content))
    value = RNG.standard_normal((2, 3)).astype(np.float32)
    runs = [[np.array([chosen]), value] for chosen in (True, False)]
    for run, (wanted,) in zip(runs, reference(content, *runs), strict=True):
        np.testing.assert_array_equal(network.run({"t0": run[0], "t1": run[1]})["t2"], wanted)


def loop(name: str = "WHILE") -> bytes:
    """x doubled, i increased, while i < 5."""
    main, condition, body = Graph(), Graph("cond"), Graph("body")
    i, x = main.input((1,), "int32"), main.input((3,))
    results = [main.output((1,), "int32"), main.output((3,))]
    options = "WhileOptions" if name == "WHILE" else "StablehloWhileOptions"
    main.add(name, [i, x], results, options, cond_subgraph_index=1, body_subgraph_index=2)
    i, x = condition.input((1,), "int32"), condition.input((3,))
    five = condition.tensor((1,), "int32", np.array([5], np.int32))
    condition.add("LESS", [i, five], [condition.output((1,), "bool")])
    i, x = body.input((1,), "int32"), body.input((3,))
    one = body.tensor((1,), "int32", np.array([1], np.int32))
    body.add("ADD", [i, one], [body.output((1,), "int32")], "AddOptions")
    body.add("ADD", [x, x], [body.output((3,))], "AddOptions")
    return model_file(main, condition, body)


@pytest.mark.parametrize("name", ["WHILE", "STABLEHLO_WHILE"])
def test_while_runs_as_often_as_its_condition_holds(name: str, tmp_path: Path) -> None:
    content = loop()  # LiteRT has no kernel for the other one
    network = nnefc.compile(written(tmp_path, loop(name)))
    runs = [[np.array([first], np.int32), np.array([1, -2, 0.5], np.float32)] for first in (0, 3, 7)]
    for run, wanted in zip(runs, reference(content, *runs), strict=True):
        found = network.run({"t0": run[0], "t1": run[1]})
        for mine, other in zip(found.values(), wanted, strict=True):
            np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("name", ["CALL", "STABLEHLO_COMPOSITE"])
def test_subgraphs_are_called(name: str, tmp_path: Path) -> None:
    main = Graph()
    x = main.input((2, 3))
    if name == "CALL":
        main.add(name, [x], [main.output((2, 3))], "CallOptions", subgraph=1)
    else:
        main.add(name, [x], [main.output((2, 3))], "StableHLOCompositeOptions", decomposition_subgraph_index=1)
    network = nnefc.compile(written(tmp_path, model_file(main, branch("inner", "ADD"))))
    value = RNG.standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_array_equal(network.run({"t0": value})["t1"], 2 * value)


def test_a_subgraph_that_runs_itself_is_refused(tmp_path: Path) -> None:
    main, inner = Graph(), Graph("inner")
    for graph in (main, inner):
        x = graph.input((2,))
        graph.add("CALL", [x], [graph.output((2,))], "CallOptions", subgraph=1)
    with pytest.raises(CompileError, match=r"subgraph 1, operator 0 \(CALL\): subgraph 1 runs itself"):
        load(written(tmp_path, model_file(main, inner)))


def counter() -> bytes:
    """A variable that begins at 10 and that each run adds its input to; with a signature."""
    main, init = Graph(), Graph("init")
    main.add("CALL_ONCE", [], [], "CallOnceOptions", init_subgraph_index=1)
    handle, before = main.tensor((), "resource"), main.tensor((2,))
    x, after = main.input((2,)), main.output((2,))
    main.add("VAR_HANDLE", [], [handle], "VarHandleOptions", shared_name="total")
    main.add("READ_VARIABLE", [handle], [before])
    main.add("ADD", [before, x], [after], "AddOptions")
    main.add("ASSIGN_VARIABLE", [handle, after], [])
    handle, ten = init.tensor((), "resource"), init.tensor((2,), value=np.array([10, 10], np.float32))
    init.add("VAR_HANDLE", [], [handle], "VarHandleOptions", shared_name="total")
    init.add("ASSIGN_VARIABLE", [handle, ten], [])
    signature = {"signature_key": "step", "inputs": [{"name": "more", "tensor_index": x}],
                 "outputs": [{"name": "sum", "tensor_index": after}], "subgraph_index": 0}  # fmt: skip
    return model_file(main, init, signatures=[signature])


def test_variables_are_states_that_begin_with_what_is_assigned_once(tmp_path: Path) -> None:
    content = counter()
    network = nnefc.compile(written(tmp_path, content))
    values = [RNG.standard_normal(2).astype(np.float32) for _ in range(3)]
    session = network.load()
    for value, (wanted,) in zip(values, reference(content, *([v] for v in values)), strict=True):
        np.testing.assert_array_equal(next(iter(session.run({"t2": value}).values())), wanted)


def test_an_entry_is_a_signature_with_its_names(tmp_path: Path) -> None:
    path = written(tmp_path, counter())
    network = load(path, entry="step")
    assert (network.inputs, network.outputs) == (("more",), ("sum",))
    assert "step" in outline(path).about
    with pytest.raises(CompileError, match="has no signature 'other'") as error:
        load(path, entry="other")
    assert error.value.hint == "there are 'step'"


def test_dynamic_sizes_stay_open_and_shapes_are_computed_from_them(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input((1, 4, 3), shape_signature=[-1, 4, 3])
    shape = graph.tensor((3,), "int32")
    graph.add("SHAPE", [x], [shape], "ShapeOptions", out_type=2)
    bounds = [graph.tensor((1,), "int32", np.array([n], np.int32)) for n in (0, 1, 1)]
    batch, flat = graph.tensor((), "int32"), graph.tensor((2,), "int32")
    graph.add("STRIDED_SLICE", [shape, *bounds], [batch], "StridedSliceOptions", shrink_axis_mask=1)
    twelve = graph.tensor((), "int32", np.array(12, np.int32))
    graph.add("PACK", [batch, twelve], [flat], "PackOptions", values_count=2)
    rows, result = graph.tensor((1, 12)), graph.output((1, 5))
    graph.add("RESHAPE", [x, flat], [rows])
    w = graph.tensor((5, 12), value=RNG.standard_normal((5, 12)).astype(np.float32))
    graph.add("FULLY_CONNECTED", [rows, w, -1], [result], "FullyConnectedOptions", fused_activation_function=1)
    content = model_file(graph)
    network = nnefc.compile(written(tmp_path, content))
    for size in (1, 3):
        value = RNG.standard_normal((size, 4, 3)).astype(np.float32)
        ((wanted,),) = reference(content, [value])
        np.testing.assert_allclose(next(iter(network.run({"t0": value}).values())), wanted, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_quantized_softmax_takes_any_batch(dtype: str, tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input((1, 5), dtype, scale=0.001, shape_signature=[-1, 5])
    out = {"int8": (1 / 256, -128), "int16": (1 / 32768, 0)}[dtype]
    y = graph.output((1, 5), dtype, scale=out[0], zero=out[1], shape_signature=[-1, 5])
    graph.add("SOFTMAX", [x], [y], "SoftmaxOptions", beta=1.0)
    content = model_file(graph)
    network = nnefc.compile(written(tmp_path, content))
    for size in (1, 4):
        value = RNG.integers(-100, 100, (size, 5)).astype(dtype)
        ((wanted,),) = reference(content, [value])
        np.testing.assert_array_equal(network.run({"t0": value})["t1"], wanted)
