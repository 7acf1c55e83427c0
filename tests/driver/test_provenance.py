"""The digest of a model's files: that of sha256sum, whatever the format."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc
from nnefc.driver import provenance
from nnefc.driver.provenance import source_digest
from nnefc.support.diagnostics import CompileError

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "model.nnef"


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.mark.parametrize("settled", [0, 1 << 62], ids=["long ago", "just now"])
def test_a_file_that_changes_has_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled: int) -> None:
    monkeypatch.setattr(provenance, "_SETTLED", settled)
    path, read = tmp_path / "model.onnx", 0
    file_digest = hashlib.file_digest

    def noted(*args: Any) -> Any:
        nonlocal read
        read += 1
        return file_digest(*args)

    monkeypatch.setattr(hashlib, "file_digest", noted)
    path.write_bytes(b"one")
    assert source_digest(path) == source_digest(path) == sha256(b"one")
    assert read == (1 if settled == 0 else 2)
    path.write_bytes(b"two")
    os.utime(path, ns=(0, 0))
    assert source_digest(path) == sha256(b"two")


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs: sha256sum")
def test_a_folder_has_the_digest_of_what_sha256sum_prints() -> None:
    command = "find . -type f | sed 's|^./||' | LC_ALL=C sort | xargs sha256sum"
    lines = subprocess.run(["sh", "-c", command], cwd=DIGITS, capture_output=True, check=True).stdout
    assert len(lines.splitlines()) > 5
    assert source_digest(DIGITS) == sha256(lines)


def test_a_single_file_has_its_own_digest(tmp_path: Path) -> None:
    (tmp_path / "model.tgz").write_bytes(b"what the archive holds")
    assert source_digest(tmp_path / "model.tgz") == sha256(b"what the archive holds")


def test_a_pnnx_model_is_two_files(tmp_path: Path) -> None:
    (tmp_path / "m.pnnx.param").write_bytes(b"a")
    (tmp_path / "m.pnnx.bin").write_bytes(b"b")
    both = f"{hashlib.sha256(b'b').hexdigest()}  m.pnnx.bin\n{hashlib.sha256(b'a').hexdigest()}  m.pnnx.param\n"
    assert source_digest(tmp_path / "m.pnnx.param") == sha256(both.encode())


def test_files_with_data_of_an_onnx_model_count(tmp_path: Path) -> None:
    values = np.arange(2048, dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2048])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2048])],
        [numpy_helper.from_array(values, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="data.bin")
    artifact = nnefc.compile(tmp_path / "m.onnx")
    lines = "".join(
        f"{hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()}  {name}\n" for name in ("data.bin", "m.onnx")
    )
    assert artifact.description.source == sha256(lines.encode())


def test_the_library_has_the_digest(tmp_path: Path) -> None:
    path = tmp_path / "m.nnef"
    path.write_text("version 1.0; graph m(x) -> (y) { x = external<scalar>(shape = [2]); y = exp(x); }")
    with nnefc.compile(path).load() as model:
        assert model.source == source_digest(path)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="there is no file"):
        source_digest(tmp_path / "none.onnx")
