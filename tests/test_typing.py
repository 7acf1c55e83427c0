"""What type checkers say of programs that use the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PROGRAM = """
import pickle
import numpy as np
import nnefc

artifact: nnefc.Artifact = nnefc.compile("m.onnx", shape={"batch": 1})
nnefc.compile("m.onnx", "llvm", shape={"image": (1, 3, 8, 8)})
nnefc.compile("m.onnx", shape={"batch": 1, "image": [1, 3, np.int64(8), 8], "items": [(2, 3), (4,)], "absent": None})
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


@pytest.mark.slow
def test_programs_of_users_pass_a_strict_type_check(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    package = tmp_path / "nnefc"
    package.mkdir()
    for part in (*(ROOT / "compiler").iterdir(), ROOT / "passes", ROOT / "targets"):
        (package / part.name).symlink_to(part)
    (tmp_path / "right.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text(WRONG)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "right.py", "wrong.py"]
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary"]
    done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line.partition(": error:")[0] for line in errors] == ["wrong.py:4", "wrong.py:5", "wrong.py:6"], done.stdout
