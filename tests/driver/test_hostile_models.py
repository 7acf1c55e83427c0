"""Models that ask for far more work or memory than their files are worth: an error that says so, or a library, soon."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from resource_limits import confined

import nnefc
from nnefc.frontends.refusals import reason_of
from nnefc.support.diagnostics import CompileError, memory_errors

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def compiled(path: Path) -> bool:
    nnefc.compile(path)
    return True


def constant_bytes(path: Path) -> int:
    return nnefc.compile(path).description.constant_bytes


def ran(path: Path) -> dict[str, np.ndarray]:
    """What the library gives for zeros."""
    artifact = nnefc.compile(path)
    return artifact.run({port.name: np.zeros(port.shape, port.dtype) for port in artifact.inputs})


def onnx_file(
    folder: Path, nodes: list[onnx.NodeProto], shape: list[int], output: int = FLOAT, **constants: Any
) -> Path:
    """A network of the input `x` and the output `y`, with these initializers."""
    initializers = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    inputs = [helper.make_tensor_value_info("x", FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", output, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    path = folder / "model.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    )
    return path


def pnnx_file(folder: Path, *lines: str) -> Path:
    path = folder / "model.pnnx.param"
    operands = {word for line in lines for word in line.split()[4:] if word.isdigit()}
    path.write_text("\n".join(["7767517", f"{len(lines)} {len(operands)}", *lines]))
    path.with_suffix(".bin").write_bytes(b"PK\x05\x06" + bytes(18))
    return path


def expression_file(folder: Path, text: str) -> Path:
    lines = ["pnnx.Input a 0 1 0 #0=(3)f32", f"pnnx.Expression e 1 1 0 1 expr={text}", "pnnx.Output o 1 0 1"]
    return pnnx_file(folder, *lines)


NODE = helper.make_node


def archive_of(mebibytes: int) -> bytes:
    """A compressed archive: a document, then a file of zeros."""
    document = b"version 1.0;"
    first, second = tarfile.TarInfo("graph.nnef"), tarfile.TarInfo("w.dat")
    first.size, second.size = len(document), mebibytes << 20
    start = first.tobuf() + document.ljust(tarfile.BLOCKSIZE, b"\0") + second.tobuf()
    return gzip.compress(start) + gzip.compress(bytes(1 << 20), 1) * mebibytes + gzip.compress(bytes(1024))


def test_an_archive_that_is_no_archive_is_refused_at_once(tmp_path: Path) -> None:
    """Twice as much as the process may have."""
    (tmp_path / "m.tgz").write_bytes(gzip.compress(bytes(1 << 24), 1) * (1 << 7))
    with pytest.raises(CompileError, match="neither a tar archive nor an ONNX model inside"):
        confined(compiled, tmp_path / "m.tgz", gib=1)


def test_an_archive_that_unpacks_to_far_more_than_it_is_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.tgz").write_bytes(archive_of(300))
    with pytest.raises(CompileError, match=r"unpacks to more than 268,435,456 bytes, from"):
        confined(compiled, tmp_path / "m.tgz", gib=2)


def test_a_compressed_model_of_onnx_that_unpacks_to_far_more_than_it_is_is_refused(tmp_path: Path) -> None:
    """A field that a reader skips, of 300 MiB of zeros, then a graph: the whole has 300 KB."""
    content = onnx_file(tmp_path, [NODE("Neg", ["x"], ["y"])], [1]).read_bytes() + b"\x32\x80\x80\x80\x96\x01"
    (tmp_path / "m.onnx.gz").write_bytes(gzip.compress(content, 1) + gzip.compress(bytes(1 << 20), 1) * 300)
    with pytest.raises(CompileError, match=r"unpacks to more than 268,435,456 bytes, from"):
        confined(compiled, tmp_path / "m.onnx.gz", gib=2)


def test_more_memory_than_there_is_is_an_error_of_the_model(tmp_path: Path) -> None:
    """Weights of 2 GiB, in a file without a block on the disk, where the process may have 1 GiB."""
    elements = 1 << 29
    with (tmp_path / "weights").open("wb") as file:
        file.truncate(4 * elements)
    path = onnx_file(tmp_path, [NODE("Add", ["x", "w"], ["y"])], [1])
    model = onnx.load(path)
    weights = onnx.TensorProto(name="w", data_type=FLOAT, dims=[elements], data_location=onnx.TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value="weights")
    model.graph.initializer.append(weights)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(CompileError, match="memory"):
        confined(compiled, path, gib=1)


def test_memory_that_tvm_lacks_is_an_error_of_the_model() -> None:
    with pytest.raises(CompileError, match=r"error: too large$"), memory_errors("too large"):
        tvm.runtime.empty((1 << 60,), "int8")
    with pytest.raises(RuntimeError) as caught:
        tvm.runtime.empty((1 << 60,), "int8")
    assert reason_of(caught.value) == reason_of(MemoryError()) == "it takes more memory than there is"


@pytest.mark.parametrize(
    ("nodes", "shape", "constants", "name"),
    [
        (
            [NODE("LSTM", ["x", "w", "r"], ["y"], hidden_size=4)],
            [1 << 30, 1, 1],
            {"w": np.zeros((1, 16, 1), np.float32), "r": np.zeros((1, 16, 4), np.float32)},
            "the node LSTM that makes 'y'",
        ),
        ([NODE("TopK", ["x", "k"], ["y", "i"])], [1 << 33], {"k": np.array([2])}, "the input 'x'"),
        ([NODE("Relu", ["x"], ["y"])], [1 << 31], {}, "the input 'x'"),
        (
            [NODE("Mul", ["x", "w"], ["y"])],
            [1 << 16, 1],
            {"w": np.ones(1 << 15, np.float32)},
            "the node Mul that makes 'y'",
        ),
    ],
)
@pytest.mark.sample(2)
def test_tensors_have_positions_of_32_bits(
    tmp_path: Path, nodes: list[onnx.NodeProto], shape: list[int], constants: dict[str, Any], name: str
) -> None:
    with pytest.raises(CompileError, match=f"{name}.* elements[,:] a tensor may have 2,147,483,647"):
        confined(compiled, onnx_file(tmp_path, nodes, shape, **constants))


def cosines(sizes: list[int], *nodes: onnx.NodeProto) -> list[onnx.NodeProto]:
    """`b`, many numbers that are known and that no file holds, and what is made of it."""
    one = onnx.numpy_helper.from_array(np.array([1.5], np.float32))
    return [NODE("ConstantOfShape", ["s"], ["a"], value=one), NODE("Cos", ["a"], ["b"]), *nodes]


@pytest.mark.slow
def test_large_products_of_constants_are_folded_by_a_fast_library(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    w, v = rng.standard_normal((2, 2000, 2000)).astype(np.float32)
    nodes = [NODE("MatMul", ["w", "v"], ["c"]), NODE("Slice", ["c", "z", "z2"], ["d"]), NODE("Add", ["x", "d"], ["y"])]
    path = onnx_file(tmp_path, nodes, [2, 2], w=w, v=v, z=np.array([0, 0]), z2=np.array([2, 2]))
    found = confined(ran, path)["y"]
    np.testing.assert_allclose(found, (w[:2].astype(np.float64) @ v[:, :2].astype(np.float64)), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("sizes", "nodes"),
    [
        ([9000, 9000], [NODE("MatMul", ["b", "b"], ["c"])]),
        ([1, 1, 500, 500], [NODE("Conv", ["b", "b"], ["c"], pads=[250] * 4)]),
    ],
)
@pytest.mark.sample(1)
def test_what_takes_too_long_to_fold_stays(tmp_path: Path, sizes: list[int], nodes: list[onnx.NodeProto]) -> None:
    chain = cosines(sizes, *nodes, NODE("Add", ["x", "c"], ["y"]))
    path = onnx_file(tmp_path, chain, [1], s=np.array(sizes))
    assert confined(compiled, path)


def test_a_number_that_is_spread_out_does_not_become_a_large_constant(tmp_path: Path) -> None:
    """Two gigabytes of it: the library holds the number, and spreads it out when it runs."""
    nodes = [NODE("Expand", ["v", "s"], ["c"]), NODE("Add", ["x", "c"], ["y"])]
    path = onnx_file(tmp_path, nodes, [1], v=np.float32(2.5), s=np.array([1 << 19, 1 << 10]))
    assert confined(constant_bytes, path, gib=3) < 1000


def test_what_must_be_known_and_takes_too_long_is_refused(tmp_path: Path) -> None:
    nodes = cosines([9000, 9000], NODE("MatMul", ["b", "b"], ["c"]), NODE("Cast", ["c"], ["i"], to=INT64))
    nodes.append(NODE("Tile", ["x", "i"], ["y"]))
    with pytest.raises(CompileError, match="must be known at compile time"):
        confined(compiled, onnx_file(tmp_path, nodes, [1], INT64, s=np.array([9000, 9000])))


def test_sequences_do_not_get_any_number_of_elements(tmp_path: Path) -> None:
    nodes = [NODE("SplitToSequence", ["x"], ["q"]), NODE("SequenceAt", ["q", "i"], ["y"])]
    with pytest.raises(CompileError, match="the sequence would have 200,000 elements, at most 16,384 are supported"):
        confined(compiled, onnx_file(tmp_path, nodes, [200_000], i=np.array(3)))


def test_sequences_do_not_get_longer_and_longer(tmp_path: Path) -> None:
    nodes = [NODE("SequenceConstruct", ["x"] * 16_384, ["q"]), NODE("SequenceInsert", ["q", "x"], ["r"])]
    nodes += [NODE("SequenceAt", ["r", "i"], ["y"])]
    with pytest.raises(CompileError, match="the sequence would have 16,385 elements, at most 16,384 are supported"):
        confined(compiled, onnx_file(tmp_path, nodes, [1], i=np.array(3)))


@pytest.mark.parametrize(
    "node",
    [
        NODE("EyeLike", ["x"], ["y"]),
        NODE("Range", ["zero", "many", "one"], ["y"]),
        NODE("ConstantOfShape", ["large"], ["y"]),
        NODE("OneHot", ["locations", "many", "values"], ["y"]),
    ],
    ids=lambda node: node.op_type,
)
@pytest.mark.sample(2)
def test_constants_in_few_words_do_not_take_gigabytes(tmp_path: Path, node: onnx.NodeProto) -> None:
    numbers = {"zero": np.array(0), "one": np.array(1), "many": np.array((1 << 31) - 1), "large": np.array([1 << 30])}
    given = {**numbers, "locations": np.array([0, 1]), "values": np.zeros(2, np.float32)}
    path = onnx_file(tmp_path, [node], [46340, 46340], **given)
    with pytest.raises(CompileError, match=r"is too large|a tensor may have 2,147,483,647"):
        confined(compiled, path, gib=2)


@pytest.mark.parametrize(
    "node", [NODE("Expand", ["x", "twos"], ["y"]), NODE("Tile", ["x", "twos"], ["y"])], ids=lambda node: node.op_type
)
@pytest.mark.sample(1)
def test_tensors_of_thirty_axes_are_spread_out(tmp_path: Path, node: onnx.NodeProto) -> None:
    path = onnx_file(tmp_path, [node], [1] * 30, twos=np.array([2] * 20 + [1] * 10))
    assert confined(constant_bytes, path, gib=2) < 1000


def test_graphs_are_not_nested_in_any_depth(tmp_path: Path) -> None:
    value = [helper.make_tensor_value_info("v", FLOAT, None)]
    graph = helper.make_graph([NODE("Neg", ["x"], ["v"])], "g", [], value)
    for _ in range(28):
        graph = helper.make_graph([NODE("If", ["c"], ["v"], then_branch=graph, else_branch=graph)][:1], "g", [], value)
        del graph.node[0].attribute[1].g.node[:]
    nodes = [NODE("Cast", ["x"], ["c"], to=onnx.TensorProto.BOOL), NODE("If", ["c"], ["y"], then_branch=graph)]
    with pytest.raises(CompileError, match="nested more than 24 graphs deep"):
        confined(compiled, onnx_file(tmp_path, nodes, []))


def test_functions_do_not_call_themselves(tmp_path: Path) -> None:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("d", 1)]
    calls = (("f", "g"), ("g", "f"))
    functions = [
        helper.make_function("d", own, ["a"], ["b"], [NODE(other, ["a"], ["b"], domain="d")], opsets)
        for own, other in calls
    ]
    values = [helper.make_tensor_value_info(name, FLOAT, [3]) for name in "xy"]
    graph = helper.make_graph([NODE("f", ["x"], ["y"], domain="d")], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(CompileError, match="calls itself"):
        confined(compiled, tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("neg(" * 100_000 + "@0" + ")" * 100_000, "the expression has 100,001 numbers, operands and functions"),
        pytest.param(
            f"[{','.join(['neg(@0)'] * 50_000)}]", "the expression has 100,001 numbers", marks=pytest.mark.slow
        ),
        (f"[{','.join(['@0'] * 5_000)}]", "a list has more than 4096 elements"),
    ],
)
def test_expressions_and_lists_have_bounds(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        confined(compiled, expression_file(tmp_path, text))


def test_lists_that_double_again_and_again_are_refused(tmp_path: Path) -> None:
    lines = ["pnnx.Input a 0 1 0 #0=(3)f32"]
    lines += [f"prim::ListConstruct l{i} 10 1 {' '.join([str(i)] * 10)} {i + 1}" for i in range(14)]
    with pytest.raises(CompileError, match="a list has more than 4096 elements"):
        confined(compiled, pnnx_file(tmp_path, *lines, "pnnx.Output o 1 0 14"))


@pytest.mark.parametrize(
    "operator",
    [
        "Tensor.split s 1 1 0 1 dim=0 split_size_or_sections=2",
        "torch.chunk s 1 1 0 1 dim=0 chunks=200000",
        "torch.tensor_split s 1 1 0 1 dim=0 sections=200000",
        "torch.unbind s 1 1 0 1 dim=0",
    ],
)
@pytest.mark.sample(2)
def test_tensors_do_not_become_any_number_of_parts(tmp_path: Path, operator: str) -> None:
    path = pnnx_file(tmp_path, "pnnx.Input a 0 1 0 #0=(400000)f32", operator, "pnnx.Output o 1 0 1")
    with pytest.raises(CompileError, match=r"a dimension of 400000 cannot become .*: at most 4096 are supported"):
        confined(compiled, path)


@pytest.mark.parametrize(("input", "size"), [("2,4,7,9", 2147483647), ("1,1,7,9", 40000), ("1,1,1,9", 1073741824)])
@pytest.mark.sample(1)
def test_adaptive_pools_do_not_have_any_number_of_windows(tmp_path: Path, input: str, size: int) -> None:
    operator = f"nn.AdaptiveAvgPool2d p 1 1 0 1 output_size={size}"
    path = pnnx_file(tmp_path, f"pnnx.Input a 0 1 0 #0=({input})f32", operator, "pnnx.Output o 1 0 1")
    with pytest.raises(CompileError, match=r"from 1 to 16777216|result would have the shape|takes more memory"):
        confined(compiled, path, gib=3)


def test_grams_skip_any_number_of_words_at_once(tmp_path: Path) -> None:
    """What is skipped beyond the end is nothing."""
    options = {"mode": "TF", "min_gram_length": 2, "max_gram_length": 2, "max_skip_count": 1 << 40}
    pool = {"ngram_counts": [0, 0], "ngram_indexes": [0], "pool_int64s": [2, 3]}
    nodes = [NODE("Cast", ["x"], ["i"], to=INT64), NODE("TfIdfVectorizer", ["i"], ["y"], **options, **pool)]
    assert confined(compiled, onnx_file(tmp_path, nodes, [5000]))


@pytest.mark.slow
def test_functions_that_double_again_and_again_are_refused(tmp_path: Path) -> None:
    functions = []
    for level in range(40):
        domain, name = ("d", f"f{level - 1}") if level else ("", "Neg")
        nodes = [NODE(name, [a], [b], domain=domain) for a, b in (("a", "b"), ("b", "c"))]
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("d", 1)]
        functions.append(helper.make_function("d", f"f{level}", ["a"], ["c"], nodes, opsets))
    values = [helper.make_tensor_value_info(name, FLOAT, [3]) for name in "xy"]
    graph = helper.make_graph([NODE("f39", ["x"], ["y"], domain="d")], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(CompileError, match="come to more than 65536 nodes") as caught:
        confined(compiled, tmp_path / "model.onnx")
    assert len(caught.value.message) < 400


def test_reasons_are_reported_without_the_hints_after_them() -> None:
    """What a pass raises in TVM's hands arrives as a text."""
    assert reason_of(RuntimeError("trace\nerror: it is open\nhint: narrow it\n")) == "it is open"
