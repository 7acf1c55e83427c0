"""Keeps large constants in the narrow types that hold them, and dequantizes or converts them where they are read.

    t = dequantize(Q, s, 0)      # int8 Q            t = dequantized(Q, s); a = gather(t, i)  # one kernel, after fusion
    a = gather(t, i)                                 m = matmul(x, astype(Q, "float32"))      # packed in 8 bits
    m = matmul(x, t)                          →      m = multiply(m, s)
    y = multiply(x, C)           # float32 C         w = dequantized(H); y = multiply(x, w)      # H: C in float16

Constants are dequantized, or were 16-bit floats, in models that shall be small. Computed at compile time, their float32
would make the library two to four times as large as the model. So each reader gets a widening of its own, which fusion
joins with it: a gather then converts the rows that it takes and no others. Convolutions and matrix products multiply
by narrow weights as they are packed; scales are multiplied to their results.

A float32 constant that 16 bits hold exactly is kept in 16 bits, wherever it came from.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import tvm
from tvm import relax, te, tirx, topi

from nnefc.ir.attributes import CONVERTS_CONSTANTS, EXPERT_PRODUCTS, GATHERS_ROWS
from nnefc.ir.dataflow import bindings_of
from nnefc.operators.nn.experts import expert_products
from nnefc.passes.graph.fusion.expression_size import kernel_size
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.quantized.quantized_values import Grid, Quantized, quantized_of
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, operands, shape_of
from nnefc.passes.graph.stored_weights import CONVOLUTIONS, TRANSPOSED_CONVOLUTIONS
from nnefc.support.mapped_files import LARGE, empty_array, release_pages
from nnefc.symbolic.dims import element_count, size_hint
from nnefc.targets.machine.cpu.target import Target

__all__ = ["dequantized_for", "narrow_constants"]


_MIN_ELEMENTS = 1 << 10
"""The fewest elements of a constant that is kept narrow: smaller ones save less than the widening code takes."""

_MAX_READS = 4  # of elements of a constant, for one element of what a kernel computes

_MANY_ROWS = 64
"""Rows from which on a constant is converted once, before the product, and not in each tile. A conversion in a tile
takes a cycle of a unit that multiplies, a fourteenth of the tile's time with AVX-512. Converting, storing and loading a
vector takes some five cycles, a row of products half a cycle."""

_LOOKED_AT = 256  # elements that are tried before all are

_CONVERTED = 1 << 20
"""The elements of a constant that are converted at a time, to bound the memory that this takes."""

_ELEMENT_WISE = ("add", "divide", "maximum", "minimum", "multiply", "power", "subtract", "where")


def narrow_constants(mod: tvm.IRModule, target: Target | None, strict: bool = False) -> tvm.IRModule:
    """Keeps large constants narrow, and dequantizes or converts them where they are read, if the reader can do that on
    the way.

    Args:
        target: what the kernels run on; None if convolutions and matrix products are left with float32.
        strict: whether scales must not be moved behind sums.
    """
    rewriter = _Narrower(mod, target, strict)
    return relax.transform.DeadCodeElimination()(rewriter.transform()) if rewriter.needed() else mod


def dequantized_for(rewriter: Rewriter, packed: relax.Expr, rows: int, target: Target) -> relax.Expr:
    """Returns packed weights for a contraction with `rows` rows or pixels: dequantized before it in each run, if that
    pays.

    Else the contraction widens each weight as often as it reads it: once for every tile of rows. That costs least where
    rows are few, and where all float32 weights do not fit into half of the second cache.
    """
    if (
        str(packed.ty.dtype) in ("float32", "float64")
        or rows < _MANY_ROWS
        or 8 * element_count(shape_of(packed)) > target.costs.l2_bytes
    ):
        return packed
    return rewriter.emit_te(
        _widen, packed, name="widen_weights", attrs={CONVERTS_CONSTANTS: 1, FUSION: OpPattern.OPAQUE}
    )


def _rows(table: te.Tensor, indices: te.Tensor, axis: int, mode: str) -> te.Tensor:
    return topi.take(table, indices, axis, mode=mode)


class _Narrower(Rewriter):
    def __init__(self, mod: tvm.IRModule, target: Target | None, strict: bool) -> None:
        super().__init__(mod)
        self._target = target
        self._strict = strict
        self._fp16: dict[relax.Expr, relax.Expr | None] = {}

    def needed(self) -> bool:
        """Whether any constant is large, so that there is something to do."""
        calls = [b.value for b in bindings_of(self.old) if isinstance(b.value, relax.Call)]
        return any(is_constant(o) and _is_large(o) for call in calls for o in operands(call))

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if is_call(call, "matmul", *CONVOLUTIONS):
            return self._contraction(var, call)
        if is_call(call, *_ELEMENT_WISE):
            given = call.args[:]
            wide = [self._dequantized(arg) for arg in given]
            changed = any(new is not old for new, old in zip(wide, given, strict=True))
            return relax.Call(call.op, wide, call.attrs) if changed else call
        if is_call(call, "take") and call.attrs.axis is not None:
            return self._take(call)
        if is_call(call, "call_tir") and isinstance(var.ty, relax.TensorType):
            return self._kernel(call)
        return call

    def _take(self, call: relax.Call) -> relax.Expr:
        """Gathers rows of a narrow table by a kernel of its own, because fusion does not join TVM's with what
        dequantizes the rows.
        """
        table, indices = call.args
        wide = self._dequantized(table)
        if wide is table:
            return call
        axis, mode = int(call.attrs.axis), str(call.attrs.mode)
        attrs: dict[str, int | str] = {FUSION: OpPattern.INJECTIVE} | ({GATHERS_ROWS: mode} if axis == 0 else {})
        return self.emit_te(_rows, wide, indices, axis, mode, name="take", attrs=attrs)

    def _kernel(self, call: relax.Call) -> relax.Expr:
        """Returns a call of a kernel whose results are each an expression of few elements of its operands."""
        kernel, read, *tail = call.args
        fields = list(read.fields)
        if not any(self._stored(field) for field in fields):
            return call
        attrs = self.builder.get()[kernel].attrs
        if attrs and EXPERT_PRODUCTS in attrs:
            return self._of_experts(call, int(attrs[EXPERT_PRODUCTS]))
        joined = self._joinable(kernel)
        if joined is None:
            return call
        reads = kernel_size(joined.with_attr(FUSION, OpPattern.INJECTIVE)).reads
        wide = [self._dequantized(field) if n <= _MAX_READS else field for field, n in zip(fields, reads, strict=True)]
        if all(new is old for new, old in zip(wide, fields, strict=True)):
            return call
        gv = self.builder.add_func(joined, kernel.name_hint)
        return relax.Call(call.op, [gv, relax.Tuple(wide), *tail], call.attrs, call.ty_args, call.span)

    def _of_experts(self, call: relax.Call, total: int) -> relax.Expr:
        """Returns the products of rows with the matrices of experts, which are stored in 16 bits."""
        x, chosen, weights, *_ = call.args[1].fields  # sizes may follow
        narrow = self._stored(weights)
        if narrow is None or isinstance(narrow, Quantized):
            return call
        attrs: dict[str, int | str] = {EXPERT_PRODUCTS: total}
        return self.emit_te(expert_products, x, chosen, narrow, total, name="experts", attrs=attrs)

    def _joinable(self, kernel: tvm.ir.GlobalVar) -> tirx.PrimFunc | None:
        """Returns a kernel in a form that fusion joins with the producers of its operands, if it has one.

        TVM takes a kernel for opaque that finds the position of what it reads in another tensor.
        """
        func = self.builder.get()[kernel]
        own = func.attrs[FUSION] if func.attrs and FUSION in func.attrs else None
        found = own if own is not None else _annotated(func).attrs[FUSION]
        if int(found) <= OpPattern.INJECTIVE:
            return func
        joined = func.with_attr(FUSION, OpPattern.INJECTIVE)
        return None if own is not None or kernel_size(joined).stored else joined

    def _dequantized(self, expr: relax.Expr) -> relax.Expr:
        """Returns a dequantization of its own for `expr`, if that is a large constant that can be narrow."""
        source = self._stored(expr)
        if source is None:
            return expr
        attrs = {CONVERTS_CONSTANTS: 1, FUSION: OpPattern.ELEMENT_WISE}
        if isinstance(source, Quantized):
            scale, zero = constant(source.grid.scale), constant(source.grid.zero.astype(np.int32))
            return self.emit_te(_dequantize, source.data, scale, zero, source.grid.axis, name="dequantize", attrs=attrs)
        return self.emit_te(_widen, source, name="widen", attrs=attrs)

    def _stored(self, expr: relax.Expr) -> relax.Expr | Quantized | None:
        """Returns the narrow form in which a large constant can be stored, if there is one."""
        definition = self.definition(expr)
        if not isinstance(getattr(expr, "ty", None), relax.TensorType) or not _is_large(expr):
            return None
        if is_constant(definition):
            return self._half(definition)
        source = quantized_of(definition)
        narrow = source is not None and is_constant(source.data) and source.dtype in ("int8", "uint8")
        return source if narrow else None

    def _half(self, expr: relax.Expr) -> relax.Expr | None:
        """Returns a constant in a type of 16 bits that the target widens quickly and that holds it exactly."""
        if expr not in self._fp16:
            narrow = _in_16_bits(array_of(expr), self._target)
            self._fp16[expr] = None if narrow is None else constant(narrow)
        return self._fp16[expr]

    # Contractions: packing looks through `astype` of a constant.

    def _contraction(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        data, weights = call.args
        if self._target is None or str(var.ty.dtype) != "float32":
            return call
        definition = self.definition(weights)
        transposed = False
        if is_call(call, "matmul") and len(shape_of(weights)) == 2 and is_call(definition, "permute_dims"):
            weights, transposed = definition.args[0], True
        source = self._stored(weights)
        if source is None:
            return call
        if isinstance(source, Quantized):
            return call if transposed or self._strict else self._with_scale(call, len(shape_of(var)), source)
        if transposed:
            source = constant(array_of(source).T)
        wide = self.builder.emit(relax.op.astype(source, "float32"))
        return relax.Call(call.op, [data, wide], call.attrs, call.ty_args, call.span)

    def _with_scale(self, call: relax.Call, rank: int, source: Quantized) -> relax.Expr:
        """Returns a contraction of dequantized weights, its scales multiplied to the result."""
        transposed = is_call(call, *TRANSPOSED_CONVOLUTIONS)
        channels = len(shape_of(source.data)) - 1 if is_call(call, "matmul") else int(transposed)
        if source.grid.axis not in (None, channels) or len(shape_of(source.data)) < 2:
            return call
        whole = constant(_centred(source))
        wide = self.builder.emit(relax.op.astype(whole, "float32"))
        product = self.builder.emit(relax.Call(call.op, [call.args[0], wide], call.attrs, call.ty_args, call.span))
        scale = source.grid.scale.reshape(-1)
        if source.grid.axis is not None:
            last = rank - 1 if is_call(call, "matmul") else 1
            groups = int(call.attrs.groups) if transposed else 1  # they have the same scales
            scale = np.tile(scale, groups).reshape([-1 if axis == last else 1 for axis in range(rank)])
        return relax.op.multiply(product, constant(scale))


def _annotated(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a kernel with the fusion pattern that TVM's analysis finds."""
    return relax.transform.AnnotateTIROpPattern()(tvm.IRModule({"kernel": func}))["kernel"]


