"""Every module of `passes/` has cases in this folder or a test of its own, or is listed with the reason why not."""

from __future__ import annotations

import re
from pathlib import Path

from pass_cases import PASSES, case_files, read_cases

FOLDER = Path(__file__).parent
LISTED = FOLDER / "modules_without_tests.md"
AT_MOST = 8
"""Modules that may be listed: lower it with each that gets a test."""


def modules() -> set[str]:
    return {str(path.relative_to(PASSES)) for path in PASSES.rglob("*.py") if path.name != "__init__.py"}


def with_cases() -> set[str]:
    found = (module for path in case_files(FOLDER) for module in read_cases(path).modules(FOLDER))
    return {str(module.relative_to(PASSES)) for module in found}


def with_tests() -> set[str]:
    """Modules that a test imports, or has the name of."""
    found: set[str] = set()
    for path in FOLDER.parent.rglob("*.py"):
        imported = re.findall(
            r"^from nnefc\.passes\.([\w.]+) import (.+)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
        for package, names in imported:
            found |= {f"{package}.{name}" for name in (*re.findall(r"\w+", names), "")}
        found.add(".".join([*path.relative_to(FOLDER.parent).parts[:-1], path.stem.removeprefix("test_")]))
    return {name.rstrip(".").replace(".", "/") + ".py" for name in found}


def listed() -> dict[str, str]:
    return dict(re.findall(r"^- `([\w/.]+)`: (.+)", LISTED.read_text(encoding="utf-8"), re.MULTILINE))


def test_every_module_of_passes_has_cases_or_a_test_or_is_listed() -> None:
    without = modules() - with_cases() - with_tests()
    assert sorted(without - listed().keys()) == [], (
        f"these need cases, see docs/how-to/add-a-pass.md, or a line in {LISTED}"
    )
    assert sorted(listed().keys() - without) == [], f"these are tested, or gone: take their lines out of {LISTED}"


def test_the_list_of_modules_without_tests_does_not_grow() -> None:
    assert len(listed()) <= AT_MOST
