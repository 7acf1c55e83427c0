"""Sequences of tokens, one after the other, from a network that keeps what it has read.

for token in model.generate([1, 504, 3575], most=100, end=2, temperature=0.7, top_k=40, seed=1):
    print(token)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .tensors import DTYPES, RunError, Tensor, listed

__all__ = ["Sampler", "generated"]

_AT_ONCE = 512
"""Tokens of a prompt that are read in one run: a longer run is hardly faster, and needs more memory."""


@dataclass(frozen=True)
class Sampler:
    """Chooses a token by the logits of all: the likeliest at temperature 0, else by chance.

    Attributes:
        temperature: what logits are divided by.
        top_k: how many of the likeliest tokens are chosen from; None: all.
        top_p: only so many of these as have this share of the chances of all together, at least one.
        seed: of the random numbers; None: others each time.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int | None = None
    _random: np.random.Generator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.temperature >= 0 or not np.isfinite(self.temperature):
            raise RunError(f"temperature is {self.temperature!r}, not a number from 0 on")
        if self.top_k is not None and self.top_k < 1:
            raise RunError(f"top_k is {self.top_k!r}, not a number of tokens")
        if not 0 < self.top_p <= 1:
            raise RunError(f"top_p is {self.top_p!r}, not a share above 0, up to 1")
        object.__setattr__(self, "_random", np.random.default_rng(self.seed))

    def __call__(self, logits: np.ndarray) -> int:
        """The number of a token."""
        if not self.temperature:
            return int(logits.argmax())
        values = logits.astype(np.float64)
        count = min(self.top_k or values.size, values.size)
        best = np.argpartition(-values, count - 1)[:count] if count < values.size else np.arange(count)
        best = best[np.argsort(-values[best], kind="stable")]
        chances = np.exp((values[best] - values[best[0]]) / self.temperature)
        sums = chances.cumsum()
        kept = int(np.searchsorted(sums, self.top_p * sums[-1])) + 1 if self.top_p < 1 else count
        place = int(np.searchsorted(sums[:kept], self._random.random() * sums[kept - 1], side="right"))
        return int(best[min(place, kept - 1)])


def generated(
    run: Callable[..., Any],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    tokens: Sequence[int],
    most: int,
    end: Sequence[int],
    sample: Sampler,
) -> Iterator[int]:
    """See :meth:`Model.generate`; `run` takes an array of tokens and returns logits, those of the last token last."""
    if len(inputs) != 1 or len(outputs) != 1 or inputs[0].dtype not in ("int32", "int64"):
        raise RunError(
            "generate needs a network with one input of tokens and one output of logits, this one has "
            f"{listed(inputs)} -> {listed(outputs)}"
        )
    if not len(tokens):
        raise RunError("generate needs at least one token to go on from")
    shape, dtype = (1,) * (len(inputs[0].shape) - 1), DTYPES[inputs[0].dtype]
    return _tokens(lambda given: run(np.array(given, dtype).reshape((*shape, -1))), tokens, most, end, sample)


def _tokens(
    run: Callable[[Sequence[int]], Any], tokens: Sequence[int], most: int, end: Sequence[int], sample: Sampler
) -> Iterator[int]:
    for _ in range(most):
        for start in range(_AT_ONCE, len(tokens) + _AT_ONCE, _AT_ONCE):
            logits = np.asarray(run(tokens[start - _AT_ONCE : start]))
        token = sample(logits.reshape(-1, logits.shape[-1])[-1])
        if token in end:
            return
        yield token
        tokens = [token]
