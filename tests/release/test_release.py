"""What is published: the same bytes from the same sources, with a bill of materials and digests."""

from __future__ import annotations

import hashlib
import json
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("cyclonedx", reason="needs: nnefc[dist]")

from release import release

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {path.name: path for path in release(tmp_path_factory.mktemp("release"))}


def test_the_same_sources_give_the_same_bytes(files: dict[str, Path], tmp_path: Path) -> None:
    assert {path.name: path.read_bytes() for path in release(tmp_path)} == {
        name: path.read_bytes() for name, path in files.items()
    }


def test_the_digests_are_those_of_the_files(files: dict[str, Path]) -> None:
    lines = files["SHA256SUMS"].read_text().splitlines()
    found = {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items() if name != "SHA256SUMS"
    }
    assert dict(reversed(line.split("  ")) for line in lines) == found
    assert sorted(name.split("-")[0] for name in found) == ["nnefc", "nnefc", "nnefc_runtime", "nnefc_slim"]


def test_the_bill_of_materials_names_what_is_installed(files: dict[str, Path]) -> None:
    (wheel,) = (path for name, path in files.items() if name.endswith(".whl") and name.startswith("nnefc-"))
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/sboms/nnefc.cdx.json"))
        bill = json.loads(archive.read(name))
        record = archive.read(f"{name.partition('/')[0]}/RECORD").decode()
    assert f"{name},sha256=" in record
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "nnefc"
    components = {each["name"]: each for each in bill["components"]}
    for package in ("numpy", "apache-tvm", "onnx", "ziglang", "xxhash", "aiohttp"):
        assert components[package]["version"] == version(package)
        assert components[package]["purl"] == f"pkg:pypi/{package}@{version(package)}"
    assert "pytest" not in components
    depends = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    assert f"numpy=={version('numpy')}" in depends[bill["metadata"]["component"]["bom-ref"]]


def test_the_readmes_of_folders_are_in_the_archive_of_sources_alone(files: dict[str, Path]) -> None:
    wheels = [path for name, path in files.items() if name.endswith(".whl")]
    assert [name for path in wheels for name in zipfile.ZipFile(path).namelist() if name.endswith("README.md")] == []
    (archive,) = (path for name, path in files.items() if name.endswith(".tar.gz"))
    with tarfile.open(archive) as opened:
        assert any(name.endswith("/compiler/ir/README.md") for name in opened.getnames())


def test_the_archive_has_no_dates_and_no_owners(files: dict[str, Path]) -> None:
    (archive,) = (path for name, path in files.items() if name.endswith(".tar.gz"))
    with tarfile.open(archive) as opened:
        members = opened.getmembers()
    assert len(members) > 500
    assert {(member.mtime, member.uid, member.gid, member.uname) for member in members} == {(0, 0, 0, "")}
