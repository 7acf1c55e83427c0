"""Emits the parts of AArch64 assembly loops: pointer updates, loads, and the LLVM function around a loop.

Elements are loaded in vectors of 128 bits, or in parts of one, which hold nothing but elements that the loop needs. A
pointer is moved on by the loads themselves, where they read one behind the other.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nnefc.passes.tir.cpu.microkernels.aarch64_instructions import (
    FAR_PAIR,
    FAR_QUAD,
    FAR_VECTOR,
    QUAD_BYTES,
    MultiplyAdd,
)
from nnefc.passes.tir.cpu.sve import Vector

__all__ = [
    "MAX_LOADED",
    "POINTERS",
    "Accumulation",
    "Line",
    "Loaded",
    "LoopBody",
    "LoopCode",
    "ahead",
    "body_of",
    "covering",
    "function_of",
    "pointers_of",
    "terms_of",
]

_FAR = 255  # bytes from a pointer of a load that is not a multiple of its size
POINTERS = 8
MAX_LOADED = 4  # vectors that one instruction loads, into registers that follow each other
_AHEAD = 8  # instructions that are no loads, which a load is moved ahead of at most
_LOOP = 2  # instructions of the loop counter


@dataclass(frozen=True)
class Accumulation:
    """One multiply-add of a tile.

    `sum` is the index of the accumulator, `left` the index of an element of the left operand, and `right` the index of
    the first element of a vector of the right operand.

    Attributes:
        form: of a left operand that is a pair of rows: the instruction that loads it from that element on, and which of
            its registers; None of others.
    """

    sum: int
    left: int
    right: int
    form: tuple[str, int] | None = None


@dataclass(frozen=True)
class LoopCode:
    """A loop as a function in LLVM IR.

    Attributes:
        name: of the function that has it.
        text: LLVM's, of that function. Its parameters are the addresses of the sums, of the left elements (one for each
            of `left`) and of the right ones (one for each of `right`), the number of iterations, and how many bytes
            further the left and the right elements are in the next iteration.
        left, right: the elements that these addresses are of.
        instructions: of an iteration; on WebAssembly without those that LLVM emits for counters and pointers.
        cycles: of an iteration of products of bytes on a core that issues instructions in order, else 0.
    """

    name: str
    text: str
    left: tuple[int, ...]
    right: tuple[int, ...]
    instructions: int
    cycles: int = 0


@dataclass(frozen=True)
class Loaded:
    """The contents of a register: bytes at an offset from a pointer."""

    pointer: int
    position: int
    size: int


@dataclass
class Line:
    """An instruction that loads vectors into registers, or a product.

    Attributes:
        writes, reads: registers.
    """

    text: str
    writes: tuple[int, ...]
    reads: tuple[int, ...] = ()
    loads: tuple[Loaded, ...] = ()


@dataclass(frozen=True)
class LoopBody:
    """The body of a loop, and its prologue and epilogue.

    Attributes:
        texts: instructions; pointers are `{p0}`, `{p1}`, …, those to left elements first.
        moved: bytes that loads move each pointer on.
        to_move: which of these have to be moved on besides.
        move_at: the instruction before which they and the loop counter are.
        instructions: of an iteration.
        lines: what the instructions read and write.
    """

    texts: tuple[str, ...]
    moved: tuple[int, ...]
    to_move: tuple[bool, ...]
    move_at: int
    instructions: int
    lines: tuple[Line, ...]


def body_of(
    product: MultiplyAdd,
    lines: Sequence[Line],
    lefts: int,
    rights: int,
    right_step: int | None,
    once: bool,
    placed: bool = False,
) -> LoopBody | None:
    """Returns the instructions of an iteration; None if an address cannot be encoded.

    Args:
        placed: whether loads stand where they shall; pointers are moved on behind the last one then, save by loads of
            four vectors.
    """
    lines = lines if placed else ahead(lines)
    moved = [0 if product.scale else _in_order(lines, pointer) for pointer in range(lefts + rights)]
    if placed:
        four = {line.loads[0].pointer for line in lines if len(line.loads) == MAX_LOADED}
        moved = [far if pointer in four else 0 for pointer, far in enumerate(moved)]
    texts = [_of_sve(line, lefts) if product.scale else _written(line, moved) for line in lines]
    if not all(texts):
        return None
    steps = [None] * lefts + [right_step] * rights
    to_move = [not once and (step is None or step != far) for step, far in zip(steps, moved, strict=True)]
    count = len(lines) + sum(to_move) + (0 if once else _LOOP)
    last = max(number for number, line in enumerate(lines) if line.loads) + 1 if placed else len(lines)
    return LoopBody(tuple(map(str, texts)), tuple(moved), tuple(to_move), last, count, tuple(lines))


def terms_of(steps: Sequence[Accumulation]) -> Iterator[list[Accumulation]]:
    """Yields the steps in groups: the first of each sum, the second, and so on."""
    seen: Counter[int] = Counter()
    groups: dict[int, list[Accumulation]] = {}
    for step in steps:
        groups.setdefault(seen[step.sum], []).append(step)
        seen[step.sum] += 1
    yield from groups.values()


def pointers_of(elements: Iterable[int], product: MultiplyAdd, side: int) -> list[list[int]]:
    """Groups left or right elements that are near enough for one pointer."""
    groups: list[list[int]] = []
    whole, far = (product.quad if side == 0 else product.lanes), product.far[side]
    size = whole * product.element
    for run in _runs(sorted(set(elements)), far // product.element if product.scale else None):
        begin, end = ((element - groups[-1][0]) * product.element if groups else 0 for element in (run[0], run[-1] + 1))
        aligned = begin % (size if len(run) >= whole else size // 2) == 0
        if groups and end <= far and (aligned or (not product.scale and end <= _FAR)):  # as addresses can be
            groups[-1] += run
        else:
            groups.append(run)
    return groups


def _runs(elements: Iterable[int], maximum: int | None = None) -> list[list[int]]:
    """Groups consecutive elements; at most the given number in each group."""
    runs: list[list[int]] = []
    for element in elements:
        if runs and element == runs[-1][-1] + 1 and (maximum is None or len(runs[-1]) < maximum):
            runs[-1].append(element)
        else:
            runs.append([element])
    return runs


def covering(groups: Sequence[Sequence[int]], product: MultiplyAdd) -> Iterator[tuple[Loaded, int, int]]:
    """Yields each element's vector, its index, and its lane in that vector; no vector reaches beyond the elements."""
    for pointer, group in enumerate(groups):
        for run in _runs(group):
            begin = 0
            while begin < len(run):
                first, count, left = run[begin], product.quad, len(run) - begin
                last = run[-1] + 1 - count  # of the vectors that end with the run, or earlier
                if left < count <= len(run) and (last - group[0]) * product.element <= _FAR and not product.scale:
                    first = last
                else:
                    while count > left:
                        count //= 2
                vector = Loaded(pointer, (first - group[0]) * product.element, count * product.element)
                while begin < len(run) and run[begin] < first + count:
                    yield vector, run[begin] - first, run[begin]
                    begin += 1


