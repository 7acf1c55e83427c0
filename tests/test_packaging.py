"""What pyproject.toml says of the package is what is there."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = SETTINGS["tool"]["setuptools"]


def test_every_folder_of_python_is_a_listed_package() -> None:
    found = set()
    for package, folder in SETUPTOOLS["package-dir"].items():
        for file in (ROOT / folder).rglob("__init__.py"):
            found.add(".".join([package, *file.parent.relative_to(ROOT / folder).parts]))
    assert found == set(SETUPTOOLS["packages"])


def test_every_other_file_of_a_package_is_package_data() -> None:
    for package, folder in SETUPTOOLS["package-dir"].items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_dir() or path.suffix in (".py", ".pyc"):
                continue
            owner = ".".join([package, *path.parent.relative_to(ROOT / folder).parts])
            patterns = SETUPTOOLS["package-data"].get(owner, [])
            assert any(path.match(pattern) for pattern in patterns), f"{path.relative_to(ROOT)} would not be installed"


@pytest.mark.parametrize("goal", ["run", "test", "test-all", "bench", "lint", "clean"])
def test_the_makefile_has_the_goal(goal: str) -> None:
    assert f"\n{goal}:" in (ROOT / "Makefile").read_text()


# --- where the compiler is not installed

EXTRA = ("click", "google", "lark", "ml_dtypes", "onnx", "rich", "tvm", "ziglang")

WITHOUT_COMPILER = f"""
import sys

class Missing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {EXTRA!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing)
import nnefc
"""


def without_compiler(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program where only NumPy is installed."""
    return subprocess.run([sys.executable, "-c", WITHOUT_COMPILER + program], capture_output=True, text=True)


def test_loading_needs_numpy_alone() -> None:
    (numpy,) = SETTINGS["project"]["dependencies"]
    assert numpy.startswith("numpy ")
    done = without_compiler(
        "nnefc.load, nnefc.LoadError, nnefc.Model\nassert 'numpy' in sys.modules\n"
        "try:\n    nnefc.load('none.so')\nexcept nnefc.LoadError as error:\n    print(error)"
    )
    assert (done.returncode, done.stdout) == (0, "none.so does not exist\n"), done.stderr


def test_every_package_of_the_extra_is_one_that_the_simulation_hides() -> None:
    names = {requirement.split()[0] for requirement in SETTINGS["project"]["optional-dependencies"]["compiler"]}
    modules = {"apache-tvm": "tvm", "protobuf": "google"}
    assert {modules.get(name, name) for name in names} == set(EXTRA)


def test_everything_public_is_listed_before_its_first_use() -> None:
    done = without_compiler("assert set(nnefc.__all__) <= set(dir(nnefc)), dir(nnefc)")
    assert done.returncode == 0, done.stderr


def test_compiling_without_the_compiler_says_what_to_install() -> None:
    done = without_compiler(
        "from nnefc import compile\n"
        "try:\n    compile('model.nnef')\nexcept nnefc.CompileError as error:\n    print(error)"
    )
    assert done.returncode == 0, done.stderr
    assert "the module tvm is not installed" in done.stdout
    assert "pip install 'nnefc[compiler]'" in done.stdout


def test_the_command_line_without_the_compiler_says_what_to_install() -> None:
    done = without_compiler("from nnefc.__main__ import main; main()")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "error: the command line comes with the compiler, and the module click is not installed",
        "hint: pip install 'nnefc[compiler]'",
    ]


def test_python_m_nnefc_is_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "nnefc", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"nnefc, version {SETTINGS['project']['version']}\n")
