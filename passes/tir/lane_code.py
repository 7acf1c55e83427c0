"""Assembler of 64-bit Arm that adds products of vectors by lanes of others to sums in registers.

Given is what a loop adds in a round: to which sum, which item of the left operand, which vector of the right one. From
this follow the vectors that hold the left items, an order of the products in which what is loaded stays in registers
until it is no longer needed, and loads of two neighbours by one instruction. LLVM knows all of this too, but keeps
other things in mind: of 26 sums and 6 vectors it stores some on the stack.

    sums of a tile of 7 × 2 vectors of float32, 8 products each in a round:

    1:  ld1   {v0.16b, … v3.16b}, [x1], #64    # four vectors of B
        ld1   {v4.16b, … v7.16b}, [x0], #64    # eight numbers of each of two rows of A
        fmla  v31.4s, v0.4s, v4.s[0]
        fmla  v30.4s, v1.4s, v4.s[0]
        …                                      # 112 products in all, 8 loads
        add   x0, x0, x3
        subs  x2, x2, #1
        b.ne  1b

Vectors of SVE, of a length that is known, are multiplied by lanes too: those of each 128 bits by a lane of the same 128
bits of the other vector, into all of which the left items are loaded (`ld1rqw`).
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nnefc.passes.tir.lane_products import FAR_PAIR, FAR_QUAD, FAR_VECTOR, QUAD_BYTES, REGISTERS, Product
from nnefc.passes.tir.scalable_vectors import Vector

__all__ = ["Code", "Step", "code_of"]

_FAR = 255  # bytes from a pointer of a load that is not a multiple of its size
_POINTERS = 8
_MOST = 4  # vectors that one instruction loads, into registers that follow each other
_AHEAD = 8  # products that a load is moved ahead of
_LOOP = 2  # instructions that count rounds
_ROWS_AT_ONCE = (2, 3, 4)  # whose products are made one after the other, where not all rows are at hand
_SUMS_IN_TURN = 4


@dataclass(frozen=True)
class Step:
    """What is added once: to which sum, which item of the left operand, and the vector that begins at which item of
    the right one."""

    sum: int
    left: int
    right: int


@dataclass(frozen=True)
class Code:
    """A loop.

    Attributes:
        name: of the function that has it.
        text: LLVM's, of that function. Its parameters are the addresses of the sums, of the left items (one for each of
            `left`) and of the right ones (one for each of `right`), the number of rounds, and how many bytes further
            the left and the right items are in the next round.
        left, right: the items that these addresses are of.
        instructions: of a round.
    """

    name: str
    text: str
    left: tuple[int, ...]
    right: tuple[int, ...]
    instructions: int


@dataclass(frozen=True)
class _Vector:
    """What one register holds of memory: so many bytes, from that byte on of what a pointer points to."""

    pointer: int
    place: int
    size: int


@dataclass
class _Line:
    """An instruction that loads vectors into registers, or a product.

    Attributes:
        writes, reads: registers.
    """

    text: str
    writes: tuple[int, ...]
    reads: tuple[int, ...] = ()
    loads: tuple[_Vector, ...] = ()


@functools.lru_cache(1024)
def code_of(
    product: Product, steps: tuple[Step, ...], right_step: int | None, once: bool, together: int = 2
) -> Code | None:
    """The loop of these steps, the right items of which begin at 0; None where registers or addresses do not suffice.

    Args:
        right_step: bytes that the right items are further in the next round, if that is known.
        once: whether there is one round.
        together: vectors that one instruction shall load, 2 or 4; of SVE it loads one.
    """
    sums = sorted({step.sum for step in steps})
    free = REGISTERS - len(sums)
    lefts, rights = (
        _pointers(sorted(items), product, side)
        for side, items in enumerate(zip(*((step.left, step.right) for step in steps), strict=True))
    )
    if free < 2 or len(lefts) + len(rights) > _POINTERS:
        return None
    items = {item: (vector, lane) for vector, lane, item in _covering(lefts, product)}
    vectors = {
        item: _Vector(len(lefts) + n, (item - group[0]) * product.item, product.size)
        for n, group in enumerate(rights)
        for item in group
    }
    register = {number: REGISTERS - 1 - place for place, number in enumerate(sums)}
    plans = []
    for order in _orders(steps):
        for of_left, of_right in itertools.product([1] if product.scale else sorted({2, together}), repeat=2):
            needs = [(items[step.left][0], vectors[step.right]) for step in order]
            lanes = [items[step.left][1] for step in order]
            targets = [register[step.sum] for step in order]
            registers = _Registers(free, len(lefts) if product.low < REGISTERS else 0, product.low)
            lines = _lines(product, targets, needs, lanes, registers, (of_left, of_right))
            body = None if lines is None else _body(product, lines, len(lefts), len(rights), right_step, once)
            if body is not None:
                plans.append(body)
    if not plans:
        return None
    body = min(plans, key=lambda body: body.instructions)
    return _function(product, sums, register, body, (lefts, rights), free, once)


@dataclass(frozen=True)
class _Body:
    """What is in a loop, and around it.

    Attributes:
        texts: instructions; pointers are `{p0}`, `{p1}`, …, those to left items first.
        moved: bytes that loads move each pointer on.
        to_move: which of these have to be moved on besides.
        instructions: of a round.
    """

    texts: tuple[str, ...]
    moved: tuple[int, ...]
    to_move: tuple[bool, ...]
    instructions: int


def _body(
    product: Product, lines: Sequence[_Line], lefts: int, rights: int, right_step: int | None, once: bool
) -> _Body | None:
    """The instructions of a round; None where one has an address that no instruction has."""
    lines = _ahead(lines)
    moved = [0 if product.scale else _in_order(lines, pointer) for pointer in range(lefts + rights)]
    texts = [_of_sve(line, lefts) if product.scale else _written(line, moved) for line in lines]
    if not all(texts):
        return None
    steps = [None] * lefts + [right_step] * rights
    to_move = [not once and (step is None or step != far) for step, far in zip(steps, moved, strict=True)]
    count = len(lines) + sum(to_move) + (0 if once else _LOOP)
    return _Body(tuple(map(str, texts)), tuple(moved), tuple(to_move), count)


def _pointers(items: Iterable[int], product: Product, side: int) -> list[list[int]]:
    """Left items, or right ones, those together that are near enough for one pointer."""
    groups: list[list[int]] = []
    whole, far = (product.quad if side == 0 else product.lanes), product.far[side]
    size = whole * product.item
    for run in _runs(sorted(set(items)), far // product.item if product.scale else None):
        begin, end = ((item - groups[-1][0]) * product.item if groups else 0 for item in (run[0], run[-1] + 1))
        aligned = begin % (size if len(run) >= whole else size // 2) == 0
        if groups and end <= far and (aligned or (not product.scale and end <= _FAR)):  # as addresses can be
            groups[-1] += run
        else:
            groups.append(run)
    return groups


def _runs(items: Iterable[int], most: int | None = None) -> list[list[int]]:
    """Items that follow each other; at most so many, if that is given."""
    runs: list[list[int]] = []
    for item in items:
        if runs and item == runs[-1][-1] + 1 and (most is None or len(runs[-1]) < most):
            runs[-1].append(item)
        else:
            runs.append([item])
    return runs


def _covering(groups: Sequence[Sequence[int]], product: Product) -> Iterator[tuple[_Vector, int, int]]:
    """Each item with the vector that holds it, and its lane; nothing else than these items is loaded."""
    for pointer, group in enumerate(groups):
        for run in _runs(group):
            begin = 0
            while begin < len(run):
                first, count, left = run[begin], product.quad, len(run) - begin
                last = run[-1] + 1 - count  # of the vectors that end with the run, or earlier
                if left < count <= len(run) and (last - group[0]) * product.item <= _FAR and not product.scale:
                    first = last
                else:
                    while count > left:
                        count //= 2
                vector = _Vector(pointer, (first - group[0]) * product.item, count * product.item)
                while begin < len(run) and run[begin] < first + count:
                    yield vector, run[begin] - first, run[begin]
                    begin += 1


def _orders(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Orders that the products may be made in: term after term, or all terms of a few rows first."""
    yield list(steps)
    first: dict[int, int] = {}
    number: dict[int, int] = {}
    terms = []
    for step in steps:
        first[step.sum] = min(step.left, first.get(step.sum, step.left))
        terms.append(number.get(step.sum, 0))
        number[step.sum] = terms[-1] + 1
    rows = sorted(set(first.values()))
    for count in _ROWS_AT_ONCE:  # as many sums in turn as products take cycles
        if count < len(rows) and count * len(first) >= _SUMS_IN_TURN * len(rows):
            group = {row: place // count for place, row in enumerate(rows)}
            order = sorted(range(len(steps)), key=lambda n: (group[first[steps[n].sum]], terms[n], n))
            yield [steps[n] for n in order]


@dataclass
class _Registers:
    """What registers hold, while instructions are written.

    Attributes:
        free: how many there are besides those of sums.
        in_low: what the first so many pointers point to has to be in some of the first `low`.
        uses: when each vector is needed, the next time last.
        holds: the vector in each.
        place: of the vectors that are in one.
    """

    free: int
    in_low: int
    low: int
    uses: dict[_Vector, list[int]] = field(default_factory=dict)
    holds: dict[int, _Vector] = field(default_factory=dict)
    place: dict[_Vector, int] = field(default_factory=dict)

    def of(self, vector: _Vector) -> int | None:
        return self.place.get(vector)

    def take(self, loaded: Mapping[int, _Vector]) -> None:
        """Registers get new contents."""
        for number, vector in loaded.items():
            if number in self.holds:
                del self.place[self.holds[number]]
            self.holds[number], self.place[vector] = vector, number

    def _fit(self, vector: _Vector) -> range:
        return range(min(self.free, self.low) if vector.pointer < self.in_low else self.free)

    def without_use(self, vector: _Vector) -> list[int]:
        """Registers for a vector whose content nobody needs; for those that may be in any, the last ones first."""
        idle = [n for n in self._fit(vector) if n not in self.holds or not self.uses[self.holds[n]]]
        return idle[::-1] if vector.pointer >= self.in_low > 0 else idle

    def least_urgent(self, vector: _Vector, kept: set[_Vector]) -> int | None:
        """The register for a vector whose content is needed last."""
        others = [n for n in self._fit(vector) if n in self.holds and self.holds[n] not in kept]
        return max(others, key=lambda n: self.uses[self.holds[n]][-1], default=None)


def _lines(
    product: Product,
    sums: Sequence[int],
    needs: Sequence[tuple[_Vector, _Vector]],
    lanes: Sequence[int],
    registers: _Registers,
    most: tuple[int, int],
) -> list[_Line] | None:
    """Products, and loads, each where what it loads is needed first.

    Args:
        sums: the register of each product's sum.
        needs: the vectors that hold its left item and its right ones.
        lanes: of the left item.
        most: left and right vectors that one instruction loads.
    """
    for place in reversed(range(len(needs))):
        for vector in needs[place]:
            registers.uses.setdefault(vector, []).append(place)
    made: list[_Line] = []
    for total, both, lane in zip(sums, needs, lanes, strict=True):
        for vector, count in zip(both[::-1], most[::-1], strict=True):
            if registers.of(vector) is None and not _load(vector, registers, made, set(both), count):
                return None
        for vector in both:
            registers.uses[vector].pop()
        left, right = (registers.of(vector) for vector in both)
        assert left is not None and right is not None
        made.append(_Line(product.text.format(total, right, left, lane), (), (left, right)))
    return made


def _load(vector: _Vector, registers: _Registers, made: list[_Line], kept: set[_Vector], most: int) -> bool:
    """Load a vector, with those after it that are needed too as far as there is room."""
    idle = registers.without_use(vector)
    following = [vector]
    while vector.size == QUAD_BYTES and len(following) < most:
        after = _Vector(vector.pointer, following[-1].place + QUAD_BYTES, QUAD_BYTES)
        if not registers.uses.get(after) or registers.of(after) is not None:
            break
        following.append(after)
    loaded: dict[int, _Vector] = {}
    if len(following) == _MOST:
        free = sorted(idle)
        runs = (free[n : n + _MOST] for n in range(len(free) - _MOST + 1))
        loaded = next((dict(zip(run, following, strict=True)) for run in runs if run[-1] - run[0] == _MOST - 1), {})
    if not loaded and idle:
        loaded = dict(zip(idle[:2], following, strict=False))
    if not loaded:
        taken = registers.least_urgent(vector, kept)
        if taken is None:
            return False
        loaded = {taken: vector}
    registers.take(loaded)
    made.append(_Line("", tuple(loaded), loads=tuple(loaded.values())))
    return True


def _ahead(lines: Sequence[_Line]) -> list[_Line]:
    """The same with loads some products earlier, as far as their registers are not in use."""
    made: list[_Line] = []
    for line in lines:
        place = len(made)
        if line.loads:
            passed = 0
            while place and passed < _AHEAD:
                other = made[place - 1]
                if other.loads or set(other.reads) & set(line.writes):
                    break
                place, passed = place - 1, passed + 1
        made.insert(place, line)
    return made


def _in_order(lines: Sequence[_Line], pointer: int) -> int:
    """How many bytes of what a pointer points to are loaded, if none is passed over or loaded twice; else 0."""
    end = 0
    for vector in (vector for line in lines for vector in line.loads if vector.pointer == pointer):
        if vector.place != end:
            return 0
        end += vector.size
    return end


def _written(line: _Line, moved: Sequence[int]) -> str | None:
    """An instruction; None for an address that none has."""
    if not line.loads:
        return line.text
    first, count = line.loads[0], len(line.loads)
    name = {16: "q", 8: "d", 4: "s", 2: "h"}[first.size]
    into = ", ".join(f"{name}{number}" for number in line.writes)
    pointer = f"{{p{first.pointer}}}"
    load = "ldp" if count > 1 else "ldr"
    if count == _MOST:
        into = ", ".join(f"v{number}.16b" for number in line.writes)
        return f"ld1 {{{{{into}}}}}, [{pointer}], #{count * QUAD_BYTES}" if moved[first.pointer] else None
    if moved[first.pointer]:
        return f"{load} {into}, [{pointer}], #{count * first.size}"
    if first.place % first.size:
        return f"ldur {into}, [{pointer}, #{first.place}]" if count == 1 and first.place <= _FAR else None
    if first.place > FAR_PAIR if count > 1 else first.place // first.size >= 1 << 12:
        return None
    return f"{load} {into}, [{pointer}, #{first.place}]" if first.place else f"{load} {into}, [{pointer}]"


def _of_sve(line: _Line, lefts: int) -> str | None:
    """The same of SVE: the predicate is that of all lanes."""
    if not line.loads:
        return line.text
    ((vector, register),) = zip(line.loads, line.writes, strict=True)
    pointer = f"{{p{vector.pointer}}}"
    if vector.pointer >= lefts:
        number, rest = divmod(vector.place, vector.size)
        place = f"[{pointer}, #{number}, mul vl]" if number else f"[{pointer}]"
        return None if rest or number > FAR_VECTOR else f"ldr z{register}, {place}"
    name, lane, far = {
        16: ("ld1rqw", "s", FAR_QUAD),
        8: ("ld1rd", "d", 504),
        4: ("ld1rw", "s", 252),
        2: ("ld1rh", "h", 126),
    }[vector.size]
    if vector.place % vector.size or vector.place > far:
        return None
    place = f"[{pointer}, #{vector.place}]" if vector.place else f"[{pointer}]"
    return f"{name} {{{{z{register}.{lane}}}}}, p0/z, {place}"


def _function(
    product: Product,
    sums: Sequence[int],
    register: dict[int, int],
    body: _Body,
    sides: tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]],
    free: int,
    once: bool,
) -> Code:
    """LLVM's function around the loop."""
    count, pointers = len(sums), len(sides[0]) + len(sides[1])
    # operands: the sums, the pointers, the rounds; then what is not changed: how far each pointer is to be moved on
    at, rounds = [f"${count + n}" for n in range(pointers)], f"${count + pointers}"
    changed = count + pointers + 1
    lines = [text.format(**{f"p{n}": name for n, name in enumerate(at)}) for text in body.texts]
    if not once:
        lines.insert(0, "1:")
        lines += [f"add {at[n]}, {at[n]}, ${changed + n}" for n in range(pointers) if body.to_move[n]]
        lines += [f"subs {rounds}, {rounds}, #1", "b.ne 1b"]
    prefix, vector = "v", None
    if product.scale:
        prefix, vector = "z", Vector(product.total, product.lanes, product.quad)
        lines.insert(0, "ptrue p0.b")
    outputs = [f"={{{prefix}{register[number]}}}" for number in sums] + ["=&r"] * (pointers + 1)
    clobbered = [f"~{{{prefix}{number}}}" for number in range(free)] + ["~{cc}", "~{memory}"]
    clobbered += ["~{p0}"] if product.scale else []
    constraints = ",".join([*outputs, *["r"] * pointers, *map(str, range(changed)), *clobbered])
    lists = ", ".join([*(f"ptr %a{n}" for n in range(pointers)), "i64 %n"])
    held = product.sum if vector is None else vector.scalable
    types = ", ".join([*[held] * count, *["ptr"] * pointers, "i64"])
    long = "" if vector is None else "long_"
    given = ", ".join([*(f"i64 %d{n}" for n in range(pointers)), *(f"{held} %{long}s{n}" for n in range(count)), lists])
    text = []
    for n, moved in enumerate(body.moved):
        text.append(f"  %d{n} = sub i64 %{'left' if n < len(sides[0]) else 'right'}, {moved}")
    for n, number in enumerate(sums):
        text.append(f"  %p{n} = getelementptr i8, ptr %s, i64 {number * product.item}")
        text.append(f"  %s{n} = load {product.sum}, ptr %p{n}, align {product.item}")
        text += [] if vector is None else [vector.begin(f"s{n}")]
    assembler = "\\0A".join(lines)
    text.append(f'  %r = call {{ {types} }} asm "{assembler}", "{constraints}"({given}) noduplicate nounwind')
    for n in range(count):
        if vector is None:
            text.append(f"  %r{n} = extractvalue {{ {types} }} %r, {n}")
        else:
            text.append(f"  %whole{n} = extractvalue {{ {types} }} %r, {n}")
            text.append(vector.end(f"whole{n}", f"r{n}"))
        text.append(f"  store {product.sum} %r{n}, ptr %p{n}, align {product.item}")
    inside = "\n".join([*text, "  ret void"])
    name = f"nnefc_lanes_{hashlib.sha256(inside.encode()).hexdigest()[:16]}"
    head = f"define linkonce_odr hidden void @{name}(ptr %s, {lists}, i64 %left, i64 %right) alwaysinline nounwind"
    left, right = (tuple(group[0] for group in side) for side in sides)
    return Code(name, f"\n{head} {{\n{inside}\n}}\n", left, right, body.instructions)
