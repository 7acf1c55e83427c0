"""The npm package of the loader: packed, unpacked into a project, and imported there."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

import nnefc

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "packaging" / "npm" / "pack.py"

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="needs: npm")

PROGRAM = """
import { NnefcError, load, supports } from "nnefc";
const model = await load(new URL("digits.wasm", import.meta.url).href);
const { probability } = model.run({ image: new Float32Array(64) });
console.log(JSON.stringify([model.name, probability.shape, supports("atomics"), new NnefcError("x") instanceof Error]));
"""


def packed(folder: Path) -> Path:
    """The package as npm would publish it."""
    specification = importlib.util.spec_from_file_location("pack", SCRIPT)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    package = module.pack(folder)
    done = subprocess.run(
        ["npm", "pack", "--json", "--offline"], cwd=package, capture_output=True, text=True, check=True, timeout=120
    )
    return Path(package / json.loads(done.stdout)[0]["filename"])


@pytest.mark.slow
def test_a_project_imports_the_package(tmp_path: Path) -> None:
    archive = packed(tmp_path)
    project = tmp_path / "project"
    (project / "node_modules").mkdir(parents=True)
    with tarfile.open(archive) as opened:
        names = {name.removeprefix("package/") for name in opened.getnames()}
        opened.extractall(project / "node_modules", filter="data")
    (project / "node_modules" / "package").rename(project / "node_modules" / "nnefc")
    loader = {"nnefc.mjs", "nnefc_module.mjs", "nnefc_text.mjs", "nnefc.d.mts"}
    assert names == {"package.json", "README.md", "LICENSE", *loader}
    nnefc.compile(ROOT / "examples" / "digits" / "model.nnef", "wasm32-wasi").export(project / "digits.wasm")
    (project / "main.mjs").write_text(PROGRAM)
    done = subprocess.run(["node", "main.mjs"], cwd=project, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["digits", [1, 10], True, True]


def test_types_declare_what_the_loader_exports() -> None:
    runtime = ROOT / "targets" / "runtime"
    declared = (runtime / "nnefc.d.mts").read_text()
    for name in ("function load(", "function supports(", "class Model", "class NnefcError"):
        assert f"export {name}" in declared
    methods = {
        line.split("(")[0].strip() for line in (runtime / "nnefc.mjs").read_text().splitlines() if line.startswith("  ")
    }
    for method in ("run", "reserve", "reset", "session", "close", "tokenize", "detokenize", "textStream", "chatText"):
        assert method in methods
        assert f"  {method}" in declared


def test_bundlers_for_browsers_find_no_module_of_node() -> None:
    for name in ("nnefc.mjs", "nnefc_module.mjs", "nnefc_text.mjs"):
        text = (ROOT / "targets" / "runtime" / name).read_text()
        assert not re.findall(r"""(?:import|from)\s*\(?\s*["'`]node:""", text)
