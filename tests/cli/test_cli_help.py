"""`--help` shows the common options of a command in groups, `--help-all` all of them."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from nnefc.cli import main
from nnefc.cli.grouped import Command, Option
from nnefc.driver.option_fields import GROUPS


def help_of(command: str, option: str = "--help") -> str:
    result = CliRunner().invoke(main, [command, option])
    assert result.exit_code == 0, result.output
    return result.output


def test_compile_shows_a_dozen_common_options_in_their_groups() -> None:
    short, whole = help_of("compile"), help_of("compile", "--help-all")
    assert sum(line.startswith("  -") for line in short.splitlines()) <= 14
    assert [line[:-1] for line in whole.splitlines() if line[:-1] in GROUPS] == list(GROUPS)
    assert "--max-depth" in whole and "--max-depth" not in short
    assert "more options: nnefc compile --help-all" not in whole


@pytest.mark.parametrize("name", [name for name, each in main.commands.items() if isinstance(each, Command)])
def test_help_all_has_every_option_and_help_counts_what_it_leaves_out(name: str) -> None:
    command = main.commands[name]
    options = [each for each in command.params if isinstance(each, click.Option)]
    whole, short = help_of(name, "--help-all"), help_of(name)
    for each in options:
        assert each.opts[0] in whole
    left_out = sum(isinstance(each, Option) and not each.is_common for each in options)
    assert (f"{left_out} more options: " in short) == (left_out > 0)


def test_the_old_name_of_a_value_works_and_is_reported() -> None:
    result = CliRunner().invoke(main, ["compile", "none.nnef", "-o", "x.so", "--scan-states", "anew"])
    assert "warning: scan_states 'anew' is called 'reset' now" in result.stderr
    assert "there is no file" in result.stderr
