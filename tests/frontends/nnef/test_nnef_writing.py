"""Models of NNEF that nnefc writes: read again, they are the network that they were written from."""

from __future__ import annotations

import io
import os
import re
import tarfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import relax_programs
from models import networks, zoo
from nnef_cases import document, load_text
from nnef_writing import round_trip
from onnx import helper, numpy_helper
from onnx_models import graph, info, model, node, save, tensor
from random_networks import random_case
from test_operations_compiled import GROUPS

import nnefc
from nnefc.frontends.nnef import load as load_nnef
from nnefc.frontends.nnef.writing.data_movement import slice_ends
from nnefc.frontends.nnef.writing.document import Document
from nnefc.frontends.nnef.writing.rules import RULES
from nnefc.frontends.nnef.writing.tract import TRACT_RULES, TractDocument
from nnefc.frontends.onnx import load as load_onnx
from nnefc.ir.dataflow import bindings_of
from nnefc.ir.network import Network
from nnefc.operators.math.reduction import ArgMinMax
from nnefc.operators.tensor.concatenation import Split
from nnefc.support.diagnostics import CompileError, ModelWarning

BOOL = onnx.TensorProto.BOOL


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.sample(5)
def test_operations_of_the_standard_are_written_as_they_were_read(group: str, tmp_path: Path) -> None:
    text, _ = document(GROUPS[group]())
    made = round_trip(lambda: load_text(text, tmp_path), tmp_path)
    assert made.same_relax, made.text


@pytest.mark.parametrize("name", [pytest.param("shufflenet", marks=pytest.mark.slow), "squeezenet"])
def test_networks_of_onnx_are_the_same_program(name: str, tmp_path: Path) -> None:
    twin = zoo.write_twins(tmp_path, name, divide=8).onnx
    made = round_trip(lambda: load_onnx(twin), tmp_path)
    made.check()
    assert len(bindings(made.network)) == len(bindings(made.again)), "an operation for each operator"
    names = {tensor.name for tensor in onnx.load(twin).graph.initializer}
    labels = {path.relative_to(tmp_path / "again.nnef").with_suffix("").as_posix() for path in weights(tmp_path)}
    assert labels and labels <= names, "weights keep their names"


def bindings(network: Network) -> list[object]:
    return bindings_of(network.module["main"])


def weights(folder: Path) -> list[Path]:
    return sorted((folder / "again.nnef").rglob("*.dat"))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
@pytest.mark.slow
def test_random_networks_compute_the_same(seed: int, tmp_path: Path) -> None:
    """Made of Relax alone: there is no record of operators."""
    built = relax_programs.build([calm_case(100 * seed + i) for i in range(4)])
    made = round_trip(lambda: built.network, tmp_path)
    made.check(1e-3)


def calm_case(seed: int) -> relax_programs.Case:
    """A random network without the error function, which NNEF does not have."""
    for attempt in range(1000):
        text = relax_programs.build([random_case(seed + 10_000 * attempt, 8)]).network.module.script()
        if not re.search(r"erf|gelu|call_tir|half|int8|bfloat16", text):
            return random_case(seed + 10_000 * attempt, 8)  # again: it draws numbers when it is built
    raise AssertionError("no network without the error function")


def one_node(
    folder: Path, kind: str, *constants: np.ndarray, x: tuple[int, ...] = (2, 3), **attributes: object
) -> Path:
    """A model of one operator of ONNX on `x` and constants."""
    names = [f"c{i}" for i in range(len(constants))]
    initializers = [numpy_helper.from_array(value, name) for name, value in zip(names, constants, strict=True)]
    made = graph([node(kind, ["x", *names], ["y"], **attributes)], [info("x", x)], [info("y", None)], initializers)
    return save(model(made), folder)


def test_a_scaled_summand_of_rank_0(tmp_path: Path) -> None:
    b, c = np.random.default_rng(0).random((3, 4), np.float32), np.float32(1.5)
    path = one_node(tmp_path, "Gemm", b, np.asarray(c), alpha=-0.75, beta=0.5)
    round_trip(lambda: load_onnx(path), tmp_path).check()


def test_what_nnef_lacks_is_an_error_with_its_operator_and_location(tmp_path: Path) -> None:
    path = one_node(tmp_path, "Erf", name="bell")
    with pytest.raises(CompileError) as caught:
        nnefc.convert(path, tmp_path / "out.nnef")
    assert caught.value.message == "node 'bell' (Erf): NNEF has no operation for the function 'erf'"
    assert caught.value.hint
    assert not (tmp_path / "out.nnef").exists()


