"""Declares operators: a function whose signature is the operator's interface.

    @operator("torch.flatten", "nn.Flatten")
    def _flatten(at: Lowering, input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Result: ...

Each argument may stand in the file as an operand, with its name or by its position, or as a parameter. Annotations are
the types: they are checked, and the documentation's table is made from them.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeAlias

import numpy as np
from tvm import relax

from nnefc.frontends.lazy_operators import LazyOperators
from nnefc.frontends.pnnx.lowering import Array, Shape, Tensor, dtype_of, shape_of
from nnefc.frontends.pnnx.operators import MODULES
from nnefc.frontends.pnnx.param import DTYPES, ParamOperator
from nnefc.support.diagnostics import CompileError, Location
from nnefc.symbolic.dims import Size

__all__ = [
    "OPERATORS",
    "DType",
    "Declaration",
    "Floats",
    "Indices",
    "Ints",
    "Number",
    "Result",
    "Sizes",
    "Tensors",
    "Weights",
    "arguments_of",
    "axis_of",
    "nearest",
    "operator",
]

Number: TypeAlias = int | float | bool
Result: TypeAlias = Any
"""The result of a lowering: a tensor, a number, or a sequence of results."""


class Ints(tuple[int, ...]):
    """A parameter that is one integer or several."""


class Sizes(tuple[int | None, ...]):
    """A parameter that is one size or several; None stands for one that stays as it is."""


class Floats(tuple[float, ...]):
    """A parameter that is one real or several."""


class Tensors(tuple[Tensor, ...]):
    """Any number of tensors: as several operands, or as one that is a sequence."""


class Indices(tuple[Tensor | None, ...]):
    """Indices of several dimensions; None stands for all of one."""


class DType(str):
    """The element type of tensors, in the spelling of NumPy."""


class Weights:
    """The tensors of an operator in the binary file. Asking for one checks its shape."""

    def __init__(self, operator: str, tensors: Mapping[str, Array]) -> None:
        self._operator = operator
        self._tensors = tensors

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str, shape: Sequence[int]) -> Array:
        """The tensor called `name`, which must have `shape`."""
        if name not in self._tensors:
            raise CompileError(f"the operator has no tensor '@{name}'")
        tensor = self._tensors[name]
        if tensor.shape != tuple(shape):
            raise CompileError(f"the tensor '@{name}' has the shape {list(tensor.shape)}, it should be {list(shape)}")
        return tensor

    def only(self) -> Array:
        """The tensor of an operator that has exactly one."""
        if len(self._tensors) != 1:
            raise CompileError(f"the operator should have one tensor, it has {len(self._tensors)}")
        return next(iter(self._tensors.values()))


@dataclass(frozen=True)
class Argument:
    """An argument of an operator; `types` are its annotation's alternatives, None's included."""

    name: str
    types: tuple[Any, ...]
    default: Any
    variadic: bool

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty and not self.variadic

    @property
    def operand(self) -> bool:
        """Whether it takes an operand by its position."""
        return self.variadic or any(kind in self.types for kind in (Tensor_, Tensors, Indices))


@dataclass(frozen=True)
class Declaration:
    """An operator: its name in the file, its family, its arguments and how it becomes Relax."""

    name: str
    family: str
    arguments: tuple[Argument, ...]
    weights: str | None
    lower: Callable[..., Result]
    fixed: Mapping[str, Any]
    limits: str

    @property
    def signature(self) -> str:
        """The arguments as the table shows them."""
        parts = []
        for argument in self.arguments:
            kind = " or ".join(_TYPE_NAMES[kind] for kind in argument.types if kind is not type(None))
            none = "?" if type(None) in argument.types else ""
            default = (
                ""
                if argument.required or argument.variadic or argument.default is None
                else f" = {_spell(argument.default)}"
            )
            parts.append(f"{argument.name}{'…' if argument.variadic else ''}: {kind}{none}{default}")
        return ", ".join(parts)


def _spell(value: Any) -> str:
    return repr(tuple(value)) if isinstance(value, tuple) else repr(value)


NATIVE = "aten::"
"""Begins the names of PyTorch's own instructions, which the converter leaves where it knows no operator."""

OPERATORS: LazyOperators[Declaration] = LazyOperators("nnefc.frontends.pnnx.operators", MODULES)

Tensor_ = np.ndarray  # the alternative of `Tensor` that stands for it among the types of an argument

_TYPE_NAMES = {
    np.ndarray: "tensor",
    relax.Expr: "tensor",
    Tensors: "tensors",
    Ints: "integers",
    Sizes: "optional integers",
    Floats: "reals",
    Indices: "indices",
    DType: "type",
    int: "integer",
    float: "real",
    bool: "boolean",
    str: "string",
}


