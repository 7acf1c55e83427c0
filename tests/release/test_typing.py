"""What type checkers say of programs that use the package."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """
import pickle
import numpy as np
import nnefc

artifact: nnefc.Artifact = nnefc.compile("m.onnx", shape={"batch": 1})
nnefc.compile("m.onnx", "llvm", shape={"image": (1, 3, 8, 8)})
nnefc.compile("m.onnx", shape={"batch": 1, "image": [1, 3, np.int64(8), 8], "items": [(2, 3), (4,)], "absent": None})
nnefc.compile("m.onnx", shape={"batch": "1..64", "image": (1, 3, "32..256:8", "32..256:8")})
shapes: dict[str, tuple[int, ...]] = {}
nnefc.compile("m.onnx", shape=shapes)
extents: dict[str, int] = {}
nnefc.compile("m.onnx", shape=extents)
artifact.export("m.so")
again: nnefc.Artifact = pickle.loads(pickle.dumps(artifact))
try:
    with nnefc.load("m.so", threads=1) as model:
        y = model(np.zeros((1, 3)), out=np.empty(3), check_nan=True)
        z: dict[str, np.ndarray] = model.run({"x": y})
except (nnefc.LoadError, nnefc.RunError, nnefc.CompileError) as error:
    print(error)
"""

WRONG = """
import nnefc

nnefc.compile("m.onnx", shape={"batch": {1}})
nnefc.compile("m.onnx", shape={"batch": 1.5})
nnefc.load("m.so").run(None, {"x": 1})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the package, which type checkers do not find where it is installed for those who work on it."""
    package = tmp_path / "nnefc"
    package.mkdir()
    for part in (*(ROOT / "compiler").iterdir(), ROOT / "passes", ROOT / "targets"):
        (package / part.name).symlink_to(part)
    (tmp_path / "right.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text(WRONG)
    return tmp_path


@pytest.mark.slow
def test_programs_of_users_pass_a_strict_type_check(folder: Path) -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "right.py", "wrong.py"]
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary"]
    done = subprocess.run([*command, *options], cwd=folder, capture_output=True, text=True)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line.partition(": error:")[0] for line in errors] == ["wrong.py:4", "wrong.py:5", "wrong.py:6"], done.stdout


DOCUMENTED = (
    "README.md",
    "docs/deployment.md",
    *(f"docs/how-to/{name}.md" for name in ("convert", "dynamic-shapes", "quantize")),
)
"""Pages whose programs in Python are whole."""


@pytest.mark.slow
def test_documented_programs_pass_pyright(folder: Path) -> None:
    """Those of pages and notebooks, and in the strict mode what users may write; in one run, for it takes seconds."""
    if find_spec("basedpyright") is None:
        pytest.skip("needs: basedpyright")
    for number, page in enumerate(DOCUMENTED):
        for position, text in enumerate(re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)):
            (folder / f"page_{number}_{position}.py").write_text(text)
    for path in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text())["cells"]
        (folder / f"{path.stem}.py").write_text(
            "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
        )
    for name in ("right.py", "wrong.py"):
        (folder / name).write_text(f"# pyright: strict\n{(folder / name).read_text()}")
    absent = ("reportMissingImports", "reportMissingModuleSource", "reportMissingTypeStubs")
    settings = {
        "typeCheckingMode": "standard",
        "pythonVersion": "3.11",
        "ignore": ["nnefc"],
        "reportUnusedExpression": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings | dict.fromkeys(absent, False)))
    programs = sorted(path.name for path in folder.glob("*.py"))
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson", *programs]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    found = [each for each in json.loads(done.stdout)["generalDiagnostics"] if each["severity"] == "error"]
    positions = [(Path(each["file"]).name, each["range"]["start"]["line"]) for each in found]
    assert positions == [("wrong.py", 4), ("wrong.py", 5), ("wrong.py", 6)], found
