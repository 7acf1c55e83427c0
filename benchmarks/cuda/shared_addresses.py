"""Counts bank conflicts of kernels from the addresses that their machine code computes.

The integer instructions of a kernel are evaluated for each thread of its first block, in the order of the code, loops
once: what a loop first accesses. The addresses of shared memory depend on indices of threads and on constants alone;
what comes from memory, parameters or other threads is unknown, and so is what depends on it.

    LDSM.16.M88.4 R44, [R4+0x20]      →      an address of 16 bytes for each thread, 4 groups of 8 threads

Shared memory has 32 banks of 4 bytes, and gives a word of each in a cycle. The threads of a warp that together access
128 bytes are a group: 32 threads with 4 bytes each, 8 with 16 bytes. A group takes as many cycles (*wavefronts*) as
the bank with most different words has of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from execution_pipes import access_bytes
from sass import Instruction

from nnefc.targets.machine.gpu.description import SHARED_BYTES_PER_CYCLE, WARP

__all__ = ["Wavefronts", "addresses_of", "shared_wavefronts", "wavefronts"]

_Values = npt.NDArray[np.int64]
"""Of all threads of a block, or of shape () where all have the same; of registers, their 32 bits as unsigned."""

_MASK = 0xFFFFFFFF
_BANK_BYTES = 4
_BANKS = SHARED_BYTES_PER_CYCLE // _BANK_BYTES
_REGISTER = re.compile(r"([-~]?)(U?R(?:\d+|Z))(\.reuse)?")
_PREDICATE = re.compile(r"!?U?P(?:\d|T)")
_SHARED = ("LDS", "STS", "LDSM", "STSM", "LDGSTS")


@dataclass(frozen=True)
class Wavefronts:
    """Cycles that accesses to shared memory take, of a warp in the mean of a block's.

    Attributes:
        needed: without conflicts.
        taken: with them.
        unknown: instructions whose addresses are not known.
    """

    needed: float = 0.0
    taken: float = 0.0
    unknown: int = 0

    def __add__(self, other: Wavefronts) -> Wavefronts:
        return Wavefronts(self.needed + other.needed, self.taken + other.taken, self.unknown + other.unknown)


def shared_wavefronts(body: Sequence[Instruction], loop: Sequence[int], block: tuple[int, int, int]) -> Wavefronts:
    """Returns the wavefronts of the accesses of a loop.

    Args:
        body: of a kernel.
        loop: where the loop's instructions are in it.
        block: threads by x, y and z.
    """
    wanted = set(loop)
    counts = (_of_access(body[at], addresses) for at, addresses in addresses_of(body, block) if at in wanted)
    return sum(counts, Wavefronts())


def addresses_of(
    body: Sequence[Instruction], block: tuple[int, int, int]
) -> Iterator[tuple[int, npt.NDArray[np.int64] | None]]:
    """Yields the accesses to shared memory: where they are in the body, and the address of each thread of a block.

    Addresses are -1 of threads that do not execute the instruction, and None where they are not known.
    """
    for at, state in _states(body, block):
        if body[at].opcode in _SHARED:
            address, active = _address(body[at], state), state.predicate(body[at].guard)
            if address is not None:
                address = np.broadcast_to(address, state.special["SR_TID.X"].shape)
                address = address if active is None else np.where(active, address, -1)
            yield at, address


def wavefronts(addresses: npt.ArrayLike, size: int) -> tuple[int, int]:
    """Returns the wavefronts of a warp's access, without conflicts and with them.

    Args:
        addresses: of the threads that access memory, or that give the address of a row of 16 bytes; -1 of others.
        size: bytes of each: 1 to 16.
    """
    threads = SHARED_BYTES_PER_CYCLE // max(size, _BANK_BYTES)
    needed = taken = 0
    for group in np.asarray(addresses).reshape(-1, threads):
        words = np.unique(group[group >= 0][:, None] // _BANK_BYTES + np.arange(max(1, size // _BANK_BYTES)))
        if words.size:
            needed += -(-words.size // _BANKS)
            taken += int(np.bincount(words % _BANKS).max())
    return needed, taken


@dataclass
class _State:
    """What threads hold at a point of the code.

    Attributes:
        special: special registers, by name.
        registers: those that are known, by name.
        predicates: those that are known, by name.
    """

    special: Mapping[str, _Values]
    registers: dict[str, _Values] = field(default_factory=dict)
    predicates: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)

    def copy(self) -> _State:
        return _State(self.special, dict(self.registers), dict(self.predicates))

    def join(self, other: _State) -> None:
        """Adds what only another path to the same point knows."""
        self.registers = other.registers | self.registers
        self.predicates = other.predicates | self.predicates

    def value(self, operand: str) -> _Values | None:
        """Returns an operand's 32 bits; None if they are unknown."""
        operand = operand.strip()
        if re.fullmatch(r"-?0x[0-9a-f]+|-?\d+", operand):
            return np.asarray(int(operand, 0) & _MASK)
        found = _REGISTER.fullmatch(operand)
        if found is None:
            return None
        value = np.asarray(0) if found[2].endswith("Z") else self.registers.get(found[2])
        if value is None or not found[1]:
            return value
        return (-value if found[1] == "-" else ~value) & _MASK

    def predicate(self, operand: str) -> npt.NDArray[np.bool_] | None:
        """Returns where an operand holds; None if that is unknown."""
        name = operand.strip().removeprefix("!")
        value = np.asarray(True) if name in ("PT", "UPT", "") else self.predicates.get(name)
        return value if value is None or not operand.strip().startswith("!") else ~value

    def set(self, name: str, value: _Values | None, where: npt.NDArray[np.bool_] | None) -> None:
        """Sets a register where a guard holds; all of it if the guard is unknown."""
        if name.endswith("Z"):
            return
        before = self.registers.get(name)
        if value is not None and where is not None and before is not None and not where.all():
            value = np.where(where, value, before)
        if value is None:
            self.registers.pop(name, None)
        else:
            self.registers[name] = value & _MASK


