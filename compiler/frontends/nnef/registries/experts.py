"""Mixtures of experts: `tract_transformers` with a router, and `nnefc` where the document chooses the experts.

y = tract_moe_ffn(x, router, w1, w2, w3, k = 8);                       [T, D]
y = nnefc_experts(x, chosen, shares, w1, w2, w3, count = 128);                      [T, D], [T, k], [T, k]
"""

from __future__ import annotations

import numpy as np

from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.base import Operand, rank_of, shape_of
from nnefc.operators.math.elementwise import apply
from nnefc.operators.math.matrix import MatMul
from nnefc.operators.nn.experts import ChosenExperts, ExpertLayer, MixtureOfExperts
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.shape import Transpose
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []

_TRANSFORMERS, _NNEFC = registry("tract_transformers"), registry("nnefc")
_GATES = {
    "softmax_topk": ("softmax", True),
    "softmax_all": ("softmax", False),
    "sigmoid": ("sigmoid", False),
    "raw": ("none", False),
}
"""Routing by tract's names: the function of scores, and whether the chosen experts' weights are normalized."""
_ACTIVATIONS = {
    "swiglu": "silu",
    "silu": "silu",
    "geglu": "gelu",
    "gelu": "gelu",
    "relu": "relu",
    "identity": "identity",
}
_BIASES = ", ".join(f"{name}_bias: tensor<scalar> = 0.0" for name in ("wg", "w1", "w3", "w2"))


@_TRANSFORMERS.operator(
    "fragment tract_moe_ffn(x: tensor<scalar>, wg: tensor<scalar>, w1: tensor<scalar>, w2: tensor<scalar>, "
    f"w3: tensor<scalar> = 0.0, {_BIASES}, k: integer, activation: string = 'swiglu', gate: string = 'softmax_topk', "
    "act_alpha: scalar = 0.0, act_limit: scalar = 0.0, expert_layout: string = 'canonical') -> (y: tensor<scalar>)"
)
def _moe_ffn(context: ExtensionContext, args: Arguments) -> Operand:
    """Rows `[T, D]` or `[B, S, D]`; the router is `[E, D]`; layers are `[E, in, out]`, if `linear` `[E, out, in]`."""
    emitter, shape = context.emitter, shape_of(args.x)
    if args.gate not in _GATES or args.activation not in _ACTIVATIONS:
        raise CompileError(f"experts of the gate '{args.gate}' and the activation '{args.activation}' are not known")
    if args.expert_layout not in ("canonical", "linear"):
        raise CompileError(f"'expert_layout' is '{args.expert_layout}', neither 'canonical' nor 'linear'")
    rows = emitter.reshaped(args.x, (shape[0] * shape[1], shape[2])) if len(shape) == 3 else args.x
    is_transposed = args.expert_layout == "canonical"
    first, second, third = (_layer(context, args[name], is_transposed) for name in ("w1", "w2", "w3"))
    biases = {name: _given(args[f"{name}_bias"]) for name in ("wg", "w1", "w2", "w3")}
    scores = emitter.apply(MatMul(transpose_b=True), rows, args.wg)
    scores = scores if biases["wg"] is None else apply(emitter, "add", scores, biases["wg"])
    gate, normalized = _GATES[args.gate]
    if args.act_limit or args.act_alpha:
        # min(g, limit) sigmoid(alpha g) (clamp(l, limit) + 1), of the first and of the third layer.
        if third is None:
            raise CompileError("an activation with a limit needs the third layer")
        both = emitter.apply(Concat(1), first, third)
        bias = None if biases["w1"] is None else emitter.apply(Concat(1), biases["w1"], biases["w3"])
        operator = MixtureOfExperts(
            args.k, "swiglu", normalized, args.act_alpha or 1.0, 1.0, args.act_limit or None, gate=gate
        )
        made = emitter.apply(operator, rows, scores, both, bias, second, biases["w2"])
    else:
        operator = MixtureOfExperts(args.k, _ACTIVATIONS[args.activation], normalized, gate=gate)
        made = emitter.apply(operator, rows, scores, first, biases["w1"], second, biases["w2"], third, biases["w3"])
    return emitter.reshaped(made, shape)


_LAYERS = "w1: tensor<scalar>, w2: tensor<scalar>, w3: tensor<scalar> = 0.0"
_LAYER_BIASES = ", ".join(f"{name}_bias: tensor<scalar> = 0.0" for name in ("w1", "w2", "w3"))
_OF_CHOSEN = ("relu", "gelu", "gelu_tanh", "silu", "identity")


@_NNEFC.operator(
    f"fragment nnefc_experts(x: tensor<scalar>, chosen: tensor<integer>, shares: tensor<scalar>, {_LAYERS}, "
    f"{_LAYER_BIASES}, count: integer, activation: string = 'silu', alpha: scalar = 0.0, limit: scalar = 0.0) "
    "-> (y: tensor<scalar>)",
    promotes=False,
)
def _experts(context: ExtensionContext, args: Arguments) -> Operand:
    """The sum over a row's experts of `share · w2 (activation(w1 x) · (w3 x))`; numbers of experts are from 0 on.

    Rows are `[T, D]`, chosen experts and their shares `[T, k]`. A layer is a matrix `[count · out, in]`, the rows of
    each expert below those of the one before; its bias is `[count, out]`. With a limit, what `w1` and `w3` give is `g`
    and `l`, and `min(g, limit) sigmoid(alpha g) (clamp(l, limit) + 1)` takes the place of the activation.
    """
    if args.count < 1 or any(rank_of(args[name]) not in (0, 2) for name in ("w1", "w2", "w3")):
        raise CompileError(f"layers of {args.count} experts are matrices, the experts' rows below each other")
    layers = {
        name: ExpertLayer(args[name], _given(args[f"{name}_bias"])) if rank_of(args[name]) else None
        for name in ("w1", "w2", "w3")
    }
    first, second, third = (layers[name] for name in ("w1", "w2", "w3"))
    if first is None or second is None or args.activation not in _OF_CHOSEN:
        raise CompileError(f"experts need two layers, and one of the activations {', '.join(_OF_CHOSEN)}")
    if not args.limit:
        operator = ChosenExperts(args.count, args.activation)
    elif third is None:
        raise CompileError("an activation with a limit needs the third layer")
    else:
        operator = ChosenExperts(args.count, "clamped", args.alpha or 1.0, 1.0, args.limit)
    return operator.lower(context.emitter, args.x, args.chosen, args.shares, first, second, third)


def _given(operand: Operand) -> Operand | None:
    return operand if rank_of(operand) else None


def _layer(context: ExtensionContext, weights: Operand, is_transposed: bool) -> Operand | None:
    """`[E, out, in]`; None where there is none."""
    if not rank_of(weights):
        return None
    if isinstance(weights, np.ndarray):
        return np.ascontiguousarray(weights.transpose(0, 2, 1)) if is_transposed else weights
    made: Operand = context.emitter.apply(Transpose((0, 2, 1)), weights) if is_transposed else weights
    return made
