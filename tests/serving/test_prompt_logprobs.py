"""Log probabilities of the tokens of prompts, as programs that evaluate language models ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from language_models import WORDS, logits
from openai import OpenAI
from served_networks import serving
from served_texts import client_of

import nnefc
from nnefc.loader import generation

END = WORDS - 2
HOW: dict[str, Any] = {"model": "small", "temperature": 0, "echo": True}
ROWS = [np.random.default_rng(size).integers(0, 90, size).tolist() for size in (3, 17, 40, 5, 2)]
"""More than there are sequences."""


@pytest.fixture(scope="module", params=[None, 7, 1], ids=lambda block: f"blocks of {block or 'all'}")
def server(text_library: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server that reads prompts in blocks of so many tokens."""
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            if request.param:
                patch.setattr(generation, "_MAX_LOGITS", request.param * WORDS)
            running = stack.enter_context(serving({}, texts={"small": text_library}))
        yield running


@pytest.fixture(scope="module")
def client(server: Any) -> OpenAI:
    return client_of(server)


@pytest.fixture(scope="module")
def wanted(text_model: tuple[Path, dict[str, np.ndarray]]) -> list[np.ndarray]:
    """Log probabilities of all tokens after each beginning of each row, `[size of the row, WORDS]`, in float64."""
    found = []
    for row in ROWS:
        values = np.array([logits(text_model[1], row[: n + 1]) for n in range(len(row))])
        values -= values.max(1, keepdims=True)
        found.append(values - np.log(np.exp(values).sum(1, keepdims=True)))
    return found


@pytest.mark.parametrize("maximum", [0, 1, 3])
def test_they_are_those_of_a_float_reference(client: OpenAI, wanted: list[np.ndarray], maximum: int) -> None:
    made = client.completions.create(prompt=ROWS, max_tokens=maximum, logprobs=1, **HOW)
    assert [choice.index for choice in made.choices] == list(range(len(ROWS)))
    for choice, row, values in zip(made.choices, ROWS, wanted, strict=True):
        found = choice.logprobs
        assert found is not None and found.token_logprobs is not None and found.top_logprobs is not None
        assert len(found.token_logprobs) == len(row) + maximum and choice.finish_reason == "length"
        assert found.token_logprobs[0] is None and found.top_logprobs[0] is None
        of_prompt = [values[n, token] for n, token in enumerate(row[1:])]
        np.testing.assert_allclose(found.token_logprobs[1 : len(row)], of_prompt, atol=2e-3)
        best = [max(each.values()) for each in found.top_logprobs[1 : len(row)]]
        np.testing.assert_allclose(best, values[:-1].max(1), atol=2e-3)
        if maximum:
            np.testing.assert_allclose(found.token_logprobs[len(row)], values[-1].max(), atol=2e-3)
    assert made.usage is not None and made.usage.completion_tokens == maximum * len(ROWS)


def test_a_harness_finds_the_sum_and_whether_it_is_greedy(client: OpenAI, wanted: list[np.ndarray]) -> None:
    """Behind a context of some tokens, of which it knows how many there are; the last token is generated."""
    (choice,) = client.completions.create(prompt=ROWS[1], max_tokens=1, logprobs=1, seed=1234, **HOW).choices
    assert choice.logprobs is not None and choice.logprobs.token_logprobs and choice.logprobs.top_logprobs
    row, context = ROWS[1], 5
    found = choice.logprobs.token_logprobs[context:-1]
    sums = sum(wanted[1][n - 1, row[n]] for n in range(context, len(row)))
    assert sum(found) == pytest.approx(sums, abs=0.02)
    greedy = [
        value == max(top.values()) for value, top in zip(found, choice.logprobs.top_logprobs[context:-1], strict=True)
    ]
    assert greedy == [wanted[1][n - 1].argmax() == row[n] for n in range(context, len(row))]


