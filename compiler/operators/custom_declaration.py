"""Reads the declaration of a custom operator's inputs and attributes, and binds them to those of a model."""

from __future__ import annotations

import inspect
import traceback
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from tvm import relax

from nnefc.operators.base import Emitter, Operand, Operator, Shape, check_size, shape_of
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Size, known_less

__all__ = ["Attribute", "Custom", "DeclaredOperator", "Input"]


@dataclass(frozen=True)
class Input:
    """An input: a parameter of `lower`."""

    name: str
    optional: bool
    variadic: bool


@dataclass(frozen=True)
class Attribute:
    """An attribute: a field.

    Attributes:
        type: of a value, or of the elements of a tuple.
        repeated: whether it is a tuple.
        default: `dataclasses.MISSING` if it must be given.
    """

    name: str
    type: type
    repeated: bool
    default: Any

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is MISSING

    @property
    def spelled(self) -> str:
        """Its type, as the class has it."""
        name = "np.ndarray" if self.type is np.ndarray else self.type.__name__
        return f"tuple[{name}, ...]" if self.repeated else name


@dataclass(frozen=True)
class DeclaredOperator:
    """A registered operator: its class, and what the class says of inputs and attributes.

    Attributes:
        fragment: its declaration in NNEF, if the registration has it.
        registry: which documents of tract's dialect must name to call it; empty: they need not.
    """

    kind: type[Operator]
    inputs: tuple[Input, ...]
    attributes: tuple[Attribute, ...]
    fragment: str = ""
    registry: str = ""

    @classmethod
    def of(cls, kind: type[Operator]) -> DeclaredOperator:
        """The operator of a class, a dataclass.

        Raises:
            CompileError: the class is not as it must be.
        """
        return cls(kind, _inputs(kind), _attributes(kind))

    def operands(self, given: Sequence[Any]) -> list[Any]:
        """The inputs of a node for `lower`, None for those that are left out.

        Raises:
            CompileError: there are too many of them, or one is missing.
        """
        single = [formal for formal in self.inputs if not formal.variadic]
        if len(given) > len(single) == len(self.inputs):
            raise CompileError(f"the operator has {len(single)} inputs, the model gives it {len(given)}")
        filled = [*given, *(None,) * (len(single) - len(given))]
        for formal, operand in zip(single, filled, strict=False):
            if operand is None and not formal.optional:
                raise CompileError(f"its input '{formal.name}' is missing")
        return filled

    @property
    def has_shape(self) -> bool:
        """Whether the class has a rule for shapes."""
        return self.kind.shape is not Operator.shape

    def make(self, values: Mapping[str, Any]) -> Custom:
        """The operator with the values of its attributes that a model gives.

        Raises:
            CompileError: an attribute is missing, unknown, or of another type; the caller that lowers the node adds its
                position.
        """
        known = {attribute.name: attribute for attribute in self.attributes}
        for name in values:
            if name not in known:
                close = get_close_matches(name, known, 1)
                raise CompileError(
                    f"the registered operator {self.kind.__name__} has no attribute '{name}'",
                    hint=f"did you mean '{close[0]}'?" if close else f"it has {', '.join(known) or 'none'}",
                )
        for attribute in self.attributes:
            if attribute.required and attribute.name not in values:
                raise CompileError(f"the attribute '{attribute.name}' is missing")
        given = {name: _converted(known[name], value) for name, value in values.items()}
        return Custom(self, self.call(lambda: self.kind(**given), "failed"))

    def call(self, made: Callable[[], Any], what: str) -> Any:
        """Calls user code, and adds the location to its errors."""
        try:
            return made()
        except CompileError:
            raise
        except Exception as error:
            position = _position(error, inspect.getfile(self.kind))
            raise CompileError(
                f"the registered operator {self.kind.__name__} {what}: {_reason(error)}{position}"
            ) from error


