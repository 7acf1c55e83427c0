"""How near the main loops of 64-bit Arm come to the rate of each core, by llvm-mca's model of it.

    python benchmarks/main_loops.py [NETWORK ...]

Networks are compiled for each core and run under QEMU, which tells the innermost loops and how often each is executed.
llvm-mca says how many cycles an iteration of a loop takes, and how many its multiplications alone would, if none waited
for another one. Without names it takes NETWORKS and writes benchmarks/results/main_loops.md, in ten minutes. Needs
`qemu-aarch64`, and `llvm-mca` and `llvm-mc` of LLVM 16 or newer, with or without a version in their names.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click
from conditions import Conditions, page, write_page
from instructions import compiled, loops, program, quantized
from models.networks import NAMES, write_twins

_ROOT = Path(__file__).resolve().parents[1]

NETWORKS = ("mobilenet_v2", "squeezenet")
TITLE = "Main loops of 64-bit Arm"

_CORES = {
    "cortex-a53": ("cortex-a53", ("float32", "int8")),
    "cortex-a55": ("cortex-a55", ("float32", "float16", "int8")),
    "cortex-a72": ("cortex-a72", ("float32", "int8")),
    "cortex-a76": ("neoverse-n1", ("float32", "float16", "int8")),
    "cortex-x1": ("neoverse-v1", ("float32", "float16", "int8")),
}
"""Targets, LLVM's processor with a model of that core (the one of Cortex-A76 itself is that of an older core), and what
numbers networks compute with."""

_PRICED = {"cortex-a55": (re.compile(r"\bfmla(?=\s+v\d+\.(4s|8h))"), "mla")}
"""What stands in the model of a core for instructions of which it begins too many in a cycle; see the page's head."""

_EMULATOR = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-cpu", "max")
_MIN_SHARE = 0.03  # of all instructions, for a loop that the table has
_ITERATIONS = 200
_LANES = {"2s": 2, "4s": 4, "4h": 4, "8h": 8, "2d": 2, "8b": 8, "16b": 16}
_DOTS = {"sdot": 4, "udot": 4, "usdot": 4, "smmla": 8, "ummla": 8}  # products in each lane of the sum
_PRODUCTS = ("fmla", "mla", "smlal", "smlal2", "umlal", "umlal2", "smull", "smull2", "umull", "umull2", *_DOTS)
_MULTIPLY = re.compile(rf"\s*({'|'.join(_PRODUCTS)})\s+v\d+\.(\w+), v\d+(\.\w+), v\d+(\.\w+(?:\[\d+\])?)")
_SUMS = (*range(16, 32), *range(8))  # registers of sums that do not wait for each other
_FACTORS = (14, 15)  # the second may be multiplied by lane, whatever the type

_HEAD = [
    "Cycles are those of `llvm-mca` for a round of the loop, with all loads from the first cache; *peak* is what its",
    "multiplications alone take in the same model. *Share* is that of all instructions of an inference on one thread;",
    f"loops of less than {_MIN_SHARE:.0%} are left out. Each product that is added to a sum counts, whatever",
    "instruction makes it. Cortex-A76 is modelled as Neoverse N1, Cortex-X1 as Neoverse V1, which have the same pipes.",
    "LLVM's model of Cortex-A55 begins two `fmla` of 128 bits in a cycle; Arm's Software Optimization Guide for it",
    "lists one, by element (cited in [D158008](https://reviews.llvm.org/D158008)). They count as `mla` with the",
    "same operands and latency, of which the model begins one, and whose results it writes in order: rather too many",
    "cycles. No such guide is public for Cortex-A53; its model begins one.",
    "",
    "| core | numbers | network | share | instructions | multiply-adds | cycles | peak | cycles / peak |",
    "|---|---|---|---:|---:|---:|---:|---:|---:|",
]


@dataclass(frozen=True)
class Row:
    """A loop of a network on a core; its share is that of all instructions executed."""

    core: str
    numbers: str
    network: str
    share: float
    instructions: int
    products: int
    cycles: float
    peak: float

    def line(self) -> str:
        """Of the table."""
        return (
            f"| {self.core} | {self.numbers} | {self.network} | {self.share:.0%} | {self.instructions} "
            f"| {self.products} | {self.cycles:.1f} | {self.peak:.1f} | {self.cycles / self.peak:.2f} |"
        )


