"""Assigns the blocked layout to whole regions of a network, with layout conversions only at their boundaries.

    a = conv2d(x, W1)                       a = convolution(x, pack(W1))        # [N, C/16, H, W, 16]
    b = relu(a)                      →      b = relu(a)
    c = conv2d(b, W2)                       c = convolution(b, pack(W2))
    d = flatten(c)                          d = flatten(unblock(c))

Convolutions start regions; what comes after stays blocked as long as its operation has a meaning there. Each tensor is
re-laid at most once, and constants are re-laid here, at compile time.
"""

from __future__ import annotations

from collections.abc import Collection

import tvm
from tvm import relax

from nnefc.passes.graph.algorithms.fast_algorithms import FastAlgorithms
from nnefc.passes.graph.layout.choose_block_size import channels_of_a_block
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter, LayoutRule
from nnefc.passes.graph.layout.rules import channel_gather as gathering
from nnefc.passes.graph.layout.rules import (
    channel_padding,
    channelwise_reductions,
    convolution,
    deconvolution,
    element_wise,
    local_response,
    pooling,
    quantization,
    rearrangement,
    resize,
    splitting,
    vector_convolution,
)
from nnefc.passes.graph.layout.rules import channelwise_kernels as items_of_channels
from nnefc.passes.graph.layout.rules import low_precision_convolution as narrow_convolution
from nnefc.passes.graph.quantized.packed_operands import NARROW
from nnefc.passes.graph.rewriter import operands
from nnefc.targets.machine.cpu.target import Target

__all__ = ["assign_layouts", "assign_vector_layouts"]


_KERNEL_RULES = (
    deconvolution.RULES,
    local_response.RULES,
    resize.RULES,
    items_of_channels.RULES,
    channelwise_reductions.RULES,
)


def _of_kernel(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    """Rewrites a kernel by the attribute that states its meaning, or by its structure."""
    found = (rules["call_tir"](layouts, call) for rules in _KERNEL_RULES)
    return next((made for made in found if made is not None), None)


_RULES: dict[str, LayoutRule] = {
    **element_wise.RULES,
    **convolution.RULES,
    **deconvolution.RULES,
    **channel_padding.RULES,
    **gathering.RULES,
    **pooling.RULES,
    **quantization.RULES,
    **rearrangement.RULES,
    **splitting.RULES,
    "call_tir": _of_kernel,
}
_NARROW_RULES = {**_RULES, **narrow_convolution.RULES}


def assign_layouts(mod: tvm.IRModule, target: Target, algorithms: FastAlgorithms, strict: bool = False) -> tvm.IRModule:
    """Lowers convolutions and poolings to blocked computations, and keeps what follows them blocked."""
    size = channels_of_a_block(mod, target)
    mod = LayoutRewriter(mod, target, _rule_of, strict, algorithms, size).transform()
    return relax.transform.DeadCodeElimination()(mod)


def assign_vector_layouts(mod: tvm.IRModule, types: Collection[str], size: int, host: Target) -> tvm.IRModule:
    """Assigns layouts for tensor cores: convolutions of elements of `types` are computed in blocks of `size`
    channels.

    Every other operation keeps its form where none of its operands is blocked.

    Args:
        size: what a thread loads at once.
        host: the processor that launches the kernels; no rule asks it.
    """
    convolutions = vector_convolution.rules_for(types)

    def rule_of(call: relax.Call) -> LayoutRule | None:
        if not isinstance(call.op, tvm.ir.Op):
            return None
        name = call.op.name.removeprefix("relax.")
        return _first_of(convolutions.get(name), _IN_REGIONS.get(name))

    mod = LayoutRewriter(mod, host, rule_of, True, FastAlgorithms(), size, by_elements=True).transform()
    return relax.transform.DeadCodeElimination()(mod)


def _first_of(first: LayoutRule | None, second: LayoutRule | None) -> LayoutRule | None:
    """Returns a rule that tries two rules in turn, or the only one of them."""
    if first is None or second is None:
        return first or second

    def applied(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
        made = first(layouts, call)
        return second(layouts, call) if made is None else made

    return applied


def _only_in_regions(rule: LayoutRule) -> LayoutRule:
    """Returns a rule that rewrites calls with a blocked operand and leaves others as they are."""

    def applied(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
        is_inside = any(layouts.layout_of(arg) is not None for arg in operands(call))
        return rule(layouts, call) if is_inside else None

    return applied


_IN_REGIONS = {
    name: _only_in_regions(rule)
    for name, rule in {
        **element_wise.RULES,
        **channel_padding.RULES,
        **gathering.RULES,
        **pooling.RULES,
        **quantization.RULES,
        **rearrangement.RULES,
        **splitting.RULES,
        "call_tir": _of_kernel,
    }.items()
}


def _rule_of(call: relax.Call) -> LayoutRule | None:
    if not isinstance(call.op, tvm.ir.Op):
        return None
    rules = _NARROW_RULES if call.args and _is_narrow(call.args[0]) else _RULES
    return rules.get(call.op.name.removeprefix("relax."))


def _is_narrow(expr: relax.Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType) and str(expr.ty.dtype) in NARROW
