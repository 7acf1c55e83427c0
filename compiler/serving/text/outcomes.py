"""Submits the replies of one request to an engine, and passes their outcomes from its thread to the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import TracebackType

from nnefc.chat.grammar import TokenMask
from nnefc.loader import RunError
from nnefc.loader.sampling import Sampler
from nnefc.serving.failures import FailureKind, Refused
from nnefc.serving.text.engine import Job, Outcome
from nnefc.serving.text.fields import invalid
from nnefc.serving.text.logprobs import TokenWatch
from nnefc.serving.text.models import TextModel
from nnefc.serving.text.request_fields import Asked

__all__ = ["Outcomes"]


class Outcomes:
    """The outcomes of one request's replies, as the engine makes them, and the count of their tokens.

    A context manager: at the end of its block, unfinished replies are cancelled.

    Attributes:
        read: the number of tokens of all prompts.
    """

    def __init__(
        self, model: TextModel, prompts: Sequence[Sequence[int]], masks: Sequence[TokenMask | None], asked: Asked
    ) -> None:
        """Submit a job for each reply; a reply of no tokens, with an echo perhaps, needs none.

        Args:
            model: generates the replies.
            prompts: tokens; each prompt has `asked.count` replies.
            masks: the token mask of each reply's grammar, or None.
            asked: the fields of the request.

        Raises:
            Refused: a prompt is empty or too long, an option is wrong, or too many requests wait.
        """
        self._model, self._asked = model, asked
        self._queue: asyncio.Queue[tuple[int, Outcome]] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._counts: dict[int, int] = {}
        self.read = sum(map(len, prompts))
        model.check_room(len(masks))
        self._jobs = [
            self._job(prompt, row * asked.count + number, number, masks[row * asked.count + number])
            for row, prompt in enumerate(prompts)
            for number in range(asked.count)
        ]
        for index, job in enumerate(self._jobs):
            if job.echo and not job.notes_prompt:
                self._queue.put_nowait((index, Outcome(job.echo)))
            if job.maximum or job.notes_prompt:
                model.engine.submit(job)
            else:
                self._queue.put_nowait((index, Outcome(reason="length")))

    def __len__(self) -> int:
        return len(self._jobs)

    def __enter__(self) -> Outcomes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for job in self._jobs:
            self._model.engine.cancel(job)

    @property
    def written(self) -> int:
        """The number of tokens of all replies so far."""
        return sum(self._counts.values())

    @property
    def cached(self) -> int:
        """The number of prompt tokens that were in a sequence's cache and not read again."""
        return sum(job.cached for job in self._jobs[:: self._asked.count])

    async def all(self) -> AsyncIterator[tuple[int, Outcome]]:
        """Yield the outcomes of all replies, each with the number of its reply, until all have ended.

        Raises:
            Refused: a run failed.
        """
        async for each in self.all_or_silence(None):
            if each is not None:
                yield each

    async def all_or_silence(self, seconds: float | None) -> AsyncIterator[tuple[int, Outcome] | None]:
        """Yield outcomes as :meth:`all`, and None whenever there was none for `seconds`.

        Raises:
            Refused: a run failed.
        """
        left = len(self._jobs)
        while left:
            try:
                async with asyncio.timeout(seconds):
                    index, outcome = await self._queue.get()
            except TimeoutError:
                yield None
                continue
            if outcome.reason == "error":
                raise Refused(FailureKind.FAILED, f"the model failed: {outcome.error}")
            self._counts[index] = outcome.count
            left -= outcome.reason is not None
            yield index, outcome

    def _job(self, prompt: Sequence[int], index: int, number: int, mask: TokenMask | None) -> Job:
        """Return the job of a reply; `index` is its number among all replies, `number` among those of its prompt."""
        model, asked = self._model, self._asked
        left = model.engine.context - len(prompt)
        if not prompt:
            raise invalid("the prompt has no tokens", asked.source)
        if left < 1:
            reason = f"the prompt has {len(prompt)} tokens, and the model holds {model.engine.context} with the reply"
            raise invalid(reason, asked.source, "context_length_exceeded")
        notes = asked.logprobs is not None
        watch = None if asked.logprobs is None else TokenWatch(asked.logprobs)
        maximum = left if asked.maximum is None else min(asked.maximum, left)
        marks = {token: text for text, token in model.marks.items()} if asked.tools else {}
        echo = self._echo(index // asked.count) if asked.echoes else ""

        def emit(outcome: Outcome) -> None:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, (index, outcome))

        return Job(
            prompt,
            self._sampler(number, mask, watch),
            maximum,
            model.ends,
            asked.stop,
            emit,
            marks,
            watch,
            notes_prompt=asked.echoes and notes,
            echo=echo,
        )

    def _echo(self, row: int) -> str:
        """Return the text of a prompt, which the reply repeats."""
        prompt = self._asked.prompts[row]
        return prompt if isinstance(prompt, str) else self._model.library.detokenize(prompt)

    def _sampler(self, number: int, mask: TokenMask | None, watch: TokenWatch | None) -> Sampler:
        """Return the sampler of a reply; `number` among the replies of a prompt is added to the seed."""
        sampling = self._asked.sampling.copy()
        wrong = [token for token in sampling.get("logit_bias", {}) if token >= self._model.token_count]
        if wrong:
            reason = f'"logit_bias" has token {wrong[0]}, none of the model\'s {self._model.token_count}'
            raise invalid(reason, "logit_bias")
        sampling["mask"], sampling["watch"] = mask, watch
        if (seed := sampling.get("seed")) is not None:
            sampling["seed"] = seed + number
        try:
            sampler = Sampler(**sampling)
            self._model.engine.check(sampler)
        except RunError as error:
            raise invalid(str(error)) from None
        return sampler
