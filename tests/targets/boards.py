"""Networks on microcontrollers that are not there: linked into a program, run under QEMU on inputs in that program.

The program of an Arm board is started and linked as that of `examples/cortex-m`. It counts instructions with the
processor's timer, while QEMU's clock advances by one nanosecond an instruction, and paints the stack to see how much of
it was used. RISC-V runs as a program of Linux's that knows no more of it than how to write and to end.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nnefc.driver.artifact import Artifact
from nnefc.targets.link.elf_file import ElfFile
from nnefc.targets.link.zig import zig
from nnefc.targets.machine.cpu.parsing import parse_target

__all__ = ["BOARDS", "Board", "Measured", "linked", "program_of", "run_on_board", "stored_bytes"]

EXAMPLE = Path(__file__).parents[2] / "examples" / "cortex-m"
_HERE = Path(__file__).parent / "microcontrollers"
_PROGRAM, _NOBITS = 2, 8  # types of a file and of a section


@dataclass(frozen=True)
class Board:
    """A machine of QEMU's.

    Attributes:
        name: for messages and for the names of tests.
        command: the emulator; a program follows.
        sources: C of the program besides its main function.
        script: how it is linked, if not as the linker does by itself.
        tick: instructions in a tick of the timer, whose clock is one of 25 or 32 MHz; 0 if there is none.
    """

    name: str
    command: tuple[str, ...]
    sources: tuple[Path, ...]
    script: Path | None = None
    tick: float = 0

    @property
    def missing(self) -> str:
        """What has to be installed for it to run; "" if nothing."""
        return "" if shutil.which(self.command[0]) else self.command[0]


def _arm(machine: str, script: Path, tick: float) -> Board:
    semihosting = ("-semihosting-config", "enable=on,target=native")
    command = ("qemu-system-arm", "-M", machine, "-nographic", "-monitor", "none", "-serial", "none", *semihosting)
    sources = (EXAMPLE / "startup.c",)
    return Board(machine, (*command, "-icount", "shift=0", "-kernel"), sources, script, tick)


BOARDS = {
    "cortex-m0plus": _arm("mps2-an385", EXAMPLE / "board.ld", 40),
    "cortex-m3": _arm("mps2-an385", EXAMPLE / "board.ld", 40),
    "cortex-m4": _arm("mps2-an386", EXAMPLE / "board.ld", 40),
    "cortex-m7": _arm("mps2-an500", EXAMPLE / "board.ld", 40),
    "cortex-m55": _arm("mps3-an547", _HERE / "an547.ld", 31.25),
    "riscv32imc": Board("riscv32", ("qemu-riscv32", "-cpu", "rv32,f=false,d=false"), (_HERE / "riscv.c",)),
}
"""By the target whose programs they run. That of Cortex-M0+ has a larger processor, which does the same."""


@dataclass(frozen=True)
class Measured:
    """A run on a board.

    Attributes:
        outputs: by name.
        instructions: of a run after the first, to some tens; 0 where none are counters.
        stack_bytes: that it used; 0 likewise.
        flash_bytes: code and constants of the network, as far as the program has them; 0 where that is not asked.
        program: the file.
    """

    outputs: Mapping[str, np.ndarray]
    instructions: int
    stack_bytes: int
    flash_bytes: int


def run_on_board(
    artifact: Artifact,
    inputs: Mapping[str, np.ndarray],
    folder: Path | None = None,
    target: str = "",
    flash: bool = False,
) -> Measured:
    """Link a network into a program and run it once, in a folder that is kept if it is given.

    Args:
        artifact: for the board, or C source.
        inputs: by name.
        folder: where files are written.
        target: the target whose board runs it, for C source.
        flash: whether the bytes of the network are measured, by a second program without it.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="nnefc-board-") as name:
            return run_on_board(artifact, inputs, Path(name), target, flash)
    board = BOARDS[target or artifact.target.name]
    program = program_of(artifact, inputs, folder, board)
    done = subprocess.run([*board.command, str(program)], capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, f"{board.name} ended with {done.returncode}: {done.stderr.decode()}"
    size = 0
    if flash:
        size = stored_bytes(program) - stored_bytes(linked(folder, board, _HERE / "nothing.c"))
    return _read(artifact, done.stdout, board, size)


def stored_bytes(program: Path) -> int:
    """What a program takes of memory that is not written."""
    file = ElfFile(np.fromfile(program, np.uint8), _PROGRAM)
    stored = [section["size"] for section in file.sections if section["flags"] & 2 and section["type"] != _NOBITS]
    return int(sum(stored))


def program_of(artifact: Artifact, inputs: Mapping[str, np.ndarray], folder: Path, board: Board) -> Path:
    """A program that runs a network on these inputs and writes its outputs and what was counters."""
    network = folder / ("net.c" if artifact.target.host.c_source else "net.a")
    artifact.export(network, name="net")
    for index, tensor in enumerate(artifact.inputs):
        (folder / f"input{index}.bin").write_bytes(np.ascontiguousarray(inputs[tensor.name]).tobytes())
    (folder / "main.c").write_text(_main(artifact))
    return linked(folder, board, network)


def linked(folder: Path, board: Board, network: Path, *sources: Path) -> Path:
    """The program of `folder`/main.c and other sources with a network, or with another file that replaces it."""
    name = next(name for name, known in BOARDS.items() if known is board)
    host, program = parse_target(name), folder / f"{network.stem}.elf"
    words = [
        *zig(),
        "cc",
        "-target",
        host.zig_target,
        f"-mcpu={host.zig_cpu}",
        "-O2",
        "-g0",
        "-fno-sanitize=all",
        "-fno-unwind-tables",
    ]
    words += ["-DNET_STATIC_ARENA"] * (network.suffix == ".c")
    words += [
        "-ffreestanding",
        "-Wl,--gc-sections",
        f"-I{EXAMPLE}",
        f"-I{_HERE}",
        f"-I{_HERE / 'headers'}",
        f"-I{folder}",
    ]
    words += ["-Wl,-e,board_start", *([] if board.script is None else ["-T", str(board.script)])]
    words += [*map(str, board.sources), str(folder / "main.c"), *map(str, sources), str(network)]
    done = subprocess.run([*words, "-o", str(program)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return program


def _main(artifact: Artifact) -> str:
    """The program's main function."""
    lines = ['#include "board.h"', '#include "net.h"', '#include "counting.h"']
    for index in range(len(artifact.inputs)):
        lines.append(
            f'__asm__(".section .rodata\\n.balign 64\\ninput{index}:\\n.incbin \\"input{index}.bin\\"\\n.previous");\n'
            f"extern char input{index}[];"
        )
    sizes = [_bytes(tensor.dtype, tensor.shape) for tensor in artifact.outputs]
    lines += [f"static char output{index}[{size}] __attribute__((aligned(64)));" for index, size in enumerate(sizes)]
    arguments = [f"(void *)input{index}" for index in range(len(artifact.inputs))]
    arguments += [f"(void *)output{index}" for index in range(len(sizes))] + ["net_arena"]
    run = f"net_run({', '.join(arguments)})"
    is_library = not artifact.target.host.c_source
    lines += ["int main(void) {", "    uint32_t counters[2];", "    paint_stack();"]
    lines += ["    net_reset(net_arena);"] * bool(artifact.description.state_bytes)
    lines += [f"    int status = {run};", "    counters[1] = used_stack();"]
    lines += ["    net_reset(net_arena);"] * bool(artifact.description.state_bytes)
    lines += ["    start_counting();", f"    status |= {run};", "    counters[0] = stop_counting();"]
    lines += [f"    if ({run[:-1]} + 1) != -2) return 99; /* an arena that is not aligned */"] * is_library
    lines += [f"    board_write(output{index}, {size});" for index, size in enumerate(sizes)]
    return "\n".join([*lines, "    board_write(counters, sizeof counters);", "    return status;", "}", ""])


def _bytes(dtype: str, shape: tuple[int | str, ...]) -> int:
    return int(np.prod([int(size) for size in shape], dtype=np.int64)) * np.dtype(dtype).itemsize


def _read(artifact: Artifact, content: bytes, board: Board, flash: int) -> Measured:
    outputs, at = {}, 0
    for tensor in artifact.outputs:
        size = _bytes(tensor.dtype, tensor.shape)
        values = np.frombuffer(content[at : at + size], tensor.dtype)
        outputs[tensor.name] = values.reshape([int(n) for n in tensor.shape])
        at += size
    ticks, stack = np.frombuffer(content[at:], np.uint32)
    return Measured(outputs, round(int(ticks) * board.tick), int(stack), flash)
