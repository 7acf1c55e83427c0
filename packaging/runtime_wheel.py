"""Writes nnefc-runtime: what loads, runs, times and serves libraries, without the compiler.

python packaging/runtime_wheel.py [FOLDER]

writes nnefc_runtime-VERSION-py3-none-any.whl, and prints what is in it. It has the package `nnefc` and its commands;
those that need the compiler say so. A module is in it if one of `ROOTS` needs it when it is imported. NumPy is all
that it requires; the commands need click, which the extra `cli` brings.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "docs"))

from draw_architecture import modules  # noqa: E402
from wheel_file import pack_wheel  # noqa: E402

__all__ = ["contents", "table", "write_wheel"]

ROOTS = (
    "nnefc",
    "nnefc.__main__",
    "nnefc.cli",
    "nnefc.onnxruntime",
    "nnefc.inspect.library_graph",
    "nnefc.loader",
    "nnefc.inspect.html",
    "nnefc.serving",
    "nnefc.targets.description.library_file",
    "nnefc.targets.description.specialized_source",
    "nnefc.targets.machine.target_rows",
)
"""Modules, and of packages all modules, that the commands for libraries import."""

WHOLE = ("nnefc.cli", "nnefc.loader", "nnefc.inspect.html", "nnefc.serving")
"""The packages of which all modules are taken."""

EXTRAS = ("encrypt", "serve", "sign")
"""What a device may want besides: of the extras of nnefc."""

CLI = "click"
"""The requirement of nnefc that its commands alone need: the extra `cli` here, and a part of `serve`."""


_DESCRIPTION = """\
`nnefc.load` and what belongs to it, for machines that run libraries which nnefc has compiled elsewhere: nnefc-runtime
and NumPy, no compiler. `nnefc-runtime[cli]` has the commands `nnefc run`, `bench`, `profile` and `inspect`,
`nnefc-runtime[serve]` also `nnefc serve`. The distribution nnefc has all of it and the compiler: install one of
the two.
"""


def contents() -> dict[str, Path]:
    """The files of the package by their names in the wheel."""
    known = modules()
    waiting = [name for name in known if name in ROOTS or name.startswith(tuple(f"{root}." for root in WHOLE))]
    taken: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in taken:
            taken.add(name)
            waiting += [other for other in _imports(name, known[name]) if other in known]
    files: dict[str, Path] = {}
    for name in sorted(taken):
        path, folder = known[name], name.replace(".", "/")
        files[f"{folder}/__init__.py" if path.stem == "__init__" else f"{folder}.py"] = path
    for name in list(files):
        for parent in list(Path(name).parents)[:-1]:  # packages whose __init__.py is empty
            files.setdefault(f"{parent}/__init__.py", _source(f"{parent}/__init__.py"))
    return dict(sorted((files | _data()).items()))


def _imports(module: str, path: Path) -> Iterator[str]:
    """What a module imports when it is imported: not in functions, and not for type checkers."""
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    for node in _at_import(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def _at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield from _at_import([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _at_import(node.body)
        else:
            yield node


def _source(name: str) -> Path:
    """Where a file of the package lies in the repository."""
    for package, folder in sorted(_settings()["tool"]["setuptools"]["package-dir"].items(), key=len, reverse=True):
        prefix = package.replace(".", "/") + "/"
        if name.startswith(prefix) and (ROOT / folder / name.removeprefix(prefix)).is_file():
            return ROOT / folder / name.removeprefix(prefix)
    raise FileNotFoundError(name)


def _data() -> dict[str, Path]:
    """The files besides Python's of the packages that are taken whole, and the mark that the package has types."""
    patterns = _settings()["tool"]["setuptools"]["package-data"]
    found = {"nnefc/py.typed": ROOT / "compiler" / "py.typed"}
    for package in WHOLE:
        for pattern in patterns.get(package, ()):
            for path in sorted((ROOT / "compiler" / package.removeprefix("nnefc.").replace(".", "/")).glob(pattern)):
                found[f"{package.replace('.', '/')}/{path.name}"] = path
    return found


def _settings() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def write_wheel(folder: Path) -> Path:
    """Write the wheel; returns its path."""
    version = _settings()["project"]["version"]
    info = f"nnefc_runtime-{version}.dist-info"
    files = {name: path.read_bytes() for name, path in contents().items()}
    files |= {
        f"{info}/METADATA": _metadata(version).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: nnefc\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": b"[console_scripts]\nnnefc = nnefc.__main__:main\n",
        f"{info}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
    }
    return pack_wheel(files, folder / f"nnefc_runtime-{version}-py3-none-any.whl")


def _metadata(version: str) -> str:
    """Returns the metadata: nnefc's of pyproject.toml, with NumPy as the only requirement and extras of its own."""
    project = _settings()["project"]
    required = {re.split("[ <>=;]", text)[0]: text for text in project["dependencies"]}
    extras = {name: project["optional-dependencies"][name] for name in EXTRAS}
    extras |= {"cli": [required[CLI]], "serve": [required[CLI], *extras["serve"]]}
    made = Message()
    made["Metadata-Version"] = "2.4"
    made["Name"] = "nnefc-runtime"
    made["Version"] = version
    made["Summary"] = "Loads, runs and serves the libraries that nnefc compiles"
    made["License-Expression"] = project["license"]
    made["License-File"] = "LICENSE"
    made["Requires-Python"] = project["requires-python"]
    made["Requires-Dist"] = required["numpy"]
    for extra in sorted(extras):
        made["Provides-Extra"] = extra
        for requirement in extras[extra]:
            name, _, marker = requirement.partition(";")
            condition = f"({marker.strip()}) and " if marker else ""
            made["Requires-Dist"] = f'{name.strip()}; {condition}extra == "{extra}"'
    made["Description-Content-Type"] = "text/markdown"
    made.set_payload(_DESCRIPTION)
    return made.as_string()


def table(wheel: Path) -> list[str]:
    """A line for each folder of the package: its files, their bytes, and their bytes in the wheel."""
    rows: dict[str, list[int]] = {}
    with zipfile.ZipFile(wheel) as archive:
        for element in archive.infolist():
            row = rows.setdefault(element.filename.rpartition("/")[0], [0, 0, 0])
            for position, number in enumerate((1, element.file_size, element.compress_size)):
                row[position] += number
    lines = [f"{'folder':<38} {'files':>5} {'bytes':>9} {'in the wheel':>13}"]
    for name, (count, size, packed) in sorted(rows.items()):
        lines.append(f"{name:<38} {count:>5} {size:>9,} {packed:>13,}")
    lines.append(f"{'the wheel':<38} {sum(row[0] for row in rows.values()):>5} {'':>9} {wheel.stat().st_size:>13,}")
    return lines


def main() -> None:
    path = write_wheel(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist")
    print("\n".join(table(path)))
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
