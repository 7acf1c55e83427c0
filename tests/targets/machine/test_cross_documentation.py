"""The listing of targets, and the page of the documentation that is made of it."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from targets_page import targets_page

from nnefc.cli import main
from nnefc.targets.machine.cpu.parsing import parse_target
from nnefc.targets.machine.named_targets import NAMED_TARGETS, NamedTarget
from nnefc.targets.machine.target_rows import target_rows

ROOT = Path(__file__).parents[3]


def test_the_page_of_the_documentation_is_up_to_date() -> None:
    page = (ROOT / "docs" / "targets.md").read_text(encoding="utf-8")
    assert page == targets_page(), "run: python docs/targets_page.py"


def test_the_command_lists_every_target_once() -> None:
    done = CliRunner().invoke(main, ["targets"])
    assert done.exit_code == 0
    names = [line.split()[0] for line in done.output.splitlines() if line and not line.startswith(" ")]
    wanted = [*(known.name for known in NAMED_TARGETS), "cuda"]
    assert [name for name in names if name in wanted] == wanted


def test_names_are_different() -> None:
    names = [row.name for row in target_rows()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("known", NAMED_TARGETS, ids=lambda known: known.name)
def test_what_is_listed_of_a_target_is_what_llvm_knows_of_it(known: NamedTarget) -> None:
    target, vectors = parse_target(known.name), known.vectors
    assert known.features == target.features
    assert known.format is target.format
    assert (vectors.bytes, vectors.registers, vectors.fused) == (
        target.vectors.bytes,
        target.vectors.registers,
        target.vectors.fused,
    )


def test_machines_without_vectors_have_none_in_the_table() -> None:
    words = {row.name: row.vectors for row in target_rows()}
    assert words["cortex-m4"] == words["riscv64-linux-gnu"] == "none, FMA"
    assert words["cortex-m0plus"] == words["esp32c3"] == "none"
    assert words["cortex-m55"] == "8 × 128, FMA"
