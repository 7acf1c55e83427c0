"""Writes documents in tract's dialect: all element types, symbols for dynamic sizes, `tract_core` operators.

extension tract_registry tract_core;
extension tract_symbol N;
…
    ids = tract_core_external(datum_type = 'i64', shape = [N, 128]);
    y = tract_core_erf(x);

Where the standard has an operation, it is written as in a standard document, but for those that tract lacks, or defines
in another way.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from nnefc.frontends.nnef import registries as _registries  # noqa: F401  (fills REGISTRIES)
from nnefc.frontends.nnef.declarations import MISSING, Dialect, Operation, Shape, Tensor
from nnefc.frontends.nnef.dynamic.registry import REGISTRIES
from nnefc.frontends.nnef.dynamic.values import DATUM_TYPES
from nnefc.frontends.nnef.language.types import ArrayType, TensorType
from nnefc.frontends.nnef.writing.data_movement import MODES, slice_ends
from nnefc.frontends.nnef.writing.document import Array, Document, Unsayable, Value
from nnefc.frontends.nnef.writing.products import window_arguments
from nnefc.frontends.nnef.writing.rules import RULES, Rule, reshaped, shape_of, transposed
from nnefc.operators.base import Operator
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.einsum import Einsum
from nnefc.operators.math.elementwise import Elementwise
from nnefc.operators.math.matrix import Triangle
from nnefc.operators.math.reduction import ArgMinMax, Product
from nnefc.operators.nn.activation import Elu, Gelu, Silu, Softmax
from nnefc.operators.nn.convolution import TransposedConvolution
from nnefc.operators.tensor.concatenation import Split
from nnefc.operators.tensor.creation import Arange
from nnefc.operators.tensor.indexing import Gather, GatherElements, GatherND, OneHot
from nnefc.operators.tensor.padding import Pad
from nnefc.operators.tensor.scatter import ScatterElements, ScatterND
from nnefc.operators.tensor.shape import Expand, Slice
from nnefc.operators.tensor.sorting import TopK
from nnefc.symbolic.dims import is_known

__all__ = ["TRACT_RULES", "TractDocument", "TractFragment", "tract_says"]

_NAMES = {dtype: name for name, dtype in DATUM_TYPES.items()}
_Function = TypeVar("_Function", bound=Rule)

_SPELLABLE = re.compile(r"[A-Za-z0-9_+\-*/ ()]+")


@dataclass(frozen=True, eq=False)
class TractFragment:
    """A fragment of a document: the body of a scan.

    Attributes:
        parameters, results: tensors of `body`, whose names are given.
        body: a document of its own.
    """

    name: str
    parameters: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    body: TractDocument


@dataclass
class TractDocument(Document):
    """A document in tract's dialect: the content of a tensor is its element type.

    Attributes:
        fragments: that its scans call.
        fixed: the names of tensors that are parameters or results of it, if it is the body of a fragment.
    """

    fragments: list[TractFragment] = field(default_factory=list)
    fixed: dict[Tensor, str] = field(default_factory=dict)

    def inside(self) -> TractDocument:
        """A document for the body of a fragment; constants are its own."""
        return TractDocument(constant_name=self.constant_name, rules=self.rules, fragments=self.fragments)

    def parameter(self, name: str, dtype: str, shape: Shape) -> Tensor:
        """A parameter of the fragment that this is the body of."""
        made = self._tensor(self.content_of(dtype), shape)
        self.fixed[made] = name
        return made

    def result(self, name: str, value: Value) -> Tensor:
        """A result of that fragment: a tensor that is no parameter, no variable and no other result."""
        tensor = self.tensor(value)
        if tensor in self.fixed or tensor in self.variables:
            tensor = self.call("copy", x=tensor)
        self.fixed[tensor] = name
        return tensor

    def scan(self, results: Sequence[tuple[str, Shape]], /, **arguments: Any) -> list[Tensor]:
        """Add a scan; each run begins again, as loops of networks do."""
        given = {**arguments, "skip": 0, "reset_every_turn": True, "external_state": False}
        made = [self._tensor(dtype, shape) for dtype, shape in results]
        self._append(_operation("tract_core_scan"), given, {"outputs": tuple(made) if len(made) > 1 else made[0]})
        return made

    def content_of(self, dtype: str) -> str:
        """The element type itself."""
        if dtype not in _NAMES:
            raise Unsayable(f"tract has no tensors of {dtype}")
        return dtype

    def stored(self, array: Array) -> Array:
        """Return the array unchanged."""
        return array

    def is_number(self, array: Array) -> bool:
        """Integers of documents are sizes, and reals have 32 bits."""
        return array.dtype == np.float32 or array.dtype == np.bool_

    has_widths = takes_symbols = True

    def external(self, dtype: str, shape: Shape) -> Tensor:
        """An input; dynamic sizes are symbols."""
        self._check_known("tract_core_external", "shape", list(shape))
        made = self._tensor(self.content_of(dtype), shape)
        arguments = {"datum_type": _NAMES[dtype], "shape": list(shape)}
        return self._invoked(_operation("tract_core_external"), arguments, made, None)

    def extension(self, name: str, results: Sequence[tuple[str, Shape]], /, **arguments: Any) -> Any:
        """Add an invocation of an operator of a registry.

        Args:
            results: element types and shapes.
            arguments: as for `call`.
        """
        declared = _operation(name)
        given: dict[str, Any] = {}
        for parameter in declared.signature.parameters:
            if parameter.name not in arguments:  # tract has its own defaults
                assert parameter.default is not MISSING, (name, parameter.name)
                continue
            value = arguments.pop(parameter.name)
            if isinstance(parameter.type, TensorType):
                value = self.value(value)
            elif isinstance(parameter.type, ArrayType) and isinstance(parameter.type.element, TensorType):
                value = [self.tensor(element) for element in value]
            else:
                self._check_known(name, parameter.name, value)
            given[parameter.name] = value
        assert not arguments, (name, arguments)
        made = [self._tensor(dtype, shape) for dtype, shape in results]
        names = [result.name for result in declared.signature.results]
        self._append(declared, given, dict(zip(names, made, strict=True)))
        return made[0] if len(made) == 1 else made

    def _check_content(self, operation: str, wanted: str, value: Value) -> None:
        held = value.content if isinstance(value, Tensor) else "bool" if isinstance(value, bool) else ""
        if wanted == "logical" and held != "bool":
            raise Unsayable(f"'{operation}' takes booleans, here it is given {held}")

    def _check_known(self, operation: str, parameter: str, value: Any) -> None:
        if isinstance(value, list | tuple):
            for element in value:
                self._check_known(operation, parameter, element)
        elif not is_known(value) and not _SPELLABLE.fullmatch(str(value)):
            raise Unsayable(f"'{parameter}' of '{operation}' depends on a dynamic size in a way that tract cannot say")

    def _result_content(self, declared: str, content: str, given: Mapping[str, Any]) -> str:
        if declared in ("logical", "integer"):
            return {"logical": "bool", "integer": "int64"}[declared]
        if declared == "?" and content:
            return content
        tensors = [element for value in given.values() for element in (value if isinstance(value, list) else [value])]
        contents = [tensor.content for tensor in tensors if isinstance(tensor, Tensor)]
        return next((content for content in contents if content != "bool"), "float32")


def _operation(name: str) -> Operation:
    """An operator of a registry as an operation of a flat graph."""
    operator = next(r.operators[name] for r in map(REGISTRIES.get, _REGISTRIES) if r and name in r.operators)
    return Operation(operator.declaration, frozenset({Dialect.PROVISIONAL}), lambda args: (), operator.lower)


_REGISTRIES = ("tract_core", "standard")

_FUNCTIONS = {
    "erf": "tract_core_erf",
    "round": "tract_core_round_even",
    "isnan": "tract_core_is_nan",
    "isinf": "tract_core_is_inf",
    "logical_xor": "tract_core_xor",
    "bitwise_and": "tract_core_bitand",
    "bitwise_or": "tract_core_bitor",
    "bitwise_xor": "tract_core_bitxor",
    "bitwise_not": "tract_core_bitnot",
    "left_shift": "tract_shl",
    "right_shift": "tract_shr",
}
_BOOLEANS = frozenset({"isnan", "isinf", "logical_xor"})

TRACT_RULES: dict[type[Operator], Rule] = {}
"""Rules for documents of tract's dialect, in place of the standard's or besides them."""


def tract_says(kind: type[Operator]) -> Callable[[_Function], _Function]:
    """Declare the rule of a kind of operator for documents of tract's dialect."""

    def declare(rule: _Function) -> _Function:
        TRACT_RULES[kind] = rule
        return rule

    return declare


