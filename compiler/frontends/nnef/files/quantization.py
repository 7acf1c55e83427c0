"""Reads `graph.quant` and the quantization algorithms of tensor files, which map stored integers to reals.

A file of lines `"tensor-name": operation(argument = value, …);`, where the operation is one of the quantize operations
without its first parameter. Arguments instead of a tensor are numbers, or (nested) arrays of them for values by
channel, which broadcast like tensors of their shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from nnefc.frontends.nnef.declarations import MISSING, STANDARD, Operation, nearest_name
from nnefc.frontends.nnef.files.tensor_file import StoredTensor
from nnefc.frontends.nnef.language.signatures import spell_value
from nnefc.frontends.nnef.language.types import Dialect, PrimitiveType, TensorType, Type, spell
from nnefc.support.diagnostics import CompileError, Location

__all__ = ["Quantization", "QuantizedBy", "dequantize", "parse_algorithm", "parse_quantization"]


@dataclass(frozen=True, eq=False)
class QuantizedBy:
    """A quantization with all arguments but the tensor, in the order of the declaration."""

    operation: Operation
    arguments: Mapping[str, Any]
    dialect: Dialect

    def __str__(self) -> str:
        arguments = ", ".join(f"{name} = {spell_value(value)}" for name, value in self.arguments.items())
        return f"{self.operation.name}({arguments})"


Quantization: TypeAlias = Mapping[str, QuantizedBy]
"""The entries of `graph.quant` by the name of the tensor."""

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*)+)
      | (?P<number>[0-9]+(?P<fraction>\.[0-9]*)?(?P<exponent>[eE][+-]?[0-9]+)?)
      | (?P<string>"[^"\n]*"|'[^'\n]*')
      | (?P<name>[A-Za-z_][A-Za-z_0-9]*)
      | (?P<sign>[-:;,=()\[\]])""",
    re.VERBOSE | re.ASCII,
)

MAX_DEPTH = 16
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int


