"""Holds the layouts in which each tensor is available during layout assignment, and converts between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import cached_property

import numpy as np
import tvm
from tvm import relax

from nnefc.ir.dataflow import bindings_of
from nnefc.ir.kernel_calls import kept_apart
from nnefc.ir.padding import Border, write_inside
from nnefc.passes.compute.channel_order import arrange, arrange_array, rearrange, unarrange
from nnefc.passes.graph.algorithms.fast_algorithms import FastAlgorithms
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.layout.blocked_layout import Blocked
from nnefc.passes.graph.layout.blocking import to_blocks, to_row_major
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, shape_of
from nnefc.support.element_types import element_bytes
from nnefc.symbolic.dims import Dimension, is_known, known_less
from nnefc.targets.machine.cpu.target import Target

__all__ = ["LayoutRewriter", "LayoutRule"]


_CONVOLUTIONS = "nn.conv1d", "nn.conv2d", "nn.conv3d"

# What becomes of a call: an expression in whichever layout suits the operation, or None where it must stay row-major.
LayoutRule = Callable[["LayoutRewriter", relax.Call], "relax.Expr | None"]


class LayoutRewriter(Rewriter):
    """Rebuilds `main` with each variable in row-major or in blocked layout; the other form is made once, when it is
    needed.

    Attributes:
        target: the machine; of GPUs their host, which their rules do not ask.
        size: channels in a block; of tensors that have few, see :meth:`size_for`.
        by_elements: whether layouts are converted element by element, and not by tiles in a processor's vectors.
        strict: exclude algorithms whose rounding differs from the sequential sum's.
        algorithms: which constants are read by faster algorithms.
    """

    def __init__(
        self,
        mod: tvm.IRModule,
        target: Target,
        rule_of: Callable[[relax.Call], LayoutRule | None],
        strict: bool,
        algorithms: FastAlgorithms,
        size: int,
        by_elements: bool = False,
    ) -> None:
        super().__init__(mod)
        self.target = target
        self.strict = strict
        self.algorithms = algorithms
        self.size = size
        self.by_elements = by_elements
        self._rule_of = rule_of
        self._layout: dict[relax.Expr, Blocked] = {}  # of tensors in blocked layout
        self._other_form: dict[tuple[relax.Expr, Blocked | None], relax.Expr] = {}
        self._origin: dict[relax.Expr, relax.Expr] = {}  # of row-major forms of blocked tensors
        self._padded: dict[tuple[relax.Expr, Border], relax.Expr] = {}
        self._made: dict[Hashable, relax.Expr] = {}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        rule = self._rule_of(call)
        lowered = None if rule is None else rule(self, call)
        if lowered is not None:
            return lowered
        args = list(call.args)
        row_major = [self.row_major(arg) for arg in args]
        if all(new is arg for new, arg in zip(row_major, args, strict=True)):
            return call
        return relax.Call(call.op, row_major, call.attrs, call.ty_args)

    def result(self, expr: relax.Expr) -> relax.Expr:
        return self.row_major(super().result(expr))

    @cached_property
    def largest_pair(self) -> float:
        """Returns the largest sum of the bytes of data and result of any convolution that is not depthwise.

        Results count as of the type of the data, which they are usually stored in. Infinity if any size is dynamic.
        """
        largest = 0
        for binding in bindings_of(self.old):
            call = binding.value
            if is_call(call, *_CONVOLUTIONS) and shape_of(call.args[1])[1] > 1:
                data, result = shape_of(call.args[0]), shape_of(call)
                if not is_known(*data, *result):
                    return math.inf
                largest = max(largest, (math.prod(data) + math.prod(result)) * element_bytes(call.args[0].ty.dtype))
        return largest

    # The forms of a tensor.

    def layout_of(self, expr: relax.Expr) -> Blocked | None:
        """Returns the blocked layout that `expr` has; None if it is row-major."""
        return self._layout.get(expr)

    def as_blocked(self, expr: relax.Var, channels: int, groups: int = 1) -> relax.Var:
        """Records that `expr` is in blocked layout, each of `groups` equal parts of its channels in blocks of
        its own.
        """
        return self.having(expr, Blocked.of(channels, shape_of(expr)[-1], groups))

    def having(self, expr: relax.Var, layout: Blocked) -> relax.Var:
        """Records that `expr` has the layout `layout`."""
        self._layout[expr] = layout
        return expr

    def renamed(self, expr: relax.Expr, layout: Blocked) -> relax.Expr:
        """Returns the same data with the slots renumbered to other channels, which is no work."""
        return expr if self._layout[expr] == layout else self.having(self.builder.emit(expr), layout)

    def like(self, source: relax.Expr, result: relax.Var) -> relax.Var:
        """Records that `result` has the layout and the channels of `source`."""
        if source in self._layout:
            self._layout[result] = self._layout[source]
        return result

    def row_major_shape(self, expr: relax.Expr) -> tuple[int, ...]:
        """Returns the shape of `expr` in row-major layout, whichever it has."""
        if expr not in self._layout:
            return shape_of(expr)
        batch, _, *spatial, _ = shape_of(expr)
        return (batch, self._layout[expr].channels, *spatial)

    def size_for(self, channels: int) -> int:
        """Returns the channels in a block of a tensor of bytes that has so many: a half or a quarter of `size` if they
        fit into it, where one instruction sums up the products of so few bytes too."""
        size, shortest = self.size, self.target.lanes("int32")
        while self.target.summed_bytes and size > shortest and channels <= size // 2:
            size //= 2
        return size

    def blocked(self, expr: relax.Expr) -> relax.Expr:
        """Returns `[N, C, *spatial]` in blocked layout, its channels in order."""
        return self.laid_out(expr, Blocked.of(self.row_major_shape(expr)[1], self.size))

    def laid_out(self, expr: relax.Expr, wanted: Blocked) -> relax.Expr:
        """Returns `[N, C, *spatial]` in the layout `wanted`."""
        own = self._layout.get(expr)
        if own == wanted:
            return expr
        if is_constant(expr):
            return constant(arrange_array(array_of(expr), 1, wanted.order, wanted.size))
        if (expr, wanted) not in self._other_form:
            form = self._arranged(expr, wanted) if own is None else self._rearranged(expr, own, wanted)
            self._other_form[expr, wanted] = self.having(form, wanted)
        return self._other_form[expr, wanted]

    def row_major(self, expr: relax.Expr) -> relax.Expr:
        """Returns a tensor, or a tuple of tensors, in row-major layout."""
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.row_major(field) for field in expr.fields])
        layout = self._layout.get(expr)
        if layout is None:
            return expr
        if (expr, None) not in self._other_form:
            form = self._other_form[expr, None] = self._unarranged(expr, layout)
            self._origin[form] = expr
        return self._other_form[expr, None]

    def origin(self, expr: relax.Expr) -> relax.Expr:
        """Returns the blocked tensor that `expr` is the row-major form of; else `expr`."""
        return self._origin.get(expr, expr)

    def once(self, key: Hashable, make: Callable[[], relax.Expr]) -> relax.Expr:
        """Emits `make` the first time that it is called with this key, and returns the same value afterwards."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _arranged(self, expr: relax.Expr, wanted: Blocked) -> relax.Var:
        if wanted.is_in_order:
            return to_blocks(self.builder, expr, wanted.size, self.by_elements or self.target.patches)
        return self.emit(arrange, expr, constant(np.asarray(wanted.order, np.int32)), wanted.size)

    def _rearranged(self, expr: relax.Expr, own: Blocked, wanted: Blocked) -> relax.Var:
        order = np.asarray(wanted.order)
        table = np.where(order >= 0, own.slots[np.maximum(order, 0)], order)
        return self.emit(rearrange, expr, constant(table.astype(np.int32)), wanted.size)

    def _unarranged(self, expr: relax.Expr, layout: Blocked) -> relax.Expr:
        shape = self.row_major_shape(expr)
        if not layout.is_in_order:
            return self.emit(unarrange, expr, constant(layout.slots))
        if layout.is_full and all(size == 1 for size in shape[2:]):
            return self.builder.emit(relax.op.reshape(expr, shape))  # the same bytes
        return to_row_major(self.builder, expr, layout.channels, self.by_elements)

    # Emitting computations.

    def padded(
        self, data: relax.Expr, before: tuple[Dimension, ...], after: tuple[Dimension, ...], value: int = 0
    ) -> relax.Expr:
        """Pads `data` with `value` around its spatial dimensions; the kernel that computes `data` then writes into the
        padded tensor, if it can.
        """
        if not any(before) and not any(after):  # a dynamic width may be more than nothing
            return data
        if any(known_less(width, 0) for width in (*before, *after)):
            data = self._cropped(data, before, after)
            before, after = (tuple(max(width, 0) for width in widths) for widths in (before, after))
            return self.padded(data, before, after, value)
        shape = shape_of(data)
        tail = (0,) * (len(shape) - 2 - len(before))
        border = Border((0, 0, *before, *tail), (0, 0, *after, *tail), value)
        if is_constant(data):
            widths = list(zip(border.before, border.after, strict=True))
            return constant(np.pad(array_of(data), widths, constant_values=value))
        if (data, border) not in self._padded:
            inside = write_inside(shape, str(data.ty.dtype), border).with_attr(FUSION, OpPattern.ELEMENT_WISE)
            result = relax.TensorType(border.around(shape), data.ty.dtype)
            call = relax.call_tir(self.builder.add_func(kept_apart(inside), "pad"), [data], result)
            self._padded[data, border] = self.builder.emit(call)
        return self._padded[data, border]

    def _cropped(self, data: relax.Expr, before: tuple[Dimension, ...], after: tuple[Dimension, ...]) -> relax.Expr:
        """Applies negative padding as a crop of the spatial dimensions."""
        axes = range(2, 2 + len(before))
        begin = [max(-low, 0) for low in before]
        end = [shape_of(data)[axis] + min(high, 0) for axis, high in zip(axes, after, strict=True)]
        return self.builder.emit(relax.op.strided_slice(data, list(axes), begin, end))

    def kernel(self, function: Callable[..., object], *args: object, name: str) -> relax.Var:
        """Emits a computation that following element-wise operators are fused with."""
        return self.emit(function, *args, pattern=OpPattern.OUT_FUSABLE, name=name)

    def emit(
        self, function: Callable[..., object], *args: object, pattern: int | None = None, name: str | None = None
    ) -> relax.Var:
        """Emits the TE computation `function(*args)`; the tensors come first in `args`."""
        return self.emit_te(function, *args, name=name, attrs={} if pattern is None else {FUSION: pattern})
