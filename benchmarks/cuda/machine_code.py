"""Counts the instructions of the main loops of tensor-core kernels, in the machine code for each architecture.

    python benchmarks/cuda/machine_code.py [NETWORK[*BATCH][:int8] ...]

Needs `cuobjdump` and `nvdisasm` of the CUDA toolkit, and no GPU. Without names it takes those in WHOLE and writes
benchmarks/results/cuda_main_loops.md.
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

from byte_networks import in_bytes  # noqa: E402
from conditions import Conditions, page, write_page  # noqa: E402
from libraries import repeating, with_batch  # noqa: E402
from models.networks import write_twins  # noqa: E402

WHOLE = ("resnet50", "resnet50*32", "mobilenet_v2*32", "bert_base*16")
QUANTIZED = ("resnet50*32:int8",)
ARCHITECTURES = (80, 89, 90, 100)
TABLES = (80, 90)  # architectures with a line for each kernel
TITLE = "Main loops of tensor cores"

_ABOUT = [
    "Of each kernel with tensor-core instructions, in `fp16`, or quantized where the name ends in `:int8`: the",
    "instructions of the innermost loop around them, in the machine code (SASS); of the whole kernel where the depth",
    "is one tile, and there is no loop. Loads and stores have their bytes, `LDSM` reads rows of 16. *Narrow* are",
    "kernels with a load or store of two bytes or less in that loop, *copied* those whose tiles get to shared memory",
    "by asynchronous copies, of 16 bytes (`LDGSTS.16`) or of boxes (`UTMALDG`), *warpgroups* those that multiply by",
    "`wgmma` (`HGMMA`, `IGMMA`), or by `tcgen05.mma` with sums in tensor memory (`UTCHMMA`, `UTCIMMA`).",
    "*Products* is the share of tensor-core instructions in the loops of the others. No GPU was used, and nothing was",
    "timed.",
]
_HEAD = [
    "| network*batch | architecture | kernels with tensor cores | copied | warpgroups | narrow | products |",
    "|---|---|---:|---:|---:|---:|---:|",
]
_WARPGROUPS = ("HGMMA", "IGMMA", "QGMMA")
_DEPTHS = {"UTCHMMA": 16, "UTCIMMA": 32, "UTCQMMA": 32}  # of products with sums in tensor memory
_TENSOR_CORES = ("HMMA", "IMMA", "QMMA", *_WARPGROUPS, *_DEPTHS)
_ACCESS = re.compile(r"(LDGSTS|LDG|STG|LDSM|LDS|STS|LDL|STL)\b")
_WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "16": 2, "U8": 1, "S8": 1}
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")


@dataclass(frozen=True)
class Loop:
    """The innermost loop of a kernel that has tensor-core instructions.

    Attributes:
        counts: of its instructions, by their names; of loads and stores, by their name and bytes, as `LDG.16`.
        is_copied: whether the kernel has asynchronous copies of 16 bytes, in the loop or before it.
        multiply_adds: of a warp, in one iteration.
        operand_bytes: a warp's part of what instructions of warpgroups, or with sums in tensor memory, read from shared
            memory in one iteration; of the latter with what copies write there.
    """

    kernel: str
    architecture: int
    counts: Counter[str]
    is_copied: bool
    multiply_adds: int
    operand_bytes: int

    @property
    def products(self) -> int:
        """Returns how many tensor-core instructions the loop has."""
        return sum(self.counts[name] for name in _TENSOR_CORES)

    @property
    def has_warpgroups(self) -> bool:
        """Whether warpgroups multiply matrices in shared memory, or a thread with sums in tensor memory."""
        return any(self.counts[name] for name in (*_WARPGROUPS, *_DEPTHS))

    @property
    def copied_bytes(self) -> float:
        """Returns the bytes that a warp copies for each of its tensor-core instructions."""
        return self.counts["LDGSTS.16"] * 16 * 32 / max(1, self.products)

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
                is_copied = any(_named(name) in ("LDGSTS.16", "UTMALDG") for _, name, _ in body)
                products = [_product_of(body, at) for at in loop]
                multiply_adds, operand_bytes = (sum(of) for of in zip(*products, strict=True))
                counts = Counter(_named(body[at][1]) for at in loop)
                yield Loop(function.split()[0], int(found[1]), counts, is_copied, multiply_adds, operand_bytes)


_DEPTH_BYTES = 32  # of a row that an instruction of warpgroups, or with sums in tensor memory, multiplies
_BLOCK_ROWS = 128  # of a product with sums in tensor memory


def _product_of(body: Sequence[tuple[int, str, str]], at: int) -> tuple[int, int]:
    """Returns the multiply-adds of a warp by an instruction, as `HMMA.16816.F32` or `HGMMA.64x256x16.F32`, and its part
    of the bytes of operands in shared memory, of :class:`Loop`.

    The sizes of products with sums in tensor memory are in the instruction descriptor, whose register gets a constant
    before them. One warp begins all of a block's: a quarter of them counts, as for one of four warps. Of a pair's
    (`UTCHMMA.2CTA`), those of its own block do. Rows that the instruction before it has kept (`A_REUSE`) are neither
    written nor read again.
    """
    _, name, operands = body[at]
    if (depth := _DEPTHS.get(name.split(".")[0])) is not None:
        register = re.search(r"idesc\[(UR\d+)\]", operands)
        assert register is not None
        constants = (
            int(value[1], 16)
            for _, other, given in body[at::-1]
            if other == "UMOV" and (value := re.match(rf"\s*{register[1]}, 0x([0-9a-f]+)", given))
        )
        descriptor = next(constants)
        depth = 8 if depth == 16 and descriptor >> 7 & 7 == 2 else depth  # TF32
        rows, columns = (descriptor >> 24 & 31) * 16, (descriptor >> 17 & 63) * 8
        blocks = rows // _BLOCK_ROWS
        own_rows = 0 if ".A_REUSE" in operands else _BLOCK_ROWS
        moved = (own_rows + columns // blocks) * _DEPTH_BYTES * 2  # written, and read
        return _BLOCK_ROWS * columns * depth // 4, moved // 4
    if (of_warpgroup := re.match(r"[HIQ]GMMA\.64x(\d+)x(\d+)", name)) is not None:
        columns, depth = int(of_warpgroup[1]), int(of_warpgroup[2])
        return 64 * columns * depth // 4, (64 + columns) * _DEPTH_BYTES // 4  # a quarter of the warpgroup's
    of_warp = re.match(r"[HIQ]MMA\.168(\d+)", name)
    return (16 * 8 * int(of_warp[1]) if of_warp is not None else 0), 0


def _main_loop(body: Sequence[tuple[int, str, str]]) -> list[int] | None:
    """The instructions of the smallest loop around the last tensor-core instruction; None if there is none.

    Loops until all threads of a warp have had their turn at an instruction of one thread (`BRA.U.ANY`) do not count.

    Args:
        body: addresses, names and operands.

    Returns:
        Where they are in the body.
    """
    products = [address for address, name, _ in body if name.split(".")[0] in _TENSOR_CORES]
    if not products:
        return None
    jumps = [
        (int(target[1], 16), address)
        for address, name, operands in body
        if name.startswith("BRA") and not name.endswith(".ANY") and (target := re.search(r"0x([0-9a-f]+)", operands))
    ]
    around = [(first, last) for first, last in jumps if first <= products[-1] <= last and first < last]
    first, last = min(around, key=lambda ends: ends[1] - ends[0], default=(body[0][0], body[-1][0]))
    return [at for at, (address, _, _) in enumerate(body) if first <= address <= last]


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


@dataclass(frozen=True)
class Case:
    """A network of the benchmarks, as `resnet50*32:int8` names it."""

    network: str
    batch: int
    is_quantized: bool

    @classmethod
    def of(cls, word: str) -> Case:
        """Returns the case that a word names."""
        name, _, form = word.partition(":")
        if form not in ("", "int8"):
            raise click.ClickException(f"{word}: {form} is not int8")
        network, _, batch = name.partition("*")
        return cls(network, int(batch or 1), form == "int8")

    def __str__(self) -> str:
        return f"{self.network}, batch {self.batch}{', int8' if self.is_quantized else ''}"


def compiled(case: Case, precision: str, architectures: tuple[int, ...]) -> CudaCode:
    """Returns the kernels of a network of the benchmarks, with random trained values."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{case.network}.onnx"
        model = repeating(onnx.load(write_twins(ROOT / "build" / "models", case.network).onnx))
        onnx.save(with_batch(in_bytes(model) if case.is_quantized else model, case.batch), path)
        target = "cuda -arch=" + ",".join(f"sm_{number}" for number in architectures)
        code = nnefc.compile(path, target, precision=precision).code
    assert isinstance(code, CudaCode)
    return code


