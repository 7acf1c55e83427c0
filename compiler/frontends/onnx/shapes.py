"""Resolves the shapes of a network's inputs: declared by the model, given by the user, with dimension variables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np

from nnefc.frontends.dynamic_shapes import DynamicDimensions, axis_name, likely_sizes
from nnefc.frontends.onnx.checks.types import (
    DeclaredSize,
    MapType,
    OnnxTensorType,
    OptionalType,
    SequenceType,
    Type,
    ValueInfo,
    spelled,
)
from nnefc.frontends.onnx.values import AnyValue, Array, Map, Optional, Stacked, TensorSequence, Value, numpy_dtype
from nnefc.ir.network import MAX_ELEMENTS
from nnefc.ir.outline import DynamicTensor, shape_option
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, DynamicSize, Size, bounds, greatest, is_known, known_less, minimum
from nnefc.symbolic.formulas import size_of
from nnefc.symbolic.named_formulas import names_in, read_formula
from nnefc.symbolic.ranges import may_be_empty
from nnefc.symbolic.refinement import Refinement
from nnefc.symbolic.unification import unify_dims

__all__ = [
    "Absent",
    "Border",
    "DimensionVariables",
    "Leaf",
    "bind_inputs",
    "check_declared",
    "item_variables",
    "no_such_name",
]


@dataclass(frozen=True)
class Leaf:
    """A tensor that the program is given at run time."""

    name: str
    shape: tuple[Dimension, ...]
    dtype: str


@dataclass(frozen=True)
class Absent:
    """An optional input that is not there."""

    dtype: str


Border = Leaf | Value | Map | Absent | tuple["Border", ...]
"""An input of the model: a tensor that is given at run time or at compile time, or a sequence of these."""


@dataclass
class DimensionVariables:
    """The sizes of dimension variables, by name: one size everywhere in a model.

    Variables in the types of sequences stand for a size of each element, whose tensors have the same variable wherever
    they go: these are `loose`, and may have one size here and another there.

    `contradictions` tell of values whose declared shape is not the computed one, by name: the computed one holds.
    `opened` are the dynamic dimensions.
    `counts` are sizes that a user gives for names that inputs do not have: of data-dependent sizes.
    """

    sizes: dict[str, Dimension] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    loose: set[str] = field(default_factory=set)
    contradictions: dict[str, str] = field(default_factory=dict)
    opened: DynamicDimensions = field(default_factory=lambda: DynamicDimensions(Refinement()))
    counts: dict[str, DynamicSize] = field(default_factory=dict)

    def keep_dynamic(self, declared: tuple[DeclaredSize, ...], name: str) -> tuple[Dimension, ...]:
        """The shape of an input; dimensions that are not given stay dynamic."""
        sizes: list[Dimension] = []
        for axis, stated in enumerate(declared):
            match stated:
                case str() if stated not in self.sizes:
                    size = self.opened.size(stated, _dynamic_size(stated, axis))
                    self.bind(stated, size, f"axis {axis} of the input '{name}'")
                    sizes.append(size)
                case str():
                    sizes.append(self.sizes[stated])
                case None:
                    sizes.append(self.opened.size(axis_name(name, axis), _dynamic_size("", axis)))
                case int():
                    sizes.append(stated)
        return tuple(sizes)

    def check_formulas(self) -> None:
        """Let dimensions with names such as `past + sequence` be what these say, of other dimensions with names.

        Raises:
            Refined: they are not yet.
            CompileError: they cannot be.
        """
        for name, size in self.sizes.items():
            formula = read_formula(name)
            if formula is None or not self.sizes.keys() >= set(names_in(formula)):
                continue
            found = size_of(formula, self.sizes.__getitem__)
            if not unify_dims(size, found):
                raise CompileError(f"the dimension '{name}' is {size} by {self.sources[name]}, but not {found}")

    def bind(self, name: str, size: Dimension, source: str) -> None:
        """Let a variable stand for a size.

        Raises:
            CompileError: it stands for another one already.
        """
        other = self.sizes.setdefault(name, size)
        first = self.sources.setdefault(name, source)
        if other != size and name not in self.loose:
            raise CompileError(f"the dimension '{name}' is {other} by {first}, but {size} by {source}")


def _dynamic_size(name: str, axis: int) -> DynamicSize:
    """Returns the range of a dimension whose size is not given."""
    return DynamicSize(minimum=0 if may_be_empty(name, axis) and read_formula(name) is None else 1)


def bind_inputs(
    infos: Iterable[ValueInfo],
    shape: Mapping[str, Any] | None,
    values: Mapping[str, Any] | None,
    refinement: Refinement,
) -> tuple[dict[str, Border], DimensionVariables]:
    """Find the shapes of all inputs. Dimensions that are not known stay open.

    Args:
        infos: the inputs as declared.
        shape: shapes of inputs and sizes of dimension variables, by name; of a sequence the shapes of its elements,
            and None for an optional input that is not there.
        values: inputs whose values are known at compile time, by name.
        refinement: what is known of dynamic dimensions.

    Returns:
        What stands for each input, and the sizes of the dimension variables.

    Raises:
        CompileError: names that are neither, sizes that contradict each other, inputs whose rank is not known.
    """
    inputs = {info.name: info for info in infos}
    variables = dict.fromkeys(name for info in inputs.values() for name in _variables(info.type))  # in their order
    shape, values = _by_single_names(shape or {}, {*inputs, *variables}), dict(values or {})
    known = [*inputs, *sorted(variables)]
    counts: dict[str, DynamicSize] = {}
    for name in (*shape, *values):
        if name in values and name not in inputs:
            raise no_such_name(name, list(inputs), "input")
        if name not in inputs and name not in variables:
            size = _single_size(shape[name])
            if size is None or get_close_matches(name, known, 1):
                raise no_such_name(name, known)
            counts[name] = size  # perhaps of a data-dependent size
    likely = likely_sizes(tensor for info in inputs.values() for tensor in _tensors(info))
    symbols = DimensionVariables(opened=DynamicDimensions(refinement, likely), counts=counts)
    for name in variables:
        if name in shape and name not in inputs:
            sizes = _sizes(shape[name], f"the dimension '{name}'", symbols, [name])
            if len(sizes) != 1:
                raise CompileError(
                    f"the dimension '{name}' needs one size, {len(sizes)} are given",
                    hint=f"such as --shape {name}=1; whole shapes are for inputs: {', '.join(inputs)}",
                )
            symbols.bind(name, sizes[0], "what is given for it")
    for name, info in inputs.items():
        if name in values:
            _bind_value(info.type, values[name], f"the input '{name}'", symbols)
        elif name in shape and shape[name] is not None:
            _bind_shape(info.type, shape[name], name, f"the input '{name}'", symbols)
    for name, info in inputs.items():
        if name not in values:
            _refuse_map(info)
    unknown = [text for name, info in inputs.items() if name not in values for text in _unknown(info, shape)]
    if unknown:
        option = shape_option(
            tensor
            for name, info in inputs.items()
            if name not in {*shape, *values}
            for tensor in _tensors(info)
            if tensor.shape is None
        )
        raise CompileError(
            f"the shapes of inputs are not known: {'; '.join(unknown)}",
            hint=f"give them, with numbers of your own: {option}" if option else _NOT_BY_OPTION,
        )
    return {
        name: _border(info, name in shape, shape.get(name), values, symbols) for name, info in inputs.items()
    }, symbols


def no_such_name(name: str, known: Sequence[str], kind: str = "input and no dimension") -> CompileError:
    """An error about a name that a user gives, to be raised."""
    close = get_close_matches(name, known, 1)
    return CompileError(
        f"the model has no {kind} '{name}'",
        hint=f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(known) or 'none'}",
    )


def _single_size(given: Any) -> DynamicSize | None:
    """A size, or a range of sizes, that a user gives for a name; None for whole shapes."""
    elements = tuple(given) if isinstance(given, Iterable) else (given,)
    match elements:
        case (DynamicSize() as size,):
            return size
        case (int() as size,) if size > 0:
            return DynamicSize(size, size)
    return None


def _by_single_names(shape: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    """`height,width=64` for two dimensions, unless there is one of this very name."""
    made: dict[str, Any] = {}
    for name, given in shape.items():
        parts = name.split(",")
        for each in parts if name not in known and known.issuperset(parts) else [name]:
            if each in made:
                raise CompileError(f"the dimension '{each}' is given twice", hint="give each size once")
            made[each] = given
    return made


def item_variables(infos: Iterable[ValueInfo]) -> set[str]:
    """The dimension variables in the types of sequences."""
    types = (info.type.element if isinstance(info.type, OptionalType) else info.type for info in infos)
    return {name for type_ in types if isinstance(type_, SequenceType) for name in _variables(type_)}


def _variables(type_: Type | None) -> Iterator[str]:
    match type_:
        case OnnxTensorType(shape=shape):
            yield from (size for size in shape or () if isinstance(size, str))
        case SequenceType(element) | OptionalType(element) | MapType(element=element):
            yield from _variables(element)


def _sizes(
    given: Any, what: str, symbols: DimensionVariables | None = None, names: Sequence[str] = ()
) -> tuple[Dimension, ...]:
    """Returns the sizes that a user gives; dynamic ones get these names."""
    elements = tuple(given) if isinstance(given, Iterable) else (given,)
    if symbols is not None:
        pairs = zip(elements, (*names, *(f"{what}_{axis}" for axis in range(len(names), len(elements)))), strict=False)
        elements = tuple(
            symbols.opened.size(name, element) if isinstance(element, DynamicSize) else element
            for element, name in pairs
        )
    if not all(
        isinstance(element, Size) or (isinstance(element, int | np.integer) and element >= 0) for element in elements
    ):
        raise CompileError(f"the sizes of {what} must be integers, and not negative: {given!r}")
    lengths = tuple(element if isinstance(element, Size) else int(element) for element in elements)
    if is_known(*lengths) and math.prod(lengths) > MAX_ELEMENTS:
        raise CompileError(f"{what} has {math.prod(lengths):,} elements, a tensor may have {MAX_ELEMENTS:,}")
    return lengths


def _names(declared: tuple[DeclaredSize, ...] | None, name: str, given: Any) -> list[str]:
    """Names for the dimensions of an input: those that the model has, or that of the input with a number."""
    count = len(tuple(given)) if isinstance(given, Iterable) else 1
    known = [*(declared or ()), *(None,) * count][:count]
    return [size if isinstance(size, str) else axis_name(name, axis) for axis, size in enumerate(known)]


def _bind_shape(type_: Type | None, given: Any, name: str, what: str, symbols: DimensionVariables) -> None:
    match type_:
        case OptionalType(element):
            _bind_shape(element, given, name, what, symbols)
        case SequenceType(element):
            for index, part in enumerate(given):
                # Variables of elements bind nothing: onnx's own models use them for elements of many sizes.
                _bind_shape(element, part, name, f"element {index} of {what}", DimensionVariables())
        case OnnxTensorType(shape=declared):
            sizes = _sizes(given, what, symbols, _names(declared, name, given))
            try:
                unify(declared, sizes, what, symbols)
            except CompileError as error:
                shape = ", ".join("?" if size is None else str(size) for size in declared or ())
                raise CompileError(error.message, hint=f"the model declares it as [{shape}]") from None


def _bind_value(type_: Type | None, given: Any, what: str, symbols: DimensionVariables) -> None:
    match type_:
        case OptionalType(element) if given is not None:
            _bind_value(element, given, what, symbols)
        case SequenceType(element):
            for index, part in enumerate(given):
                _bind_value(element, part, f"element {index} of {what}", DimensionVariables())
        case OnnxTensorType(shape=declared):
            unify(declared, _regular(given, what).shape, what, symbols)


def _regular(given: Any, what: str) -> Array:
    """Converts the values that a user gives to an array.

    Raises:
        CompileError: lists of different lengths stand next to each other.
    """
    try:
        return np.asarray(given)
    except ValueError as error:
        raise CompileError(f"the values of {what} do not form a tensor: lists in them differ in length") from error


def unify(
    declared: tuple[DeclaredSize, ...] | None, found: tuple[int, ...], what: str, symbols: DimensionVariables
) -> None:
    """Check a shape against the declared one, and bind the dimension variables in that.

    Raises:
        CompileError: they differ in the rank, in a size, or in the size of a variable.
    """
    if declared is None:
        return
    if len(declared) != len(found):
        raise CompileError(f"{what} is declared with the rank {len(declared)}, {list(found)} has the rank {len(found)}")
    for axis, (size, actual) in enumerate(zip(declared, found, strict=True)):
        if isinstance(size, str):
            symbols.bind(size, actual, f"axis {axis} of {what}")
        elif size is not None and size != actual:
            raise CompileError(f"{what} is declared with {size} at axis {axis}, {list(found)} has {actual}")


def _refuse_map(info: ValueInfo) -> None:
    """Maps, and sequences of them, cannot go in: a library takes tensors."""
    element = info.type.element if isinstance(info.type, SequenceType) else info.type
    if info.type is not None and isinstance(element, MapType):
        raise CompileError(
            f"the input '{info.name}' is {spelled(info.type)}, which a library cannot take",
            hint="let the program put the values in a row, at the positions of their keys in the node "
            "DictVectorizer, and "
            "cut the model behind this node with onnx.utils.extract_model; a map that is always the same is given in "
            f"Python: nnefc.compile(…, values={{{info.name!r}: {{…}}}})",
        )


def _unknown(info: ValueInfo, given: Mapping[str, Any]) -> list[str]:
    """Describes what is missing to determine an input's shape."""
    match info.type:
        case None:
            return [f"'{info.name}' has no type"]
        case OnnxTensorType(shape=declared) | OptionalType(OnnxTensorType(shape=declared)):
            if info.name in given:
                return []
            return [f"'{info.name}' has no declared shape"] if declared is None else []
        case SequenceType() | OptionalType(SequenceType()):
            return [] if info.name in given else [f"the elements of the sequence '{info.name}'"]
    return [f"'{info.name}' is {spelled(info.type)}, which a library cannot take"]


