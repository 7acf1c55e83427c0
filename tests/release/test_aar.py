"""The archive for Android: its parts, and that the same libraries are where apps and where C programs look for them."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from pathlib import Path

import pytest
from aar import write_aar
from elf import read

TEXT = "version 1.0;\ngraph g(x) -> (y) { x = external(shape = [8]); y = relu(x); }\n"
COMPILER = f"'{sys.executable}' -m ziglang cc -target aarch64-linux-musl"  # in place of the NDK's


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.nnef"
    path.write_text(TEXT)
    return path


def test_an_archive_has_what_androids_build_system_and_prefab_look_for(model: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_aar(model, tmp_path / name / "digits.aar", {"arm64-v8a": COMPILER})
    content = (tmp_path / "one" / "digits.aar").read_bytes()
    assert content == (tmp_path / "two" / "digits.aar").read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    module = "prefab/modules/digits"
    assert set(files) == {
        *("AndroidManifest.xml", "R.txt", "classes.jar", "jni/arm64-v8a/libdigits.so", "prefab/prefab.json"),
        *(f"{module}/{part}" for part in ("module.json", "include/nnefc.h", "include/nnefc.hpp")),
        *(f"{module}/libs/android.arm64-v8a/{part}" for part in ("abi.json", "libdigits.so")),
    }
    assert zipfile.is_zipfile(io.BytesIO(files["classes.jar"]))
    assert json.loads(files["prefab/prefab.json"])["schema_version"] == 2
    assert json.loads(files[f"{module}/module.json"])["library_name"] == "libdigits"
    assert json.loads(files[f"{module}/libs/android.arm64-v8a/abi.json"])["abi"] == "arm64-v8a"
    library = files["jni/arm64-v8a/libdigits.so"]
    assert library == files[f"{module}/libs/android.arm64-v8a/libdigits.so"]
    (tmp_path / "libdigits.so").write_bytes(library)
    found = read(tmp_path / "libdigits.so")
    assert found.soname == "libdigits.so"
    assert "nnefc_create" in found.exported


@pytest.mark.parametrize(
    ("name", "abi", "message"),
    [
        ("my-net.aar", "arm64-v8a", "begins with a letter"),
        ("net.aar", "mips", "the ABIs are arm64-v8a, x86_64, not mips"),
    ],
)
def test_names_that_cannot_be_are_refused(name: str, abi: str, message: str, model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        write_aar(model, tmp_path / name, {abi: COMPILER})
    assert not list(tmp_path.iterdir())
