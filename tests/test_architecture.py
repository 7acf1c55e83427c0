"""Arrows between the parts point one way: rules 1, 2 and 10 of docs/ARCHITECTURE.md, read from all imports."""

from __future__ import annotations

import ast
import gc
import re
import tomllib
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

import pytest
from draw_architecture import IMAGE, PARTS, arrows_between_parts, circles, drawing, imports, modules, part_of

ROOT = Path(__file__).parents[1]
RUNTIME = ROOT / "targets" / "runtime"

FRONTENDS = ("frontends/nnef", "frontends/onnx", "frontends/pnnx", "frontends/tflite")

ALLOWED: dict[str, Set[str]] = {
    "cli": {
        "chat",
        "driver",
        "frontends/nnef",
        "frontends/pnnx",
        "inspect/html",
        "ir",
        "loader",
        "passes",
        "serving",
        "support",
        "symbolic",
        "targets/description",
        "targets/link",
        "targets/machine",
    },
    "integrations": {"driver", "frontends/onnx", "ir", "loader", "passes", "support", "targets/machine"},
    "driver": {
        "backends",
        "frontends",
        "frontends/decoder",
        "frontends/nnef",
        "frontends/onnx",
        "frontends/pnnx",
        "frontends/tflite",
        "inspect/html",
        "ir",
        "loader",
        "operators",
        "passes",
        "passes/compute",
        "passes/graph",
        "passes/plan",
        "passes/schedule",
        "passes/spec",
        "support",
        "symbolic",
        "targets/codegen/c",
        "targets/codegen/cpu",
        "targets/description",
        "targets/link",
        "targets/machine",
        "tokenizer",
    },
    "backends": {part for part in PARTS if part.startswith(("passes", "targets"))} - {"targets/link"}
    | {"ir", "symbolic"},
    "passes/spec": {"ir", "passes", "support", "symbolic"},
    "passes": {
        "ir",
        "passes/compute",
        "passes/legalize",
        "passes/plan",
        "passes/schedule",
        "passes/tir",
        "support",
        "symbolic",
        "targets/machine",
    },
    "passes/legalize": {
        "ir",
        "operators",
        "passes/compute",
        "passes/graph",
        "passes/schedule",
        "passes/tir",
        "support",
        "symbolic",
        "targets/machine",
    },
    "passes/plan": {"ir", "passes/graph", "passes/schedule", "passes/tir", "support", "symbolic"},
    "passes/schedule/cuda": {
        "ir",
        "passes/schedule",
        "passes/schedule/gpu",
        "passes/tir",
        "support",
        "symbolic",
        "targets/machine",
    },
    "passes/schedule/gpu": {"ir", "passes/schedule", "passes/tir", "support", "symbolic", "targets/machine"},
    "passes/graph": {
        "ir",
        "operators",
        "passes/compute",
        "passes/schedule",
        "passes/tir",
        "support",
        "symbolic",
        "targets/machine",
    },
    "passes/schedule/cpu": {
        "ir",
        "passes/compute",
        "passes/schedule",
        "passes/tir",
        "support",
        "symbolic",
        "targets/machine",
    },
    "frontends/decoder": {"frontends", "frontends/nnef", "ir", "operators", "support", "symbolic", "tokenizer"},
    "tokenizer": {"ir", "operators", "support"},
    "frontends/nnef": {"frontends", "ir", "operators", "support", "symbolic"},
    "frontends/onnx": {"frontends", "ir", "operators", "support", "symbolic"},
    "frontends/pnnx": {"frontends", "ir", "operators", "support", "symbolic"},
    "frontends/tflite": {"frontends", "ir", "operators", "support", "symbolic"},
    "passes/schedule": {"ir", "passes/tir", "support", "symbolic"},
    "passes/compute": {"ir", "operators", "passes/tir", "support", "symbolic", "targets/machine"},
    "targets/link": {"ir", "support", "targets/description", "targets/machine"},
    "frontends": {"ir", "operators", "support", "symbolic"},
    "targets/codegen/c": {"ir", "support", "targets/codegen/cpu", "targets/description"},
    "targets/codegen/cpu": {"ir", "support", "targets/machine"},
    "targets/codegen/cuda": {"ir", "support", "symbolic", "targets/description", "targets/machine"},
    "operators": {"ir", "support", "symbolic"},
    "passes/tir": {"ir", "support", "symbolic", "targets/machine"},
    "targets/description": {"support", "symbolic"},
    "ir": {"support", "symbolic"},
    "serving": {"chat", "loader"},
    "chat": {"loader"},
    "targets/machine": {"support"},
    "symbolic": {"support"},
    "inspect/html": set(),
    "loader": set(),
    "support": set(),
}
"""Of every part what it may import; the order is from above to below."""


@cache
def graph() -> dict[str, set[str]]:
    """All imports; without collections of garbage, which trees of sources are none of."""
    gc.disable()
    try:
        return imports(modules())
    finally:
        gc.enable()


