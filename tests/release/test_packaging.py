"""What pyproject.toml says of the package is what is there."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
from runtime_samples import sample_library

from nnefc.support import distribution

ROOT = Path(__file__).parents[2]
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
            if path.is_dir() or path.suffix in (".py", ".pyc") or path.name == "README.md":
                continue
            owner = ".".join([package, *path.parent.relative_to(ROOT / folder).parts])
            patterns = SETUPTOOLS["package-data"].get(owner, [])
            assert any(path.match(pattern) for pattern in patterns), f"{path.relative_to(ROOT)} would not be installed"


def tracked() -> list[str]:
    """The files that git knows; none in an archive of sources."""
    if not (ROOT / ".git").exists():
        return []
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in done.stdout.splitlines() if (ROOT / name).exists()]


def test_the_archive_of_sources_has_every_file_that_git_has(tmp_path: Path) -> None:
    files = tracked()
    if not files:
        pytest.skip("this is no clone")
    for name in files:
        (tmp_path / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "clone" / name).symlink_to(ROOT / name)
    words = ["sdist", "--formats=tar", "--dist-dir", str(tmp_path)]  # gzip takes most of the time
    command = [sys.executable, "-c", "import setuptools; setuptools.setup()", *words]
    subprocess.run(command, cwd=tmp_path / "clone", check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar")
    with tarfile.open(archive) as opened:
        packed = {member.name.partition("/")[2] for member in opened.getmembers() if not member.isdir()}
    assert {name for name in files if not name.startswith((".ci/", ".gitignore"))} - packed == set()


@pytest.mark.parametrize("goal", ["run", "test", "test-all", "bench", "lint", "clean"])
def test_the_makefile_has_the_goal(goal: str) -> None:
    assert f"\n{goal}:" in (ROOT / "Makefile").read_text()


# --- where the compiler is not installed

COMPILER = ("google", "minijinja", "ml_dtypes", "onnx", "rich", "tvm", "xxhash", "ziglang")

WITHOUT_COMPILER = f"""
import sys

class Missing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {COMPILER!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing)
import nnefc
"""


def without_compiler(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program where only NumPy is installed."""
    return subprocess.run([sys.executable, "-c", WITHOUT_COMPILER + program], capture_output=True, text=True)


def test_loading_needs_numpy_alone() -> None:
    done = without_compiler(
        "nnefc.load, nnefc.LoadError, nnefc.Model\nassert 'numpy' in sys.modules\n"
        "try:\n    nnefc.load('none.so')\nexcept nnefc.LoadError as error:\n    print(error)"
    )
    assert (done.returncode, done.stdout) == (0, "none.so does not exist\n"), done.stderr


def test_the_compiler_is_installed_where_tvm_has_wheels_and_the_loader_everywhere() -> None:
    requirements = pytest.importorskip("packaging.requirements")
    modules = {"apache-tvm": "tvm", "protobuf": "google"}
    required = [requirements.Requirement(text) for text in SETTINGS["project"]["dependencies"]]
    everywhere = {each.name for each in required if each.marker is None}
    assert everywhere == {"click", "numpy"}
    assert {modules.get(each.name, each.name) for each in required if each.marker is not None} == set(COMPILER)
    assert SETTINGS["project"]["optional-dependencies"]["compiler"] == []  # an alias
    for system, machine in itertools.product(
        ("linux", "darwin", "win32"), ("x86_64", "aarch64", "arm64", "AMD64", "riscv64")
    ):
        where = {"sys_platform": system, "platform_machine": machine}
        found = {each.marker.evaluate(where) for each in required if each.marker is not None}
        assert found == {(system, machine) in distribution._TVM_WHEELS}


@pytest.mark.parametrize(
    ("name", "machine", "hint"),
    [
        ("nnefc", "x86_64", "pip install nnefc;"),
        ("nnefc-runtime", "x86_64", "pip uninstall nnefc-runtime, then pip install nnefc,"),
        (
            "nnefc",
            "riscv64",
            "TVM, which the compiler builds on, has no wheels for linux on riscv64: compile on another",
        ),
    ],
)
def test_the_hint_to_the_compiler_fits_what_is_installed(
    name: str, machine: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distribution, "installed", lambda: (name, "1"))
    monkeypatch.setattr(distribution.platform, "machine", lambda: machine)
    monkeypatch.setattr(distribution.sys, "platform", "linux")
    assert distribution.compiler_hint().startswith(hint)
    assert distribution.extra_hint("serve") == f"pip install '{name}[serve]'"


