"""Generates the replies to many requests at a time, each in a sequence of one session (continuous batching).

One run advances all replies by a token; prompts are read in chunks between these runs. If the beginning of a prompt is
in the key-value cache of any sequence, it is copied from there and not read again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from nnefc.chat.prompts import ChatError
from nnefc.chat.stopping import Stopping
from nnefc.loader import Model, RunError, StateMemory
from nnefc.loader.generation import Reader, common_beginning
from nnefc.loader.sampling import Sampler
from nnefc.loader.tokenizer import TextStream
from nnefc.serving.text.logprobs import TokenChance, TokenWatch

__all__ = ["Engine", "Job", "Meter", "Outcome"]

_LOG = logging.getLogger(__name__)

_CHUNK = 128
"""Tokens of a prompt that are read in one run, while all other replies wait for their next token."""

_LENGTH = "P"
"""The network's state that has the number of tokens in each sequence."""

_MIN_COPIED = 8
"""The minimum of tokens that are worth a copy: reading fewer takes about as long."""

_MEASURED = 1.0
"""Minimum seconds between two measurements of the caches' memory while replies are generated."""


@dataclass(frozen=True)
class Outcome:
    """The next part of a reply, or its end.

    Attributes:
        text: since the last outcome.
        reason: why the reply ends: `stop`, `length` or `error`; None while it goes on.
        error: what went wrong.
        count: the number of tokens of the reply so far.
        chances: log probabilities of the tokens since the last outcome, if these are recorded.
        last_chance: log probability of the end token, which is not part of the reply, if these are recorded.
    """

    text: str = ""
    reason: str | None = None
    error: str = ""
    count: int = 0
    chances: tuple[TokenChance, ...] = ()
    last_chance: TokenChance | None = None


@dataclass
class Job:
    """A reply to be generated.

    Attributes:
        prompt: tokens, at least one.
        sampler: chooses the tokens.
        maximum: maximum tokens of the reply; 0 only with `notes_prompt`.
        ends: tokens that end the reply.
        stop: texts that end the reply.
        emit: called with each outcome, in the engine's thread.
        marks: texts of the control tokens that are kept in the reply; other control tokens are dropped.
        watch: records the log probability of each token, as the sampler's watch; None: they are not recorded.
        notes_prompt: whether the log probabilities of the prompt's tokens are recorded as well, except for the first
            token, which has none. None of the prompt is copied then. It is read in blocks of :attr:`Reader.block`;
            where that is 1, token by token, in the same runs as the next tokens of other replies.
        echo: the text of the prompt, to be emitted with its log probabilities.
        cancelled: whether the reply is not wanted any more.
        submitted: when the job was made; seconds of `time.monotonic`.
        cached: the number of prompt tokens that were copied and not read, once the reply has begun.
    """

    prompt: Sequence[int]
    sampler: Sampler
    maximum: int
    ends: frozenset[int]
    stop: Sequence[str]
    emit: Callable[[Outcome], None]
    marks: Mapping[int, str] = field(default_factory=dict)
    watch: TokenWatch | None = None
    notes_prompt: bool = False
    echo: str = ""
    cancelled: bool = False
    submitted: float = field(default_factory=time.monotonic)
    cached: int = 0


class Meter(Protocol):
    """Takes an engine's metrics, in the engine's thread."""

    def tokens(self, read: int, cached: int, written: int) -> None:
        """Count tokens: `read` of prompts, `cached` of prompts (copied from other sequences), `written` of replies."""

    def first_token(self, seconds: float) -> None:
        """Count a reply, by the seconds from its request to its first token."""

    def caches(self, memory: StateMemory) -> None:
        """Set the memory of the sequences' key-value caches."""


class _GivenTokens(Sampler):
    """Returns the tokens of a prompt one by one instead of choosing tokens, so that `watch` sees their logits."""

    def __init__(self, tokens: Sequence[int], watch: TokenWatch | None) -> None:
        super().__init__(watch=watch)
        self._tokens = iter(tokens)

    def __call__(self, logits: np.ndarray) -> int:
        """Return the next token of the prompt."""
        token = next(self._tokens)
        if self.watch is not None:
            self.watch(logits, token)
        return token


