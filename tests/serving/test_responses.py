"""Responses of OpenAI's interface, with the package openai as the client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, InternalServerError, NotFoundError, OpenAI
from pydantic import BaseModel
from served_networks import get, post, serving
from served_texts import FUNCTION, LIKELIEST, client_of

from nnefc.serving.failures import Refused
from nnefc.serving.text.stored_responses import StoredResponses

HOW: dict[str, Any] = {"model": "small", "temperature": 0, "max_output_tokens": 6}
TOOL: Any = {"type": "function", "strict": True, **FUNCTION["function"]}


@pytest.fixture(scope="module")
def server(text_library: Path) -> Iterator[Any]:
    with serving({}, texts={"small": text_library}) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Any) -> OpenAI:
    return client_of(server)


def chat(client: OpenAI, *messages: tuple[str, str]) -> tuple[str | None, int]:
    """The reply to a conversation by the other interface, and the tokens of the prompt."""
    listed: Any = [{"role": role, "content": content} for role, content in messages]
    made = client.chat.completions.create(messages=listed, **LIKELIEST)
    assert made.usage is not None
    return made.choices[0].message.content, made.usage.prompt_tokens


def test_a_response_is_what_a_conversation_gets(client: OpenAI) -> None:
    made = client.responses.create(input="hello", instructions="brief", metadata={"a": "b"}, **HOW)
    assert made.usage is not None and made.incomplete_details is not None
    assert (made.output_text, made.usage.input_tokens) == chat(client, ("system", "brief"), ("user", "hello"))
    assert (made.status, made.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (made.usage.output_tokens, made.usage.total_tokens) == (6, made.usage.input_tokens + 6)
    assert made.usage.input_tokens_details.cached_tokens < made.usage.input_tokens
    assert (made.object, made.model, made.metadata, made.tools) == ("response", "small", {"a": "b"}, [])
    (message,) = made.output
    assert (message.type, message.status, made.instructions) == ("message", "incomplete", "brief")
    count = client.responses.input_tokens.count(model="small", input="hello", instructions="brief")
    assert count.input_tokens == made.usage.input_tokens


def test_inputs_are_lists_of_messages_and_parts(client: OpenAI) -> None:
    wanted = chat(client, ("system", "a"), ("user", "b"), ("assistant", "c"), ("user", "de"))
    parts: Any = [{"type": "input_text", "text": "d"}, {"type": "input_text", "text": "e"}]
    answer: Any = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
                   "content": [{"type": "output_text", "text": "c", "annotations": []}]}  # fmt: skip
    reasoning: Any = {"type": "reasoning", "id": "rs_1", "summary": []}
    listed: Any = [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}, reasoning, answer]
    made = client.responses.create(input=[*listed, {"role": "user", "content": parts}], **HOW)
    assert made.usage is not None and (made.output_text, made.usage.input_tokens) == wanted


def test_events_come_in_order_and_are_together_the_response(client: OpenAI) -> None:
    whole = client.responses.create(input="hello", **HOW)
    events: list[Any] = list(client.responses.create(input="hello", stream=True, **HOW))
    kinds = [event.type.removeprefix("response.") for event in events]
    deltas = kinds.count("output_text.delta")
    assert kinds == [
        "created", "in_progress", "output_item.added", "content_part.added", *["output_text.delta"] * deltas,
        "output_text.done", "content_part.done", "output_item.done", "incomplete",
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].response.status == "in_progress" and events[0].response.output == []
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    last = events[-1].response
    assert (last.output_text, last.status, last.id) == (whole.output_text, "incomplete", events[0].response.id)
    assert last.output[0].to_dict() == events[-2].to_dict()["item"] and last.usage.output_tokens == 6
    form: Any = {"extra_body": {"guided_regex": "yes|no"}}
    with client.responses.stream(model="small", input="hello", **form) as stream:
        final = stream.get_final_response()
    assert final.output_text in ("yes", "no") and (final.status, final.incomplete_details) == ("completed", None)


def test_functions_are_called_and_their_results_read(client: OpenAI) -> None:
    how: dict[str, Any] = {"model": "small", "tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    with client.responses.stream(input="hello", **how) as stream:
        events: list[Any] = list(stream)
        made = stream.get_final_response()
    kinds = [event.type.removeprefix("response.") for event in events]
    name = "function_call_arguments"
    deltas = [event.delta for event in events if event.type == f"response.{name}.delta"]
    assert kinds == [
        "created", "in_progress", "output_item.added", *[f"{name}.delta"] * len(deltas), f"{name}.done",
        "output_item.done", "completed",
    ]  # fmt: skip
    (call,) = made.output
    assert call.type == "function_call" and (call.name, call.status) == ("f", "completed") and len(deltas) > 2
    assert "".join(deltas) == call.arguments and json.loads(call.arguments)["a"] in (1, "}")
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "ok"}
    after = client.responses.create(input=[result], previous_response_id=made.id, **HOW)
    again: list[Any] = [{"role": "user", "content": "hello"}, call.to_dict(), result]
    assert after.output_text == client.responses.create(input=again, **HOW).output_text
    called = {"id": "c", "type": "function", "function": {"name": "f", "arguments": call.arguments}}
    listed: Any = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
    ]
    assert after.output_text == client.chat.completions.create(messages=listed, **LIKELIEST).choices[0].message.content


def test_texts_and_calls_are_elements_in_their_order(client: OpenAI) -> None:
    call = r'<tool_call>\{"name": "f", "arguments": \{"a": 1\}\}</tool_call>'
    body: Any = {"extra_body": {"guided_regex": f"ok {call} and {call}"}}
    made = client.responses.create(model="small", input="hello", tools=[TOOL], **body)
    assert [each.type for each in made.output] == ["message", "function_call", "message", "function_call"]
    assert len({each.id for each in made.output}) == 4
    choice: Any = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}
    made = client.responses.create(model="small", input="hello", tools=[TOOL], tool_choice=choice, **body)
    assert len(made.output) == 4
    none = client.responses.create(model="small", input="hello", tools=[TOOL], tool_choice="none", **body)
    assert [each.type for each in none.output] == ["message"]


class Inner(BaseModel):
    b: bool


class Shape(BaseModel):
    """A schema with a reference."""

    a: Inner


def test_texts_have_the_form_that_is_asked_for(client: OpenAI) -> None:
    parsed = client.responses.parse(model="small", input="hello", text_format=Shape, temperature=0)
    assert isinstance(parsed.output_parsed, Shape) and parsed.text is not None
    form: Any = {"format": {"type": "json_object"}}
    body = {"guided_regex": "a"}
    with pytest.raises(BadRequestError, match=r'"text\.format", "guided_json", "guided_regex" and "grammar" exclude'):
        client.responses.create(model="small", input="hello", text=form, extra_body=body)
    begun = client.responses.create(model="small", input="hello", text=form, max_output_tokens=4)
    assert begun.output_text.startswith("{")


def test_a_conversation_goes_on_from_a_stored_response(client: OpenAI) -> None:
    first = client.responses.create(input="hello", instructions="brief", **HOW)
    second = client.responses.create(input="he", previous_response_id=first.id, **HOW)
    third = client.responses.create(input="o", previous_response_id=second.id, instructions="a", **HOW)
    spoken = [("user", "hello"), ("assistant", first.output_text), ("user", "he")]
    assert second.usage is not None and third.usage is not None
    assert (second.output_text, second.usage.input_tokens) == chat(client, *spoken)
    spoken = [("system", "a"), *spoken, ("assistant", second.output_text), ("user", "o")]
    assert (third.output_text, third.usage.input_tokens) == chat(client, *spoken)
    listed = client.responses.input_items.list(third.id, order="asc").data
    assert [each.to_dict()["content"] for each in listed] == [[{"type": "input_text", "text": "o"}]]


def test_stored_responses_are_read_and_removed(client: OpenAI, server: Any) -> None:
    made = client.responses.create(input="hello", **HOW)
    assert client.responses.retrieve(made.id).to_dict() == made.to_dict()
    client.responses.delete(made.id)
    with pytest.raises(NotFoundError, match="there is no response"):
        client.responses.retrieve(made.id)
    with pytest.raises(BadRequestError) as refused:
        client.responses.create(input="he", previous_response_id=made.id, **HOW)
    assert (refused.value.param, refused.value.code) == ("previous_response_id", "previous_response_not_found")
    other = client.responses.create(input="hello", store=False, **HOW)
    assert get(server, f"/v1/responses/{other.id}")[0] == 404 and not other.to_dict()["store"]


def test_responses_used_longest_ago_are_dropped() -> None:
    stored = StoredResponses(1 << 14)

    def add(name: str, previous: str | None = None, size: int = 3000) -> None:
        output = [{"role": "assistant", "content": name}]
        response = {"id": name, "previous_response_id": previous, "output": output, "more": "x" * size}
        stored.add(response, [{"role": "user", "content": f"to {name}"}])

    for name, previous in (("a", None), ("b", "a"), ("c", None)):
        add(name, previous)
    assert [each["content"] for each in stored.conversation("b")] == ["to a", "a", "to b", "b"]
    add("d")
    assert len(stored) == 3
    with pytest.raises(Refused):
        stored.response("c")
    assert stored.conversation("b") and 3 * 4000 < stored.size <= stored.budget
    add("large", size=1 << 14)
    assert len(stored) == 3  # it alone is not kept
    stored.remove("a")
    with pytest.raises(Refused, match="'a', with which this request goes on, is not stored"):
        stored.conversation("b")
    for name in ("b", "d"):
        stored.remove(name)
    assert not stored.size


def test_probabilities_of_tokens_are_those_of_a_conversation(client: OpenAI) -> None:
    how: Any = {"include": ["message.output_text.logprobs"], "top_logprobs": 2, **HOW}
    message: Any = client.responses.create(input="hello", **how).output[0]
    chances = message.content[0].logprobs
    listed: Any = [{"role": "user", "content": "hello"}]
    made = client.chat.completions.create(messages=listed, logprobs=True, top_logprobs=2, **LIKELIEST).choices[0]
    assert made.logprobs is not None and made.logprobs.content is not None
    assert [each.token for each in chances] == [each.token for each in made.logprobs.content]
    wanted = [each.logprob for each in made.logprobs.content]
    assert [each.logprob for each in chances] == pytest.approx(wanted, abs=1e-4)
    assert len(chances[0].top_logprobs) == 2
    deltas: list[Any] = list(client.responses.create(input="hello", stream=True, **how))
    streamed = [chance for each in deltas if each.type == "response.output_text.delta" for chance in each.logprobs]
    assert [each.token for each in streamed] == [each.token for each in chances]


WRONG: dict[str, dict[str, Any]] = {
    '"input" is missing': {"input": None},
    '"background" is not supported': {"background": True},
    '"conversation" is not supported': {"conversation": "conv_1"},
    '"truncation" is "disabled" alone': {"truncation": "auto"},
    '"max_output_tokens" is not an integer': {"max_output_tokens": 0},
    '"temperature" is not a number': {"temperature": 3},
    "a part of the type 'input_image': only input_text": {
        "input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://example.com/a.png"}]}]
    },
    "a part of the type 'input_file'": {"input": [{"role": "user", "content": [{"type": "input_file"}]}]},
    "an entry of the type 'computer_call': only message, function_call and": {"input": [{"type": "computer_call"}]},
    "an entry of the type 'None'": {"input": [{}]},
    "has the call_id 'c', which no function_call": {
        "input": [{"type": "function_call_output", "call_id": "c", "output": "a"}]
    },
    "which are texts": {"input": [{"type": "function_call", "name": "f"}]},
    'has no "content"': {"input": [{"role": "user"}]},
    "is none of system": {"input": [{"role": "sytem", "content": "a"}]},
    "a tool is of the type 'web_search': tools are functions": {"tools": [{"type": "web_search"}]},
    '"tools" is not a list of objects': {"tools": "all"},
    '"tool_choice" is none of': {"tool_choice": {"type": "file_search"}},
    '"text.format" is none of the types': {"text": {"format": {"type": "xml"}}},
    '"text" is not an object': {"text": "json"},
    '"include" is not a list of': {"include": ["everything"]},
    '"top_logprobs" needs': {"top_logprobs": 2},
    '"metadata" is not an object of up to 16 texts': {"metadata": {"a": 1}},
    '"store" is not true or false': {"store": "yes"},
    '"instructions" is not a text': {"instructions": ["a"]},
    "which this request goes on, is not stored": {"previous_response_id": "resp_1"},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_requests_are_refused_with_the_field(message: str, server: Any) -> None:
    status, answer = post(server, "/v1/responses", {"model": "small", "input": "hello", **WRONG[message]})
    assert status == 400 and message in answer["error"]["message"], answer
    (field,) = WRONG[message]
    assert answer["error"]["param"] == ("text.format" if "text.format" in message else field)


def test_a_failure_ends_a_stream_with_its_event(server: Any, client: OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    (model,) = server.texts
    monkeypatch.setattr(model.engine, "_write", lambda _: 1 / 0)
    events: list[Any] = list(client.responses.create(input="hello", stream=True, **HOW))
    assert events[-1].type == "response.failed" and events[-1].response.error.code == "server_error"
    with pytest.raises(InternalServerError):
        client.responses.create(input="hello", **HOW)
