"""Loads the language models of a server, and finds them by name: generating models and encoders."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from nnefc.chat import ChatError, Grammars
from nnefc.chat.encoder import Encoder, is_encoder
from nnefc.chat.grammar import TokenMask
from nnefc.chat.prompts import Prompts
from nnefc.chat.tool_calls import NAME_MARKS, CallStyle, grammar_of, style_of
from nnefc.loader import LoadError, Model, RunError, load
from nnefc.serving.failures import FailureKind, Refused
from nnefc.serving.metrics import Metrics
from nnefc.serving.settings import Policy
from nnefc.serving.text.encoding import EncoderEngine
from nnefc.serving.text.engine import Engine
from nnefc.serving.text.fields import invalid
from nnefc.serving.text.tool_fields import Tools

__all__ = ["EncoderModel", "TextModel", "TextModels"]

_TEMPLATE = "tokenizer.chat_template"


class TextModel:
    """A model that generates texts.

    Attributes:
        name: by which clients ask for it.
        library: the session of its library.
        engine: generates its replies.
        prompts: converts conversations to tokens.
        ends: the tokens that end a reply.
        token_count: size of the vocabulary, by the network's logits; without logits, a bound that no token reaches.
        description: its entry in the list of models.
        template: its chat template; empty for none.
        call_style: how the model writes tool calls; None if it has no known way.
        marks: the control tokens that mark calls, by their texts.
    """

    def __init__(self, name: str, model: Model, policy: Policy, metrics: Metrics) -> None:
        """Start an engine for a library.

        Args:
            name: of the model.
            model: the session of the library.
            policy: how many requests may wait.
            metrics: of the server.

        Raises:
            ChatError, RunError: the library is not a language model with a tokenizer.
        """
        self.library = model
        self.prompts = Prompts(model)
        if self.prompts.context is None:
            raise ChatError(f"{model.name} does not say how many tokens it holds")
        self.engine = Engine(model, self.prompts.context, policy.waiting, metrics.of_text(name))
        self.name = name
        self._grammars: Grammars | None = None
        self._lock = threading.Lock()
        self.ends = frozenset(self.prompts.ends)
        output = model.outputs[0]
        self.token_count = int(output.shape[-1]) if output.dtype.startswith("float") else 1 << 31
        self.description = _described(name, self.engine.context)
        self.template = model.metadata.get(_TEMPLATE, "")
        self.call_style = style_of(self.template)
        self.marks = {} if self.call_style is None else dict(self._marks(self.call_style))
        self.engine.start()

    def _marks(self, style: CallStyle) -> Iterator[tuple[str, int]]:
        """Yield the control tokens that mark calls, as pairs of text and token."""
        model = self.library
        for text in (style.start, style.end, *NAME_MARKS):
            tokens = model.tokenize(text, begin_and_end=False, control=True) if text else []
            if len(tokens) == 1 and model.token_bytes(tokens[0])[1]:
                yield text, tokens[0]

    def tool_grammar(self, tools: Tools) -> str:
        """Return the grammar of a reply that must call a tool.

        Raises:
            ChatError: as :meth:`style_of_calls`.
        """
        return grammar_of(self.style_of_calls(), tools.functions, self.marks, tools.is_single)

    def style_of_calls(self) -> CallStyle:
        """Return how the model writes tool calls.

        Raises:
            ChatError: the model has no known way of calling tools.
        """
        if self.call_style is None:
            raise ChatError(
                "the model's chat template takes no tools, or writes calls in none of the forms that are known, those "
                "of Hermes and Qwen, Llama 3 and Mistral"
            )
        return self.call_style

    def masks(self, grammar: tuple[str, Any] | None, count: int) -> list[TokenMask | None]:
        """Return a token mask for each of `count` replies, which must follow a grammar.

        The first call reads the vocabulary, so call it in another thread.

        Args:
            grammar: its kind, a method of :class:`Grammars`, and its source; None: no masks.
            count: the number of replies.

        Raises:
            ChatError: the grammar is wrong.
        """
        if grammar is None:
            return [None] * count
        with self._lock:
            if self._grammars is None:
                self._grammars = Grammars(self.library, self.prompts)
        kind, source = grammar
        return [getattr(self._grammars, kind)(source) for _ in range(count)]

    def check_room(self, count: int) -> None:
        """Check that `count` further replies may wait or begin.

        Raises:
            Refused: too many requests wait.
        """
        if not self.engine.has_room_for(count):
            raise Refused(FailureKind.BUSY, "too many requests wait for this model")

    @property
    def summary(self) -> str:
        """The library, its context and its number of sequences, for the log."""
        return f"{self.library.file}, {self.engine.context} tokens, {self.engine.sequences} side by side"

    def close(self) -> None:
        """End the engine, and close the library."""
        self.engine.close()
        self.prompts.close()
        self.library.close()


class EncoderModel:
    """A model that computes an embedding for each text, or a score for each pair of texts.

    Attributes:
        name: by which clients ask for it.
        library: the session of its library.
        encoder: converts texts to rows of tokens, and runs them.
        engine: batches the rows of many requests.
        description: its entry in the list of models.
    """

    def __init__(self, name: str, model: Model, policy: Policy, metrics: Metrics) -> None:
        """Start an engine for a library; arguments as in :class:`TextModel`.

        Raises:
            ChatError: the library has no tokenizer, or several scores for a pair of texts.
        """
        self.name = name
        self.library = model
        self.encoder = Encoder(model)
        if self.encoder.has_scores and self.encoder.size != 1:
            raise ChatError(f"{model.name} has {self.encoder.size} scores for a pair of texts, and not one")
        self.engine = EncoderEngine(self.encoder, policy.waiting, partial(metrics.tokens, name))
        self.description = _described(name, self.encoder.context)
        self.engine.start()

    @property
    def summary(self) -> str:
        """The library, its kind of results and its context, for the log."""
        kind = "scores of pairs" if self.encoder.has_scores else f"embeddings of {self.encoder.size} elements"
        return f"{self.library.file}, {kind}, {self.encoder.context} tokens"

    def close(self) -> None:
        """End the engine, and close the library."""
        self.engine.close()
        self.library.close()


def _described(name: str, context: int) -> dict[str, Any]:
    """Return a model's entry in the list of models."""
    return {
        "id": name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "nnefc",
        "context_length": context,
    }