def test_no_modules_import_each_other() -> None:
    assert circles(graph()) == []


def test_the_parts_are_in_an_order_in_which_all_arrows_point_down() -> None:
    order = list(ALLOWED)
    up = [(part, other) for part in ALLOWED for other in ALLOWED[part] if order.index(other) <= order.index(part)]
    assert (up, set(order)) == ([], set(PARTS))


def test_the_parts_are_on_eleven_floors() -> None:
    arrows = arrows_between_parts(graph())

    @cache
    def floor(part: str) -> int:
        return 1 + max(map(floor, arrows[part]), default=0)

    assert max(map(floor, PARTS)) <= 11


@pytest.mark.parametrize("part", PARTS)
def test_a_part_imports_no_more_than_it_may(part: str) -> None:
    found = [
        f"{module} imports {other}, of {part_of(other)}"
        for module, others in sorted(graph().items())
        if part_of(module) == part
        for other in sorted(others)
        if part_of(other) not in {part, *ALLOWED[part]}
    ]
    assert found == []


def test_nothing_is_allowed_without_need() -> None:
    arrows = arrows_between_parts(graph())
    for_backends_to_come = "backends"
    spare = {part: ALLOWED[part] - arrows[part] for part in PARTS if part != for_backends_to_come}
    assert {part: others for part, others in spare.items() if others} == {}


def test_the_parts_of_one_backend_do_not_know_those_of_another() -> None:
    mixed = [
        (module, other)
        for module, others in graph().items()
        for other in others
        if {"cpu", "cuda"} <= {name for path in (module, other) for name in path.split(".")}
        and part_of(module) not in ("backends", "targets/machine")  # a target for GPUs has a host
    ]
    assert mixed == []


FOR_EVERY_GPU = ("passes/schedule/gpu", "passes/tir/gpu", "targets/machine/gpu")
OF_ONE_BACKEND = re.compile(r"cuda|ptx|nvidia|ldmatrix|mma\.sync|wgmma|tcgen05|cp\.async|__\w+_sync", re.IGNORECASE)


def test_what_holds_for_every_gpu_imports_no_backend() -> None:
    own = tuple(f"nnefc.{folder.replace('/', '.')}" for folder in FOR_EVERY_GPU)
    modules = {module: others for module, others in graph().items() if module.startswith(own)}
    assert {module.rpartition(".")[0] for module in modules} >= set(own)
    assert [(module, other) for module, others in modules.items() for other in others if "cuda" in other] == []


@pytest.mark.parametrize("folder", FOR_EVERY_GPU)
def test_what_holds_for_every_gpu_names_no_backend_and_no_instruction(folder: str) -> None:
    """Docstrings and comments of descriptions name the sources of their numbers, so that only their code is read."""
    named = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        read = without_docstrings(text) if folder == "targets/machine/gpu" else text
        named[path.name] = OF_ONE_BACKEND.findall(read)
    assert {name: words for name, words in named.items() if words} == {}


