"""Networks on machines that are not there: compiled for a target, run under an emulator on inputs from files."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from runtime_samples import C_SOURCES

from nnefc.driver.artifact import Artifact
from nnefc.targets.link.linking import LINKING
from nnefc.targets.link.toolchain import RUNTIME, TensorDescription
from nnefc.targets.link.zig import zig
from nnefc.targets.machine.system import FileFormat, format_of

__all__ = ["MACHINES", "Machine", "refused_by", "run_on", "with_glibc", "with_relaxed_simd"]

_DTYPES = {"bool": np.dtype(np.bool_), "bfloat16": np.dtype(np.uint16)}
_LIBRARIES = ("-lm", "-lpthread")
_PROGRAM = C_SOURCES / "run_files.c"
_SCRIPT = Path(__file__).parent / "run_files.mjs"

STATUS_NOT_OK = 4  # what the program ends with when a function of the library's answers anything else


@dataclass(frozen=True)
class Machine:
    """A target, and how its programs run here.

    Attributes:
        name: for messages and for the names of tests.
        target: what is compiled for.
        command: the emulator; a program follows.
        opened: whether the program opens a shared library; else it is linked with an archive, and static if there is
            no `root`.
        root: a folder with the system's own libraries.
    """

    name: str
    target: str
    command: tuple[str, ...]
    opened: bool = False
    root: str = ""

    @property
    def missing(self) -> str:
        """What has to be installed for it to run; "" if nothing."""
        if shutil.which(self.command[0]) is None:
            return self.command[0]
        if self.root and not Path(self.root).is_dir():
            return self.root
        on_x86 = self.name.startswith("x86") or self.command[0] == "wine"
        return "an x86-64 system with glibc" if on_x86 and not _HOST_IS_X86 else ""


_HOST_IS_X86 = platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"


_ROOTS = {
    "qemu-aarch64": "/usr/aarch64-linux-gnu",
    "qemu-arm": "/usr/arm-linux-gnueabihf",
    "qemu-riscv64": "/usr/riscv64-linux-gnu",
}


def with_glibc(name: str, target: str, emulator: str, *options: str, opened: bool = False) -> Machine:
    """One whose programs use the C library that is installed for it; zig would compile musl, for half a minute."""
    root = _ROOTS[emulator]
    return Machine(name, target, (emulator, "-L", root, *options), opened, root)


_VECTORS = "rv64,v=true,vext_spec=v1.0,vlen="

MACHINES = (
    Machine("x86-64-v2", "x86-64-v2", ("qemu-x86_64", "-cpu", "Nehalem"), opened=True),
    Machine("x86-64-v3", "x86-64-v3", ("qemu-x86_64", "-cpu", "max"), opened=True),
    with_glibc("aarch64", "aarch64-linux-gnu", "qemu-aarch64", "-cpu", "cortex-a53"),
    with_glibc("aarch64-opened", "aarch64-linux-gnu", "qemu-aarch64", opened=True),
    Machine("cortex-a72", "llvm -mtriple=aarch64-linux-musl -mcpu=cortex-a72", ("qemu-aarch64", "-cpu", "cortex-a72")),
    with_glibc("cortex-a76", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76", "qemu-aarch64", "-cpu", "cortex-a76"),
    with_glibc("armv7", "armv7-linux-gnueabihf", "qemu-arm", "-cpu", "cortex-a7"),
    with_glibc("armv7-opened", "armv7-linux-gnueabihf", "qemu-arm", opened=True),
    with_glibc("riscv64", "riscv64-linux-gnu", "qemu-riscv64"),
    with_glibc("riscv64-opened", "riscv64-linux-gnu", "qemu-riscv64", opened=True),
    with_glibc("riscv64gcv", "riscv64gcv-linux-gnu", "qemu-riscv64", "-cpu", f"{_VECTORS}128"),
    Machine("riscv64gcv-long", "riscv64gcv-linux-musl", ("qemu-riscv64", "-cpu", f"{_VECTORS}512")),
    Machine("wasm32", "wasm32-wasi", ("node",)),
    Machine("x86-64", "x86-64", ("qemu-x86_64", "-cpu", "qemu64"), opened=True),
    Machine("musl-x86-64", "x86_64-linux-musl", ("qemu-x86_64", "-cpu", "max")),
    Machine("windows", "x86_64-windows-gnu", ("wine",), opened=True),
    Machine("musl-i686", "llvm -mtriple=i686-linux-musl -mattr=+ssse3", ("qemu-i386",)),
    Machine("musl-armv7", "armv7-linux-musleabihf", ("qemu-arm", "-cpu", "cortex-a7")),
)


def run_on(machine: Machine, artifact: Artifact, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run a compiled network under the machine's emulator."""
    with tempfile.TemporaryDirectory(prefix="nnefc-emulated-") as name:
        done = _run(machine, artifact, inputs, Path(name))
        assert done.returncode == 0, f"{machine.name}: {done.returncode} {done.stderr[-2000:]}"
        shapes: list[tuple[int, ...]] = [tensor.shape for tensor in artifact.outputs]
        if artifact.description.is_dynamic:
            shapes = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
        return {
            tensor.name: np.fromfile(Path(name) / f"out{i}", _dtype(tensor)).reshape(shape)
            for i, (tensor, shape) in enumerate(zip(artifact.outputs, shapes, strict=True))
        }


