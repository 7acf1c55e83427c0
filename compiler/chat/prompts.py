"""Converts conversations to the tokens of a prompt, by the model's chat template and tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nnefc.chat.template import Renderer, TemplateError, shown
from nnefc.loader import Model
from nnefc.loader.chat import TemplateRefused

__all__ = ["ChatError", "Prompts"]

_PREFIX = "tokenizer."
_TEMPLATE = "tokenizer.chat_template"
_ENDS = "tokenizer.end_tokens"


class ChatError(ValueError):
    """A conversation that is not possible with this model; the message says why."""


class Prompts:
    """Makes the prompts of a language model.

    Attributes:
        ends: the tokens that end a reply.
        context: maximum tokens of a session; None: not limited.
    """

    def __init__(self, model: Model) -> None:
        """Read the model's metadata. A process that renders templates is started with the first prompt, if the library
        has no compiled template.

        Raises:
            ChatError: the library has no tokenizer.
        """
        if not model.has_tokenizer:
            raise ChatError(f"{model.name} has no tokenizer: compile the model with the option tokenizer")
        self.ends = [int(token) for token in model.metadata.get(_ENDS, "").split()]
        self.context = next((d.maximum for d in model.dimensions if d.name == model.inputs[0].shape[-1]), None)
        self._model = model
        self._renderer = Renderer()
        self._named = {
            key.removeprefix(_PREFIX): text
            for key, text in model.metadata.items()
            if key.startswith(_PREFIX) and key.endswith("_token")
        }

    def check_template(self) -> None:
        """Check that the model can hold a conversation.

        Raises:
            ChatError: the model has no chat template.
        """
        if _TEMPLATE not in self._model.metadata:
            raise ChatError(f"{self._model.name} has no chat template: it completes text, and holds no conversation")

    def tokens(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Return the tokens of a conversation and of the beginning of the reply.

        Args:
            messages: as chat templates expect them: `{"role": "user", "content": "…"}`.
            tools: descriptions of functions that the model may call; None for none.
            variables: further variables of the chat template, such as `{"enable_thinking": False}`.

        Raises:
            ChatError: the model has no chat template.
            TemplateError: the template cannot be rendered.
        """
        self.check_template()
        return self._model.tokenize(self._text(messages, tools, variables or {}), begin_and_end=False, control=True)

    def _text(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, variables: Mapping[str, Any]
    ) -> str:
        """Render a conversation: by the library's compiled template, or else by Jinja2."""
        if self._model.has_chat:
            try:
                return self._model.chat_text(messages, tools, variables=variables)
            except TemplateRefused as error:
                raise TemplateError(shown(str(error))) from error
        values = {
            "messages": list(map(_as_template_has_it, messages)),
            "tools": tools,
            "documents": None,
            "add_generation_prompt": True,
        }
        return self._renderer.render(self._model.metadata[_TEMPLATE], self._named | values | dict(variables))

    def close(self) -> None:
        """End the process that renders templates."""
        self._renderer.close()


_REASONING = ("reasoning_content", "thinking", "reasoning")


def _as_template_has_it(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without null fields, and with its reasoning under each name that templates use.

    The library's own rendering does the same.
    """
    found = {key: value for key, value in message.items() if value is not None}
    reasoning = next((found[name] for name in _REASONING if name in found), None)
    return found if reasoning is None else {"thinking": reasoning, **found, "reasoning_content": reasoning}
