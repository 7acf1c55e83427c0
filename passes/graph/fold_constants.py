"""Evaluates at compile time all computations that depend on constants only.

    a = exp(const1)          const3 = exp(const1)
    b = add(x, a)      →     b = add(x, const3)

All constant parts of a network are gathered and computed together. What costs too much, or is much larger than what it
is made of, stays: it is computed at run time (`formulas.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import tvm
from tvm import relax, tirx
from tvm.ir import GenericConst

from nnefc.ir.attributes import CONVERTS_CONSTANTS, DEQUANTIZES_BLOCKS, UPDATES
from nnefc.ir.constant_evaluation import Budget, Kernels, evaluate, external_calls
from nnefc.ir.dataflow import bindings_of, variables_read
from nnefc.ir.network import control_index
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.generated_constants import values_not_stored
from nnefc.passes.graph.rewriter import Rewriter, array_of, is_call, is_constant, operands, shape_of
from nnefc.passes.graph.stored_weights import stored_weights
from nnefc.support.mapped_files import kept, release_pages
from nnefc.symbolic.dims import mentions_dynamic_dim

__all__ = ["fold_constants"]


def fold_constants(
    mod: tvm.IRModule, keep: tuple[str, ...] = (), dequantized: bool = False, converts: bool = False
) -> tvm.IRModule:
    """Replaces calls whose operands are all constant by their results.

    Args:
        keep: operators whose calls stay.
        dequantized: whether constants that were kept narrow for kernels to widen become wide, where none was joined
            with the widening.
        converts: whether narrow weights of convolutions and matrix products become float32.
    """
    bindings = _constant_bindings(mod, keep, dequantized, converts)
    if not bindings:
        return mod
    wanted = _used_outside(mod["main"], bindings)
    kernels = _kernels(mod)
    staying = values_not_stored(mod["main"], bindings, wanted, kernels)
    if staying:
        wanted = _used_outside(mod["main"], {var: each for var, each in bindings.items() if var not in staying})
        bindings = _read_by(wanted, bindings)
    if not wanted:
        return mod
    values: dict[relax.Var, GenericConst] = {}
    for parts, results in _batches(bindings, wanted):
        for var, value in zip(results, evaluate(parts, results, kernels), strict=True):
            values[var] = relax.const(kept(value))
        release_pages()
    return relax.transform.DeadCodeElimination()(_Folder(mod, values).transform())


def _read_by(wanted: list[relax.Var], bindings: dict[relax.Var, relax.Binding]) -> dict[relax.Var, relax.Binding]:
    """Keeps the bindings that some variables depend on."""
    needed, waiting = set[relax.Var](), list(wanted)
    while waiting:
        var = waiting.pop()
        if var not in needed:
            needed.add(var)
            waiting += [read for read in variables_read(bindings[var].value) if read in bindings]
    return {var: binding for var, binding in bindings.items() if var in needed}


_BATCH = 1 << 27
"""The bytes of constants in one batch: this much of the mapped files is in memory at a time."""


def _batches(
    bindings: dict[relax.Var, relax.Binding], wanted: list[relax.Var]
) -> Iterator[tuple[list[relax.Binding], list[relax.Var]]]:
    """Splits bindings into batches that do not depend on each other, with the variables wanted of each."""
    group: dict[relax.Var, relax.Var] = {}

    def root(var: relax.Var) -> relax.Var:
        while (above := group.setdefault(var, var)) != var:
            group[var] = group[above]
            var = above
        return var

    sizes: dict[relax.Var, int] = {}
    for var, binding in bindings.items():
        for read in variables_read(binding.value):
            group[root(read)] = root(var)
    for var, binding in bindings.items():
        sizes[root(var)] = sizes.get(root(var), 0) + _constant_bytes(binding)
    number: dict[relax.Var, int] = {}
    filled = 0
    for first, size in sizes.items():
        filled += size
        number[first] = filled // _BATCH
    for batch in dict.fromkeys(number.values()):
        parts = [binding for var, binding in bindings.items() if number[root(var)] == batch]
        results = [var for var in wanted if number[root(var)] == batch]
        if results:
            yield parts, results


def _constant_bytes(binding: relax.Binding) -> int:
    """Returns the size of the constants that a binding reads."""
    if not isinstance(binding.value, relax.Call):
        return 0
    return sum(array_of(part).nbytes for part in operands(binding.value) if is_constant(part))


class _Folder(Rewriter):
    def __init__(self, mod: tvm.IRModule, values: dict[relax.Var, GenericConst]) -> None:
        super().__init__(mod)
        self._values = values

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        return call

    def _bind(self, binding: relax.Binding) -> relax.Expr:
        value = self._values.get(binding.var)  # of a call, or of one of its several results
        return super()._bind(binding) if value is None else value


def _constant_bindings(
    mod: tvm.IRModule, keep: tuple[str, ...], dequantized: bool, converts: bool
) -> dict[relax.Var, relax.Binding]:
    """Returns the bindings that depend on constants alone, in order.

    Kernels that report errors to the runtime stay, for the runtime is not there at compile time, and so do those that
    compute with dynamic sizes. Choices and loops stay too; and so do transpositions and conversions of weights, for
    packing looks through them: to transpose and to pack a large matrix takes far longer than to pack it at once, and
    narrow weights stay narrow.
    """
    func, kernels = mod["main"], _kernels(mod)
    found: dict[relax.Var, relax.Binding] = {}
    constant = (  # nearly all bindings read what is computed at run time
        binding
        for binding in bindings_of(func)
        if all(var in found for var in variables_read(binding.value))
        and not _is_computed_later(binding.value, mod, keep, dequantized)
    )
    weights, budget = None, None
    for binding in constant:
        if weights is None or budget is None:
            weights = stored_weights(func, not converts)
            budget = Budget.for_constants(_constant_elements(func))
        if binding.var in weights or _is_dynamic(binding, kernels):
            continue
        if budget.covers(binding, kernels):
            found[binding.var] = binding
    return found


def _is_computed_later(value: relax.Expr, mod: tvm.IRModule, keep: tuple[str, ...], dequantized: bool) -> bool:
    """Whether a call stays, although all that it reads is constant."""
    if not isinstance(value, relax.Call):
        return False
    if control_index(value) is not None or is_call(value, *keep):
        return True
    return any(isinstance(read, relax.GlobalVar) and _stays(mod[read], dequantized) for read in operands(value))


def _is_dynamic(binding: relax.Binding, kernels: Kernels) -> bool:
    """Whether a binding depends on sizes that are known at run time."""
    call = binding.value
    called = [kernels[o] for o in operands(call) if o in kernels] if isinstance(call, relax.Call) else []
    return mentions_dynamic_dim(binding.var.ty, call, *called)


def _stays(kernel: tirx.PrimFunc, dequantized: bool) -> bool:
    """Whether a kernel's result is left to be computed at run time."""
    if kernel.attrs and UPDATES in kernel.attrs:
        return True
    if kernel.attrs and DEQUANTIZES_BLOCKS in kernel.attrs:
        return True
    if kernel.attrs and CONVERTS_CONSTANTS in kernel.attrs:
        return not dequantized or int(kernel.attrs[FUSION]) == OpPattern.OPAQUE
    return bool(external_calls(kernel))


def _kernels(mod: tvm.IRModule) -> Kernels:
    return {gv: func for gv, func in mod.functions.items() if gv.name_hint != "main"}


def _constant_elements(func: relax.Function) -> int:
    """Returns the elements of all constants that calls read."""
    calls = [b.value for b in bindings_of(func) if isinstance(b.value, relax.Call)]
    constants = {operand for call in calls for operand in operands(call) if is_constant(operand)}
    return sum(math.prod(shape_of(constant)) for constant in constants)


def _used_outside(func: relax.Function, inside: dict[relax.Var, relax.Binding]) -> list[relax.Var]:
    """Returns the variables of `inside` that other bindings or the function's result read: tensors only."""
    outside = [b.value for b in bindings_of(func) if b.var not in inside]
    read = (var for expr in (*outside, func.body.body) for var in variables_read(expr))
    wanted = dict.fromkeys(var for var in read if var in inside)
    return [var for var in wanted if isinstance(var.ty, relax.TensorType)]
