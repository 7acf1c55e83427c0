"""Emits x86-64 assembly that multiplies vectors by broadcast elements and adds the products to 12 accumulators (AVX2).

    a tile of 6 × 2 vectors of float32, one term of the sum:

        vmovups       0(%rdx), %ymm12            # vectors of B
        vmovups       12800(%rdx), %ymm13
        vbroadcastss  0(%rcx), %ymm14            # an element of A, in all lanes
        vfmadd231ps   %ymm12, %ymm14, %ymm0
        vfmadd231ps   %ymm13, %ymm14, %ymm1
        vbroadcastss  640(%rcx), %ymm15          # of the next row
        …                                        # 12 products in all, 8 loads

LLVM loads more of a tile's elements ahead of their use than the 16 registers hold with the sums, and stores sums on
the stack in each iteration. Tiles of one column, for which it does not, load an element for each product: as many loads
as multiply-adds, which begin at the same rate. Here a tile of two or three columns loads 8 or 7 times for 12 products.
Offsets of all rows and columns are numbers in the instructions, relative to one pointer into each factor.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nnefc.passes.tir.cpu.microkernels.aarch64_loop import Accumulation, LoopCode, terms_of

__all__ = ["VectorProduct", "code_of"]

_REGISTERS = 16
_ELEMENT = 4  # bytes
_LANES = 8
_FAR = 1 << 31  # bytes from a pointer that an instruction can name
_VECTOR = f"<{_LANES} x float>"


@dataclass(frozen=True)
class VectorProduct:
    """A multiply-add of 256-bit vectors of float32."""

    @property
    def element(self) -> int:
        """Bytes of an element of A, and of a sum."""
        return _ELEMENT

    @property
    def right_element(self) -> int:
        """Bytes of an element of B."""
        return _ELEMENT

    @property
    def lanes(self) -> int:
        """The number of elements of a vector."""
        return _LANES


@functools.lru_cache(1024)
def code_of(steps: tuple[Accumulation, ...], once: bool) -> LoopCode | None:
    """Returns the loop of these steps; None where the registers do not hold what they load, or an offset is too large.

    Args:
        once: whether there is one iteration.
    """
    sums = sorted({step.sum for step in steps})
    left, right = min(step.left for step in steps), min(step.right for step in steps)
    far = max(max(step.left - left, step.right - right) for step in steps) * _ELEMENT
    position = {number: n for n, number in enumerate(sums)}
    if far >= _FAR or len(sums) > _REGISTERS - 2:
        return None
    lines: list[str] = []
    for group in terms_of(steps):
        term = [Accumulation(position[step.sum], step.left - left, step.right - right) for step in group]
        products = _products(term, range(len(sums), _REGISTERS), len(sums))
        if products is None:
            return None
        lines += products
    return _function(sums, lines, (left, right), once)


def _products(group: Sequence[Accumulation], free: range, sums: int) -> list[str] | None:
    """Returns the instructions of one term of each sum; None if there are too few registers.

    Those factors of which there are fewer are kept in registers; the others are loaded one after the other. A vector
    that is used once is an operand in memory.

    Args:
        free: registers besides those of the sums.
        sums: their number: pointers are the operands behind them.
    """
    lefts, rights = (_distinct(getattr(step, side) for step in group) for side in ("left", "right"))
    keeps_left = len(lefts) < len(rights)
    kept = dict(zip(lefts if keeps_left else rights, free, strict=False))
    scratch = free[len(lefts if keeps_left else rights) :]
    if not scratch:
        return None
    lines = [_load(number, register, keeps_left, sums) for number, register in kept.items()]
    for n, passing in enumerate(rights if keeps_left else lefts):
        row = [step for step in group if (step.right if keeps_left else step.left) == passing]
        register = f"%ymm{scratch[n % len(scratch)]}"
        if keeps_left and len(row) == 1:
            register = _address(passing, False, sums)
        else:
            lines.append(_load(passing, scratch[n % len(scratch)], not keeps_left, sums))
        for step in row:
            other = kept[step.left if keeps_left else step.right]
            lines.append(f"vfmadd231ps {register}, %ymm{other}, %ymm{step.sum}")
    return lines


def _distinct(elements: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(elements))


def _load(number: int, register: int, is_left: bool, sums: int) -> str:
    """Returns the instruction that loads a left element into all lanes, or a right vector."""
    return f"{'vbroadcastss' if is_left else 'vmovups'} {_address(number, is_left, sums)}, %ymm{register}"


def _address(number: int, is_left: bool, sums: int) -> str:
    return f"{number * _ELEMENT}(${sums + (0 if is_left else 1)})"


def _function(sums: Sequence[int], lines: Sequence[str], first: tuple[int, int], once: bool) -> LoopCode:
    """Returns LLVM's function around the instructions. Operands: the sums, both pointers, the counter, and the strides
    of the pointers.
    """
    count = len(sums)
    left, right, counter, by_left, by_right = (f"${count + n}" for n in range(5))
    if not once:
        moves = [f"addq {by_left}, {left}", f"addq {by_right}, {right}", f"decq {counter}", "jne 1b"]
        lines = [".p2align 5", "1:", *lines, *moves]
    outputs = [*(f"={{ymm{n}}}" for n in range(count)), "=&r", "=&r", "=&r"]
    clobbered = [*(f"~{{ymm{n}}}" for n in range(count, _REGISTERS)), "~{memory}", "~{dirflag}", "~{fpsr}", "~{flags}"]
    constraints = ",".join([*outputs, "r", "r", *(str(n) for n in range(count + 3)), *clobbered])
    results = ", ".join([*[_VECTOR] * count, "ptr", "ptr", "i64"])
    given = ", ".join(
        ["i64 %left", "i64 %right", *(f"{_VECTOR} %s{n}" for n in range(count)), "ptr %a, ptr %b, i64 %n"]
    )
    text = []
    for n, number in enumerate(sums):
        text.append(f"  %p{n} = getelementptr inbounds i8, ptr %s, i64 {number * _ELEMENT}")
        text.append(f"  %s{n} = load {_VECTOR}, ptr %p{n}, align {_ELEMENT}")
    assembler = "\\0A".join(lines)
    text.append(f'  %r = call {{ {results} }} asm "{assembler}", "{constraints}"({given}) noduplicate nounwind')
    for n in range(count):
        text.append(f"  %r{n} = extractvalue {{ {results} }} %r, {n}")
        text.append(f"  store {_VECTOR} %r{n}, ptr %p{n}, align {_ELEMENT}")
    inside = "\n".join([*text, "  ret void"])
    name = f"nnefc_vectors_{hashlib.sha256(inside.encode()).hexdigest()[:16]}"
    given = "ptr %s, ptr %a, ptr %b, i64 %n, i64 %left, i64 %right"
    head = f"define linkonce_odr hidden void @{name}({given}) alwaysinline nounwind"
    instructions = len(lines) if once else len(lines) - 2
    return LoopCode(name, f"\n{head} {{\n{inside}\n}}\n", (first[0],), (first[1],), instructions)
