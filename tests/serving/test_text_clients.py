"""What clients of other servers of language models send, and what they expect."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import AuthenticationError, OpenAI
from served_networks import get, post, serving
from served_texts import CONTEXT, FUNCTION, LIKELIEST, MESSAGES, client_of, get_text

import nnefc
from nnefc.serving.connections import Connection
from nnefc.serving.settings import Listening
from nnefc.serving.text.logprobs import TokenWatch
from nnefc.serving.text.message_fields import messages_of

ORIGIN = "https://chat.example.com"
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def server(text_library: Path) -> Iterator[Any]:
    with serving({}, texts={"small": text_library}, origins=(ORIGIN,)) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Any) -> OpenAI:
    return client_of(server)


def asked(server: Any, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, Any, bytes]:
    """Status, headers and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    found = answer.status, answer.headers, answer.read()
    connection.close()
    return found


def test_null_is_as_good_as_no_field(server: Any) -> None:
    names = "n stop seed temperature top_p logit_bias logprobs top_logprobs tools tool_choice response_format stream "
    names += "stream_options max_completion_tokens presence_penalty user metadata store functions reasoning_effort"
    given = {**dict.fromkeys(names.split()), **LIKELIEST, "messages": MESSAGES}
    wanted = post(server, CHAT, {**LIKELIEST, "messages": MESSAGES})[1]["choices"]
    assert post(server, CHAT, given)[1]["choices"] == wanted
    known = {"top_k": -1, "max_tokens": None, "stream_options": {"include_usage": True}, "service_tier": "auto"}
    assert post(server, CHAT, {**given, **known, "max_completion_tokens": 6})[1]["choices"] == wanted


def test_messages_come_back_as_the_package_dumps_them(client: OpenAI) -> None:
    """With fields that are null, and lists of calls that are empty: templates ask whether there are calls."""
    made = client.chat.completions.create(messages=MESSAGES, **LIKELIEST).choices[0].message
    dumped = made.model_dump()
    assert dumped["tool_calls"] is None
    (read,) = messages_of([dumped], "")
    assert read == {"role": "assistant", "content": made.content}
    assert messages_of([{"role": "user", "content": [], "tool_calls": []}], "") == [{"role": "user", "content": ""}]
    again: Any = [*MESSAGES, dumped, {"role": "user", "content": ""}]
    assert client.chat.completions.create(messages=again, **LIKELIEST).choices


def test_minus_one_is_no_maximum(server: Any) -> None:
    given = {**LIKELIEST, "prompt": "hello", "max_tokens": -1, "guided_regex": "[a-c]{30}"}
    (choice,) = post(server, "/v1/completions", given)[1]["choices"]
    assert (len(choice["text"]), choice["finish_reason"]) == (30, "stop")


def test_stop_texts_of_any_letters_end_replies_and_long_ones_are_refused(server: Any) -> None:
    given = {**LIKELIEST, "prompt": "hello", "max_tokens": 40, "guided_regex": "aé\u2028→bc", "stop": ["x", "→b"]}
    (choice,) = post(server, "/v1/completions", given)[1]["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("aé\u2028", "stop")
    status, answer = post(server, "/v1/completions", {**given, "stop": "a" * 2000})
    assert (status, answer["error"]["param"]) == (400, "stop")


def test_events_are_lines_of_ascii(server: Any) -> None:
    """Some clients end lines at U+2028; half of a pair of surrogates, as JavaScript cuts texts, has no UTF-8."""
    body = json.dumps({**LIKELIEST, "prompt": "a\u2028\ud83d", "echo": True, "stream": True})
    status, _, found = asked(server, "POST", "/v1/completions", body)
    assert status == 200 and found.isascii() and found.endswith(b"data: [DONE]\n\n")
    parts = [json.loads(line[6:]) for line in found.split(b"\n\n") if line.startswith(b"data: {")]
    assert "".join(part["choices"][0]["text"] for part in parts).startswith("a\u2028\ud83d")


def test_schemas_have_references(client: OpenAI) -> None:
    schema = {"$defs": {"b": {"enum": [1, 2]}}, "type": "object", "properties": {"a": {"$ref": "#/$defs/b"}},
              "required": ["a"], "additionalProperties": False}  # fmt: skip
    form: Any = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": schema}}
    how: dict[str, Any] = {**LIKELIEST, "max_tokens": None}
    made = client.chat.completions.create(messages=MESSAGES, response_format=form, **how)
    assert json.loads(made.choices[0].message.content or "")["a"] in (1, 2)


def test_some_tools_are_allowed(client: OpenAI, server: Any) -> None:
    other = {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}}
    allowed = [{"type": "function", "function": {"name": "g"}}]
    choice: Any = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": allowed}}
    how: dict[str, Any] = {"messages": MESSAGES, "tools": [FUNCTION, other], **LIKELIEST, "max_tokens": None}
    made = client.chat.completions.create(tool_choice=choice, parallel_tool_calls=False, **how)
    assert [call.function.name for call in made.choices[0].message.tool_calls or []] == ["g"]  # type: ignore[union-attr]
    for wrong in ([], [{"type": "function", "function": {"name": "h"}}], [{"name": "g"}]):
        choice["allowed_tools"]["tools"] = wrong
        status, answer = post(server, CHAT, {**how, "tool_choice": choice})
        assert (status, answer["error"]["param"]) == (400, "tool_choice")


