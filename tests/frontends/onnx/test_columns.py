"""Attributes of millions of elements, decoded from the file of their model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from nnefc.frontends.onnx.columns import KINDS, Column, field_run
from nnefc.frontends.onnx.files.large_tensors import ITSELF, without_large_tensors
from nnefc.frontends.onnx.files.reading import read_model
from nnefc.support.diagnostics import CompileError
from nnefc.support.wire_format import BYTES, MalformedError, field_head

A = onnx.AttributeProto

RNG = np.random.default_rng(0)
COLUMNS = {
    "bytes": (A.INTS, RNG.integers(0, 100, 1000).tolist()),
    "small": (A.INTS, RNG.integers(0, 1 << 20, 300_000).tolist()),
    "all integers": (A.INTS, [0, -1, 1 << 62, -(1 << 63), (1 << 28) - 1, 1 << 28, 300]),
    "late large ones": (A.INTS, [1] * 600_000 + [1 << 40]),
    "floats": (A.FLOATS, RNG.standard_normal(1000).astype(np.float32).tolist()),
    "few strings": (A.STRINGS, [b"LEAF", b"BRANCH_LEQ", b"", b"LEAF"] * 50_000),
    "strings like keys": (A.STRINGS, [b"JJ", b"J", b"J\x04JJJJ", b"ends"] * 10_000),
    "long strings": (A.STRINGS, ["é".encode() * n for n in (1, 63, 64, 100, 10_000, 3)] * 60),
}


def attribute(kind: int, values: list, name: str = "column") -> onnx.AttributeProto:
    made = A(name=name, type=kind)
    getattr(made, KINDS[kind]).extend(values)
    return made


def column(made: onnx.AttributeProto) -> Column:
    """The one that is in a message of the attribute."""
    bare = A()
    getattr(bare, KINDS[made.type]).extend(getattr(made, KINDS[made.type]))
    return Column(np.frombuffer(bare.SerializeToString(), np.uint8), made.type, "attribute")


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_have_the_elements_that_protobuf_reads(name: str) -> None:
    kind, values = COLUMNS[name]
    found = column(attribute(kind, values))
    expected = [v.decode() for v in values] if kind == A.STRINGS else values
    assert found.array().tolist() == expected
    assert (len(found), list(found)[:3], bool(found)) == (len(values), expected[:3], True)


@pytest.mark.parametrize("name", COLUMNS)
def test_runs_end_where_another_field_begins(name: str) -> None:
    content = attribute(*COLUMNS[name]).SerializeToString()
    begin = content.index(b"column") + len("column")
    run = field_run(memoryview(content), begin, len(content))
    assert run is not None
    assert A.FromString(content[:begin] + content[run.end :]) == A(name="column", type=run.kind)
    assert field_run(memoryview(content), 0, len(content)) is None


def test_packed_lists_are_columns_too() -> None:
    numbers, reals = bytes([1, 2, 0xAC, 2]), np.array([0.5, -2], np.float32).tobytes()
    for kind, number, data, expected in (
        (A.INTS, A.INTS_FIELD_NUMBER, numbers, [1, 2, 300]),
        (A.FLOATS, A.FLOATS_FIELD_NUMBER, reals, [0.5, -2]),
    ):
        content = field_head(number, len(data)) + data
        assert list(getattr(A.FromString(content), KINDS[kind])) == expected
        assert Column(np.frombuffer(content, np.uint8), kind, "attribute").array().tolist() == expected
        run = field_run(memoryview(content + b"\xa0\x01\x07"), 0, len(content) + 3)
        assert run is not None
        assert (run.begin, run.end) == (0, len(content))


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_columns_are_refused(kind: int) -> None:
    content = {A.FLOATS: b"\x3d\0\0", A.INTS: b"\x40\x81", A.STRINGS: b"\x4a\x05abc"}[kind]
    for data in (content, b"\x08" + content, content[:1], b"", content + b"\x08" * 30):
        with pytest.raises(CompileError, match="damaged"):
            Column(np.frombuffer(data, np.uint8), kind, "attribute 'a'").array()
    with pytest.raises(CompileError, match="UTF-8"):
        Column(np.frombuffer(b"\x4a\x01\xff", np.uint8), A.STRINGS, "attribute 'a'").array()


def model(*attributes: onnx.AttributeProto, operator: str = "TreeEnsembleClassifier") -> onnx.ModelProto:
    node = helper.make_node(operator, ["x"], ["y"], domain="custom")
    node.attribute.extend(attributes)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    return helper.make_model(
        helper.make_graph([node], "g", ends[:1], ends[1:]), ir_version=9, opset_imports=[helper.make_opsetid("", 17)]
    )


def test_models_are_read_the_same_whatever_is_large(tmp_path: Path) -> None:
    ints, strings = attribute(A.INTS, list(range(700_000)), "i"), attribute(A.STRINGS, [b"LEAF", b"B"] * 150_000, "s")
    small = attribute(A.INTS, [1, 2], "small")
    content = model(ints, strings, small).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(content)
    (node,) = read_model(tmp_path / "m.onnx").graph.nodes
    assert isinstance(node.attributes["i"], Column)
    assert node.kinds == {"i": A.INTS, "s": A.STRINGS, "small": A.INTS}
    assert list(node.attributes["i"]) == list(range(700_000))
    assert list(node.attributes["s"]) == ["LEAF", "B"] * 150_000
    assert node.attributes["small"] == (1, 2)
    (tmp_path / "other.onnx").write_bytes(model(ints, operator="Other").SerializeToString())
    assert read_model(tmp_path / "other.onnx").graph.nodes[0].attributes["i"] == tuple(range(700_000))
    assert len(without_large_tensors(np.frombuffer(content, np.uint8))) < 1000


@pytest.mark.parametrize("change", ["another value", "no type", "another type", "twice"])
def test_odd_lists_are_left_to_the_parser(change: str) -> None:
    odd = attribute(A.INTS, list(range(700_000)), "i")
    match change:
        case "another value":
            odd.f = 1
        case "no type":
            odd.ClearField("type")
        case "another type":
            odd.type = A.FLOATS
    content = model(odd).SerializeToString()
    if change == "twice":  # with the type between the two halves
        content = odd.SerializeToString() * 2
        for number in (
            onnx.NodeProto.ATTRIBUTE_FIELD_NUMBER, onnx.GraphProto.NODE_FIELD_NUMBER, onnx.ModelProto.GRAPH_FIELD_NUMBER
        ):  # fmt: skip
            content = field_head(number, len(content)) + content
    assert without_large_tensors(np.frombuffer(content, np.uint8)) == content


def test_a_file_may_say_by_itself_where_a_list_is_and_gets_no_further(tmp_path: Path) -> None:
    odd = A(name="i", type=A.INTS, t=TensorProto(data_location=TensorProto.EXTERNAL))
    for key, value in (("location", f"{ITSELF} ints"), ("offset", "3"), ("length", "1000")):
        odd.t.external_data.add(key=key, value=value)
    (tmp_path / "small.onnx").write_bytes(model(odd).SerializeToString())
    with pytest.raises(CompileError, match="not a path inside"):
        read_model(tmp_path / "small.onnx")
    large = attribute(A.INTS, list(range(700_000)), "j")
    (tmp_path / "large.onnx").write_bytes(model(odd, large).SerializeToString())
    (node,) = read_model(tmp_path / "large.onnx").graph.nodes
    with pytest.raises(CompileError, match=r"the attribute 'i' of .* is damaged"):
        list(node.attributes["i"])


def test_fields_end_in_their_message() -> None:
    with pytest.raises(MalformedError):
        field_run(memoryview(b"\x42\x05\x01"), 0, 3)
    assert BYTES == 2
