"""What models say of themselves: kept in libraries, within limits, and shown."""

from __future__ import annotations

import importlib
import importlib.util
import platform
from pathlib import Path

import onnx
import onnx.parser
import pytest
from click.testing import CliRunner
from onnx import helper

import nnefc
from nnefc.cli import main
from nnefc.ir.model_metadata import metadata_of, own_entries
from nnefc.targets.description.library_file import read_metadata

OWN = {"names": "{0: 'cat'}", "漢\0字": "a\0b \x1b[2J\nsecond", "doc_string": "own", "": "no key", "empty": ""}
METADATA = {
    "producer_name": "made by",
    "producer_version": "2.9",
    "domain": "ai.test",
    "model_version": "7",
    "doc_string": "«ä» 🐈",
    "graph_doc_string": "of the graph",
}
KEPT = METADATA | {"metadata_props.doc_string" if key == "doc_string" else key: value for key, value in OWN.items()}


def proto(size: str) -> onnx.ModelProto:
    made = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> net (float[{size}] x) => (float[{size}] y) {{ y = Neg (x) }}'
    )
    for name, value in METADATA.items():
        if name == "graph_doc_string":
            made.graph.doc_string = value
        else:
            setattr(made, name, int(value) if name == "model_version" else value)
    helper.set_model_props(made, OWN)
    return made


@pytest.mark.parametrize("size", ["3", "n"])
def test_libraries_keep_what_models_say(size: str, tmp_path: Path) -> None:
    path = tmp_path / "net.so"
    nnefc.compile(proto(size)).export(path)
    with nnefc.load(path) as model:
        assert model.metadata == KEPT
        assert list(model.metadata) == list(KEPT)
        assert len(model.dimensions) == (size == "n")
    found = read_metadata(path)
    assert found is not None and dict(found.description.metadata) == KEPT
    onnx.save(proto(size), tmp_path / "net.onnx")
    for file in (path, tmp_path / "net.onnx"):
        shown = CliRunner().invoke(main, ["inspect", str(file)]).output
        for line in ("names: {0: 'cat'}", "doc_string: «ä» 🐈", "metadata_props.doc_string: own"):
            assert f"  {line}\n" in shown
        assert "a\N{REPLACEMENT CHARACTER}b" in shown and "\x1b" not in shown


@pytest.mark.skipif(platform.machine() != "x86_64", reason="is for x86-64")
def test_levels_say_the_same(tmp_path: Path) -> None:
    path = tmp_path / "net.so"
    nnefc.compile(proto("3"), "x86-64-v3", multi=True).export(path)
    with nnefc.load(path) as model:
        assert model.metadata == KEPT


def test_small_libraries_and_models_without_metadata_have_none(tmp_path: Path) -> None:
    bare = proto("3")
    for name in METADATA:
        if name != "graph_doc_string":
            bare.ClearField(name)
    bare.graph.ClearField("doc_string")
    del bare.metadata_props[:]
    for model, options in ((bare, {}), (proto("3"), {"small": True})):
        path = tmp_path / "net.so"
        nnefc.compile(model, **options).export(path)
        with nnefc.load(path) as loaded:
            assert loaded.metadata == {}
            assert loaded._library.dll.nnefc_describe().contents.struct_size < 200  # the members are not there
        assert b'"metadata"' not in path.read_bytes()


def test_properties_of_tracts_dialect_are_metadata(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(
        "version 1.0;\nextension tract_registry tract_core;\n"
        "fragment tract_core_properties() -> (properties: (string, tensor<scalar>)[])\n{\n"
        '  properties = [("torch", "2.9"), ("author", "a\\n\\"b\\""), ("count", 3), ("on", true), (1, "")];\n}\n'
        "graph g(x) -> (y)\n{\n  x = tract_core_external(shape = [2], datum_type = 'f32'); y = neg(x);\n}\n"
    )
    with nnefc.compile(tmp_path).load() as model:
        assert model.metadata == {"torch": "2.9", "author": 'a\n"b"', "count": "3", "on": "true"}


def test_converted_models_say_the_same(tmp_path: Path) -> None:
    """In tract's dialect as properties, which read back as they were; in comments of the standard's."""
    model = proto("3")
    embedded = OWN | {"it's": "a\\b \"q\" 'r'\n# no comment;\n}", "long": "x" * 3000, "{{a}}": "{% b %}{{{c}}}{#"}
    helper.set_model_props(model, embedded)
    onnx.save(model, tmp_path / "m.onnx")
    nnefc.convert(tmp_path / "m.onnx", tmp_path / "tract", registry="tract_core")
    with nnefc.compile(tmp_path / "tract").load() as converted, nnefc.compile(model).load() as original:
        assert list(converted.metadata.items()) == list(original.metadata.items())
        assert own_entries(converted.metadata) == embedded
    nnefc.convert(tmp_path / "tract", tmp_path / "again", registry="tract_core")
    text = (tmp_path / "tract" / "graph.nnef").read_text()
    assert (tmp_path / "again" / "graph.nnef").read_text() == text
    if importlib.util.find_spec("tract") is not None:
        importlib.import_module("tract").nnef().load(str(tmp_path / "tract"))
    nnefc.convert(tmp_path / "m.onnx", tmp_path / "standard")
    lines = (tmp_path / "standard" / "graph.nnef").read_text().splitlines()
    assert "# producer_name: 'made by'" in lines
    assert any(line.startswith("# it's: 'a") for line in lines)
    assert max(map(len, lines)) < 1100
    assert nnefc.compile(tmp_path / "standard").description.metadata == ()
    model = proto("3")
    for name in (*(name for name in METADATA if name != "graph_doc_string"), "metadata_props"):
        model.ClearField(name)
    model.graph.ClearField("doc_string")
    onnx.save(model, tmp_path / "m.onnx")
    nnefc.convert(tmp_path / "m.onnx", tmp_path / "silent", registry="tract_core")
    assert "properties" not in (tmp_path / "silent" / "graph.nnef").read_text()


def test_metadata_have_limits() -> None:
    found = metadata_of({"producer_name": "p", "domain": ""}, [("big", "x" * (1 << 18)), ("a", "1"), ("a", "2")])
    assert found.entries == {"producer_name": "p", "a": "2"}
    (warning,) = found.warnings
    assert warning.startswith("the metadata 'big', 262,147 bytes, are left out")
    many = metadata_of({}, ((str(number), "v" * 10_000_000) for number in range(20)))
    assert not many.entries and len(many.warnings) == 8
    assert len(metadata_of({}, ((str(number), "") for number in range(5000))).entries) == 1024


def test_keys_of_the_authors_come_back_as_they_were() -> None:
    own = {"doc_string": "a", "metadata_props.doc_string": "b", "metadata_props.": "c", "x": "d"}
    found = metadata_of({"doc_string": "of the model"}, own.items()).entries
    assert len(found) == 5
    assert own_entries(found) == own


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    assert metadata_of({"domain": b"a\xff"}, [(b"\xfe", "\ud800")]).entries == {"domain": "a\ufffd", "\ufffd": "?"}
    broken = proto("3").SerializeToString().replace(b"made by", b"\xff\xfe\xfd\xfc by")
    with nnefc.compile(broken).load() as model:
        assert model.metadata["producer_name"] == "\ufffd\ufffd\ufffd\ufffd by"
