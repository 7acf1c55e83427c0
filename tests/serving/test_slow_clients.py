"""Requests that arrive slowly or are large: others are answered meanwhile."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_networks import TYPES, post, serving, tensor

from nnefc.serving import connections, parsing, rest, rpc
from nnefc.serving.failures import FailureKind, Refused
from nnefc.serving.incoming import Incoming, network_of
from nnefc.serving.messages import INFERENCE, message
from nnefc.serving.parsing import Parsers
from nnefc.serving.parsing_process import answered
from nnefc.serving.values import DATATYPES

X = np.ones((1, 3), np.float32)
GOOD = {"inputs": [tensor("x", X), tensor("y", X)]}
INFER = "/v2/models/rows/infer"
HEAD = f"POST {INFER} HTTP/1.1\r\nHost: x\r\n"
BEGUN = f"{HEAD}Content-Length: 500\r\n\r\n{{".encode()

ENDED = (b"HTTP/1.1 408 Request Timeout", b"")
"""Without an answer where its bytes had not been read yet."""


@contextmanager
def sent(server: Any, data: bytes, count: int) -> Iterator[list[socket.socket]]:
    """Connections on which so much has been sent."""
    with ExitStack() as stack:
        made = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 20)) for _ in range(count)]
        for each in made:
            each.sendall(data)
        yield made


def status(connection: socket.socket) -> bytes:
    """Of the answer, empty if the connection is closed without one."""
    with suppress(ConnectionResetError):
        return connection.recv(1000).partition(b"\r\n")[0]
    return b""


def wait_for_arriving(server: Any, count: int) -> None:
    until = time.monotonic() + 20
    while len(server.service.arriving) != count:
        assert time.monotonic() < until, len(server.service.arriving)
        time.sleep(0.01)


@pytest.mark.parametrize("data", [BEGUN, f"{HEAD}Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n".encode(), b"PO", b""])
def test_requests_that_do_not_arrive_take_no_slot(data: bytes, libraries: dict[str, Path]) -> None:
    with serving({"rows": libraries["rows"]}, waiting=1) as server, sent(server, data, 8):
        wait_for_arriving(server, 8)
        assert server.service.repository.find("rows")[1]._admitted == 0
        assert post(server, INFER, GOOD)[0] == 200


@pytest.mark.parametrize("data", [BEGUN, b"PO"])
def test_the_oldest_of_an_address_is_ended_for_a_new_one(data: bytes, libraries: dict[str, Path]) -> None:
    with serving({"rows": libraries["rows"]}, per_address=4) as server, sent(server, data, 5) as slow:
        assert status(slow[0]) in ENDED
        wait_for_arriving(server, 4)
        assert post(server, INFER, GOOD)[0] == 200
        with sent(server, data, 1):
            assert status(slow[1]) in ENDED
    with serving({"rows": libraries["rows"]}, per_address=0) as server, sent(server, data, 70):
        wait_for_arriving(server, 70)


def test_headers_and_bodies_have_deadlines(libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_HEADER_SECONDS", 0.2)
    monkeypatch.setattr(connections, "_RATE_SECONDS", 0.2)
    with serving({"rows": libraries["rows"]}, slowest=1000) as server:
        for data, wanted in ((b"PO", b"408"), (BEGUN, b"504"), (BEGUN.replace(b"500", b"9000") + bytes(4000), b"504")):
            with sent(server, data, 1) as (slow,):
                assert status(slow).split()[1] == wanted
        body = json.dumps(GOOD).encode() + b" " * 1000
        with sent(server, f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode(), 1) as (steady,):
            for start in range(0, len(body), 150):
                steady.sendall(body[start : start + 150])
                time.sleep(0.05)
            assert status(steady).split()[1] == b"200"


def test_answers_are_read_at_a_minimum_rate(libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_RATE_SECONDS", 0.3)
    size = 8 << 20
    raw = {"datatype": "FP32", "shape": [4, size // 16], "parameters": {"binary_data_size": size}}
    text = json.dumps({"inputs": [{"name": name} | raw for name in "xy"], "parameters": {"binary_data_output": True}})
    head = f"{HEAD}Inference-Header-Content-Length: {len(text)}\r\nContent-Length: {len(text) + 2 * size}\r\n\r\n"
    with serving({"rows": libraries["rows"]}) as server:
        for pause in (0.0, 0.8):
            count = 0
            with socket.socket() as client, suppress(ConnectionResetError):
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
                client.connect(("127.0.0.1", server.port))
                client.sendall(f"{head}{text}".encode() + bytes(2 * size))
                client.recv(1)
                time.sleep(pause)
                while count < size and (part := client.recv(1 << 16)):
                    count += len(part)
            assert (count >= size) == (pause == 0.0)


def test_two_requests_of_one_connection_that_come_together(libraries: dict[str, Path]) -> None:
    body = json.dumps(GOOD).encode()
    one = f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body
    with serving({"rows": libraries["rows"]}) as server, sent(server, one + one + b"PO", 1) as (connection,):
        connection.sendall(one[2:])
        got = b""
        while got.count(b"HTTP/1.1 200") < 3:
            got += connection.recv(10_000)


def test_arriving_requests_are_bounded_by_address_and_bytes() -> None:
    ended: list[str] = []
    incoming = Incoming(per_address=2, maximum=4, max_bytes=100)
    entries = {name: incoming.begin(name[0], lambda name=name: ended.append(name)) for name in ("a1", "a2", "b1")}
    incoming.begin("a", lambda: None)
    assert ended == ["a1"]
    entries["b1"].add(60)
    entries["a2"].add(30)
    assert ended == ["a1"]
    entries["a2"].add(30)
    assert ended == ["a1", "b1"]
    for entry in entries.values():
        entry.end()
    assert (len(incoming), incoming._bytes) == (1, 0)
    for _ in range(4):
        incoming.begin(None, lambda: ended.append("other"))
    assert len(incoming) == 4 and "other" not in ended


def test_addresses_of_one_network_of_ipv6_are_one() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:2") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") != network_of("10.0.0.2")
    peers = ("ipv4:10.0.0.1:5000", "ipv6:%5B::ffff:10.0.0.1%5D:5000", "unix:/tmp/x")
    assert [rpc._address(peer) for peer in peers] == ["10.0.0.1", "10.0.0.1", None]


def test_calls_of_grpc_without_a_message_take_no_slot(libraries: dict[str, Path]) -> None:
    """Of twelve from one address four may wait: those that have waited longest end, which the client may see late."""
    import grpc

    async def never() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async def tried(port: int) -> None:
        request = message(INFERENCE, "ModelInferRequest")(
            model_name="rows",
            inputs=[{"name": name, "datatype": "FP32", "shape": [1, 3]} for name in "xy"],
            raw_input_contents=[X.tobytes(), X.tobytes()],
        )
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            for kind, name in ((channel.stream_unary, "ModelInfer"), (channel.stream_stream, "ModelStreamInfer")):
                slow = [kind(f"/inference.GRPCInferenceService/{name}")(never()) for _ in range(12)]
                codes = [asyncio.ensure_future(call.code()) for call in slow]
                for ended in islice(asyncio.as_completed(codes, timeout=30), 8):
                    assert await ended is grpc.StatusCode.DEADLINE_EXCEEDED
                infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
                assert await infer(request.SerializeToString(), timeout=20)
                for call in slow:
                    call.cancel()
                assert len(await asyncio.gather(*codes)) == 12

    with serving({"rows": libraries["rows"]}, per_address=4) as server:
        asyncio.run(tried(server.grpc_port or 0))


def test_a_client_that_reads_no_answers_over_grpc_gets_no_more(libraries: dict[str, Path]) -> None:
    import grpc

    width = 20_000
    request = message(INFERENCE, "ModelInferRequest")(
        model_name="rows",
        inputs=[{"name": name, "datatype": "FP32", "shape": [1, width]} for name in "xy"],
        raw_input_contents=[bytes(4 * width)] * 2,
    ).SerializeToString()
    infer = "/inference.GRPCInferenceService/ModelInfer"

    async def tried(port: int) -> None:
        options = [("grpc.http2.bdp_probe", 0)]  # windows stay small
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as lazy:
            calls = []
            for _ in range(18):
                calls.append(lazy.unary_stream(infer)(request))
                await calls[-1].initial_metadata()
            with pytest.raises(grpc.aio.AioRpcError, match="have not been read"):
                await lazy.unary_unary(infer)(request, timeout=20)
            for call in calls:
                assert [len(answer) > 4 * width async for answer in call] == [True]
            for _ in range(3):
                assert await lazy.unary_unary(infer)(request, timeout=20)

    with serving({"rows": libraries["rows"]}, waiting=1, rows=1) as server:
        asyncio.run(tried(server.grpc_port or 0))


def test_large_requests_are_parsed_elsewhere_to_the_same(
    libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every type, in JSON and in lists of gRPC; raw bytes after them; and what is wrong with either."""
    rng = np.random.default_rng(3)
    inputs = []
    for kind in TYPES:
        bits = rng.integers(0, 2 if kind == "bool" else 100, (2, 3))
        name = {"float": "float32", "double": "float64"}.get(kind, kind)
        inputs.append({"name": f"i_{kind}", "datatype": DATATYPES[name], "shape": [2, 3], "data": bits.tolist()})
        if kind == "bool":
            inputs[-1]["data"] = bits.astype(bool).tolist()
    raw = {"name": "i_uint8", "datatype": "UINT8", "shape": [2, 3], "parameters": {"binary_data_size": 6}}
    cases = [("types", {"inputs": inputs}, b"")]
    cases += [("types", {"inputs": [raw if each["name"] == "i_uint8" else each for each in inputs]}, bytes(range(6)))]
    words = {"name": "words", "datatype": "BYTES", "shape": [3], "data": ["a", "", "é\n"]}
    cases += [("text", {"id": "7", "inputs": [words]}, b"")]
    bad = ({"data": [1, 2]}, {"datatype": "FP99"}, {"name": "none"}, {"shape": [-3]}, {"shape": 5}, {"data": 3})
    cases += [("text", {"inputs": [words | wrong]}, b"") for wrong in bad]
    cases += [
        ("text", {"inputs": [words, 3]}, b""),
        ("text", {"inputs": "no"}, b""),
        ("text", {"inputs": [words] * 2}, b""),
    ]
    with serving({name: libraries[name] for name in ("types", "text")}) as server:
        for name, given, after in cases:
            text = json.dumps(given).encode()
            header = {"Inference-Header-Content-Length": str(len(text))}
            found = []
            for large in (1 << 16, 0):
                monkeypatch.setattr(rest, "LARGE", large)
                found.append(post(server, f"/v2/models/{name}/infer", text + after, **header))
            assert found[0] == found[1], given
        assert post(server, "/v2/models/text/infer", b"[" * 100_000)[0] == 400
        assert len(server.service.parsers._idle) == 1