def without_docstrings(text: str) -> str:
    """The code of a module alone; `ast` leaves out comments."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [each for each in node.body if not is_text(each)] or [ast.Pass()]
    return ast.unparse(tree)


def is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


BUILDERS = re.compile(r"tvm\.(te|tir|tirx|s_tir|topi|script|relax\.op)\b")
EXCEPTIONS = {
    "nnefc/frontends/onnx/gradient.py": "adds up the target, whose derivative Relax then takes",
    "nnefc/frontends/onnx/operator.py": "widens 16-bit floats, and reads whether the sizes of a type are numbers",
}
"""Modules of front ends that name operators of Relax or TIR, and what for."""


def of_tvm(path: Path) -> Iterator[str]:
    """What a module takes of TVM, as `tvm.relax.op.add`."""
    text = path.read_text()
    if "tvm" not in text:
        return
    tree, names = ast.parse(text), {"tvm": "tvm"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tvm":
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
    for node in ast.walk(tree):
        tail: list[str] = []
        while isinstance(node, ast.Attribute):
            tail.insert(0, node.attr)
            node = node.value
        if tail and isinstance(node, ast.Name) and node.id in names:
            yield ".".join([names[node.id], *tail])


def test_front_ends_build_no_computations() -> None:
    """They translate to `nnefc.operators`, which build TE, TIR and operators of Relax."""
    folder = ROOT / "compiler"
    found = {
        f"nnefc/{path.relative_to(folder).as_posix()}": sorted(taken)
        for path in sorted((folder / "frontends").rglob("*.py"))
        if (taken := set(filter(BUILDERS.match, of_tvm(path))))
    }
    assert {path: taken for path, taken in found.items() if path not in EXCEPTIONS} == {}
    assert set(found) == set(EXCEPTIONS)


def test_the_loader_can_be_copied_next_to_a_library() -> None:
    folder = [module for module in graph() if part_of(module) == "loader"]
    assert {other for module in folder for other in graph()[module]} <= set(folder)
    absolute = [
        f"{path.name}: {ast.unparse(node)}"
        for path in sorted((ROOT / "compiler" / "loader").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom) and re.search(r"\bnnefc\b", ast.unparse(node))
    ]
    assert absolute == [], "its files import each other by dots, so that the folder may have any name"


def test_a_module_that_is_in_no_part_is_an_error() -> None:
    with pytest.raises(LookupError, match="name it in PARTS"):
        part_of("nnefc.passes.another.one")


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a", "d"}}) == [["b", "c"], ["d"]]


def test_the_image_is_that_of_the_imports() -> None:
    assert IMAGE.read_text() == drawing(graph()), "to bring it up to date: python docs/draw_architecture.py"


# --- the C in every library


def without_comments(path: Path) -> str:
    return re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\])*"', "", path.read_text(), flags=re.DOTALL)


@cache
def units(folder: str) -> dict[str, str]:
    """The C files of a library for processors, or for a GPU."""
    left_out = {"cpu": set[str](), "cuda": {"engine.c"}}[folder]
    shared = ("", "machine", "threads")
    files = [path for part in shared for path in (RUNTIME / part).glob("*.c") if path.name not in left_out]
    files += RUNTIME.glob(f"{folder}/*.c")
    return {path.relative_to(RUNTIME).as_posix(): without_comments(path) for path in sorted(files)}


DEFINED = re.compile(r"^(?!static\b|typedef\b|extern\b)[A-Za-z_][\w *]*?\b(nnefc_\w+)\s*(?:\([^;{}]*\)\s*\{|=|;)", re.M)


def uses(folder: str) -> dict[str, set[str]]:
    """Of each C file the files whose functions and variables it names, but for those that several files define."""
    homes: dict[str, list[str]] = {}
    for file, text in units(folder).items():
        for name in DEFINED.findall(text):
            homes.setdefault(name, []).append(file)
    home = {name: files[0] for name, files in homes.items() if len(files) == 1}
    return {
        file: {home[name] for name in set(re.findall(r"\w+", text)) & home.keys()} - {file}
        for file, text in units(folder).items()
    }


@pytest.mark.parametrize("folder", ["cpu", "cuda"])
def test_no_files_of_the_runtime_need_each_other(folder: str) -> None:
    assert uses(folder)["session.c"] >= {"checks.c", {"cpu": "engine.c", "cuda": "cuda/engine.c"}[folder]}
    assert circles(uses(folder)) == []


def test_no_headers_of_the_runtime_include_each_other() -> None:
    files = {path.name: path for path in [*RUNTIME.rglob("*.h"), *RUNTIME.rglob("*.c")]}
    included = {
        name: {Path(other).name for other in re.findall(r'#include "([^"]+)"', path.read_text())}
        for name, path in files.items()
    }
    assert circles(included) == []
    private = {"gpu_engine.h", "device.h", "driver.h"}
    assert {
        n
        for n, others in included.items()
        if others & private and files[n].parent.name in ("runtime", "machine", "threads")
    } == set()


def test_no_two_modules_that_tests_import_have_one_name() -> None:
    """Checks tests and the folders of pytest's `pythonpath`: the first of two on the path hides the other."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        searched = tomllib.load(file)["tool"]["pytest"]["ini_options"]["pythonpath"]
    paths = {*(ROOT / "tests").rglob("*.py"), *(path for folder in searched for path in (ROOT / folder).glob("*.py"))}
    files: dict[str, list[str]] = {}
    for path in sorted(path for path in paths if path.parent != ROOT / "tests" / "data" / "pnnx"):
        files.setdefault(path.name, []).append(str(path.relative_to(ROOT)))
    common = {"__init__.py", "__main__.py", "conftest.py"}
    assert {name: same for name, same in files.items() if len(same) > 1 and name not in common} == {}


def test_kernels_are_made_where_their_sizes_are_kept_apart() -> None:
    """TVM's own functions take two kernels that differ in the network's sizes alone for one: see kernel_calls.py."""
    direct = re.compile(r"\.call_te\(|builder\w*\.emit_te\(")
    files = [file for folder in ("compiler", "passes") for file in (ROOT / folder).rglob("*.py")]
    found = [file.name for file in files if direct.search(re.sub(r'""".*?"""', "", file.read_text(), flags=re.DOTALL))]
    assert found == []


README_FROM = 4
"""A folder of the compiler with this number of Python files or more has a README that names each of them."""


def test_folders_of_many_files_have_a_readme_that_names_each() -> None:
    missing: dict[str, list[str]] = {}
    for folder in ("compiler", "passes", "targets"):
        for path in [ROOT / folder, *sorted(p for p in (ROOT / folder).rglob("*") if p.is_dir())]:
            files = sorted(file.name for file in path.glob("*.py") if not file.name.startswith("__"))
            readme = path / "README.md"
            text = readme.read_text(encoding="utf-8") if readme.exists() else ""
            absent = [name for name in files if name not in text]
            if len(files) >= README_FROM and absent:
                missing[path.relative_to(ROOT).as_posix()] = absent
    assert missing == {}
