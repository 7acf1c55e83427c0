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


def block(kind: str, number: int = 0) -> str:
    """A block of code that the page shows."""
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[number]


def walk(commands: str, folder: Path) -> None:
    """Run what the page shows in a folder."""
    nnefc_command = f"{shlex.quote(sys.executable)} -m nnefc"
    for line in commands.splitlines():
        command = line.removeprefix("$ ").replace("examples/", f"{ROOT}/examples/")
        command = re.sub(r"^nnefc\b", nnefc_command, command)
        subprocess.run(command, shell=True, cwd=folder, check=True, timeout=120)


@pytest.mark.slow
def test_the_library_for_arduino_links(tmp_path: Path) -> None:
    shown = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    walk(next(text for text in shown if "Digits" in text), tmp_path)
    library = tmp_path / "Digits"
    settings = dict(line.split("=", 1) for line in block("ini").splitlines())
    assert settings["precompiled"] == "full"
    assert (library / "src" / settings["includes"]).is_file()
    words = [sys.executable, "-m", "ziglang", "cc", "-target", "thumb-freestanding-eabihf", "-Os"]
    words += ["-mcpu=cortex_m4+vfp4d16sp", "-ffreestanding", "-fno-sanitize=all", "-T", str(EXAMPLE / "board.ld")]
    words += [f"-I{library / 'src'}", str(EXAMPLE / "startup.c"), str(EXAMPLE / "main.c")]
    words += [f"-L{library / 'src' / 'cortex-m4'}", settings["ldflags"], "-o", str(tmp_path / "sketch.elf")]
    subprocess.run(words, check=True, timeout=120)


@pytest.mark.slow
def test_the_module_for_zephyr_names_files_that_are_there(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    shown = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    walk(next(text for text in shown if "digits/zephyr" in text), tmp_path)
    module = tmp_path / "digits"
    (module / "CMakeLists.txt").write_text(block("cmake"))
    assert (module / re.findall(r"cmake: (\S+)", block("yaml"))[0] / "CMakeLists.txt").is_file()
    (tmp_path / "zephyr.cmake").write_text(
        "function(zephyr_library_import name path)\n"
        '  if(NOT EXISTS "${path}")\n    message(FATAL_ERROR "no ${path}")\n  endif()\nendfunction()\n'
        "function(zephyr_include_directories path)\n"
        '  if(NOT EXISTS "${path}/digits.h")\n    message(FATAL_ERROR "no header")\n  endif()\nendfunction()\n'
        f'include("{module.as_posix()}/CMakeLists.txt")\n'
    )
    subprocess.run(["cmake", "-P", str(tmp_path / "zephyr.cmake")], check=True, timeout=60)
