"""Annotates kernels with the operator pattern that `relax.transform.FuseOps` fuses by."""

from __future__ import annotations

from collections.abc import Iterator

import tvm
from tvm import relax, tirx

from nnefc.ir.dataflow import bindings_of
from nnefc.passes.graph.rewriter import Rewriter, is_call, is_constant, shape_of
from nnefc.symbolic.dims import element_count, size_hint

__all__ = ["FUSION", "OpPattern", "annotate_patterns"]

# Attribute of a kernel with its :class:`OpPattern`, where its maker knows better than TVM's analysis.
FUSION = "op_pattern"


class OpPattern:
    """The fusion pattern of a kernel; the numbers are TVM's."""

    ELEMENT_WISE = 0  # each result depends on the same element of an operand; joined with what makes the operand
    INJECTIVE = 2  # each result depends on few operands; not joined with a convolution before it
    OUT_FUSABLE = 4  # element-wise steps after it may be joined with it
    OPAQUE = 8  # stays alone


def annotate_patterns(mod: tvm.IRModule) -> tvm.IRModule:
    """Sets the attribute that fusion reads by TVM's analysis, where no pass has set it.

    An element-wise step that spreads a computed operand over a larger result is set apart from what computes it:
    joined, a convolution of one pixel would write a whole image for it. Other calls of the same kernel, which spread
    nothing or constants, keep their own, that joins. What computes a scalar for a tensor stays
    alone: TVM can neither inline a scalar nor move it, and so not schedule the rest.
    """
    annotated = relax.transform.AnnotateTIROpPattern()(mod)
    kernels = {gv: func for gv, func in mod.functions.items() if isinstance(func, tirx.PrimFunc)}
    known = {gv: int(func.attrs[FUSION]) for gv, func in kernels.items() if func.attrs and FUSION in func.attrs}
    for gv, pattern in known.items():
        annotated.update_func(gv, annotated[gv].with_attr(FUSION, pattern))
    for gv in _scalars_of_tensors(mod["main"]):
        if gv in known:
            continue
        annotated.update_func(gv, annotated[gv].with_attr(FUSION, OpPattern.OPAQUE))
    spreading = {
        var
        for var, call in _calls(annotated["main"])
        if call.args[0] not in known
        and int(annotated[call.args[0]].attrs[FUSION]) < OpPattern.INJECTIVE
        and _spreads(var, call)
    }
    return _SetApart(annotated, spreading).transform() if spreading else annotated


class _SetApart(Rewriter):
    """Copies the kernels of calls that must not be fused with the producers of their operands, so that these can be
    annotated alone.
    """

    def __init__(self, mod: tvm.IRModule, calls: set[relax.Var]) -> None:
        super().__init__(mod)
        self._mod, self._calls = mod, calls
        self._apart: dict[tvm.ir.GlobalVar, tvm.ir.GlobalVar] = {}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if var not in self._calls:
            return call
        gv, *operands = call.args
        if gv not in self._apart:
            kernel = self._mod[gv].with_attr(FUSION, OpPattern.INJECTIVE)
            self._apart[gv] = self.builder.add_func(kernel, gv.name_hint)
        return relax.Call(call.op, [self._apart[gv], *operands], call.attrs, call.ty_args, call.span)


def _calls(func: relax.Function) -> Iterator[tuple[relax.Var, relax.Call]]:
    """Returns the calls of kernels with one result, with the variables that are bound to it."""
    for binding in bindings_of(func):
        if is_call(binding.value, "call_tir") and isinstance(binding.var.ty, relax.TensorType):
            yield binding.var, binding.value


def _spreads(var: relax.Var, call: relax.Call) -> bool:
    """Whether a call has a computed operand smaller than its result."""
    size = size_hint(element_count(shape_of(var)))
    return any(size_hint(element_count(shape_of(arg))) < size for arg in call.args[1].fields if not is_constant(arg))


def _scalars_of_tensors(func: relax.Function) -> list[tvm.ir.GlobalVar]:
    """Returns the kernels that compute a scalar which kernels of tensors read."""
    makers: dict[relax.Var, tvm.ir.GlobalVar] = {}
    found: list[tvm.ir.GlobalVar] = []
    for var, call in _calls(func):
        if not shape_of(var):
            makers[var] = call.args[0]
        else:
            found += [makers[arg] for arg in call.args[1].fields if arg in makers]
    return list(dict.fromkeys(found))
