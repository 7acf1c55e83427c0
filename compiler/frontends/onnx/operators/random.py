"""Random numbers: RandomUniform, RandomNormal and the like, Bernoulli, Multinomial; what Dropout draws.

The generator is Philox 4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3; 2011), a function of a
key and a counter that gives four words. The key is the attribute `seed`, or else the node's place among those that
draw. The counter is made of the place in the tensor and of the number of runs that the session has done, a state of the
network. So a new session, and one that is reset, draws the same numbers again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from tvm import tirx

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.casting import converted, element_type
from nnefc.frontends.onnx.operators.loops import T, looped
from nnefc.frontends.onnx.operators.tensors import compute, dtype_of, fail, input_at, known, shape_of, spell
from nnefc.frontends.onnx.values import numpy_dtype

__all__ = ["uniform"]

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)  # what each round adds to the key
_ROUNDS = 10
_UNSEEDED = 0x6E6E6566  # the second word of keys that no seed gives
_MOST = 1 << 33  # items of a tensor
_FLOATS = ("float16", "bfloat16", "float32", "float64")


def philox(counter: Sequence[Any], key: tuple[int, int]) -> list[Any]:
    """Four words of uint32, as variables bound by the IR builder.

    Args:
        counter: four expressions of uint32.
        key: two words.
    """
    words = list(counter)
    for index in range(_ROUNDS):
        keys = [tirx.const((k + index * step) & 0xFFFFFFFF, "uint32") for k, step in zip(key, _WEYL, strict=True)]
        products = [
            T.bind(words[place].astype("uint64") * tirx.const(factor, "uint64"))
            for place, factor in zip((0, 2), _MULTIPLIERS, strict=True)
        ]
        high = [(product >> tirx.const(32, "uint64")).astype("uint32") for product in products]
        low = [product.astype("uint32") for product in products]
        words = [T.bind(high[1] ^ words[1] ^ keys[0]), low[1], T.bind(high[0] ^ words[3] ^ keys[1]), low[0]]
    return words


def _drawn(ctx: Context, node: Node, count: int) -> Value:
    """`count` words of uint32 for this node in this run."""
    if count > _MOST:
        raise fail(node, f"{count} random numbers are too many for one tensor")
    runs, place = ctx.draw()
    seed = node.attributes.get("seed")
    key = (place, _UNSEEDED) if seed is None else (int(np.float32(seed).view(np.uint32)), 0)
    blocks = -(-count // 4)

    def write(runs: Any, out: Any) -> None:
        with T.serial(0, blocks) as block:
            numbers = (block.astype("uint64"), runs[0].astype("uint64"))
            halves = [
                (number >> tirx.const(shift, "uint64")).astype("uint32") for number in numbers for shift in (0, 32)
            ]
            for lane, word in enumerate(philox(halves, key)):
                out[block * 4 + lane] = word

    return looped(ctx, write, [runs], [((blocks * 4,), "uint32")], "random_words")[0]


def _place(index: Sequence[Any], shape: Sequence[int]) -> Any:
    """The place of an item in the flattened tensor."""
    place: Any = tirx.const(0, "int64")
    for i, extent in zip(index, shape, strict=True):
        place = place * extent + i
    return place


def uniform(ctx: Context, node: Node, shape: Sequence[int], dtype: str) -> Value:
    """Numbers from 0 to below 1, all multiples of 2⁻²⁴ alike; for float64 of 2⁻⁵³."""
    wide = dtype == "float64"
    if 0 in shape:
        return known(ctx, np.zeros(tuple(shape), dtype))
    words = _drawn(ctx, node, math.prod(shape) * (2 if wide else 1))

    def item(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        place = _place(index, shape)
        if not wide:
            return (tensors[0](place) >> tirx.const(8, "uint32")).astype("float32") * tirx.const(2.0**-24, "float32")
        high = (tensors[0](place * 2) >> tirx.const(5, "uint32")).astype("float64")
        low = (tensors[0](place * 2 + 1) >> tirx.const(6, "uint32")).astype("float64")
        return (high * tirx.const(2.0**26, "float64") + low) * tirx.const(2.0**-53, "float64")

    return compute(ctx, shape, item, words, name="uniform")


def _between(ctx: Context, node: Node, shape: Sequence[int], dtype: str) -> Value:
    """Uniform from `low` to below `high`."""
    low, high = float(node.attributes["low"]), float(node.attributes["high"])
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise fail(node, f"'low' is {low} and 'high' is {high}: not a range")
    work = "float64" if dtype == "float64" else "float32"
    # What rounding brings up to `high` is cut to the number before it.
    kind = numpy_dtype(dtype).type
    least, bound = kind(low), kind(high)
    last = float(np.nextafter(bound, least)) if least < bound else float(least)
    drawn = uniform(ctx, node, shape, work)

    def item(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        begin, width = tirx.const(low, work), tirx.const(high - low, work)
        return tirx.min(begin + tensors[0](*index) * width, tirx.const(last, work))

    return converted(ctx, compute(ctx, shape, item, drawn, name="random_uniform"), dtype)


def _normal(ctx: Context, node: Node, shape: Sequence[int], dtype: str) -> Value:
    """By the method of Box and Muller: of two uniform numbers, one is the radius and one the angle."""
    mean, scale = float(node.attributes["mean"]), float(node.attributes["scale"])
    work = "float64" if dtype == "float64" else "float32"
    if 0 in shape:
        return known(ctx, np.zeros(tuple(shape), numpy_dtype(dtype)))
    words = _drawn(ctx, node, 2 * math.prod(shape))

    def item(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        place = _place(index, shape)
        first, second = (tensors[0](place * 2 + offset).astype(work) for offset in (0, 1))
        part = (first + tirx.const(1, work)) * tirx.const(2.0**-32, work)  # never 0
        radius = tirx.sqrt(tirx.const(-2, work) * tirx.log(part))
        value = radius * tirx.cos(second * tirx.const(2 * math.pi * 2.0**-32, work))
        return tirx.const(mean, work) + tirx.const(scale, work) * value

    return converted(ctx, compute(ctx, shape, item, words, name="random_normal"), dtype)


_KINDS = {"Uniform": _between, "Normal": _normal}


def _checked(node: Node, dtype: str) -> str:
    if dtype not in _FLOATS:
        raise fail(node, f"random numbers are reals, not {dtype}")
    return dtype


def _declare(name: str) -> None:
    draw = _KINDS[name]

    @operator(f"Random{name}", since=(1, 22))
    def _free(ctx: Context, node: Node) -> Value:
        shape = tuple(int(extent) for extent in node.attributes["shape"])
        if any(extent < 0 for extent in shape):
            raise fail(node, f"'shape' {spell(shape)} has a negative extent")
        return draw(ctx, node, shape, _checked(node, element_type(node, node.attributes["dtype"])))

    @operator(f"Random{name}Like", since=(1, 22))
    def _like(ctx: Context, node: Node) -> Value:
        x, number = input_at(node, 0), node.attributes.get("dtype")
        return draw(ctx, node, shape_of(x), _checked(node, element_type(node, number) if number else dtype_of(x)))


for _name in _KINDS:
    _declare(_name)


@operator("Bernoulli", since=(15, 22))
def _bernoulli(ctx: Context, node: Node) -> Value:
    """1 with the chance that the input gives; the body in the standard draws 0 with it."""
    x, number = input_at(node, 0), node.attributes.get("dtype")
    work = "float64" if dtype_of(x) == "float64" else "float32"
    drawn = uniform(ctx, node, shape_of(x), work)

    def item(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        return tensors[0](*index) < tensors[1](*index)

    hit = compute(ctx, shape_of(x), item, drawn, converted(ctx, x, work), name="bernoulli", dtype="bool")
    return converted(ctx, hit, element_type(node, number) if number else dtype_of(x))


@operator("Multinomial", since=(7, 22))
def _multinomial(ctx: Context, node: Node) -> Value:
    """Classes by the inverse of their cumulated probabilities; the input holds logarithms of them, up to a constant."""
    x, count = input_at(node, 0), int(node.attributes["sample_size"])
    if len(shape_of(x)) != 2 or 0 in shape_of(x) or count < 0:
        raise fail(node, f"the input {spell(shape_of(x))} is no matrix with classes, or {count} no size of a sample")
    rows = shape_of(x)[0]
    work = "float64" if dtype_of(x) == "float64" else "float32"
    dtype = element_type(node, node.attributes["dtype"])
    if dtype not in ("int32", "int64"):
        raise fail(node, f"the result is of int32 or int64, not of {dtype}")
    chances = ctx.call("Softmax", converted(ctx, x, work), axis=1)[0]
    sums = cast(Value, ctx.call("CumSum", chances, known(ctx, np.array(1, np.int32)))[0])
    drawn = uniform(ctx, node, (rows, count), work)

    return _classes(ctx, sums, drawn, dtype)


def _classes(ctx: Context, sums: Value, drawn: Value, dtype: str) -> Value:
    """How many cumulated probabilities each drawn number has reached; the last one counts as 1."""
    (rows, classes), count = shape_of(sums), shape_of(drawn)[1]

    def write(sums: Any, drawn: Any, out: Any) -> None:
        with T.serial(0, rows) as row, T.serial(0, count) as sample:
            place = row * count + sample
            out[place] = tirx.const(0, dtype)
            with T.serial(0, classes - 1) as k:
                reached = sums[row * classes + k] <= drawn[place] * sums[row * classes + classes - 1]
                out[place] = out[place] + reached.astype(dtype)

    return looped(ctx, write, [sums, drawn], [((rows, count), dtype)], "multinomial")[0]