class _Reader:
    """A recursive-descent reader over one text."""

    def __init__(self, text: str, file: str, dialect: Dialect, defaults: Mapping[str, Any] = _NONE) -> None:
        self.text = text
        self._defaults = defaults
        self.file = file
        self.dialect = dialect
        self._tokens = self._tokenize()
        self.token = next(self._tokens)

    def _tokenize(self) -> Iterator[_Token]:
        position = 0
        while position < len(self.text):
            match = _TOKEN.match(self.text, position)
            if match is None:
                self.fail(f"unexpected character {self.text[position]!r}", position)
            if match.lastgroup != "space" and match["space"] is None:
                kind = next(kind for kind in ("number", "string", "name", "sign") if match[kind] is not None)
                yield _Token(kind, match.group(), position)
            position = match.end()
        while True:
            yield _Token("end", "", len(self.text))

    def fail(self, message: str, start: int, hint: str | None = None) -> NoReturn:
        line = self.text.count("\n", 0, start) + 1
        begin = self.text.rfind("\n", 0, start) + 1
        end = self.text.find("\n", begin)
        shown = self.text[begin : len(self.text) if end < 0 else end]
        raise CompileError(message, location=Location(self.file, line, start - begin + 1, shown), hint=hint)

    def advance(self) -> _Token:
        token, self.token = self.token, next(self._tokens)
        return token

    def expect(self, text: str) -> None:
        if self.token.text != text or self.token.kind == "string":
            found = f"'{self.token.text}'" if self.token.text else "the end of the file"
            self.fail(f"expected '{text}' instead of {found}", self.token.start)
        self.advance()

    def value(self, depth: int = 0) -> Any:
        token = self.advance()
        match token.kind, token.text:
            case "number", text:
                return self._number(text, token.start)
            case "sign", "-" if self.token.kind == "number":
                return -self._number(self.advance().text, token.start)
            case "string", text:
                return text[1:-1]
            case "name", "true" | "false":
                return token.text == "true"
            case "sign", "[" if depth < MAX_DEPTH:
                return self._array(depth)
        self.fail("expected a value" if depth < MAX_DEPTH else "arrays are nested too deep", token.start)

    def _number(self, text: str, start: int) -> int | float:
        if len(text) > 300:
            self.fail("the number has too many digits", start)
        return float(text) if any(c in text for c in ".eE") else int(text)

    def _array(self, depth: int) -> list[Any]:
        elements: list[Any] = []
        while self.token.text != "]":
            if elements:
                self.expect(",")
            elements.append(self.value(depth + 1))
        self.advance()
        return elements

    def invocation(self) -> QuantizedBy:
        name = self.token
        if name.kind != "name":
            self.fail("expected the name of a quantize operation", name.start)
        self.advance()
        known = [o for o in STANDARD if o.name.endswith("_quantize") and self.dialect in o.dialects]
        operation = next((o for o in known if o.name == name.text), None)
        if operation is None:
            nearest = nearest_name(name.text, [o.name for o in known])
            hint = f"did you mean '{nearest}'?" if nearest else None
            self.fail(
                f"'{name.text}' is not a quantize operation of the {self.dialect.value} dialect", name.start, hint
            )
        return QuantizedBy(operation, self._arguments(operation, name), self.dialect)

    def _arguments(self, operation: Operation, name: _Token) -> dict[str, Any]:
        parameters = operation.signature.parameters[1:]
        given: dict[str, Any] = {}
        self.expect("(")
        while self.token.text != ")":
            if given:
                self.expect(",")
            start = self.token
            if self.token.kind == "name" and self.token.text not in ("true", "false"):
                parameter = next((p for p in parameters if p.name == start.text), None)
                self.advance()
                self.expect("=")
            else:
                parameter = parameters[len(given)] if len(given) < len(parameters) else None
            if parameter is None or parameter.name in given:
                reason = "has no further parameter for" if parameter is None else "already has a value for"
                self.fail(f"'{operation.name}' {reason} '{start.text}'", start.start)
            given[parameter.name] = self._typed(self.value(), parameter.type, parameter.name, start.start)
        self.advance()
        for parameter in parameters:
            default = self._defaults.get(parameter.name, parameter.default)
            if default is not MISSING:
                given.setdefault(parameter.name, default)
            elif parameter.name not in given:
                self.fail(f"'{operation.name}' lacks a value for '{parameter.name}'", name.start)
        return {parameter.name: given[parameter.name] for parameter in parameters}

    def _typed(self, value: Any, type_: Type, parameter: str, start: int) -> Any:
        match type_, value:
            case PrimitiveType("logical"), bool():
                return value
            case PrimitiveType("integer"), int() if not isinstance(value, bool):
                if parameter == "bits" and not 1 <= value <= 64:
                    self.fail(f"'bits' must be between 1 and 64, not {value}", start)
                return value
            case PrimitiveType("scalar"), float() | int() if not isinstance(value, bool):
                return float(value)
            case TensorType(), float() | int() | list() if not isinstance(value, bool):
                try:
                    array = np.array(value, np.float64)
                except (ValueError, TypeError):
                    self.fail(f"the array for '{parameter}' does not hold numbers in rows of equal length", start)
                if not array.size or not np.isfinite(array).all():
                    self.fail(f"the values for '{parameter}' must be finite numbers", start)
                return value
        self.fail(f"'{parameter}' must be of type {spell(type_, self.dialect)}", start)


def parse_quantization(
    text: str, file: str, dialect: Dialect, defaults: Mapping[str, Any] = _NONE
) -> dict[str, QuantizedBy]:
    """The entries of a `graph.quant`; `defaults` are of parameters that the standard has none for.

    Raises:
        CompileError: the text does not follow the format, names an unknown operation or a tensor twice.
    """
    reader = _Reader(text, file, dialect, defaults)
    entries: dict[str, QuantizedBy] = {}
    while reader.token.kind != "end":
        name = reader.token
        if name.kind != "string":
            reader.fail("expected the name of a tensor in quotes", name.start)
        reader.advance()
        reader.expect(":")
        if name.text[1:-1] in entries:
            reader.fail(f"there are two entries for {name.text}", name.start)
        entries[name.text[1:-1]] = reader.invocation()
        reader.expect(";")
    return entries


