"""Let convolutions and matrix products multiply half precision, and keep in it what only they and moves read.

    y = conv2d(x, W)              h = astype(x, "float16")
    z = relu(y)             →     y = conv2d(h, half W, out_dtype="float32")
    u = conv2d(z, V)              z = relu(astype(y, "float16"))
                                  u = conv2d(z, half V, out_dtype="float32")

Sums stay in single precision, and so does everything that is neither a contraction nor only moves its operand's values:
softmax, normalizations, sums. What they need of a tensor in half precision is widened, in the kernel that reads it. The
trained values are narrowed here, at compile time; inputs, outputs and states keep their types.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, operands, shape_of

__all__ = ["CONVOLUTIONS", "UseHalfPrecision", "summing_in_single"]

CONVOLUTIONS = tuple(f"nn.conv{rank}d{kind}" for rank in (1, 2, 3) for kind in ("", "_transpose"))

# Each result is one of the operands' values, or zero: narrowed before or after, it is the same.
_MOVES = (
    "broadcast_to",
    "concat",
    "expand_dims",
    "flatten",
    "nn.max_pool1d",
    "nn.max_pool2d",
    "nn.max_pool3d",
    "nn.relu",
    "permute_dims",
    "reshape",
    "squeeze",
    "strided_slice",
)

_LARGEST = float(np.finfo(np.float16).max)


@tvm.transform.module_pass(opt_level=0, name="UseHalfPrecision")
class UseHalfPrecision:
    """Narrow the operands of contractions."""

    def transform_module(self, mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        return relax.transform.DeadCodeElimination()(_Narrower(mod).transform())


class _Narrower(Rewriter):
    """Rebuilds a function.

    Attributes:
        narrow: variables of the old function that are kept in half precision.
        half: what holds the same in half precision, by variables of the new function.
    """

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.narrow = _read_as_half(self.old)
        self.half: dict[relax.Var, relax.Var] = {}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if _is_contraction(call):
            made: relax.Expr = summing_in_single([self._as_half(arg) for arg in call.args], call)
        elif var in self.narrow and is_call(call, *_MOVES):
            return self._widened(self.builder.emit(self._moved(call)))
        else:
            made = call
        if var not in self.narrow:
            return made
        return self._widened(self.builder.emit(relax.op.astype(self.builder.emit(made), "float16")))

    def _widened(self, half: relax.Var) -> relax.Var:
        """The single precision of a variable in half; gone at the end, if nobody asks for it."""
        wide = self.builder.emit(relax.op.astype(half, "float32"))
        self.half[wide] = half
        return wide

    def _as_half(self, expr: relax.Expr) -> relax.Expr:
        if is_constant(expr):
            return constant(array_of(expr).astype(np.float16))
        if expr not in self.half:
            self.half[expr] = self.builder.emit(relax.op.astype(expr, "float16"))
        return self.half[expr]

    def _moved(self, call: relax.Call) -> relax.Call:
        args = [
            relax.Tuple([self._as_half(field) for field in arg.fields])
            if isinstance(arg, relax.Tuple)
            else self._as_half(arg)
            if _is_single(arg)
            else arg
            for arg in call.args
        ]
        return relax.Call(call.op, args, call.attrs)


def _read_as_half(func: relax.Function) -> set[relax.Var]:
    """The variables that contractions read, or moves of which contractions read the results."""
    found: set[relax.Var] = set()
    bindings = [binding for block in func.body.blocks for binding in block.bindings]
    for binding in reversed(bindings):
        call = binding.value
        if _is_contraction(call) or (binding.var in found and is_call(call, *_MOVES) and _fits(call)):
            found.update(arg for arg in operands(call) if isinstance(arg, relax.Var) and _is_single(arg))
    return found


def _is_contraction(call: relax.Expr) -> bool:
    """Whether a call multiplies tensors of single precision that have room in half."""
    if not is_call(call, *CONVOLUTIONS, "matmul") or not all(map(_is_single, call.args)):
        return False
    return min(len(shape_of(arg)) for arg in call.args) > 1 and _fits(call)


def _fits(call: Any) -> bool:
    """Whether no known operand has numbers that half precision cannot hold."""
    known = [array_of(arg) for arg in operands(call) if is_constant(arg) and _is_single(arg)]
    return all(float(np.max(np.abs(array), initial=0, where=np.isfinite(array))) <= _LARGEST for array in known)


def _is_single(expr: relax.Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType) and str(expr.ty.dtype) == "float32"


def summing_in_single(args: list[relax.Expr], call: Any) -> relax.Call:
    """The same contraction of other operands, with a result of single precision."""
    if is_call(call, "matmul"):
        return relax.op.matmul(*args, out_dtype="float32")
    attrs = call.attrs
    names = ("strides", "padding", "output_padding", "dilation", "groups", "data_layout", "kernel_layout", "out_layout")
    keywords = {name: getattr(attrs, name) for name in names if hasattr(attrs, name)}
    return getattr(relax.op.nn, call.op.name.rpartition(".")[2])(*args, **keywords, out_dtype="float32")