def test_errors_of_streams_have_a_status(server: Any) -> None:
    body = json.dumps({**LIKELIEST, "messages": [], "stream": True})
    status, headers, found = asked(server, "POST", CHAT, body)
    assert status == 400 and headers["Content-Type"].startswith("application/json")
    assert json.loads(found)["error"]["param"] == "messages"
    for wrong in ("{", "[]", '"a"', ""):
        status, _, found = asked(server, "POST", CHAT, wrong)
        assert status == 400 and json.loads(found)["error"]["type"] == "invalid_request_error"


def until(is_so: Callable[[], bool]) -> None:
    """Waits for something that happens in other threads."""
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


def until_cancelled(sequences: Any) -> int:
    """Waits until the replies of some sequences are cancelled; returns how many these are."""
    until(lambda: all(sequence.reply.job.cancelled for sequence in sequences))
    return len(sequences)


@pytest.mark.parametrize("streams", [False, True])
def test_a_client_that_leaves_frees_its_sequence(streams: bool, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply gets no second token before the server has noticed."""
    (model,) = server.texts
    engine, waited = model.engine, []
    monkeypatch.setattr(engine, "_write", lambda sequences: waited.append(until_cancelled(sequences)))
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    body = {**LIKELIEST, "prompt": "hello", "max_tokens": CONTEXT, "stream": streams}
    connection.request("POST", "/v1/completions", json.dumps(body))
    until(lambda: any(sequence.reply is not None for sequence in engine._sequences))
    if streams:
        assert connection.getresponse().status == 200
    connection.close()
    until(lambda: not server.texts.active and all(sequence.reply is None for sequence in engine._sequences))
    assert waited == [1]


def test_probes_and_tokens(server: Any, text_library: Path) -> None:
    assert get(server, "/health") == (200, {"status": "ok"})
    assert asked(server, "HEAD", "/v1/models")[0] == 200 and "nnefc_tokens_total" in get_text(server, "/metrics")
    with nnefc.load(text_library, threads=1) as model:
        tokens = model.tokenize("hello")
    found = post(server, "/tokenize", {"model": "small", "prompt": "hello"})
    assert found == (200, {"count": len(tokens), "max_model_len": CONTEXT, "tokens": tokens})
    _, chat = post(server, "/tokenize", {"model": "small", "messages": MESSAGES})
    assert chat["count"] == post(server, CHAT, {**LIKELIEST, "messages": MESSAGES})[1]["usage"]["prompt_tokens"]
    assert post(server, "/detokenize", {"model": "small", "tokens": tokens}) == (200, {"prompt": "hello"})
    for path, wrong in (("/tokenize", {}), ("/detokenize", {"tokens": [10**6]}), ("/detokenize", {"tokens": "a"})):
        status, answer = post(server, path, {"model": "small", **wrong})
        assert status == 400 and answer["error"]["param"] in ("prompt", "tokens")


def test_pages_of_one_origin_read_answers(server: Any) -> None:
    wanted = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization"}
    status, headers, _ = asked(server, "OPTIONS", CHAT, Origin=ORIGIN, **wanted)
    assert (status, headers["Access-Control-Allow-Origin"]) == (204, ORIGIN)
    assert (
        "POST" in headers["Access-Control-Allow-Methods"] and headers["Access-Control-Allow-Headers"] == "authorization"
    )
    body = json.dumps({**LIKELIEST, "messages": MESSAGES, "stream": True})
    for given in (body, "{"):
        _, headers, _ = asked(server, "POST", CHAT, given, Origin=ORIGIN)
        assert (headers["Access-Control-Allow-Origin"], headers["Vary"]) == (ORIGIN, "Origin")
    other = {"Origin": "https://other.example.com"}
    assert asked(server, "OPTIONS", CHAT, **wanted, **other)[0] == 405
    assert "Access-Control-Allow-Origin" not in asked(server, "GET", "/v1/models", **other)[1]


def test_keys_are_wanted_but_for_probes_and_what_browsers_ask_before(text_library: Path) -> None:
    with serving({}, texts={"small": text_library}, api_keys=("a",), origins=("*",)) as server:
        with pytest.raises(AuthenticationError) as refused:
            client_of(server).models.list()
        assert refused.value.type == "authentication_error"
        assert client_of(server).with_options(api_key="a").models.list().data[0].id == "small"
        assert get(server, "/health")[0] == 200
        status, headers, _ = asked(server, "OPTIONS", CHAT, Origin=ORIGIN, Access_Control_Request_Method="POST")
        assert (status, headers["Access-Control-Allow-Origin"]) == (204, "*")


def test_impossible_tokens_have_a_finite_log_probability() -> None:
    watch = TokenWatch(2)
    watch(np.array([0, -np.inf, -np.inf], np.float32), 1)
    assert watch.last is not None and watch.last.logprob == -9999 and watch.last.best[0] == (0, 0.0)
    assert json.loads(json.dumps(watch.last.best, allow_nan=False))


DEEP = '{"a":' * 900 + "1" + "}" * 900
STRANGE = ("true", "-1", '"\\ud800"', "[{}]", '{"a":1}', '{"type":"json_schema"}', "9" * 40, DEEP, f"[{DEEP}]")
FIELDS = {
    CHAT: "messages n stop seed temperature top_k logit_bias top_logprobs tools tool_choice response_format stream "
    "stream_options max_tokens guided_json guided_regex grammar chat_template_kwargs reasoning_effort model",
    "/v1/completions": "prompt n best_of logprobs echo suffix max_tokens",
    "/v1/responses": "input instructions include metadata previous_response_id reasoning text tools tool_choice store",
    "/tokenize": "prompt messages add_special_tokens",
    "/detokenize": "tokens",
}


def test_no_value_of_a_field_makes_the_server_fail(server: Any) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    for path, fields in FIELDS.items():
        for field, value in ((field, value) for field in fields.split() for value in STRANGE):
            given = {
                "messages": MESSAGES,
                "prompt": "he",
                "input": "he",
                **LIKELIEST,
                "max_tokens": 1,
                "max_output_tokens": 1,
            }
            body = json.dumps({name: each for name, each in given.items() if name != field})
            connection.request("POST", path, f'{body[:-1]}, "{field}": {value}}}')
            answer = connection.getresponse()
            found = answer.read()
            assert answer.status in (200, 400, 404) and b"server_error" not in found, (path, field, value, found)
    connection.close()


def test_a_client_that_does_not_read_its_stream_loses_it(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def watched(connection: Connection, slowest: int, late: Callable[[], None]) -> Iterator[Callable[[int], None]]:
        assert slowest == Listening.slowest
        yield lambda _: late()

    (model,) = server.texts
    monkeypatch.setattr(Connection, "watched", watched)
    monkeypatch.setattr(model.engine, "_write", until_cancelled)
    with pytest.raises((http.client.HTTPException, OSError)):
        asked(server, "POST", CHAT, json.dumps({**LIKELIEST, "messages": MESSAGES, "stream": True}))
    until(lambda: not server.texts.active and all(sequence.reply is None for sequence in model.engine._sequences))


def test_a_stream_is_not_silent_while_a_prompt_is_read(
    server: Any, client: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model,) = server.texts
    read, release = model.engine._read, threading.Event()

    def held_back(sequence: Any) -> None:
        assert release.wait(60)
        read(sequence)

    monkeypatch.setattr("nnefc.serving.text.answering._SILENCE", 0.01)
    monkeypatch.setattr(model.engine, "_read", held_back)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", CHAT, json.dumps({**LIKELIEST, "messages": MESSAGES, "stream": True}))
    answer = connection.getresponse()
    assert [answer.readline()[:1] for _ in range(4)] == [b":", b"\n"] * 2
    release.set()
    assert answer.read().endswith(b"data: [DONE]\n\n")
    connection.close()
    release.clear()
    parts = client.chat.completions.create(messages=MESSAGES, stream=True, **LIKELIEST)
    release.set()
    text = "".join(part.choices[0].delta.content or "" for part in parts)
    assert text == client.chat.completions.create(messages=MESSAGES, **LIKELIEST).choices[0].message.content


def test_more_replies_than_may_wait_are_refused_before_anything_is_made(server: Any) -> None:
    given = {**LIKELIEST, "prompt": ["he"] * 100, "n": 16, "guided_regex": "a"}
    status, answer = post(server, "/v1/completions", given)
    assert (status, answer["error"]["type"]) == (429, "rate_limit_error")
