"""`tract_transformers`: mixtures of experts, with a router that picks a few experts per row."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.base import Operand, rank_of, shape_of
from nnefc.operators.math.elementwise import apply
from nnefc.operators.math.matrix import MatMul
from nnefc.operators.nn.contributed import MixtureOfExperts
from nnefc.operators.tensor.shape import Concat, Transpose
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []

_TRANSFORMERS = registry("tract_transformers")
_GATES = {
    "softmax_topk": ("softmax", True),
    "softmax_all": ("softmax", False),
    "sigmoid": ("sigmoid", False),
    "raw": ("none", False),
}
"""By tract's names: what makes weights of scores, and whether those of the chosen experts are divided by their sum."""
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
    at, shape = context.at, shape_of(args.x)
    if args.gate not in _GATES or args.activation not in _ACTIVATIONS:
        raise CompileError(f"experts of the gate '{args.gate}' and the activation '{args.activation}' are not known")
    if args.expert_layout not in ("canonical", "linear"):
        raise CompileError(f"experts cannot lie '{args.expert_layout}'")
    rows = at.reshaped(args.x, (shape[0] * shape[1], shape[2])) if len(shape) == 3 else args.x
    is_transposed = args.expert_layout == "canonical"
    first, second, third = (_layer(context, args[name], is_transposed) for name in ("w1", "w2", "w3"))
    biases = {name: _given(args[f"{name}_bias"]) for name in ("wg", "w1", "w2", "w3")}
    scores = at.apply(MatMul(transpose_b=True), rows, args.wg)
    scores = scores if biases["wg"] is None else apply(at, "add", scores, biases["wg"])
    gate, normalized = _GATES[args.gate]
    if args.act_limit or args.act_alpha:
        # min(g, limit) sigmoid(alpha g) (clamp(l, limit) + 1), of the first and of the third layer.
        if third is None:
            raise CompileError("an activation with a limit needs the third layer")
        both = at.apply(Concat(1), first, third)
        bias = None if biases["w1"] is None else at.apply(Concat(1), biases["w1"], biases["w3"])
        operator = MixtureOfExperts(
            args.k, "swiglu", normalized, args.act_alpha or 1.0, 1.0, args.act_limit or None, gate=gate
        )
        made = at.apply(operator, rows, scores, both, bias, second, biases["w2"])
    else:
        operator = MixtureOfExperts(args.k, _ACTIVATIONS[args.activation], normalized, gate=gate)
        made = at.apply(operator, rows, scores, first, biases["w1"], second, biases["w2"], third, biases["w3"])
    return at.reshaped(made, shape)


def _given(operand: Operand) -> Operand | None:
    return operand if rank_of(operand) else None


def _layer(context: ExtensionContext, weights: Operand, is_transposed: bool) -> Operand | None:
    """`[E, out, in]`; None where there is none."""
    if not rank_of(weights):
        return None
    if isinstance(weights, np.ndarray):
        return np.ascontiguousarray(weights.transpose(0, 2, 1)) if is_transposed else weights
    made: Operand = context.at.apply(Transpose((0, 2, 1)), weights) if is_transposed else weights
    return made
