"""Records the log probabilities of tokens, and formats them as the `logprobs` of OpenAI's interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from nnefc.loader import Model
from nnefc.loader.generation import log_total

__all__ = ["TokenChance", "TokenWatch", "chances_of_chat", "chances_of_completion"]

_MINIMUM = -9999.0
"""The lowest log probability, as in OpenAI's interface: JSON has no infinity."""


@dataclass(frozen=True)
class TokenChance:
    """The log probability of a token of a reply or of a prompt.

    Attributes:
        token: the token's number.
        logprob: natural logarithm of its probability by the network's logits, before any sampling options, -9999 or
            more; None for the first token of a text.
        best: the likeliest tokens with their log probabilities, the likeliest first.
    """

    token: int
    logprob: float | None
    best: tuple[tuple[int, float], ...]


class TokenWatch:
    """Records the log probability of each token that a sampler chooses.

    Attributes:
        last: of the latest token; None before the first.
    """

    def __init__(self, count: int) -> None:
        """Record nothing yet; `count` is the number of likeliest tokens to record with each token."""
        self.last: TokenChance | None = None
        self._count = count

    def __call__(self, logits: np.ndarray, token: int) -> None:
        """Record a token, given the logits of all tokens, `[tokens]`."""
        total = log_total(logits)
        best = _likeliest(logits, self._count)
        values = np.maximum(logits[[token, *best]].astype(np.float64) - total, _MINIMUM).tolist()
        self.last = TokenChance(token, values[0], tuple(zip(best, values[1:], strict=True)))


def _likeliest(logits: np.ndarray, count: int) -> list[int]:
    """Return the tokens of the `count` largest logits, the largest first; of equal ones the first.

    For few tokens, maxima one after the other take less time than a selection: 3 µs each of 49,152 logits, and 1.1 ms.
    Tokens that are impossible, with logits of minus infinity, are left out.
    """
    left, found = logits.copy() if count > 1 else logits, list[int]()
    for _ in range(count):
        token = int(left.argmax())
        if left[token] == -np.inf:
            break
        found.append(token)
        if len(found) < count:
            left[token] = -np.inf
    return found


def chances_of_chat(model: Model, chances: Sequence[TokenChance]) -> dict[str, Any]:
    """Return the `logprobs` of a chat completion, or of a part of it."""

    def shown(token: int, logprob: float | None) -> dict[str, Any]:
        content, _ = model.token_bytes(token)
        return {"token": content.decode(errors="replace"), "logprob": logprob, "bytes": [*content]}

    made = [
        {**shown(each.token, each.logprob), "top_logprobs": [shown(*best) for best in each.best]} for each in chances
    ]
    return {"content": made, "refusal": None}


def chances_of_completion(
    model: Model, chances: Sequence[TokenChance], offset: int
) -> tuple[dict[str, Any] | None, int]:
    """Return the `logprobs` of a completion, or of a part of it, and the offset of the next part in the text.

    A character may consist of several tokens; the offsets of the second and following ones are behind the character.

    Args:
        model: has the tokenizer.
        chances: of the tokens; empty: the `logprobs` are None.
        offset: of the part in the text, in characters.
    """
    if not chances:
        return None, offset

    def text(token: int) -> str:
        return model.token_bytes(token)[0].decode(errors="replace")

    def best(chance: TokenChance) -> dict[str, float] | None:
        """Return log probabilities by the text of the token; of tokens with equal texts, that of the likeliest."""
        if chance.logprob is None:
            return None
        found: dict[str, float] = {}
        for token, logprob in (*chance.best, (chance.token, chance.logprob)):
            found.setdefault(text(token), logprob)
        return found

    *offsets, following = accumulate((_size(*model.token_bytes(each.token)) for each in chances), initial=offset)
    return {
        "tokens": [text(each.token) for each in chances],
        "token_logprobs": [each.logprob for each in chances],
        "top_logprobs": [best(each) for each in chances],
        "text_offset": offsets,
    }, following


def _size(content: bytes, is_control: bool) -> int:
    """Return how many characters begin in a token: none in control tokens, which are not part of the text."""
    return 0 if is_control else sum(byte & 0xC0 != 0x80 for byte in content)
