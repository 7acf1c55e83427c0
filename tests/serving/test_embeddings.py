"""Embeddings by OpenAI's interface, with the package openai as the client, and the relevance of documents."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoders import LETTERS, OPTIONS, write_bert
from gguf import PoolingType
from openai import OpenAI
from served_networks import post, serving

import nnefc
from nnefc.chat import Encoder

TEXTS = ["a bad cab", "h", "head", "dead beef a a a a a"]


@pytest.fixture(scope="module")
def libraries_of_texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, made = tmp_path_factory.mktemp("encoders"), {}
    for name, pooling in (("embed", PoolingType.MEAN), ("rank", PoolingType.RANK)):
        write_bert(folder / f"{name}.gguf", pooling)
        made[name] = folder / f"{name}.so"
        nnefc.compile(folder / f"{name}.gguf", **OPTIONS).export(made[name])
    return made


@pytest.fixture(scope="module")
def server(libraries_of_texts: dict[str, Path]) -> Iterator[Any]:
    with serving({}, texts=libraries_of_texts) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Any) -> OpenAI:
    return OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)


def alone(libraries: dict[str, Path], texts: list[str]) -> np.ndarray:
    with nnefc.load(libraries["embed"], threads=1) as model:
        return Encoder(model).embeddings(texts)


def test_embeddings_are_those_of_the_library(client: OpenAI, libraries_of_texts: dict[str, Path]) -> None:
    """Of several clients at a time, in both forms, of texts and of their tokens."""
    wanted = alone(libraries_of_texts, TEXTS)

    def found(n: int) -> np.ndarray:
        form: Any = {0: {}, 1: {"encoding_format": "float"}, 2: {"encoding_format": "base64"}}[n % 3]
        made = client.embeddings.create(model="embed", input=TEXTS, **form)
        assert [each.index for each in made.data] == [0, 1, 2, 3]
        assert made.usage.prompt_tokens == made.usage.total_tokens > 4
        if n % 3 == 2:
            packed = [b64decode(str(each.embedding)) for each in made.data]
            return np.array([np.frombuffer(each, "<f4") for each in packed])
        return np.array([each.embedding for each in made.data])

    with ThreadPoolExecutor(6) as pool:
        for each in pool.map(found, range(6)):
            np.testing.assert_allclose(each, wanted, atol=1e-6)
    with nnefc.load(libraries_of_texts["embed"], threads=1) as model:
        tokens = model.tokenize(TEXTS[0])
    one = client.embeddings.create(model="embed", input=tokens, dimensions=8).data[0].embedding
    np.testing.assert_allclose(one, wanted[0, :8] / np.linalg.norm(wanted[0, :8]), atol=1e-6)


def test_many_texts_of_a_request_leave_runs_to_others(
    server: Any, client: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short request is answered while one of a thousand texts is under way."""
    model = next(each for each in server.texts if each.name == "embed")
    runs: list[int] = []
    original = model.encoder.results
    monkeypatch.setattr(model.encoder, "results", lambda rows: (runs.append(len(rows)), original(rows))[1])
    with ThreadPoolExecutor(1) as pool:
        many = pool.submit(client.embeddings.create, model="embed", input=[*LETTERS] * 125)
        while len(runs) < 3:
            assert not many.done()
        client.embeddings.create(model="embed", input="a bad cab")
        assert not many.done()
        assert len(many.result().data) == 1000
    assert max(runs) == 3


def test_documents_are_ranked(server: Any, libraries_of_texts: dict[str, Path]) -> None:
    with nnefc.load(libraries_of_texts["rank"], threads=1) as model:
        scores = 1 / (1 + np.exp(-Encoder(model).scores("a b", TEXTS)[:, 0].astype(np.float64)))
    given: dict[str, Any] = {"model": "rank", "query": "a b", "documents": [*TEXTS[:3], {"text": TEXTS[3]}]}
    status, answer = post(server, "/v1/rerank", given)
    assert status == 200 and answer["usage"]["total_tokens"] > 4
    order = [each["index"] for each in answer["results"]]
    assert order == np.argsort(-scores).tolist()
    np.testing.assert_allclose([each["relevance_score"] for each in answer["results"]], scores[order], atol=1e-6)
    assert [each["document"]["text"] for each in answer["results"]] == [TEXTS[n] for n in order]
    _, best = post(server, "/v1/rerank", {**given, "top_n": 1, "return_documents": False})
    assert [sorted(each) for each in best["results"]] == [["index", "relevance_score"]]


WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    '"input" is not a text': ("embeddings", {"input": []}),
    "neither a text nor a list of tokens": ("embeddings", {"input": ["a", 3]}),
    "has no such token: 99": ("embeddings", {"input": [2, 99]}),
    "tokens, and the model reads 24": ("embeddings", {"input": "a " * 30}),
    '"dimensions" is not an integer from 1 to 32': ("embeddings", {"input": "a", "dimensions": 33}),
    '"encoding_format"': ("embeddings", {"input": "a", "encoding_format": "int8"}),
    "use /v1/rerank": ("embeddings", {"model": "rank", "input": "a"}),
    "use /v1/embeddings or /v1/rerank": ("completions", {"prompt": "a"}),
    "no model 'large'": ("embeddings", {"model": "large", "input": "a"}),
    "scores no pairs of texts": ("rerank", {"query": "a", "documents": ["b"]}),
    '"query" is missing': ("rerank", {"model": "rank", "documents": ["b"]}),
    '"documents" is not a list': ("rerank", {"model": "rank", "query": "a", "documents": []}),
    "a document is neither a text": ("rerank", {"model": "rank", "query": "a", "documents": [1]}),
    '"top_n"': ("rerank", {"model": "rank", "query": "a", "documents": ["b"], "top_n": 0}),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_requests_are_refused_with_the_field(message: str, server: Any) -> None:
    path, given = WRONG[message]
    status, answer = post(server, f"/v1/{path}", {"model": "embed", **given})
    assert status == (404 if "large" in message else 400), answer
    assert message in answer["error"]["message"]


def test_a_failure_is_answered(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = next(each for each in server.texts if each.name == "embed")
    monkeypatch.setattr(model.encoder, "results", lambda _: 1 / 0)
    status, answer = post(server, "/v1/embeddings", {"model": "embed", "input": "a"})
    assert status == 500 and "the server has written why to its log" in answer["error"]["message"]
    monkeypatch.undo()
    assert post(server, "/v1/embeddings", {"model": "embed", "input": "a"})[0] == 200
