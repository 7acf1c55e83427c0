"""Libraries that are linked with nothing but what their system has: zig compiles no C library before."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from emulation import MACHINES, run_on
from relax_programs import network_of, program, target

from nnefc.driver.artifact import Artifact
from nnefc.driver.compile import compile_network
from nnefc.targets.codegen.cpu.objects import MachineCode
from nnefc.targets.description.library import LibraryDescription, TensorDescription
from nnefc.targets.link import toolchain
from nnefc.targets.link.zig import run_compiler, zig

COMPILED = ("libcompiler_rt.a", "compiler_rt.lib", "libmingw32.lib", "libc.a", "zigc.lib", "libzigc.a")
"""What zig makes of sources of its own, for seconds or minutes, and keeps."""


def network(name: str, function: str) -> Artifact:
    """One that runs on threads."""
    module = program(f"x[64, 100] -> y\na = R.{function}(x)\ny = R.cumsum(a, 0)")
    return compile_network(network_of(module), target(name))


SYSTEMS = ("x86_64-windows-gnu", "x86_64-linux-musl", "aarch64-linux-gnu", "aarch64-macos")
ALONE = [*((name, "tan") for name in SYSTEMS), ("wasm32-wasi", "exp"), ("wasm32-threads", "exp")]
"""Systems that have functions of C's, and those that have none of their own; what is called."""


@pytest.mark.parametrize(("name", "function"), ALONE)
@pytest.mark.sample(3)
def test_a_first_library_needs_no_c_library_to_be_compiled(
    name: str, function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(tmp_path / "kept"))
    artifact = network(name, function)
    artifact.export(tmp_path / f"network{artifact.target.format.suffix}")
    assert {path.name for path in (tmp_path / "kept").rglob("*") if path.name in COMPILED} == set()


def test_what_the_system_lacks_is_linked_from_zig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """32-bit Arm divides 64-bit integers by a function of the compiler's."""
    commands: list[Sequence[str]] = []

    def run(command: Sequence[str], *others: object) -> None:
        commands.append(command)
        run_compiler(command, *others)  # type: ignore[arg-type]

    module = program("x: int64[8] -> y\ny = R.floor_divide(x, x)")
    artifact = compile_network(network_of(module), target("armv7-linux-gnueabihf"))
    artifact.export(tmp_path / "first.so")  # the runtime is compiled now, if it has not been
    monkeypatch.setattr(toolchain, "run_compiler", run)
    artifact.export(tmp_path / "network.so")
    assert ["-nostdlib" in command for command in commands] == [True, False]


ENTERED = """
#include <stdint.h>
#include <stdio.h>
static float entered;
__attribute__((constructor)) static void enter(void) { entered += 1; }
__attribute__((destructor)) static void leave(void) { fclose(fopen(LEFT, "w")); }
int32_t nnefc_network(void *y, uint8_t *state, uint8_t *workspace, const uint8_t *constants) {
    volatile char stack[3 * 4096]; /* more than a page: the compiler calls a function that touches each */
    for (unsigned i = 0; i < sizeof stack; i += 512) stack[i] = (char)i;
    (void)state, (void)workspace, (void)constants;
    *(float *)y = entered + stack[0];
    return 0;
}
"""


def test_a_library_for_windows_is_entered_and_left(tmp_path: Path) -> None:
    """By its own functions, for there is no start-up code of MinGW's in it."""
    (machine,) = (machine for machine in MACHINES if machine.name == "windows")
    if machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    source, code, left = tmp_path / "entered.c", tmp_path / "entered.obj", tmp_path / "left"
    source.write_text(ENTERED)
    position = f'-DLEFT="Z:{left}"'
    subprocess.run([*zig(), "cc", "-target", machine.target, "-O1", position, "-c", source, "-o", code], check=True)
    description = LibraryDescription(
        "entered", machine.target, "nnefc test", (), (TensorDescription("y", "float32", (1,)),), workspace_bytes=64
    )
    machine_code = MachineCode((code.read_bytes(),), target(machine.target), None, (), None)
    outputs = run_on(machine, Artifact(description, target(machine.target), 0, machine_code, None), {})
    assert outputs["y"] == 1
    assert left.exists()