def test_lists_of_grpc_are_parsed_elsewhere_to_the_same(
    libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = message(INFERENCE, "ModelInferRequest")
    given = kind(
        model_name="rows",
        inputs=[
            {"name": name, "datatype": "FP32", "shape": [1, 3], "contents": {"fp32_contents": [1, 2, 3]}}
            for name in "xy"
        ],
    )
    wrong = kind(model_name="rows", inputs=[{"name": "x", "datatype": "FP32", "shape": [1, 3]}])

    async def tried(port: int) -> list[Any]:
        import grpc

        found = []
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            for request in (given.SerializeToString(), wrong.SerializeToString(), b"\x2a\x03\xff", b"\x0a\xff"):
                try:
                    found.append(await infer(request))
                except grpc.aio.AioRpcError as error:
                    found.append(error.code())
        return found

    with serving({"rows": libraries["rows"]}) as server:
        direct = asyncio.run(tried(server.grpc_port or 0))
        monkeypatch.setattr(rpc, "LARGE", 0)
        assert asyncio.run(tried(server.grpc_port or 0)) == direct
        assert isinstance(direct[0], bytes) and len(server.service.parsers._idle) == 1


def test_messages_are_divided_before_they_are_parsed() -> None:
    kind = message(INFERENCE, "ModelInferRequest")
    parts, raw = rpc._divided(kind(model_name="n", raw_input_contents=[b"ab", b""], id="i").SerializeToString())
    assert kind.FromString(b"".join(parts)) == kind(model_name="n", id="i")
    assert [bytes(each) for each in raw] == [b"ab", b""]
    for broken in (b"\x3a\x05ab", b"\x3a", b"\xff" * 11, b"\x2b", b"\x09123", b"\x2a\x00" * 5000):
        with pytest.raises(Refused):
            rpc._divided(broken)


def test_parsers_that_are_given_up_or_die_are_replaced() -> None:
    async def tried() -> None:
        parsers = Parsers(1)
        text = json.dumps(GOOD).encode()
        assert len((await parsers.parse(b"J", text))[1]) == 2
        (process,) = parsers._idle
        assert process._process is not None
        process._process.kill()
        with pytest.raises(Refused, match="has ended"):
            await parsers.parse(b"J", text)
        assert len((await parsers.parse(b"J", text))[1]) == 2
        (process,) = parsers._idle
        assert process._process is not None
        process._process.send_signal(signal.SIGSTOP)  # as one that never answers
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await parsers.parse(b"J", text)
        assert not parsers._idle
        assert len((await parsers.parse(b"J", text))[1]) == 2
        parsers.close()

    asyncio.run(tried())


def test_much_json_besides_values_is_refused() -> None:
    index, _, _ = answered(b"J", json.dumps({"inputs": [], "parameters": {"a": "b" * 70_000}}).encode())
    assert json.loads(index)["error"][0] == FailureKind.TOO_LARGE.name
    assert parsing.LARGE <= 1 << 16


@pytest.mark.parametrize(
    "line", [b"GET /" + b"a" * 200_000 + b" HTTP/1.1", b"GET / HTTP/1.1\r\nA: \x1b" + b"\x1b" * 9000]
)
def test_what_is_not_http_is_logged_as_one_short_line(
    line: bytes, libraries: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    with serving({"rows": libraries["rows"]}, grpc_port=None) as server, sent(server, line + b"\r\n\r\n", 1) as (one,):
        assert b" 400 " in status(one)
    (record,) = [each for each in caplog.records if each.name == "nnefc.serving.http"]
    shown = logging.Formatter().format(record)
    assert len(shown) < 300 and "\n" not in shown and shown.isprintable()
