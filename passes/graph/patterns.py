"""How computations may be fused: what passes know of their kernels, told to `relax.transform.FuseOps`."""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from nnefc.passes.graph.rewriter import is_call, is_constant, shape_of
from nnefc.sizes import item_count, typical

__all__ = ["FUSION", "AnnotatePatterns", "OpPattern"]

# Attribute of a kernel with its :class:`OpPattern`, where its maker knows better than TVM's analysis.
FUSION = "op_pattern"


class OpPattern:
    """How a kernel may be joined with others; the numbers are TVM's."""

    ELEMENT_WISE = 0  # each result depends on the same element of an operand; joined with what makes the operand
    INJECTIVE = 2  # each result depends on few operands; not joined with a convolution before it
    OUT_FUSABLE = 4  # element-wise steps after it may be joined with it
    OPAQUE = 8  # stays alone


@tvm.transform.module_pass(opt_level=0, name="AnnotatePatterns")
class AnnotatePatterns:
    """Set the attribute that fusion reads by TVM's analysis, where no pass has set it.

    An element-wise step that spreads a computed operand over a larger result is set apart from what computes it:
    joined, a convolution of one pixel would write a whole image for it. What computes a scalar for a tensor stays
    alone: TVM can neither inline a scalar nor move it, and so not schedule the rest.
    """

    def transform_module(self, mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        annotated = relax.transform.AnnotateTIROpPattern()(mod)
        kernels = {gv: func for gv, func in mod.functions.items() if isinstance(func, tirx.PrimFunc)}
        known = {gv: int(func.attrs[FUSION]) for gv, func in kernels.items() if func.attrs and FUSION in func.attrs}
        for gv, pattern in known.items():
            annotated.update_func(gv, annotated[gv].with_attr(FUSION, pattern))
        for gv in _spreading(mod["main"]) - known.keys():
            if int(annotated[gv].attrs[FUSION]) < OpPattern.INJECTIVE:
                annotated.update_func(gv, annotated[gv].with_attr(FUSION, OpPattern.INJECTIVE))
        for gv in _scalars_of_tensors(mod["main"]) - known.keys():
            annotated.update_func(gv, annotated[gv].with_attr(FUSION, OpPattern.OPAQUE))
        return annotated


def _spreading(func: relax.Function) -> set[tvm.ir.GlobalVar]:
    """Kernels that are called with a computed operand smaller than their result."""
    found = set()
    for block in func.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if not is_call(call, "call_tir") or not isinstance(binding.var.ty, relax.TensorType):
                continue
            size = typical(item_count(shape_of(binding.var)))
            computed = [arg for arg in call.args[1].fields if not is_constant(arg)]
            if any(typical(item_count(shape_of(arg))) < size for arg in computed):
                found.add(call.args[0])
    return found


def _scalars_of_tensors(func: relax.Function) -> set[tvm.ir.GlobalVar]:
    """Kernels that compute a scalar which others read to compute tensors with axes."""
    makers: dict[relax.Var, tvm.ir.GlobalVar] = {}
    found: set[tvm.ir.GlobalVar] = set()
    for block in func.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if not is_call(call, "call_tir") or not isinstance(binding.var.ty, relax.TensorType):
                continue
            if not shape_of(binding.var):
                makers[binding.var] = call.args[0]
            else:
                found.update(makers[arg] for arg in call.args[1].fields if arg in makers)
    return found
