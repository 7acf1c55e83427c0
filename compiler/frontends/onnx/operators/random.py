"""Random numbers: RandomUniform, RandomNormal and the like, Bernoulli, Multinomial; and the masks of Dropout.

Their key is the attribute `seed`, or else the node's position among those that draw.
"""

from __future__ import annotations

from typing import Any

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.casting import element_type
from nnefc.frontends.onnx.operators.tensors import dtype_of, input_at, shape_of
from nnefc.operators.math.random import Bernoulli, Key, Multinomial, RandomNormal, RandomUniform, key_of_seed, own_key

__all__ = ["draw"]


def draw(ctx: Context, node: Node) -> tuple[Key, Value]:
    """The key of what a node draws, and how many runs there were before."""
    runs, position = ctx.draw()
    seed = node.attributes.get("seed")
    return own_key(position) if seed is None else key_of_seed(seed), runs


def _declare(kind: type[RandomUniform] | type[RandomNormal], *parameters: str) -> None:
    def drawn(ctx: Context, node: Node, shape: tuple[int, ...], dtype: str) -> Any:
        key, runs = draw(ctx, node)
        return ctx.apply(kind(key, shape, dtype, *(node.attributes[name] for name in parameters)), runs)

    @operator(kind.__name__, since=(1, 22))
    def _free(ctx: Context, node: Node) -> Any:
        return drawn(ctx, node, tuple(node.attributes["shape"]), element_type(node, node.attributes["dtype"]))

    @operator(f"{kind.__name__}Like", since=(1, 22))
    def _like(ctx: Context, node: Node) -> Any:
        return drawn(ctx, node, shape_of(input_at(node, 0)), _type_like_first(node))


_declare(RandomUniform, "low", "high")
_declare(RandomNormal, "mean", "scale")


def _type_like_first(node: Node) -> str:
    """The element type that an attribute names, else that of the first input."""
    number = node.attributes.get("dtype")
    return element_type(node, number) if number else dtype_of(input_at(node, 0))


@operator("Bernoulli", since=(15, 22))
def _bernoulli(ctx: Context, node: Node) -> Any:
    """1 with the probability that the input gives; the body in the standard draws 0 with it."""
    key, runs = draw(ctx, node)
    return ctx.apply(Bernoulli(key, _type_like_first(node)), input_at(node, 0), runs)


@operator("Multinomial", since=(7, 22))
def _multinomial(ctx: Context, node: Node) -> Any:
    key, runs = draw(ctx, node)
    dtype = element_type(node, node.attributes["dtype"])
    return ctx.apply(Multinomial(key, node.attributes["sample_size"], dtype), input_at(node, 0), runs)