@click.command()
@click.argument("networks", nargs=-1)
@click.option("--precision", default="fp16")
def main(networks: tuple[str, ...], precision: str) -> None:
    """Count the instructions of NETWORKS."""
    totals, tables = list(_HEAD), []
    for word in networks or (*WHOLE, *QUANTIZED):
        case = Case.of(word)
        codes = [compiled(case, precision, (number,)) for number in ARCHITECTURES]
        loops = [loop for code in codes for loop in loops_of(disassembled(code))]
        totals += [total(word, number, loops) for number in ARCHITECTURES]
        if not tables or case.network == WHOLE[0].partition("*")[0]:
            tables += [line for number in TABLES for line in ("", *table(word, number, loops))]
    conditions = Conditions.now()
    lines = [*_ABOUT, "", *totals, *tables]
    click.echo(page(TITLE, conditions, lines))
    if not networks:
        write_page("cuda_main_loops", TITLE, conditions, lines)


def total(word: str, architecture: int, loops: Sequence[Loop]) -> str:
    """A line for one network and batch on one architecture."""
    own = [loop for loop in loops if loop.architecture == architecture]
    others = [loop for loop in own if not loop.has_warpgroups]
    share = sum(loop.products for loop in others) / max(1, sum(loop.instructions for loop in others))
    numbers = (
        len(own),
        sum(loop.is_copied for loop in own),
        len(own) - len(others),
        sum(loop.narrow > 0 for loop in own),
    )
    return f"| {word} | sm_{architecture} | {' | '.join(map(str, numbers))} | {share:.0%} |"


def table(word: str, architecture: int, loops: Sequence[Loop]) -> list[str]:
    """A line for each kernel of a network on an architecture."""
    head = "| kernel | products | multiply-adds of a warp | instructions | copied bytes a product | loads and stores |"
    lines = [f"## {word}, sm_{architecture}", "", head, "|---|---:|---:|---:|---:|---|"]
    for loop in sorted(loops, key=lambda loop: loop.kernel):
        if loop.architecture == architecture:
            accesses = ", ".join(f"{n} {name}" for name, n in sorted(loop.counts.items()) if _ACCESS.match(name))
            numbers = loop.products, loop.multiply_adds, loop.instructions, round(loop.copied_bytes)
            lines.append(f"| `{loop.kernel}` | {' | '.join(map(str, numbers))} | {accesses} |")
    return lines


if __name__ == "__main__":
    main()
