"""Opens the language models of a server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from nnefc.chat import ChatError, Grammars
from nnefc.chat.grammar import TokenMask
from nnefc.chat.prompts import Prompts
from nnefc.loader import LoadError, RunError, load
from nnefc.serving.failures import FailureKind, Refused
from nnefc.serving.metrics import Metrics
from nnefc.serving.settings import Policy
from nnefc.serving.text.engine import Engine

__all__ = ["TextModel", "TextModels"]


class TextModel:
    """A language model that is served.

    Attributes:
        name: by which clients ask for it.
        engine: makes its replies.
        prompts: makes tokens of conversations.
        ends: the tokens that end a reply.
        token_count: how many tokens there are.
        description: as the list of models has it.
    """

    def __init__(self, name: str, path: Path, policy: Policy, metrics: Metrics) -> None:
        """Loads the library and starts its engine.

        Raises:
            LoadError: it is no language model with a tokenizer, or cannot be loaded here.
        """
        model = load(policy.library(path), threads=policy.threads, key=policy.signing_key)
        try:
            self.prompts = Prompts(model)
            if self.prompts.context is None:
                raise ChatError(f"{model.name} does not say how many tokens it holds")
            tokens = partial(metrics.tokens, name)
            self.engine = Engine(model, self.prompts.context, policy.waiting, tokens)
        except (ChatError, RunError) as error:
            model.close()
            raise LoadError(f"{path} cannot be served as a language model: {error}") from error
        self.name = name
        self._grammars: Grammars | None = None
        self._lock = threading.Lock()
        self.ends = frozenset(self.prompts.ends)
        output = model.outputs[0]
        self.token_count = int(output.shape[-1]) if output.dtype.startswith("float") else 1 << 31
        self.description: dict[str, Any] = {
            "id": name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "nnefc",
            "context_length": self.engine.context,
        }
        self.engine.start()

    def masks(self, grammar: tuple[str, Any] | None, count: int) -> list[TokenMask | None]:
        """Returns a mask for each of some replies, which must follow a grammar. Takes a moment the first time.

        Raises:
            ChatError: the grammar is wrong.
        """
        if grammar is None:
            return [None] * count
        with self._lock:
            if self._grammars is None:
                self._grammars = Grammars(self.engine.model, self.prompts)
        kind, source = grammar
        return [getattr(self._grammars, kind)(source) for _ in range(count)]

    def check_room(self, count: int) -> None:
        """Refuses requests for which no more may wait.

        Raises:
            Refused: there is no room for so many replies.
        """
        if not self.engine.has_room_for(count):
            raise Refused(FailureKind.BUSY, "too many requests wait for this model")

    def close(self) -> None:
        """Ends the engine, and closes the library."""
        self.engine.close()
        self.prompts.close()
        self.engine.model.close()


class TextModels:
    """The language models of a server.

    Attributes:
        active: how many requests have no whole answer yet.
        drains: whether the server is going to end.
    """

    def __init__(self, paths: Mapping[str, Path], policy: Policy, metrics: Metrics) -> None:
        self._paths, self._policy, self._metrics = paths, policy, metrics
        self._models: dict[str, TextModel] = {}
        self.active = 0
        self.drains = False

    def __iter__(self) -> Iterator[TextModel]:
        return iter(self._models.values())

    def __len__(self) -> int:
        return len(self._paths)

    def open(self) -> None:
        """Loads all libraries.

        Raises:
            LoadError: one cannot be served.
        """
        for name, path in self._paths.items():
            self._models[name] = TextModel(name, path, self._policy, self._metrics)

    def close(self) -> None:
        """Closes all libraries; replies that are being made end."""
        for model in self._models.values():
            model.close()
        self._models = {}

    def find(self, name: object) -> TextModel:
        """Returns a model by its name.

        Raises:
            Refused: there is none of this name, or no name.
        """
        if not isinstance(name, str):
            raise Refused(FailureKind.INVALID, '"model" is missing, or not a text')
        if name not in self._models:
            raise Refused(FailureKind.NOT_FOUND, f"there is no model {name[:100]!r}: /v1/models lists them")
        return self._models[name]

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Counts a request while the block runs.

        Raises:
            Refused: the server is going to end.
        """
        if self.drains:
            raise Refused(FailureKind.UNAVAILABLE, "the server is shutting down")
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1
