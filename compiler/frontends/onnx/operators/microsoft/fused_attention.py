"""Fused attention of onnxruntime: joint projections, padding masks, caches, rotary embeddings.

Its optimizer writes `Attention` and `MultiHeadAttention`, its quantizer `QAttention`, and the model builder of
onnxruntime-genai `GroupQueryAttention`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nnefc.frontends.onnx.checks.extensions import DOMAIN
from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.elementwise import binary
from nnefc.frontends.onnx.operators.microsoft.quantized_operators import dequantized_product
from nnefc.frontends.onnx.operators.tensors import fail, input_at, optional_input, spell
from nnefc.operators.math.elementwise import Elementwise, Where
from nnefc.operators.math.matrix import Gemm
from nnefc.operators.nn.attention import Attention, MergeHeads, SplitHeads, Stage
from nnefc.operators.nn.cached_attention import CachedAttention, FirstPositions, PaddingMask
from nnefc.operators.nn.rotary import RotaryEmbedding
from nnefc.operators.nn.window import no_padding
from nnefc.operators.tensor.concatenation import Concat, Split, Stack, Unstack
from nnefc.operators.tensor.creation import Arange
from nnefc.operators.tensor.data_dependent_sizes import data_dependent_size
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.padding import Pad
from nnefc.operators.tensor.shape import Reshape
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, greatest
from nnefc.symbolic.unification import unify_dims

__all__: list[str] = []

_SHARED = "caches that are read and written in the same memory are not supported"
_SHARED_HINT = "build the model with caches that grow: without past_present_share_buffer"


@dataclass(frozen=True, eq=False)
class _Around:
    """The operands of an attention besides queries, keys and values.

    Attributes:
        mask: of padding, see :class:`PaddingMask`.
        bias: numbers that are added to the scores.
        past: keys and values of the positions before, or neither.
        causal: whether a query sees no key after its position.
    """

    mask: Value | None = None
    bias: Value | None = None
    past: tuple[Value | None, Value | None] = (None, None)
    causal: bool = False


def _attended(
    ctx: Context, node: Node, parts: list[Value], around: _Around, stage: Stage | None = None
) -> tuple[list[Value], Value, Value]:
    """The result `[N, L, H V]`, and the stage if there is one; all keys and values, `[N, H, S, E]`."""
    query, key, value = parts
    past_key, past_value = around.past
    if past_key is not None and past_value is not None:
        key, value = ctx.apply(Concat(2), past_key, key), ctx.apply(Concat(2), past_value, value)
    bias = around.bias
    if around.mask is not None:
        batch = query.shape[0]
        if around.mask.rank == 1 and around.mask.shape[0] == 3 * batch + 2:
            raise fail(node, "a mask of the form [3 * batch_size + 2] is not supported")
        mask = ctx.apply(PaddingMask(node.attributes["mask_filter_value"], batch, key.shape[2]), around.mask)
        bias = mask if bias is None else binary(ctx, "Add", bias, mask)
    attention = Attention(
        node.attributes.get("scale") or None,
        causal=around.causal,
        past=0 if past_key is None else past_key.shape[2],
        stage=stage,
    )
    made = ctx.apply(attention, query, key, value, bias)
    result, *scores = made if stage is not None else [made]
    return [ctx.apply(MergeHeads(), result), *scores], key, value


# Projections within the operator.


@operator("Attention", since=(1,), domain=DOMAIN)
def _attention(ctx: Context, node: Node) -> list[Value]:
    joined = ctx.apply(Gemm(), input_at(node, 0), input_at(node, 1), optional_input(node, 2))
    around = _Around(optional_input(node, 3), optional_input(node, 5))
    return _of_joined(ctx, node, joined, optional_input(node, 4), around)


@operator("QAttention", since=(1,), domain=DOMAIN)
def _quantized_attention(ctx: Context, node: Node) -> list[Value]:
    """The projections are products of integers."""
    scales = input_at(node, 3), input_at(node, 4)
    joined = dequantized_product(ctx, node, (0, 1, 6, 7), scales, input_at(node, 2))
    return _of_joined(ctx, node, joined, optional_input(node, 8), _Around(optional_input(node, 5)))


def _of_joined(ctx: Context, node: Node, joined: Value, past: Value | None, around: _Around) -> list[Value]:
    """Attention of queries, keys and values that lie side by side; the second result are all keys and values."""
    given = node.attributes
    if given.get("past_present_share_buffer"):
        raise fail(node, _SHARED, _SHARED_HINT)
    if given.get("do_rotary"):
        raise fail(node, "rotary embeddings without tables are not supported")
    width = joined.shape[2]
    sizes = tuple(given.get("qkv_hidden_sizes") or (width // 3,) * 3)
    parts = [ctx.apply(SplitHeads(given["num_heads"]), part) for part in ctx.apply(Split(2, sizes), joined)]
    before = [None, None] if past is None else _unstacked(ctx, node, past, 0, 2)
    around = _Around(around.mask, around.bias, (before[0], before[1]), bool(given["unidirectional"]))
    results, key, value = _attended(ctx, node, parts, around)
    return [*results, ctx.apply(Stack(0), key, value)] if node.wants(1) else results


@operator("MultiHeadAttention", since=(1,), domain=DOMAIN)
def _multi_head_attention(ctx: Context, node: Node) -> list[Value]:
    if optional_input(node, 8) is not None or optional_input(node, 9) is not None:
        raise fail(node, _SHARED, _SHARED_HINT)
    mask, bias, *past = (optional_input(node, i) for i in range(4, 8))
    around = _Around(mask, bias, (past[0], past[1]), bool(node.attributes["unidirectional"]))
    return _of_parts(ctx, node, optional_input(node, 3), around)


@operator("DecoderMaskedMultiHeadAttention", since=(1,), domain=DOMAIN)
def _decoder_masked_multi_head_attention(ctx: Context, node: Node) -> list[Value]:
    if node.attributes["past_present_share_buffer"] or optional_input(node, 9) is not None:
        raise fail(node, _SHARED, _SHARED_HINT)
    mask, bias, *past = (optional_input(node, i) for i in range(3, 7))
    return _of_parts(ctx, node, optional_input(node, 10), _Around(mask, bias, (past[0], past[1])))


def _of_parts(ctx: Context, node: Node, added: Value | None, around: _Around) -> list[Value]:
    """Attention of queries, keys and values in the forms that onnxruntime has for them."""
    heads = node.attributes["num_heads"]
    given = _separate(ctx, node)
    if added is not None:
        flat = [part for part in given if part.rank == 3]
        widths = [part.shape[2] for part in flat]
        if len(flat) < 3:
            raise fail(node, "a bias of keys and values that have their heads already is not supported")
        biases = ctx.apply(Split(0, tuple(widths)), added)
        given = [binary(ctx, "Add", part, bias) for part, bias in zip(given, biases, strict=True)]
    parts = [part if part.rank == 4 else ctx.apply(SplitHeads(heads), part) for part in given]
    results, key, value = _attended(ctx, node, parts, around, "masked" if node.wants(3) else None)
    return [results[0], key, value, *results[1:]][: len(node.outputs)]


def _separate(ctx: Context, node: Node) -> list[Value]:
    """Queries, keys and values, of which two or all may be packed: `[N, L, H, 3, E]`, `[N, L, H, 2, E]`."""
    query, key, value = input_at(node, 0), optional_input(node, 1), optional_input(node, 2)
    heads = node.attributes["num_heads"]
    for packed in (part for part in (query, key) if part is not None and part.rank == 5):
        if not unify_dims(packed.shape[2], heads):
            raise fail(node, f"{spell(packed.shape)} does not have {heads} heads along axis 2")
    if query.rank == 5:
        return [_flat(ctx, part) for part in _unstacked(ctx, node, query, 3, 3)]
    if key is None:
        raise fail(node, "keys and values are missing")
    if key.rank == 5:
        return [query, *(_flat(ctx, part) for part in _unstacked(ctx, node, key, 3, 2))]
    if value is None:
        raise fail(node, "the values are missing")
    return [query, key, value]


def _unstacked(ctx: Context, node: Node, x: Value, axis: int, count: int) -> list[Value]:
    """The parts of a tensor of five dimensions along one of them, which are so many."""
    if x.rank != 5 or not unify_dims(x.shape[axis], count):
        raise fail(node, f"{spell(x.shape)} does not have {count} parts along axis {axis}")
    made: list[Value] = ctx.apply(Unstack(axis), x)
    return made


def _flat(ctx: Context, x: Value) -> Value:
    """`[N, L, H, E]` as `[N, L, H E]`."""
    made: Value = ctx.apply(Reshape((*x.shape[:2], x.shape[2] * x.shape[3])), x)
    return made


# Decoders.


@operator("GroupQueryAttention", since=(1,), domain=DOMAIN)
def _group_query_attention(ctx: Context, node: Node) -> list[Value]:
    given = node.attributes
    _check_supported(node)
    parts = _of_groups(ctx, node)
    caches = optional_input(node, 3), optional_input(node, 4)
    last, total = input_at(node, 5), input_at(node, 6)
    batch, length, heads, _ = parts[0].shape
    before = 0 if caches[0] is None else caches[0].shape[2]
    cached = greatest(before, _whole_length(ctx, total, before + length))
    window = given["local_window_size"]
    stages: tuple[Stage | None, ...] = (None, "masked", "weights")
    attention = Attention(
        given.get("scale") or None,
        causal=bool(given["causal"]),
        left=window - 1 if window > 0 else None,
        softcap=given["softcap"],
        stage=stages[given["qk_output"]] if node.wants(3) else None,
    )
    sink = optional_input(node, 11)
    if sink is None and given["smooth_softmax"]:
        sink = ctx.known(np.zeros(heads, np.float32))
    made: list[Value] = ctx.apply(
        CachedAttention(
            attention,
            cached,
            RotaryEmbedding(bool(given["rotary_interleaved"])) if given["do_rotary"] else None,
            given["qk_norm_epsilon"],
        ),
        parts,
        caches,
        ctx.apply(FirstPositions(length), ctx.apply(Reshape((batch,)), last), total),
        [input_at(node, i) for i in (7, 8)] if given["do_rotary"] else [],
        optional_input(node, 9),
        (optional_input(node, 14), optional_input(node, 15)),
        _as_wide(ctx, optional_input(node, 10), cached),
        sink,
        [_step(ctx, node, position, parts[1]) for position in (12, 13)],
    )
    if given["qk_output"] == 1 and node.wants(3):
        made[3] = _without_hidden(ctx, made[3])
    return made[: max(1, len(node.outputs))]


def _without_hidden(ctx: Context, scores: Value) -> Value:
    """Scores with zeros for what is not seen."""
    hidden = ctx.apply(Elementwise("isneginf"), scores)
    made: Value = ctx.apply(Where(), hidden, ctx.known(np.zeros((), scores.dtype)), scores)
    return made


def _step(ctx: Context, node: Node, position: int, new: Value) -> Value | None:
    """Between the numbers that integers in a cache stand for, as :class:`CachedAttention` has it; None for floats."""
    step = optional_input(node, position)
    if node.attributes["k_quant_type" if position == 12 else "v_quant_type"] == "NONE":
        return None
    if step is None:
        raise fail(node, "the scale of a quantized cache is missing")
    groups, size = new.shape[2:]
    made: Value = ctx.apply(Reshape((1, 1, 1, 1) if math.prod(step.shape) == 1 else (1, groups, 1, size)), step)
    return made


def _check_supported(node: Node) -> None:
    """Refuse caches of 4 bits and of a window."""
    given = node.attributes
    quantized = {given["k_quant_type"], given["v_quant_type"]} != {"NONE"}
    if quantized and given.get("kv_cache_bit_width", 8) not in (0, 8):
        raise fail(node, "caches of 4 bits are not supported", "build the model with caches of floats or of 8 bits")
    if given["sliding_window_cache"]:
        raise fail(node, "caches of a window are not supported", "build the model with caches of all positions")


def _of_groups(ctx: Context, node: Node) -> list[Value]:
    """Queries `[N, S, H, E]`, keys and values `[N, S, G, E]`, which may be packed in one tensor."""
    query, key, value = input_at(node, 0), optional_input(node, 1), optional_input(node, 2)
    heads, groups = node.attributes["num_heads"], node.attributes["kv_num_heads"]
    given = [part for part in (query, key, value) if part is not None]
    if heads < 1 or groups < 1 or any(part.rank != 3 for part in given):
        raise CompileError(f"{heads} heads, and {groups} of keys, are not of tensors of three dimensions")
    counts = (heads, groups, groups)
    if key is None or value is None:
        size = query.shape[2] // sum(counts)
        parts = ctx.apply(Split(2, tuple(count * size for count in counts)), query)
    else:
        parts = [query, key, value]
    shapes = ((*part.shape[:2], count, part.shape[2] // count) for part, count in zip(parts, counts, strict=True))
    return [ctx.apply(Reshape(shape), part) for part, shape in zip(parts, shapes, strict=True)]


def _whole_length(ctx: Context, total: Value, maximum: Dimension) -> Dimension:
    """Returns how many positions there are: a number, a dynamic size, or a data-dependent count."""
    if total.sizes is not None:
        size: Dimension = total.sizes.reshape(-1)[0]
        return size
    array = ctx.constant(total)
    if array is not None:
        return int(array.reshape(-1)[0])
    return data_dependent_size(ctx.emitter, ctx.expr(total), maximum, "total_sequence_length")


def _as_wide(ctx: Context, bias: Value | None, keys: Dimension) -> Value | None:
    """Pads the bias of scores with zeros for the rest of the cache, which is masked for all queries."""
    if bias is None or bias.shape[-1] == keys:
        return bias
    made: Value = ctx.apply(Pad((*no_padding(bias.rank - 1), (0, keys - bias.shape[-1]))), bias)
    return made


@operator("RotaryEmbedding", since=(1,), domain=DOMAIN)
def _rotary_embedding(ctx: Context, node: Node) -> Value:
    x, positions, cos, sin = (input_at(node, i) for i in range(4))
    given = node.attributes
    flat = x.rank == 3
    if flat:
        heads = given["num_heads"]
        size = x.shape[2] // heads if heads > 0 else 2 * cos.shape[1]
        x = ctx.apply(Reshape((*x.shape[:2], x.shape[2] // size, size)), x)
    length = x.shape[1 if flat else 2]
    if positions.rank == 1:  # the first one, from which all count on
        steps = ctx.apply(Reshape((1, length)), ctx.apply(Arange(0, length, 1, "int64")))
        positions = binary(ctx, "Add", steps, positions)
    rows = [ctx.apply(Gather(0), table, positions) for table in (cos, sin)]
    middle = (rows[0].shape[0], length, 1) if flat else (rows[0].shape[0], 1, length)
    angles = [ctx.apply(Reshape((*middle, row.shape[2])), row) for row in rows]
    made: Value = ctx.apply(RotaryEmbedding(bool(given["interleaved"]), given["scale"]), x, *angles)
    return _flat(ctx, made) if flat else made
