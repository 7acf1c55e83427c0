"""Emits 32-bit Arm assembly for int8 contractions, through int16 products as in `aarch64_smull.py`.

A load puts a word of four bytes of the left operand, for four neighbouring terms, into both halves of 64 bits, which
are multiplied with the same terms of two sums. There are sixteen registers of 128 bits, each of which is two of 64.
Loads have no offsets: each moves its pointer on to what is loaded next, by its own size or by a register.

    vld1.32    {d8[]}, [r0]!             # a word of the first row
    vld1.32    {d9[]}, [r0], r5          # the next one, and on to the next iteration
    vld1.32    {d0, d1, d2, d3}, [r1]!   # the vectors of two columns
    vld1.32    {d4, d5, d6, d7}, [r1]!   # the same of the next word
    vmull.s8   q6, d8, d0                # of the first two sums
    vmull.s8   q7, d8, d1                # of the other two
    vmlal.s8   q6, d9, d4
    vmlal.s8   q7, d9, d5
    vpadal.s16 q15, q6
    vpadal.s16 q14, q7
    …
    vpadd.i32  d30, d30, d31             # behind the loop
    vpadd.i32  d31, d28, d29

LLVM would take apart the halves of all vectors, and copies of the words, in each iteration, and store some on the
stack.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nnefc.passes.tir.cpu.microkernels.aarch64_instructions import QUAD_BYTES, MultiplyAdd
from nnefc.passes.tir.cpu.microkernels.aarch64_loop import Accumulation, Line, Loaded, LoopCode, ahead
from nnefc.passes.tir.cpu.microkernels.aarch64_smull import Pair, parts_of

__all__ = ["code_of"]

_REGISTERS = 16  # of 128 bits
_COLUMNS = 2  # whose vectors are in registers together
_PRODUCTS = (2, 4)  # registers of products on their way, at least and at most
_INTEGERS = 10  # registers of pointers, of what these are moved on by, and of the number of iterations
_NEAR = 64  # bytes between columns of one pointer, at most
_WORD = 4  # bytes
_LOOP = 2  # instructions of the loop counter

_Move = int | tuple[int, int] | None
"""How a load advances its pointer: by bytes; or by the stride of the left (0) or right (1) elements per iteration, less
some bytes; None after the last load of a single iteration.
"""


@functools.lru_cache(1024)
def code_of(
    product: MultiplyAdd, steps: tuple[Accumulation, ...], right_step: int | None, once: bool
) -> LoopCode | None:
    """Returns the loop of these steps; see :func:`.aarch64_fma.code_of`. None where registers or addresses do not
    suffice.
    """
    sums = sorted({step.sum for step in steps})
    parts = list(parts_of(steps))
    words = max(len({step.left for pair in part for step in pair}) for part in parts)
    vectors = max(len(_vectors(group)) for part in parts for group in _groups(part))
    first = vectors + -(-words // 2)
    products = min(_REGISTERS - 2 * len(sums) - first, _PRODUCTS[1])
    if products < _PRODUCTS[0]:
        return None
    streams = _streams(steps)
    low = {number: _REGISTERS - 1 - 2 * position for position, number in enumerate(sums)}
    begun = set() if once else {(number, half) for number in sums for half in (0, 1)}
    writer = _Writer(product, low, range(first, first + products), 2 * vectors, streams, begun)
    lines = ahead([line for part in parts for line in writer.part(part)])
    begins = _begins(lines)
    moves = _moves(lines, begins, right_step, once)
    strides = _strides(moves, lines, len(begins) + (not once))
    if strides is None or len(begins) < len({pointer for both in streams.values() for pointer in both}):
        return None
    lefts = 1 + max(left for left, _ in streams.values())
    return _function(product, low, lines, begins, lefts, moves, strides, once)


def _groups(part: Sequence[Pair]) -> list[list[Pair]]:
    """Groups the pairs whose vectors are in registers at the same time."""
    columns = sorted({tuple(step.right for step in pair) for pair in part})
    return [
        [pair for pair in part if tuple(step.right for step in pair) in columns[begin : begin + _COLUMNS]]
        for begin in range(0, len(columns), _COLUMNS)
    ]


def _vectors(group: Sequence[Pair]) -> list[int]:
    """Returns the right elements at which the vectors of a group begin."""
    return sorted({step.right for pair in group for step in pair})


def _streams(steps: Sequence[Accumulation]) -> dict[int, tuple[int, int]]:
    """Returns the pointers by which each accumulator's elements and vectors are loaded, left elements first.

    Sums with the same left elements share one. So do those whose vectors are close together.
    """
    lefts: dict[int, tuple[int, ...]] = {}
    rights: dict[int, int] = {}
    for step in steps:
        lefts[step.sum] = (*lefts.get(step.sum, ()), step.left)
        rights.setdefault(step.sum, step.right)
    rows = list(dict.fromkeys(lefts.values()))
    columns: list[list[int]] = []
    for begin in sorted(set(rights.values())):
        if columns and (begin - columns[-1][0]) * _WORD <= _NEAR:
            columns[-1].append(begin)
        else:
            columns.append([begin])
    column = {begin: len(rows) + n for n, group in enumerate(columns) for begin in group}
    return {number: (rows.index(lefts[number]), column[rights[number]]) for number in lefts}


@dataclass(frozen=True)
class _Writer:
    """Writes instructions without the moves of pointers; 64-bit registers have numbers.

    Attributes:
        low: of each sum, the register of 128 bits of its first two elements; that below has the other two.
        products: registers of 128 bits of products.
        words: the first register of words; vectors are below.
        streams: the pointers of each sum: see :func:`_streams`.
        begun: sums, and halves of them, that something was added to; where nothing was, they are made of the products.
    """

    product: MultiplyAdd
    low: Mapping[int, int]
    products: range
    words: int
    streams: Mapping[int, tuple[int, int]]
    begun: set[tuple[int, int]]

    def part(self, part: Sequence[Pair]) -> Iterator[Line]:
        """Writes up to two steps of each sum."""
        held: dict[int, int] = {}
        for group in _groups(part):
            vectors = {element: 2 * n for n, element in enumerate(_vectors(group))}
            yield from self._loaded(group, vectors)
            for pair in group:
                for step in pair:
                    if step.left not in held:
                        held[step.left] = register = self.words + len(held)
                        loaded = Loaded(self.streams[step.sum][0], step.left * _WORD, _WORD)
                        yield Line("", (register,), loads=(loaded,))
            chains = [(pair, half) for pair in group for half in (0, 1)]
            for begin in range(0, len(chains), len(self.products)):
                yield from self._added(chains[begin : begin + len(self.products)], held, vectors)

    def _loaded(self, group: Sequence[Pair], vectors: Mapping[int, int]) -> Iterator[Line]:
        """Writes loads of vectors, of neighbours by one instruction."""
        pointer = {step.right: self.streams[step.sum][1] for pair in group for step in pair}
        left = list(vectors)
        while left:
            element = left.pop(0)
            elements = [element]
            if left and left[0] == element + self.product.lanes and pointer[left[0]] == pointer[element]:
                elements.append(left.pop(0))
            loads = tuple(Loaded(pointer[each], each * _WORD, QUAD_BYTES) for each in elements)
            yield Line("", tuple(vectors[element] + n for n in range(2 * len(elements))), loads=loads)

    def _added(
        self, chains: Sequence[tuple[Pair, int]], held: Mapping[int, int], vectors: Mapping[int, int]
    ) -> Iterator[Line]:
        """Writes the products of a half of some sums' vectors, and their additions."""
        sign, last = self.product.long, max(len(pair) for pair, _ in chains) - 1
        taken = list(zip(self.products, chains, strict=False))
        for term in range(last + 1):
            there = [(register, pair, half) for register, (pair, half) in taken if term < len(pair)]
            for register, pair, half in there:
                word, vector = held[pair[term].left], vectors[pair[term].right] + half
                name = "vmlal" if term and self.product.joined else "vmull"
                yield Line(f"{name}.{sign}8 q{register}, d{word}, d{vector}", (), (word, vector))
            if not self.product.joined:
                yield from (self._summed(pair[0].sum, half, register) for register, pair, half in there)
        if self.product.joined:
            yield from (self._summed(pair[0].sum, half, register) for register, (pair, half) in taken)

    def _summed(self, number: int, half: int, register: int) -> Line:
        name = "vpadal" if (number, half) in self.begun else "vpaddl"
        self.begun.add((number, half))
        return Line(f"{name}.{self.product.long}16 q{self.low[number] - half}, q{register}", ())


