"""The listing of targets, and the page of the documentation that is made of it."""

from pathlib import Path

from click.testing import CliRunner

from nnefc.cli import main
from nnefc.targets.machine.documentation import target_rows, targets_page
from nnefc.targets.machine.named import NAMED_TARGETS

ROOT = Path(__file__).parents[3]


def test_the_page_of_the_documentation_is_up_to_date() -> None:
    page = (ROOT / "docs" / "targets.md").read_text(encoding="utf-8")
    assert page == targets_page(), "run: python -m nnefc.targets.machine docs/targets.md"


def test_the_command_lists_every_target_once() -> None:
    done = CliRunner().invoke(main, ["targets"])
    assert done.exit_code == 0
    head, *lines = done.output.splitlines()
    assert head.split()[:2] == ["name", "triple"]
    assert [line.split()[0] for line in lines] == [*(known.name for known in NAMED_TARGETS), "cuda"]


def test_names_are_different() -> None:
    names = [row.name for row in target_rows()]
    assert len(set(names)) == len(names)
