"""Optimizer steps of `ai.onnx.preview.training`: Adagrad, Adam, Momentum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.tensors import fail, input_at
from nnefc.operators.nn.training import Adagrad, Adam, Momentum
from nnefc.operators.tensor.shape import Reshape

__all__: list[str] = []

_TRAINING = "ai.onnx.preview.training"


def _momentum(given: Mapping[str, Any]) -> Momentum:
    return Momentum(given["norm_coefficient"], given["alpha"], given["beta"], given["mode"] == "nesterov")


def _adagrad(given: Mapping[str, Any]) -> Adagrad:
    return Adagrad(given["norm_coefficient"], given["epsilon"], given["decay_factor"])


def _adam(given: Mapping[str, Any]) -> Adam:
    return Adam(
        *(given[name] for name in ("norm_coefficient", "alpha", "beta", "epsilon", "norm_coefficient_post")),
    )


def _declare(name: str, make: Callable[[Mapping[str, Any]], Momentum | Adagrad | Adam]) -> None:
    @operator(name, since=(1,), domain=_TRAINING)
    def _step(ctx: Context, node: Node) -> list[Value]:
        """Inputs: rate, count, then all parameters, all gradients, all of what is kept; outputs in the same order."""
        step = make(node.attributes)
        kinds = 2 + step.kept
        if len(node.inputs) < 2 + kinds or (len(node.inputs) - 2) % kinds:
            raise fail(node, f"has {len(node.inputs)} inputs, not 2 and {kinds} for each parameter")
        count = (len(node.inputs) - 2) // kinds
        rate, steps = (ctx.apply(Reshape(()), input_at(node, i)) for i in (0, 1))
        made = [
            ctx.apply(step, rate, steps, *(input_at(node, 2 + index + kind * count) for kind in range(kinds)))
            for index in range(count)
        ]
        return [results[kind] for kind in range(1 + step.kept) for results in made]


_declare("Momentum", _momentum)
_declare("Adagrad", _adagrad)
_declare("Adam", _adam)
