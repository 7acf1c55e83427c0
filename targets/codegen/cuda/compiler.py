"""Compiles CUDA source to machine code with NVIDIA's compiler: nvcc where there is one, else NVRTC from PyPI.

Neither needs a GPU or its driver. The same source gives the same bytes from the same version of the same compiler.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Protocol

from nnefc.support.diagnostics import CompileError
from nnefc.support.output_files import temporary_folder
from nnefc.targets.machine.cuda.capabilities import SPECIFIC_FEATURES

__all__ = ["COMPILER_VARIABLE", "Compiler", "DeviceImage", "Usage", "compile_image", "find_compiler"]

COMPILER_VARIABLE = "NNEFC_CUDA_COMPILER"
"""Environment variable that chooses: `nvrtc`, or nvcc's name or path."""

_INSTALL = "pip install 'nnefc[cuda]' installs NVIDIA's compiler; no GPU and no driver is needed"


@dataclass(frozen=True)
class Usage:
    """The resources of a kernel on an architecture, as the compiler reports them.

    Attributes:
        kernel: its symbol.
        architecture: as in `CudaTarget.architectures`.
        registers: of a thread.
        shared_bytes: of a block, static.
        stack_bytes: of a thread, in the device's memory: arrays that are indexed by what is not known.
        spill_stores, spill_loads: bytes of a thread that did not fit into registers.
    """

    kernel: str
    architecture: int
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_stores: int
    spill_loads: int


@dataclass(frozen=True)
class DeviceImage:
    """Machine code of several architectures, and PTX of the last, as one fat binary.

    Attributes:
        compiler: its name and version.
    """

    image: bytes = field(repr=False)
    architectures: tuple[int, ...]
    usage: tuple[Usage, ...]
    compiler: str


class Compiler(Protocol):
    """Compiles CUDA source."""

    @property
    def name(self) -> str:
        """Its name and version."""

    @property
    def architectures(self) -> tuple[int, ...]:
        """Returns the architectures that it has code for."""

    def cubin(self, source: str, architecture: str) -> tuple[bytes, str]:
        """Machine code for an architecture, as `90` or `90a`, and what ptxas says of it."""

    def ptx(self, source: str, architecture: int) -> bytes:
        """NVIDIA's portable assembly, which the driver compiles for devices that are newer."""

    def bundle(self, cubins: Sequence[tuple[str, bytes]], ptx: tuple[str, bytes]) -> bytes:
        """Returns a fat binary."""


def compile_image(source: str, architectures: Sequence[int], compiler: Compiler | None = None) -> DeviceImage:
    """Compiles `source` for each of the architectures, ascending, at the same time.

    Raises:
        CompileError: no compiler is installed, or it does not know an architecture; the compiler's own errors.
    """
    compiler = compiler or find_compiler()
    architectures = sorted(architectures)
    for architecture in architectures:
        if architecture not in compiler.architectures:
            known = ", ".join(f"sm_{number}" for number in compiler.architectures)
            raise CompileError(f"{compiler.name} has no code for sm_{architecture}", hint=f"it knows {known}")
    newest = architectures[-1]
    with ThreadPoolExecutor(max(1, min(len(architectures) + 1, os.cpu_count() or 1))) as pool:
        names = [image_name(source, architecture) for architecture in architectures]
        parts = [pool.submit(compiler.cubin, source, name) for name in names]
        ptx = pool.submit(compiler.ptx, source, newest)
        cubins = [part.result() for part in parts]
        image = compiler.bundle(
            [(name, code) for name, (code, _) in zip(names, cubins, strict=True)],
            (str(newest), ptx.result()),
        )
    usage = [
        entry
        for architecture, (_, log) in zip(architectures, cubins, strict=True)
        for entry in _usage(log, architecture)
    ]
    return DeviceImage(image, tuple(architectures), tuple(usage), compiler.name)


def image_name(source: str, architecture: int) -> str:
    """Returns the architecture that machine code is compiled for: `90a` of source with instructions of `sm_90` alone.

    PTX is for later devices too: the source has other code for these.
    """
    macro = SPECIFIC_FEATURES.get(architecture)
    return f"{architecture}a" if macro is not None and macro in source else str(architecture)


