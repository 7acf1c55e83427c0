"""`tract_transformers`: attention, rotary embedding, activations of language models."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.registries.axes import axis_of
from nnefc.frontends.nnef.registries.core import cast_result
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.base import Operand, dtype_of, rank_of, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Where, apply
from nnefc.operators.nn.activation import Softmax
from nnefc.operators.nn.attention import Attention
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.shape import Slice, Squeeze, Unsqueeze

__all__: list[str] = []

_TRANSFORMERS = registry("tract_transformers")
for _name in ("rms_norm", "silu", "gelu_approx"):
    _TRANSFORMERS.operators[f"tract_transformers_{_name}"] = registry("tract_core").operators[f"tract_core_{_name}"]


@_TRANSFORMERS.operator(
    "fragment tract_transformers_sdpa<?>(q: tensor<scalar>, k: tensor<scalar>, v: tensor<scalar>, mask: tensor<?> = 0, "
    "scale: scalar = 0.0, datum_type: string = '', acc_datum_type: string = '', is_causal: logical = false, "
    "causal: logical = false) -> (output: tensor<scalar>)",
    sizes=True,
)
def _sdpa(context: ExtensionContext, args: Arguments) -> Operand:
    """Attention of rank 3 or 4. Without a scale it is one over the root of the width; `causal` is an older name."""
    emitter = context.emitter
    q, k, v = (emitter.apply(Cast("float32"), x) for x in emitter.promoted([args.q, args.k, args.v]))
    mask = None if isinstance(args.mask, int | float) else emitter.tensor(args.mask, "float32")
    if mask is not None and dtype_of(mask) != "bool":
        mask = emitter.apply(Cast("float32"), mask)
    flat = rank_of(q) == 3
    if flat:
        q, k, v = (emitter.apply(Unsqueeze((1,)), x) for x in (q, k, v))
        mask = emitter.apply(Unsqueeze((1,)), mask) if mask is not None and rank_of(mask) == 3 else mask
    operator = Attention(args.scale or None, causal=args.is_causal or args.causal)
    made = emitter.apply(operator, q, k, v, mask)
    made = emitter.apply(Squeeze((1,)), made) if flat else made
    return cast_result(context, made, args.datum_type)


@_TRANSFORMERS.operator(
    "fragment tract_transformers_apply_rope(input: tensor<scalar>, cos: tensor<scalar>, sin: tensor<scalar>) "
    "-> (output: tensor<scalar>)"
)
def _apply_rope(context: ExtensionContext, args: Arguments) -> Operand:
    """`x · cos + rotated(x) · sin`, where the second half of the last axis, negated, comes before the first."""
    emitter, x = context.emitter, args.input
    axis = axis_of(-1, rank_of(x))
    half = shape_of(x)[axis] // 2
    first, second = (emitter.apply(Slice({axis: (start, half, 1)}), x) for start in (0, half))
    rotated = emitter.apply(Concat(axis), apply(emitter, "negative", second), first)
    return apply(emitter, "add", apply(emitter, "multiply", x, args.cos), apply(emitter, "multiply", rotated, args.sin))


@_TRANSFORMERS.operator(
    "fragment tract_transformers_scaled_masked_softmax<?>(input: tensor<scalar>, mask: tensor<?>, scale: scalar = 1.0, "
    "post_softmax_mask: logical = false) -> (output: tensor<scalar>)",
    sizes=True,
)
def _scaled_masked_softmax(context: ExtensionContext, args: Arguments) -> Operand:
    """Softmax over the last axis of `x · scale`, masked: numbers are added, booleans choose."""
    emitter = context.emitter
    x, mask = emitter.apply(Cast("float32"), emitter.tensor(args.input)), emitter.tensor(args.mask)
    scaled = apply(emitter, "multiply", x, emitter.number(args.scale, x))
    if dtype_of(mask) == "bool":
        scaled = emitter.apply(Where(), mask, scaled, emitter.number(-np.inf, x))
    else:
        scaled = apply(emitter, "add", scaled, emitter.apply(Cast("float32"), mask))
    made = emitter.apply(Softmax((rank_of(x) - 1,)), scaled)
    if args.post_softmax_mask and dtype_of(mask) == "bool":
        made = emitter.apply(Where(), mask, made, emitter.number(0, x))
    return made
