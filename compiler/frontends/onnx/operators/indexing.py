"""Reads and writes at indices that come from data: the gather and scatter families, and their derivatives."""

from __future__ import annotations

from typing import Any

from nnefc.frontends.onnx.checks.extensions import DOMAIN
from nnefc.frontends.onnx.operator import Context, Node, operator
from nnefc.frontends.onnx.operators.tensors import (
    fail,
    has_input,
    input_at,
    integers,
    normal_axis,
    tells_at_run_time,
)
from nnefc.operators.tensor.data_dependent_sizes import data_dependent_size
from nnefc.operators.tensor.indexing import Gather, GatherElements, GatherND, OneHot, ReverseSequence
from nnefc.operators.tensor.scatter import ScatterElements, ScatterND, TensorScatter
from nnefc.operators.tensor.sorting import TopK
from nnefc.symbolic.dims import is_known, minimum

__all__: list[str] = []


@operator("Gather", since=(1, 11, 13))
@operator("GatherElements", since=(11, 13))
def _gather(ctx: Context, node: Node) -> Any:
    x, indices = input_at(node, 0), input_at(node, 1)
    kind = Gather if node.op_type == "Gather" else GatherElements
    return ctx.apply(kind(normal_axis(node, node.attributes["axis"], x.rank)), x, indices)


@operator("GatherND", since=(1,), domain=DOMAIN)
@operator("GatherND", since=(11, 12, 13))
def _gather_nd(ctx: Context, node: Node) -> Any:
    x, indices, batch = input_at(node, 0), input_at(node, 1), node.attributes.get("batch_dims", 0)
    rank = None if is_known(*indices.shape[-1:]) else ctx.declared_rank(node.outputs[0])
    depth = None if rank is None else indices.rank - 1 + x.rank - batch - rank
    return ctx.apply(GatherND(batch, depth), x, indices)


@operator("Scatter", since=(9, 11))
@operator("ScatterElements", since=(11, 13, 16, 18))
def _scatter_elements(ctx: Context, node: Node) -> Any:
    data, indices, updates = (input_at(node, i) for i in range(3))
    axis = normal_axis(node, node.attributes["axis"], data.rank)
    return ctx.apply(ScatterElements(axis, node.attributes.get("reduction", "none")), data, indices, updates)


@operator("ScatterND", since=(11, 13, 16, 18))
def _scatter_nd(ctx: Context, node: Node) -> Any:
    return ctx.apply(ScatterND(node.attributes.get("reduction", "none")), *(input_at(node, i) for i in range(3)))


@operator("TensorScatter", since=(24,))
def _tensor_scatter(ctx: Context, node: Node) -> Any:
    cache, update = input_at(node, 0), input_at(node, 1)
    axis = normal_axis(node, node.attributes["axis"], cache.rank)
    starts = [input_at(node, 2)] if has_input(node, 2) else []
    return ctx.apply(TensorScatter(axis, node.attributes["mode"] == "circular"), cache, update, *starts)


@operator("OneHot", since=(9, 11, 28))
def _one_hot(ctx: Context, node: Node) -> Any:
    indices, values = input_at(node, 0), input_at(node, 2)
    depth = (integers(ctx, node, 1, "depth") or [0])[0]
    if is_known(depth) and not 0 <= depth <= 1 << 31:
        raise fail(node, f"'depth' is {depth}")
    return ctx.apply(OneHot(depth, normal_axis(node, node.attributes["axis"], indices.rank + 1)), values, indices)


@operator("ReverseSequence", since=(10, 28))
def _reverse_sequence(ctx: Context, node: Node) -> Any:
    time, batch = node.attributes["time_axis"], node.attributes["batch_axis"]
    if {time, batch} != {0, 1}:
        raise fail(node, f"the axes of time and batch are {time} and {batch}, not 0 and 1")
    return ctx.apply(ReverseSequence(time, batch), input_at(node, 0), input_at(node, 1))


@operator("TopK", since=(1, 10, 11, 24))
def _top_k(ctx: Context, node: Node) -> Any:
    """Unsorted results are sorted all the same."""
    x = input_at(node, 0)
    axis = normal_axis(node, node.attributes.get("axis", -1), x.rank)
    if node.version == 1:
        k = node.attributes["k"]
    elif tells_at_run_time(ctx, node, 1):
        k = minimum(
            data_dependent_size(ctx.emitter, ctx.expr(input_at(node, 1)), x.shape[axis], "topk", "error"), x.shape[axis]
        )
    else:
        k = (integers(ctx, node, 1, "K") or [0])[0]
    return ctx.apply(TopK(axis, k, bool(node.attributes.get("largest", 1))), x)