def operator(*names: str, limits: str = "", **fixed: Any) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Declare operators that one function lowers.

    Args:
        names: such as `nn.Conv2d`.
        limits: what is not supported, one sentence for the table.
        fixed: arguments of the function that are none of the operator's, and their values.
    """

    def declare(function: Callable[..., Result]) -> Callable[..., Result]:
        hints = typing.get_type_hints(function)
        arguments, weights = [], None
        for parameter in list(inspect.signature(function).parameters.values())[1:]:
            if parameter.name in fixed:
                continue
            alternatives = _alternatives(hints[parameter.name])
            if Weights in alternatives:
                weights = parameter.name
                continue
            variadic = parameter.kind is inspect.Parameter.VAR_POSITIONAL
            arguments.append(Argument(parameter.name, alternatives, parameter.default, variadic))
        family = function.__module__.rpartition(".")[2]
        for name in names:
            made = Declaration(name, family, tuple(arguments), weights, function, fixed, limits)
            OPERATORS.declare(name, function.__module__, made)
        return function

    return declare


def _alternatives(hint: Any) -> tuple[Any, ...]:
    members = (
        typing.get_args(hint)
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
        else (hint,)
    )
    found: list[Any] = []
    for member in members:
        origin = typing.get_origin(member) or member
        if origin is np.ndarray or origin is relax.Expr:
            origin = Tensor_
        if origin not in found:
            found.append(origin)
    return tuple(found)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """A hint at the known name that is most like `name`."""
    close = get_close_matches(name[:80], list(known), 1, 0.6)
    return f"did you mean '{close[0]}'?" if close else None


# Binding.


def arguments_of(
    declaration: Declaration, operator: ParamOperator, operands: Sequence[Any], weights: Mapping[str, Array]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments for the lowering of an operator of the file: those by position and those by name.

    Raises:
        CompileError: an argument is missing, unknown, given twice or of the wrong type.
    """
    given: dict[str, tuple[Any, Location]] = {}
    variadic: list[Any] = []
    named = {operator.inputs[position]: name for name, position in operator.names.items()}
    by_name = {argument.name: argument for argument in declaration.arguments}
    taken = set(operator.names) | ({"input"} if _SPELLINGS & set(operator.names) else set())
    # What the converter leaves as an instruction, PyTorch's own or a library's, has all its arguments as operands.
    every = "::" in operator.type
    free = [a for a in declaration.arguments if (a.operand or every) and a.name not in taken]
    # Inputs with a name go where the name says; `$a=0 $b=0` names one operand twice.
    for name, position in operator.names.items():
        _give(given, by_name, operator, name, operands[position], operator.location)
    for name, operand in zip(operator.inputs, operands, strict=True):
        if name in named:
            continue
        if not free:
            raise CompileError(
                f"'{operator.type}' takes fewer operands than {len(operands)}", location=operator.location
            )
        if free[0].variadic:
            variadic.append(operand)
        else:
            given[free.pop(0).name] = (operand, operator.location)
    for name, parameter in operator.parameters.items():
        _give(given, by_name, operator, name, parameter.value, parameter.location)
    keywords: dict[str, Any] = dict(declaration.fixed)
    for argument in declaration.arguments:
        if argument.variadic:
            continue
        if argument.name in given:
            value, location = given[argument.name]
            keywords[argument.name] = _converted(argument, value, location)
        elif argument.required:
            raise CompileError(f"'{operator.type}' needs the argument '{argument.name}'", location=operator.location)
        else:
            keywords[argument.name] = argument.default
    if declaration.weights is not None:
        keywords[declaration.weights] = Weights(operator.name, weights)
    elif weights:
        raise CompileError(f"'{operator.type}' has no tensors of its own", location=operator.location)
    return variadic, keywords


def _give(
    given: dict[str, tuple[Any, Location]],
    known: Mapping[str, Argument],
    operator: ParamOperator,
    name: str,
    value: Any,
    location: Location,
) -> None:
    if name not in known and name in _SPELLINGS and "input" in known:
        name = "input"
    if name not in known or known[name].variadic:
        raise CompileError(
            f"'{operator.type}' has no argument '{name[:60]}' here", location=location, hint=nearest(name, known)
        )
    if name in given:
        raise CompileError(f"the argument '{name}' of '{operator.type}' is given twice", location=location)
    given[name] = (value, location)


def _converted(argument: Argument, value: Any, location: Location) -> Any:
    for kind in sorted(argument.types, key=_ORDER.index):
        found, converted = _CONVERSIONS[kind](value)
        if found:
            return converted
    wanted = " or ".join(_TYPE_NAMES[kind] for kind in argument.types if kind is not type(None))
    raise CompileError(f"the argument '{argument.name}' must be: {wanted}", location=location)


