"""Requests that ask for too much, and the end of a server."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from served_networks import ROWS, get, library, post, serving, tensor

from nnefc.loader import RunError
from nnefc.serving import rpc
from nnefc.serving.incoming import Incoming, Unread
from nnefc.serving.metrics import Metrics
from nnefc.serving.requests import aside
from nnefc.serving.settings import Listening

X = np.ones((1, 3), np.float32)
GOOD = {"inputs": [tensor("x", X), tensor("y", X)]}
INFER = "/v2/models/rows/infer"


def of_width(width: int) -> dict[str, Any]:
    array = np.ones((1, width), np.float32)
    return {"inputs": [tensor("x", array), tensor("y", array)]}


def wait_for(server: Any, count: int) -> None:
    """Until so many requests are under way."""
    until = time.monotonic() + 20
    while server.service.under_way != count:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_body_that_is_too_large_or_becomes_so(libraries: dict[str, Path]) -> None:
    with serving({"rows": libraries["rows"]}, largest=10_000) as server:
        assert post(server, INFER, b" " * 10_001)[0] == 413
        bomb = gzip.compress(b" " * 10_000_000)
        assert len(bomb) < 10_000
        status, reply = post(server, INFER, bomb, **{"Content-Encoding": "gzip"})
        assert status == 413 and "10,000 bytes" in reply["error"]
        assert post(server, INFER, b"no gzip", **{"Content-Encoding": "gzip"})[0] == 400
        assert post(server, INFER, GOOD)[0] == 200
    with serving({"rows": libraries["rows"]}) as server:
        assert post(server, "/v2/repository/index", b" " * 70_000)[0] == 413  # read without a position


def test_json_has_a_limit_of_its_own(libraries: dict[str, Path]) -> None:
    with serving({"rows": libraries["rows"]}, largest_json=1000) as server:
        status, reply = post(server, INFER, of_width(100))
        assert status == 413 and "1,000 bytes of JSON" in reply["error"]
        assert post(server, INFER, GOOD)[0] == 200


def test_work_in_a_thread_is_waited_for() -> None:
    ended = threading.Event()

    async def cancelled() -> None:
        def work() -> None:
            time.sleep(0.2)
            ended.set()

        task = asyncio.create_task(aside(1 << 30, work))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() and ended.is_set()

    asyncio.run(cancelled())


def test_requests_without_a_free_slot_are_refused_at_once(libraries: dict[str, Path]) -> None:
    with (
        serving({"rows": libraries["rows"]}, rows=2, delay=1.0, waiting=1) as server,
        ThreadPoolExecutor(3) as pool,
    ):
        waiting = [pool.submit(post, server, INFER, of_width(width)) for width in (1, 2, 3)]
        wait_for(server, 3)
        status, reply = post(server, INFER, GOOD)
        assert (status, reply) == (429, {"error": "3 requests are run and wait already: try again later"})
        assert [future.result()[0] for future in waiting] == [200, 200, 200]
        whole = {"inputs": [tensor(name, np.ones((2, 3), np.float32)) for name in "xy"]}
        assert post(server, INFER, whole)[0] == 200


def test_a_client_that_sends_slowly_is_given_up(libraries: dict[str, Path]) -> None:
    with serving({"rows": libraries["rows"]}, timeout=0.3) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as slow:
            slow.sendall(f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{{".encode())
            slow.settimeout(20)
            assert b" 504 " in slow.recv(1000).partition(b"\r\n")[0]
        assert server.service.under_way == 0
        assert post(server, INFER, GOOD)[0] == 200


def test_an_index_that_does_not_arrive_is_given_up(libraries: dict[str, Path]) -> None:
    with (
        serving({"rows": libraries["rows"]}, timeout=0.3) as server,
        socket.create_connection(("127.0.0.1", server.port), 20) as slow,
    ):
        slow.sendall(b"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
        assert b" 504 " in slow.recv(1000).partition(b"\r\n")[0]


def test_an_answer_that_is_not_read_keeps_its_slot_until_it_is_thrown_away(libraries: dict[str, Path]) -> None:
    size = 8 << 20
    raw = {"datatype": "FP32", "shape": [4, size // 16], "parameters": {"binary_data_size": size}}
    given = {"inputs": [{"name": name} | raw for name in "xy"], "parameters": {"binary_data_output": True}}
    text = json.dumps(given).encode()
    head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: {len(text)}\r\n"
    with serving({"rows": libraries["rows"]}, timeout=1.0) as server, socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(("127.0.0.1", server.port))
        lazy.sendall(f"{head}Content-Length: {len(text) + 2 * size}\r\n\r\n".encode() + text + bytes(2 * size))
        lazy.settimeout(20)
        assert lazy.recv(12) == b"HTTP/1.1 200"
        assert server.service.under_way == 1
        wait_for(server, 0)
        count = 0
        with suppress(ConnectionResetError):
            while part := lazy.recv(1 << 16):
                count += len(part)
        assert count < size


def test_a_clients_own_time_limit_ends_its_waiting(libraries: dict[str, Path]) -> None:
    with serving({"rows": libraries["rows"]}, rows=2, delay=30.0) as server:
        status, reply = post(server, INFER, GOOD | {"parameters": {"timeout": 50_000}})
        assert status == 504 and "longer than the request allows" in reply["error"]
        assert not server.service.repository.find("rows")[1]._runs._waiting  # nor are its inputs kept


def test_a_client_that_goes_away_leaves_no_request_behind(libraries: dict[str, Path]) -> None:
    with serving({"rows": libraries["rows"]}, rows=2, delay=30.0) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as gone:
            body = json.dumps(GOOD).encode()
            gone.sendall(f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            wait_for(server, 1)
        wait_for(server, 0)


def test_sizes_above_the_servers_own_limit(libraries: dict[str, Path]) -> None:
    with serving({"rows": libraries["rows"]}, limits={"w": 4}) as server:
        assert post(server, INFER, of_width(4))[0] == 200
        status, reply = post(server, INFER, of_width(5))
        assert status == 400 and "takes w: 1 to 4" in reply["error"]


@pytest.mark.parametrize(("limits", "words"), [({"v": 4}, "no network has"), ({"w": 0}, "leaves nothing of w: 1 to")])
def test_a_limit_that_cannot_be_meant(libraries: dict[str, Path], limits: dict[str, int], words: str) -> None:
    with pytest.raises(RunError, match=words), serving({"rows": libraries["rows"]}, limits=limits):
        pass


def test_clients_change_no_models_unless_they_may(libraries: dict[str, Path]) -> None:
    with serving({"rows": libraries["rows"]}) as server:
        for change in ("load", "unload"):
            assert post(server, f"/v2/repository/models/rows/{change}", {})[0] == 501
        assert get(server, "/v2/models/rows/ready")[0] == 200


def test_what_has_begun_is_answered_when_the_server_ends(libraries: dict[str, Path]) -> None:
    """Requests wait for others to join them while the server drains; new ones are refused."""
    with ThreadPoolExecutor(2) as pool, serving({"rows": libraries["rows"]}, rows=4, delay=1.0) as server:
        begun = [pool.submit(post, server, INFER, of_width(width)) for width in (2, 3)]
        wait_for(server, 2)
        server.service.drains = True
        assert get(server, "/v2/health/ready") == (503, {"ready": False})
        assert get(server, "/v2/health/live")[0] == 200
        assert post(server, INFER, GOOD) == (503, {"error": "the server is shutting down"})
    assert [future.result()[0] for future in begun] == [200, 200]


def test_a_process_answers_what_has_begun_before_sigterm(libraries: dict[str, Path]) -> None:
    """Its request waits for others to join it when the signal comes."""
    waiting = ["--max-batch", "4", "--max-delay", "800", "--threads", "1"]
    command = [sys.executable, "-m", "nnefc", "serve", str(libraries["rows"]), "--port", "0", "--no-grpc", *waiting]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process, ThreadPoolExecutor(1) as pool:
        try:
            reply = iter(process.stderr or ())
            port = next(found[1] for found in (re.match(r"listening: http .*:(\d+)", line) for line in reply) if found)
            begun = pool.submit(post, SimpleNamespace(port=port), INFER, GOOD)
            while not admitted(metrics(port)).endswith(" 1.0"):
                assert not begun.done()
                time.sleep(0.02)
            process.terminate()
            assert begun.result()[0] == 200
            assert process.wait(20) == 0
            assert [line.strip() for line in reply] == ["shutting down: 1 requests under way", "ended"]
        finally:
            process.kill()


TRIPS = """
<ir_version: 8, opset_import: ["" : 17]>
trips (int64 count, float[2] x) => (float[2] y)
{
    going = Cast <to = 9> (count)
    y = Loop (count, going, x) <body = round (int64 i, bool before, float[2] state) => (bool after, float[2] moved) {
        after = Identity (before)
        moved = Sin (state)
    }>
}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("small", "ended", "last"),
    [
        pytest.param(False, 0, "ended\n", id="that can be cancelled"),
        pytest.param(True, 1, "ended, though a run goes on that takes longer than the drain\n", id="that cannot"),
    ],
)
def test_a_process_does_not_wait_for_runs_that_take_longer_than_the_drain(
    small: bool, ended: int, last: str, tmp_path: Path
) -> None:
    slow = library(TRIPS, tmp_path, small=small)
    command = [sys.executable, "-m", "nnefc", "serve", str(slow), "--port", "0", "--no-grpc", "--drain", "0.2"]
    body = {"inputs": [tensor("count", np.array(1 << 40), "INT64"), tensor("x", np.ones(2, np.float32))]}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process, ThreadPoolExecutor(1) as pool:
        try:
            reply = iter(process.stderr or ())
            port = next(found[1] for found in (re.match(r"listening: http .*:(\d+)", line) for line in reply) if found)
            begun = pool.submit(post, SimpleNamespace(port=port), "/v2/models/trips/infer", body)
            while not admitted(metrics(port)).endswith(" 1.0"):
                assert not begun.done(), begun.result()
                time.sleep(0.02)
            process.terminate()
            assert process.wait(20) == ended
            assert list(reply)[-1] == last
            assert begun.exception() is not None or begun.result()[0] >= 400
        finally:
            process.kill()


def metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        text: str = answer.read().decode()
        return text


def admitted(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("nnefc_requests_admitted{"))


def test_requests_go_on_while_their_network_is_loaded_again(libraries: dict[str, Path]) -> None:
    with serving({"rows": libraries["rows"]}, sessions=2, control=True) as server, ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(post, server, INFER, GOOD) for _ in range(60)]
        for _ in range(3):
            assert post(server, "/v2/repository/models/rows/load", {})[0] == 200
        assert {future.result()[0] for future in asked} == {200}


def test_tls(libraries: dict[str, Path], tmp_path: Path) -> None:
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout {key} -out {certificate} -subj /CN=localhost"
    subprocess.run([*made.split(), "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    with serving({"rows": libraries["rows"]}, certificate=certificate, key=key) as server:
        assert server.listening == f"https 127.0.0.1:{server.port}, grpcs 127.0.0.1:{server.grpc_port}"
        trusted = ssl.create_default_context(cafile=certificate)
        with urllib.request.urlopen(f"https://localhost:{server.port}/v2/health/live", context=trusted) as answer:
            assert answer.status == 200
        asyncio.run(live_with_tls(server.grpc_port, certificate.read_bytes()))


async def live_with_tls(port: int, certificate: bytes) -> None:
    import grpc

    credentials = grpc.ssl_channel_credentials(certificate)
    async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
        assert await channel.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"") == b"\x08\x01"


def test_no_random_bytes_end_the_server(libraries: dict[str, Path]) -> None:
    """Requests with parts of a right one changed, over HTTP; and bytes that are no message, over gRPC."""
    rng = np.random.default_rng(0)
    right = json.dumps(GOOD).encode()
    with serving({"rows": libraries["rows"]}) as server:
        for _ in range(150):
            body = bytearray(right)
            for position in rng.integers(0, len(body), 3):
                body[position] = rng.integers(0, 256)
            cut = bytes(body[: rng.integers(0, len(body) + 1)])
            header = {} if rng.integers(2) else {"Inference-Header-Content-Length": str(rng.integers(0, len(body)))}
            assert post(server, INFER, cut, **header)[0] in (200, 400)
        assert asyncio.run(random_messages(server.grpc_port, rng)) <= {"INVALID_ARGUMENT", "NOT_FOUND", "OK"}
        assert post(server, INFER, GOOD)[0] == 200


async def random_messages(port: int, rng: np.random.Generator) -> set[str]:
    import grpc

    from nnefc.serving.messages import INFERENCE, message

    request = message(INFERENCE, "ModelInferRequest")(
        model_name="rows",
        inputs=[{"name": name, "datatype": "FP32", "shape": [1, 3]} for name in "xy"],
        raw_input_contents=[X.tobytes(), X.tobytes()],
    ).SerializeToString()
    found = set()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for _ in range(150):
            body = bytearray(request)
            for position in rng.integers(0, len(body), 2):
                body[position] = rng.integers(0, 256)
            try:
                await infer(bytes(body[: rng.integers(0, len(body) + 1)]))
                found.add("OK")
            except grpc.aio.AioRpcError as error:
                found.add(error.code().name)
    return found


@pytest.mark.parametrize(("name", "note"), [("mixed", "depends on other rows"), ("types", "is not open")])
def test_networks_whose_rows_cannot_be_put_together_are_not(libraries: dict[str, Path], name: str, note: str) -> None:
    with serving({name: libraries[name]}, rows=8) as server:
        _, served = server.service.repository.find(name)
        assert served.rows == 1 and any(note in each for each in served.notes), served.notes


def test_batches_of_a_network_that_takes_some_numbers_of_rows_alone(tmp_path: Path) -> None:
    """Whole requests are tried together, not single rows."""
    rows = library(ROWS, tmp_path, shape={"batch": "4..64:2"})
    with serving({"rows": rows}, rows=16) as server:
        _, served = server.service.repository.find("rows")
        assert served.rows == 16 and not served.notes, served.notes
    with serving({"rows": rows}, rows=6) as server:
        _, served = server.service.repository.find("rows")
        assert served.rows == 1 and "no room for two requests" in served.notes[0]


def test_every_session_is_made_before_the_first_request(libraries: dict[str, Path]) -> None:
    with serving({"rows": libraries["rows"]}, sessions=3) as server:
        _, served = server.service.repository.find("rows")
        assert len(served._pool._made) == 3


def test_a_network_that_is_loaded_again_counts_with_the_one_before() -> None:
    metrics = Metrics()
    before, after = metrics.of("n", "1"), metrics.of("n", "1")
    before.admitted(1)
    after.admitted(1)
    after.admitted(-1)
    assert admitted(metrics.text()[0].decode()).endswith(" 1.0")


def test_a_stream_does_not_tell_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answered() -> Any:
        answers = rpc._Answers(SimpleNamespace(), Listening(), rpc._Clients(Incoming(0, 8, 0), Unread(0)))  # type: ignore[arg-type]
        monkeypatch.setattr(answers, "_parsed", lambda *_: 1 / 0)
        requests = iter([b""])

        async def each() -> Any:
            for request in requests:
                yield request

        return [
            answer
            async for answer in answers.stream(
                each(), SimpleNamespace(peer=lambda: "unix:", invocation_metadata=lambda: ())
            )
        ]

    (answer,) = asyncio.run(answered())
    assert "written why to its log" in answer.error_message