def ahead(lines: Sequence[Line]) -> list[Line]:
    """Returns the lines with loads moved some instructions earlier, as far as their registers are free."""
    made: list[Line] = []
    for line in lines:
        position = len(made)
        if line.loads:
            passed = 0
            while position and passed < _AHEAD:
                other = made[position - 1]
                if other.loads or set(other.reads) & set(line.writes):
                    break
                position, passed = position - 1, passed + 1
        made.insert(position, line)
    return made


def _in_order(lines: Sequence[Line], pointer: int) -> int:
    """Returns the bytes that are loaded through a pointer, if they are contiguous and loaded once; else 0."""
    end = 0
    for vector in (vector for line in lines for vector in line.loads if vector.pointer == pointer):
        if vector.position != end:
            return 0
        end += vector.size
    return end


def _written(line: Line, moved: Sequence[int]) -> str | None:
    """Returns a load as an instruction; None if its address cannot be encoded."""
    if not line.loads:
        return line.text
    first, count = line.loads[0], len(line.loads)
    name = {16: "q", 8: "d", 4: "s", 2: "h"}[first.size]
    into = ", ".join(f"{name}{number}" for number in line.writes)
    pointer = f"{{p{first.pointer}}}"
    load = "ldp" if count > 1 else "ldr"
    if count == MAX_LOADED:
        into = ", ".join(f"v{number}.16b" for number in line.writes)
        return f"ld1 {{{{{into}}}}}, [{pointer}], #{count * QUAD_BYTES}" if moved[first.pointer] else None
    if moved[first.pointer]:
        return f"{load} {into}, [{pointer}], #{count * first.size}"
    if first.position % first.size:
        return f"ldur {into}, [{pointer}, #{first.position}]" if count == 1 and first.position <= _FAR else None
    if first.position > FAR_PAIR if count > 1 else first.position // first.size >= 1 << 12:
        return None
    return f"{load} {into}, [{pointer}, #{first.position}]" if first.position else f"{load} {into}, [{pointer}]"


def _of_sve(line: Line, lefts: int) -> str | None:
    """Returns a load as an instruction of SVE, with the predicate of all lanes."""
    if not line.loads:
        return line.text
    ((vector, register),) = zip(line.loads, line.writes, strict=True)
    pointer = f"{{p{vector.pointer}}}"
    if vector.pointer >= lefts:
        number, tail = divmod(vector.position, vector.size)
        position = f"[{pointer}, #{number}, mul vl]" if number else f"[{pointer}]"
        return None if tail or number > FAR_VECTOR else f"ldr z{register}, {position}"
    name, lane, far = {
        16: ("ld1rqw", "s", FAR_QUAD),
        8: ("ld1rd", "d", 504),
        4: ("ld1rw", "s", 252),
        2: ("ld1rh", "h", 126),
    }[vector.size]
    if vector.position % vector.size or vector.position > far:
        return None
    position = f"[{pointer}, #{vector.position}]" if vector.position else f"[{pointer}]"
    return f"{name} {{{{z{register}.{lane}}}}}, p0/z, {position}"