@pytest.mark.parametrize(
    ("own", "made", "fits"), [("INT32", "UINT8", False), ("UINT8", "INT8", False), ("UINT8", "INT16", True)]
)
def test_integers_that_a_narrower_type_cuts_are_an_error(own: str, made: str, fits: bool, tmp_path: Path) -> None:
    types = onnx.TensorProto
    nodes = [node("Cast", ["x"], ["a"], to=getattr(types, made)), node("Cast", ["a"], ["y"], to=types.INT32)]
    inner = graph(nodes, [info("x", (4,), getattr(types, own))], [info("y", (4,), types.INT32)])
    path = save(model(inner), tmp_path)
    if fits:
        with pytest.warns(ModelWarning, match="integers of NNEF have no width"):
            nnefc.convert(path, tmp_path / "out.nnef")
        return
    with pytest.raises(CompileError, match=f"NNEF has no tensors of {made.lower()}, whose numbers are cut to their"):
        nnefc.convert(path, tmp_path / "out.nnef")


def test_a_graph_that_is_called_as_an_operation_has_another_name(tmp_path: Path) -> None:
    made = graph([node("Relu", ["x"], ["y"])], [info("x")], [info("y")])
    made.name = "linear"
    nnefc.convert(save(model(made), tmp_path), tmp_path / "out.nnef")
    assert "graph linear_(" in (tmp_path / "out.nnef" / "graph.nnef").read_text()
    nnefc.compile(tmp_path / "out.nnef")


