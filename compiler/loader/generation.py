"""Generates tokens with a language model whose states cache its context.

for token in model.generate([1, 504, 3575], most=100, end=2, temperature=0.7, top_k=40, seed=1):
    print(token)
for prompt, token in model.generate_all([[1, 504, 3575], [1, 88]], most=100, end=2):   # several in parallel
    print(prompt, token)

The inputs of such a network are tokens and, if it holds several sequences, the number of each token row's sequence
(`sequences`); a network that chooses the next token itself may also have inputs for the sampling options
(:meth:`Sampler.choice`). Its output is either logits, whose last row or rows belong to the last tokens, or the chosen
next tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .sampling import Sampler
from .tensors import DTYPES, RunError, Tensor, listed

__all__ = ["Reader", "Sequences", "common_beginning", "generated", "generated_side_by_side"]

_CHUNK = 512
"""Maximum tokens of a prompt that are read in one run: a longer run is hardly faster, and needs more memory."""


_CHOICE = ("temperature", "top_k", "top_p", "chance")
_SEQUENCES = "sequences"


class Reader:
    """Runs a language model on tokens, and chooses the next ones.

    Args:
        run: takes an array for each input, and returns the output.
        inputs, outputs: of the network.

    Attributes:
        takes_sequences: whether the network holds several sequences.

    Raises:
        RunError: the inputs and outputs are not those of a language model.
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
        """Check that the network supports the options of a sampler.

        Raises:
            RunError: the network chooses the token itself, but the options need its logits.
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
        """Read new tokens of several sequences, and return the token that follows in each.

        Args:
            rows: the new tokens of each sequence, equally many.
            sequences: the number of each row's sequence.
            samplers: of each row.

        Raises:
            RunError: as :meth:`check`.
        """
        for sampler in samplers:
            self.check(sampler)
        choices = [sampler.choice() for sampler in samplers] if self._takes_choice else []
        given = {_SEQUENCES: sequences} | {name: [choice[name] for choice in choices] for name in _CHOICE}
        first, *others = self._inputs
        more = [np.array(given[tensor.name], DTYPES[tensor.dtype]) for tensor in others]
        tokens = np.array(rows, DTYPES[first.dtype])
        outer = (*(1,) * (len(first.shape) - 2), len(rows)) if len(first.shape) > 1 else ()
        for start in range(0, tokens.shape[1], _CHUNK):
            found = np.asarray(self._run(tokens[:, start : start + _CHUNK].reshape((*outer, -1)), *more))
        if self._chooses:
            chosen: list[int] = found.reshape(-1).tolist()
            return chosen
        logits = found.reshape(-1, found.shape[-1])[-len(rows) :]
        return [sampler(row) for sampler, row in zip(samplers, logits, strict=True)]


def common_beginning(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the longest common prefix of two lists of tokens."""
    count = min(len(first), len(second))
    differ = np.flatnonzero(np.asarray(first[:count]) != np.asarray(second[:count]))
    return int(differ[0]) if len(differ) else count


def _is_of_integers(tensors: Sequence[Tensor]) -> bool:
    return len(tensors) == 1 and tensors[0].dtype in ("int32", "int64")


def generated(reader: Reader, tokens: Sequence[int], most: int, end: Sequence[int], sample: Sampler) -> Iterator[int]:
    """Return the tokens that follow one prompt, as :meth:`Model.generate`."""
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
        count: the number of sequences.
        begin: called with the numbers of a target and a source sequence and a count: makes the target the first `count`
            tokens of the source, which may be the target itself. Returns how many tokens the target has then: `count`,
            or 0 if that is impossible.
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
    """Return the tokens that follow several prompts, as :meth:`Model.generate_all`.

    Args:
        reader: runs the network.
        prompts: the tokens of each.
        sequences: of the session.
        most: maximum tokens that follow each prompt.
        end: the tokens that end it.
        samplers: of each prompt.
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
    """The prompts of one call: some have a sequence of the session, others wait for one.

    Attributes:
        found: the tokens that follow each prompt so far.
        held: the tokens that each sequence has read.
    """

    reader: Reader
    prompts: Sequence[Sequence[int]]
    sequences: Sequences
    most: int
    end: Sequence[int]
    samplers: Sequence[Sampler]
    found: dict[int, list[int]] = field(default_factory=dict)
    held: dict[int, list[int]] = field(default_factory=dict)

    def tokens(self) -> Iterator[tuple[int, int]]:
        """Yield pairs of a prompt's number and a token that follows it.

        A prompt is read when a sequence is free, and all active sequences advance by a token in one run.
        """
        waiting = iter(range(len(self.prompts) if self.most > 0 else 0))
        active: dict[int, int] = {}  # prompt → its sequence
        while True:
            while len(active) < self.sequences.count and (prompt := next(waiting, None)) is not None:
                free = (each for each in range(self.sequences.count) if each not in active.values())
                active[prompt] = next(free)
                known = self._begin(active[prompt], self.prompts[prompt])
                yield from self._advance([prompt], [self.prompts[prompt][known:]], active)
            if not active:
                return
            going = list(active)
            yield from self._advance(going, [self.found[prompt][-1:] for prompt in going], active)

    def _begin(self, number: int, prompt: Sequence[int]) -> int:
        """Begin a prompt in a sequence with the longest prefix of it that any sequence holds; return its length.

        At least the last token of the prompt has to be read, for its logits.
        """
        known, source = max(
            ((common_beginning(held, prompt[:-1]), each) for each, held in self.held.items()), default=(0, number)
        )
        known = self.sequences.begin(number, source, known)
        self.held[number] = list(prompt[:known])
        return known

    def _advance(
        self, prompts: Sequence[int], rows: Sequence[Sequence[int]], active: dict[int, int]
    ) -> Iterator[tuple[int, int]]:
        """Read new tokens of some prompts and yield the token that follows each; remove ended prompts from `active`."""
        samplers = [self.samplers[prompt] for prompt in prompts]
        following = self.reader.after(rows, [active[prompt] for prompt in prompts], samplers)
        for prompt, row in zip(prompts, rows, strict=True):
            self.held[active[prompt]] += row
        for prompt, token in zip(prompts, following, strict=True):
            own = self.found.setdefault(prompt, [])
            if token not in self.end:
                own.append(token)
                yield prompt, token
            if token in self.end or len(own) == self.most:
                del active[prompt]