def function_of(
    product: MultiplyAdd,
    sums: Sequence[int],
    register: dict[int, int],
    body: LoopBody,
    sides: tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]],
    free: int,
    once: bool,
    around: tuple[Sequence[str], Sequence[str]] | None = None,
    constants: Sequence[int] = (),
) -> LoopCode:
    """Returns LLVM's function around the loop.

    Args:
        around: where the loop makes sums from zero on, which are added to those before: instructions before it, and
            those that bring the sums into their registers.
        constants: numbers in registers, which instructions name `{c0}`, `{c1}`, …; they name what each pointer is to be
            moved on `{d0}`, `{d1}`, ….
    """
    count, pointers = len(sums), len(sides[0]) + len(sides[1])
    # operands: the sums, the pointers, the iterations; then what is not changed: how far each pointer is to be moved on
    at, counter = [f"${count + n}" for n in range(pointers)], f"${count + pointers}"
    changed = count + pointers + 1
    names = {f"p{n}": name for n, name in enumerate(at)}
    names |= {f"d{n}": f"${changed + n}" for n in range(pointers)}
    names |= {f"c{n}": f"${changed + pointers + n}" for n in range(len(constants))}
    lines = [text.format(**names) for text in body.texts]
    if not once:
        moves = [f"add {at[n]}, {at[n]}, ${changed + n}" for n in range(pointers) if body.to_move[n]]
        moves.append(f"subs {counter}, {counter}, #1")
        lines = ["1:", *lines[: body.move_at], *moves, *lines[body.move_at :], "b.ne 1b"]
    if around is not None:
        lines = [*around[0], *lines, *around[1]]
    prefix, vector = "v", None
    if product.scale:
        prefix, vector = "z", Vector(product.total, product.lanes, product.quad)
        lines.insert(0, "ptrue p0.b")
    outputs = [f"={{{prefix}{register[number]}}}" for number in sums] + ["=&r"] * (pointers + 1)
    clobbered = [f"~{{{prefix}{number}}}" for number in range(free)] + ["~{cc}", "~{memory}"]
    clobbered += ["~{p0}"] if product.scale else []
    tied = range(changed) if around is None else range(count, changed)
    constraints = ",".join([*outputs, *["r"] * (pointers + len(constants)), *map(str, tied), *clobbered])
    lists = ", ".join([*(f"ptr %a{n}" for n in range(pointers)), "i64 %n"])
    held = product.sum if vector is None else vector.scalable
    types = ", ".join([*[held] * count, *["ptr"] * pointers, "i64"])
    long = "" if vector is None else "long_"
    before = [f"{held} %{long}s{n}" for n in range(count)] if around is None else []
    moves_by = [*(f"i64 %d{n}" for n in range(pointers)), *(f"i64 {number}" for number in constants)]
    given = ", ".join([*moves_by, *before, lists])
    text = []
    for n, moved in enumerate(body.moved):
        text.append(f"  %d{n} = sub i64 %{'left' if n < len(sides[0]) else 'right'}, {moved}")
    for n, number in enumerate(sums):
        text.append(f"  %p{n} = getelementptr i8, ptr %s, i64 {number * product.element}")
        text.append(f"  %s{n} = load {product.sum}, ptr %p{n}, align {product.element}")
        text += [] if vector is None else [vector.begin(f"s{n}")]
    assembler = "\\0A".join(lines)
    text.append(f'  %r = call {{ {types} }} asm "{assembler}", "{constraints}"({given}) noduplicate nounwind')
    for n in range(count):
        if around is not None:
            text.append(f"  %more{n} = extractvalue {{ {types} }} %r, {n}")
            text.append(f"  %r{n} = add {product.sum} %s{n}, %more{n}")
        elif vector is None:
            text.append(f"  %r{n} = extractvalue {{ {types} }} %r, {n}")
        else:
            text.append(f"  %whole{n} = extractvalue {{ {types} }} %r, {n}")
            text.append(vector.end(f"whole{n}", f"r{n}"))
        text.append(f"  store {product.sum} %r{n}, ptr %p{n}, align {product.element}")
    inside = "\n".join([*text, "  ret void"])
    name = f"nnefc_lanes_{hashlib.sha256(inside.encode()).hexdigest()[:16]}"
    head = f"define linkonce_odr hidden void @{name}(ptr %s, {lists}, i64 %left, i64 %right) alwaysinline nounwind"
    left, right = (tuple(group[0] for group in side) for side in sides)
    return LoopCode(name, f"\n{head} {{\n{inside}\n}}\n", left, right, body.instructions)
