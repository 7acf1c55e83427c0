"""Language models by OpenAI's interface, with the package openai as the client."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import APIStatusError, BadRequestError, InternalServerError, NotFoundError, OpenAI, RateLimitError
from served_networks import get, post, serving
from served_texts import CONTEXT, FUNCTION, LIKELIEST, MESSAGES, client_of, get_text

import nnefc
from nnefc.chat import Conversation


@pytest.fixture(scope="module")
def alone(text_library: Path) -> dict[str, str]:
    """The likeliest replies to some messages, each in a session of its own."""
    replies = {}
    for text in ("hello", "he", "ll", "o", "hello o", "a b c"):
        with nnefc.load(text_library, threads=1) as model:
            replies[text] = "".join(Conversation(model).reply(text, max_tokens=6))
    return replies


@pytest.fixture(scope="module")
def server(text_library: Path) -> Iterator[Any]:
    with serving({}, texts={"small": text_library}) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Any) -> OpenAI:
    return client_of(server)


def test_replies_are_those_of_a_session_alone(client: OpenAI, alone: dict[str, str]) -> None:
    """Several clients at a time, more than there are sequences."""

    def reply(text: str) -> tuple[str, str | None]:
        made = client.chat.completions.create(messages=[{"role": "user", "content": text}], **LIKELIEST)
        assert made.usage is not None
        assert made.usage.total_tokens == made.usage.prompt_tokens + made.usage.completion_tokens
        return made.choices[0].message.content or "", made.choices[0].finish_reason

    texts = [*alone] * 3
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(reply, texts))
    assert [text for text, _ in found] == [alone[text] for text in texts]
    assert {reason for _, reason in found} <= {"stop", "length"}


def test_parts_of_a_reply_are_together_the_reply(client: OpenAI, alone: dict[str, str]) -> None:
    parts = list(
        client.chat.completions.create(
            messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **LIKELIEST
        )
    )
    *texts, last = parts
    assert {part.usage for part in texts} == {None}
    assert "".join(part.choices[0].delta.content or "" for part in texts) == alone["hello"]
    assert texts[0].choices[0].delta.role == "assistant" and texts[-1].choices[0].finish_reason == "length"
    assert last.usage is not None and last.usage.completion_tokens == 6 and not last.choices


def test_completions_continue_texts_and_tokens(client: OpenAI, text_library: Path) -> None:
    with nnefc.load(text_library, threads=1) as model:
        tokens = model.tokenize("hello")
        (wanted,) = [list(model.generate_all([tokens], most=6))]
        text = model.detokenize([token for _, token in wanted])
    one = client.completions.create(prompt="hello", **LIKELIEST)
    several = client.completions.create(prompt=[tokens, tokens], n=2, **LIKELIEST)
    assert one.choices[0].text == text
    assert [choice.text for choice in several.choices] == [text] * 4
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]


def test_variables_go_to_the_chat_template(client: OpenAI) -> None:
    one, two = (
        client.chat.completions.create(
            messages=MESSAGES, extra_body={"chat_template_kwargs": variables}, **LIKELIEST
        ).usage
        for variables in ({}, {"messages": 2 * MESSAGES})
    )
    assert one is not None and two is not None and one.prompt_tokens < two.prompt_tokens


def test_a_seed_gives_the_same_reply(client: OpenAI) -> None:
    how: dict[str, Any] = {"model": "small", "max_tokens": 8, "temperature": 1.5, "top_p": 0.9, "seed": 7}
    replies = {client.completions.create(prompt="hello", **how).choices[0].text for _ in range(3)}
    assert len(replies) == 1
    biased = client.completions.create(prompt="hello", logit_bias={"70": 100}, **how).choices[0].text
    assert len(set(biased)) == 1
    stopped = client.completions.create(prompt="hello", stop=[next(iter(replies))[2:4]], **how)
    assert stopped.choices[0].finish_reason == "stop"
    assert stopped.choices[0].text == next(iter(replies)).split(next(iter(replies))[2:4])[0]


def test_replies_follow_grammars(client: OpenAI) -> None:
    how: dict[str, Any] = {"model": "small", "temperature": 1.0, "seed": 2, "max_tokens": 40}
    expression = client.completions.create(prompt="he", extra_body={"guided_regex": "(yes|no): [0-9]{2}"}, **how)
    assert re.fullmatch("(yes|no): [0-9]{2}", expression.choices[0].text)
    grammar = 'root ::= "<" [a-c] [a-c] ">"'
    written = client.completions.create(prompt="he", n=2, extra_body={"grammar": grammar}, **how)
    assert all(re.fullmatch("<[abc][abc]>", choice.text) for choice in written.choices)
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    form: Any = {"type": "json_schema", "json_schema": {"name": "numbers", "schema": schema}}
    how["max_tokens"] = None
    made = client.chat.completions.create(messages=MESSAGES, response_format=form, **how)
    for other in ({"guided_json": schema}, {"response_format": {"type": "json_object", "schema": schema}}):
        same = client.chat.completions.create(messages=MESSAGES, extra_body=other, **how)
        assert same.choices[0].message.content == made.choices[0].message.content
    reply = made.choices[0].message.content or ""
    assert not re.search(r"\n\s*\n|\n[ \t]{33}", reply)  # a model of random numbers would write much white space
    if made.choices[0].finish_reason == "stop":
        assert json.loads(reply)["a"] in (1, 2)


CALL = r'<tool_call>\{"name": "f", "arguments": \{"a": 1\}\}</tool_call>'


def test_a_required_tool_is_called(client: OpenAI) -> None:
    how: dict[str, Any] = {"model": "small", "messages": MESSAGES, "temperature": 1, "seed": 3, "tools": [FUNCTION]}
    made = client.chat.completions.create(tool_choice="required", parallel_tool_calls=False, **how).choices[0]
    (call,) = made.message.tool_calls or []
    assert (made.finish_reason, made.message.content, call.type) == ("tool_calls", None, "function")
    assert call.function.name == "f" and json.loads(call.function.arguments)["a"] in (1, "}")  # type: ignore[union-attr]
    named: Any = {"type": "function", "function": {"name": "f"}}
    parts = list(client.chat.completions.create(tool_choice=named, stream=True, **how))
    deltas = [call for part in parts for call in part.choices[0].delta.tool_calls or []]
    assert [delta.index for delta in deltas] == [0] * len(deltas) and len(deltas) > 4
    assert deltas[0].function and deltas[0].function.name == "f" and (deltas[0].id or "").startswith("call_")
    assert "".join(delta.function.arguments or "" for delta in deltas if delta.function) == call.function.arguments  # type: ignore[union-attr]
    assert not "".join(part.choices[0].delta.content or "" for part in parts)
    assert parts[-1].choices[0].finish_reason == "tool_calls"


def test_calls_are_found_where_the_model_chooses(client: OpenAI) -> None:
    """A text and two calls, which a grammar makes a random model write."""
    how: dict[str, Any] = {"model": "small", "messages": MESSAGES, "tools": [FUNCTION], "temperature": 1}
    written = {"guided_regex": f"ok {CALL} {CALL}"}
    made = client.chat.completions.create(extra_body=written, **how).choices[0]
    assert made.message.content == "ok" and made.finish_reason == "tool_calls"
    assert [call.function.arguments for call in made.message.tool_calls or []] == ['{"a": 1}'] * 2  # type: ignore[union-attr]
    one = client.chat.completions.create(extra_body=written, parallel_tool_calls=False, **how).choices[0]
    assert len(one.message.tool_calls or []) == 1
    none = client.chat.completions.create(extra_body=written, tool_choice="none", **how).choices[0]
    assert none.message.tool_calls is None and none.finish_reason == "stop"
    assert (none.message.content or "").count("<tool_call>") == 2


def test_logprobs_are_those_of_the_logits(client: OpenAI, text_library: Path) -> None:
    """In a conversation, in parts of one, and in a completion."""
    how: dict[str, Any] = {"messages": MESSAGES, "logprobs": True, "top_logprobs": 3, **LIKELIEST}
    whole = client.chat.completions.create(**how).choices[0]
    assert whole.logprobs is not None and whole.logprobs.content is not None
    parts = [part.choices[0].logprobs for part in client.chat.completions.create(stream=True, **how)]
    streamed = [each for part in parts if part for each in part.content or []]
    assert [each.token for each in streamed] == [each.token for each in whole.logprobs.content]
    np.testing.assert_allclose(  # the second prompt comes from the prefix cache: its sums are added in another order
        [each.logprob for each in streamed], [each.logprob for each in whole.logprobs.content], atol=1e-4
    )
    for each in whole.logprobs.content:
        assert bytes(each.bytes or []).decode(errors="replace") == each.token
        assert each.logprob == each.top_logprobs[0].logprob >= each.top_logprobs[2].logprob
    with nnefc.load(text_library, threads=1) as model:
        tokens = model.tokenize("hello")
        logits = (
            np.asarray(model(np.array([tokens]), np.zeros(1, np.int64), np.array([len(tokens) - 1])))
            .reshape(-1)
            .astype(np.float64)
        )
    wanted = np.sort(logits - np.log(np.exp(logits).sum()))[::-1]
    made = client.completions.create(prompt="hello", logprobs=2, n=2, **LIKELIEST)
    for found in (choice.logprobs for choice in made.choices):
        assert found is not None and found.top_logprobs and found.token_logprobs and found.text_offset
        np.testing.assert_allclose(
            [found.token_logprobs[0], *found.top_logprobs[0].values()], wanted[[0, 0, 1]], atol=1e-5
        )
        assert found.text_offset[:2] == [0, len((found.tokens or [""])[0])] and len(found.token_logprobs) == 6


def test_models_are_listed(client: OpenAI) -> None:
    (model,) = client.models.list().data
    assert (model.id, model.owned_by) == ("small", "nnefc")
    assert client.models.retrieve("small").id == "small"
    with pytest.raises(NotFoundError, match="no model 'large'"):
        client.models.retrieve("large")


WRONG: dict[str, dict[str, Any]] = {
    "no model 'large'": {"model": "large"},
    '"messages" is missing': {"messages": []},
    'has no "role"': {"messages": [{"content": "a"}]},
    "of the type 'image_url': only parts of the type": {
        "messages": [{"role": "user", "content": [{"type": "image_url"}]}]
    },
    '"temperature" is not a number from 0 to 2': {"temperature": 10**400},
    '"top_p"': {"top_p": "much"},
    '"n" is not an integer from 1 to 16': {"n": 99},
    '"max_tokens"': {"max_tokens": 0},
    '"stop"': {"stop": [1]},
    '"seed"': {"seed": 0.5},
    '"logit_bias"': {"logit_bias": {"x": 1}},
    '"logit_bias" has token 9999': {"logit_bias": {"9999": 1}},
    '"stream" is not true or false': {"stream": "yes"},
    '"chat_template_kwargs" is not an object': {"chat_template_kwargs": [1]},
    '"logprobs" is not true or false': {"logprobs": 2},
    '"top_logprobs" needs "logprobs"': {"top_logprobs": 2},
    '"top_logprobs" is not an integer from 0 to 20': {"logprobs": True, "top_logprobs": 21},
    '"echo" is not supported': {"echo": True},
    '"best_of" is not supported unless it is "n"': {"best_of": 2},
    "the \"role\" 'asistant', which is none of system,": {"messages": [{"role": "asistant", "content": "a"}]},
    'of the "role" user has no "content"': {"messages": [{"role": "user"}]},
    'of the type "text" with a "text"': {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
    '"reasoning_effort" is not a text': {"reasoning_effort": 1},
    '"response_format" is none of': {"response_format": {"type": "xml"}},
    '"guided_json" is not an object': {"guided_json": "{}"},
    "exclude each other": {"response_format": {"type": "json_object"}, "guided_regex": "a"},
    "the grammar is wrong": {"guided_regex": "("},
    "the grammar cannot be followed: no token may follow": {"grammar": 'root ::= root "a"'},
    '"tools" is not a list of objects': {"tools": "all"},
    'a tool is not {"type": "function"': {"tools": [{"name": "f"}]},
    'the "name" of a function': {"tools": [{"type": "function", "function": {"name": "a b"}}]},
    '"tool_choice" needs "tools"': {"tool_choice": "required"},
    '"tool_choice" is none of': {"tools": [FUNCTION], "tool_choice": "some"},
    '"tools" does not have': {"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "g"}}},
    "a form or grammar of the reply, exclude": {"tools": [FUNCTION], "tool_choice": "required", "grammar": "a"},
    'the "arguments" of a call are not JSON': {
        "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]
    },
    f"tokens, and the model holds {CONTEXT} with the reply": {"messages": [{"role": "user", "content": "a" * 299}]},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_requests_are_refused_with_the_field(message: str, server: Any) -> None:
    given = {"model": "small", "messages": MESSAGES, "max_tokens": 2, **WRONG[message]}
    status, answer = post(server, "/v1/chat/completions", given)
    assert status == (404 if "large" in message else 400), answer
    assert message in answer["error"]["message"]
    if len(WRONG[message]) == 1 and "the grammar" not in message:
        assert answer["error"]["param"] == next(iter(WRONG[message]))


def test_too_many_requests_are_refused(text_library: Path) -> None:
    with serving({}, texts={"small": text_library}, waiting=0) as server:
        client = client_of(server)
        with pytest.raises(RateLimitError) as refused:
            client.completions.create(model="small", prompt="hello", n=4)
        assert refused.value.response.headers["Retry-After"] == "1"
        assert client.completions.create(model="small", prompt="hello", n=3, max_tokens=2).choices


def test_what_prompts_have_in_common_is_read_once(server: Any, client: OpenAI, text_library: Path) -> None:
    """Six users at a time, more than there are sequences, with one system prompt; then one of them goes on."""

    def measured(name: str) -> float:
        (line,) = [line for line in get_text(server, "/metrics").splitlines() if line.startswith(name)]
        return float(line.split()[-1])

    common = np.random.default_rng(3).integers(0, 90, 100).tolist()
    prompts = [[*common, 5 + user, 6] for user in range(6)]
    with nnefc.load(text_library, threads=1) as model:
        wanted = []
        for prompt in prompts:
            model.reset()
            logits = np.asarray(model(np.array([prompt]), np.zeros(1, np.int64), np.array([len(prompt) - 1])))
            wanted.append(model.detokenize([int(logits.argmax())]))
    how: dict[str, Any] = {"model": "small", "max_tokens": 1, "temperature": 0}
    before = measured('nnefc_tokens_total{kind="prompt"')
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda prompt: client.completions.create(prompt=prompt, **how), prompts))
    assert [each.choices[0].text for each in made] == wanted
    read = measured('nnefc_tokens_total{kind="prompt"') - before
    cached = [each.usage.prompt_tokens_details.cached_tokens for each in made]  # type: ignore[union-attr]
    assert read == 6 * 102 - sum(cached) <= 128 + 5 * 10
    again = client.completions.create(prompt=[*prompts[3], 5, 6], **how).usage
    assert again is not None and again.prompt_tokens_details is not None
    assert again.prompt_tokens_details.cached_tokens in (100, 102)  # its sequence may be another one's by now
    assert measured("nnefc_first_token_seconds_count") >= 7
    assert measured('nnefc_cache_bytes{kind="own"') > 0


def test_libraries_that_are_no_language_models_are_refused(libraries: dict[str, Path]) -> None:
    with pytest.raises(nnefc.LoadError, match="has no tokenizer"), serving({}, texts={"rows": libraries["rows"]}):
        pass


def test_a_failure_ends_the_replies_under_way_alone(
    server: Any, client: OpenAI, alone: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (model,) = server.texts
    monkeypatch.setattr(model.engine, "_write", lambda _: 1 / 0)
    with pytest.raises(InternalServerError, match="the server has written why to its log"):
        client.chat.completions.create(messages=MESSAGES, **LIKELIEST)
    monkeypatch.undo()
    made = client.chat.completions.create(messages=MESSAGES, **LIKELIEST)
    assert made.choices[0].message.content == alone["hello"]


def test_errors_have_the_form_of_openai(client: OpenAI, server: Any) -> None:
    with pytest.raises(BadRequestError) as refused:
        client.completions.create(model="small", prompt=[10**6])
    assert isinstance(refused.value, APIStatusError) and refused.value.type == "invalid_request_error"
    with pytest.raises(BadRequestError) as refused:
        client.completions.create(model="small", prompt="a" * 299)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "prompt")
    with pytest.raises(NotFoundError) as unknown:
        client.files.list()
    assert (unknown.value.type, unknown.value.body["message"]) == ("not_found_error", "Not Found")  # type: ignore[index]
    status, answer = get(server, "/v1/chat/completions")
    assert (status, answer["error"]["type"]) == (405, "invalid_request_error")


def test_completions_of_no_tokens_and_with_their_prompts(client: OpenAI) -> None:
    given: dict[str, Any] = {"model": "small", "temperature": 0, "prompt": ["hello", "a b"], "n": 2}
    made = client.completions.create(**given, max_tokens=0)
    assert [(each.text, each.finish_reason) for each in made.choices] == [("", "length")] * 4
    alone = client.completions.create(**given, max_tokens=3)
    whole = client.completions.create(**given, max_tokens=3, echo=True)
    wanted = [text + each.text for text, each in zip(("hello", "hello", "a b", "a b"), alone.choices, strict=True)]
    assert [each.text for each in whole.choices] == wanted
    parts = client.completions.create(**given | {"prompt": "hello", "n": 1}, max_tokens=3, echo=True, stream=True)
    assert "".join(part.choices[0].text for part in parts) == wanted[0]


def test_developers_and_refusals_are_read(client: OpenAI) -> None:
    """The template has the role system alone; a model's refusal is a text as any other."""
    texts = []
    for role, content in (("system", "be brief"), ("developer", [{"type": "text", "text": "be brief"}])):
        refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
        messages: list[Any] = [{"role": role, "content": content}, *MESSAGES, refusal, *MESSAGES]
        made = client.chat.completions.create(messages=messages, **LIKELIEST)
        texts.append((made.choices[0].message.content, made.usage.prompt_tokens if made.usage else 0))
    assert texts[0] == texts[1]
