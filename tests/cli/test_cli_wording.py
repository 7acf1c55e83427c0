"""What the command line says besides results: the manual page, completions for shells, how compiling goes on."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

import nnefc
from nnefc.cli import main
from nnefc.driver.terminal_progress import ProgressPhases

TEXT = """version 1.0;
graph g(x) -> (y)
{
    x = external(shape = [1, 2]);
    w = constant(shape = [1, 2], value = [1.0, 2.0]);
    y = mul(x, w);
}
"""


def test_the_manual_page_has_every_command_and_option() -> None:
    page = CliRunner().invoke(main, ["--man"]).output
    for name, command in main.commands.items():
        assert f'.SS "nnefc {name} ' in page
        for parameter in command.params:
            for option in parameter.opts if parameter.param_type_name == "option" else ():
                assert option.replace("-", "\\-") in page
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=page.encode(), capture_output=True, check=True)
        assert done.stderr == b"" and "--precision" in re.sub(".\b", "", done.stdout.decode())  # bold letters


@pytest.mark.parametrize(
    ("words", "found"),
    [(["compile", "-t", "corte"], "cortex-m4"), (["comp"], "compare"), (["view", "--aft"], "--after")],
)
def test_shells_complete_targets_commands_and_options(words: list[str], found: str) -> None:
    environment = os.environ | {
        "_NNEFC_COMPLETE": "zsh_complete",
        "COMP_WORDS": " ".join(["nnefc", *words]),
        "COMP_CWORD": str(len(words)),
    }
    command = [sys.executable, "-c", "from nnefc.cli import main; main(prog_name='nnefc')"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert found in done.stdout.splitlines()


def test_the_closing_lines_say_what_is_how_large_and_how_to_run_it(tmp_path: Path) -> None:
    model, library = tmp_path / "model.nnef", tmp_path / "digits.so"
    model.write_text(TEXT)
    result = CliRunner().invoke(main, ["compile", str(model), "-o", str(library), "-v"])
    assert result.exit_code == 0, result.output
    size, run = result.stderr.splitlines()[-2:]
    assert re.match(rf"wrote {library} in \d+\.\d s: .* of constants, .*; a session takes", size)
    assert run == f"run it: nnefc run {library} --random 0"
    separate = CliRunner().invoke(main, ["compile", str(model), "-o", str(library), "-v", "--weights", "separate"])
    assert separate.stderr.splitlines()[-2].endswith(" of constants next to it")


def test_the_closing_lines_for_a_microcontroller_say_how_much_memory_no_plan_could_save(tmp_path: Path) -> None:
    model, library = tmp_path / "model.nnef", tmp_path / "libnet.a"
    model.write_text(TEXT)
    result = CliRunner().invoke(main, ["compile", str(model), "-t", "cortex-m4", "-o", str(library), "-v"])
    assert result.exit_code == 0, result.output
    found = re.fullmatch(r"arena ([\d,]+) bytes; the tensors of one step have ([\d,]+)", result.stderr.splitlines()[-1])
    assert found is not None
    arena, bound = (int(number.replace(",", "")) for number in found.groups())
    assert arena >= bound


def test_the_spinner_tells_how_many_kernels_are_done() -> None:
    text = io.StringIO()
    phases = ProgressPhases(Console(file=text, force_terminal=True, width=100))
    with phases.phase("lower"):
        phases.kernels(12, 80)
        phases._console.print("what is printed moves the spinner down: it is drawn again")
        with phases.phase("fuse"):
            phases._console.print("again")
    assert "lower ━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌ 12 of 80 kernels, 0 s" in text.getvalue()
    assert "lower: fuse, 0 s" in text.getvalue()


def test_the_package_tells_its_version() -> None:
    assert nnefc.__version__ == version("nnefc")
    assert "__version__" in dir(nnefc)


def test_targets_fit_into_80_columns_and_a_name_tells_all_of_one() -> None:
    from nnefc.targets.machine.target_rows import target_rows

    listed = CliRunner().invoke(main, ["targets"]).output.splitlines()
    every = CliRunner().invoke(main, ["targets", *(row.name for row in target_rows())]).output.splitlines()
    assert max(map(len, listed + every)) <= 80
    assert {row.name for row in target_rows()} <= {line.split()[0] for line in listed if line}
    assert "  tested               natively" in every
    wrong = CliRunner().invoke(main, ["targets", "i386"])
    assert wrong.exit_code == 2
    assert "'i386'" in wrong.output