def test_branches_are_an_error_with_the_name_of_what_they_make(tmp_path: Path) -> None:
    branches = {
        f"{name}_branch": graph([node(kind, ["x"], [name])], [], [info(name)], name=name)
        for name, kind in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [node("If", ["which"], ["chosen"], **branches), node("Relu", ["chosen"], ["y"])]
    made = graph(nodes, [info("which", (), onnx.TensorProto.BOOL), info("x")])
    path = save(model(made), tmp_path)
    for registry in (None, "tract_core"):
        with pytest.raises(CompileError, match=r"^error: the tensor 'chosen': NNEF has no branches, and") as error:
            nnefc.convert(path, tmp_path / "out.nnef", registry=registry)
        assert "--registry" not in str(error.value.hint)


def test_integers_that_are_compared_with_reals_are_cast_as_tract_does(tmp_path: Path) -> None:
    x, y = info("x", (4,), onnx.TensorProto.INT64), info("y", (4,), onnx.TensorProto.BOOL)
    nodes = [node("Greater", ["x", "limit"], ["y"])]
    path = save(model(graph(nodes, [x], [y], [tensor("limit", 2, np.int64)])), tmp_path)
    nnefc.convert(path, tmp_path / "again.nnef", registry="tract_core")
    text = (tmp_path / "again.nnef" / "graph.nnef").read_text()
    assert " cast" not in text and "tract_core_cast" in text
    (made,) = nnefc.compile(tmp_path / "again.nnef").run({"x": np.arange(4)}).values()
    np.testing.assert_array_equal(made, [False, False, False, True])


@pytest.mark.parametrize(
    ("sizes", "empty"), [((0, 4), [True]), ((4, 0), [False, True]), ((1, 0, 3), [False, True, False])]
)
def test_a_part_of_no_elements_is_not_the_whole(sizes: tuple[int, ...], empty: list[bool]) -> None:
    """An end of 0 is that of the tensor, unless 0 is the beginning, too: the whole is no slice."""
    document = TractDocument(constant_name=str, rules=TRACT_RULES)
    x = document.external("float32", (4, 2))
    assert [part.shape for part in TRACT_RULES[Split](document, Split(0, sizes), x)] == [(n, 2) for n in sizes]
    given = [each.arguments for each in document.invocations[1:]]
    assert [each["begin"] == each["end"] == [4] for each in given] == empty
    assert slice_ends(4, 0, 0, 1) == (4, 4)


def test_the_position_in_what_has_no_axes_is_not_the_element() -> None:
    made = Document(constant_name=str, rules=RULES)
    x = made.external("float32", (2, 3))
    RULES[ArgMinMax](made, ArgMinMax((), keepdims=False), x)
    assert [each.operation.name for each in made.invocations] == ["external", "argmax_reduce"]


def test_what_is_not_needed_may_be_anything(tmp_path: Path) -> None:
    nodes = [node("Erf", ["x"], ["lost"]), node("Relu", ["x"], ["y"])]
    path = save(model(nodes), tmp_path)
    nnefc.convert(path, tmp_path / "out.nnef")
    assert "relu(" in (tmp_path / "out.nnef" / "graph.nnef").read_text()


def test_names_become_identifiers_and_a_comment_tells_the_old_ones(tmp_path: Path) -> None:
    nodes = [
        node("Add", ["in put", "/w.0"], ["1"]),
        node("Relu", ["1"], ["a.b"]),
        node("Relu", ["a.b"], ["a/b"]),
        node("Neg", ["a/b"], ["for"]),
    ]
    made = graph(nodes, [info("in put")], [info("for")], [tensor("/w.0", np.arange(3))])
    nnefc.convert(save(model(made), tmp_path), tmp_path / "out.nnef")
    text = (tmp_path / "out.nnef" / "graph.nnef").read_text()
    for renamed in ("# in_put is 'in put'", "# _1 is '1'", "# a_b is 'a.b'", "# a_b_2 is 'a/b'", "# for_ is 'for'"):
        assert f"{renamed}\n" in text
    assert "graph g(in_put) -> (for_)" in text
    assert (tmp_path / "out.nnef" / "w.0.dat").is_file()


def test_labels_of_files_never_meet_and_never_leave_the_folder(tmp_path: Path) -> None:
    names = ["../up", "w", "W", "w.dat/w", "", "a" * 300, "x/./y"]
    nodes, last = [], "x"
    for index, name in enumerate(names[:4] + names[5:]):
        nodes.append(node("Add", [last, name], [f"t{index}"]))
        last = f"t{index}"
    initializers = [tensor(name, np.full(3, i + 0.5)) for i, name in enumerate(names) if name]
    made = graph(nodes, [info("x")], [info(last)], initializers)
    nnefc.convert(save(model(made), tmp_path), tmp_path / "out.nnef")
    files = [path.relative_to(tmp_path / "out.nnef").as_posix() for path in (tmp_path / "out.nnef").rglob("*.dat")]
    assert len({file.casefold() for file in files}) == 6
    assert not (tmp_path / "up.dat").exists()
    assert len(load_nnef(tmp_path / "out.nnef").variables) == 6


def test_archives_have_the_same_bytes_every_time(tmp_path: Path) -> None:
    path = one_node(tmp_path, "Add", np.arange(100, dtype=np.float32), x=(2, 100))
    for name in ("a.nnef.tgz", "b.nnef.tgz", "a.tar"):
        nnefc.convert(path, tmp_path / name)
    assert (tmp_path / "a.nnef.tgz").read_bytes() == (tmp_path / "b.nnef.tgz").read_bytes()
    with tarfile.open(fileobj=io.BytesIO((tmp_path / "a.tar").read_bytes())) as tar:
        assert tar.getnames() == ["c0.dat", "graph.nnef"]
    assert load_nnef(tmp_path / "a.nnef.tgz").inputs == ("x",)


def test_a_model_is_replaced_whole_and_other_folders_are_left_alone(tmp_path: Path) -> None:
    path, out = one_node(tmp_path, "Relu"), tmp_path / "out.nnef"
    nnefc.convert(one_node(tmp_path, "Add", np.ones(3, np.float32)), out)
    assert (out / "c0.dat").is_file()
    path = one_node(tmp_path, "Relu")
    nnefc.convert(path, out)
    assert os.listdir(out) == ["graph.nnef"]
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "letter.txt").write_text("dear")
    with pytest.raises(CompileError, match="would be replaced"):
        nnefc.convert(path, precious)
    assert (precious / "letter.txt").read_text() == "dear"
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_integers_of_64_bits_are_reported_to_be_read_as_32(tmp_path: Path) -> None:
    made = graph(
        [node("Gather", ["w", "x"], ["y"])],
        [info("x", (2,), onnx.TensorProto.INT64)],
        [info("y", (2, 3))],
        [tensor("w", np.arange(12).reshape(4, 3))],
    )
    path = save(model(made), tmp_path)
    with pytest.warns(ModelWarning, match=r"read as 32 bits: 'x' \(int64\)"):
        nnefc.convert(path, tmp_path / "out.nnef")


def test_booleans_that_are_gathered_stay_such(tmp_path: Path) -> None:
    indices = numpy_helper.from_array(np.array([2, 0]), "i")
    made = graph([node("Gather", ["x", "i"], ["y"])], [info("x", (3, 2), BOOL)], [info("y", (2, 2), BOOL)], [indices])
    nnefc.convert(save(model(made), tmp_path), tmp_path / "out.nnef")
    assert "gather<logical>(x" in (tmp_path / "out.nnef" / "graph.nnef").read_text()
    x = np.array([[True, False], [False, False], [True, True]])
    assert np.array_equal(nnefc.compile(tmp_path / "out.nnef").run({"x": x})["y"], x[[2, 0]])