_NOT_BY_OPTION = "give the shapes of a sequence's elements in Python: nnefc.compile(…, shape={NAME: [(1, 3), (1, 5)]})"


def _tensors(info: ValueInfo) -> Iterator[DynamicTensor]:
    """The tensor that an input is declared as, if it is one."""
    match info.type:
        case OnnxTensorType(dtype, shape) | OptionalType(OnnxTensorType(dtype, shape)):
            yield DynamicTensor(info.name, dtype, shape)


def _border(
    info: ValueInfo, has_shape: bool, shape: Any, values: Mapping[str, Any], symbols: DimensionVariables
) -> Border:
    assert info.type is not None or info.name in values
    if info.name in values:
        return _known(info.type, values[info.name])
    if has_shape and shape is None:
        if not isinstance(info.type, OptionalType):
            raise CompileError(f"the input '{info.name}' is not optional: it needs a shape")
        return Absent(_dtype(info.type))
    return _given(info.type, shape if has_shape else None, info.name, symbols)


def _given(type_: Type | None, shape: Any, name: str, symbols: DimensionVariables) -> Border:
    match type_:
        case OptionalType(element):
            return _given(element, shape, name, symbols)
        case SequenceType(element):
            return tuple(_given(element, part, f"{name}.{index}", symbols) for index, part in enumerate(shape))
        case OnnxTensorType(dtype, declared, False):
            if not dtype:
                raise CompileError(f"the input '{name}' has no declared element type")
            sizes = shape if shape is not None else symbols.keep_dynamic(declared or (), name)
            names = _names(declared, name, sizes)
            return Leaf(name, _sizes(sizes, f"the input '{name}'", symbols, names), dtype)
    raise CompileError(f"the input '{name}' is {spelled(type_) if type_ else 'untyped'}, which a library cannot take")


