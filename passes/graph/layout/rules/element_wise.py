"""Rewrites element-wise operators, and blocks the constants that broadcast against blocked tensors."""

from __future__ import annotations

from tvm import relax

from nnefc.passes.graph.layout.blocking import seen_as
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter, LayoutRule
from nnefc.passes.graph.rewriter import array_of, constant, is_call, is_constant

__all__ = ["RULES"]

# Operators that keep every finite value finite, so that what fills up a last block stays finite.
_TAME = (
    "abs",
    "add",
    "astype",
    "ceil",
    "clip",
    "cos",
    "erf",
    "floor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nn.gelu",
    "nn.gelu_tanh",
    "nn.leakyrelu",
    "nn.relu",
    "nn.silu",
    "round",
    "sigmoid",
    "sign",
    "sin",
    "square",
    "subtract",
    "tanh",
)
# Those that may make infinities of the zeros that fill up a last block: blocked only where nothing is filled up.
_WILD = (
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cosh",
    "exp",
    "log",
    "power",
    "rsqrt",
    "sinh",
    "sqrt",
    "tan",
)


def _tame(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    leader = _leader(layouts, call)
    if leader is None:
        return None
    args = [_operand(layouts, arg, leader) for arg in call.args]
    if any(arg is None for arg in args):
        return None
    return layouts.like(leader, layouts.builder.emit(relax.Call(call.op, args, call.attrs, call.ty_args)))


def _sum(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    """Lays out an addition; integer constants that are added one after another become one."""
    leader, (data, value) = _leader(layouts, call), call.args
    before = None if leader is None else layouts.definition(leader)
    if (
        leader is None
        or before is None
        or data is not leader
        or not is_call(before, "add")
        or str(data.ty.dtype) != "int32"
    ):
        return _tame(layouts, call)
    more, own = before.args[1], _operand(layouts, value, leader)
    if own is None or not is_constant(more) or not is_constant(own):
        return _tame(layouts, call)
    both = layouts.builder.emit(relax.op.add(before.args[0], constant(array_of(more) + array_of(own))))
    return layouts.like(leader, both)


def _wild(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    leader = _leader(layouts, call)
    layout = None if leader is None else layouts.layout_of(leader)
    if layout is None or not layout.is_full:
        return None
    return _tame(layouts, call)


def _division(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    """Lays out a division; padding stays zero if the divisor is a nonzero scalar, such as the 6 of a hard swish."""
    divisor = call.args[1]
    if is_constant(divisor) and array_of(divisor).size == 1 and array_of(divisor).item() != 0:
        return _tame(layouts, call)
    return _wild(layouts, call)


def _leader(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    """Returns the blocked operand whose layout the others and the result take: the one with the largest number of
    channels, preferably without channels of other tensors.
    """
    found = [(arg, layout) for arg in call.args if (layout := layouts.layout_of(arg)) is not None]
    return min(found, key=lambda pair: (-pair[1].channels, not pair[1].is_whole))[0] if found else None


def _operand(layouts: LayoutRewriter, arg: relax.Expr, leader: relax.Expr) -> relax.Expr | None:
    """Returns `arg` as an operand in the layout of `leader`; None if it has no such form."""
    if not isinstance(arg.ty, relax.TensorType):
        return arg
    own, shape = layouts.row_major_shape(arg), layouts.row_major_shape(leader)
    if layouts.layout_of(arg) is None and all(size == 1 for size in own):
        return arg if len(own) <= len(shape) else None
    lifted = (*[1] * (len(shape) - len(own)), *own)
    if len(lifted) != len(shape) or lifted[1] not in (1, shape[1]):
        return None
    if lifted[1] != shape[1]:  # of all channels, position by position
        return _seen_as(layouts, arg, (*lifted, 1))
    layout = layouts.layout_of(leader)
    if layout is None:
        return arg
    return layouts.laid_out(arg if lifted == own else _seen_as(layouts, arg, lifted), layout)


def _seen_as(layouts: LayoutRewriter, arg: relax.Expr, shape: tuple[int, ...]) -> relax.Expr:
    """Returns `arg` in row-major layout, with further axes of size 1."""
    if is_constant(arg):
        return constant(array_of(arg).reshape(shape))
    return seen_as(layouts.builder, layouts.row_major(arg), shape)


RULES: dict[str, LayoutRule] = {
    **dict.fromkeys(_TAME, _tame),
    **dict.fromkeys(_WILD, _wild),
    "add": _sum,
    "divide": _division,
}
