"""A new user's path: what is downloaded, how long each step takes on a clean environment, and what the packages hold.

    python benchmarks/first_steps.py

builds the archive of sources and, from it, the wheel; installs the wheel into an environment without anything else and
runs a library; then with the compiler, and compiles, runs and times a model; and runs tests from the unpacked archive.
Writes results/PROCESSOR/first_steps.md. Steps that download are as fast as the network and pip's cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import click
from conditions import Watch, page, write_page

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "packaging"))

from runtime_wheel import write_wheel  # noqa: E402

TITLE = "A new user's first steps"
_MODEL = "examples/digits/model.nnef"
_CALL = """
import numpy as np, nnefc
with nnefc.load("digits.so") as model:
    print(model(np.zeros((1, 1, 8, 8), np.float32)).shape)
"""


@dataclass(frozen=True)
class Step:
    """One command of the path, and the seconds that it took."""

    what: str
    seconds: float
    downloads: bool = False


class Location:
    """A folder with an environment of its own, and the time of what is run there."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.bin = folder / name / "bin"
        self.steps: list[Step] = []
        began = time.perf_counter()
        venv.create(folder / name, with_pip=True)
        self.steps.append(Step("python -m venv", time.perf_counter() - began))

    def run(self, what: str, *command: str, downloads: bool = False) -> str:
        """Run a command of the environment, and note its time as that of `what`."""
        path = os.pathsep.join([str(self.bin), os.environ["PATH"]])
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        began = time.perf_counter()
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.folder,
            env=environment | {"PATH": path},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise click.ClickException(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        self.steps.append(Step(what, time.perf_counter() - began, downloads))
        return done.stdout


@click.command()
@click.option("--show", is_flag=True, help="Print the page, and do not write it.")
def main(show: bool) -> None:
    """Measure, and write the page."""
    watch = Watch()
    with tempfile.TemporaryDirectory(prefix="nnefc-") as name:
        lines = _measured(Path(name))
    conditions = watch.end()
    click.echo(page(TITLE, conditions, lines))
    if not show:
        write_page("first_steps", TITLE, conditions, lines)


def _measured(folder: Path) -> list[str]:
    builder = "import sys, setuptools.build_meta as backend; print(getattr(backend, sys.argv[1])(sys.argv[2]))"
    subprocess.run(
        [sys.executable, "-c", builder, "build_sdist", str(folder)], cwd=ROOT, check=True, capture_output=True
    )
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    sources = folder / sdist.name.removesuffix(".tar.gz")
    subprocess.run(
        [sys.executable, "-c", builder, "build_wheel", str(folder)], cwd=sources, check=True, capture_output=True
    )
    (wheel,) = folder.glob("*.whl")
    runtime = write_wheel(folder)
    (folder / "examples").symlink_to(sources / "examples")

    whole = Location(folder, "whole")
    whole.run("pip install nnefc", "pip", "install", "-q", str(wheel), downloads=True)
    whole.run("nnefc compile, the first", "nnefc", "compile", _MODEL, "-o", "digits.so")
    whole.run("nnefc compile, again", "nnefc", "compile", _MODEL, "-o", "digits.so")
    whole.run("nnefc run", "nnefc", "run", "digits.so", "--random", "0")
    whole.run("nnefc bench, one second of it measuring", "nnefc", "bench", "digits.so", "--seconds", "1")
    whole.run("pip install pytest", "pip", "install", "-q", "pytest", downloads=True)
    test = (
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/symbolic/test_dims.py",
        "tests/support/test_element_types.py",
    )
    whole.folder = sources
    whole.run("tests from the archive of sources: sizes and element types", "python", *test)

    device = Location(folder, "device")
    device.run("pip install 'nnefc-runtime[cli]'", "pip", "install", "-q", f"{runtime}[cli]", downloads=True)
    device.run("a program with nnefc.load", "python", "-c", _CALL)
    device.run("nnefc run", "nnefc", "run", "digits.so", "--random", "0")
    return [
        "From nothing but Python to a network that runs, in a clean environment.",
        "",
        *_table("With the compiler", whole.steps, _size(folder / "whole")),
        *_table("On a device, with a library that is there", device.steps, _size(folder / "device")),
        *_contents(wheel, sdist),
    ]


def _table(title: str, steps: list[Step], size: int) -> list[str]:
    rows = [f"| {step.what}{' (downloads)' if step.downloads else ''} | {step.seconds:.1f} |" for step in steps]
    whole = f"The environment takes {size / 2**20:.0f} MiB then."
    return [f"## {title}", "", "| step | seconds |", "|---|---:|", *rows, "", whole, ""]


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*"))


def _kib(path: Path) -> str:
    return f"{path.stat().st_size / 1024:.0f} KiB"


def _contents(wheel: Path, sdist: Path) -> list[str]:
    """What the wheel holds, by package, packed."""
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            part = "/".join(member.filename.split("/")[:2]) if member.filename.count("/") > 1 else "nnefc, its modules"
            part = "metadata" if ".dist-info" in part or ".dist-info" in member.filename else part
            sizes[part] += member.compress_size
            counts[part] += 1
    rows = [f"| {part} | {counts[part]} | {size / 1024:.0f} |" for part, size in sizes.most_common()]
    return [
        "## The packages",
        "",
        f"The wheel has {_kib(wheel)}, the archive of sources {_kib(sdist)}.",
        "",
        "| in the wheel | files | KiB, packed |",
        "|---|---:|---:|",
        *rows,
    ]


if __name__ == "__main__":
    main()