def _known(type_: Type | None, given: Any) -> Border:
    match type_:
        case OptionalType(element):
            return Absent(_dtype(type_)) if given is None else _known(element, given)
        case SequenceType(element):
            return tuple(_known(element, part) for part in given)
        case OnnxTensorType(dtype):
            return Value.known(_array(given, dtype))
        case MapType(key, element):
            return Map({_key(name, key): _array(value, _dtype(element))[()] for name, value in _pairs(given)})
    return Value.known(np.asarray(given))


def _pairs(given: Any) -> Iterable[tuple[Any, Any]]:
    if not isinstance(given, Mapping):
        raise CompileError(f"the value {given!r} of a map is no dictionary")
    return given.items()


def _key(given: Any, dtype: str) -> int | str:
    if not isinstance(given, str if dtype == "string" else int):
        raise CompileError(f"the key {given!r} of a map is not of type {dtype}")
    key: int | str = given
    return key


def _array(given: Any, dtype: str) -> Array:
    array = np.asarray(given)
    if not dtype or array.dtype == numpy_dtype(dtype):
        return array
    if array.dtype.kind in "SU" and dtype != "string":
        raise CompileError(f"the values {given!r} are not of type {dtype}")
    with np.errstate(all="ignore"):
        try:
            converted = array.astype(numpy_dtype(dtype))
        except (ValueError, TypeError) as error:
            raise CompileError(f"the values {given!r} are not of type {dtype}") from error
    same = array.dtype.kind in "OSU" or bool((converted.astype(array.dtype) == array).all())
    if not same and array.dtype.kind != "f":
        raise CompileError(f"the values {given!r} are not of type {dtype}")
    return converted