@dataclass(frozen=True, eq=False)
class Custom(Operator, listed=False):
    """A user's operator with the values of its attributes, and checked; its results are a tuple."""

    declared: DeclaredOperator
    operator: Operator

    @property
    def _name(self) -> str:
        return self.declared.kind.__name__

    def shape(self, *shapes: Shape | None) -> tuple[Shape, ...]:
        """What the user's rule says of the results.

        Raises:
            CompileError: there is no rule, it refuses the shapes, or what it says is no shape.
        """
        if not self.declared.has_shape:
            raise CompileError(
                f"the registered operator {self._name} has no rule for shapes, which is needed here",
                hint="give its class a method: def shape(self, x): return x",
            )
        made = self.declared.call(lambda: self.operator.shape(*shapes), "has no shape for these inputs")
        several = (
            isinstance(made, tuple) and len(made) > 0 and all(isinstance(element, tuple | list) for element in made)
        )
        found = made if several else (made,)
        for shape in found:
            if not isinstance(shape, tuple | list) or not all(isinstance(size, int | Size) for size in shape):
                raise CompileError(f"the rule for shapes of {self._name} says {made!r}, which is no shape")
        return tuple(check_size(tuple(shape)) for shape in found)

    def lower(self, ctx: Emitter, *operands: Operand | None) -> tuple[Operand, ...]:
        """The results, bound.

        Raises:
            CompileError: the operator refuses its operands, or what it makes is not what its own rule says.
        """
        made = self.declared.call(lambda: self.operator.lower(ctx, *operands), "failed")
        results = tuple(made) if isinstance(made, tuple | list) else (made,)
        for result in results:
            if not isinstance(result, np.ndarray | relax.Expr):
                raise CompileError(
                    f"'lower' of the registered operator {self._name} returns {type(result).__name__}",
                    hint="it returns an expression of Relax, an array, or a tuple of these",
                )
        bound: tuple[Operand, ...] = self.declared.call(lambda: tuple(map(ctx.bound, results)), "failed")
        if self.declared.has_shape:
            declared_shape = self.shape(*(None if operand is None else shape_of(operand) for operand in operands))
            found = tuple(map(shape_of, bound))
            if len(declared_shape) != len(found) or any(map(_differ, declared_shape, found)):
                raise CompileError(
                    f"the registered operator {self._name} makes {_listed(found)}, its rule for shapes says "
                    f"{_listed(declared_shape)}"
                )
        return bound


def _differ(one: Shape, other: Shape) -> bool:
    """Returns whether two shapes are never the same."""
    if len(one) != len(other):
        return True
    return any(known_less(a, b) or known_less(b, a) for a, b in zip(one, other, strict=True))


def _position(error: Exception, file: str) -> str:
    """Where in a user's file an error came from."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" ({Path(file).name}, line {lines[-1]})" if lines else ""


def _reason(error: Exception) -> str:
    """What an error says, in a line: TVM's reasons come last, after a trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__


def _listed(shapes: Sequence[Shape]) -> str:
    return " and ".join(str(list(shape)) for shape in shapes)


def _inputs(kind: type[Operator]) -> tuple[Input, ...]:
    if kind.lower is Operator.lower:
        raise CompileError(
            f"the operator {kind.__name__} has no method 'lower'", hint="def lower(self, at, x): return …"
        )
    parameters = list(inspect.signature(kind.lower).parameters.values())[2:]  # after itself and the emitter
    wrong = next((p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD)), None)
    if wrong is not None:
        raise CompileError(
            f"'lower' of the operator {kind.__name__} has the parameter '{wrong.name}', which is no input",
            hint="attributes are fields of the class",
        )
    return tuple(Input(p.name, p.default is None, p.kind is p.VAR_POSITIONAL) for p in parameters)


def _attributes(kind: type[Operator]) -> tuple[Attribute, ...]:
    try:
        hints = typing.get_type_hints(kind)
    except Exception as error:
        raise CompileError(f"the types of the attributes of {kind.__name__} are not known: {error}") from error
    return tuple(
        _attribute(kind, element.name, hints[element.name], element) for element in fields(typing.cast(Any, kind))
    )


_SCALARS = (bool, int, float, str)


def _attribute(kind: type, name: str, hint: Any, element: Any) -> Attribute:
    default = element.default_factory() if element.default_factory is not MISSING else element.default
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) or _is_union(hint) else (hint,)
    (hint, *others) = [option for option in options if option is not type(None)] or [None]
    element_types = typing.get_args(hint) if typing.get_origin(hint) is tuple else ()
    if not others and len(element_types) == 2 and element_types[1] is Ellipsis and element_types[0] in _SCALARS:
        return Attribute(name, element_types[0], True, default)
    base_type = np.ndarray if typing.get_origin(hint) is np.ndarray else hint
    if others or base_type not in (*_SCALARS, np.ndarray):
        raise CompileError(
            f"the attribute '{name}' of the operator {kind.__name__} has the type {hint}",
            hint="it may be bool, int, float, str, np.ndarray, or a tuple such as tuple[int, ...]",
        )
    return Attribute(name, base_type, False, default)


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) is typing.Union


def _converted(attribute: Attribute, value: Any) -> Any:
    """The value of a file as the class has it.

    Raises:
        CompileError: it is of another type.
    """
    if value is None and attribute.default is None:
        return None
    if not attribute.repeated:
        return _scalar(attribute, value)
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise _wrong(attribute, value)
    return tuple(_scalar(attribute, element) for element in value)


def _scalar(attribute: Attribute, value: Any) -> Any:
    kind = attribute.type
    if kind is np.ndarray and isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    whole = isinstance(value, int)
    if kind is bool and whole and value in (0, 1):
        return bool(value)
    if kind is int and whole and not isinstance(value, bool):
        return value
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind is str and isinstance(value, str):
        return value
    raise _wrong(attribute, value)


def _wrong(attribute: Attribute, value: Any) -> CompileError:
    shown = repr(value) if len(repr(value)) < 80 else type(value).__name__
    return CompileError(f"the attribute '{attribute.name}' must be of the type {attribute.spelled}, it is {shown}")
