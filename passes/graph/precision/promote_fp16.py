"""Computes 16-bit floats in float32, for processors without 16-bit arithmetic.

    y = conv2d(x, W)      float16            a = conv2d(astype(x, "float32"), float32 W)
    z = relu(y)           float16      →     b = relu(a)
    return z                                 return astype(b, "float16")

Results of operators are not rounded to the 16-bit float's type: they are more precise than the model asks for, and no
conversion stands between two operators. They are rounded where the program must have the type itself: in outputs, in
what goes in and out of bodies, and for kernels that are made for it. `astype` to a 16-bit float is what the model
itself asks for: it rounds. What only moves numbers that are stored as 16-bit floats leaves them so.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from nnefc.ir.dataflow import bindings_of
from nnefc.passes.graph.precision.use_16bit_floats import summing_in_single
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_constant
from nnefc.passes.graph.stored_weights import CONVOLUTIONS
from nnefc.support.mapped_files import LARGE

__all__ = ["promote_fp16"]

_FLOAT16_TYPES = ("float16", "bfloat16")

_COMPUTED = frozenset(
    {
        "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atanh", "ceil", "clip", "cos", "cosh",
        "divide", "equal", "erf", "exp", "floor", "floor_divide", "floor_mod", "greater", "greater_equal",
        "image.resize2d", "image.resize3d", "isfinite", "isinf", "isnan", "less", "less_equal", "log", "max",
        "maximum", "mean", "min", "minimum", "mod", "multiply", "negative", "nn.adaptive_avg_pool1d",
        "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d", "nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d",
        "nn.gelu", "nn.gelu_tanh", "nn.group_norm", "nn.instance_norm", "nn.layer_norm", "nn.leakyrelu",
        "nn.log_softmax", "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d", "nn.pad", "nn.prelu", "nn.relu",
        "nn.rms_norm", "nn.selu", "nn.silu", "nn.softmax", "nn.softplus", "not_equal", "power", "prod", "round",
        "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "square", "std", "subtract", "sum", "tan", "tanh",
        "trunc", "variance", "where",
    }
)  # fmt: skip
"""Operators whose results are computed from their operands' numbers, in the operands' type."""

_MOVES = frozenset(
    {
        "broadcast_to", "concat", "expand_dims", "flatten", "flip", "permute_dims", "repeat", "reshape",
        "squeeze", "strided_slice", "take", "tile",
    }
)  # fmt: skip
"""Operators whose results are some of their operands' elements."""


def promote_fp16(mod: tvm.IRModule) -> tvm.IRModule:
    """Converts operands of computations on 16-bit floats to float32."""
    bindings = bindings_of(mod["main"])
    if not any(_float16_type(binding.var) for binding in bindings):
        return mod
    return relax.transform.DeadCodeElimination()(_Widener(mod).transform())


def _float16_type(expr: relax.Expr) -> str | None:
    """Returns the type of a tensor of 16-bit floats; None for anything else."""
    dtype = str(expr.ty.dtype) if isinstance(getattr(expr, "ty", None), relax.TensorType) else ""
    return dtype if dtype in _FLOAT16_TYPES else None


class _Widener(Rewriter):
    """Rebuilds a function.

    Attributes:
        meant: the 16-bit float's type of variables of the new function that hold what is not rounded to it, as float32.
    """

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.meant: dict[relax.Expr, str] = {}
        self._forms: dict[tuple[relax.Expr, str], relax.Var] = {}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        name = call.op.name.removeprefix("relax.") if isinstance(call.op, tvm.ir.Op) else ""
        if name == "astype" and call.args[0] in self.meant and not _float16_type(var):
            return relax.op.astype(call.args[0], str(var.ty.dtype))  # to float32 too: it is no 16-bit float any more
        contracts = name in CONVOLUTIONS or name == "matmul"
        computed = contracts or name in _COMPUTED or (name in _MOVES and any(map(self._is_meant, call.args)))
        if not computed or not isinstance(var.ty, relax.TensorType):
            return self._with_args(call, [self._rounded(arg) for arg in call.args])
        args = [self._wide(arg) for arg in call.args]
        if all(new.same_as(old) for new, old in zip(args, call.args, strict=True)) and not _float16_type(var):
            return call
        if contracts and not _float16_type(var):
            return self._with_args(call, [self._rounded(arg) for arg in call.args])  # sums of a type of their own
        made = self.builder.emit(summing_in_single(args, call) if contracts else relax.Call(call.op, args, call.attrs))
        dtype = _float16_type(var)
        if dtype is not None:
            self.meant[made] = dtype
        return made

    def result(self, expr: relax.Expr) -> relax.Expr:
        return self._rounded(self.replaced(expr))

    def _with_args(self, call: relax.Call, args: list[relax.Expr]) -> relax.Call:
        if all(new.same_as(old) for new, old in zip(args, call.args, strict=True)):
            return call
        return relax.Call(call.op, args, call.attrs, call.ty_args, call.span)

    def _is_meant(self, expr: relax.Expr) -> bool:
        fields = expr.fields if isinstance(expr, relax.Tuple) else [expr]
        return any(field in self.meant for field in fields if isinstance(field, relax.Var))

    def _rounded(self, expr: relax.Expr) -> relax.Expr:
        """Returns a tensor, or a tuple of tensors, in the model's own type."""
        if isinstance(expr, relax.Tuple):
            fields = [self._rounded(field) for field in expr.fields]
            return expr if all(f.same_as(o) for f, o in zip(fields, expr.fields, strict=True)) else relax.Tuple(fields)
        dtype = self.meant.get(expr) if isinstance(expr, relax.Var) else None
        return expr if dtype is None else self._as(expr, dtype)

    def _wide(self, expr: relax.Expr) -> relax.Expr:
        """Returns a tensor, or a tuple of tensors, in float32 instead of 16-bit floats."""
        if isinstance(expr, relax.Tuple):
            fields = [self._wide(field) for field in expr.fields]
            return expr if all(f.same_as(o) for f, o in zip(fields, expr.fields, strict=True)) else relax.Tuple(fields)
        if not _float16_type(expr):
            return expr
        if is_constant(expr) and (array := array_of(expr)).nbytes < LARGE:
            return constant(array.astype(np.float32))
        return self._as(expr, "float32")  # of a large constant it is computed where it is read

    def _as(self, expr: relax.Expr, dtype: str) -> relax.Var:
        if (expr, dtype) not in self._forms:
            self._forms[expr, dtype] = self.builder.emit(relax.op.astype(expr, dtype))
        return self._forms[expr, dtype]
