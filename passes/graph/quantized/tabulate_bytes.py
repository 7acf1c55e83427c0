"""Replaces element-wise functions from bytes to bytes by lookup tables of 256 elements.

    a = dequantize(x, s, z)
    b = quantize(sigmoid(a), t, v)                      table = quantize(dequantize([-128 … 127]) …), while compiling
    c = multiply(a, dequantize(b, t, v))        →       y = table[x + 128]
    y = quantize(c, u, w)

Quantizers that put `quantize` and `dequantize` around every operator make such chains of each activation function:
GELU and the hard swish as exporters write them round three times. Parameters must hold for the whole tensor. A chain
stays as it is where vectors compute it in less time than elements are looked up in, one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from nnefc.ir.constant_evaluation import evaluate
from nnefc.ir.dataflow import bindings_of, variables_read
from nnefc.ir.kernel_calls import call_te
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, shape_of
from nnefc.support.element_types import BYTES
from nnefc.targets.machine.cpu.target import Target

__all__ = ["tabulate_bytes"]

_VALUES = 256
_LOOKUP = 3
"""The instructions of a table lookup for each element: two loads and a store."""
_MIN = 16
"""The fewest instructions for an element that a table replaces; cheaper expressions, such as clamps and other scales,
are computed in integers.
"""

_MAX_ROUNDINGS = 16
"""The largest number of roundings to bytes in one table; longer chains become several, so that the work stays
linear.
"""

_FUNCTION = 16
_COSTS = {
    "quantize": 8,
    "dequantize": 4,
    **dict.fromkeys(("divide", "sqrt", "rsqrt"), 4),
    **dict.fromkeys(
        ("abs", "add", "astype", "ceil", "clip", "floor", "maximum", "minimum", "multiply", "negative", "nn.leakyrelu",
         "nn.relu", "round", "sign", "square", "subtract", "trunc", "where", "equal", "not_equal", "less",
         "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_not"),
        1,
    ),
    **dict.fromkeys(
        ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "log", "nn.gelu",
         "nn.gelu_tanh", "nn.selu", "nn.silu", "nn.softplus", "power", "sigmoid", "sin", "sinh", "tan", "tanh"),
        _FUNCTION,
    ),
}  # fmt: skip
"""Element-wise operators, with the approximate number of instructions that each takes for a vector."""


def tabulate_bytes(mod: tvm.IRModule, target: Target, computations: Mapping[str, Callable[..., Any]]) -> tvm.IRModule:
    """Evaluates functions from one tensor of bytes to bytes at compile time, as tables.

    Args:
        target: whose vectors compute what is not looked up.
        computations: how operators are computed, by their names.
    """
    if not any(_is_narrow(binding.var) for binding in bindings_of(mod["main"])):
        return mod
    # Quantizers write one quantization of a tensor for each of its readers.
    joined = relax.transform.EliminateCommonSubexpr()(mod)
    chains = _Chains(joined)
    minimum = max(_MIN, _LOOKUP * target.lanes("float32"))
    wanted = [var for var in chains.needed() if chains.cost(var) > minimum]
    if not wanted:
        return mod
    tables = dict(zip(wanted, _tables(chains, wanted, computations), strict=True))
    return relax.transform.DeadCodeElimination()(_Rewriter(joined, chains, tables).transform())


def _is_narrow(expr: relax.Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType) and str(expr.ty.dtype) in BYTES


class _Chains:
    """The tensors that are element-wise functions of a single tensor of bytes.

    Attributes:
        source: that tensor, of each of them.
        calls: what each of them is bound to, and each scalar that depends on constants alone.
    """

    def __init__(self, mod: tvm.IRModule) -> None:
        self.source: dict[relax.Var, relax.Var] = {}
        self.calls: dict[relax.Var, relax.Call] = {}
        self._roundings: dict[relax.Var, int] = {}
        self._readers: defaultdict[relax.Var, list[relax.Var]] = defaultdict(list)
        for binding in bindings_of(mod["main"]):
            for var in variables_read(binding.value):
                self._readers[var].append(binding.var)
            if is_call(binding.value, *_COSTS):
                self._note(binding.var, binding.value)
        self._results = set(variables_read(mod["main"].body.body))

    def _note(self, var: relax.Var, call: relax.Call) -> None:
        tensors = [arg for arg in call.args if isinstance(arg.ty, relax.TensorType)]
        varying = [arg for arg in tensors if not self._is_scalar(arg)]
        if not varying:
            if _elements(var) == 1:
                self.calls[var] = call
            return
        source, *others = dict.fromkeys(self._source_of(arg) for arg in varying)
        if others or not isinstance(source, relax.Var) or not _is_narrow(source):
            return
        if all(_elements(arg) is None and shape_of(arg) == shape_of(var) for arg in varying) and len(shape_of(var)):
            self.source[var], self.calls[var] = source, call
            before = max(self._roundings.get(arg, 0) if self._source_of(arg) is not arg else 0 for arg in varying)
            self._roundings[var] = before + _is_narrow(var)

    def _source_of(self, expr: relax.Expr) -> relax.Expr:
        """Returns the bytes that an operand is a function of: the operand itself, if many roundings come before it."""
        if _is_narrow(expr) and self._roundings.get(expr, 0) >= _MAX_ROUNDINGS:
            return expr
        return self.source.get(expr, expr)

    def _is_scalar(self, expr: relax.Expr) -> bool:
        """Whether an operand is one number that is known."""
        known = is_constant(expr) or (expr in self.calls and expr not in self.source)
        return known and _elements(expr) == 1

    def needed(self) -> list[relax.Var]:
        """Returns the bytes that other operators read, or that are computed with in a wider type."""
        escape = set()
        for var in reversed(self.source):
            source = self.source[var]
            inside = [reader for reader in self._readers[var] if self.source.get(reader) is source]
            outside = var in self._results or len(inside) < len(self._readers[var])
            if outside or any(reader in escape and not _is_narrow(reader) for reader in inside):
                escape.add(var)
        return [var for var in self.source if var in escape and _is_narrow(var)]

    def steps(self, var: relax.Var) -> list[relax.Var]:
        """Returns the steps between the source and `var`, in order, scalars included."""
        found: dict[relax.Var, None] = {}
        waiting, source = [(var, False)], self.source[var]
        while waiting:
            step, is_done = waiting.pop()
            if is_done:
                found[step] = None
            elif step in self.calls and step not in found and not step.same_as(source):
                waiting.append((step, True))
                waiting += [(arg, False) for arg in self.calls[step].args if isinstance(arg, relax.Var)]
        return list(found)

    def cost(self, var: relax.Var) -> int:
        """Returns the instructions for a vector of elements."""
        steps = (step for step in self.steps(var) if step in self.source)
        return sum(_COSTS[self.calls[step].op.name.removeprefix("relax.")] for step in steps)


def _elements(expr: relax.Expr) -> int | None:
    """Returns 1 for a tensor of one element, and None for others."""
    return 1 if all(isinstance(size, int) and size == 1 for size in shape_of(expr)) else None


def _tables(
    chains: _Chains, wanted: Sequence[relax.Var], computations: Mapping[str, Callable[..., Any]]
) -> list[np.ndarray]:
    """Returns the values of functions for all values of their sources.

    Numbers are variables here, for equal functions of different scales to be compiled once.
    """
    builder = relax.BlockBuilder()
    values: dict[relax.Var, tvm.runtime.Tensor] = {}

    def given(array: np.ndarray) -> relax.Var:
        value = constant(array)
        var = relax.Var(f"value{len(values)}", value.ty)
        values[var] = value.value
        return var

    def operand(arg: relax.Expr, step: relax.Var, own: dict[relax.Expr, relax.Var], position: int) -> relax.Expr:
        if arg in own or not isinstance(arg.ty, relax.TensorType):
            return own.get(arg, arg)
        if not is_constant(arg):  # the source
            limits, rank = np.iinfo(str(arg.ty.dtype)), len(shape_of(arg))
            steps = np.arange(limits.min, limits.max + 1, dtype=limits.dtype)
            own[arg] = given(steps.reshape(*[1] * (rank - 1), _VALUES))
            return own[arg]
        is_parameter = position > 0 and is_call(chains.calls[step], "quantize", "dequantize")
        return given(array_of(arg).reshape(()) if is_parameter else array_of(arg))

    with builder.function("main", []):
        with builder.dataflow():
            results = []
            for var in wanted:
                own: dict[relax.Expr, relax.Var] = {}
                for step in chains.steps(var):
                    call = chains.calls[step]
                    args = [operand(arg, step, own, position) for position, arg in enumerate(call.args)]
                    own[step] = builder.emit(relax.Call(call.op, args, call.attrs, call.ty_args))
                results.append(own[var])
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    legal = relax.transform.LegalizeOps(computations)(builder.finalize())
    bindings = bindings_of(legal["main"])
    *steps, last = bindings
    kernels = {gv: func for gv, func in legal.functions.items() if isinstance(func, tirx.PrimFunc)}
    return [tensor.numpy().reshape(-1) for tensor in evaluate(steps, list(last.value.fields), kernels, values)]


class _Rewriter(Rewriter):
    def __init__(self, mod: tvm.IRModule, chains: _Chains, tables: dict[relax.Var, np.ndarray]) -> None:
        super().__init__(mod)
        self._chains, self._tables = chains, tables

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if var not in self._tables:
            return call
        source = self.replaced(self._chains.source[var])
        return call_te(
            self.builder,
            _looked_up,
            source,
            constant(self._tables[var]),
            name="look_up",
            attrs={FUSION: OpPattern.OPAQUE},
        )


def _looked_up(x: te.Tensor, table: te.Tensor) -> te.Tensor:
    """Returns the element of a table of 256 for each byte, the smallest one first."""
    minimum = int(np.iinfo(str(x.dtype)).min)

    def element(*index: tirx.Var) -> tirx.Expr:
        position = x(*index).astype("int32")
        return table(position - minimum if minimum else position)

    return te.compute(x.shape, element, name="look_up")
