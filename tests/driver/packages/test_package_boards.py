"""Packages for microcontrollers: manifests by the rules of their formats, and that builds find the files."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import nnefc
from nnefc.cli import main
from nnefc.cli.commands.package import _KINDS as COMMAND_KINDS
from nnefc.driver.packages.microcontrollers import one_header
from nnefc.driver.packages.write_package import KINDS
from nnefc.support.diagnostics import CompileError

TEXT = "version 1.0;\ngraph g(x) -> (y) { x = external(shape = [8]); y = relu(x); }\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.nnef"
    path.write_text(TEXT)
    return path


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def run_cmake(folder: Path, before: str) -> subprocess.CompletedProcess[str]:
    """Runs the CMakeLists.txt of a package between functions that stand for those of its build system."""
    script = folder.parent / "check.cmake"
    script.write_text(f'{before}\ninclude("{folder.as_posix()}/CMakeLists.txt")\n')
    return subprocess.run(["cmake", "-P", str(script)], capture_output=True, text=True, check=False, timeout=60)


def test_a_cmsis_pack_describes_its_files(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "nnefc.tiny.1.2.0.pack"
    nnefc.package(model, "cmsis-pack", path, targets=["cortex-m0plus", "cortex-m55"])
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    libraries = {f"lib/{target}/libtiny.a" for target in ("cortex-m0plus", "cortex-m55")}
    assert set(files) == {"nnefc.tiny.pdsc", "include/tiny.h", *libraries}
    root = ET.fromstring(files["nnefc.tiny.pdsc"])
    order = ["vendor", "name", "description", "url", "releases", "conditions", "components"]
    assert [child.tag for child in root] == order
    assert (root.findtext("vendor"), root.findtext("name")) == ("nnefc", "tiny")
    assert root.find("releases/release").attrib["version"] == "1.2.0"
    listed = root.findall("components/component/files/file")
    assert {file.attrib["name"] for file in listed if file.attrib["category"] == "library"} == libraries
    conditions = {each.attrib["id"] for each in root.findall("conditions/condition")}
    assert {file.attrib["condition"] for file in listed if "condition" in file.attrib} == conditions
    assert all(file.attrib["name"].endswith("/") or file.attrib["name"] in files for file in listed)
    with pytest.raises(CompileError, match=r"has the version 1\.2\.0, not 2\.0\.0"):
        nnefc.package(model, "cmsis-pack", path, version="2.0.0")


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs: cmake")
def test_a_component_for_esp_idf(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    nnefc.package(model, "esp-idf", folder)
    files = ("include/tiny.h", "lib/libtiny.a", "source/tiny.c", "source/tiny.h")
    assert names(folder) == {"idf_component.yml", "CMakeLists.txt", *files}
    manifest = yaml.safe_load((folder / "idf_component.yml").read_text())
    assert manifest["version"] == "1.0.0"
    assert {"esp32c3", "esp32h2", "esp32", "esp32s3"} < set(manifest["targets"])
    system = (
        "set(COMPONENT_LIB component)\n"
        "function(idf_component_register)\n  message(STATUS registered ${ARGV})\nendfunction()\n"
        'function(add_prebuilt_library name path)\n  if(NOT EXISTS "${path}")\n    message(FATAL_ERROR "no ${path}")\n'
        "  endif()\nendfunction()\n"
        "function(target_link_libraries)\n  message(STATUS linked ${ARGV})\nendfunction()\n"
        "function(target_compile_definitions)\n  message(STATUS defined ${ARGV})\nendfunction()\n"
        "function(target_compile_options)\nendfunction()\n"
    )
    for chip, results in (
        ("esp32c3", ("linkedcomponentINTERFACEtiny_network",)),
        ("esp32s3", ("registeredSRCSsource/tiny.cINCLUDE_DIRSsource", "definedcomponentPUBLICTINY_STATIC_ARENA")),
        ("esp32c", ("SRCS",)),  # no chip's whole name
    ):
        done = run_cmake(folder, f"set(IDF_TARGET {chip})\n{system}")
        assert done.returncode == 0, done.stderr
        assert all(result in done.stdout.replace(" ", "") for result in results), done.stdout


def test_a_component_for_esp_idf_has_only_what_is_asked_for(model: Path, tmp_path: Path) -> None:
    for number, (target, folders) in enumerate((("esp32c3", {"include", "lib"}), ("generic-c", {"source"}))):
        folder = tmp_path / f"tiny{number}"
        nnefc.package(model, "esp-idf", folder, targets=[target], name="tiny")
        assert {path.name for path in folder.iterdir() if path.is_dir()} == folders
    with pytest.raises(CompileError, match="one static library"):
        nnefc.package(model, "esp-idf", tmp_path / "tiny", targets=["esp32c3", "riscv32imc"])


ZEPHYR = """
function(zephyr_library_import name path)
  if(NOT EXISTS "${path}")
    message(FATAL_ERROR "no ${path}")
  endif()
  message(STATUS "${path}")
