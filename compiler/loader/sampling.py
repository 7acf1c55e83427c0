"""Chooses the next token of a text from the logits of all tokens: penalties, masks, sampling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypedDict

import numpy as np

from .tensors import RunError

__all__ = ["Mask", "Sampler", "Sampling"]


class Mask(Protocol):
    """Says which tokens may follow, such as those that a grammar allows."""

    def allowed(self) -> np.ndarray:
        """Return whether each token may follow: bool, `[tokens]` or longer; further elements are ignored."""

    def accept(self, token: int) -> None:
        """Advance by a token that has been chosen."""


class Sampling(TypedDict, total=False):
    """The options of a :class:`Sampler`, as keyword arguments."""

    temperature: float
    top_k: int | None
    top_p: float
    min_p: float
    typical_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    mask: Mask | None
    watch: Callable[[np.ndarray, int], None] | None
    seed: int | None


@dataclass(frozen=True)
class Sampler:
    """Chooses a token by the logits of all tokens: the likeliest at temperature 0, else at random.

    Logits are changed by `logit_bias` and the penalties, divided by the temperature, and converted to probabilities.
    Then `top_k`, `top_p`, `min_p` and `typical_p` restrict the candidates, in this order. Names and order are those of
    transformers; the presence and frequency penalties are those of OpenAI's interface.

    Attributes:
        temperature: divisor of the logits.
        top_k: number of the likeliest tokens that are candidates; None: all.
        top_p: keeps the fewest of the likeliest candidates whose probabilities add up to this share, at least one.
        seed: of the random numbers; None: a random seed.
        min_p: keeps the candidates whose probability is at least this fraction of the likeliest one's.
        typical_p: keeps the fewest candidates, those whose information is nearest to the entropy, with this share.
        repetition_penalty: divides positive logits of tokens that the text has, and multiplies negative ones.
        presence_penalty: subtracted from the logits of tokens that were chosen before.
        frequency_penalty: subtracted from them once for each time that they were chosen.
        logit_bias: added to the logits, by token.
        mask: says which tokens may follow; None: all.
        watch: called with the logits of the network and the chosen token; None: nothing is called.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int | None = None
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    mask: Mask | None = field(default=None, hash=False)
    watch: Callable[[np.ndarray, int], None] | None = field(default=None, hash=False)
    _random: np.random.Generator = field(init=False, repr=False, compare=False)
    _read: set[int] = field(init=False, repr=False, compare=False, default_factory=set)
    _chosen: Counter[int] = field(init=False, repr=False, compare=False, default_factory=Counter)

    def __post_init__(self) -> None:
        """Check the options, and seed the random numbers.

        Raises:
            RunError: an option is out of its range.
        """
        if not self.temperature >= 0 or not np.isfinite(self.temperature):
            raise RunError(f"temperature is {self.temperature!r}, not a number from 0 on")
        if self.top_k is not None and self.top_k < 1:
            raise RunError(f"top_k is {self.top_k!r}, not a number of tokens")
        for name in ("top_p", "typical_p"):
            if not 0 < getattr(self, name) <= 1:
                raise RunError(f"{name} is {getattr(self, name)!r}, not a share above 0, up to 1")
        if not 0 <= self.min_p <= 1:
            raise RunError(f"min_p is {self.min_p!r}, not a share from 0 to 1")
        if not 0 < self.repetition_penalty < np.inf:
            raise RunError(f"repetition_penalty is {self.repetition_penalty!r}, not a number above 0")
        for name in ("presence_penalty", "frequency_penalty"):
            if not np.isfinite(getattr(self, name)):
                raise RunError(f"{name} is {getattr(self, name)!r}, not a number")
        object.__setattr__(self, "_random", np.random.default_rng(self.seed))

    @property
    def changes_logits(self) -> bool:
        """Whether an option is set that networks that choose the token themselves do not support.

        Such networks support temperature, top-k and top-p.
        """
        given = (self.min_p, self.typical_p, self.repetition_penalty, self.presence_penalty, self.frequency_penalty)
        return given != (0, 1, 1, 0, 0) or bool(self.logit_bias) or self.mask is not None

    @property
    def needs_logits(self) -> bool:
        """Whether the options need the logits, which networks that choose the token themselves do not return."""
        return self.changes_logits or self.watch is not None

    def choice(self) -> Mapping[str, float]:
        """Return the sampling inputs, by name, of a network that chooses the next token itself."""
        maximum = np.iinfo(np.int64).max if self.top_k is None else self.top_k
        chance = self._random.random() if self.temperature else 0.0
        return {"temperature": self.temperature, "top_k": maximum, "top_p": self.top_p, "chance": chance}

    def note(self, tokens: Sequence[int]) -> None:
        """Add tokens of the text that this sampler has not chosen, such as the prompt, for the repetition penalty."""
        if self.repetition_penalty != 1:
            self._read.update(tokens)

    def __call__(self, logits: np.ndarray) -> int:
        """Choose a token, and return its number; `logits` are floats, `[tokens]`."""
        values = self._changed(logits)
        chosen = int(values.argmax()) if not self.temperature else self._drawn(values)
        if self.changes_logits:
            self._chosen[chosen] += 1
            self._read.add(chosen)
        if self.mask is not None:
            self.mask.accept(chosen)
        if self.watch is not None:
            self.watch(logits, chosen)
        return chosen

    def _changed(self, logits: np.ndarray) -> np.ndarray:
        """Return the logits with bias, penalties and mask applied, as float64; unchanged without any."""
        if not self.changes_logits:
            return logits
        values = logits.astype(np.float64)
        for token, bias in self.logit_bias.items():
            if not 0 <= token < values.size:
                raise RunError(f"logit_bias has token {token!r}, and the network {values.size} tokens")
            values[token] += bias
        if self._read and self.repetition_penalty != 1:
            read = np.fromiter(self._read, np.int64)
            factor = np.where(values[read] > 0, 1 / self.repetition_penalty, self.repetition_penalty)
            values[read] *= factor
        if self._chosen:
            tokens = np.fromiter(self._chosen, np.int64)
            counts = np.fromiter(self._chosen.values(), np.float64)
            values[tokens] -= self.presence_penalty + self.frequency_penalty * counts
        if self.mask is not None:
            values[~self.mask.allowed()[: values.size]] = -np.inf
        return values

    def _drawn(self, values: np.ndarray) -> int:
        if self.top_k is None and self.top_p == self.typical_p == 1:
            return self._drawn_from_all(values)
        best, share = self._best(values)
        kept_values = values[best].astype(np.float64)
        weights = np.exp((kept_values - kept_values[0]) / self.temperature)
        sums = weights.cumsum()
        kept = int(np.searchsorted(sums, share * sums[-1])) + 1 if share < 1 else len(best)
        kept = min(kept, int(np.count_nonzero(weights >= self.min_p)))
        best, weights = best[:kept], weights[:kept]
        if self.typical_p < 1:
            near = _near_entropy(weights, self.typical_p)
            best, weights = best[near], weights[near]
        return int(best[self._draw(weights)])

    def _drawn_from_all(self, values: np.ndarray) -> int:
        """Draw from all tokens, without sorting them, which would take longer than a run of a small network."""
        weights = self._weights(values)
        if self.min_p:
            weights[weights < self.min_p] = 0
        return self._draw(weights)

    def _weights(self, values: np.ndarray) -> np.ndarray:
        """Return the probabilities of all tokens relative to that of the likeliest; float32, for speed."""
        weights: np.ndarray = np.exp(((values - values.max()) / self.temperature).astype(np.float32, copy=False))
        return weights

    def _best(self, values: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the likeliest tokens in descending order, and the share of their total probability to keep.

        These are `top_k` tokens, or a number of tokens that surely have a total probability of `top_p`.
        """
        if self.top_k is not None or self.typical_p < 1 or self.top_p == 1:
            return _ordered(values, min(self.top_k or values.size, values.size)), self.top_p
        weights = self._weights(values)
        total = weights.sum(dtype=np.float64)
        for count in (_FEW, _SOME):
            if count < values.size:
                best = _ordered(values, count)
                share = float(weights[best].sum(dtype=np.float64) / total)
                if share > self.top_p:
                    return best, self.top_p / share
        return _ordered(values, values.size), self.top_p

    def _draw(self, weights: np.ndarray) -> int:
        """Draw an index with probabilities proportional to the weights."""
        sums = weights.cumsum(dtype=np.float64)
        index = int(np.searchsorted(sums, self._random.random() * sums[-1], side="right"))
        return min(index, len(weights) - 1)


_FEW, _SOME = 256, 4096
"""How many of the likeliest tokens are tried for `top_p` before all are sorted."""


def _ordered(values: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the `count` largest values, in descending order of the values."""
    best = np.argpartition(-values, count - 1)[:count] if count < values.size else np.arange(count)
    return best[np.argsort(-values[best], kind="stable")]


def _near_entropy(weights: np.ndarray, share: float) -> np.ndarray:
    """Return the indices, ascending, of the weights whose information is nearest to the entropy.

    They are as few as have `share` of the total weight. Source: https://arxiv.org/abs/2202.00666.
    """
    shares = weights / weights.sum()
    with np.errstate(divide="ignore"):
        information = -np.log(shares)
    entropy = float((shares * np.where(shares > 0, information, 0)).sum())
    order = np.argsort(np.abs(information - entropy), kind="stable")
    count = int(np.searchsorted(shares[order].cumsum(), share)) + 1
    return np.sort(order[:count])
