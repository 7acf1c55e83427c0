"""Unpacks vectors of integers of 2, 4 or 8 bits in registers: a thread loads their bytes at once, 16 at most.

Of four integers of 4 bits, c0 to c3, in half a word, with the zero point z:

    half                         c3 c2 c1 c0
    half & 0x0f00                   c2                          an AND and an OR are one instruction
    … | 0x4b000000               2^23 + 256 c2, as float32
    minus 2^23 + 256 z           256 (c2 - z), exactly

A power of two stays where a factor, as the scale of a block, can be divided by it. What else an element is computed of,
as scales, zero points and offsets, is the same for all of a vector, and is loaded once.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.ir.expr import Call, TensorLoad

from nnefc.ir.gpu_operators import unpacked
from nnefc.passes.schedule.gpu.contractions.analysis import Factor
from nnefc.passes.schedule.gpu.contractions.operand_tile import main_load
from nnefc.passes.schedule.gpu.nest import Nest, load, sequence, store
from nnefc.passes.tir.common.expressions import IF_THEN_ELSE, inside, is_number, loads_of, number, rebuilt
from nnefc.targets.machine.gpu.description import LOAD_BYTES

__all__ = ["PackedVectors", "Packing", "packing_of"]

_WORD_BYTES = 4
_HALF = 16  # bits of a word that are masked where they are
_MAGIC = 1 << 23  # as float32, the last bit of its fraction is 1
_MAX_ZERO = 1 << 22  # times a power of two, so that the exponent stays


@dataclass(frozen=True)
class Packing:
    """How many elements of neighbouring depths a thread unpacks at once, and of how many bytes."""

    lanes: int
    bytes: int

    @property
    def bits(self) -> int:
        """Returns the bits of an element."""
        return 8 * self.bytes // self.lanes

    @property
    def words(self) -> int:
        """Returns the registers of the bytes."""
        return -(-self.bytes // _WORD_BYTES)


def packing_of(operand: Factor, depths: int, unit: int, longest: int) -> Packing | None:
    """Returns the longest vectors of neighbouring depths whose bytes lie side by side and aligned; None without any.

    What elements are computed of besides is the same for all of a vector.

    Args:
        depths: a multiple of the vectors' length.
        unit: the shortest length, which lengths are multiples of.
        longest: the upper bound of the length.
    """
    main = main_load(operand.value)
    if main is None or str(main.source.dtype) != "uint8" or not operand.aligned:
        return None
    if any(isinstance(part, Call) and getattr(part.op, "name", "") in IF_THEN_ELSE for part in inside(operand.value)):
        return None
    found, lanes = None, unit
    while lanes <= longest and depths % lanes == 0 and operand.depth.size % lanes == 0:
        count = _bytes_of(operand, lanes)
        if count == 0:
            break
        if count > 1:
            found = Packing(lanes, count)
        lanes *= 2
    return found


def _bytes_of(operand: Factor, lanes: int) -> int:
    """Returns how many bytes the elements of `lanes` neighbouring depths take, side by side and aligned.

    It is 0 if they lie in another way, or if what they are computed of besides is not the same for all of them.
    """
    nest = Nest(operand.aligned)
    batch, position = nest.variable("batch", operand.batch.size), nest.variable("position", operand.positions.size)
    group = nest.variable("group", operand.depth.size // lanes)
    values = [operand.at(nest, batch, position, group * number(lanes) + number(lane)) for lane in range(lanes)]
    first, last = main_load(values[0]), main_load(values[-1])
    if first is None or last is None:
        return 0
    step = nest.simplify(last.indices[0] - first.indices[0])
    count = int(step.value) + 1 if isinstance(step, tirx.IntImm) else 0
    if not 1 <= count <= LOAD_BYTES or lanes % count or not nest.begins_at_multiple(first.indices[0], count):
        return 0
    for lane, value in enumerate(values):
        for read in loads_of(value):
            own = first.indices[0] + number(lane * count // lanes)
            expected = own if read.source.same_as(first.source) else _load_of(values[0], read.source)
            if expected is None or not is_number(nest.simplify(read.indices[0] - expected), 0):
                return 0
    return count


def _load_of(value: tirx.Expr, source: tirx.Var) -> tirx.Expr | None:
    """Returns the index at which an expression reads a tensor."""
    return next((read.indices[0] for read in loads_of(value) if read.source.same_as(source)), None)


class PackedVectors:
    """Registers of a thread for vectors of an operand, and what else their elements are computed of.

    Args:
        name: of the operand, for the generated code.
        packing: of the operand, see :func:`packing_of`.
        count: of vectors.
    """

    def __init__(self, nest: Nest, name: str, operand: Factor, packing: Packing, count: int) -> None:
        main = main_load(operand.value)
        assert main is not None
        self._nest, self._packing, self._bytes = nest, packing, main.source
        self._words = nest.buffer(f"{name}_words", count * packing.words, "uint32", "local")
        others = dict.fromkeys(read.source for read in loads_of(operand.value) if not read.source.same_as(main.source))
        self._common = {
            source: nest.buffer(f"{name}_common{which}", count, str(source.dtype), "local")
            for which, source in enumerate(others)
        }

    def load(self, vector: tirx.Expr, first: tirx.Expr) -> tirx.Stmt:
        """Loads a vector, of which `first` is the first element."""
        at = {read.source: read.indices[0] for read in loads_of(first)}
        count, words = self._packing.bytes, self._packing.words
        packed = load(self._bytes, at[self._bytes], count)
        if count < _WORD_BYTES:
            value: tirx.Expr = tirx.Cast("uint32", tirx.reinterpret(f"uint{8 * count}", packed))
        else:
            value = tirx.reinterpret("uint32" if words == 1 else f"uint32x{words}", packed)
        return sequence(
            store(self._words, value, self._nest.simplify(vector * number(words)), words),
            *(store(to, load(source, at[source]), vector) for source, to in self._common.items()),
        )

    def element(self, vector: tirx.Expr, lane: int, value: tirx.Expr) -> tirx.Expr:
        """Returns an element, whose `value` reads memory, as a value that reads registers."""

        def change(part: tirx.Expr) -> tirx.Expr:
            if isinstance(part, tirx.Mul):
                for integer, factor in ((part.a, part.b), (part.b, part.a)):
                    if (zero := self._zero_of(integer, lane)) is not None:
                        shifted, power = self._shifted(vector, lane, zero)
                        return shifted * (change(factor) * tirx.const(2.0**-power, "float32"))
            if (zero := self._zero_of(part, lane)) is not None:
                return self._integer(vector, lane, zero)
            if not isinstance(part, TensorLoad):
                return rebuilt(part, change)
            if not part.source.same_as(self._bytes):
                return load(self._common[part.source], vector)
            bit = lane * self._packing.bits // 8 * 8 % (8 * _WORD_BYTES)
            shift, mask = (tirx.const(n, "uint32") for n in (bit, 0xFF))
            return tirx.Cast("uint8", tirx.bitwise_and(tirx.shift_right(self._word(vector, lane), shift), mask))

        return change(value)

    def shifted_element(self, vector: tirx.Expr, lane: int, value: tirx.Expr) -> tuple[tirx.Expr, int]:
        """Returns an element as :meth:`element` does, times a power of two, and its exponent."""
        zero = self._zero_of(value, lane)
        return (self.element(vector, lane, value), 0) if zero is None else self._shifted(vector, lane, zero)

    def _shifted(self, vector: tirx.Expr, lane: int, zero: int) -> tuple[tirx.Expr, int]:
        """Returns the integer of a lane, less a zero point, times a power of two; and the exponent."""
        bit = lane * self._packing.bits % (8 * _WORD_BYTES)
        power = bit % _HALF
        return self._masked(vector, lane, bit - power, power, zero), power

    def _integer(self, vector: tirx.Expr, lane: int, zero: int) -> tirx.Expr:
        """Returns the integer of a lane, less a zero point."""
        return self._masked(vector, lane, lane * self._packing.bits % (8 * _WORD_BYTES), 0, zero)

    def _masked(self, vector: tirx.Expr, lane: int, shift: int, power: int, zero: int) -> tirx.Expr:
        mask = ((1 << self._packing.bits) - 1) << power
        return unpacked(self._word(vector, lane), shift, mask, float(_MAGIC + (zero << power)))

    def _word(self, vector: tirx.Expr, lane: int) -> tirx.Expr:
        """Returns the word that has a lane."""
        word = number(lane * self._packing.bits // (8 * _WORD_BYTES))
        return load(self._words, self._nest.simplify(vector * number(self._packing.words) + word))

    def _zero_of(self, value: tirx.Expr, lane: int) -> int | None:
        """Returns the zero point where a value is the integer of a lane less a constant; None for other values."""
        if self._is_integer(value, lane):
            return 0
        if not isinstance(value, tirx.Sub) or not isinstance(value.b, tirx.FloatImm):
            return None
        zero = float(value.b.value)
        is_small = zero == int(zero) and 0 <= int(zero) << (_HALF - self._packing.bits) <= _MAX_ZERO
        return int(zero) if is_small and self._is_integer(value.a, lane) else None

    def _is_integer(self, value: tirx.Expr, lane: int) -> bool:
        """Whether a value is the integer of a lane as float32: `float32(int32(byte) >> shift & mask)`."""
        bits = self._packing.bits
        if not isinstance(value, tirx.Cast) or str(value.expr_ty().dtype) != "float32":
            return False
        integer, shift = _without_casts(value.value), 0
        if bits < 8:
            if not isinstance(integer, tirx.BitwiseAnd) or not is_number(integer.b, (1 << bits) - 1):
                return False
            integer, shift = _without_casts(integer.a), lane * bits % 8
            if isinstance(integer, tirx.RShift):
                if not is_number(integer.b, shift):
                    return False
                integer, shift = _without_casts(integer.a), 0
        return shift == 0 and isinstance(integer, TensorLoad) and integer.source.same_as(self._bytes)


def _without_casts(value: tirx.Expr) -> tirx.Expr:
    """Returns the value before conversions to wider integers."""
    while isinstance(value, tirx.Cast):
        value = value.value
    return value
