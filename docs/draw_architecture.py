"""The image of the parts of nnefc and of who imports whom, drawn from the imports themselves.

python docs/draw_architecture.py

writes docs/architecture.svg.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

__all__ = ["PARTS", "arrows_between_parts", "circles", "drawing", "imports", "modules", "part_of"]

ROOT = Path(__file__).parents[1]
IMAGE = Path(__file__).with_name("architecture.svg")

_FOLDERS = {"compiler": "nnefc", "passes": "nnefc.passes", "targets": "nnefc.targets"}

PARTS: Mapping[str, tuple[str, ...]] = {
    "cli": ("nnefc.cli", "nnefc.__main__"),
    "integrations": (
        "nnefc",
        "nnefc.integrations",
        "nnefc.onnx_backend",
        "nnefc.onnxruntime",
        "nnefc.sklearn",
        "nnefc.torch",
    ),
    "driver": ("nnefc.driver", "nnefc.comparison", "nnefc.quantizer", "nnefc.inspect"),
    "serving": ("nnefc.serving",),
    "chat": ("nnefc.chat",),
    "loader": ("nnefc.loader",),
    "inspect/html": ("nnefc.inspect.html",),
    "backends": ("nnefc.backends",),
    "frontends": ("nnefc.frontends", "nnefc.frontends.tensor_types"),
    "frontends/decoder": ("nnefc.frontends.decoder", "nnefc.frontends.gguf", "nnefc.frontends.huggingface"),
    "frontends/nnef": ("nnefc.frontends.nnef",),
    "frontends/onnx": ("nnefc.frontends.onnx",),
    "frontends/pnnx": ("nnefc.frontends.pnnx",),
    "frontends/tflite": ("nnefc.frontends.tflite",),
    "tokenizer": ("nnefc.tokenizer",),
    "operators": ("nnefc.operators", "nnefc.custom"),
    "ir": ("nnefc.ir",),
    "symbolic": ("nnefc.symbolic",),
    "support": ("nnefc.support",),
    "passes": ("nnefc.passes",),
    "passes/spec": ("nnefc.passes.spec",),
    "passes/plan": ("nnefc.passes.plan",),
    "passes/legalize": ("nnefc.passes.legalize",),
    "passes/graph": ("nnefc.passes.graph",),
    "passes/schedule": ("nnefc.passes.schedule",),
    "passes/schedule/cpu": ("nnefc.passes.schedule.cpu",),
    "passes/schedule/cuda": ("nnefc.passes.schedule.cuda",),
    "passes/schedule/gpu": ("nnefc.passes.schedule.gpu",),
    "passes/compute": ("nnefc.passes.compute",),
    "passes/tir": ("nnefc.passes.tir",),
    "targets/codegen/c": ("nnefc.targets.codegen.c",),
    "targets/codegen/cpu": ("nnefc.targets.codegen.cpu",),
    "targets/codegen/cuda": ("nnefc.targets.codegen.cuda",),
    "targets/link": ("nnefc.targets.link",),
    "targets/description": ("nnefc.targets.description",),
    "targets/machine": ("nnefc.targets.machine",),
}
"""The parts: folders, by what the names of their modules begin with. Of a folder with parts inside it the part has the
files, not what is in other folders there."""


def modules() -> dict[str, Path]:
    """The files of all modules with more in them than a docstring, by the names that they are imported by."""
    found = {}
    for folder, package in _FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name == "__init__.py" and not _has_code(path):
                continue
            names = path.relative_to(ROOT / folder).with_suffix("").parts
            names = names[:-1] if names[-1] == "__init__" else names
            found[".".join([package, *names])] = path
    return found


def _has_code(path: Path) -> bool:
    return any(not isinstance(node, ast.Expr) for node in ast.parse(path.read_text(encoding="utf-8")).body)


def imports(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """What each module imports of `files`: at its top, in a function, for type checkers, by a name in a string."""
    graph = {}
    for module, path in files.items():
        text = path.read_text(encoding="utf-8")
        named = set(_DOTTED_STRING.findall(text))
        for node in _statements(ast.parse(text)):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                origin = _origin(module, path, node)
                below = {alias.name: f"{origin}.{alias.name}" for alias in node.names}
                named |= {below[name] if below[name] in files else origin for name in below}
        graph[module] = {name for name in named if name in files and name != module}
    return graph


_DOTTED_STRING = re.compile(r"""["']([a-z_]\w*(?:\.\w+)+)["']""")


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yields all statements, those inside others too; expressions, which are most of a tree, are not looked at."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.stmt):
            yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += inside if isinstance(inside := getattr(node, field, None), list) else []


def _origin(module: str, path: Path, node: ast.ImportFrom) -> str:
    """The module that names are imported from; dots count from the folder of the one that imports."""
    if node.level == 0:
        return str(node.module)
    folders = module.split(".") if path.stem == "__init__" else module.split(".")[:-1]
    return ".".join([*folders[: len(folders) - node.level + 1], *([node.module] if node.module else [])])


def part_of(module: str) -> str:
    """The part of a module.

    Raises:
        LookupError: there is none.
    """
    names = module.split(".")
    for length in range(len(names), 0, -1):
        root = ".".join(names[:length])
        for part, roots in PARTS.items():
            if root in roots and (len(names) - length <= (length > 1) or not _has_parts_inside(root)):
                return part
    raise LookupError(f"{module} belongs to no part: name it in PARTS of docs/draw_architecture.py")


def _has_parts_inside(root: str) -> bool:
    return any(other.startswith(f"{root}.") for roots in PARTS.values() for other in roots)


def arrows_between_parts(graph: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    """Of every part the other parts that it imports something of."""
    arrows: dict[str, set[str]] = {part: set() for part in PARTS}
    for module, others in graph.items():
        part = part_of(module)
        arrows[part] |= {part_of(other) for other in others} - {part}
    return arrows


def circles(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """What can be reached from itself: after each node without importers is taken away, and so on."""
    left = {node: set(others) for node, others in graph.items()}
    while True:
        leaves = [node for node, others in left.items() if not others & left.keys()]
        if not leaves:
            break
        for node in leaves:
            del left[node]
    found = []
    while left:
        start = next(iter(left))
        reached = _reached(left, start)
        circle = sorted(node for node in reached if start in _reached(left, node))
        if circle:
            found.append(circle)
        for node in circle or [start]:
            del left[node]
    return found


def _reached(graph: Mapping[str, Collection[str]], start: str) -> set[str]:
    """What can be reached from a node, in a step or more."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for node in graph.get(waiting.pop(), ()):
            if node in graph and node not in reached:
                reached.add(node)
                waiting.append(node)
    return reached


def shortest(arrows: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    """The arrows without those that a way over other parts says too."""
    return {
        part: {other for other in others if not any(other in _reached(arrows, way) for way in others if way != other)}
        for part, others in arrows.items()
    }


@dataclass(frozen=True)
class _Box:
    """A part in the image: the column and row of its position, whose folder it is in, what it does."""

    column: float
    row: int
    about: str
    wide: float = 1

    @property
    def middle(self) -> float:
        return _MARGIN + self.column * _STEP_X + self.wide * _WIDTH / 2

    @property
    def top(self) -> int:
        return _MARGIN + self.row * _STEP_Y


_WIDTH, _HEIGHT, _STEP_X, _STEP_Y, _MARGIN = 172, 44, 190, 82, 16

_BOXES = {
    "cli": _Box(1.5, 0, "nnefc compile, run, inspect"),
    "integrations": _Box(2.5, 0, "torch, scikit-learn, onnxruntime"),
    "driver": _Box(2, 1, "model files to a library"),
    "loader": _Box(4, 3, "loads and runs libraries"),
    "serving": _Box(4, 2, "networks as a service"),
    "chat": _Box(5, 2, "language models"),
    "inspect/html": _Box(5, 3, "networks as HTML"),
    "frontends/decoder": _Box(0, 1, "language models: GGUF, HF"),
    "frontends/nnef": _Box(0, 2, "NNEF, two dialects"),
    "frontends/onnx": _Box(0, 3, "ONNX"),
    "frontends/pnnx": _Box(0, 4, "PNNX"),
    "frontends/tflite": _Box(0, 5, "TFLite"),
    "tokenizer": _Box(1, 6, "text of language models"),
    "backends": _Box(2.6, 2, "what differs by machine"),
    "frontends": _Box(0, 6, "what front ends share"),
    "passes": _Box(2, 3, "the order of the passes"),
    "passes/plan": _Box(1.4, 4, "memory, calls, the entry"),
    "passes/legalize": _Box(2.5, 4, "Relax to computations"),
    "passes/spec": _Box(1.5, 2, "what is valid, checked"),
    "passes/graph": _Box(1.9, 5, "Relax to Relax"),
    "passes/schedule/cpu": _Box(0.9, 5, "rules for CPUs"),
    "passes/schedule/cuda": _Box(3.5, 4, "rules for NVIDIA GPUs"),
    "passes/schedule/gpu": _Box(2.9, 5, "rules for all GPUs"),
    "passes/schedule": _Box(2.4, 6, "how kernels are scheduled"),
    "passes/tir": _Box(2, 7, "TIR to TIR"),
    "passes/compute": _Box(1.4, 6, "algorithms in TE"),
    "operators": _Box(1, 7, "every operator, once"),
    "targets/link": _Box(5, 7, "objects to libraries"),
    "targets/codegen/c": _Box(4, 6, "TIR to C source"),
    "targets/codegen/cpu": _Box(4, 7, "TIR to objects"),
    "targets/codegen/cuda": _Box(3, 7, "TIR to CUDA"),
    "targets/description": _Box(5, 8, "what a library says of itself"),
    "targets/machine": _Box(3.6, 9, "what a machine has"),
    "ir": _Box(1.5, 8, "networks in Relax", 2),
    "symbolic": _Box(2.2, 9, "dynamic dimensions", 2),
    "support": _Box(0, 10, "errors and files: what every part may import", 6),
}

_STYLE = """
  text { font: 13px system-ui, sans-serif; text-anchor: middle; fill: #1b1f24 }
  .about { font-size: 11px; fill: #57606a }
  rect { stroke-width: 1.2; rx: 6 }
  .compiler { fill: #e7f0fd; stroke: #3b74c9 }
  .passes { fill: #e9f7ec; stroke: #2f8f46 }
  .targets { fill: #fdf1e3; stroke: #c07a1a }
  path { fill: none; stroke: #6e7781; stroke-width: 1.2; marker-end: url(#end) }
  marker path { fill: #6e7781; stroke: none; marker-end: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .about { fill: #9da7b3 }
    .compiler { fill: #14263f; stroke: #5b93e6 }
    .passes { fill: #12301a; stroke: #46b060 }
    .targets { fill: #38270f; stroke: #d99a45 }
    path { stroke: #8b949e }
    marker path { fill: #8b949e }
  }
"""


def drawing(graph: Mapping[str, Collection[str]]) -> str:
    """The image as SVG, of what each module imports."""
    arrows = arrows_between_parts(graph)
    drawn = shortest({part: others - {"support"} for part, others in arrows.items() if part != "support"})
    width = int(_MARGIN * 2 + 5 * _STEP_X + _WIDTH)
    height = int(_MARGIN * 2 + 10 * _STEP_Y + _HEIGHT)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        "<title>The parts of nnefc and who imports whom</title>",
        f"<style>{_STYLE}</style>",
        '<marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">',
        '<path d="M0 0L8 4L0 8z"/></marker>',
        *(_arrow(_BOXES[part], _BOXES[other]) for part in PARTS for other in PARTS if other in drawn.get(part, ())),
        *(_box(part, _BOXES[part]) for part in PARTS),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _arrow(start: _Box, end: _Box) -> str:
    x0, y0, x1, y1 = start.middle, start.top + _HEIGHT, end.middle, end.top
    bend = (y1 - y0) / 2
    return f'<path d="M{x0:.0f} {y0}C{x0:.0f} {y0 + bend:.0f} {x1:.0f} {y1 - bend:.0f} {x1:.0f} {y1}"/>'


def _box(part: str, box: _Box) -> str:
    folder = part.partition("/")[0]
    kind = folder if folder in _FOLDERS else "compiler"
    width = (box.wide - 1) * _STEP_X + _WIDTH
    left = _MARGIN + box.column * _STEP_X
    middle = left + width / 2
    return (
        f'<rect class="{kind}" x="{left:.0f}" y="{box.top}" width="{width:.0f}" height="{_HEIGHT}"/>'
        f'<text x="{middle:.0f}" y="{box.top + 18}">{escape(part)}</text>'
        f'<text class="about" x="{middle:.0f}" y="{box.top + 34}">{escape(box.about)}</text>'
    )


if __name__ == "__main__":
    IMAGE.write_text(drawing(imports(modules())), encoding="utf-8")