class TextModels:
    """The language models of a server.

    Attributes:
        active: the number of requests without a complete answer.
        drains: whether the server is shutting down, and refuses requests.
    """

    def __init__(self, paths: Mapping[str, Path], policy: Policy, metrics: Metrics) -> None:
        self._paths, self._policy, self._metrics = paths, policy, metrics
        self._models: dict[str, TextModel | EncoderModel] = {}
        self.active = 0
        self.drains = False

    def __iter__(self) -> Iterator[TextModel | EncoderModel]:
        return iter(self._models.values())

    def __len__(self) -> int:
        return len(self._paths)

    def open(self) -> None:
        """Load all libraries.

        Raises:
            LoadError: a library cannot be loaded, or is not a language model.
        """
        for name, path in self._paths.items():
            self._models[name] = self._opened(name, path)

    def _opened(self, name: str, path: Path) -> TextModel | EncoderModel:
        model = load(self._policy.library(path), threads=self._policy.threads, key=self._policy.signing_key)
        kind = EncoderModel if is_encoder(model) else TextModel
        try:
            return kind(name, model, self._policy, self._metrics)
        except (ChatError, RunError) as error:
            model.close()
            raise LoadError(f"{path} cannot be served as a language model: {error}") from error

    def close(self) -> None:
        """Close all libraries, which ends unfinished replies."""
        for model in self._models.values():
            model.close()
        self._models = {}

    def find(self, name: object) -> TextModel | EncoderModel:
        """Return a model by the field `model` of a request.

        Raises:
            Refused: `name` is not a text, or not the name of a model.
        """
        if not isinstance(name, str):
            raise invalid('"model" is missing, or not a text', "model")
        if name not in self._models:
            reason = f"there is no model {name[:100]!r}: /v1/models lists them"
            raise Refused(FailureKind.NOT_FOUND, reason, "model_not_found", "model")
        return self._models[name]

    def writer(self, name: object) -> TextModel:
        """Return a model that generates texts.

        Raises:
            Refused: as :meth:`find`, or the model is an encoder.
        """
        found = self.find(name)
        if not isinstance(found, TextModel):
            reason = f"{found.name!r} is an encoder, which writes no texts: use /v1/embeddings or /v1/rerank"
            raise invalid(reason, "model")
        return found

    def encoder(self, name: object) -> EncoderModel:
        """Return an encoder.

        Raises:
            Refused: as :meth:`find`, or the model is not an encoder.
        """
        found = self.find(name)
        if not isinstance(found, EncoderModel):
            raise invalid(f"{found.name!r} is no encoder: it writes texts", "model")
        return found

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Count a request as active while the block runs.

        Raises:
            Refused: the server is shutting down.
        """
        if self.drains:
            raise Refused(FailureKind.UNAVAILABLE, "the server is shutting down")
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1