class _Reply:
    """The state of a job that has a sequence.

    Attributes:
        job: the job.
        left: the tokens of the prompt that have not been read.
        next: the token that the next run reads, once `left` is empty.
        count: the number of tokens of the reply so far.
        given: how many tokens of the prompt are still to be given to the watch, to record their log probabilities.

    With `in_blocks`, the prompt's logits are read in blocks; else it is continued by its own tokens, as by a sampler.
    """

    def __init__(self, job: Job, left: list[int], stream: TextStream, *, in_blocks: bool) -> None:
        self.job = job
        self.left = left
        self.next = 0
        self.count = 0
        self._stream = stream
        self._stopping = Stopping(job.stop)
        self._chances: list[TokenChance] = []
        self.given = 0
        if job.notes_prompt:
            first, *following = job.prompt
            self.given = len(following)
            if not in_blocks:
                self.left = [first]
            elif following and not job.maximum:
                del self.left[-1:]  # no logits behind the last token are asked for
            self._given_tokens = _GivenTokens(following, job.watch)
            self._chances.append(TokenChance(first, None, ()))
            if not following:
                self._emit(job.echo)
        job.sampler.note(job.prompt)

    @property
    def sampler(self) -> Sampler:
        """The sampler of the next token."""
        return self._given_tokens if self.given else self.job.sampler

    def take(self, token: int, room: int, meter: Meter) -> bool:
        """Add the next token to the reply, and emit what is new; return whether the reply goes on.

        Args:
            token: that the sampler has chosen.
            room: how many further tokens the sequence can hold.
            meter: takes the engine's metrics.
        """
        if self.given:
            self.given -= 1
            self._note_chance()
            self.next = token
            if not self.given:
                self._emit(self.job.echo)
            if self.given or self.job.maximum:
                return True
        if not self.job.maximum:
            return self._end("length")
        if token in self.job.ends:
            return self._end("stop", last=self._last_chance)
        self.count += 1
        if self.count == 1:
            meter.first_token(time.monotonic() - self.job.submitted)
        self._note_chance()
        mark = self.job.marks.get(token)
        text = self._stopping.add(self._stream.add(token) if mark is None else self._stream.end() + mark)
        if self._stopping.found:
            return self._end("stop", text)
        if self.count == self.job.maximum or room < 1:
            return self._end("length", text)
        if text:
            self._emit(text)
        self.next = token
        return True

    @property
    def _last_chance(self) -> TokenChance | None:
        return None if self.job.watch is None else self.job.watch.last

    def _note_chance(self) -> None:
        if (chance := self._last_chance) is not None:
            self._chances.append(chance)

    def _emit(self, text: str, reason: str | None = None, last: TokenChance | None = None) -> None:
        chances, self._chances = tuple(self._chances), []
        self.job.emit(Outcome(text, reason, count=self.count, chances=chances, last_chance=last))

    def _end(self, reason: str, text: str = "", last: TokenChance | None = None) -> bool:
        if not self._stopping.found:
            text += self._stopping.add(self._stream.end()) + self._stopping.end()
        self._emit(text, reason, last)
        return False


@dataclass
class _Sequence:
    """A sequence of the session.

    Attributes:
        number: of the sequence.
        held: the tokens in its key-value cache.
        reply: that uses the sequence; None: it is free.
        used: when it was last used, by the engine's count of runs.
    """

    number: int
    held: list[int] = field(default_factory=list)
    reply: _Reply | None = None
    used: int = 0


