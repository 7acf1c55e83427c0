"""Holds a conversation with a language model: its messages, and the tokens that the session has read of them."""

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
"""The state that has the number of tokens in each sequence of the session."""


class Conversation:
    """A conversation with a language model.

    >>> with nnefc.load("model.so") as model:
    ...     for text in Conversation(model).reply("What is the capital of France?"):
    ...         print(text, end="")

    Attributes:
        messages: all messages so far, as chat templates expect them: `{"role": "user", "content": "…"}`.
        context: maximum tokens of a session; None: not limited.
        read_count, written_count: the number of tokens that were read and generated for the last reply.
    """

    def __init__(self, model: Model, *, system: str | None = None, **choice: Unpack[Sampling]) -> None:
        """Begin a conversation.

        Args:
            model: compiled with its tokenizer, from a file that has a chat template.
            system: instructions for the model, before the conversation.
            choice: sampling options, `temperature`, `top_p` and so on, as of :meth:`nnefc.Model.generate`.

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
        """Return the tokens of all messages and of the beginning of the next reply.

        Raises:
            TemplateError: the model's chat template cannot be rendered.
        """
        return self._prompts.tokens(self.messages)

    def reply(
        self, text: str, max_tokens: int | None = None, stop: Sequence[str] = (), mask: Mask | None = None
    ) -> Iterator[str]:
        """Yield the parts of the reply to a message as they are generated.

        Closing the iterator ends the reply; the part that was generated becomes a message of the conversation.

        Args:
            text: the user's message.
            max_tokens: of the reply; None: as many as the session holds.
            mask: says which tokens the reply may have, such as a grammar of :class:`nnefc.chat.Grammars`.
            stop: texts that end the reply at their first occurrence; they are not part of it.

        Raises:
            ChatError: the conversation is longer than the session's context.
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
        """Return how many further tokens the session can hold; None: not limited.

        Raises:
            ChatError: the conversation fills the context.
        """
        if self.context is None:
            return None
        if len(tokens) >= self.context:
            raise ChatError(
                f"the conversation has {len(tokens)} tokens, and a session holds {self.context}: compile the model "
                "with a larger context, or begin another conversation"
            )
        return self.context - len(tokens)

    def _keep(self, tokens: Sequence[int]) -> int:
        """Rewind the session to the longest common beginning with `tokens`, and return the length of that.

        At least the last token has to be read, for its logits.
        """
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