@tract_says(Elementwise)
def _elementwise(document: TractDocument, operator: Elementwise, *operands: Any) -> Any:
    if operator.function == "reciprocal":
        value = document.tensor(operands[0])
        return document.extension("recip", [(value.content, value.shape)], x=value)
    name = _FUNCTIONS.get(operator.function)
    if name is None or len(operands) > 2:
        return RULES[Elementwise](document, operator, *operands)
    shape = operator.shape(*map(shape_of, operands))
    given = [document.tensor(_ranked(document, operand, len(shape))) for operand in operands]
    dtype = "bool" if operator.function in _BOOLEANS else given[0].content
    return document.extension(name, [(dtype, shape)], **dict(zip("xy", given, strict=False)))


def _ranked(document: Document, x: Any, rank: int) -> Any:
    shape = shape_of(x)
    return reshaped(document, x, (1,) * (rank - len(shape)) + tuple(shape)) if len(shape) < rank else x


@tract_says(Cast)
def _cast(document: TractDocument, operator: Cast, x: Any) -> Any:
    constant = document.converted_constant(x, operator.dtype)
    return _converted(document, document.tensor(x), operator.dtype) if constant is None else constant


def _converted(document: TractDocument, value: Tensor, dtype: str) -> Any:
    if value.content == document.content_of(dtype):
        return value
    return document.extension("tract_core_cast", [(dtype, value.shape)], input=value, to=_NAMES[dtype])


