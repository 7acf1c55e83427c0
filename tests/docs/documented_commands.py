"""Commands that pages of the documentation show: found, read by the parsers of what they call, and run."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from nnefc.cli import main
from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.any_target import parse_any_target

__all__ = ["ELSEWHERE", "NOT_RUN", "PAGES", "ROOT", "Shown", "blocks_of", "inline_of", "is_run_here", "mistake_in"]

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(page for folder in ("docs", "examples", "packaging") for page in sorted((ROOT / folder).rglob("*.md"))),
]
PROGRAMS = (
    "nnefc",
    "make",
    "python",
    "pip",
    "cc",
    "c++",
    "cargo",
    "cmake",
    "curl",
    "go",
    "java",
    "javac",
    "npm",
    "openssl",
)

ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "README.md": ("tests/docs/test_documentation.py::test_the_commands_of_the_readme",),
    "docs/how-to/browser.md": ("tests/docs/test_how_to.py::test_the_page_on_browsers",),
    "docs/how-to/build-systems.md": (
        "tests/examples/test_build_systems.py::test_the_project_of_cmake",
        "tests/examples/test_build_systems.py::test_the_project_of_cargo",
        "tests/examples/test_build_systems.py::test_the_project_of_go",
        "tests/examples/test_build_systems.py::test_the_class_of_java",
    ),
    "docs/how-to/convert.md": ("tests/docs/test_documentation.py::test_the_page_on_conversion",),
    "docs/how-to/custom-operator.md": ("tests/docs/test_how_to.py::test_the_page_on_operators_of_ones_own",),
    "docs/how-to/language-model.md": ("tests/docs/test_how_to.py::test_the_page_on_language_models",),
    "docs/language-models.md": ("tests/docs/test_how_to.py::test_the_commands_of_the_reference_of_language_models",),
    "docs/how-to/look-inside.md": ("tests/docs/test_documentation.py::test_the_page_on_looking_inside",),
    "docs/how-to/dynamic-shapes.md": (
        "tests/docs/test_documentation.py::test_the_page_on_dynamic_sizes_from_the_model_to_the_c_program",
    ),
    "docs/how-to/quantize.md": (
        "tests/docs/test_documentation.py::test_the_digits_are_quantized_as_the_documentation_shows",
    ),
    "docs/how-to/serving.md": ("tests/docs/test_documentation.py::test_the_page_on_serving",),
    "examples/engines/README.md": ("tests/examples/test_engines.py::test_the_digits_are_classified_on_the_engine",),
}
"""Pages whose commands other tests run, from the page or with smaller models."""

NOT_RUN: Mapping[str, str] = {
    r"pip install": "installs packages into the environment of the tests; that the extras exist is looked at",
    r"npm pack": "needs a registry",
    r"make (chat|run|setup|test|test-all|test-gpu|lint|fuzz|stress|pages|nightly)\b": "is long; its goal exists",
    r"python tests/(fuzz|operators)/": "rewrites pages, or runs for as long as an option says",
    r"python -m nnefc\.onnxruntime ": "runs a program of the reader's; tests/integrations runs others",
    r"python examples/gallery/": "needs pretrained networks, which slow tests of the gallery have",
}
"""Commands that no test runs as they are written, and why."""


@dataclass(frozen=True)
class Shown:
    """A command on a page.

    Attributes:
        text: as it is written, without a prompt and comments.
        folder: where it runs, below the folder that the page begins in.
    """

    text: str
    folder: str = ""

    @property
    def words(self) -> list[str]:
        """Its words up to the first operator of the shell, without assignments of variables before it."""
        lexer = shlex.shlex(self.text, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split, lexer.commenters = True, "#"
        found = []
        for word in lexer:
            if set(word) <= set("|&;<>"):
                break
            if found or not re.fullmatch(r"[A-Z_]+=.*", word):
                found.append(word)
        return found


def blocks_of(page: Path) -> list[list[Shown]]:
    """The commands of each block of a page: fenced ones of shells, and indented lines that begin with a program."""
    text = page.read_text()
    found = []
    for kind, body in re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if kind in ("sh", "console") or (not kind and body.startswith("python ")):
            lines = [
                line.removeprefix("$ ") for line in body.splitlines() if kind != "console" or line.startswith("$ ")
            ]
            found.append(list(_commands("\n".join(lines))))
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for body in re.findall(r"(?<=\n\n)(?: {4}.*(?:\n|$))+", prose):
        lines = [line[4:] for line in body.splitlines()]
        if lines[0].split()[0] in PROGRAMS:
            found.append(list(_commands("\n".join(lines))))
    return found


def _commands(script: str) -> Iterator[Shown]:
    """Commands of a script, with the folder that those before them changed to."""
    folder, pending = "", ""
    for line in script.splitlines():
        pending += line
        if pending.endswith("\\") or pending.count("'") % 2:
            pending = pending.removesuffix("\\") + ("\n" if pending.count("'") % 2 else " ")
            continue
        command, pending = re.sub(r"(^|\s+)#\s.*$", "", pending).strip(), ""
        if command.startswith("cd "):
            folder = command.split()[1]
        if command:
            yield Shown(command, folder)


def inline_of(page: Path) -> Iterator[Shown]:
    """Commands in the text of a page that are written out: without dots and names in capitals for what is left open."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for text in re.findall(r"`((?:nnefc|make|python|pip) [^`]+)`", prose):
        if "…" not in text and "|" not in text and not re.search(r"(?<![=\w])[A-Z]{2,}(?!\w*=)", text):
            yield Shown(" ".join(text.split()))


def is_run_here(command: Shown) -> bool:
    """Whether the test of this module runs it."""
    return not any(re.match(pattern, command.text) for pattern in NOT_RUN)


def mistake_in(command: Shown, page: Path) -> str:
    """What a command says that what it calls has not: an option, a goal or a file; empty if nothing."""
    words = command.words
    match words[:1]:
        case ["nnefc"]:
            return _of_nnefc(words[1:])
        case ["make"]:
            return _of_make(words[1:], page, command.folder)
        case ["python"]:
            return _of_python(words[1:], page, command.folder)
        case ["pip"]:
            extras = re.findall(r"nnefc\[([\w,-]+)\]", command.text)
            known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            return next((f"no extra {e}" for group in extras for e in group.split(",") if e not in known), "")
    return ""


def _of_nnefc(words: list[str]) -> str:
    group = click.Context(main)
    if words[0].startswith("-"):
        return "" if words[0] in {name for param in main.params for name in param.opts} else f"no option {words[0]}"
    command = main.get_command(group, words[0])
    if command is None:
        return f"no command {words[0]}"
    context = click.Context(command, parent=group)
    try:
        values, _, _ = command.make_parser(context).parse_args(list(words[1:]))
        for param in command.get_params(context):
            for value in _listed(values.get(param.name)):
                if isinstance(param.type, click.Choice):
                    param.type.convert(value, param, context)
                if param.name in ("target", "targets"):
                    [parse_any_target(name) for name in (value.split(",") if param.name == "targets" else [value])]
    except (click.ClickException, CompileError) as error:
        return str(getattr(error, "message", error))
    return ""


def _listed(value: object) -> list[str]:
    return [v for v in (value if isinstance(value, list | tuple) else [value]) if isinstance(v, str)]


def _of_make(words: list[str], page: Path, folder: str) -> str:
    positions = [page.parent / folder, ROOT / folder, ROOT]
    text = next((position / "Makefile").read_text() for position in positions if (position / "Makefile").exists())
    goals = [word for word in words if "=" not in word and not word.startswith("-")]
    return next((f"no goal {goal}" for goal in goals if not re.search(rf"^{goal}\b.*:", text, re.MULTILINE)), "")


def _of_python(words: list[str], page: Path, folder: str) -> str:
    if words[:1] == ["-c"]:
        return ""
    if words[:1] == ["-m"]:
        own = words[1].removeprefix("nnefc.").replace(".", "/")
        positions = [ROOT / "compiler" / own, ROOT / "compiler" / f"{own}.py", ROOT / own]
        return (
            ""
            if not words[1].startswith("nnefc") or any(position.exists() for position in positions)
            else (f"no {words[1]}")
        )
    positions = [position / words[0] for position in (page.parent / folder, ROOT / folder, ROOT)]
    path = next((position for position in positions if position.exists()), None)
    if path is None:
        return f"no file {words[0]}"
    source = (path / "__main__.py" if path.is_dir() else path).read_text()
    for name in re.findall(r"^(?:from|import) (\w+)", source, re.MULTILINE):  # which may read the options
        program = path.parent / f"{name}.py"
        source += program.read_text() if program.exists() else ""
    options = [word.partition("=")[0] for word in words[1:] if word.startswith("--")]
    return next((f"no option {option}" for option in options if f'"{option}"' not in source), "")
