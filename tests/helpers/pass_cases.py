"""Reads cases of passes, each a program before and a program after, and runs the passes that they name.

    Divides by a constant through a multiplication.              what the pass does, for readers

    passes: divide by reciprocal
    target: llvm -mcpu=x86-64-v3

    == A divisor that is a power of two

    -- before
    …
    -- after
    …

    == A dynamic divisor stays

    -- unchanged
    …

Settings hold for all cases of a file, or for the case that they follow. `passes` are names of the target's list,
`first .. last` are all from one to another that run for the program. `dims: n 1..64` are dynamic dimensions. `options`
are some of `strict`, `patches`, `small`, `reproducible` and `memory budget 4`. `kernels` names those that are shown:
all if the setting is not there, none if it is `hidden`. `covers` are other modules, in `passes/`, that the cases of the
file are about, besides the module that has the file's path.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from named_passes import NamedPasses
from program_parser import dimensions_of

__all__ = ["CaseFile", "PassCase", "case_files", "difference", "read_cases", "run_case", "write_cases"]

PASSES = Path(__file__).parents[2] / "passes"
SETTINGS = ("passes", "target", "options", "dims", "kernels", "covers")


@dataclass(frozen=True)
class PassCase:
    """A program before some passes, and after them.

    Attributes:
        title: what the case shows; unique in its file.
        settings: those of the file and of the case.
        own: those of the case alone.
        before, after: the programs as text; equal where nothing is to change.
        is_unchanged: whether the file says that nothing changes.
    """

    title: str
    settings: Mapping[str, str]
    own: Mapping[str, str]
    before: str
    after: str
    is_unchanged: bool


@dataclass(frozen=True)
class CaseFile:
    """The cases of a file.

    Attributes:
        path: of the file.
        about: the lines before the settings.
        settings: of all cases.
        cases: in their order.
    """

    path: Path
    about: str
    settings: Mapping[str, str]
    cases: Sequence[PassCase]

    def modules(self, folder: Path) -> list[Path]:
        """Returns the modules that the cases are about; `folder` is that of all case files."""
        own = PASSES / self.path.relative_to(folder).with_suffix(".py")
        others = [PASSES / name.strip() for name in self.settings.get("covers", "").split(",") if name.strip()]
        return [*([own] if own.exists() else []), *others]


# Files.


def case_files(folder: Path) -> list[Path]:
    """Returns the files of cases in a folder and in those in it."""
    return sorted(folder.rglob("*.txt"))


def read_cases(path: Path) -> CaseFile:
    """Reads a file.

    Raises:
        ValueError: says where the file is not as it should be.
    """
    head, *parts = re.split(r"^== ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    about, settings = _settings_in(head, path)
    cases = [_case_in(part, settings, path) for part in parts]
    titles = [case.title for case in cases]
    if len(set(titles)) < len(titles) or not cases:
        raise ValueError(f"{path}: no cases, or two with one title")
    return CaseFile(path, about, settings, cases)


def _settings_in(text: str, path: Path) -> tuple[str, dict[str, str]]:
    lines = text.strip().splitlines()
    pattern = re.compile(rf"({'|'.join(SETTINGS)}): (.+)")
    settings = {found[1]: found[2].strip() for line in lines if (found := pattern.fullmatch(line))}
    about = [line for line in lines if not pattern.fullmatch(line)]
    return "\n".join(about).strip(), settings


def _case_in(text: str, settings: Mapping[str, str], path: Path) -> PassCase:
    head, *sections = re.split(r"^-- (before|after|unchanged)\n", text, flags=re.MULTILINE)
    title, _, tail = head.partition("\n")
    about, own = _settings_in(tail, path)
    named = {name: text.strip("\n") for name, text in zip(sections[::2], sections[1::2], strict=True)}
    if about or named.keys() not in ({"before", "after"}, {"unchanged"}, {"before"}):
        raise ValueError(f"{path}: the case {title!r} has neither a program before and one after, nor an unchanged one")
    before = named.get("before", named.get("unchanged", ""))
    return PassCase(title, {**settings, **own}, own, before, named.get("after", before), "unchanged" in named)


def write_cases(file: CaseFile, found: Mapping[str, tuple[str, str]]) -> str:
    """Returns the text of a file in which the cases, by title, have these programs before and after their passes."""
    lines = [file.about, "", *(f"{key}: {value}" for key, value in file.settings.items())]
    for case in file.cases:
        lines += ["", f"== {case.title}", *(f"{key}: {value}" for key, value in case.own.items()), ""]
        before, after = found[case.title]
        lines += ["-- unchanged" if before == after else "-- before", case.before]
        lines += [] if before == after else ["", "-- after", after]
    return "\n".join([*lines, ""]).lstrip("\n")


def difference(case: PassCase, before: str, after: str) -> str | None:
    """Returns what is wrong with the program after the passes of a case; None if it is the expected one."""
    expected = before if case.is_unchanged else case.after
    if after != expected:
        lines = difflib.unified_diff(expected.splitlines(), after.splitlines(), "expected", "found", n=4, lineterm="")
        return "\n".join([f"== {case.title}", *lines])
    if before == after and not case.is_unchanged:
        return f"== {case.title}\nnothing changes: if that is right, write the program once, after '-- unchanged'"
    return None


def run_case(case: PassCase, files: set[str] | None = None) -> tuple[str, str]:
    """Runs the passes of a case; returns the program before and after them as text.

    Args:
        files: gets the names of the files whose functions the passes call.

    Raises:
        ValueError: a pass does not run for the target and the program.
    """
    settings = case.settings
    kernels = None if "kernels" not in settings else [name.strip() for name in settings["kernels"].split(",")]
    dims = dimensions_of(settings.get("dims", ""))
    passes = NamedPasses(settings["target"], settings["passes"], settings.get("options", ""), dims, kernels)
    return passes.texts(case.before, files)