endfunction()
function(zephyr_include_directories path)
  if(NOT EXISTS "${path}/tiny.h")
    message(FATAL_ERROR "no header")
  endif()
endfunction()
"""


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs: cmake")
def test_a_module_for_zephyr_chooses_by_the_processor(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    nnefc.package(model, "zephyr", folder, targets=["cortex-m0plus", "cortex-m4", "riscv32imc"])
    assert yaml.safe_load((folder / "zephyr" / "module.yml").read_text()) == {"name": "tiny", "build": {"cmake": "."}}
    for settings, result in (
        ("CONFIG_CPU_CORTEX_M0PLUS", "lib/cortex-m0plus/libtiny.a"),
        ("CONFIG_CPU_CORTEX_M4 CONFIG_FP_HARDABI", "lib/cortex-m4/libtiny.a"),
        ("CONFIG_RISCV", "lib/riscv32imc/libtiny.a"),
        ("CONFIG_CPU_CORTEX_M4", "CONFIG_FP_HARDABI=y"),
        ("CONFIG_CPU_CORTEX_M7", "no library for this processor"),
    ):
        done = run_cmake(folder, "".join(f"set({name} y)\n" for name in settings.split()) + ZEPHYR)
        assert result in done.stdout + done.stderr
        assert (done.returncode == 0) == result.endswith(".a")


def test_a_library_for_arduino_compiles_its_sketch(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "Tiny"
    nnefc.package(model, "arduino", folder, targets=["cortex-m4", "riscv32imc"])
    boards = ("cortex-m4", "cortex-m4/fpv4-sp-d16-softfp", "esp32c2", "esp32c3", "esp32c6", "esp32h2")
    assert names(folder) == {
        *("library.properties", "examples/Run/Run.ino", "src/tiny.h"),
        *(f"src/{board}/libtiny.a" for board in boards),
    }
    settings = dict(line.split("=", 1) for line in (folder / "library.properties").read_text().splitlines())
    assert settings["name"] == folder.name
    assert re.fullmatch(r"\d+\.\d+\.\d+", settings["version"])
    assert (settings["precompiled"], settings["ldflags"]) == ("full", "-ltiny")
    assert (folder / "src" / settings["includes"]).is_file()
    sketch = tmp_path / "sketch.cpp"
    sketch.write_text(
        '#include <stddef.h>\nextern "C" unsigned long micros();\nextern "C" void delay(int);\n'
        "struct Port { void begin(int); void print(const char *); void println(unsigned long); } Serial;\n"
        f'#include "{folder.as_posix()}/examples/Run/Run.ino"\n'
    )
    words = [sys.executable, "-m", "ziglang", "c++", "-target", "thumb-freestanding-eabihf", "-mcpu=cortex_m4", "-Wall"]
    done = subprocess.run(
        [*words, "-Werror", f"-I{folder / 'src'}", "-c", str(sketch), "-o", str(tmp_path / "sketch.o")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_one_header_has_the_largest_arena() -> None:
    text = "/* n.h - a network, for {} */\n#define N_ARENA_BYTES {} /* memory */\nint n_run(void);\n"
    made = one_header({"a": text.format("a", 16), "b": text.format("b", 256)})
    assert made == "/* n.h - a network, for a, b */\n#define N_ARENA_BYTES 256 /* memory */\nint n_run(void);\n"
    with pytest.raises(CompileError, match="not the same for all targets"):
        one_header({"a": text.format("a", 16), "b": text.format("b", 16).replace("void", "int x")})


def test_a_target_with_a_system_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="no files for the target 'raspberrypi4'"):
        nnefc.package(model, "zephyr", tmp_path / "tiny", targets=["raspberrypi4"])
    with pytest.raises(CompileError, match="has an operating system"):
        nnefc.package(model, "arduino", tmp_path / "tiny", targets=["raspberrypi4"])
    assert not list(tmp_path.iterdir())


def test_the_command_knows_every_kind(model: Path, tmp_path: Path) -> None:
    assert list(COMMAND_KINDS) == list(KINDS)
    for name in KINDS:
        assert f"--{name}" in CliRunner().invoke(main, ["package", "--help"], terminal_width=200).output
    words = ["package", str(model), "--esp-idf", "-o", str(tmp_path / "tiny"), "--version", "0.2.0"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert done.stdout == f"wrote {tmp_path / 'tiny'}\n"
    assert 'version: "0.2.0"' in (tmp_path / "tiny" / "idf_component.yml").read_text()
    again = CliRunner().invoke(main, words)
    assert (again.exit_code, "it exists" in again.output) == (1, True)
    missing = CliRunner().invoke(main, ["package", str(model), "-o", str(tmp_path / "other")])
    assert (missing.exit_code, "which kind of package" in missing.output) == (2, True)
