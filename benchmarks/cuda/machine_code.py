"""Describes the main loops of tensor-core kernels in their machine code: what a warp issues, multiplies, accesses."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from execution_pipes import cycles_of, named, pipe_of
from sass import Function, Instruction
from shared_addresses import shared_wavefronts

from nnefc.targets.machine.gpu.description import SCHEDULERS, SHARED_BYTES_PER_CYCLE, WARP, Gpu

__all__ = ["WARPGROUPS", "Loop", "loop_of"]

WARPGROUPS = ("HGMMA", "IGMMA", "QGMMA")
_DEPTHS = {"UTCHMMA": 16, "UTCIMMA": 32, "UTCQMMA": 32}  # of products with sums in tensor memory


@dataclass(frozen=True)
class Loop:
    """The main loop of a kernel that has tensor-core instructions.

    Attributes:
        counts: of its instructions, by their names; of loads and stores, by their name and bytes, as `LDG.16`.
        is_loop: whether it is one over tiles of the depth. Where the depth is one tile, this is the whole kernel, or
            its loop over tiles of the result, which stores them.
        is_copied: whether the kernel has asynchronous copies of 16 bytes, in the loop or before it.
        multiply_adds: of a warp, in one iteration.
        operand_bytes: a warp's part of what instructions of warpgroups, or with sums in tensor memory, read from shared
            memory in one iteration; of the latter with what copies write there.
        fetched_bytes: that a warp's instructions, or its part of bulk copies, fetch in one iteration.
        wavefronts: cycles of shared memory that a warp's own accesses take in one iteration, without conflicts.
        conflicts: further cycles, of conflicts.
        unknown: accesses whose addresses are not known; they add no conflicts.
    """

    kernel: str
    architecture: int
    counts: Mapping[str, int]
    is_loop: bool
    is_copied: bool
    multiply_adds: int
    operand_bytes: int
    fetched_bytes: float = 0.0
    wavefronts: float = 0.0
    conflicts: float = 0.0
    unknown: int = 0

    @property
    def products(self) -> int:
        """Returns how many tensor-core instructions the loop has."""
        return self.slots("tensor")

    @property
    def has_warpgroups(self) -> bool:
        """Whether warpgroups multiply matrices in shared memory, or a thread with sums in tensor memory."""
        return not self.counts.keys().isdisjoint((*WARPGROUPS, *_DEPTHS))

    @property
    def narrow(self) -> int:
        """Returns how many loads and stores move two bytes or one."""
        return sum(n for name, n in self.counts.items() if re.fullmatch(r"(LDG|STG|LDS|STS|LDGSTS)\.[12]", name))

    @property
    def instructions(self) -> int:
        """Returns how many instructions the loop has."""
        return sum(self.counts.values())

    def slots(self, pipe: str) -> int:
        """Returns how many instructions of a pipe the loop has."""
        return sum(n for name, n in self.counts.items() if pipe_of(name) == pipe)

    def cycles(self, gpu: Gpu, multiply_adds: float) -> dict[str, float]:
        """Returns the cycles of an iteration in which a warp of each scheduler occupies each pipe.

        Args:
            gpu: the device.
            multiply_adds: that tensor cores of a processor begin in a cycle.
        """
        shared = self.wavefronts + self.conflicts + self.operand_bytes / SHARED_BYTES_PER_CYCLE
        return {
            "tensor": self.multiply_adds * SCHEDULERS / multiply_adds,
            **cycles_of(self.counts, gpu),
            "shared": shared * SCHEDULERS,
            "fetch": self.fetched_bytes * SCHEDULERS / gpu.fetch_bytes_per_cycle,
        }


def loop_of(function: Function, block: tuple[int, int, int]) -> Loop | None:
    """Returns the main loop of a kernel, which is launched with blocks of these threads; None without tensor cores."""
    body = function.body
    found = _main_loop(body)
    if found is None:
        return None
    as_tuples = [(each.address, each.name, each.operands) for each in body]
    products = [_product_of(as_tuples, at) for at in found]
    multiply_adds, operand_bytes = (sum(of) for of in zip(*products, strict=True))
    counts = Counter(named(body[at].name) for at in found)
    accesses = shared_wavefronts(body, found, block)
    own = sum(n * int(name.partition(".")[2]) for name, n in counts.items() if re.match(r"LDG(STS)?\.", name)) * WARP
    is_bulk = any(each.opcode == "UTMALDG" for each in body)
    bulk = sum(_bulk_bytes(body[at], of[1], math.prod(block)) for at, of in zip(found, products, strict=True))
    return Loop(
        function.kernel,
        function.architecture,
        dict(counts),
        len(found) < len(body) and not any(name.startswith(("STG", "UTMASTG")) for name in counts),
        is_bulk or any(named(each.name) == "LDGSTS.16" for each in body),
        multiply_adds,
        operand_bytes,
        own + (bulk if is_bulk else 0.0),
        accesses.needed,
        accesses.taken - accesses.needed,
        accesses.unknown,
    )


_DEPTH_BYTES = 32  # of a row that an instruction of warpgroups, or with sums in tensor memory, multiplies
_BLOCK_ROWS = 128  # of a product with sums in tensor memory
_WARPGROUP = 128  # threads


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


def _bulk_bytes(product: Instruction, operand_bytes: int, threads: int) -> float:
    """Returns a warp's part of what bulk copies fetch for a product, each operand once.

    Those into tensor memory count operands twice, written and read. Warpgroups, all but the one that copies, multiply
    rows of their own by the same columns.
    """
    if (of_warpgroup := re.match(r"[HIQ]GMMA\.64x(\d+)x", product.name)) is None:
        return operand_bytes / 2
    warpgroups = max(1, threads // _WARPGROUP - 1)
    return (64 + int(of_warpgroup[1]) / warpgroups) * _DEPTH_BYTES / 4


def _main_loop(body: Sequence[Instruction]) -> list[int] | None:
    """Returns where the main loop's instructions are in the body of a kernel; all where no loop multiplies.

    It is the innermost loop around a tensor-core instruction, of several such loops the one with most of them. Loops
    until all threads of a warp have had their turn at an instruction of one thread (`BRA.U.ANY`) do not count.
    """
    products = [each.address for each in body if pipe_of(each.name) == "tensor"]
    if not products:
        return None
    jumps = [
        (each.target, each.address)
        for each in body
        if each.target is not None and each.target < each.address and not each.name.endswith(".ANY")
    ]

    def inside(ends: tuple[int, int]) -> int:
        return sum(ends[0] <= address <= ends[1] for address in products)

    around = [[ends for ends in jumps if ends[0] <= address <= ends[1]] for address in products]
    innermost = {min(loops, key=lambda ends: ends[1] - ends[0]) for loops in around if loops}
    whole = (body[0].address, body[-1].address)
    first, last = max(innermost, key=lambda ends: (inside(ends), ends[0] - ends[1]), default=whole)
    return [at for at, each in enumerate(body) if first <= each.address <= last]