def _begins(lines: Sequence[Line]) -> list[int]:
    """Returns the first bytes that each pointer loads."""
    first: dict[int, int] = {}
    for line in lines:
        if line.loads:
            first.setdefault(line.loads[0].pointer, line.loads[0].position)
    return [first[pointer] for pointer in sorted(first)]


def _moves(lines: Sequence[Line], begins: Sequence[int], right_step: int | None, once: bool) -> list[_Move]:
    """Returns the bytes by which each line advances its pointer."""
    made: list[_Move] = [None] * len(lines)
    after: dict[int, int] = {}
    for number in reversed(range(len(lines))):
        if not lines[number].loads:
            continue
        vector = lines[number].loads[0]
        if vector.pointer in after:
            made[number] = after[vector.pointer] - vector.position
        elif not once:
            passed, is_right = vector.position - begins[vector.pointer], lines[number].loads[0].size == QUAD_BYTES
            step = right_step if is_right else None
            made[number] = (int(is_right), passed) if step is None else step - passed
        after[vector.pointer] = vector.position
    return made


def _size(line: Line) -> int:
    return sum(vector.size for vector in line.loads)


def _strides(moves: Sequence[_Move], lines: Sequence[Line], taken: int) -> list[_Move] | None:
    """Returns the pointer increments that are kept in registers: all dynamic ones, and the most frequent constant. None
    if too few registers are left besides the `taken` ones.
    """
    counts = Counter(
        move for move, line in zip(moves, lines, strict=True) if move not in (None, 0, _size(line)) and line.loads
    )
    chosen = [move for move in counts if not isinstance(move, int)]
    others = sorted((move for move in counts if isinstance(move, int)), key=lambda move: (-counts[move], move))
    free = _INTEGERS - taken - len(chosen)
    if free < 0 or not all(map(_is_immediate, others[free:])):
        return None
    return [*chosen, *others[:free]]


