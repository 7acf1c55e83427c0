"""A network of emx-onnx-cgen's on a board under QEMU: C that it writes, compiled and measured as networks of nnefc are.

It computes quantized networks in float32, from weights that each run dequantizes; what lies between layers is on the
heap.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nnefc.targets.link.zig import zig
from nnefc.targets.machine.cpu.parsing import parse_target

__all__ = ["Measured", "missing", "run", "version"]

_HERE = Path(__file__).parent / "emx"
_OPTIONS = ("--large-weight-threshold", "0", "--no-restrict-arrays")  # weights in the C file


@dataclass(frozen=True)
class Measured:
    """A run: see `Measured` of `tests/targets/boards.py`; `heap_bytes` are the maximum that were allocated at a
    time."""

    output: np.ndarray
    instructions: int
    stack_bytes: int
    heap_bytes: int
    flash_bytes: int


def missing() -> str:
    """What has to be installed; "" if nothing."""
    return "" if importlib.util.find_spec("emx_onnx_cgen") is not None else "emx-onnx-cgen"


def version() -> str:
    """Which version this is."""
    return f"emx-onnx-cgen {importlib.metadata.version('emx-onnx-cgen')}"


def run(model: Path, target: str, data: np.ndarray, output_bytes: int, folder: Path) -> Measured | None:
    """Compile an ONNX model and run it on `data`, float32; None if the board's memory does not hold what it allocates.

    `folder` gets the program.
    """
    from boards import BOARDS, stored_bytes

    board = BOARDS[target]
    words = [sys.executable, "-m", "emx_onnx_cgen", "compile", *_OPTIONS, str(model), str(folder / "net.c")]
    subprocess.run(words, check=True, capture_output=True)
    (folder / "input.bin").write_bytes(data.astype(np.float32).tobytes())
    sizes = [stored_bytes(_program(target, output_bytes, folder, empty)) for empty in (True, False)]
    done = subprocess.run([*board.command, str(folder / "net.elf")], capture_output=True, timeout=600, check=False)
    if done.returncode:
        return None
    ticks, stack, heap = np.frombuffer(done.stdout[:12], np.uint32)
    output = np.frombuffer(done.stdout[12:], np.float32)
    return Measured(output, round(int(ticks) * board.tick), int(stack), int(heap), sizes[1] - sizes[0])


def _program(target: str, output_bytes: int, folder: Path, empty: bool) -> Path:
    """The program; without the network, for what else it has."""
    from boards import BOARDS, EXAMPLE

    host, board = parse_target(target), BOARDS[target]
    tests = Path(__file__).parents[2] / "tests" / "targets" / "microcontrollers"
    made = folder / ("empty.elf" if empty else "net.elf")
    sources = [*board.sources, _HERE / "main.c", *([] if empty else [_HERE / "heap.c", folder / "net.c"])]
    words = [*zig(), "cc", "-target", host.zig_target, f"-mcpu={host.zig_cpu}", "-O3", "-g0", "-fno-sanitize=all"]
    words += ["-ffreestanding", "-fno-unwind-tables", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"]
    words += [f"-I{position}" for position in (_HERE, EXAMPLE, tests)] + [
        f"-DOUTPUT_BYTES={output_bytes}",
        "-w",
        "-DPAINTED=65536",
    ]
    words += ["-DEMPTY"] * empty + ["-Wl,-e,board_start", "-T", str(board.script), *map(str, sources), "-o", str(made)]
    subprocess.run(words, check=True, capture_output=True, cwd=folder)
    return made