_SPELLINGS = frozenset({"self", "tensor"})
"""Names that PyTorch has for the input of some functions."""

_Conversion: TypeAlias = "Callable[[Any], tuple[bool, Any]]"


def _whole(value: Any) -> bool:
    if isinstance(value, Size):
        return True
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def _is_tensor(value: Any) -> bool:
    return isinstance(value, np.ndarray | relax.Expr)


def _ints(value: Any) -> tuple[bool, Any]:
    if _whole(value):
        return True, Ints((value,))
    good = isinstance(value, tuple | list) and all(_whole(element) for element in value)
    return good, Ints(value) if good else None


def _sizes(value: Any) -> tuple[bool, Any]:
    if value is None or _whole(value):
        return True, Sizes((value,))
    good = isinstance(value, tuple | list) and all(element is None or _whole(element) for element in value)
    return good, Sizes(value) if good else None


def _float(value: Any) -> tuple[bool, Any]:
    if _is_tensor(value):
        return False, None
    good = (isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1 << 1000) or value != value
    return (True, float(value)) if good or value in (float("inf"), float("-inf")) else (False, None)


def _floats(value: Any) -> tuple[bool, Any]:
    elements = value if isinstance(value, tuple | list) else (value,)
    good = all(_float(element)[0] for element in elements)
    return good, Floats(float(element) for element in elements) if good else None


def _tensors(value: Any) -> tuple[bool, Any]:
    if _is_tensor(value):
        return True, Tensors((value,))
    good = isinstance(value, tuple | list) and len(value) > 0 and all(_is_tensor(element) for element in value)
    return good, Tensors(value) if good else None


_TORCH_TYPES = {
    "float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32", "short": "int16",
    **{dtype: dtype for dtype in DTYPES.values() if dtype is not None and not dtype.startswith("complex")},
}  # fmt: skip


def _indices(value: Any) -> tuple[bool, Any]:
    if _is_tensor(value):
        return True, Indices((value,))
    good = isinstance(value, tuple | list) and all(element is None or _is_tensor(element) for element in value)
    return good, Indices(value) if good else None


def _dtype(value: Any) -> tuple[bool, Any]:
    name = str(value).removeprefix("torch.")
    return isinstance(value, str) and name in _TORCH_TYPES, _TORCH_TYPES.get(name)


_CONVERSIONS: Mapping[Any, _Conversion] = {
    type(None): lambda value: (value is None or value == (), None) if not _is_tensor(value) else (False, None),
    np.ndarray: lambda value: (_is_tensor(value), value),
    Tensors: _tensors,
    Indices: _indices,
    bool: lambda value: (isinstance(value, bool), value),
    int: lambda value: (_whole(value), value),
    Ints: _ints,
    Sizes: _sizes,
    float: _float,
    Floats: _floats,
    DType: _dtype,
    str: lambda value: (isinstance(value, str), value),
}
# In this order the alternatives of an annotation are tried: `()` is a list of no integers before it is None.
_ORDER: Sequence[Any] = (np.ndarray, Tensors, Indices, bool, int, Ints, Sizes, float, Floats, DType, str, type(None))


# What lowerings share.


def axis_of(axis: int, rank: int) -> int:
    """An axis, from the front; a tensor of rank 0 has the axes 0 and -1 too, as in PyTorch."""
    if not -max(rank, 1) <= axis < max(rank, 1):
        raise CompileError(f"there is no dimension {axis} in a tensor of rank {rank}")
    return axis % max(rank, 1)


def need_rank(tensor: Tensor, *ranks: int) -> Shape:
    """The shape of a tensor, which must have one of `ranks`."""
    shape = shape_of(tensor)
    if len(shape) not in ranks:
        wanted = " or ".join(map(str, ranks))
        raise CompileError(f"the input {list(shape)} has the rank {len(shape)}, it should be {wanted}")
    return shape


def need_real(tensor: Tensor) -> None:
    """Refuse integers and booleans."""
    if dtype_of(tensor) not in ("float16", "bfloat16", "float32", "float64"):
        raise CompileError(f"the input must be of reals, it is {dtype_of(tensor)}")


def spatial(values: Sequence[int], rank: int, name: str, minimum: int = 1) -> Shape:
    """Return a value for each of `rank` spatial dimensions, from as many values or a common one."""
    values = tuple(values) * rank if len(values) == 1 else tuple(values)
    if len(values) != rank:
        raise CompileError(f"'{name}' should have {rank} elements, it has {len(values)}")
    if any(not minimum <= value < 1 << 31 for value in values):
        raise CompileError(f"the elements of '{name}' must be at least {minimum}, they are {list(values)}")
    return values
