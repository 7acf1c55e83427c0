"""The forms that a tensor has while layouts are assigned, and how to get from one to the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from nnefc.passes.compute.blocked import block, block_array, unblock
from nnefc.passes.compute.padding import Border, write_inside
from nnefc.passes.graph.patterns import FUSION, OpPattern
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_constant, shape_of
from nnefc.targets.target import Target

__all__ = ["Blocked", "LayoutRewriter", "LayoutRule"]


@dataclass(frozen=True)
class Blocked:
    """Blocked layout of `channels` real channels; each of `groups` equal parts of them starts a block."""

    channels: int
    groups: int = 1

    def fills(self, size: int) -> bool:
        """Whether no block is filled up."""
        return self.channels // self.groups % size == 0


# What becomes of a call: an expression in whichever layout suits the operation, or None where it must stay plain.
LayoutRule = Callable[["LayoutRewriter", relax.Call], "relax.Expr | None"]


class LayoutRewriter(Rewriter):
    """Rebuilds `main`; each variable is in plain or in blocked layout, and its other form is made when asked for, once.

    Attributes:
        target: the machine.
        size: channels in a block.
        strict: leave out algorithms that round otherwise than the plain sum does.
    """

    def __init__(
        self, mod: tvm.IRModule, target: Target, rule_of: Callable[[relax.Call], LayoutRule | None], strict: bool
    ) -> None:
        super().__init__(mod)
        self.target = target
        self.strict = strict
        self.size = max(target.lanes("float32"), 8)
        self._rule_of = rule_of
        self._layout: dict[relax.Expr, Blocked] = {}  # of tensors in blocked layout
        self._other_form: dict[tuple[relax.Expr, Blocked | None], relax.Expr] = {}
        self._padded: dict[tuple[relax.Expr, Border], relax.Expr] = {}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        rule = self._rule_of(call)
        lowered = None if rule is None else rule(self, call)
        if lowered is not None:
            return lowered
        return relax.Call(call.op, [self.plain(arg) for arg in call.args], call.attrs, call.ty_args)

    def result(self, expr: relax.Expr) -> relax.Expr:
        return self.plain(super().result(expr))

    # The forms of a tensor.

    def layout_of(self, expr: relax.Expr) -> Blocked | None:
        """The blocked layout that `expr` has; None if it is plain."""
        return self._layout.get(expr)

    def as_blocked(self, expr: relax.Var, channels: int, groups: int = 1) -> relax.Var:
        """Note that `expr` is in blocked layout."""
        self._layout[expr] = Blocked(channels, groups)
        return expr

    def like(self, source: relax.Expr, result: relax.Var) -> relax.Var:
        """Note that `result` has the layout and the channels of `source`."""
        if source in self._layout:
            self._layout[result] = self._layout[source]
        return result

    def plain_shape(self, expr: relax.Expr) -> tuple[int, ...]:
        """The shape of `expr` in plain layout, whichever it has."""
        if expr not in self._layout:
            return shape_of(expr)
        batch, _, *spatial, _ = shape_of(expr)
        return (batch, self._layout[expr].channels, *spatial)

    def blocked(self, expr: relax.Expr, groups: int = 1) -> relax.Expr:
        """`[N, C, *spatial]` in blocked layout."""
        wanted = Blocked(self.plain_shape(expr)[1], groups)
        own = self._layout.get(expr)
        if own == wanted or (own is not None and own.fills(self.size) and wanted.fills(self.size)):
            return expr
        if is_constant(expr):
            return constant(block_array(array_of(expr), 1, self.size, groups))
        if (expr, wanted) not in self._other_form:
            form = self.as_blocked(self.emit(block, self.plain(expr), self.size, groups), wanted.channels, groups)
            self._other_form[expr, wanted] = form
        return self._other_form[expr, wanted]

    def plain(self, expr: relax.Expr) -> relax.Expr:
        """A tensor, or a tuple of tensors, as the front end wrote it."""
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.plain(field) for field in expr.fields])
        layout = self._layout.get(expr)
        if layout is None:
            return expr
        if (expr, None) not in self._other_form:
            self._other_form[expr, None] = self._unblocked(expr, layout)
        return self._other_form[expr, None]

    def _unblocked(self, expr: relax.Expr, layout: Blocked) -> relax.Expr:
        shape = self.plain_shape(expr)
        if layout.fills(self.size) and all(extent == 1 for extent in shape[2:]):
            return self.builder.emit(relax.op.reshape(expr, shape))  # the same bytes
        return self.emit(unblock, expr, layout.channels, layout.groups)

    # Emitting computations.

    def padded(self, data: relax.Expr, before: tuple[int, ...], after: tuple[int, ...]) -> relax.Expr:
        """`data` with zeros around its spatial dimensions; what makes `data` then writes there, if it can."""
        if not any(before) and not any(after):
            return data
        if min(*before, *after) < 0:
            data = self._cropped(data, before, after)
            before, after = (tuple(max(width, 0) for width in widths) for widths in (before, after))
        shape = shape_of(data)
        rest = (0,) * (len(shape) - 2 - len(before))
        border = Border((0, 0, *before, *rest), (0, 0, *after, *rest))
        if is_constant(data):
            return constant(np.pad(array_of(data), list(zip(border.before, border.after, strict=True))))
        if (data, border) not in self._padded:
            inside = write_inside(shape, str(data.ty.dtype), border).with_attr(FUSION, OpPattern.ELEMENT_WISE)
            result = relax.TensorType(border.around(shape), data.ty.dtype)
            call = relax.call_tir(self.builder.add_func(inside, "pad"), [data], result)
            self._padded[data, border] = self.builder.emit(call)
        return self._padded[data, border]

    def _cropped(self, data: relax.Expr, before: tuple[int, ...], after: tuple[int, ...]) -> relax.Expr:
        """What negative padding leaves of the spatial dimensions."""
        axes = range(2, 2 + len(before))
        begin = [max(-low, 0) for low in before]
        end = [shape_of(data)[axis] + min(high, 0) for axis, high in zip(axes, after, strict=True)]
        return self.builder.emit(relax.op.strided_slice(data, list(axes), begin, end))

    def kernel(self, function: Callable[..., object], *args: object, name: str) -> relax.Var:
        """Emit a computation that element-wise steps after it are joined with."""
        return self.emit(function, *args, pattern=OpPattern.OUT_FUSABLE, name=name)

    def emit(
        self, function: Callable[..., object], *args: object, pattern: int | None = None, name: str | None = None
    ) -> relax.Var:
        """Emit the TE computation `function(*args)`; the tensors come first in `args`."""
        tensors = [arg for arg in args if isinstance(arg, relax.Expr)]
        rest = args[len(tensors) :]
        attrs = None if pattern is None else {FUSION: pattern}
        hint = name or function.__name__
        return self.builder.emit_te(
            lambda *t: function(*t, *rest), *tensors, primfunc_name_hint=hint, primfunc_attrs=attrs
        )
