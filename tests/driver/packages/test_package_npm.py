"""The npm package of a network: as npm unpacks it, imported by Node.js."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

import nnefc
from nnefc.support.diagnostics import CompileError

TEXT = "version 1.0;\ngraph tiny(x) -> (y) { x = external(shape = [4]); y = relu(x); }\n"
PROGRAM = """
import { load, supports, NnefcError } from "tiny";
const model = await load({ threads: 1 });
console.log(JSON.stringify([model.target, [...model.run({ x: new Float32Array([-1, 2, -3, 4]) }).y]]));
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("npm")
    (folder / "tiny.nnef").write_text(TEXT)
    nnefc.package(folder / "tiny.nnef", "npm", folder / "tiny-1.2.3.tgz")
    return folder / "tiny-1.2.3.tgz"


def test_the_manifest_names_its_files(archive: Path) -> None:
    with tarfile.open(archive) as opened:
        entries = {entry.name.removeprefix("package/"): entry for entry in opened.getmembers()}
        manifest = json.load(opened.extractfile("package/package.json") or io.BytesIO())
    assert (manifest["name"], manifest["version"], manifest["type"]) == ("tiny", "1.2.3", "module")
    assert {*manifest["files"], "package.json"} == set(entries)
    assert {"index.mjs", "index.d.mts", "tiny.wasm", "tiny.relaxed-simd.wasm", "nnefc.mjs"} <= set(entries)
    for path in (manifest["types"], *manifest["exports"]["."].values()):
        assert path.removeprefix("./") in entries
    assert len({entry.mtime for entry in entries.values()}) == 1


@pytest.mark.skipif(shutil.which("node") is None, reason="needs: node")
def test_a_program_imports_the_package(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "node_modules").mkdir()
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "node_modules", filter="data")
    (tmp_path / "node_modules" / "package").rename(tmp_path / "node_modules" / "tiny")
    (tmp_path / "main.mjs").write_text(PROGRAM)
    done = subprocess.run(["node", "main.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    target, values = json.loads(done.stdout)
    assert target in ("wasm32-wasi", "wasm32-relaxed")
    assert values == [0, 2, 0, 4]


@pytest.mark.parametrize(
    ("targets", "message"),
    [(["cortex-m4"], "has modules of WebAssembly"), (["wasm32-wasi", "wasm32-threads"], "need the same of an engine")],
)
def test_targets_that_do_not_fit_are_refused(targets: list[str], message: str, archive: Path, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=message):
        nnefc.package(archive.parent / "tiny.nnef", "npm", tmp_path / "tiny", targets=targets)
    assert not list(tmp_path.iterdir())