@tract_says(Gelu)
def _gelu(document: TractDocument, operator: Gelu, x: Any) -> Any:
    if operator.approximate:
        return RULES[Gelu](document, operator, x)
    value = document.tensor(x)
    inner = document.call("mul", x=value, y=math.sqrt(0.5))
    share = document.extension("tract_core_erf", [(value.content, value.shape)], x=inner)
    half = document.call("mul", x=value, y=0.5)
    return document.call("mul", x=half, y=document.call("add", x=share, y=1.0))


@tract_says(Softmax)
def _softmax(document: TractDocument, operator: Softmax, x: Any) -> Any:
    value = document.tensor(x)
    if not operator.logarithm:
        return RULES[Softmax](document, operator, value)
    return document.extension(
        "tract_core_log_softmax", [(value.content, value.shape)], x=value, axes=list(operator.axes)
    )


@tract_says(Split)
def _split(document: TractDocument, operator: Split, x: Any) -> Any:
    """tract has no `split`: slices."""
    value, made, axis = document.tensor(x), list[Any](), operator.axis
    first = 0
    for size in operator.sizes:
        if is_known(size) and size == 0:  # behind the last element: an end of 0 is that of the tensor
            end, shape = value.shape[axis], (*value.shape[:axis], 0, *value.shape[axis + 1 :])
            given = {"input": value, "axes": [axis], "begin": [end], "end": [end], "stride": [1]}
            made.append(document.extension("slice", [(value.content, shape)], **given))
            continue
        is_last = len(made) == len(operator.sizes) - 1
        if is_last and is_known(first) and first == 0:  # of which an end of 0 would leave nothing
            made.append(value)
            continue
        end = 0 if is_last else first + size
        made.append(document.call("slice", input=value, axes=[axis], begin=[first], end=[end], stride=[1]))
        first = first + size
    return made


