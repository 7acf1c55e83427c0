"""The sequences that an engine of texts chooses for requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from nnefc.serving.text.engine import Engine, Job, _Sequence


class Windowed:
    """A session with two sequences, the first of which can go back to ten tokens at least."""

    def __init__(self, *counts: int) -> None:
        self.counts = np.array(counts)

    def read_state(self, name: str) -> np.ndarray:
        return self.counts.copy()

    def write_state(self, name: str, counts: np.ndarray) -> None:
        self.counts = counts

    def can_rewind_to(self, count: int, sequence: int) -> bool:
        return count == 0 or count >= (10, 0)[sequence]

    def text_stream(self) -> None:
        return None


def test_a_request_takes_the_sequence_that_can_go_on_from_the_longest_beginning() -> None:
    held = [list(range(12)), list(range(3))]
    for prompt, number, left in (
        ([*range(11), 50, 51], 0, 2),  # the first sequence forgets one token
        ([*range(8), 50], 1, 6),  # it cannot forget four
        ([*range(12), 50], 0, 1),
        ([70, 71], 1, 2),
    ):
        engine = cast(Any, Engine.__new__(Engine))
        engine.model = Windowed(12, 3)
        engine._sequences = [_Sequence(n, list(each), None, 5 - n) for n, each in enumerate(held)]
        job = cast(Job, SimpleNamespace(prompt=prompt, stop=(), sampler=SimpleNamespace(note=lambda tokens: None)))
        engine._begin(job)
        sequence = engine._sequences[number]
        assert sequence.reply is not None and engine._sequences[1 - number].reply is None
        assert len(sequence.reply.left) == left
        assert sequence.held == prompt[:-left] and engine.model.counts[number] == len(prompt) - left
