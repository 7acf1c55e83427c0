"""Generates tokens one after the other with a network that caches its context.

for token in model.generate([1, 504, 3575], most=100, end=2, temperature=0.7, top_k=40, seed=1):
    print(token)
for prompt, token in model.generate_all([[1, 504, 3575], [1, 88]], most=100, end=2):   # several side by side
    print(prompt, token)

A network takes tokens, and perhaps the numbers of the `sequences` that they belong to; where it chooses the next token
itself, also what `Sampler.choice` says. It gives logits, those of the last tokens last, or the next tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .sampling import Sampler
from .tensors import DTYPES, RunError, Tensor, listed

__all__ = ["Reader", "Sequences", "common_beginning", "generated", "generated_side_by_side"]

_AT_ONCE = 512
"""Tokens of a prompt that are read in one run: a longer run is hardly faster, and needs more memory."""


_CHOICE = ("temperature", "top_k", "top_p", "chance")
_SEQUENCES = "sequences"


class Reader:
    """Runs a network on tokens.

    Args:
        run: takes arrays, one for each input, and returns the output.
        inputs, outputs: of the network.

    Attributes:
        takes_sequences: whether several sequences are read side by side.

    Raises:
        RunError: the network has other inputs and outputs.
    """

    def __init__(self, run: Callable[..., Any], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        names = [tensor.name for tensor in inputs[1:]]
        if len(outputs) != 1 or not _is_of_integers(inputs[:1]) or not {*names} <= {_SEQUENCES, *_CHOICE}:
            raise RunError(
                "generate needs a network with one input of tokens and one output of logits or tokens, this one has "
                f"{listed(inputs)} -> {listed(outputs)}"
            )
        self.takes_sequences = _SEQUENCES in names
        self._run, self._inputs = run, inputs
        self._chooses, self._takes_choice = _is_of_integers(outputs), bool({*names} & {*_CHOICE})

    def check(self, sampler: Sampler) -> None:
        """Checks that the network allows a way of choosing tokens.

        Raises:
            RunError: the network chooses the token, and what is asked for needs the logits.
        """
        if self._chooses and sampler.needs_logits:
            raise RunError(
                "the network itself chooses the token: penalties, biases, masks, min_p, typical_p and log "
                "probabilities need its logits"
            )
        if self._chooses and not self._takes_choice and sampler.temperature:
            raise RunError("the network itself chooses the likeliest token: temperature must be 0")

    def after(
        self, rows: Sequence[Sequence[int]], sequences: Sequence[int], samplers: Sequence[Sampler]
    ) -> Sequence[int]:
        """The tokens that follow some sequences, after as many new ones of each.

        Raises:
            RunError: the network chooses the token, and what is asked for needs the logits.
        """
        for sampler in samplers:
            self.check(sampler)
        choices = [sampler.choice() for sampler in samplers] if self._takes_choice else []
        given = {_SEQUENCES: sequences} | {name: [choice[name] for choice in choices] for name in _CHOICE}
        first, *others = self._inputs
        more = [np.array(given[tensor.name], DTYPES[tensor.dtype]) for tensor in others]
        tokens = np.array(rows, DTYPES[first.dtype])
        outer = (*(1,) * (len(first.shape) - 2), len(rows)) if len(first.shape) > 1 else ()
        for start in range(0, tokens.shape[1], _AT_ONCE):
            found = np.asarray(self._run(tokens[:, start : start + _AT_ONCE].reshape((*outer, -1)), *more))
        if self._chooses:
            chosen: list[int] = found.reshape(-1).tolist()
            return chosen
        logits = found.reshape(-1, found.shape[-1])[-len(rows) :]
        return [sampler(row) for sampler, row in zip(samplers, logits, strict=True)]


def common_beginning(first: Sequence[int], second: Sequence[int]) -> int:
    """Returns how many tokens two texts begin with in common."""
    count = min(len(first), len(second))
    differ = np.flatnonzero(np.asarray(first[:count]) != np.asarray(second[:count]))
    return int(differ[0]) if len(differ) else count


def _is_of_integers(tensors: Sequence[Tensor]) -> bool:
    return len(tensors) == 1 and tensors[0].dtype in ("int32", "int64")


def generated(reader: Reader, tokens: Sequence[int], most: int, end: Sequence[int], sample: Sampler) -> Iterator[int]:
    """See :meth:`Model.generate`: the tokens that follow one prompt."""
    _check_prompt(tokens)
    sample.note(tokens)
    return _tokens(reader, tokens, most, end, sample)


def _tokens(reader: Reader, tokens: Sequence[int], most: int, end: Sequence[int], sample: Sampler) -> Iterator[int]:
    for _ in range(most):
        (token,) = reader.after([tokens], [0], [sample])
        if token in end:
            return
        yield token
        tokens = [token]


@dataclass(frozen=True)
class Sequences:
    """The sequences of a session.

    Attributes:
        count: how many there are.
        begin: lets one of them begin again with the first tokens of another one, or of itself: its number, the other's,
            and how many tokens; returns how many it has then, these or none.
    """

    count: int
    begin: Callable[[int, int, int], int]


def generated_side_by_side(
    reader: Reader,
    prompts: Sequence[Sequence[int]],
    sequences: Sequences,
    most: int,
    end: Sequence[int],
    samplers: Sequence[Sampler],
) -> Iterator[tuple[int, int]]:
    """See :meth:`Model.generate_all`.

    Args:
        reader: of the network.
        prompts: each with a sampler.
        sequences: of the session.
        most, end, samplers: of each prompt.
    """
    for tokens, sampler in zip(prompts, samplers, strict=True):
        _check_prompt(tokens)
        sampler.note(tokens)
    return _Queue(reader, prompts, sequences, most, end, samplers).tokens()


def _check_prompt(tokens: Sequence[int]) -> None:
    if not len(tokens):
        raise RunError("generate needs at least one token to go on from")


@dataclass
class _Queue:
    """Prompts that wait for a location among the sequences of a session, and those that have one."""

    reader: Reader
    prompts: Sequence[Sequence[int]]
    sequences: Sequences
    most: int
    end: Sequence[int]
    samplers: Sequence[Sampler]
    found: dict[int, list[int]] = field(default_factory=dict)
    held: dict[int, list[int]] = field(default_factory=dict)  # the tokens that sequences have read

    def tokens(self) -> Iterator[tuple[int, int]]:
        """Generates tokens for all prompts: a prompt is read when a sequence is free, and all active sequences advance
        together.
        """
        waiting = iter(range(len(self.prompts) if self.most > 0 else 0))
        locations: dict[int, int] = {}  # the prompts that have sequences
        while True:
            while len(locations) < self.sequences.count and (prompt := next(waiting, None)) is not None:
                free = (each for each in range(self.sequences.count) if each not in locations.values())
                locations[prompt] = next(free)
                known = self._begun(locations[prompt], self.prompts[prompt])
                yield from self._noted([prompt], [self.prompts[prompt][known:]], locations)
            if not locations:
                return
            going = list(locations)
            yield from self._noted(going, [self.found[prompt][-1:] for prompt in going], locations)

    def _begun(self, number: int, prompt: Sequence[int]) -> int:
        """Lets a sequence begin with what any of them holds of a prompt, but its last token; returns how much."""
        known, source = max(
            ((common_beginning(held, prompt[:-1]), each) for each, held in self.held.items()), default=(0, number)
        )
        known = self.sequences.begin(number, source, known)
        self.held[number] = list(prompt[:known])
        return known

    def _noted(
        self, prompts: Sequence[int], rows: Sequence[Sequence[int]], locations: dict[int, int]
    ) -> Iterator[tuple[int, int]]:
        """What follows some prompts; one that has ended leaves its location."""
        samplers = [self.samplers[prompt] for prompt in prompts]
        following = self.reader.after(rows, [locations[prompt] for prompt in prompts], samplers)
        for prompt, row in zip(prompts, rows, strict=True):
            self.held[locations[prompt]] += row
        for prompt, token in zip(prompts, following, strict=True):
            own = self.found.setdefault(prompt, [])
            if token not in self.end:
                own.append(token)
                yield prompt, token
            if token in self.end or len(own) == self.most:
                del locations[prompt]
