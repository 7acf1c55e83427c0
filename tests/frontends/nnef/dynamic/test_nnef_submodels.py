"""What else lies in a model of tract's dialect: other models, and values in JSON."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from nnef_tract import model, real

import nnefc
from nnefc.frontends.nnef.files.tensor_file import write_tensor

INNER = """version 1.0;
extension tract_registry tract_core;
extension tract_symbol N;
fragment twice( a: tensor<scalar> ) -> ( b: tensor<scalar> ) { b = a + a; }
graph inner(a) -> (b, c)
{
    a = external(shape = [N, 3]);
    w = variable<scalar>(label = 'w', shape = [1, 3]);
    b = twice(a * w);
    c = slice(a, axes = [0], begin = [N - 1], end = [N]);
}
"""
OUTER = """x = tract_core_external(shape = [S, 3], datum_type = 'f32');
(p, q) = tract_core_submodel(x, label = 'inner');
(r, s) = tract_core_submodel(p, label = 'inner');
y = r + q;"""


def inner(folder: Path, weight: np.ndarray, text: str = INNER) -> Path:
    folder.mkdir()
    (folder / "graph.nnef").write_text(text)
    write_tensor(folder / "w.dat", weight)
    return folder


def packed(folder: Path, mode: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:  # type: ignore[call-overload]
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.add(file, str(file.relative_to(folder)))
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["folder", "tar", "tgz", "folder in an archive"])
@pytest.mark.sample(2)
def test_a_model_inside_a_model(kind: str, tmp_path: Path) -> None:
    """Its files are its own, its symbols are sizes of what it is given, and it may be called twice."""
    weight = real(1, 3)
    (tmp_path / "outer").mkdir()
    outer = model(tmp_path / "outer", OUTER, before="extension tract_symbol S;")
    if kind.startswith("folder"):
        inner(outer / "inner", weight)
    else:
        content = packed(inner(tmp_path / "other", weight), "w:gz" if kind == "tgz" else "w")
        (outer / f"inner.nnef.{kind}").write_bytes(content)
    path = outer
    if kind == "folder in an archive":
        path = tmp_path / "outer.tgz"
        path.write_bytes(packed(outer, "w:gz"))
    with nnefc.compile(path).load() as network:
        for size in (1, 4):
            x = real(size, 3)
            np.testing.assert_allclose(network(x), 4 * x * weight**2 + x[-1:], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("label", "text", "says"),
    [
        ("other", INNER, "there is no model"),
        ("inner", INNER.replace("[N, 3]", "[N, 4]"), r"is \['N', 4\], it is given float32"),
        ("inner", INNER.replace("inner(a)", "inner(a, w)"), "one graph with 1 inputs"),
        ("../outer/inner", INNER, "leads out of"),
        (".", INNER, "inside each other too deeply"),
    ],
)
def test_models_that_do_not_fit(label: str, text: str, says: str, tmp_path: Path) -> None:
    """Such as one that is inside itself."""
    (tmp_path / "outer").mkdir()
    body = f"x = external(shape = [2, 3]); y = tract_core_submodel(x, label = '{label}');"
    folder = model(tmp_path / "outer", body)
    inner(folder / "inner", real(1, 3), text)
    with pytest.raises(nnefc.CompileError, match=says):
        nnefc.compile(folder, max_depth=40)


def test_what_archives_inside_unpack_to_is_limited(tmp_path: Path) -> None:
    (tmp_path / "outer").mkdir()
    folder = model(tmp_path / "outer", OUTER, before="extension tract_symbol S;")
    other = inner(tmp_path / "other", real(1, 3))
    (other / "zeros.dat").write_bytes(bytes(4 << 20))
    (folder / "inner.nnef.tgz").write_bytes(packed(other, "w:gz"))
    with pytest.raises(nnefc.CompileError, match="unpacks to more than"):
        nnefc.compile(folder)


CONFIG = {"width": 3, "sizes": [[1, 2], [4, 5]], "inner-part": {"gain": 0.5, "mode": "x"}, "none": None}


def resources(folder: Path, body: str) -> Path:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return model(folder, body, before="extension tract_registry tract_resource;")


def test_values_of_a_file(tmp_path: Path) -> None:
    body = """w = tract_resource_get(label = 'config', key = '$.width');
    h = tract_resource_get('config', '$.sizes[1][0]');
    x = external(shape = [h, w]);
    y = x * tract_resource_get('config', '$.inner-part.gain');"""
    x = real(4, 3)
    with nnefc.compile(resources(tmp_path, body)).load() as network:
        np.testing.assert_array_equal(network(x), x / 2)


@pytest.mark.parametrize(
    ("label", "key", "says"),
    [
        ("other", "$.width", "there is no file '.*other.json'"),
        ("../config", "$.width", "leads out of"),
        ("config", "width", "does not begin with '\\$'"),
        ("config", "$.sizes[2]", "no '2'"),
        ("config", "$.wide", "no 'wide'"),
        ("config", "$.none", "is not a number"),
        ("config", "$.sizes[x]", "no name with numbers of elements"),
        ("graph.nnef\0", "$.width", "leads out of"),
    ],
)
def test_values_that_are_not_there(label: str, key: str, says: str, tmp_path: Path) -> None:
    body = f"x = external(shape = [2]); y = x * tract_resource_get('{label}', '{key}');"
    with pytest.raises(nnefc.CompileError, match=says):
        nnefc.compile(resources(tmp_path, body))