def _dtype(type_: Type) -> str:
    match type_:
        case OnnxTensorType(dtype):
            return dtype
        case SequenceType(element) | OptionalType(element) | MapType(element=element):
            return _dtype(element)


def check_declared(
    value: AnyValue, info: ValueInfo, symbols: DimensionVariables, what: str, *, strict: bool, inside: bool = False
) -> None:
    """Check a computed value against the type that the file declares for its name.

    A shape that differs is noted in `symbols`: exporters write wrong ones, and nothing depends on them.

    Args:
        strict: whether dimension variables must have one size here too; in a loop's body they need not.

    Raises:
        CompileError: the kinds or the element types differ.
    """
    match info.type, value:
        case OnnxTensorType(dtype, shape), Value():
            if dtype and dtype != value.dtype:
                text = f"'{info.name}' is declared as {dtype}, but it is {value.dtype}"
                if not inside:
                    raise CompileError(f"{what}: {text}")
                symbols.contradictions.setdefault(info.name, text)
            if strict or (shape is not None and len(shape) != value.rank):
                try:
                    unify(_possible(shape, value.shape, symbols), value.shape, f"'{info.name}'", symbols)
                except CompileError as error:
                    symbols.contradictions.setdefault(info.name, error.message)
        case (SequenceType(), TensorSequence() | Stacked()) | (OptionalType(), Optional()) | (None, _):
            return
        case (SequenceType(MapType()) | MapType(), Value()):
            return  # of ZipMap: the values of its maps
        case (OptionalType(element), _):
            check_declared(value, ValueInfo(info.name, element), symbols, what, strict=strict, inside=inside)
        case (OnnxTensorType() | SequenceType(), _):
            raise CompileError(f"{what}: '{info.name}' is declared as {spelled(info.type)}, but it is a {_kind(value)}")


def _possible(
    declared: tuple[DeclaredSize, ...] | None, found: tuple[Dimension, ...], symbols: DimensionVariables
) -> tuple[DeclaredSize, ...] | None:
    """Returns a declared shape without the sizes that a dynamic size of the input may turn out to have."""
    if declared is None or len(declared) != len(found):
        return declared
    wanted = (symbols.sizes.get(stated) if isinstance(stated, str) else stated for stated in declared)
    return tuple(
        None if other is not None and _may_be(size, other) else stated
        for stated, size, other in zip(declared, found, wanted, strict=True)
    )


def _may_be(size: Dimension, other: Dimension) -> bool:
    """Returns whether a dynamic size may be a number; or a size that it is never less than, or never greater than."""
    if is_known(size):
        return False
    if is_known(other):
        return bounds(size)[0] <= other <= bounds(size)[1]
    if known_less(size, other) or known_less(other, size):
        return False
    return size in (greatest(size, other), minimum(size, other))


def _kind(value: AnyValue) -> str:
    return "tensor" if isinstance(value, Value) else type(value).__name__.lower()