def with_relaxed_simd() -> tuple[str, ...]:
    """Node.js, which has it behind a flag in versions before 21."""
    flagged = ("node", "--experimental-wasm-relaxed-simd")
    return (
        flagged
        if subprocess.run([*flagged, "--eval", ""], capture_output=True, check=False).returncode == 0
        else ("node",)
    )


def refused_by(machine: Machine, artifact: Artifact) -> str:
    """What a compiled network says under the emulator of a machine that it cannot run on."""
    inputs = {tensor.name: np.zeros(tensor.shape, _dtype(tensor)) for tensor in artifact.inputs}
    with tempfile.TemporaryDirectory(prefix="nnefc-emulated-") as name:
        done = _run(machine, artifact, inputs, Path(name))
        assert done.returncode == STATUS_NOT_OK, f"{machine.name}: {done.returncode} {done.stderr[-2000:]}"
        return done.stderr


def _run(
    machine: Machine, artifact: Artifact, inputs: Mapping[str, np.ndarray], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run the network in a folder, where its results then are."""
    sources = [folder / f"in{i}" for i in range(len(artifact.inputs))]
    results = [folder / f"out{i}" for i in range(len(artifact.outputs))]
    for tensor, path in zip(artifact.inputs, sources, strict=True):
        np.ascontiguousarray(inputs[tensor.name], _dtype(tensor)).tofile(path)
    words = list(map(str, sources))
    if artifact.description.is_dynamic:
        shapes = (inputs[tensor.name].shape for tensor in artifact.inputs)
        words = [f"{path}@{'x'.join(map(str, shape))}" for path, shape in zip(words, shapes, strict=True)]
    command = [*_program(machine, artifact, folder), *words, *map(str, results)]
    environment = _wine_environment() if machine.command[0] == "wine" else None
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)


def _dtype(tensor: TensorDescription) -> np.dtype:
    return _DTYPES.get(tensor.dtype) or np.dtype(tensor.dtype)


def _program(machine: Machine, artifact: Artifact, folder: Path) -> list[str]:
    """The command that runs the network, without the names of files."""
    suffix = artifact.target.format.suffix
    if suffix == ".wasm":
        artifact.export(folder / "network.wasm")
        return [*machine.command, str(_SCRIPT), str(folder / "network.wasm")]
    if machine.opened:
        artifact.export(folder / f"network{suffix}")
        return [*machine.command, str(_opener(artifact.target.zig_target)), str(folder / f"network{suffix}")]
    artifact.export(folder / "network.a")
    program = folder / "program"
    flags = ["-static"] * (not machine.root) + ["-DDYNAMIC_SIZES"] * artifact.description.is_dynamic
    _compile(artifact.target.zig_target, [*flags, str(_PROGRAM), str(folder / "network.a"), *_LIBRARIES], program)
    return [*machine.command, str(program)]


_folder = tempfile.TemporaryDirectory(prefix="nnefc-programs-", ignore_cleanup_errors=True)


@functools.cache
def _wine_environment() -> dict[str, str]:
    """A Windows without an installation, which writes 700 MB and may take minutes: nothing but Wine's own libraries.

    Wine looks for these where it is installed itself while it installs ("bootstrap"), which it never does here.
    """
    prefix = Path(_folder.name) / "wine"
    prefix.mkdir()
    (prefix / ".update-timestamp").write_text("disable\n")
    return {**os.environ, "WINEPREFIX": str(prefix), "WINEBOOTSTRAPMODE": "1", "WINEDEBUG": "-all"}


@functools.cache
def _opener(zig_target: str) -> Path:
    """A program that opens any library for the target."""
    if format_of(zig_target) is FileFormat.PE:
        return _opener_for_windows(zig_target)
    program = Path(_folder.name) / f"open-{zig_target}"
    _compile(zig_target, ["-DOPEN_LIBRARY", str(_PROGRAM), "-ldl", *_LIBRARIES], program)
    return program


def _opener_for_windows(zig_target: str) -> Path:
    """The same linked without MinGW's C library, as networks are, which zig would compile first, for minutes."""
    alone = LINKING[FileFormat.PE].alone
    assert alone is not None
    objects = []
    for source in (_PROGRAM, *(RUNTIME / name for name in alone.sources)):
        objects.append(Path(_folder.name) / f"{source.stem}.obj")
        _compile(zig_target, ["-DOPEN_LIBRARY", "-c", str(source)], objects[-1])
    program = Path(_folder.name) / "open.exe"
    flags = ["-nostdlib", "-Wl,--entry,program_start", "-Wl,--subsystem,console"]
    _compile(zig_target, [*flags, *map(str, objects), *alone.libraries], program)
    return program


def _compile(zig_target: str, arguments: list[str], result: Path) -> None:
    # Without symbols, as networks are linked: for programs with them zig would compile C libraries once more.
    command = [*zig(), "cc", "-target", zig_target, "-O1", "-s", f"-I{RUNTIME}", *arguments, "-o", str(result)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