@pytest.mark.parametrize("block", [None, 7, 1])
def test_a_session_scores_texts(
    text_library: Path, wanted: list[np.ndarray], block: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if block:
        monkeypatch.setattr(generation, "_MAX_LOGITS", block * WORDS)
    with nnefc.load(text_library, threads=1) as model:
        for row, values in zip(ROWS, wanted, strict=True):
            found, likeliest = model.score(row)
            np.testing.assert_allclose(found, [values[n, token] for n, token in enumerate(row[1:])], atol=2e-3)
            assert likeliest.tolist() == values[:-1].argmax(1).tolist()
        with pytest.raises(nnefc.RunError, match="at least two tokens"):
            model.score([3])
        with pytest.raises(nnefc.RunError, match=f"{WORDS} is not a token"):
            model.score([3, 4, WORDS])


def test_few_runs_read_a_prompt(text_library: Path) -> None:
    """So many as it has blocks, and the logits of a run are limited."""
    sizes: list[int] = []
    with nnefc.load(text_library, threads=1) as model:

        def run(tokens: np.ndarray, *others: np.ndarray) -> Any:
            sizes.append(tokens.shape[1])
            return model(tokens, *others)

        reader = generation.Reader(run, model.inputs, model.outputs)
        assert len([*reader.logits([5] * 150, 0)]) == 150
        assert sizes == [150] and reader.block * WORDS <= 1 << 24
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(generation, "_MAX_LOGITS", 64 * WORDS)
            assert generation.Reader(run, model.inputs, model.outputs).block == 64


def test_the_token_that_ends_a_completion_is_among_them(client: OpenAI, text_library: Path) -> None:
    bias = {"logit_bias": {str(END): 100}}
    (choice,) = client.completions.create(prompt=ROWS[0], max_tokens=1, logprobs=2, **bias, **HOW).choices
    with nnefc.load(text_library, threads=1) as model:
        text = model.detokenize(ROWS[0])
    assert (choice.text, choice.finish_reason) == (text, "stop")
    assert choice.logprobs is not None and choice.logprobs.tokens is not None
    assert choice.logprobs.tokens[-1] == "<|e|>" and len(choice.logprobs.tokens) == len(ROWS[0]) + 1
    assert choice.logprobs.top_logprobs is not None and "<|e|>" in choice.logprobs.top_logprobs[-1]


def test_texts_and_offsets_are_those_of_the_completion(client: OpenAI) -> None:
    """Also where a token is a part of a character."""
    how = {"prompt": "hello", "max_tokens": 20, "logprobs": 0, "extra_body": {"guided_regex": "aé→b"}} | HOW
    (whole,) = client.completions.create(**how).choices
    assert whole.text == "helloaé→b" and whole.logprobs is not None
    offsets, tokens = whole.logprobs.text_offset or [], whole.logprobs.tokens or []
    shown = [whole.text[at:].startswith(token) for at, token in zip(offsets, tokens, strict=True) if token.isascii()]
    assert all(shown[:-1]) and tokens[-1] == "<|e|>" and len(tokens) > len(shown) > 4
    parts = [part.choices[0] for part in client.completions.create(stream=True, **how)]
    assert "".join(part.text for part in parts) == whole.text
    assert [at for part in parts if part.logprobs for at in part.logprobs.text_offset or []] == offsets
    alone = client.completions.create(**how | {"echo": False}).choices[0]
    assert alone.logprobs is not None and alone.logprobs.text_offset and alone.logprobs.text_offset[0] == 0
    assert "hello" + alone.text == whole.text


def test_other_requests_go_on_meanwhile(client: OpenAI, server: Any) -> None:
    """Sequences that read prompts with all logits, others that copy what these hold, and a prompt of one token."""
    how: dict[str, Any] = {"model": "small", "temperature": 0, "max_tokens": 4}
    prompts: list[Any] = [ROWS[2], [*ROWS[2], 7], ROWS[1]]
    alone = [client.completions.create(prompt=each, **how).choices[0].text for each in prompts]

    def echoed(_: int) -> Any:
        return client.completions.create(prompt=ROWS[2], **HOW | {"max_tokens": 4, "logprobs": 0}).choices[0]

    with ThreadPoolExecutor(6) as pool:
        noted = pool.map(echoed, range(3))
        found = pool.map(lambda each: client.completions.create(prompt=each, **how).choices[0].text, prompts * 2)
        assert [*found] == alone * 2
        assert all(each.text.endswith(alone[0]) for each in noted)
    (one,) = client.completions.create(prompt=[5], max_tokens=0, logprobs=1, **HOW).choices
    assert one.logprobs is not None and one.logprobs.token_logprobs == [None]
