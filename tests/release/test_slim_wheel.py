"""nnefc-slim: all that nnefc has but zig, and libraries that the compiler of the system links."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from email import message_from_bytes
from pathlib import Path

import numpy as np
import pytest
from slim_wheel import slim

from nnefc import CompileError, load
from nnefc.targets.link.system_compiler import system_compiler

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "model.nnef"
WITHOUT_ZIG = """
import sys

class NoZig:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "ziglang":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoZig)
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "ziglang" else find(name, *more)
from nnefc.__main__ import main
main()
"""


def test_the_metadata_differ_in_the_name_and_in_zig() -> None:
    text = "Metadata-Version: 2.4\nName: nnefc\nVersion: 1.0\nRequires-Dist: numpy>=2.0\n"
    text += 'Requires-Dist: ziglang==0.17.*; sys_platform == "linux"\nRequires-Dist: nnefc[serve]; extra == "test"\n'
    text += "\nnnefc\n"
    files = {"nnefc/__init__.py": b"", "nnefc-1.0.dist-info/METADATA": text.encode()}
    made = slim(files)
    assert sorted(made) == ["nnefc/__init__.py", "nnefc_slim-1.0.dist-info/METADATA"]
    found = message_from_bytes(made["nnefc_slim-1.0.dist-info/METADATA"])
    assert (found["Name"], found["Version"], found.get_payload()) == ("nnefc-slim", "1.0", "nnefc\n")
    assert found.get_all("Requires-Dist") == ["numpy>=2.0", 'nnefc-slim[serve]; extra == "test"']


def test_the_bill_of_materials_is_without_zig() -> None:
    bill = {
        "components": [{"bom-ref": f"{name}==1", "name": name} for name in ("numpy", "ziglang")],
        "dependencies": [{"ref": "nnefc==1", "dependsOn": ["numpy==1", "ziglang==1"]}, {"ref": "ziglang==1"}],
    }
    made = slim({"nnefc-1.dist-info/sboms/nnefc.cdx.json": json.dumps(bill).encode()})
    assert json.loads(made["nnefc_slim-1.dist-info/sboms/nnefc.cdx.json"]) == {
        "components": [{"bom-ref": "numpy==1", "name": "numpy"}],
        "dependencies": [{"ref": "nnefc==1", "dependsOn": ["numpy==1"]}],
    }


def without_zig(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_ZIG, "compile", str(DIGITS), "-o", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs: a compiler of C")
def test_the_system_links_for_this_machine_and_for_no_other(tmp_path: Path) -> None:
    done = without_zig(tmp_path, "digits.so")
    assert (done.returncode, done.stderr) == (0, "")
    with load(tmp_path / "digits.so") as model:
        assert model(np.zeros((1, 1, 8, 8), np.float32)).shape == (1, 10)
    done = without_zig(tmp_path, "digits.wasm", "--target", "wasm32-wasi")
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: ziglang is not installed, and the compiler of this system does not link for wasm32"
    )
    assert "hint: pip install ziglang" in done.stderr


def test_a_machine_without_a_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnefc.targets.link.system_compiler.is_this_machine", lambda target: True)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(CompileError, match="no compiler of C here") as raised:
        system_compiler("x86_64-linux-gnu.2.28")
    assert "pip install ziglang" in (raised.value.hint or "")