def rows(network: str, model: Path, core: str, numbers: str) -> list[Row]:
    """The main loops of a network that multiply, those executed most first."""
    processor, _ = _CORES[core]
    artifact = compiled(model, core, numbers)
    with tempfile.TemporaryDirectory(prefix="nnefc-loops-") as folder:
        path = Path(folder) / "network.so"
        artifact.export(path)
        runner = str(program("first_run", artifact.target.zig_target))
        found, total = loops(_EMULATOR, [runner, str(path), "1"])
    made = []
    for loop in sorted(found, key=lambda loop: -loop.executed):
        share = loop.executed / total
        if share < _MIN_SHARE:
            break
        text = disassembled(loop.code)
        if core in _PRICED:
            instruction, other = _PRICED[core]
            text = [instruction.sub(other, line) for line in text]
        multiplied = [match for line in text if (match := _MULTIPLY.match(line))]
        if multiplied:
            products = sum(_LANES[match[2]] * _DOTS.get(match[1], 1) for match in multiplied)
            peak = cycles(tuple(_alone(multiplied)), processor) * len(multiplied) / len(_SUMS)
            made.append(Row(core, numbers, network, share, len(text), products, cycles(tuple(text), processor), peak))
    return made


def _alone(multiplied: Sequence[re.Match[str]]) -> list[str]:
    """As many of these multiplications in turn as there are registers, none of which waits for another one."""
    left, right = _FACTORS
    chosen = (multiplied[n * len(multiplied) // len(_SUMS)] for n in range(len(_SUMS)))
    return [
        f"{match[1]} v{total}.{match[2]}, v{left}{match[3]}, v{right}{match[4]}"
        for total, match in zip(_SUMS, chosen, strict=True)
    ]


def disassembled(code: bytes) -> list[str]:
    """The instructions as text; branches have distances."""
    digits = " ".join(f"0x{byte:02x}" for byte in code)
    done = _run(_tool("llvm-mc"), "--disassemble", "--triple=aarch64", "--mattr=+all", given=digits)
    return [line.strip() for line in done.splitlines() if line.startswith("\t") and not line.startswith("\t.")]


@functools.cache
def cycles(text: tuple[str, ...], processor: str) -> float:
    """That an iteration of these instructions takes, one after the other for long."""
    options = ["-mtriple=aarch64", f"-mcpu={processor}", f"-iterations={_ITERATIONS}", "-json"]
    made = json.loads(_run(_tool("llvm-mca"), *options, given="\n".join(text)))
    return float(made["CodeRegions"][0]["SummaryView"]["TotalCycles"]) / _ITERATIONS


def _run(*command: str, given: str) -> str:
    return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout


@functools.cache
def _tool(name: str) -> str:
    """A program of LLVM, the newest that is installed."""
    names = [name, *(f"{name}-{version}" for version in range(16, 40))]
    found = [path for each in names if (path := shutil.which(each))]
    if not found:
        raise click.ClickException(f"{name} is not installed: Debian's package llvm-19 has it")
    return found[-1]


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(NAMES))
def main(networks: tuple[str, ...]) -> None:
    """Compare the main loops of NETWORKS, or of a choice of them, with the rate of each core."""
    lines = [*_HEAD]
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as processes:
        models = {name: write_twins(_ROOT / "build" / "models", name).onnx for name in networks or NETWORKS}
        for model in models.values():
            quantized(model)  # once, before processes want it
        asked = [
            processes.submit(rows, network, model, core, numbers)
            for core, (_, kinds) in _CORES.items()
            for numbers in kinds
            for network, model in models.items()
        ]
        for done in asked:
            for row in done.result():
                lines.append(row.line())
                click.echo(lines[-1], err=True)
    conditions = Conditions.now()
    click.echo(page(TITLE, conditions, lines))
    if not networks:
        write_page("main_loops", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
