"""Builds a document from invocations of declared operations, each checked as if it had been read.

Every invocation is checked as one that is read: against its operation's signature, and by its shape rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
from tvm import relax
from tvm.ir import GenericConst

from nnefc.frontends.nnef import operations as _operations  # noqa: F401  (fills STANDARD)
from nnefc.frontends.nnef.declarations import (
    MISSING,
    STANDARD,
    Arguments,
    Dialect,
    Operation,
    Shape,
    ShapeError,
    Tensor,
)
from nnefc.frontends.nnef.flat import Invocation
from nnefc.frontends.nnef.language.types import ArrayType, TensorType, Type
from nnefc.operators.dtypes import FLOAT16_TYPES
from nnefc.support.diagnostics import Location
from nnefc.symbolic.dims import is_known

__all__ = ["Document", "Unsayable", "Value", "content_of"]

Array: TypeAlias = npt.NDArray[Any]
Value: TypeAlias = "Tensor | float | int | bool"
"""An argument of an invocation in place of a tensor: a tensor of the document, or a number for a scalar."""

Operand: TypeAlias = "Array | relax.Expr | Value"

_NOWHERE = Location("", 0, 0)
_CONTENTS = {"float32": "scalar", "bool": "logical"}
_INTEGERS = frozenset({"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"})
_MAX_DIMENSIONS = 8
_FEW = 64
"""Elements of constants that are one variable where their values are equal."""

_INT32 = np.iinfo(np.int32)


class Unsayable(Exception):
    """Why something of a network cannot be written.

    Attributes:
        reason: a clause without a location, such as "NNEF has no operation 'Erf'".
        location: in the model, once it is known.
        no_rule: whether there is no rule for an operator, which may be made of others that have one.
    """

    def __init__(self, reason: str, location: str = "", *, no_rule: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.location = location
        self.no_rule = no_rule


def content_of(dtype: str) -> str:
    """The content of tensors of an element type: "scalar", "integer" or "logical".

    Raises:
        Unsayable: NNEF has none.
    """
    content = "integer" if dtype in _INTEGERS else _CONTENTS.get(dtype)
    if content is None:
        raise Unsayable(f"NNEF has no tensors of {dtype}: its scalars are 32-bit floats")
    return content


@dataclass
class Document:
    """A document that is being written.

    Attributes:
        invocations: in order.
        values: what is written for variables of Relax, or why nothing can be.
        variables: the values of variables, by their tensors.
        hints: what tensors may be called.
        named: what the model calls them.
        hint: what those that are made now should be called.
        constant_name: what the model calls a constant.
        rules: how operators of the library are written, by their kinds.
    """

    invocations: list[Invocation] = field(default_factory=list)
    values: dict[relax.Expr, Value | list[Tensor] | Unsayable] = field(default_factory=dict)
    variables: dict[Tensor, Array] = field(default_factory=dict)
    hints: dict[Tensor, str] = field(default_factory=dict)
    named: dict[Tensor, str] = field(default_factory=dict)
    hint: str = ""
    constant_name: Callable[[Array], str | None] = lambda _: None
    rules: Mapping[type, Callable[..., Any]] = field(default_factory=dict)
    has_widths: ClassVar[bool] = False
    """Whether integers have the width of their element type."""
    takes_symbols: ClassVar[bool] = False
    """Whether sizes that are open can be written as they are."""
    _constants: dict[object, tuple[Array, Tensor]] = field(default_factory=dict)

    def value(self, operand: Operand) -> Value:
        """Return the argument for an operand; constants without dimensions are numbers.

        Raises:
            Unsayable: it could not be written.
        """
        if isinstance(operand, GenericConst):
            operand = operand.value.numpy()
        if isinstance(operand, np.ndarray):
            return self.constant(operand)
        if not isinstance(operand, relax.Expr):
            return operand
        found = self.values.get(operand)
        if found is None:
            raise Unsayable("it uses a value that was not written")
        if isinstance(found, Unsayable):
            raise Unsayable(found.reason, found.location)
        assert not isinstance(found, list)
        return found

    def tensor(self, operand: Operand) -> Tensor:
        """The same as a tensor, also of a number."""
        value = self.value(operand)
        if isinstance(value, Tensor):
            return value
        return self.variable(np.array(value, np.float32 if isinstance(value, float) else None))

    def constant(self, array: Array) -> Value:
        """A number, or a variable with the values in its file."""
        if array.ndim == 0 and self.is_number(array) and (array.dtype.kind != "f" or np.isfinite(array)):
            return _number(array, self.content_of(str(array.dtype)))
        return self.variable(array)

    def variable(self, array: Array) -> Tensor:
        """A variable with these values; one for all that are the same array."""
        key: object = (str(array.dtype), array.shape, array.tobytes())
        if array.size > _FEW:
            key = (array.__array_interface__["data"][0], array.shape, array.strides, str(array.dtype))
        if key not in self._constants:
            content = self.content_of(str(array.dtype))
            if 0 in array.shape:
                raise Unsayable(f"NNEF has no tensors without elements, such as one of the shape {list(array.shape)}")
            if array.ndim > _MAX_DIMENSIONS:
                raise Unsayable(f"files of NNEF hold at most {_MAX_DIMENSIONS} dimensions, not {array.ndim}")
            stored = self.stored(array)
            # The label is given when all are known.
            made = self.call("variable", content=content, shape=list(array.shape), label="")
            self.variables[made] = stored
            self.hints[made] = f"{self.hint}_constant"
            self._constants[key] = (array, made)
        found = self._constants[key][1]
        name = self.constant_name(array)
        if name is not None:
            self.named.setdefault(found, name)
        return found

    def converted_constant(self, operand: Operand, dtype: str) -> Tensor | None:
        """Returns a float32 variable that stands for a conversion of a constant of 16-bit floats; None for others."""
        array = operand.value.numpy() if isinstance(operand, GenericConst) else operand
        if not isinstance(array, np.ndarray) or str(array.dtype) not in FLOAT16_TYPES or dtype != "float32":
            return None
        return self.variable(array.astype(np.float32))

    def coded(self, codes: Array) -> Tensor:
        """A variable of scalars whose file has integers that stand for them."""
        made: Tensor = self.call("variable", content="scalar", shape=list(codes.shape), label="")
        self.variables[made] = codes
        self.hints[made] = self.hint
        return made

    def content_of(self, dtype: str) -> str:
        """The content of tensors of an element type: "scalar", "integer" or "logical".

        Raises:
            Unsayable: NNEF has none.
        """
        return content_of(dtype)

    def is_number(self, array: Array) -> bool:
        """Returns whether an element may be written as a number."""
        return True

    def stored(self, array: Array) -> Array:
        """The values of a variable as its file has them."""
        return _narrow(array) if content_of(str(array.dtype)) == "integer" else array

    def is_logical(self, operand: Operand) -> bool:
        """Returns whether it is a tensor of booleans."""
        value = self.value(operand)
        return value.content in ("logical", "bool") if isinstance(value, Tensor) else isinstance(value, bool)

    def say(self, operator: object, *operands: Any) -> Any:
        """Writes an operator of the library by its rule, and returns its result.

        Raises:
            Unsayable: there is none, or it cannot say this.
        """
        rule = self.rules.get(type(operator))
        if rule is None:
            raise Unsayable(f"NNEF has no operation for {type(operator).__name__}", no_rule=True)
        return rule(self, operator, *operands)

    def external(self, dtype: str, shape: Shape) -> Tensor:
        """An input; 0 is written for a size that is open."""
        declared = STANDARD.lookup("external", Dialect.FINAL)
        assert declared is not None
        content = content_of(dtype)
        written = [size if isinstance(size, int) else 0 for size in shape]
        return self._invoked(declared, {"shape": written}, self._tensor(content, shape), content)

    def _invoked(self, declared: Operation, arguments: dict[str, Any], made: Tensor, content: str | None) -> Tensor:
        """Add an invocation of one result."""
        self._append(declared, arguments, {declared.signature.results[0].name: made}, content)
        return made

    def _append(
        self,
        declared: Operation,
        arguments: Mapping[str, Any],
        results: Mapping[str, Any],
        content: str | None = None,
    ) -> None:
        self.invocations.append(Invocation(declared, arguments, results, content, _NOWHERE))

    def state(self, initial: Array) -> Tensor:
        """A variable of its own, for a value that is updated."""
        content = self.content_of(str(initial.dtype))
        made: Tensor = self.call("variable", content=content, shape=list(initial.shape), label="")
        self.variables[made] = self.stored(initial)
        self.named[made] = self.hint
        return made

    def call(self, operation: str, /, **arguments: Any) -> Any:
        """Add an invocation of an operation of the standard.

        Args:
            arguments: tensors as operands, or lists of them; attributes as values. What is not given has its default.
                Besides, `content` is what `?` stands for, by default that of the first tensor.

        Returns:
            The result, or a list of them.

        Raises:
            Unsayable: the operation does not take these arguments.
        """
        declared = STANDARD.lookup(operation, Dialect.FINAL)
        assert declared is not None, operation
        given: dict[str, Any] = {}
        content = arguments.pop("content", "")
        for parameter in declared.signature.parameters:
            value = arguments.pop(parameter.name, parameter.default)
            assert value is not MISSING, (operation, parameter.name)
            if isinstance(parameter.type, TensorType):
                value = self.value(value)
                self._check_content(operation, parameter.type.content, value)
            elif isinstance(parameter.type, ArrayType) and isinstance(parameter.type.element, TensorType):
                value = [self.tensor(element) for element in value]
            else:
                self._check_known(operation, parameter.name, value)
            given[parameter.name] = value
        assert not arguments, (operation, arguments)
        if declared.signature.generic and not content:
            generic = (given[each.name] for each in declared.signature.parameters if _is_generic(each.type))
            content = _content(generic)
        return self._add(declared, given, content)

    def _add(self, declared: Any, given: Mapping[str, Any], content: str) -> Any:
        try:
            shapes = declared.shape(Arguments(given, content))
        except ShapeError as error:
            raise Unsayable(f"'{declared.name}' of NNEF does not take it: {error.message}") from None
        results: dict[str, Any] = {}
        for result in declared.signature.results:
            own = shapes[result.name] if isinstance(shapes, Mapping) else shapes
            kind = result.type.element if isinstance(result.type, ArrayType) else result.type
            assert isinstance(kind, TensorType)
            inside = self._result_content(kind.content, content, given)
            if isinstance(result.type, ArrayType):
                results[result.name] = [self._tensor(inside, shape) for shape in own]
            else:
                results[result.name] = self._tensor(inside, own)
        self._append(declared, given, results, content or None)
        made = list(results.values())
        return made[0] if len(made) == 1 else made

    def _check_content(self, operation: str, wanted: str, value: Value) -> None:
        held = value.content if isinstance(value, Tensor) else _content([value])
        if wanted not in ("", "?", held):
            raise Unsayable(f"'{operation}' of NNEF takes tensors of {wanted}s, here it is given {held}s")

    def _check_known(self, operation: str, parameter: str, value: Any) -> None:
        if not is_known(*_flat(value)):
            raise Unsayable(
                f"'{parameter}' of '{operation}' depends on a dynamic size, and NNEF has numbers only there"
            )

    def _result_content(self, declared: str, content: str, given: Mapping[str, Any]) -> str:
        """The content of a result, of the one that is declared and the one that `?` stands for."""
        return content if declared == "?" else declared

    def _tensor(self, content: str, shape: Shape) -> Tensor:
        made = Tensor(self.hint, content, tuple(shape), _NOWHERE)
        self.hints[made] = self.hint
        return made


def _number(array: Array, content: str) -> Value:
    """The number of an array without dimensions, written with as few digits as tell it from other 32-bit floats."""
    if array.dtype.kind == "b":
        return bool(array)
    if array.dtype.kind in "iu":
        return int(_narrow(array)) if content == "integer" else int(array)
    short = float(str(np.float32(array)))
    return short if np.float32(short) == array else float(array)


def _narrow(array: Array) -> Array:
    """Integers as NNEF's, which have no width of their own: here 32 bits at most.

    Raises:
        Unsayable: one needs more.
    """
    if array.dtype.itemsize < np.dtype(np.int32).itemsize or array.dtype == np.int32:
        return array
    if array.size and (array.min() < _INT32.min or array.max() > _INT32.max):
        raise Unsayable("a constant has integers of more than 32 bits")
    return array.astype(np.int32)


def _is_generic(kind: Type) -> bool:
    element = kind.element if isinstance(kind, ArrayType) else kind
    return isinstance(element, TensorType) and element.content == "?"


def _content(values: Any) -> str:
    """The content of the first tensor among arguments; of a number where there is no tensor."""
    flat: list[Any] = [element for value in values for element in (value if isinstance(value, list) else [value])]
    for value in flat:
        if isinstance(value, Tensor):
            return value.content
    first = flat[0]
    return "logical" if isinstance(first, bool) else "integer" if isinstance(first, int) else "scalar"


def _flat(value: Any) -> Sequence[Any]:
    return [element for part in value for element in _flat(part)] if isinstance(value, list | tuple) else [value]
