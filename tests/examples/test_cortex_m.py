"""The example for microcontrollers, and the page that explains it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nnefc
from nnefc.targets.machine.named_targets import NAMED_TARGETS

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "cortex-m"
PAGE = (ROOT / "docs" / "how-to" / "microcontroller.md").read_text()


@pytest.mark.slow
def test_it_runs(tmp_path: Path) -> None:
    for program in ("qemu-system-arm", "make"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
    shutil.copytree(EXAMPLE, tmp_path / "cortex-m")
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "digits")
    compiler = "CC=" + f"{sys.executable} -m ziglang cc -target thumb-freestanding-eabihf -mcpu=cortex_m4+vfp4d16sp"
    words = ["make", "-s", "run", compiler, f"NNEFC={sys.executable} -m nnefc"]
    done = subprocess.run(words, cwd=tmp_path / "cortex-m", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "this is a 0\n"


def test_the_page_shows_the_header_as_it_is_and_every_target(tmp_path: Path) -> None:
    nnefc.compile(ROOT / "examples" / "digits" / "model.nnef", "cortex-m4").export(tmp_path / "digits.a", name="digits")
    header = (tmp_path / "digits.h").read_text()
    shown = PAGE.partition("```c\n")[2].partition("```")[0].splitlines()
    assert shown
    for line in shown:
        assert line in header
    table = set(re.findall(r"`([a-z0-9-]+)`", "".join(line for line in PAGE.splitlines() if line.startswith("| `"))))
    assert {known.name for known in NAMED_TARGETS if not known.hosted} <= table


@pytest.mark.slow
def test_the_commands_of_the_page_write_packages(tmp_path: Path) -> None:
    shown = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    nnefc_command = f"{shlex.quote(sys.executable)} -m nnefc"
    for line in next(text for text in shown if "package" in text).splitlines():
        command = line.removeprefix("$ ").replace("examples/", f"{ROOT}/examples/")
        command = re.sub(r"^nnefc\b", nnefc_command, command)
        subprocess.run(f"{command} --targets cortex-m4", shell=True, cwd=tmp_path, check=True, timeout=120)
    library = tmp_path / "Digits"
    settings = dict(line.split("=", 1) for line in (library / "library.properties").read_text().splitlines())
    words = [sys.executable, "-m", "ziglang", "cc", "-target", "thumb-freestanding-eabihf", "-Os"]
    words += ["-mcpu=cortex_m4+vfp4d16sp", "-ffreestanding", "-fno-sanitize=all", "-T", str(EXAMPLE / "board.ld")]
    words += [f"-I{library / 'src'}", str(EXAMPLE / "startup.c"), str(EXAMPLE / "main.c")]
    words += [f"-L{library / 'src' / 'cortex-m4'}", settings["ldflags"], "-o", str(tmp_path / "sketch.elf")]
    subprocess.run(words, check=True, timeout=120)
    assert (tmp_path / "digits_module" / "zephyr" / "module.yml").is_file()
