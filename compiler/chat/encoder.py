"""Computes embeddings of texts, or scores of pairs of texts, by an encoder that is compiled with its tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnefc.chat.prompts import ChatError
from nnefc.loader import Model

__all__ = ["Encoder", "Row", "is_encoder"]

_PAIR = "tokenizer.pair_tokens"
_MAX_TOKENS = 8192
"""Maximum tokens of a run, padding included: a larger run is hardly faster per token, and needs more memory."""


@dataclass(frozen=True)
class Row:
    """The tokens of a text, or of a pair of texts, as a row of a batch.

    Attributes:
        tokens: at least one.
        second: the position at which the second text of a pair begins; else the number of tokens.
    """

    tokens: Sequence[int]
    second: int


class Encoder:
    """Computes an embedding for each text, or a score for each pair of texts.

    >>> with nnefc.load("model.so") as model:
    ...     first, second = Encoder(model).embeddings(["a cat", "a kitten"])

    Attributes:
        model: the session of the library.
        has_scores: whether results are scores of pairs; else embeddings of texts.
        context: maximum tokens of a text.
        rows: maximum texts of a run.
        size: elements of a result.
    """

    def __init__(self, model: Model) -> None:
        """Prepare an encoder.

        Raises:
            ChatError: the network is not an encoder, or has no tokenizer.
        """
        if not is_encoder(model):
            raise ChatError(f"{model.name} is no encoder of texts: it has no output 'embeddings' or 'scores'")
        if not model.has_tokenizer:
            raise ChatError(f"{model.name} has no tokenizer: compile the model with the option tokenizer")
        self.model = model
        self.has_scores = model.outputs[0].name == "scores"
        limits = {dimension.name: dimension.maximum for dimension in model.dimensions}
        self.rows, self.context = (
            size if isinstance(size, int) else limits.get(size) or 1 for size in model.inputs[0].shape
        )
        self.size = int(model.outputs[0].shape[-1])
        self._takes_segments = len(model.inputs) > 1
        pair = model.metadata.get(_PAIR, "").split(";")
        self._around = [[int(token) for token in group.split()] for group in pair] if len(pair) == 3 else [[], [], []]

    def row(self, text: str) -> Row:
        """Return the tokens of a text as a row.

        Raises:
            ChatError: the text has no tokens, or too many.
        """
        return self.checked(self.model.tokenize(text))

    def pair(self, first: str, second: str) -> Row:
        """Return the tokens of a pair of texts as a row.

        Raises:
            ChatError: the texts have too many tokens.
        """
        before, between, after = self._around
        head = [*before, *self.model.tokenize(first, begin_and_end=False), *between]
        tokens = [*head, *self.model.tokenize(second, begin_and_end=False), *after]
        return self.checked(tokens, len(head))

    def checked(self, tokens: Sequence[int], second: int | None = None) -> Row:
        """Return tokens as a row; `second` is the position at which the second text begins.

        Raises:
            ChatError: there are no tokens, or too many.
        """
        if not tokens:
            raise ChatError("a text has no tokens")
        if len(tokens) > self.context:
            raise ChatError(f"a text has {len(tokens):,} tokens, and the model reads {self.context:,}")
        return Row(tokens, len(tokens) if second is None else second)

    def results(self, rows: Sequence[Row]) -> np.ndarray:
        """Run once, and return the results, `[rows, size]`.

        Raises:
            RunError: the run failed.
        """
        width = max(len(row.tokens) for row in rows)
        tokens, segments = np.full((len(rows), width), -1, np.int64), np.zeros((len(rows), width), np.int64)
        for n, row in enumerate(rows):
            tokens[n, : len(row.tokens)] = row.tokens
            segments[n, row.second : len(row.tokens)] = 1
        found = np.asarray(self.model(tokens, segments) if self._takes_segments else self.model(tokens))
        return found.reshape(len(rows), -1)

    def fits(self, rows: Sequence[Row], other: Row) -> bool:
        """Return whether a run of `rows` may have another row."""
        longest = max(len(row.tokens) for row in (*rows, other))
        return not rows or (len(rows) < self.rows and (len(rows) + 1) * longest <= _MAX_TOKENS)

    def embeddings(self, texts: Sequence[str]) -> np.ndarray:
        """Return the embeddings of texts, `[texts, size]`.

        Raises:
            ChatError: the model scores pairs, or a text has too many tokens.
            RunError: a run failed.
        """
        if self.has_scores:
            raise ChatError(f"{self.model.name} scores pairs of texts, and makes no embeddings")
        return self._all([self.row(text) for text in texts])

    def scores(self, query: str, texts: Sequence[str]) -> np.ndarray:
        """Return the relevance of each text to a query, as logits: `[texts, size]`.

        Raises:
            ChatError: the model makes embeddings, or a text and the query have too many tokens.
            RunError: a run failed.
        """
        if not self.has_scores:
            raise ChatError(f"{self.model.name} makes embeddings, and scores no pairs of texts")
        return self._all([self.pair(query, text) for text in texts])

    def _all(self, rows: Sequence[Row]) -> np.ndarray:
        """Return the results of rows, in their order; each run has rows of similar lengths."""
        made = np.empty((len(rows), self.size), np.float32)
        order = sorted(range(len(rows)), key=lambda n: (-len(rows[n].tokens), n))
        while order:
            count = 1
            while count < len(order) and self.fits([rows[n] for n in order[:count]], rows[order[count]]):
                count += 1
            chosen, order = order[:count], order[count:]
            made[chosen] = self.results([rows[n] for n in chosen])
        return made


def is_encoder(model: Model) -> bool:
    """Returns whether a network computes one result for each text."""
    inputs, outputs = [tensor.name for tensor in model.inputs], [tensor.name for tensor in model.outputs]
    return inputs in (["tokens"], ["tokens", "segments"]) and outputs in (["embeddings"], ["scores"])
