"""Assembles the program of a chat template: `targets/runtime/chat/program.h` declares the format."""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache

from nnefc.operators.text.case_mapping import Case, case_table
from nnefc.support.diagnostics import CompileError

__all__ = ["Builtin", "Flag", "Function", "Kind", "Label", "Opcode", "Program"]

Opcode = IntEnum(
    "Opcode",
    "WRITE_CONSTANT WRITE CONSTANT LOAD COPY STORE CLEAR CONTEXT PROVIDED JUMP JUMP_FALSE AND OR LIST_BEGIN "
    "LIST_ADD LOOP NEXT UNPACK POP SWAP_COPY DROP_BELOW ADD SUBTRACT MULTIPLY DIVIDE FLOOR_DIVIDE MODULO POWER "
    "NEGATE PLUS NOT EQUAL NOT_EQUAL LESS LESS_EQUAL GREATER GREATER_EQUAL IN NOT_IN JOIN ATTRIBUTE ELEMENT SLICE "
    "LIST TUPLE DICT FILTER TEST CALL MACRO SET_ATTRIBUTE CHECK_NAMESPACE CAPTURE CAPTURED RETURN",
    start=0,
)

_VERSION = 1
_HEADER_BYTES = 18 * 4
_MAX_OPERAND = (1 << 24) - 1


class Kind(IntEnum):
    """Kinds of constants."""

    NONE = 1
    BOOLEAN = 2
    INTEGER = 3
    FLOAT = 4
    STRING = 5
    FUNCTION = 6
    UNDEFINED = 7


class Builtin(IntEnum):
    """Functions that templates have."""

    DICT = 0
    NAMESPACE = 1
    RAISE = 2
    RANGE = 3
    TIME = 4


class Flag(IntEnum):
    """Further parameters of a macro."""

    CALLER = 1
    KEYWORDS = 2
    VARIABLE = 4


Constant = bool | int | float | str | None
"""Kind.UNDEFINED and Builtin are integers that stand for values of their own."""


@dataclass
class Function:
    """The template itself, or a macro.

    Attributes:
        name: as templates write it; that of a call's body is empty.
        parameters: their names.
        flags: its further parameters.
        slots: how many variables it has.
        entry: its first instruction.
    """

    name: str
    parameters: Sequence[str] = ()
    flags: int = 0
    slots: int = 0
    entry: int = 0

    def slot(self) -> int:
        """Returns a variable that no other name has."""
        self.slots += 1
        return self.slots - 1


@dataclass
class Label:
    """A position in the code, and the instructions that jump there."""

    position: int | None = None
    jumps: list[int] = field(default_factory=list)


