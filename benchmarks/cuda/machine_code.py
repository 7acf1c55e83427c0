"""Counts the instructions of the main loops of tensor-core kernels, in the machine code for each architecture.

    python benchmarks/cuda/machine_code.py [--precision fp16] [--batch 1] [--arch 80] [--arch 90] [NETWORK ...]

Prints a line for each kernel: tensor-core instructions of its innermost loop, and loads and stores by their width.
Needs `cuobjdump` and `nvdisasm` of the CUDA toolkit, and no GPU.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import onnx

import nnefc
from nnefc.targets.codegen.cuda.code import CudaCode

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "cuda")]

_TENSOR_CORES = ("HMMA", "IMMA", "HGMMA")
_ACCESS = re.compile(r"(LDGSTS|LDG|STG|LDSM|LDS|STS|LDL|STL)\b")
_WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "16": 2, "U8": 1, "S8": 1}
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")


@dataclass(frozen=True)
class Loop:
    """The innermost loop of a kernel that has tensor-core instructions.

    Attributes:
        counts: of its instructions, by their names; of loads and stores, by their name and bytes, as `LDG.16`.
    """

    kernel: str
    architecture: int
    counts: Counter[str]

    @property
    def products(self) -> int:
        """Returns how many tensor-core instructions the loop has."""
        return sum(self.counts[name] for name in _TENSOR_CORES)

    @property
    def narrow(self) -> int:
        """Returns how many loads and stores move two bytes or one."""
        return sum(n for name, n in self.counts.items() if re.fullmatch(r"(LDG|STG|LDS|STS)\.[12]", name))

    @property
    def instructions(self) -> int:
        """Returns how many instructions the loop has."""
        return sum(self.counts.values())


def loops_of(code: str) -> Iterator[Loop]:
    """The loops that `cuobjdump -sass` shows."""
    for part in re.split(r"^Fatbin elf code:", code, flags=re.MULTILINE)[1:]:
        found = re.search(r"arch = sm_(\d+)", part)
        assert found is not None
        for function in part.split("Function : ")[1:]:
            lines = [line for line in function.splitlines() if "@!PT" not in line]  # those are never executed
            body = [(int(m[1], 16), m[2], m[3]) for line in lines if (m := _INSTRUCTION.match(line))]
            if (loop := _main_loop(body)) is not None:
                yield Loop(function.split()[0], int(found[1]), Counter(map(_named, loop)))


def _main_loop(body: Sequence[tuple[int, str, str]]) -> list[str] | None:
    """The instructions of the smallest loop around the last tensor-core instruction; None if there is none.

    Args:
        body: addresses, names and operands.
    """
    products = [address for address, name, _ in body if name.split(".")[0] in _TENSOR_CORES]
    if not products:
        return None
    jumps = [
        (int(target[1], 16), address)
        for address, name, operands in body
        if name.startswith("BRA") and (target := re.search(r"0x([0-9a-f]+)", operands))
    ]
    around = [(first, last) for first, last in jumps if first <= products[-1] <= last and first < last]
    first, last = min(around, key=lambda ends: ends[1] - ends[0], default=(body[0][0], body[-1][0]))
    return [name for address, name, _ in body if first <= address <= last]


def _named(name: str) -> str:
    """The instruction without its options; of loads and stores, with their bytes."""
    if not (match := _ACCESS.match(name)):
        return name.split(".")[0]
    if match[1] == "LDSM":
        return "LDSM"  # rows of 16 bytes
    return f"{match[1]}.{next((_WIDTHS[part] for part in name.split('.')[1:] if part in _WIDTHS), 4)}"


def disassembled(code: CudaCode) -> str:
    """Returns what `cuobjdump -sass` writes of a library's machine code."""
    with tempfile.NamedTemporaryFile(suffix=".fatbin") as file:
        file.write(code.image.image)
        file.flush()
        return subprocess.run(["cuobjdump", "-sass", file.name], capture_output=True, text=True, check=True).stdout


def compiled(network: str, batch: int, precision: str, architectures: tuple[int, ...]) -> CudaCode:
    """Returns the kernels of a network of the benchmarks, with random trained values."""
    from libraries import repeating, with_batch
    from models.networks import write_twins

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{network}.onnx"
        onnx.save(with_batch(repeating(onnx.load(write_twins(ROOT / "build" / "models", network).onnx)), batch), path)
        target = "cuda -arch=" + ",".join(f"sm_{number}" for number in architectures)
        code = nnefc.compile(path, target, precision=precision).code
    assert isinstance(code, CudaCode)
    return code


@click.command()
@click.argument("networks", nargs=-1)
@click.option("--precision", default="fp16")
@click.option("--batch", default=1)
@click.option("--arch", multiple=True, type=int, default=(80, 90))
def main(networks: tuple[str, ...], precision: str, batch: int, arch: tuple[int, ...]) -> None:
    """Count the instructions of NETWORKS."""
    for network in networks or ("resnet50",):
        code = compiled(network, batch, precision, arch)
        loops = list(loops_of(disassembled(code)))
        print(f"{network}, batch {batch}, {precision}: {len(code.kernels.launches)} launches")
        for loop in sorted(loops, key=lambda loop: (loop.architecture, loop.kernel)):
            memory = {name: n for name, n in sorted(loop.counts.items()) if _ACCESS.match(name)}
            accesses = ", ".join(f"{n} {name}" for name, n in memory.items())
            print(f"  sm_{loop.architecture} {loop.kernel}: {loop.products} HMMA of {loop.instructions}; {accesses}")
        for number in arch:
            own = [loop for loop in loops if loop.architecture == number]
            print(f"  sm_{number}: {len(own)} with tensor cores, {sum(loop.narrow > 0 for loop in own)} narrow")


if __name__ == "__main__":
    main()