def find_compiler() -> Compiler:
    """Returns the compiler that this machine has.

    Raises:
        CompileError: it has none.
    """
    wanted = os.environ.get(COMPILER_VARIABLE, "")
    if wanted == "nvrtc":
        return _nvrtc()
    if wanted:
        return _nvcc(wanted)
    for folder in filter(None, (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"))):
        if (Path(folder) / "bin" / "nvcc").is_file():
            return _nvcc(str(Path(folder) / "bin" / "nvcc"))
    found = shutil.which("nvcc")
    return _nvcc(found) if found else _nvrtc()


def _usage(log: str, architecture: int) -> Iterable[Usage]:
    """Parses ptxas's report: a function's stack and spills, and its registers, by lines."""
    kernel, stack = "", (0, 0, 0)
    for line in log.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            kernel, stack = match[1], (0, 0, 0)
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack = int(match[1]), int(match[2]), int(match[3])
        elif (match := re.search(r"Used (\d+) registers", line)) and kernel:
            shared = re.search(r"(\d+)(?:\+\d+)? bytes smem", line)
            yield Usage(kernel, architecture, int(match[1]), int(shared[1]) if shared else 0, *stack)
            kernel = ""


# As the compiler's own defaults; a multiplication and an addition become one instruction, as on CPUs. The source is
# TVM's, so that users cannot fix what a warning would name.
_PROGRAM = Path(__file__).with_name("nvrtc_program.py")

_OPTIONS = ("--std=c++17", "--fmad=true", "--disable-warnings")


class _Nvcc:
    """The compiler of the CUDA toolkit."""

    def __init__(self, command: str, version: str, architectures: tuple[int, ...]) -> None:
        self._command = command
        self.name = f"nvcc {version}"
        self.architectures = architectures

    def cubin(self, source: str, architecture: str) -> tuple[bytes, str]:
        return self._compiled(source, "cubin", f"sm_{architecture}")

    def ptx(self, source: str, architecture: int) -> bytes:
        return self._compiled(source, "ptx", f"compute_{architecture}")[0]

    def _compiled(self, source: str, kind: str, architecture: str) -> tuple[bytes, str]:
        with temporary_folder("nnefc-cuda-") as folder:
            (folder / "network.cu").write_text(source)
            options = [f"--{kind}", f"-arch={architecture}", "-Xptxas=-v", *_OPTIONS]
            log = _run([self._command, *options, "-o", "network.out", "network.cu"], folder)
            return (folder / "network.out").read_bytes(), log

    def bundle(self, cubins: Sequence[tuple[str, bytes]], ptx: tuple[str, bytes]) -> bytes:
        with temporary_folder("nnefc-cuda-") as folder:
            images = []
            for kind, virtual, (architecture, code) in [*(("elf", "sm", c) for c in cubins), ("ptx", "compute", ptx)]:
                file = f"{virtual}_{architecture}.{kind}"
                (folder / file).write_bytes(code)
                images.append(f"--image3=kind={kind},sm={architecture},file={file}")
            _run([_tool_next_to(self._command, "fatbinary"), "-64", "--create=network.fatbin", *images], folder)
            return (folder / "network.fatbin").read_bytes()


def _run(command: Sequence[str], folder: Path) -> str:
    """Runs one of the toolkit's programs; returns what it writes."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise CompileError(f"cannot run {command[0]}: {error.strerror}", hint=_INSTALL) from error
    if done.returncode != 0:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise CompileError(f"{command[0]} failed with {done.returncode}:\n" + "\n".join(lines[-20:]))
    return done.stderr + done.stdout


@cache
def _nvcc(command: str) -> _Nvcc:
    path = shutil.which(command)
    if path is None:
        raise CompileError(f"there is no CUDA compiler {command!r}", hint=_INSTALL)
    version = re.search(r"release (\S+?),", _run([path, "--version"], Path.cwd()))
    listed = re.findall(r"sm_(\d+)$", _run([path, "--list-gpu-code"], Path.cwd()), re.MULTILINE)
    return _Nvcc(path, version[1] if version else "of an unknown version", tuple(sorted({int(n) for n in listed})))


def _tool_next_to(command: str, name: str) -> str:
    """Returns the program `name` of the toolkit that `command` belongs to."""
    for path in (Path(command), Path(command).resolve()):
        if path.with_name(name).is_file():
            return str(path.with_name(name))
    return name


class _Nvrtc:
    """NVIDIA's compiler as a library, with the library that makes fat binaries."""

    def __init__(self, path: Path, nvfatbin: ctypes.CDLL, include: Sequence[Path]) -> None:
        self._path = path
        self._nvfatbin = nvfatbin
        self._include = include
        nvrtc = _loaded(path)
        nvfatbin.nvFatbinGetErrorString.restype = ctypes.c_char_p
        major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        known = (ctypes.c_int * count.value)()
        nvrtc.nvrtcGetSupportedArchs(known)
        self.name = f"NVRTC {major.value}.{minor.value}"
        self.architectures = tuple(known)

    def cubin(self, source: str, architecture: str) -> tuple[bytes, str]:
        return self._compiled(source, "CUBIN", f"sm_{architecture}", "--ptxas-options=-v")

    def ptx(self, source: str, architecture: int) -> bytes:
        return self._compiled(source, "PTX", f"compute_{architecture}")[0]

    def _compiled(self, source: str, kind: str, architecture: str, *more: str) -> tuple[bytes, str]:
        options = [f"--gpu-architecture={architecture}", *_OPTIONS, *more, *(f"-I{path}" for path in self._include)]
        # Some versions do not search their own folder for the library of builtins.
        environment = {"LD_LIBRARY_PATH": str(self._path.parent)}
        command = [sys.executable, "-I", "-S", str(_PROGRAM), str(self._path), kind, *options]
        try:
            done = subprocess.run(command, input=source.encode(), capture_output=True, env=environment, check=False)
        except OSError as error:
            raise CompileError(f"cannot run {command[0]}: {error.strerror}") from error
        log = done.stderr.decode(errors="replace")
        if done.returncode != 0:
            lines = [line for line in log.splitlines() if line.strip()] or [f"status {done.returncode}"]
            raise CompileError(f"{self.name} failed for {architecture}:\n" + "\n".join(lines[:20]))
        return done.stdout, log

    def bundle(self, cubins: Sequence[tuple[str, bytes]], ptx: tuple[str, bytes]) -> bytes:
        library, handle = self._nvfatbin, ctypes.c_void_p()
        options = (ctypes.c_char_p * 1)(b"-64")
        self._check_bundle(library.nvFatbinCreate(ctypes.byref(handle), options, ctypes.c_size_t(1)))
        try:
            for architecture, code in cubins:
                size, number = ctypes.c_size_t(len(code)), architecture.encode()
                self._check_bundle(library.nvFatbinAddCubin(handle, code, size, number, b"network"))
            architecture, code = ptx
            size, number = ctypes.c_size_t(len(code)), architecture.encode()
            self._check_bundle(library.nvFatbinAddPTX(handle, code, size, number, b"network", b""))
            size = ctypes.c_size_t()
            self._check_bundle(library.nvFatbinSize(handle, ctypes.byref(size)))
            image = ctypes.create_string_buffer(size.value)
            self._check_bundle(library.nvFatbinGet(handle, image))
            return image.raw
        finally:
            library.nvFatbinDestroy(ctypes.byref(handle))

    def _check_bundle(self, status: int) -> None:
        if status != 0:
            raise CompileError(f"nvFatbin failed: {self._nvfatbin.nvFatbinGetErrorString(status).decode()}")


@cache
def _nvrtc() -> _Nvrtc:
    nvrtc = _library("nvidia-cuda-nvrtc", r"libnvrtc\.so\.\d+|nvrtc64_\d+_\d+\.dll")
    nvfatbin = _library("nvidia-nvfatbin", r"libnvfatbin\.so\.\d+|nvfatbin_\d+_\d+\.dll")
    return _Nvrtc(nvrtc, _loaded(nvfatbin), _include_folders())


def _library(package: str, name: str) -> Path:
    """Returns the library of an installed package whose name matches."""
    found = _files(package, name)
    if not found:
        raise CompileError("there is no CUDA compiler on this machine", hint=_INSTALL)
    return found[0]


def _loaded(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CompileError(f"cannot load {path}: {error}", hint=_INSTALL) from error


def _include_folders() -> tuple[Path, ...]:
    """Finds the folders of headers for half precision and tensor cores; empty if they are not installed."""
    folders = [file.parent for file in _files("nvidia-cuda-runtime", "cuda_fp16.h")]
    folders += [file.parent.parent for file in _files("nvidia-cuda-crt", "mma.hpp")]
    folders += [file.parent.parent for file in _files("nvidia-cuda-cccl", "target") if file.parent.name == "nv"]
    return tuple(dict.fromkeys(folders))


def _files(package: str, name: str) -> list[Path]:
    """Returns the files of an installed package whose names match."""
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return []
    return sorted(Path(str(file.locate())) for file in files if re.fullmatch(name, file.name))