class Program:
    """A program under construction.

    Attributes:
        functions: the template, then its macros.
        context: the names of variables that the template does not set.
        cases: the case tables that it needs.
    """

    def __init__(self) -> None:
        self.functions: list[Function] = []
        self.context: dict[str, int] = {}
        self.cases: set[Case] = set()
        self._constants: dict[tuple[Kind, bytes], int] = {}
        self._code: list[int] = []

    def constant(self, value: Constant) -> int:
        """Returns the number of a constant.

        Raises:
            CompileError: an integer beyond 64 bits.
        """
        match value:
            case None:
                key = (Kind.NONE, bytes(8))
            case Kind():
                key = (Kind.UNDEFINED, bytes(8))
            case Builtin():
                key = (Kind.FUNCTION, struct.pack("<q", value))
            case bool():
                key = (Kind.BOOLEAN, struct.pack("<q", value))
            case int():
                if not -(1 << 63) <= value < 1 << 63:
                    raise CompileError(f"the integer {str(value)[:30]} is beyond 64 bits")
                key = (Kind.INTEGER, struct.pack("<q", value))
            case float():
                key = (Kind.FLOAT, struct.pack("<d", value))
            case str():
                key = (Kind.STRING, value.encode("utf-8", "surrogatepass"))
        return self._constants.setdefault(key, len(self._constants))

    def variable(self, name: str) -> int:
        """Returns the number of a variable of the context."""
        return self.context.setdefault(name, len(self.context))

    def emit(self, opcode: Opcode, operand: int = 0, *words: int) -> None:
        """Appends an instruction.

        Raises:
            CompileError: the template is too long.
        """
        if operand > _MAX_OPERAND:
            raise CompileError(f"it needs more than {_MAX_OPERAND:,} instructions or constants")
        self._code += [opcode | operand << 8, *words]

    def jump(self, opcode: Opcode, label: Label, *words: int) -> None:
        """Appends an instruction that jumps to a label."""
        label.jumps.append(len(self._code))
        self.emit(opcode, 0, *words)
        if label.position is not None:
            self._resolve(label)

    def bind(self, label: Label) -> None:
        """Puts a label at the end of the code so far."""
        label.position = len(self._code)
        self._resolve(label)

    def begin(self, function: Function) -> int:
        """Lets a function begin at the end of the code so far; returns its number."""
        function.entry = len(self._code)
        self.functions.append(function)
        return len(self.functions) - 1

    def _resolve(self, label: Label) -> None:
        assert label.position is not None
        if label.position > _MAX_OPERAND:
            raise CompileError(f"it needs more than {_MAX_OPERAND:,} instructions or constants")
        for jump in label.jumps:
            self._code[jump] |= label.position << 8
        label.jumps = []

    def serialized(self, given: Mapping[str, str | Builtin]) -> bytes:
        """Returns the bytes that the runtime takes as `nnefc_program`.

        Args:
            given: variables with values of the model's; those that the template does not read are left out.
        """
        names = [self.constant(name) for function in self.functions for name in function.parameters]
        context = [self.constant(name) for name in self.context]
        pairs = [
            word
            for name, value in given.items()
            if name in self.context
            for word in (self.constant(name), self.constant(value))
        ]
        functions = self._functions()
        hidden = [limit for limits in _hidden_ranges() for limit in limits]
        parts: list[tuple[bytes, int]] = [
            (self._constant_table(), len(self._constants)),
            (_words(self._code), len(self._code)),
            (_words(functions), len(self.functions)),
            (_words(names), len(names)),
            (_words(context), len(context)),
            (_words(pairs), len(pairs) // 2),
            (_words(hidden), len(hidden) // 2),
        ]
        offset, header, body = _HEADER_BYTES, [_VERSION], b""
        for content, count in parts:
            header += [offset + len(body), count]
            body += content
        for case in ("LOWER", "UPPER", "TITLE"):
            table = _aligned(case_table(case).tobytes()) if case in self.cases else b""
            header.append(offset + len(body) if table else 0)
            body += table
        strings_at = offset + len(body)
        strings = b"".join(text for kind, text in self._constants if kind == Kind.STRING)
        return self._with_string_offsets(_words(header) + body + _aligned(strings), header[1], strings_at)

    def _functions(self) -> list[int]:
        words: list[int] = []
        first = 0
        for function in self.functions:
            count = len(function.parameters)
            words += [function.entry, function.slots, count, first, function.flags, self.constant(function.name)]
            first += count
        return words

    def _constant_table(self) -> bytes:
        """Returns the constants, with offsets of strings from the first of them."""
        table, at = b"", 0
        for kind, content in self._constants:
            if kind == Kind.STRING:
                table += struct.pack("<IIII", kind, len(content), at, 0)
                at += len(content)
            else:
                table += struct.pack("<II", kind, 0) + content
        return table

    def _with_string_offsets(self, content: bytes, constants_at: int, strings_at: int) -> bytes:
        made = bytearray(content)
        for number, (kind, _) in enumerate(self._constants):
            if kind == Kind.STRING:
                at = constants_at + 16 * number + 8
                struct.pack_into("<I", made, at, struct.unpack_from("<I", made, at)[0] + strings_at)
        return bytes(made)


def _words(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def _aligned(content: bytes) -> bytes:
    return content + bytes(-len(content) % 4)


@cache
def _hidden_ranges() -> tuple[tuple[int, int], ...]:
    """Returns the first and last characters of ranges that Python's `repr` writes with escapes."""
    ranges: list[list[int]] = []
    for number in range(sys.maxunicode + 1):
        if chr(number).isprintable():
            continue
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return tuple((first, last) for first, last in ranges)