def test_the_command_without_click_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.modules['click'] = None\nfrom nnefc.__main__ import main; main()"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "error: the command nnefc needs the module click, which is not installed",
        "hint: pip install click",
    ]


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
    assert "pip install nnefc;" in done.stdout


@pytest.fixture(scope="module")
def library() -> Path:
    return sample_library()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--version"], "nnefc, version"),
        (["--help"], "Compile trained networks"),
        (["compile", "--help"], "Compile MODEL"),
        (["run", "{library}", "--random", "1"], "count"),
        (["inspect", "{library}"], "input   x      float32  [1024]"),
        (["bench", "{library}", "--runs", "2", "--sessions", "2", "--json"], '"runs_per_second"'),
        (["profile", "--help"], "Time the kernels"),
        (["serve", "--help"], "Open Inference Protocol"),
        (["targets"], "raspberrypi4"),
    ],
)
@pytest.mark.sample(5)
def test_libraries_are_run_and_inspected_without_the_compiler(arguments: list[str], text: str, library: Path) -> None:
    done = without_compiler(command(arguments, library))
    assert (done.returncode, done.stderr) == (0, "")
    assert text in done.stdout


@pytest.mark.parametrize("arguments", [["compile", "m.onnx", "-o", "m.so"], ["inspect", "m.onnx"]])
def test_commands_that_need_the_compiler_say_what_to_install(
    arguments: list[str], library: Path, tmp_path: Path
) -> None:
    (tmp_path / "m.onnx").write_bytes(b"model")
    done = without_compiler(f"import os; os.chdir({str(tmp_path)!r})\n" + command(arguments, library))
    assert (done.returncode, done.stdout) == (1, "")
    error, hint = done.stderr.splitlines()
    assert re.fullmatch("error: .* needs the compiler, and the module [a-z]+ is not installed", error)
    assert hint.startswith("hint: pip install nnefc;")


def test_serving_without_its_extra_says_what_to_install(library: Path) -> None:
    """`None` in place of a module is one that is not there."""
    hidden = "sys.modules.update(dict.fromkeys(('aiohttp', 'grpc', 'prometheus_client')))\n"
    done = without_compiler(hidden + command(["serve", "{library}"], library))
    assert (done.returncode, done.stdout) == (1, "")
    error, hint = done.stderr.splitlines()
    assert re.fullmatch("error: nnefc serve needs the module [a-z_]+, which is not installed", error)
    assert hint == "hint: pip install 'nnefc[serve]'"


def command(arguments: list[str], library: Path) -> str:
    """A program that is the command line."""
    words = ["nnefc", *(word.format(library=library) for word in arguments)]
    return f"sys.argv = {words!r}\nfrom nnefc.__main__ import main\nmain()"


def test_python_m_nnefc_is_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "nnefc", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"nnefc, version {SETTINGS['project']['version']}\n")


def test_the_locked_packages_are_those_that_the_project_asks_for() -> None:
    """Of all goals of make; `make lock` writes them again."""
    requirements = pytest.importorskip("packaging.requirements")
    first, *lines = (ROOT / "packaging" / "locked.txt").read_text().splitlines()
    assert "nnefc[dev]" in first and "x86_64" in first
    found = [re.fullmatch(r"([a-z0-9.-]+)==(\S+) --hash=sha256:[0-9a-f]{64}", line) for line in lines]
    assert all(found)
    versions = {match[1]: match[2] for match in found if match}
    assert len(versions) == len(lines) and lines == sorted(lines)
    settings = SETTINGS["project"]
    waiting, seen = [*settings["dependencies"], "nnefc[dev]"], set()
    while waiting:
        requirement = requirements.Requirement(waiting.pop())
        if requirement.name == "nnefc":
            waiting += [
                each for extra in requirement.extras - seen for each in settings["optional-dependencies"][extra]
            ]
            seen |= requirement.extras
        elif requirement.marker is None or requirement.marker.evaluate(
            {"sys_platform": "linux", "platform_machine": "x86_64"}
        ):
            name = requirement.name.lower().replace("_", "-")
            assert name in versions and requirement.specifier.contains(versions[name]), f"{requirement}: make lock"