def parse_algorithm(text: str, file: str) -> QuantizedBy:
    """The quantization algorithm in the header of a provisional tensor file."""
    reader = _Reader(text, file, Dialect.PROVISIONAL)
    algorithm = reader.invocation()
    if reader.token.kind != "end":
        reader.fail("expected nothing after the quantization algorithm", reader.token.start)
    return algorithm


Reals = npt.NDArray[np.float64]


def _from_min_max(q: Reals, a: Mapping[str, Any]) -> Reals:
    signed, symmetric = a.get("signed", False), a.get("symmetric", False)
    steps = 2.0 ** a["bits"] - 1 - (signed and symmetric)
    shift = 2.0 ** (a["bits"] - 1) - symmetric if signed else 0.0
    low, high = _tensor(a["min"], q), _tensor(a["max"], q)
    reals: Reals = (q + shift) / steps * (high - low) + low
    return reals


def _from_zero_point(q: Reals, a: Mapping[str, Any]) -> Reals:
    reals: Reals = (q - _tensor(a["zero_point"], q)) * _tensor(a["scale"], q)
    return reals


def _from_logarithm(q: Reals, a: Mapping[str, Any]) -> Reals:
    """Codes count up from the smallest power; a negative code is the negative of what its amount stands for."""
    lowest = np.ceil(np.log2(_tensor(a["max"], q))) - (2.0 ** a["bits"] - 1)
    magnitude: Reals = np.exp2(np.abs(q) + lowest)
    return np.where(q < 0, -magnitude, magnitude)


def _from_provisional_logarithm(q: Reals, a: Mapping[str, Any]) -> Reals:
    """The provisional definition does not scale its powers back."""
    powers: Reals = np.exp2(q)
    return powers


def _from_binary(q: Reals, a: Mapping[str, Any]) -> Reals:
    return np.where(q > 0, _tensor(a["positive_value"], q), _tensor(a["negative_value"], q))


def _from_ternary(q: Reals, a: Mapping[str, Any]) -> Reals:
    signed = np.where(q < 0, _tensor(a["negative_value"], q), _tensor(a["zero_value"], q))
    return np.where(q > 0, _tensor(a["positive_value"], q), signed)


_DEQUANTIZE: Mapping[tuple[str, Dialect], Callable[[Reals, Mapping[str, Any]], Reals]] = {
    **{("linear_quantize", dialect): _from_min_max for dialect in Dialect},
    ("min_max_linear_quantize", Dialect.FINAL): _from_min_max,
    ("zero_point_linear_quantize", Dialect.FINAL): _from_zero_point,
    ("logarithmic_quantize", Dialect.FINAL): _from_logarithm,
    ("logarithmic_quantize", Dialect.PROVISIONAL): _from_provisional_logarithm,
    ("binary_quantize", Dialect.PROVISIONAL): _from_binary,
    ("ternary_quantize", Dialect.PROVISIONAL): _from_ternary,
}


def _tensor(value: Any, like: Reals) -> Reals:
    """An argument as an array that broadcasts from the left."""
    array = np.array(value, np.float64)
    return array.reshape(array.shape + (1,) * (like.ndim - array.ndim)) if array.ndim else array


def dequantize(stored: StoredTensor, by: QuantizedBy, file: str) -> npt.NDArray[np.float32]:
    """The reals that stored integers stand for: computed in float64, rounded once.

    Raises:
        CompileError: the parameters do not broadcast to the tensor, or the results are not finite.
    """
    assert isinstance(stored.array, np.ndarray)  # blocks are never quantized besides
    codes = stored.array.astype(np.float64)
    try:
        with np.errstate(all="ignore"):
            reals = np.broadcast_to(_DEQUANTIZE[by.operation.name, by.dialect](codes, by.arguments), codes.shape)
            rounded = reals.astype(np.float32)
    except ValueError:
        raise CompileError(
            f"the parameters of '{by}' do not broadcast to the shape {list(codes.shape)} of '{file}'"
        ) from None
    if not np.isfinite(rounded).all():
        raise CompileError(f"'{by}' maps elements of '{file}' to values that are not finite")
    return rounded
