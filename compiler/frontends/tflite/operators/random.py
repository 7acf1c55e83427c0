"""Random numbers, which are those of LiteRT where the file has seeds."""

from __future__ import annotations

from nnefc.frontends.tflite.lowering import FLOATS, Lowering, Node, Operand, Result, operator
from nnefc.operators.math.random import own_key
from nnefc.operators.math.seeded_random import SeededMultinomial, SeededNormal, SeededUniform, Seeds
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []


def _drawn(ctx: Lowering, node: Node) -> tuple[Seeds, Operand]:
    """The seeds of what an operator draws, and how many runs there were before.

    LiteRT takes 32 bits of the seeds of a file, with a sign. Without seeds, where it draws others each time, the
    position among the operators that draw is one.
    """
    runs, number = ctx.draw()
    first, second = (_signed(int(seed)) for seed in (node.options.seed, node.options.seed2))
    if not (first or second):
        low, high = own_key(number)
        first = low | high << 32
    return Seeds(first & (1 << 64) - 1, second & (1 << 64) - 1), runs


def _signed(number: int) -> int:
    """The lower 32 bits as an integer with a sign."""
    low = number & (1 << 32) - 1
    return low - (1 << 32 if low >> 31 else 0)


@operator("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", types=("int32",))
def _random(ctx: Lowering, node: Node) -> Result:
    seeds, runs = _drawn(ctx, node)
    made = SeededUniform if node.name == "RANDOM_UNIFORM" else SeededNormal
    return made(seeds, tuple(node.sizes(0, "the shape"))).lower(ctx, runs)


@operator("MULTINOMIAL", types=FLOATS)
def _multinomial(ctx: Lowering, node: Node) -> Result:
    seeds, runs = _drawn(ctx, node)
    samples = node.number(1, "the number of samples")
    if not 0 <= samples < 1 << 24:
        raise CompileError(f"{samples} samples cannot be drawn")
    return SeededMultinomial(seeds, samples, node.outputs[0].dtype).lower(ctx, node.operand(0), runs)
