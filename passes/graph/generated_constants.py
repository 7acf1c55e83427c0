"""Decides which values computed from few or no constants are stored in the library, and which are computed at run time.

    a = full((10000, 1000), 1)        the same, not 40 MB of ones
    b = add(x, a)

What is computed of trained values is about as large as these, and is stored. What is computed of nothing, or of few
bytes, such as a mask, a range or one number everywhere, may be of any size; it costs little to compute again, mostly
inside of the kernel that reads it. It is stored where it is small compared with what is stored anyway; where functions
or sums are in it, which take longer than reading; and where kernels for constants are faster: weights, and masks of
attention.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set

import tvm
import tvm_ffi
from tvm import relax, s_tir

from nnefc.ir.constant_evaluation import Kernels
from nnefc.ir.dataflow import bindings_of, variables_read
from nnefc.passes.graph.rewriter import is_call, is_constant, operands

__all__ = ["values_not_stored"]

_SMALL = 1 << 14
"""Values of up to this many bytes are always stored."""
_FEW = 1 << 16
"""Values that are cheap to compute are stored as long as all of them together have no more bytes than this, plus a
share of what is stored anyway.
"""
_PART = 16
_SLOW = 1 << 22
"""A value that takes long to compute is stored up to this many bytes, plus this factor of what is stored anyway."""
_OF_STORED = 4
_GROWTH = 8
"""How many times larger than its operands a value may be, and still count as one of trained values: filters for larger
Winograd tiles are seven times as large.
"""

_CHEAP = {
    "abs", "add", "arange", "astype", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "broadcast_to",
    "ceil", "clip", "concat", "divide", "equal", "expand_dims", "eye", "flip", "floor", "full", "full_like",
    "greater", "greater_equal", "left_shift", "less", "less_equal", "logical_and", "logical_not", "logical_or",
    "logical_xor", "maximum", "minimum", "multiply", "negative", "nn.pad", "not_equal", "ones", "ones_like",
    "permute_dims", "repeat", "reshape", "right_shift", "split", "squeeze", "stack", "strided_slice",
    "subtract", "tile", "tril", "triu", "where", "zeros", "zeros_like",
}  # fmt: skip
_CHEAP_CALLS = {
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "fabs", "floor", "if_then_else",
    "isfinite", "isinf", "isnan", "likely", "nearbyint", "reinterpret", "round", "shift_left", "shift_right",
    "trunc",
}  # fmt: skip
_TO_SOFTMAX = ("add", "astype", "broadcast_to", "expand_dims", "multiply", "reshape", "subtract", "where")
_STEPS_TO_SOFTMAX = 6


def values_not_stored(
    func: relax.Function, found: Mapping[relax.Var, relax.Binding], wanted: list[relax.Var], kernels: Kernels
) -> Set[relax.Var]:
    """Returns the values that could be computed at compile time but are computed by the library.

    Args:
        found: the bindings that depend on constants alone, in order.
        wanted: those of their variables that others read.
    """
    large = [var for var in wanted if _bytes(var) > _SMALL]
    if not large:
        return frozenset()
    stored = _stored_bytes(func)
    sources = _sources(found, stored)
    formulas = {var for var in found if _bytes(var) > _SMALL + _GROWTH * sources[var]}
    readers = _readers(func)
    left, staying = _FEW + stored // _PART, set[relax.Var]()
    for var in large:
        if var not in formulas or _is_weight(var, readers):
            continue
        chain = _chain(var, found, formulas)
        is_cheap = all(_is_cheap(found[each].value, kernels) for each in chain)
        if is_cheap and not _is_mask(var, readers):
            left -= _bytes(var)
            fits = left >= 0
        else:
            fits = _bytes(var) <= _SLOW + _OF_STORED * stored
        if not fits:
            staying |= chain
    return staying


def _chain(var: relax.Var, found: Mapping[relax.Var, relax.Binding], formulas: Set[relax.Var]) -> set[relax.Var]:
    """Returns a value, and the large values that it is computed from."""
    chain, waiting = set[relax.Var](), [var]
    while waiting:
        each = waiting.pop()
        if each not in chain:
            chain.add(each)
            waiting += [read for read in variables_read(found[each].value) if read in formulas]
    return chain


def _sources(found: Mapping[relax.Var, relax.Binding], stored: int) -> dict[relax.Var, int]:
    """Returns an upper bound of the bytes of constants that each value is computed from: a constant that is read twice
    counts twice.
    """
    sources: dict[relax.Var, int] = {}
    for var, binding in found.items():
        read = operands(binding.value) if isinstance(binding.value, relax.Call) else [binding.value]
        constants = sum(_bytes(each) for each in read if is_constant(each))
        others = sum(sources.get(each, 0) for each in variables_read(binding.value))
        sources[var] = min(stored, constants + others)
    return sources


def _stored_bytes(func: relax.Function) -> int:
    """Returns the size of all constants of the function."""
    calls = [b.value for b in bindings_of(func) if isinstance(b.value, relax.Call)]
    constants = dict.fromkeys(operand for call in calls for operand in operands(call) if is_constant(operand))
    return sum(map(_bytes, constants))


def _bytes(expr: relax.Expr) -> int:
    if not isinstance(expr.ty, relax.TensorType):
        return sum(map(_type_bytes, expr.ty.fields)) if isinstance(expr.ty, relax.TupleType) else 0
    return _type_bytes(expr.ty)


def _type_bytes(ty: relax.Type) -> int:
    if not isinstance(ty, relax.TensorType):
        return 0
    bits: int = tvm.DataType(str(ty.dtype)).bits
    return math.prod(int(size) for size in ty.shape) * -(-bits // 8)


def _readers(func: relax.Function) -> dict[relax.Var, list[relax.Binding]]:
    readers: dict[relax.Var, list[relax.Binding]] = {}
    for binding in bindings_of(func):
        for var in variables_read(binding.value):
            readers.setdefault(var, []).append(binding)
    return readers


def _is_weight(var: relax.Var, readers: Mapping[relax.Var, list[relax.Binding]]) -> bool:
    """Whether a contraction reads a value, perhaps transposed or dequantized."""
    for binding in readers.get(var, ()):
        call = binding.value
        if is_call(call, "matmul", "einsum") or (is_call(call) and str(call.op.name).startswith("relax.nn.conv")):
            return True
        if is_call(call, "permute_dims", "dequantize") and _is_weight(binding.var, readers):
            return True
    return False


def _is_mask(var: relax.Var, readers: Mapping[relax.Var, list[relax.Binding]]) -> bool:
    """Whether the value reaches a softmax through a few operators: attention skips what constant masks hide."""
    seen, steps = {var}, [var]
    for _ in range(_STEPS_TO_SOFTMAX):
        bindings = [binding for each in steps for binding in readers.get(each, ())]
        if any(is_call(binding.value, "nn.softmax") for binding in bindings):
            return True
        steps = [b.var for b in bindings if is_call(b.value, *_TO_SOFTMAX) and b.var not in seen]
        seen.update(steps)
    return False


def _is_cheap(expr: relax.Expr, kernels: Kernels) -> bool:
    """Whether each element of a result takes a few instructions."""
    if not isinstance(expr, relax.Call):
        return True
    called = next((kernels[operand] for operand in operands(expr) if operand in kernels), None)
    if called is None:
        return is_call(expr, *_CHEAP)
    slow: list[object] = []

    def note(node: tvm.ir.Call | s_tir.SBlock) -> None:
        if isinstance(node, s_tir.SBlock):
            slow.extend([node] if node.init is not None else [])
        elif str(getattr(node.op, "name", "")).rpartition(".")[2] not in _CHEAP_CALLS:
            slow.append(node)

    tvm_ffi.structural_walk(called.body, ((tvm.ir.Call, s_tir.SBlock), note))
    return not slow
