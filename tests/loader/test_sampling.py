"""How tokens are chosen, compared with the definitions written out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from nnefc import RunError
from nnefc.loader.sampling import Sampler

LOGITS = np.array([2.0, 1.0, 0.5, 0.0, -1.0, -2.0], np.float32)


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def frequencies(sampler: Sampler, count: int = 4000) -> np.ndarray:
    """How often each token is drawn."""
    drawn = Counter(sampler(LOGITS) for _ in range(count))
    return np.array([drawn[token] / count for token in range(len(LOGITS))])


@pytest.mark.parametrize(
    ("how", "kept"),
    [
        ({"min_p": 0.2}, [0, 1, 2]),
        ({"min_p": 1.0}, [0]),
        ({"top_k": 4, "min_p": 0.1}, [0, 1, 2, 3]),
        ({"typical_p": 0.2}, [1]),
        ({"typical_p": 0.9}, [0, 1, 2, 3]),
        ({"temperature": 0.5, "min_p": 0.1}, [0, 1]),
    ],
)
def test_draws_are_from_the_kept_tokens_alone(how: dict[str, Any], kept: list[int]) -> None:
    how = {"temperature": 1.0, "seed": 1} | how
    shares = np.zeros(len(LOGITS))
    shares[kept] = softmax(LOGITS.astype(np.float64)[kept] / how["temperature"])
    assert np.abs(frequencies(Sampler(**how)) - shares).max() < 0.03


def test_tokens_near_the_entropy_are_kept() -> None:
    shares = softmax(LOGITS.astype(np.float64))
    distance = np.abs(-np.log(shares) + (shares * np.log(shares)).sum())
    order = np.argsort(distance)
    for share in (0.1, 0.4, 0.7, 0.95):
        count = int(np.searchsorted(shares[order].cumsum(), share)) + 1
        found = frequencies(Sampler(1.0, typical_p=share, seed=2), 3000)
        assert set(np.flatnonzero(found)) <= set(order[:count]) and found[order[0]] > 0


def test_penalties_change_the_likeliest_token() -> None:
    repeated = Sampler(repetition_penalty=4.0)
    repeated.note([0, 5])  # 2 / 4 is below 1
    assert [repeated(LOGITS) for _ in range(2)] == [1, 0]
    assert [Sampler(presence_penalty=1.5)(LOGITS)] == [0]
    present = Sampler(presence_penalty=1.2)
    assert [present(LOGITS) for _ in range(4)] == [0, 1, 0, 0]
    frequent = Sampler(frequency_penalty=0.6)
    assert [frequent(LOGITS) for _ in range(6)] == [0, 0, 1, 0, 2, 1]
    assert Sampler(logit_bias={5: 10.0})(LOGITS) == 5
    assert Sampler(logit_bias={0: -np.inf})(LOGITS) == 1


def test_a_seed_gives_the_same_tokens_each_time() -> None:
    how: dict[str, Any] = {"temperature": 1.0, "min_p": 0.01, "presence_penalty": 0.5, "seed": 3}
    one, other = Sampler(**how), Sampler(**how)
    assert [one(LOGITS) for _ in range(50)] == [other(LOGITS) for _ in range(50)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_p": -0.1},
        {"min_p": 2},
        {"typical_p": 0},
        {"repetition_penalty": 0},
        {"presence_penalty": float("nan")},
        {"frequency_penalty": float("inf")},
    ],
)
def test_numbers_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(RunError, match=next(iter(wrong))):
        Sampler(**wrong)


def test_biases_of_tokens_that_are_not_there_are_refused() -> None:
    with pytest.raises(RunError, match="token 6, and the network 6 tokens"):
        Sampler(logit_bias={6: 1.0})(LOGITS)