def _is_large(expr: relax.Expr) -> bool:
    return size_hint(element_count(shape_of(expr))) >= _MIN_ELEMENTS


def _in_16_bits(array: np.ndarray, target: Target | None) -> np.ndarray | None:
    """Returns a float32 array in a type of 16 bits that holds it exactly and that the target widens quickly."""
    if array.dtype != np.float32:
        return None
    for dtype in (np.float16, ml_dtypes.bfloat16):
        if target is not None and not target.widens(np.dtype(dtype).name):
            continue
        flat = array.reshape(-1)
        if _exact(flat[:_LOOKED_AT], dtype) is not None and (found := _converted(flat, dtype)) is not None:
            return found.reshape(array.shape)
    return None


def _converted(flat: np.ndarray, dtype: type) -> np.ndarray | None:
    """Returns all elements in a 16-bit type, read-only; None where the type does not hold one of them exactly."""
    made = empty_array(flat.shape, dtype)
    for start in range(0, len(flat), _CONVERTED):
        part = slice(start, start + _CONVERTED)
        narrow = _exact(flat[part], dtype)
        if narrow is None:
            return None
        made[part] = narrow
        if flat.nbytes >= LARGE:
            release_pages()
    made.flags.writeable = False
    return made


def _exact(array: np.ndarray, dtype: type) -> np.ndarray | None:
    """Returns float32 elements in a type of 16 bits; None where one of them changes."""
    with np.errstate(over="ignore", invalid="ignore"):
        narrow: np.ndarray = array.astype(dtype)
        return narrow if np.array_equal(narrow.astype(np.float32).view(np.uint32), array.view(np.uint32)) else None


def _centred(source: Quantized) -> np.ndarray:
    """Returns the integers minus their zero point, in the narrowest type that holds them."""
    values, grid = array_of(source.data), source.grid
    if not grid.zero.any():
        return values
    centred = values.astype(np.int16) - grid.zero.reshape(_along(grid, values.ndim)).astype(np.int16)
    fits = (t for t in (np.int8, np.uint8) if np.iinfo(t).min <= centred.min() and centred.max() <= np.iinfo(t).max)
    return centred.astype(next(fits, np.int16))


def _along(grid: Grid, rank: int) -> list[int]:
    return [-1 if axis == grid.axis else 1 for axis in range(rank)] if grid.axis is not None else []


def _widen(data: te.Tensor) -> te.Tensor:
    return te.compute(data.shape, lambda *index: data(*index).astype("float32"), name="widen")


def _dequantize(data: te.Tensor, scale: te.Tensor, zero: te.Tensor, axis: int | None) -> te.Tensor:
    def element(*index: tirx.Var) -> tirx.Expr:
        position = () if axis is None else (index[axis],)
        return (data(*index).astype("int32") - zero(*position)).astype("float32") * scale(*position)

    return te.compute(data.shape, element, name="dequantize")
