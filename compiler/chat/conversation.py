"""Holds a conversation with a language model: its messages, and what the session has read of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Unpack

from nnefc.chat.prompts import ChatError, Prompts
from nnefc.chat.stopping import until_stopped
from nnefc.loader import Model
from nnefc.loader.generation import common_beginning
from nnefc.loader.sampling import Mask, Sampling

__all__ = ["Conversation"]

_LENGTH = "P"
"""The state that counts the tokens that a session holds, in each of its sequences if it has several."""


class Conversation:
    """A conversation with a language model.

    >>> with nnefc.load("model.so") as model:
    ...     for text in Conversation(model).reply("What is the capital of France?"):
    ...         print(text, end="")

    Attributes:
        messages: all so far, as chat templates take them: `{"role": "user", "content": "…"}`.
        context: how many tokens a session holds; None if that is not limited.
        read_count, written_count: tokens that the last reply has read and written.
    """

    def __init__(self, model: Model, *, system: str | None = None, **choice: Unpack[Sampling]) -> None:
        """Begins a conversation.

        Args:
            model: compiled with its tokenizer, from a file that has a chat template.
            system: instructions for the model, before the conversation.
            choice: how tokens are chosen: `temperature`, `top_p` and so on, as of :meth:`nnefc.Model.generate`.

        Raises:
            ChatError: the library has no tokenizer, or the model no chat template.
        """
        self.messages: list[dict[str, str]] = [{"role": "system", "content": system}] if system is not None else []
        self.read_count = self.written_count = 0
        self._model, self._choice = model, choice
        self._prompts = Prompts(model)
        self._prompts.check_template()
        self.context = self._prompts.context
        self._held: list[int] = []

    def tokens(self) -> list[int]:
        """Returns the tokens of all messages, and of what comes before the next reply.

        Raises:
            TemplateError: the model's chat template cannot be rendered.
        """
        return self._prompts.tokens(self.messages)

    def reply(
        self, text: str, max_tokens: int | None = None, stop: Sequence[str] = (), mask: Mask | None = None
    ) -> Iterator[str]:
        """Yields the parts of the reply to a message as they are found.

        Closing the iterator ends the reply; what it has so far is a message of the conversation.

        Args:
            text: the user's message.
            max_tokens: of the reply; None: as many as the session holds.
            mask: of the tokens that the reply may have, such as a grammar of :class:`nnefc.chat.Grammars`.
            stop: texts at whose first occurrence the reply ends; it does not have them.

        Raises:
            ChatError: the conversation is longer than the session holds.
            TemplateError: the model's chat template cannot be rendered.
        """
        self.messages.append({"role": "user", "content": text})
        try:
            tokens = self.tokens()
            left = self._left(tokens)
        except ValueError:
            self.messages.pop()
            raise
        known = self._keep(tokens)
        self.read_count, self.written_count = len(tokens) - known, 0
        limit = left if max_tokens is None else max_tokens if left is None else min(left, max_tokens)
        return self._parts(tokens, known, limit, stop, mask)

    def _parts(
        self, tokens: list[int], known: int, limit: int | None, stop: Sequence[str], mask: Mask | None
    ) -> Iterator[str]:
        parts: list[str] = []
        self._held = list(tokens)
        chosen = self._model.generate(
            tokens[known:],
            most=1 << 62 if limit is None else limit,
            end=self._prompts.ends,
            history=tokens[:known],
            **(self._choice | {"mask": mask}),
        )
        try:
            for part in until_stopped(self._model.detokenize_stream(self._noted(chosen)), stop):
                parts.append(part)
                yield part
        finally:
            self.messages.append({"role": "assistant", "content": "".join(parts)})

    def _noted(self, chosen: Iterator[int]) -> Iterator[int]:
        for token in chosen:
            self._held.append(token)
            self.written_count += 1
            yield token

    def _left(self, tokens: Sequence[int]) -> int | None:
        """Returns how many tokens the session can hold besides these."""
        if self.context is None:
            return None
        if len(tokens) >= self.context:
            raise ChatError(
                f"the conversation has {len(tokens)} tokens, and a session holds {self.context}: compile the model "
                "with a larger context, or begin another conversation"
            )
        return self.context - len(tokens)

    def _keep(self, tokens: Sequence[int]) -> int:
        """Lets the session forget what differs from `tokens`; returns how many of these it holds, not all of them."""
        states = [state.name for state in self._model.states]
        if _LENGTH not in states:
            self._model.reset()
            return 0
        counts = self._model.read_state(_LENGTH)  # of each sequence; the conversation is the first one
        length = int(counts.flat[0])
        known = common_beginning(self._held[:length], tokens[:-1])
        if known < length and not self._model.can_rewind_to(known):
            known = 0
        counts.flat[0] = known
        self._model.write_state(_LENGTH, counts)
        return known