class Engine:
    """Generates the replies of one language model, in a thread of its own.

    Attributes:
        model: the session of its library.
        context: maximum tokens of a sequence.
    """

    def __init__(self, model: Model, context: int, waiting: int, meter: Meter) -> None:
        """Prepare an engine; :meth:`start` starts it.

        Args:
            model: the session of a language model with its tokenizer.
            context: maximum tokens of a sequence.
            waiting: how many jobs may wait for a sequence.
            meter: takes the engine's metrics.

        Raises:
            RunError: the network is not a language model.
        """
        self.model, self.context = model, context
        self._reader = Reader(model, model.inputs, model.outputs)
        count = model.read_state(_LENGTH).size if self._reader.takes_sequences else 1
        self._sequences = [_Sequence(number) for number in range(count)]
        self._maximum_waiting = waiting
        self._meter = meter
        self._copies = model.copies_sequences and count > 1
        self._measured = 0.0
        self._waiting: deque[Job] = deque()
        self._condition = threading.Condition()
        self._ends = False
        self._reads_next = True
        self._clock = 0
        self._thread = threading.Thread(target=self._loop, name="nnefc text", daemon=True)

    def check(self, sampler: Sampler) -> None:
        """Check that the network supports the options of a sampler.

        Raises:
            RunError: the options need logits, but the network returns the chosen token.
        """
        self._reader.check(sampler)

    def has_room_for(self, count: int) -> bool:
        """Return whether `count` further jobs may wait or begin."""
        free = sum(sequence.reply is None for sequence in self._sequences)
        return len(self._waiting) + count <= self._maximum_waiting + free

    @property
    def sequences(self) -> int:
        """The number of replies that are generated at the same time."""
        return len(self._sequences)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue a job for a free sequence."""
        with self._condition:
            self._waiting.append(job)
            self._condition.notify()

    def cancel(self, job: Job) -> None:
        """End a job, before the next run."""
        with self._condition:
            job.cancelled = True
            self._condition.notify()

    def close(self) -> None:
        """End the thread after its current run; jobs get no further outcome."""
        with self._condition:
            self._ends = True
            self._condition.notify()
        with suppress(RunError):  # a library that cannot cancel, such as one for a GPU, completes its run
            self.model.cancel()
        self._thread.join()

    def _loop(self) -> None:
        while True:
            self._measure(is_due=not self._active)
            with self._condition:
                while not self._ends and not self._waiting and not self._active:
                    self._condition.wait()
                if self._ends:
                    return
            try:
                with self._condition:
                    self._admit()
                self._step()
            except Exception:  # the thread must go on, or all requests would wait forever
                _LOG.exception("a language model failed")
                self._fail(self._active, "the server has written why to its log")

    def _measure(self, is_due: bool) -> None:
        """Measure the caches' memory, if `is_due` or some time after the last measurement."""
        now = time.monotonic()
        if self.model.copies_sequences and (is_due or now > self._measured + _MEASURED):
            self._measured = now
            with suppress(RunError):  # the session is being closed
                self._meter.caches(self.model.state_memory)

    @property
    def _active(self) -> list[_Sequence]:
        return [sequence for sequence in self._sequences if sequence.reply is not None]

    def _admit(self) -> None:
        """Drop cancelled jobs, and assign free sequences to the jobs that have waited longest."""
        for sequence in self._active:
            if sequence.reply is not None and sequence.reply.job.cancelled:
                sequence.reply = None
        while self._waiting and any(sequence.reply is None for sequence in self._sequences):
            job = self._waiting.popleft()
            if not job.cancelled:
                self._begin(job)

    def _begin(self, job: Job) -> None:
        """Assign a free sequence to a job, and reuse the beginning of its prompt that is in a cache."""
        target, source, known = self._chosen(job.prompt[:1] if job.notes_prompt else job.prompt)
        if target is not source:
            known = self._copied(source, target, known)
        else:
            self._set_length(target, known)
        target.held = list(job.prompt[:known])
        job.cached = known
        target.reply = _Reply(job, list(job.prompt[known:]), self.model.text_stream(), in_blocks=self._reader.block > 1)
        self._meter.tokens(0, known, 0)

    def _chosen(self, prompt: Sequence[int]) -> tuple[_Sequence, _Sequence, int]:
        """Choose a free sequence for a prompt.

        A free sequence that holds the longest beginning of the prompt is used itself. If it would lose tokens by that,
        the least recently used free sequence takes a copy of the beginning instead.

        Returns:
            the free sequence (target), the sequence that holds the beginning of the prompt (source), and the number of
            tokens of that beginning. Target and source may be the same.
        """
        free = [sequence for sequence in self._sequences if sequence.reply is None]
        source, known = self._best_beginning(prompt, self._sequences if self._copies else free)
        if not self._copies:
            return source, source, known
        oldest = min(free, key=lambda each: (bool(each.held), each.used))
        if known < _MIN_COPIED:
            return oldest, oldest, self._known(oldest, prompt)
        forgets = len(source.held) - known >= _MIN_COPIED
        return (oldest if source.reply is not None or forgets else source), source, known

    def _copied(self, source: _Sequence, target: _Sequence, count: int) -> int:
        """Copy the first `count` tokens of `source` to `target`; return how many `target` has then, 0 on failure."""
        try:
            self.model.copy_sequence(source.number, target.number, count)
        except RunError:  # out of memory: the caches of all sequences may be invalid
            _LOG.exception("a sequence could not be copied: prompts are read whole from now on")
            self._copies = False
            self._fail(self._sequences, "the server has written why to its log")
            self.model.reset()
            return 0
        return count

    def _best_beginning(self, prompt: Sequence[int], among: Sequence[_Sequence]) -> tuple[_Sequence, int]:
        """Return the sequence that holds the longest beginning of a prompt, and the number of tokens of that."""
        known = {sequence.number: self._known(sequence, prompt) for sequence in among}

        def order(each: _Sequence) -> tuple[int, bool, int, int]:
            return known[each.number], each.reply is None, known[each.number] - len(each.held), -each.used

        best = max(among, key=order)
        return best, known[best.number]

    def _catch_up(self, sequence: _Sequence, reply: _Reply) -> None:
        """Copy the part of a reply's prompt that another sequence has read meanwhile.

        So prompts that arrive together and begin alike share the work: each chunk of the common beginning is read once.
        """
        if reply.job.notes_prompt:
            return
        others = [each for each in self._sequences if each is not sequence]
        if not self._copies or not any(len(each.held) >= len(sequence.held) + _MIN_COPIED for each in others):
            return
        prompt, held = reply.job.prompt, len(sequence.held)
        source, known = self._best_beginning(prompt, others)
        if known < held + _MIN_COPIED or not self._copied(source, sequence, known):
            return
        sequence.held, reply.left = list(prompt[:known]), list(prompt[known:])
        reply.job.cached += known - held
        self._meter.tokens(0, known - held, 0)

    def _known(self, sequence: _Sequence, prompt: Sequence[int]) -> int:
        """Return the length of the longest beginning of a prompt that a sequence holds and can continue from.

        At least the last token of the prompt has to be read, for its logits.
        """
        known = min(common_beginning(sequence.held, prompt), len(prompt) - 1)
        is_rewound = known < len(sequence.held)
        return 0 if is_rewound and not self.model.can_rewind_to(known, sequence.number) else known

    def _set_length(self, sequence: _Sequence, count: int) -> None:
        lengths = self.model.read_state(_LENGTH)
        lengths[... if lengths.ndim == 0 else sequence.number] = count
        self.model.write_state(_LENGTH, lengths)

    def _step(self) -> None:
        """Run once: alternately read a chunk of a prompt and generate the next token of all replies."""
        active = self._active
        reading = [sequence for sequence in active if sequence.reply is not None and sequence.reply.left]
        writing = [sequence for sequence in active if sequence.reply is not None and not sequence.reply.left]
        reads = bool(reading) and (self._reads_next or not writing)
        chosen = [min(reading, key=lambda each: each.used)] if reads else writing
        self._reads_next = not reads
        if chosen:
            try:
                self._read(chosen[0]) if reads else self._write(chosen)
            except (RunError, ChatError) as error:
                self._fail(chosen, str(error))

    def _read(self, sequence: _Sequence) -> None:
        reply = sequence.reply
        assert reply is not None
        self._catch_up(sequence, reply)
        if sequence.reply is None:
            return
        size = min(_CHUNK, self._reader.block) if reply.job.notes_prompt else _CHUNK
        chunk, reply.left = reply.left[:size], reply.left[size:]
        if reply.job.notes_prompt:
            logits = [*self._reader.logits(chunk, sequence.number)]
            self._hold(sequence, chunk)
            for row in logits:
                self._take(sequence, reply.sampler(row))
            return
        sampler = Sampler() if reply.left else reply.job.sampler
        (token,) = self._reader.after([chunk], [sequence.number], [sampler])
        self._hold(sequence, chunk)
        if not reply.left:
            self._take(sequence, token)

    def _hold(self, sequence: _Sequence, chunk: Sequence[int]) -> None:
        """Record that a sequence has read a part of a prompt."""
        sequence.held += chunk
        self._clock += 1
        sequence.used = self._clock
        self._meter.tokens(len(chunk), 0, 0)

    def _write(self, sequences: Sequence[_Sequence]) -> None:
        replies = [sequence.reply for sequence in sequences if sequence.reply is not None]
        numbers = [sequence.number for sequence in sequences]
        given = sum(reply.given > 0 for reply in replies)
        following = self._reader.after([[r.next] for r in replies], numbers, [r.sampler for r in replies])
        self._meter.tokens(given, 0, len(sequences) - given)
        self._clock += 1
        for sequence, reply, token in zip(sequences, replies, following, strict=True):
            sequence.used = self._clock
            sequence.held.append(reply.next)
            self._take(sequence, token)

    def _take(self, sequence: _Sequence, token: int) -> None:
        room = self.context - len(sequence.held)
        if sequence.reply is not None and not sequence.reply.take(token, room, self._meter):
            sequence.reply = None

    def _fail(self, sequences: Sequence[_Sequence], error: str) -> None:
        for sequence in sequences:
            if sequence.reply is not None:
                sequence.reply.job.emit(Outcome(reason="error", error=error, count=sequence.reply.count))
            sequence.reply, sequence.held = None, []