def _is_immediate(number: int) -> bool:
    """Whether an instruction can add or subtract a constant: eight bits, rotated by an even number."""
    bits = abs(number)
    return any(bits >> position << position == bits and bits >> position < 1 << 8 for position in range(0, 32, 2))


def _function(
    product: MultiplyAdd,
    low: Mapping[int, int],
    lines: Sequence[Line],
    begins: Sequence[int],
    lefts: int,
    moves: Sequence[_Move],
    strides: Sequence[_Move],
    once: bool,
) -> LoopCode:
    """Returns LLVM's function around the loop."""
    count, pointers = len(low), len(begins)
    # operands: the sums, the pointers, the iterations; then what is not changed: what pointers are moved on by
    trips, changed = f"${count + pointers}", count + pointers + (not once)
    texts: list[str] = []
    for line, move in zip(lines, moves, strict=True):
        if not line.loads:
            texts.append(line.text)
            continue
        pointer = f"${count + line.loads[0].pointer}"
        moved = move not in (None, 0)
        after = f", ${changed + strides.index(move)}" if moved and move in strides else ""
        after = "!" if moved and move == _size(line) else after
        texts.append(f"vld1.32 {{{_registers(line)}}}, [{pointer}]{after}")
        if moved and not after:
            assert isinstance(move, int)
            texts.append(f"{'add' if move > 0 else 'sub'} {pointer}, {pointer}, #{abs(move)}")
    instructions = len(texts) + (0 if once else _LOOP)
    if not once:
        zeros = [f"vmov.i32 q{register - half}, #0" for register in low.values() for half in (0, 1)]
        texts = [*zeros, "1:", *texts, f"subs {trips}, {trips}, #1", "bne 1b"]
    for register in low.values():
        texts.append(f"vpadd.i32 d{2 * register}, d{2 * register}, d{2 * register + 1}")
        texts.append(f"vpadd.i32 d{2 * register + 1}, d{2 * register - 2}, d{2 * register - 1}")
    outputs = [*(f"={{q{register}}}" for register in low.values()), *["=&r"] * (changed - count)]
    others = [f"~{{q{register}}}" for register in range(_REGISTERS) if register not in low.values()]
    tied = map(str, range(count, changed))
    constraints = ",".join([*outputs, *["r"] * len(strides), *tied, *others, "~{cc}", "~{memory}"])
    types = ", ".join([*[product.sum] * count, *["ptr"] * pointers, *["i32"] * (not once)])
    given = [f"i32 {move}" if isinstance(move, int) else f"i32 %d{n}" for n, move in enumerate(strides)]
    given += [f"ptr %a{n}" for n in range(pointers)] + ["i32 %trips"] * (not once)
    words = {"left32": "left", "right32": "right", "trips": "n"}
    text = [f"  %{short} = trunc i64 %{whole} to i32" for short, whole in words.items()]
    for n, move in enumerate(strides):
        if isinstance(move, tuple):
            text.append(f"  %d{n} = sub i32 %{('left', 'right')[move[0]]}32, {move[1]}")
    assembler = "\\0A".join(texts)
    operands = ", ".join(given)
    text.append(f'  %r = call {{ {types} }} asm "{assembler}", "{constraints}"({operands}) noduplicate nounwind')
    for n, number in enumerate(low):
        text.append(f"  %p{n} = getelementptr i8, ptr %s, i32 {number * product.element}")
        text.append(f"  %s{n} = load {product.sum}, ptr %p{n}, align {product.element}")
        text.append(f"  %more{n} = extractvalue {{ {types} }} %r, {n}")
        text.append(f"  %r{n} = add {product.sum} %s{n}, %more{n}")
        text.append(f"  store {product.sum} %r{n}, ptr %p{n}, align {product.element}")
    inside = "\n".join([*text, "  ret void"])
    name = f"nnefc_words_{hashlib.sha256(inside.encode()).hexdigest()[:16]}"
    lists = ", ".join([*(f"ptr %a{n}" for n in range(pointers)), "i64 %n", "i64 %left", "i64 %right"])
    head = f"define linkonce_odr hidden void @{name}(ptr %s, {lists}) alwaysinline nounwind"
    elements = [begin // _WORD for begin in begins]
    return LoopCode(
        name, f"\n{head} {{\n{inside}\n}}\n", tuple(elements[:lefts]), tuple(elements[lefts:]), instructions
    )


def _registers(line: Line) -> str:
    """Returns the registers that a load writes; a word goes to all lanes."""
    if _size(line) == _WORD:
        return f"d{line.writes[0]}[]"
    return ", ".join(f"d{register}" for register in line.writes)
