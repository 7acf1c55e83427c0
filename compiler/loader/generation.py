"""Generates tokens with a language model whose states cache its context.

for token in model.generate([1, 504, 3575], most=100, end=2, temperature=0.7, top_k=40, seed=1):
    print(token)
for prompt, token in model.generate_all([[1, 504, 3575], [1, 88]], most=100, end=2):   # several in parallel
    print(prompt, token)

The inputs of such a network are tokens and, if it holds several sequences, the number of each token row's sequence
(`sequences`); it may have an input of the tokens' indices whose logits it returns (`rows`), and a network that chooses
the next token itself may have inputs for the sampling options (:meth:`Sampler.choice`). Its output is either logits,
whose last row or rows belong to the last tokens, or the chosen next tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .sampling import Sampler
from .tensors import DTYPES, RunError, Tensor, listed

__all__ = ["Reader", "Sequences", "common_beginning", "generated", "generated_side_by_side", "log_total", "scores"]

_CHUNK = 512
"""Maximum tokens of a prompt that are read in one run: a longer run is hardly faster, and needs more memory."""


_CHOICE = ("temperature", "top_k", "top_p", "chance")
_SEQUENCES = "sequences"
_ROWS = "rows"

_MAX_LOGITS = 1 << 24
"""Maximum elements of the logits of a run that returns those of all its tokens: 64 MiB in float32."""


class Reader:
    """Runs a language model on tokens, and chooses the next ones.

    Args:
        run: takes an array for each input, and returns the output.
        inputs, outputs: of the network.

    Attributes:
        takes_sequences: whether the network holds several sequences.
        block: maximum tokens of a run that returns the logits of all its tokens; 1 if runs return those of the last.

    Raises:
        RunError: the inputs and outputs are not those of a language model.
    """

    def __init__(self, run: Callable[..., Any], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        names = [tensor.name for tensor in inputs[1:]]
        if len(outputs) != 1 or not _is_of_integers(inputs[:1]) or not {*names} <= {_SEQUENCES, _ROWS, *_CHOICE}:
            raise RunError(
                "generate needs a network with one input of tokens and one output of logits or tokens, this one has "
                f"{listed(inputs)} -> {listed(outputs)}"
            )
        self.takes_sequences = _SEQUENCES in names
        self._run, self._inputs = run, inputs
        self._chooses, self._takes_choice = _is_of_integers(outputs), bool({*names} & {*_CHOICE})
        *_, count, size = 1, *outputs[0].shape
        returns_all = _ROWS in names or (isinstance(count, str) and count in inputs[0].shape[-1:])
        self.block = max(1, min(_CHUNK, _MAX_LOGITS // size)) if returns_all and isinstance(size, int) else 1

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
        given = {name: [choice[name] for choice in choices] for name in _CHOICE}
        tokens = np.array(rows)
        for start in range(0, tokens.shape[1], _CHUNK):
            chunk = tokens[:, start : start + _CHUNK]
            last = np.arange(1, len(chunk) + 1) * chunk.shape[1] - 1
            found = self._found(chunk, {_SEQUENCES: sequences, _ROWS: last} | given)
        if self._chooses:
            chosen: list[int] = found.reshape(-1).tolist()
            return chosen
        logits = found.reshape(-1, found.shape[-1])[-len(rows) :]
        return [sampler(row) for sampler, row in zip(samplers, logits, strict=True)]

    def logits(self, tokens: Sequence[int], sequence: int) -> Iterator[np.ndarray]:
        """Read new tokens of a sequence, and yield the logits behind each of them, float `[tokens]`.

        The network runs on blocks of tokens, whose logits take at most 64 MiB.

        Args:
            tokens: new ones, at least one.
            sequence: their sequence's number.

        Raises:
            RunError: the network returns no logits.
        """
        if self._chooses:
            raise RunError("the network itself chooses the token: log probabilities need its logits")
        for start in range(0, len(tokens), self.block):
            block = np.array([tokens[start : start + self.block]])
            found = self._found(block, {_SEQUENCES: [sequence], _ROWS: np.arange(block.size)})
            yield from found.reshape(-1, found.shape[-1])[-block.size :]

    def _found(self, tokens: np.ndarray, given: Mapping[str, Any]) -> np.ndarray:
        """Run on tokens, `[rows, tokens of each]`, and the values of the other inputs by name."""
        first, *others = self._inputs
        outer = (*(1,) * (len(first.shape) - 2), len(tokens)) if len(first.shape) > 1 else ()
        more = [np.array(given[tensor.name], DTYPES[tensor.dtype]) for tensor in others]
        return np.asarray(self._run(tokens.astype(DTYPES[first.dtype]).reshape((*outer, -1)), *more))


def scores(reader: Reader, tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return log probabilities of tokens and the likeliest ones, as :meth:`Model.score`."""
    if len(tokens) < 2:
        raise RunError("score needs at least two tokens: the first one has no probability")
    found, likeliest = np.empty(len(tokens) - 1), np.empty(len(tokens) - 1, np.int64)
    for index, (logits, token) in enumerate(zip(reader.logits(tokens[:-1], 0), tokens[1:], strict=True)):
        if not 0 <= token < logits.size:
            raise RunError(f"{token} is not a token: the network has {logits.size}")
        found[index], likeliest[index] = logits[token] - log_total(logits), logits.argmax()
    return found, likeliest


def log_total(logits: np.ndarray) -> float:
    """Return the natural logarithm of the sum of the logits' exponentials."""
    top = float(logits.max())
    return top + math.log(np.exp(logits - top).sum(dtype=np.float64))


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