def test_documents_grow_with_the_network(tmp_path: Path) -> None:
    """A line for each operator, however many there are."""
    sizes = []
    for count in (200, 400):
        nodes = [node("Relu", ["x" if i == 0 else f"t{i - 1}"], [f"t{i}"]) for i in range(count)]
        path = save(model(graph(nodes, [info("x")], [info(f"t{count - 1}")])), tmp_path)
        nnefc.convert(path, tmp_path / "out.nnef")
        sizes.append(len((tmp_path / "out.nnef" / "graph.nnef").read_text().splitlines()))
    assert sizes[1] - sizes[0] == 200


def test_fp16_has_no_name_in_nnef(tmp_path: Path) -> None:
    made = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT16, (2, 3))
    out = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT16, (2, 3))
    path = save(model(graph([node("Relu", ["x"], ["y"])], [made], [out])), tmp_path)
    with pytest.raises(CompileError, match="NNEF has no tensors of float16"):
        nnefc.convert(path, tmp_path / "out.nnef")


def test_large_weights_of_fp16_become_variables(tmp_path: Path) -> None:
    """Of a layer and of a recurrent one, whose weights the model converts to float32."""
    rng, to = np.random.default_rng(4), onnx.TensorProto.FLOAT
    shapes = {"a": (181, 192), "w": (1, 192, 181), "r": (1, 192, 192)}
    nodes = [node("Cast", [name], [f"{name}32"], to=to) for name in shapes]
    nodes += [
        node("MatMul", ["x", "a32"], ["y"]),
        node("Unsqueeze", ["x", "one"], ["steps"]),
        node("RNN", ["steps", "w32", "r32"], ["", "h"], hidden_size=192),
    ]
    held = [tensor(name, rng.standard_normal(shape) / 13, np.float16) for name, shape in shapes.items()]
    outputs = [info("y", (2, 192)), info("h", (1, 1, 192))]
    made = model(graph(nodes, [info("x", (2, 181))], outputs, [*held, tensor("one", [1], np.int64)]))
    nnefc.convert(save(made, tmp_path), tmp_path / "again.nnef")
    x = rng.standard_normal((2, 181)).astype(np.float32)
    first, second = (nnefc.compile(tmp_path / name).run({"x": x}) for name in ("model.onnx", "again.nnef"))
    for name in ("y", "h"):
        np.testing.assert_allclose(first[name], second[name], rtol=1e-5, atol=1e-5)


def test_gelu_by_tanh_keeps_its_bits(tmp_path: Path) -> None:
    """It is written as several operations, in the order in which the operator computes it."""
    text = """<ir_version: 10, opset_import: ["" : 20]>
    gelu (float[3,65] x) => (float[3,65] y) { y = Gelu <approximate = "tanh"> (x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    nnefc.convert(tmp_path / "model.onnx", tmp_path / "again.nnef")
    x = np.random.default_rng(5).standard_normal((3, 65)).astype(np.float32) * 3
    first, second = (nnefc.compile(tmp_path / name).load(threads=1)(x) for name in ("model.onnx", "again.nnef"))
    np.testing.assert_array_equal(first, second)


@pytest.mark.slow(15)
@pytest.mark.parametrize("name", networks.NAMES)
def test_whole_networks_compute_the_same_bits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of operators that NNEF has one operation for each; those with an error function in tract's dialect.

    Equal kernels are compiled once, by the cache of kernels: what is written differently has kernels of its own.
    """
    monkeypatch.setenv("NNEFC_CACHE", str(tmp_path / "cache"))
    twins = networks.write_twins(tmp_path, name)
    for number, source in enumerate((twins.onnx, twins.nnef)):
        again = tmp_path / f"{number}.nnef"
        try:
            nnefc.convert(source, again)
        except CompileError as error:
            assert "error function" in error.message or "no loops" in error.message
            nnefc.convert(source, again, registry="tract_core")
        values = networks.input_of(onnx.load(twins.onnx)).values()
        made = [nnefc.compile(path) for path in (source, again)]
        results = [
            list(one.run({tensor.name: value for tensor, value in zip(one.inputs, values, strict=True)}).values())
            for one in made
        ]
        for first, second in zip(*results, strict=True):
            if "lstm" in name or "gru" in name:  # step by step
                np.testing.assert_allclose(second, first, 1e-4, 1e-5)
            else:
                np.testing.assert_array_equal(second, first)