@tract_says(TransposedConvolution)
def _deconvolution(document: TractDocument, operator: TransposedConvolution, x: Any, w: Any, bias: Any = None) -> Any:
    """The filter is `[outputs, inputs / groups, …]`; what lies beyond the last window is padded before the bias."""
    inputs, outputs, *taps = shape_of(w)
    groups, window = operator.groups, operator.window
    apart = reshaped(document, w, (groups, inputs // groups, outputs, *taps))
    permuted = transposed(document, apart, (0, 2, 1, *range(3, len(taps) + 3)))
    filters = reshaped(document, permuted, (groups * outputs, inputs // groups, *taps))
    kept = tuple((before, after - more) for (before, after), more in zip(window.padding, operator.beyond, strict=True))
    beyond = [max(0, -after) for _, after in kept]
    window = window.padded(tuple((before, max(0, after)) for before, after in kept))
    row = None if bias is None else document.tensor(reshaped(document, bias, (1, math.prod(shape_of(bias)))))
    whole = TransposedConvolution(window, groups, (0,) * window.rank, operator.border)
    value = document.tensor(x)
    made = document.extension(
        "deconv",
        [(value.content, whole.shape(shape_of(x), shape_of(w)))],
        input=value,
        filter=document.tensor(filters),
        bias=0.0 if row is None or any(beyond) else row,
        groups=groups,
        border=MODES[operator.border],
        **window_arguments(window),
    )
    if not any(beyond):
        return made
    padded = document.call("pad", input=made, padding=[(0, 0), (0, 0), *((0, more) for more in beyond)])
    if row is None:
        return padded
    return document.call("add", x=padded, y=reshaped(document, row, (*row.shape, *[1] * window.rank)))


@tract_says(Pad)
def _pad(document: TractDocument, operator: Pad, x: Any, fill: Any = None) -> Any:
    """Write padding; the mode that repeats the border has another name in tract."""
    made = RULES[Pad](document, operator, x, fill)
    if operator.mode != "edge" or not document.invocations or made not in document.invocations[-1].tensors:
        return made
    last = document.invocations[-1]
    document.invocations[-1] = replace(last, arguments={**last.arguments, "border": "replicated"})
    return made


@tract_says(Slice)
def _slice(document: TractDocument, operator: Slice, x: Any) -> Any:
    """Forwards; what is taken in reverse is flipped then."""
    forward, permuted = {}, []
    for axis, (start, count, step) in operator.ranges.items():
        if isinstance(step, int) and step < 0:
            permuted.append(axis)
            start, step = start + (count - 1) * step, -step
        forward[axis] = (start, count, step)
    made = _forward_slice(document, Slice(forward), x)
    for axis in permuted:
        made = document.extension(
            "tract_core_downsample", [(made.content, made.shape)], input=made, axis=axis, stride=-1
        )
    return made


def _forward_slice(document: TractDocument, operator: Slice, x: Any) -> Any:
    """Write a slice as the standard does, or with expressions of symbols for dynamic ends."""
    value = document.tensor(x)
    axes = [axis for axis, taken in sorted(operator.ranges.items()) if taken != (0, value.shape[axis], 1)]
    ends = [slice_ends(value.shape[axis], *operator.ranges[axis]) for axis in axes]
    if all(is_known(*each) for each in ends):
        return RULES[Slice](document, operator, x)
    return document.extension(
        "slice",
        [(value.content, operator.shape(value.shape))],
        input=value,
        axes=axes,
        begin=[begin for begin, _ in ends],
        end=[end for _, end in ends],
        stride=[operator.ranges[axis][2] for axis in axes],
    )


@tract_says(Silu)
def _silu(document: TractDocument, operator: Silu, x: Any) -> Any:
    inner = x if operator.scale == 1 else document.call("mul", x=x, y=float(operator.scale))
    return document.call("mul", x=x, y=document.call("sigmoid", x=inner))


@tract_says(Elu)
def _elu(document: TractDocument, operator: Elu, x: Any) -> Any:
    """tract's own has no attributes."""
    powers = document.call("sub", x=document.call("exp", x=x), y=1.0)
    below = document.call("mul", x=powers, y=float(operator.alpha))
    is_below = document.call("lt", x=x, y=0.0)
    made = document.call("select", condition=is_below, true_value=below, false_value=x)
    return made if operator.scale == 1 else document.call("mul", x=made, y=float(operator.scale))


@tract_says(Expand)
def _expand(document: TractDocument, operator: Expand, x: Any) -> Any:
    shape, target = shape_of(x), operator.target
    value = document.tensor(_ranked(document, x, len(target)))
    if value.shape == tuple(target) or tuple(shape) == tuple(target):
        return value
    result = [(value.content, tuple(target))]
    return document.extension("tract_core_broadcast", result, input=value, shape=list(target))


@tract_says(Gather)
def _gather(document: TractDocument, operator: Gather, x: Any, indices: Any) -> Any:
    value = document.tensor(x)
    result = [(value.content, operator.shape(shape_of(x), shape_of(indices)))]
    return document.extension(
        "tract_core_gather", result, input=value, indices=document.tensor(indices), axis=operator.axis
    )


@tract_says(GatherElements)
def _gather_elements(document: TractDocument, operator: GatherElements, x: Any, indices: Any) -> Any:
    value = document.tensor(x)
    result = [(value.content, shape_of(indices))]
    return document.extension(
        "tract_core_gather_elements", result, input=value, indices=document.tensor(indices), axis=operator.axis
    )


@tract_says(GatherND)
def _gather_nd(document: TractDocument, operator: GatherND, x: Any, indices: Any) -> Any:
    value = document.tensor(x)
    result = [(value.content, operator.shape(shape_of(x), shape_of(indices)))]
    return document.extension(
        "tract_core_gather_nd", result, input=value, indices=document.tensor(indices), batch_dims=operator.batch
    )


@tract_says(ScatterElements)
def _scatter_elements(document: TractDocument, operator: ScatterElements, x: Any, indices: Any, updates: Any) -> Any:
    value = document.tensor(x)
    given = {"input": value, "indices": document.tensor(indices), "updates": document.tensor(updates)}
    result = [(value.content, value.shape)]
    return document.extension(
        "tract_core_scatter_elements", result, axis=operator.axis, reduction=operator.reduction, **given
    )


@tract_says(ScatterND)
def _scatter_nd(document: TractDocument, operator: ScatterND, x: Any, indices: Any, updates: Any) -> Any:
    value = document.tensor(x)
    given = {"input": value, "indices": document.tensor(indices), "updates": document.tensor(updates)}
    result = [(value.content, value.shape)]
    return document.extension("tract_core_scatter_nd", result, reduction=operator.reduction, **given)


@tract_says(TopK)
def _top_k(document: TractDocument, operator: TopK, x: Any) -> Any:
    value = document.tensor(x)
    shape = tuple(operator.k if axis == operator.axis else size for axis, size in enumerate(value.shape))
    return document.extension(
        "tract_core_topk",
        [(value.content, shape), ("int64", shape)],
        input=value,
        k=operator.k,
        axis=operator.axis,
        largest=operator.largest,
    )


@tract_says(OneHot)
def _one_hot(document: TractDocument, operator: OneHot, values: Any, indices: Any) -> Any:
    if not isinstance(values, np.ndarray):
        raise Unsayable("the values of a one-hot tensor are computed, and tract takes numbers")
    off, on = (float(value) for value in values)
    shape = operator.shape(values.shape, shape_of(indices))
    made = document.extension(
        "tract_core_one_hot",
        [("float32", shape)],
        input=document.tensor(indices),
        axis=operator.axis,
        dim=operator.depth,
        value_off=off,
        value_on=on,
    )
    return _converted(document, made, str(values.dtype))


@tract_says(Triangle)
def _triangle(document: TractDocument, operator: Triangle, x: Any) -> Any:
    value = document.tensor(x)
    result = [(value.content, value.shape)]
    return document.extension("tract_core_trilu", result, input=value, k=operator.diagonal, upper=operator.upper)


@tract_says(Product)
def _product(document: TractDocument, operator: Product, x: Any) -> Any:
    value, axes = document.tensor(x), list(operator.axes)
    if not axes:
        return value
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(value.shape))
    made = document.extension("tract_core_product_reduce", [(value.content, shape)], input=value, axes=axes)
    return made if operator.keepdims else document.call("squeeze", input=made, axes=axes)


@tract_says(ArgMinMax)
def _arg_min_max(document: TractDocument, operator: ArgMinMax, x: Any) -> Any:
    value, axes = document.tensor(x), list(operator.axes)
    name = "argmax" if operator.largest else "argmin"
    if not operator.last:
        made = document.call(f"{name}_reduce", input=value, axes=axes)
    else:
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(value.shape))
        made = document.extension(f"tract_core_{name}_reduce_last", [("int64", shape)], input=value, axes=axes)
    made = document.extension("tract_core_cast", [(operator.dtype, made.shape)], input=made, to=_NAMES[operator.dtype])
    return made if operator.keepdims else document.call("squeeze", input=made, axes=axes)


@tract_says(Einsum)
def _einsum(document: TractDocument, operator: Einsum, *operands: Any) -> Any:
    tensors = [document.tensor(operand) for operand in operands]
    shape = operator.shape(*map(shape_of, operands))
    if "..." in operator.equation or "->" not in operator.equation:
        raise Unsayable("tract's equations name all dimensions and the result's")
    return document.extension(
        "tract_core_einsum",
        [(tensors[0].content, shape)],
        inputs=tensors,
        expr="".join(operator.equation.split()),
        acc=_NAMES[tensors[0].content],
    )


@tract_says(Arange)
def _arange(document: TractDocument, operator: Arange) -> Any:
    for number in (operator.start, operator.limit, operator.step):
        if isinstance(number, float) or operator.unit != 1:
            known = operator.known()
            if known is not None:
                return document.variable(known)
            raise Unsayable("a range of reals is not written in tract's dialect")
    made = document.extension(
        "tract_core_range",
        [("int64", operator.shape())],
        start=operator.start,
        end=operator.limit,
        step=operator.step,
    )
    return document.extension("tract_core_cast", [(operator.dtype, made.shape)], input=made, to=_NAMES[operator.dtype])
