"""Libraries for tests of the runtime and the loader: networks written by hand in C, linked as a compiled one is."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from nnefc.targets.description.library import CallDescription, DimensionDescription
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.toolchain import LibraryDescription, TensorDescription, link_library
from nnefc.targets.link.zig import zig

C_SOURCES = Path(__file__).parents[1] / "targets" / "runtime" / "c"
ZIG_TARGET = f"{platform.machine()}-linux-gnu"

ZIG_CC = (*zig(), "cc", "-target", ZIG_TARGET, "-O1")
"""A compiler of C, for programs and libraries of the tests.

These are of one target and optimized, for zig compiles a library of its own before it links: half a minute of work
without -O, some seconds for this machine's own processor, and again for every target.
"""

ZIG_CPP = (*zig(), "c++", "-target", ZIG_TARGET, "-O1")
CPP = ("g++",) if shutil.which("g++") else ZIG_CPP
"""A compiler of C++ with its library, which zig compiles when it is first linked: more than a minute of work."""

_folder = tempfile.TemporaryDirectory(prefix="nnefc-samples-")

WEIGHTS = np.random.default_rng(7).standard_normal(1024).astype(np.float32)
INITIAL_COUNT = 5
CONSTANTS = WEIGHTS.tobytes() + np.int64(INITIAL_COUNT).tobytes()

SAMPLE = LibraryDescription(
    model="sample",
    target="here",
    compiler="nnefc test",
    inputs=(TensorDescription("x", "float32", (1024,)),),
    outputs=(TensorDescription("y", "float32", (1024,)), TensorDescription("count", "int64", (1,))),
    states=(TensorDescription("runs", "int64", ()),),
    workspace_bytes=4096,
    scratch_bytes=512,
    constant_bytes=4104,
    state_bytes=8,
    state_initial_offset=4096,
)


DYNAMIC_SAMPLE = LibraryDescription(
    model="open sample",
    target="here",
    compiler="nnefc test",
    inputs=(TensorDescription("x", "float32", ("n", "w")), TensorDescription("scale", "float32", ("w",))),
    outputs=(TensorDescription("y", "float32", ("n", "w")), TensorDescription("sums", "float64", ("n",))),
    dimensions=(DimensionDescription("n", 1, 8, 1, 4), DimensionDescription("w", 8, 256, 4, 128)),
    lifetimes=((1, 1), (4, 4), (1, 2), (2, 4)),
)
"""The network of dynamic_network.c."""

DATA_DEPENDENT_SAMPLE = LibraryDescription(
    model="data-dependent sample",
    target="here",
    compiler="nnefc test",
    inputs=(TensorDescription("x", "float32", ("n",)),),
    outputs=(TensorDescription("y", "float32", ("rows", 2)), TensorDescription("total", "int64", ())),
    dimensions=(DimensionDescription("n", 1, 16, 1, 4), DimensionDescription("rows", 0, 1000, 1, 64)),
    lifetimes=((1, 3), (2, 3)),
    data_dependent=((0, 0),),
    parts=(0, 1),
    output_parts=(1, 0),
    part_dimensions=(1,),
)
"""The network of data_dependent_network.c."""


_CALLS = (
    CallDescription("add", ("a",), "Rule", 4, 32, 0b0011),
    CallDescription("double", ("b",), "Rule", 4, 32, 0b0010),
    CallDescription("triple", ("c",), "Rule", 4, 32, 0b0100),
    CallDescription("count", ("runs",), "Rule", 1, 8, 0b1000),
)
CONTROLLED = LibraryDescription(
    model="controlled",
    target="here",
    compiler="nnefc test",
    inputs=(TensorDescription("x", "float32", (4,)),),
    outputs=tuple(TensorDescription(name, "float32", (4,)) for name in "abc"),
    states=(TensorDescription("runs", "int64", ()),),
    constant_bytes=8,
    state_bytes=8,
    cancellable=True,
    calls=_CALLS,
    memory_users=(0b0011, 0b0010, 0b0100),
    logs=True,
)
"""The network of controlled_network.c."""

CONTROLLED_OPEN = replace(
    CONTROLLED,
    inputs=(TensorDescription("x", "float32", ("n",)),),
    outputs=tuple(TensorDescription(name, "float32", ("n",)) for name in "abc"),
    dimensions=(DimensionDescription("n", 1, 8, 1, 4),),
)
"""The same, compiled with -DOPEN."""


def folder(name: str) -> Path:
    """A folder that lives as long as the tests' process."""
    path = Path(_folder.name) / name
    path.mkdir(parents=True, exist_ok=True)
    return path


@functools.cache
def object_file(source: str, *flags: str) -> Path:
    """An object of one of the C files next to the tests."""
    path = folder("objects") / f"{source}{''.join(flags)}.o"
    command = ["cc", "-target", ZIG_TARGET, "-O2", "-fPIC", "-fno-sanitize=all", "-c", str(C_SOURCES / source), *flags]
    subprocess.run([*zig(), *command, "-o", str(path)], check=True)
    return path


def object_of(text: str, name: str) -> Path:
    """An object of C source text."""
    source = folder("sources") / f"{name}.c"
    source.write_text(text)
    path = source.with_suffix(".o")
    command = ["cc", "-target", ZIG_TARGET, "-O2", "-fPIC", "-fno-sanitize=all", "-c", str(source), "-o", str(path)]
    subprocess.run([*zig(), *command], check=True)
    return path


def shared_library_of(text: str, path: Path) -> Path:
    """A shared library of C source text alone, without a runtime."""
    source = path.with_suffix(".c")
    source.write_text(text)
    command = ["cc", "-target", ZIG_TARGET, "-shared", "-O2", "-fPIC", str(source), "-o", str(path)]
    subprocess.run([*zig(), *command], check=True)
    return path


def thread_count() -> int:
    """This process' threads, once their number has settled: a joined thread stays in the system's list for a moment."""
    counts: list[int] = []
    while len(counts) < 5 or len(set(counts[-5:])) > 1:
        counts.append(len(os.listdir("/proc/self/task")))
        time.sleep(0.005)
    return counts[-1]


def constants_file(data: bytes, name: str = "sample.bin") -> Path:
    path = folder("constants") / name
    path.write_bytes(data)
    return path


def link(objects: list[Path], data: bytes, description: LibraryDescription, path: Path) -> Path:
    constants = Constants.of(data) if data else None
    link_library(objects, constants, description, path, zig_target=ZIG_TARGET)
    return path


@functools.cache
def sample_library(name: str = "sample", scale: float = 1.0) -> Path:
    """The network of network.c with its weights times `scale`; a file of its own for each name."""
    weights = (WEIGHTS * np.float32(scale)).tobytes()
    description = replace(SAMPLE, model=name)
    path = folder("libraries") / f"{name}.so"
    return link([object_file("network.c")], weights + CONSTANTS[4096:], description, path)
