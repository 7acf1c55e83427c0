"""Answers requests for embeddings, in OpenAI's format, and for rankings of documents, in that of Jina and Cohere."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnefc.chat import ChatError
from nnefc.chat.encoder import Row
from nnefc.loader import RunError
from nnefc.serving.text.fields import are_tokens, flag, integer, invalid
from nnefc.serving.text.models import EncoderModel

__all__ = ["embeddings", "ranking"]

_MAX_TEXTS = 2048
"""Maximum texts of a request, as in OpenAI's interface."""


async def embeddings(model: EncoderModel, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request for embeddings; with fewer `dimensions` they are truncated and normalized.

    Raises:
        Refused: a field is wrong, the model scores pairs of texts, or too many requests wait.
    """
    if model.encoder.has_scores:
        raise invalid(f"{model.name!r} scores pairs of texts, and makes no embeddings: use /v1/rerank", "model")
    form = given.get("encoding_format")
    if form not in (None, "float", "base64"):
        raise invalid('"encoding_format" is neither "float" nor "base64"', "encoding_format")
    size = integer(given, "dimensions", 1, model.encoder.size) or model.encoder.size
    rows = await asyncio.to_thread(_rows, model, given.get("input"))
    found = await model.engine.results(rows)
    if size < model.encoder.size:
        found = found[:, :size] / np.maximum(np.linalg.norm(found[:, :size], axis=1, keepdims=True), 1e-12)
    listed = [_packed(each) if form == "base64" else each.tolist() for each in found]
    data = [{"object": "embedding", "index": n, "embedding": each} for n, each in enumerate(listed)]
    return {"object": "list", "data": data, "model": model.name, "usage": _usage(rows)}


async def ranking(model: EncoderModel, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request to rank documents by their relevance to a query, the sigmoid of the score.

    Raises:
        Refused: a field is wrong, the model makes embeddings, or too many requests wait.
    """
    if not model.encoder.has_scores:
        raise invalid(f"{model.name!r} makes embeddings, and scores no pairs of texts: use /v1/embeddings", "model")
    query, documents = given.get("query"), given.get("documents")
    if not isinstance(query, str):
        raise invalid('"query" is missing, or not a text', "query")
    if not isinstance(documents, list) or not 0 < len(documents) <= _MAX_TEXTS:
        raise invalid(f'"documents" is not a list of 1 to {_MAX_TEXTS} documents', "documents")
    texts = [_text(each) for each in documents]
    count = integer(given, "top_n", 1, 1 << 31) or len(texts)
    shows = flag(given, "return_documents", default=True)
    rows = await asyncio.to_thread(_pairs, model, query, texts)
    found = (await model.engine.results(rows))[:, 0].astype(np.float64)
    scores = 1 / (1 + np.exp(-found))
    made = []
    for n in np.argsort(-found, kind="stable")[:count]:
        document = {} if not shows else {"document": {"text": texts[n]}}
        made.append({"index": int(n), "relevance_score": float(scores[n]), **document})
    return {"id": f"rerank-{uuid.uuid4().hex}", "model": model.name, "results": made, "usage": _usage(rows)}


def _rows(model: EncoderModel, given: Any) -> list[Row]:
    """Return the rows of an input, which is a text, a list of tokens, or a list of either."""
    listed = [given] if isinstance(given, str) or are_tokens(given) else given
    if not isinstance(listed, list) or not 0 < len(listed) <= _MAX_TEXTS:
        raise invalid(f'"input" is not a text, a list of tokens, nor a list of 1 to {_MAX_TEXTS} of these', "input")
    made = []
    for each in listed:
        if not isinstance(each, str) and not are_tokens(each):
            raise invalid('"input" has something that is neither a text nor a list of tokens', "input")
        try:
            if isinstance(each, str):
                made.append(model.encoder.row(each))
            else:
                model.encoder.model.detokenize(each)  # refuses numbers that are no tokens
                made.append(model.encoder.checked(each))
        except (ChatError, RunError) as error:
            raise invalid(f'"input": {error}', "input") from None
    return made


def _text(document: Any) -> str:
    found = document.get("text") if isinstance(document, dict) else document
    if not isinstance(found, str):
        raise invalid('a document is neither a text nor an object with a "text"', "documents")
    return found


def _pairs(model: EncoderModel, query: str, texts: Sequence[str]) -> list[Row]:
    """Return a row for each pair of the query and a text."""
    try:
        return [model.encoder.pair(query, text) for text in texts]
    except ChatError as error:
        raise invalid(str(error)) from None


def _packed(row: np.ndarray) -> str:
    return base64.b64encode(row.astype("<f4").tobytes()).decode()


def _usage(rows: Sequence[Row]) -> dict[str, int]:
    count = sum(len(row.tokens) for row in rows)
    return {"prompt_tokens": count, "total_tokens": count}
