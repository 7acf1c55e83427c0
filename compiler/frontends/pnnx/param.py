"""Reads the text file of a PNNX network: `model.pnnx.param`.

7767517                                       magic number
3 2                                           operators, operands
pnnx.Input    in   0 1 0 #0=(1,3,?,?)f32      type, name, how many inputs and outputs, their names, then
nn.ReLU       act  1 1 0 1 $input=0           parameters key=value, attributes @key=(shape)type,
pnnx.Output   out  1 0 1                      names of inputs $key=operand, types of operands #operand=(shape)type
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from nnefc.frontends.pnnx.lowering import Shape
from nnefc.support.diagnostics import CompileError, Location

__all__ = ["DTYPES", "ParamEntry", "ParamGraph", "ParamOperator", "ParamType", "Value", "parse_param", "read_param"]

MAGIC = "7767517"

Value: TypeAlias = "bool | int | float | complex | str | tuple[Value, ...] | None"

DTYPES: Mapping[str, str | None] = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "u8": "uint8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "bool": "bool",
    "c32": "complex32",
    "c64": "complex64",
    "c128": "complex128",
    "null": None,
}
"""Element types by the names of the format; `null` is an unknown one."""

_LARGEST_FILE = 256 << 20  # bytes
_MAX_DIMENSIONS = 16
_GREATEST_SIZE = 1 << 40


@dataclass(frozen=True)
class ParamType:
    """The type of a tensor; None in place of a size or of the element type: unknown."""

    shape: tuple[int | None, ...]
    dtype: str | None


@dataclass(frozen=True)
class ParamEntry:
    """A value and the location where it stands; for a string, the column of its first character."""

    value: Value
    text: str
    location: Location


@dataclass(frozen=True)
class ParamOperator:
    """A line of the file.

    Attributes:
        type: such as `nn.Conv2d`.
        name: unique in the network.
        inputs, outputs: names of operands.
        parameters: by name.
        attributes: types of the tensors in the binary file, by their names without the operator's.
        names: the operator's names of inputs → positions in `inputs`.
        location: of the line.
    """

    type: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: Mapping[str, ParamEntry]
    attributes: Mapping[str, ParamType]
    names: Mapping[str, int]
    location: Location


@dataclass(frozen=True)
class ParamGraph:
    """The operators in the order of the file, and what it says of the types of operands."""

    file: str
    operators: tuple[ParamOperator, ...]
    types: Mapping[str, ParamType]


def read_param(path: Path) -> ParamGraph:
    """Read a param file.

    Raises:
        CompileError: the file cannot be read, or is not of the format.
    """
    try:
        size = path.stat().st_size
        if size > _LARGEST_FILE:
            raise CompileError(f"{path} has {size:,} bytes: a param file is text of at most {_LARGEST_FILE:,}")
        data = path.read_bytes()
    except OSError as error:
        raise CompileError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CompileError(f"{path} is not text: line {line} is not UTF-8") from None
    return parse_param(text, str(path))


def parse_param(text: str, file: str = "model.pnnx.param") -> ParamGraph:
    """Parse the text of a param file; every operand has one producer, which stands before its consumers.

    Raises:
        CompileError: with the location.
    """
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines or lines[0][1].strip() != MAGIC:
        where = Location(file, lines[0][0], 1, lines[0][1]) if lines else None
        raise CompileError(
            f"{file} is not a param file of PNNX: it should begin with the line {MAGIC}",
            location=where,
            hint=_ncnn_hint(lines),
        )
    operators_expected, operands_expected, location = _counts(lines, file)
    operators: list[ParamOperator] = []
    types: dict[str, ParamType] = {}
    producers: dict[str, ParamOperator] = {}
    names: dict[str, ParamOperator] = {}
    for number, line in lines[2:]:
        operator, annotations = _operator(_Line(file, number, line))
        _check_names(operator, names, producers)
        for name, type in annotations.items():
            types.setdefault(name, type)
        operators.append(operator)
    if len(operators) != operators_expected:
        raise CompileError(
            f"the file has {len(operators)} operators, but its second line says {operators_expected}", location=location
        )
    if len(producers) != operands_expected:
        raise CompileError(
            f"the file has {len(producers)} operands, but its second line says {operands_expected}", location=location
        )
    return ParamGraph(file, tuple(operators), types)


def _ncnn_hint(lines: list[tuple[int, str]]) -> str | None:
    ncnn = len(lines) > 2 and lines[2][1].split()[0] == "Input"
    return "this looks like a param file of ncnn; the compiler reads the .pnnx.param next to it" if ncnn else None


def _counts(lines: list[tuple[int, str]], file: str) -> tuple[int, int, Location]:
    number, line = lines[1] if len(lines) > 1 else (lines[0][0] + 1, "")
    location = Location(file, number, 1, line)
    words = line.split()
    if len(words) != 2 or not all(_is_count(word) for word in words):
        raise CompileError("the second line should give the numbers of operators and operands", location=location)
    return int(words[0]), int(words[1]), location


def _is_count(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < 10


def _check_names(operator: ParamOperator, names: dict[str, ParamOperator], producers: dict[str, ParamOperator]) -> None:
    if operator.name in names:
        raise CompileError(
            f"there are two operators '{operator.name}'",
            location=operator.location,
            notes=(("the other one is here", names[operator.name].location),),
        )
    names[operator.name] = operator
    for name in operator.inputs:
        if name not in producers:
            raise CompileError(f"no operator before this one produces the operand '{name}'", location=operator.location)
    for name in operator.outputs:
        if name in producers:
            raise CompileError(
                f"the operand '{name}' is produced twice",
                location=operator.location,
                notes=(("the first time is here", producers[name].location),),
            )
        producers[name] = operator


class _Line:
    """The words of a line and their locations."""

    def __init__(self, file: str, number: int, text: str) -> None:
        self.file, self.number, self.text = file, number, text
        self.words = [(match.group(), match.start()) for match in re.finditer(r"\S+", text)]

    def at(self, position: int) -> Location:
        return Location(self.file, self.number, position + 1, self.text)


def _operator(line: _Line) -> tuple[ParamOperator, dict[str, ParamType]]:
    words = line.words
    if len(words) < 4:
        raise CompileError(
            "an operator needs a type, a name and the numbers of its inputs and outputs", location=line.at(words[-1][1])
        )
    for word, position in words[2:4]:
        if not _is_count(word):
            raise CompileError(f"'{_short(word)}' is not a number of operands", location=line.at(position))
    inputs, outputs = int(words[2][0]), int(words[3][0])
    if len(words) < 4 + inputs + outputs:
        raise CompileError(
            f"the operator has {len(words) - 4} words for {inputs} inputs and {outputs} outputs",
            location=line.at(words[2][1]),
        )
    operands = tuple(word for word, _ in words[4 : 4 + inputs + outputs])
    parameters: dict[str, ParamEntry] = {}
    attributes: dict[str, ParamType] = {}
    names: dict[str, int] = {}
    types: dict[str, ParamType] = {}
    for word, position in words[4 + inputs + outputs :]:
        key, equals, text = word.partition("=")
        if not equals or key in ("", "@", "#", "$"):
            raise CompileError(f"'{_short(word)}' is not of the form key=value", location=line.at(position))
        location = line.at(position + len(key) + 1)
        known: Mapping[str, object]
        match key[0]:
            case "@":
                known, name = attributes, key[1:]
            case "$":
                known, name = names, key[1:]
            case "#":
                known, name = types, key[1:]
            case _:
                known, name = parameters, key
        if name in known and key[0] != "#":
            raise CompileError(f"'{_short(key)}' is given twice", location=line.at(position))
        match key[0]:
            case "@":
                attributes[name] = _type(text, location)
            case "$":
                names[name] = _input(text, operands[:inputs], location)
            case "#":
                if name not in operands:
                    raise CompileError(f"the operator has no operand '{_short(name)}'", location=line.at(position))
                types[name] = _type(text, location)
            case _:
                parameters[name] = ParamEntry(_value(text, location), text, location)
    type, name = words[0][0], words[1][0]
    location = line.at(words[0][1])
    made = ParamOperator(type, name, operands[:inputs], operands[inputs:], parameters, attributes, names, location)
    return made, types


def _input(text: str, inputs: tuple[str, ...], location: Location) -> int:
    if text not in inputs:
        raise CompileError(f"the operator has no input '{_short(text)}'", location=location)
    return inputs.index(text)


_TYPE = re.compile(r"\(([^()]*)\)([a-z0-9]*)")


def _type(text: str, location: Location) -> ParamType:
    """A type such as `(1,3,?,?)f32`."""
    match = _TYPE.fullmatch(text)
    if match is None or (match[2] or "null") not in DTYPES:
        raise CompileError(f"'{_short(text)}' is not a type such as (1,3,?,?)f32", location=location)
    words = [word for word in match[1].split(",") if word] if match[1] else []
    if len(words) > _MAX_DIMENSIONS:
        raise CompileError(f"a tensor has at most {_MAX_DIMENSIONS} dimensions, here {len(words)}", location=location)
    return ParamType(tuple(_size(word, location) for word in words), DTYPES[match[2] or "null"])


def _size(word: str, location: Location) -> int | None:
    if word in ("?", "-1") or word.startswith("%"):
        return None
    if not (word.isascii() and word.isdigit()) or len(word) > 15 or int(word) > _GREATEST_SIZE:
        raise CompileError(f"'{_short(word)}' is not the size of a dimension", location=location)
    return int(word)


_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_FLOAT = re.compile(r"[+-]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,9})?|[+-]?(?:inf|nan)")
_COMPLEX = re.compile(rf"(?P<real>{_FLOAT.pattern})(?P<imaginary>[+-](?:{_FLOAT.pattern.replace('[+-]?', '', 1)}))j")
_WORDS: Mapping[str, Value] = {"None": None, "True": True, "False": False}


def _value(text: str, location: Location) -> Value:
    """The value of a parameter; what is no value of another kind is a string."""
    if text[:1] in ("(", "["):
        closing = {"(": ")", "[": "]"}[text[0]]
        # Strings may look like lists: an expression may begin with one.
        if text.endswith(closing) and not any(bracket in text[1:-1] for bracket in "()[]"):
            inner = text[1:-1]
            return tuple(_scalar(word) for word in inner.removesuffix(",").split(",")) if inner else ()
        return text
    return _scalar(text)


def _scalar(text: str) -> Value:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    match = _COMPLEX.fullmatch(text)
    if match:
        return complex(float(match["real"]), float(match["imaginary"]))
    return text


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"


def known_shape(type: ParamType | None) -> Shape | None:
    """The shape, if every size is known."""
    if type is None or None in type.shape:
        return None
    return tuple(size for size in type.shape if size is not None)
