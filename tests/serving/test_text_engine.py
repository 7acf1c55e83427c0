"""The sequences that an engine of texts chooses for requests, and what these copy from each other."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from nnefc.loader import RunError
from nnefc.loader.sampling import Sampler
from nnefc.serving.text.engine import Engine, Job, _Sequence
from nnefc.serving.text.logprobs import TokenWatch


class Windowed:
    """A session with some sequences, the first of which can go back to ten tokens at least."""

    def __init__(self, counts: Sequence[int], copies: bool = False) -> None:
        self.counts = np.array(counts)
        self.copies_sequences = copies
        self.copied: list[tuple[int, int, int]] = []

    def read_state(self, name: str) -> np.ndarray:
        return self.counts.copy()

    def write_state(self, name: str, counts: np.ndarray) -> None:
        self.counts = counts

    def can_rewind_to(self, count: int, sequence: int) -> bool:
        return count == 0 or count >= (0 if sequence else 10)

    def copy_sequence(self, source: int, target: int, count: int) -> None:
        assert count <= self.counts[source]
        self.copied.append((source, target, count))
        self.counts[target] = count

    def reset(self) -> None:
        self.counts[:] = 0

    def text_stream(self) -> Any:
        return SimpleNamespace(end=lambda: "")


def engine_of(held: Sequence[Sequence[int]], copies: bool = False, busy: Sequence[int] = ()) -> Any:
    """An engine whose sequences hold these tokens, the last one used longest ago."""
    engine = cast(Any, Engine.__new__(Engine))
    engine.model = Windowed([len(each) for each in held], copies)
    engine._copies = copies
    engine._reader = SimpleNamespace(block=1)
    engine._reads_next, engine._clock = True, len(held)
    engine.counts = np.zeros(3, int)
    engine._meter = SimpleNamespace(tokens=lambda *counts: engine.counts.__iadd__(counts))
    engine._sequences = [_Sequence(n, list(each), None, len(held) - n) for n, each in enumerate(held)]
    for number in busy:
        engine._sequences[number].reply = cast(Any, SimpleNamespace(left=[]))
    return engine


def job(prompt: Sequence[int]) -> Job:
    return cast(
        Job,
        SimpleNamespace(
            prompt=prompt, stop=(), sampler=SimpleNamespace(note=lambda tokens: None), notes_prompt=False, cached=0
        ),
    )


def test_a_request_takes_the_sequence_that_can_go_on_from_the_longest_beginning() -> None:
    for prompt, number, left in (
        ([*range(11), 50, 51], 0, 2),  # the first sequence forgets one token
        ([*range(8), 50], 1, 6),  # it cannot forget four
        ([*range(12), 50], 0, 1),
        ([70, 71], 1, 2),
    ):
        engine = engine_of([range(12), range(3)])
        engine._begin(job(prompt))
        sequence = engine._sequences[number]
        assert sequence.reply is not None and engine._sequences[1 - number].reply is None
        assert len(sequence.reply.left) == left
        assert sequence.held == prompt[:-left] and engine.model.counts[number] == len(prompt) - left


@pytest.mark.parametrize(
    ("prompt", "busy", "number", "copied"),
    [
        ([*range(40), 70], [0], 3, [(0, 3, 40)]),  # from one that makes a reply
        ([*range(60), 70], [], 0, []),  # nothing is forgotten
        ([*range(40), 70], [], 3, [(0, 3, 40)]),  # what the first one holds behind these tokens stays
        ([*range(40), 70], [1, 2, 3], 0, []),  # there is no other
        ([*range(100, 120), 70], [1], 3, [(1, 3, 20)]),
        ([*range(4), 70], [0], 3, []),  # so few tokens are read again
    ],
)
def test_what_another_sequence_holds_is_copied(
    prompt: list[int], busy: list[int], number: int, copied: list[tuple[int, int, int]]
) -> None:
    engine = engine_of([range(60), range(100, 130), [*range(3), 9], []], copies=True, busy=busy)
    made = job(prompt)
    engine._begin(made)
    sequence = engine._sequences[number]
    known = len(sequence.held)
    assert engine.model.copied == copied and sequence.reply.job is made
    assert sequence.held == prompt[:known] and sequence.reply.left == prompt[known:]
    assert known == made.cached == engine.counts[1] == engine.model.counts[number]
    assert known == len(prompt) - 1 or known < 8


def test_prompts_that_begin_alike_and_arrive_together_are_read_once() -> None:
    engine = engine_of([[], [], []], copies=True)
    read = []

    def after(rows: list[list[int]], numbers: list[int], _: object) -> list[int]:
        read.append(len(rows[0]))
        engine.model.counts[numbers[0]] += len(rows[0])
        return [0]

    engine._reader, engine._take = SimpleNamespace(after=after, block=1), lambda *_: None
    prompts = [[*range(300), 1000 + n] for n in range(3)]
    for prompt in prompts:
        engine._begin(job(prompt))
    while any(sequence.reply.left for sequence in engine._sequences):
        engine._read(min((s for s in engine._sequences if s.reply.left), key=lambda each: each.used))
    assert sorted(sequence.held for sequence in engine._sequences) == prompts
    assert all(sequence.held == sequence.reply.job.prompt for sequence in engine._sequences)
    assert sum(read) == 303 == engine.counts[0] and engine.counts[1] == 600
    assert engine.model.counts.tolist() == [301] * 3


@pytest.mark.parametrize("block", [1, 64])
def test_prompts_are_scored_side_by_side_where_a_run_returns_the_last_logits_alone(block: int) -> None:
    engine = engine_of([[], []])
    runs: list[list[list[int]]] = []

    def after(rows: list[list[int]], numbers: list[int], samplers: list[Any]) -> list[int]:
        runs.append(rows)
        return [sampler(np.zeros(99)) for sampler in samplers]

    def logits(tokens: list[int], number: int) -> list[np.ndarray]:
        runs.append([tokens])
        return [np.zeros(99)] * len(tokens)

    engine._reader = SimpleNamespace(after=after, logits=logits, block=block)
    engine.context = 99
    prompts = [[1, 2, 3, 4], [5, 6, 7, 8]]
    emitted: list[list[Any]] = [[], []]
    for prompt, found in zip(prompts, emitted, strict=True):
        engine._begin(Job(prompt, Sampler(), 0, frozenset(), (), found.append, notes_prompt=True, watch=TokenWatch(0)))
    while engine._active:
        engine._step()
    assert [[chance.token for outcome in found for chance in outcome.chances] for found in emitted] == prompts
    together = [[[1]], [[2]], [[5]], [[6], [3]], [[7]]]  # prompts are begun and continued in turns
    assert runs == (together if block == 1 else [[[1, 2, 3]], [[5, 6, 7]]])


def test_a_copy_that_fails_ends_all_replies_and_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of([range(60), []], copies=True, busy=[0])
    ended: list[Any] = []
    engine._sequences[0].reply = SimpleNamespace(job=SimpleNamespace(emit=ended.append), count=3)

    def refuse(*_: int) -> None:
        raise RunError("no memory")

    monkeypatch.setattr(engine.model, "copy_sequence", refuse)
    engine._begin(job([*range(60), 70]))
    assert ended[0].reason == "error" and not engine._copies
    assert len(engine._sequences[1].reply.left) == 61 and not engine.model.counts.any()