def _states(body: Sequence[Instruction], block: tuple[int, int, int]) -> Iterator[tuple[int, _State]]:
    """Yields the index of each instruction and what is known before it, which changes with the next one."""
    arriving: dict[int, _State] = {}
    fresh = _State(_special(block))
    state: _State | None = fresh.copy()
    for at, instruction in enumerate(body):
        if (other := arriving.pop(instruction.address, None)) is not None:
            if state is None:
                state = other
            else:
                state.join(other)
        if state is None:
            state = fresh.copy()  # only branches from behind come here
        yield at, state
        target = instruction.target
        if target is not None and target > instruction.address:
            if target in arriving:
                arriving[target].join(state)
            else:
                arriving[target] = state.copy()
        if instruction.name in ("BRA", "EXIT") and not instruction.guard and "P" not in instruction.operands:
            state = None
        else:
            _execute(instruction, state)


def _special(block: tuple[int, int, int]) -> dict[str, _Values]:
    """Returns the special registers of the first block's threads."""
    x, y, z = block
    thread = np.arange(-(-x * y * z // WARP) * WARP)
    zeros = dict.fromkeys(("SR_CTAID.X", "SR_CTAID.Y", "SR_CTAID.Z", "SR_CgaCtaId", "SRZ"), np.asarray(0))
    return {
        **zeros,
        "SR_TID.X": thread % x,
        "SR_TID.Y": thread // x % y,
        "SR_TID.Z": thread // (x * y),
        "SR_LANEID": thread % WARP,
    }


def _of_access(access: Instruction, addresses: npt.NDArray[np.int64] | None) -> Wavefronts:
    """Returns the wavefronts of a warp's access, in the mean of a block's warps that have some."""
    if addresses is None:
        return Wavefronts(unknown=1)
    size, lanes = access_bytes(access.name), addresses.reshape(-1, WARP)
    if access.opcode in ("LDSM", "STSM"):
        matrices = int(found[1]) if (found := re.search(r"88\.(\d)", access.name)) else 1
        lanes = np.where(np.arange(WARP) < 8 * matrices, lanes, -1)
    counts = [wavefronts(warp, size) for warp in lanes if (warp >= 0).any()]
    needed, taken = np.mean(counts, axis=0) if counts else (0.0, 0.0)
    return Wavefronts(float(needed), float(taken))


def _address(access: Instruction, state: _State) -> _Values | None:
    """Returns the address in shared memory, which is the first that the operands have in brackets."""
    found = re.search(r"\[([^\]]*)\]", access.operands)
    total: _Values | None = np.asarray(0)
    for part in re.findall(r"[-+]?[^-+]+", found[1] if found else "?"):
        name, _, scale = part.lstrip("+").partition(".X")
        value = state.value(name.removesuffix(".U32"))
        if value is None or total is None:
            return None
        total = total + value * int(scale or 1)
    return None if total is None else total & _MASK


def _execute(instruction: Instruction, state: _State) -> None:
    """Changes a state by an instruction; results of those that are not modelled become unknown."""
    operands = [part.strip() for part in re.split(r",(?![^\[]*\])", instruction.operands)]
    where = state.predicate(instruction.guard)
    if instruction.opcode in ("ISETP", "UISETP", "PLOP3", "UPLOP3"):
        value = _comparison(instruction.name, operands, state)
        _set_predicate(state, operands[0], value, where)
        _set_predicate(state, operands[1], None, where)
        return
    results = [name for name in operands[:2] if re.fullmatch(r"U?R\d+", name)][:1] or []
    position = operands.index(results[0]) if results else 0
    for name in operands[:position]:
        _set_predicate(state, name, None, where)
    if not results or instruction.opcode in ("STG", "STS", "STL", "BRA", "BAR", "LDGSTS", "RED"):
        return
    sources = operands[position + 1 :]
    while sources and re.fullmatch(r"U?P[\dT]", sources[0]):
        _set_predicate(state, sources.pop(0), None, where)
    values = _evaluated(instruction, sources, state)
    kind, number = re.fullmatch(r"(U?R)(\d+)", results[0]).groups()  # type: ignore[union-attr]
    for offset, value in enumerate(values):
        state.set(f"{kind}{int(number) + offset}", value, where)


def _set_predicate(
    state: _State, name: str, value: npt.NDArray[np.bool_] | None, where: npt.NDArray[np.bool_] | None
) -> None:
    before = state.predicates.get(name)
    if name in ("PT", "UPT") or not _PREDICATE.fullmatch(name):
        return
    if value is not None and where is not None and before is not None:
        value = np.where(where, value, before)
    if value is None:
        state.predicates.pop(name, None)
    else:
        state.predicates[name] = value


_COMPARISONS: Mapping[str, Callable[[_Values, _Values], npt.NDArray[np.bool_]]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def _comparison(name: str, operands: Sequence[str], state: _State) -> npt.NDArray[np.bool_] | None:
    """Evaluates `ISETP.GT.U32.AND P0, PT, R1, 0x3, PT`, or `PLOP3.LUT P0, PT, P1, P2, PT, 0x80, 0x0`."""
    _, *options = name.split(".")
    if "LUT" in options:
        inputs, table = [state.predicate(part) for part in operands[2:5]], int(operands[5], 0)
        if any(value is None for value in inputs):
            return None
        index = sum(value.astype(np.int64) << 2 - bit for bit, value in enumerate(inputs))  # type: ignore[union-attr]
        return (table >> index & 1).astype(bool)
    a, b, third = state.value(operands[2]), state.value(operands[3]), state.predicate(operands[4])
    if a is None or b is None or third is None or "EX" in options:
        return None
    if "U32" not in options:
        a, b = _signed(a), _signed(b)
    compared = _COMPARISONS[options[0]](a, b)
    return {"AND": np.logical_and, "OR": np.logical_or, "XOR": np.logical_xor}[options[-1]](compared, third)


def _signed(value: _Values) -> _Values:
    return (value ^ 0x80000000) - 0x80000000


def _evaluated(instruction: Instruction, sources: Sequence[str], state: _State) -> list[_Values | None]:
    """Returns the values of the registers that an instruction writes."""
    opcode, options = instruction.opcode.removeprefix("U"), instruction.name.split(".")[1:]
    if opcode in ("S2R", "S2UR"):
        return [state.special.get(sources[0])]
    if opcode == "CS2R":
        return [state.special.get(sources[0])] * (1 if "32" in options else 2)
    if "X" in options or not (rule := _RULES.get(opcode)):
        return [None] * _written(instruction)
    return rule(options, sources, state)


def _written(instruction: Instruction) -> int:
    """Returns how many registers an instruction writes that is not modelled; more for accumulators."""
    options = instruction.name.split(".")
    if instruction.opcode in ("HMMA", "IMMA", "QMMA", "LDSM") or "128" in options:
        return 4
    if found := re.match(r"[HIQ]GMMA\.64x(\d+)x", instruction.name):
        return int(found[1]) // 2
    return 2 if {"64", "WIDE"} & set(options) else 1


def _of_values(function: Callable[..., _Values]) -> Callable[..., list[_Values | None]]:
    """Returns a rule for instructions of one result, which is known if the operands are."""

    def rule(options: Sequence[str], sources: Sequence[str], state: _State) -> list[_Values | None]:
        values = [state.value(source) for source in sources if not _PREDICATE.fullmatch(source)]
        return [None if any(value is None for value in values) else function(options, *values)]

    return rule


def _multiply_add(options: Sequence[str], sources: Sequence[str], state: _State) -> list[_Values | None]:
    """`IMAD`: `a * b + c`; `.HI` its upper half, `.WIDE` both, `c` a pair of registers then."""
    a, b, c = (state.value(source) for source in sources[:3])
    if a is None or b is None:
        return [None] * (2 if "WIDE" in options else 1)
    if not {"HI", "WIDE"} & set(options):
        return [None if c is None else a * b + c & _MASK]
    if "U32" not in options:
        a, b = _signed(a), _signed(b)
    with np.errstate(over="ignore"):  # negative numbers are large ones
        product = a.astype(np.uint64) * b.astype(np.uint64)
    low, high = (product & np.uint64(_MASK)).astype(np.int64), (product >> np.uint64(32)).astype(np.int64)
    if "HI" in options:
        return [None if c is None else high + c]
    pair = re.fullmatch(r"(U?R)(\d+)(\.reuse)?", sources[2])
    upper = state.value(f"{pair[1]}{int(pair[2]) + 1}") if pair else c if c is not None and not c.any() else None
    if c is None:
        return [None, None]
    return [low + c, None if upper is None else high + upper + (low + c >> 32)]


def _lea(options: Sequence[str], a: _Values, b: _Values, *tail: _Values) -> _Values:
    """`LEA R, a, b, n`: `(a << n) + b`; `.HI` with `c` above `a`: the upper half of `c:a << n`, plus `b`."""
    if "HI" not in options:
        return (a << tail[0]) + b
    if "SX32" in options:
        return (_signed(a) >> 32 - tail[0]) + b
    above, shift = tail
    return (above << shift | a >> 32 - shift) + b


def _shift(options: Sequence[str], low: _Values, count: _Values, high: _Values) -> _Values:
    """`SHF`: of a pair of registers; `.L` gives the upper half unless `.U32`, where `low` alone is shifted."""
    if "W" not in options:
        count = np.minimum(count, 63 if "U64" in options or "S64" in options else 32)
    if "L" in options:
        return high << count | low >> np.maximum(32 - count, 0) if "HI" in options else low << count
    above = _signed(high) if "S32" in options or "S64" in options else high
    return above >> count if "HI" in options else low >> count | above << np.maximum(32 - count, 0)


def _logic(_options: Sequence[str], a: _Values, b: _Values, c: _Values, table: _Values) -> _Values:
    """`LOP3`: bit `4 a + 2 b + c` of the table, for each bit of the operands."""
    result = np.asarray(0)
    for index in range(8):
        if int(table) >> index & 1:
            parts = (value if index >> bit & 1 else ~value for value, bit in ((a, 2), (b, 1), (c, 0)))
            x, y, z = parts
            result = result | x & y & z
    return result & _MASK


def _permute(_options: Sequence[str], a: _Values, selector: _Values, b: _Values) -> _Values:
    """`PRMT`: each byte is one of the eight of `b:a`, or copies of its sign."""
    result = np.asarray(0)
    for byte in range(4):
        chosen = int(selector) >> 4 * byte & 15 if selector.size == 1 else 0
        value = (a if chosen & 7 < 4 else b) >> 8 * (chosen & 3) & 255
        result = result | (np.where(value & 128, 255, 0) if chosen & 8 else value) << 8 * byte
    return result


def _select(_options: Sequence[str], sources: Sequence[str], state: _State) -> list[_Values | None]:
    a, b, chosen = state.value(sources[0]), state.value(sources[1]), state.predicate(sources[2])
    return [None if a is None or b is None or chosen is None else np.where(chosen, a, b)]


def _limit(options: Sequence[str], sources: Sequence[str], state: _State) -> list[_Values | None]:
    """`IMNMX`: the smaller one where the predicate holds, else the larger one."""
    a, b, smaller = state.value(sources[0]), state.value(sources[1]), state.predicate(sources[-1])
    if a is None or b is None or smaller is None:
        return [None]
    x, y = (a, b) if "U32" in options else (_signed(a), _signed(b))
    return [np.where(smaller, np.minimum(x, y), np.maximum(x, y))]


_RULES: Mapping[str, Callable[[Sequence[str], Sequence[str], _State], list[_Values | None]]] = {
    "MOV": _of_values(lambda _, a, *_mask: a),
    "R2UR": _of_values(lambda _, a: a),
    "VIADD": _of_values(lambda _, a, b: a + b),
    "IADD": _of_values(lambda _, a, b: a + b),
    "IADD3": _of_values(lambda _, a, b, c: a + b + c),
    "IABS": _of_values(lambda _, a: np.abs(_signed(a))),
    "IMAD": _multiply_add,
    "LEA": _of_values(_lea),
    "SHF": _of_values(_shift),
    "LOP3": _of_values(_logic),
    "PRMT": _of_values(_permute),
    "SEL": _select,
    "IMNMX": _limit,
    "VIMNMX": _limit,
}
"""How the results of an instruction follow from its operands; `UIADD3` of uniform registers is as `IADD3`."""
