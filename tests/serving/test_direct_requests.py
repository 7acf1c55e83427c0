"""Requests that are answered without the general server of HTTP, and runs that are made without another thread."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_networks import library, post, serving, tensor

from nnefc.serving.direct_requests import direct_request
from nnefc.serving.quick_runs import QuickRuns

X = np.arange(3, dtype=np.float32).reshape(1, 3)
GOOD = {"inputs": [tensor("x", X), tensor("y", X)]}
INFER = "/v2/models/rows/infer"
HEAD = b"POST /v2/models/rows/infer HTTP/1.1\r\nHost: x\r\n"

LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
loop (int64 count, float[2] x) => (float[2] y)
{
    y = Loop (count, , x) <body = step (int64 i, bool going, float[2] before) => (bool goes, float[2] after) {
        goes = Identity (going)
        after = Add (before, before)
    }>
}
"""


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (HEAD + b"Content-Length: 2\r\n\r\n{}", ("rows", "", 2)),
        (HEAD + b"content-length:2\r\nConnection: close\r\n\r\n{}more", ("rows", "", 2)),
        (HEAD.replace(b"/infer", b"/versions/3/infer") + b"Content-Length: 0\r\n\r\n", ("rows", "3", 0)),
        (HEAD.replace(b"rows", b"a%2Fb") + b"Content-Length: 0\r\n\r\n", ("a/b", "", 0)),
        (HEAD + b"Content-Length: 3\r\n\r\n{}", None),
        (HEAD + b"Content-Length: 2\r\n\r", None),
        (HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", None),
        (HEAD + b"Content-Length: +2\r\n\r\n{}", None),
        (HEAD + b"Content-Length: 99999999\r\n\r\n{}", None),
        (HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", None),
        (HEAD + b"Content-Length: 2\r\nContent-Encoding: gzip\r\n\r\n{}", None),
        (HEAD + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n{}", None),
        (HEAD + b"Content-Length : 2\r\n\r\n{}", None),
        (HEAD + b"Content-Length: 2\r\n Accept: x\r\n\r\n{}", None),
        (HEAD + b"Content-Length: 2\r\nAccept: \x01\r\n\r\n{}", None),
        (HEAD.replace(b"Host: x\r\n", b"") + b"Content-Length: 2\r\n\r\n{}", None),
        (HEAD.replace(b"1.1", b"1.0") + b"Content-Length: 2\r\n\r\n{}", None),
        (HEAD.replace(b"POST", b"GET") + b"Content-Length: 0\r\n\r\n", None),
        (HEAD.replace(b"/infer", b"/infer?a") + b"Content-Length: 0\r\n\r\n", None),
        (HEAD.replace(b"/infer", b"/ready") + b"Content-Length: 0\r\n\r\n", None),
    ],
)
def test_only_requests_of_one_kind_are_taken(data: bytes, found: tuple[str, str, int] | None) -> None:
    for _ in range(2):  # the second time from those that are known
        taken = direct_request(data)
        assert (taken and (taken[0].model, taken[0].version, taken[0].size)) == found


def _answers(port: int, data: bytes, parts: int = 1) -> bytes:
    """Returns all that a server answers to data that come in so many parts, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        for number in range(parts):
            connection.sendall(data[len(data) * number // parts : len(data) * (number + 1) // parts])
            time.sleep(0.02 * (parts > 1))
        got = b""
        while part := connection.recv(1 << 16):
            got += part
        return got


def _request(given: Mapping[str, Any], more: bytes = b"", raw: bytes = b"") -> bytes:
    body = json.dumps(given).encode() + raw
    return HEAD + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _without_date(answer: bytes) -> tuple[bytes, set[bytes], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.replace(b"; charset=utf-8", b"").split(b"\r\n")
    kept = {line for line in lines if line.split(b":")[0] in (b"Content-Type", b"Content-Length", b"Retry-After")}
    return status, kept, body


def test_answers_are_those_of_the_general_server(libraries: dict[str, Path]) -> None:
    raw = {
        "inputs": [
            {"name": n, "datatype": "FP32", "shape": [1, 3], "parameters": {"binary_data_size": 12}} for n in "xy"
        ]
    }
    raw["parameters"] = {"binary_data_output": True}
    length = len(json.dumps(raw))
    cases = [
        _request(GOOD, b"Connection: close\r\n"),
        _request(GOOD | {"id": "7"}, b"Connection: close\r\n"),
        _request(raw, b"Connection: close\r\nInference-Header-Content-Length: %d\r\n" % length, 2 * X.tobytes()),
        _request({"inputs": []}, b"Connection: close\r\n"),
        _request(GOOD, b"Connection: close\r\n").replace(b"/rows/", b"/none/"),
        _request(GOOD, b"Connection: close\r\n").replace(b"FP32", b"FP31"),
    ]
    with serving({"rows": libraries["rows"]}) as server:
        for case in cases:
            directly, generally = _answers(server.port, case), _answers(server.port, case, 2)
            assert _without_date(directly) == _without_date(generally)
            assert directly.startswith(b"HTTP/1.1 ") and directly.count(b"HTTP/1.1 ") == 1


def test_both_kinds_take_turns_on_one_connection(libraries: dict[str, Path]) -> None:
    ready = b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n"
    data = (_request(GOOD) + ready + _request(GOOD) + _request(GOOD) + ready) * 3
    end = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with serving({"rows": libraries["rows"]}) as server:
        for parts in (1, 5):
            got = _answers(server.port, data + end, parts)
            kinds = [b"total" in answer for answer in got.split(b"HTTP/1.1 200 OK")[1:]]
            assert kinds == [True, False, True, True, False] * 3 + [False]


def test_hundreds_of_connections_at_once_are_all_answered(libraries: dict[str, Path]) -> None:
    with serving({"rows": libraries["rows"]}) as server:
        made = [socket.create_connection(("127.0.0.1", server.port), 20) for _ in range(200)]
        for _ in range(2):
            for each in made:
                each.sendall(_request(GOOD))
            assert {each.recv(4096).split()[1] for each in made} == {b"200"}
        for each in made:
            each.close()


def test_clients_that_do_not_wait_are_refused_later_each_time(libraries: dict[str, Path]) -> None:
    with serving({"rows": libraries["rows"]}, waiting=0, rows=2, delay=5.0) as server:
        waiting = [socket.create_connection(("127.0.0.1", server.port), 20) for _ in range(2)]
        for width, each in zip((1, 2), waiting, strict=True):  # of two shapes, so that they wait for others
            arrays = [tensor(name, np.ones((1, width), np.float32)) for name in "xy"]
            each.sendall(_request({"inputs": arrays}))
        while server.service.repository.find("rows")[1]._admitted < 2:
            time.sleep(0.01)
        with socket.create_connection(("127.0.0.1", server.port), 20) as hasty:
            seconds = []
            for _ in range(5):
                begin = time.monotonic()
                hasty.sendall(_request(GOOD))
                answer = hasty.recv(4096)
                assert answer.startswith(b"HTTP/1.1 429 Too Many Requests") and b"Retry-After: 1" in answer
                seconds.append(time.monotonic() - begin)
            assert seconds[-1] > 0.1
        for each in waiting:
            each.close()


def test_runs_that_take_far_longer_than_expected_do_not_stop_others(tmp_path: Path) -> None:
    """The time of a loop depends on a value: one run of it is quick, the other has no end."""
    path = library(LOOP, tmp_path)

    def body(count: int) -> dict[str, Any]:
        return {"inputs": [tensor("count", np.array(count), "INT64"), tensor("x", np.ones(2, np.float32))]}

    with serving({"loop": path}, timeout=2.0, sessions=2) as server:
        served = server.service.repository.find("loop")[1]
        for _ in range(3):
            assert post(server, "/v2/models/loop/infer", body(2))[1]["outputs"][0]["data"] == [4, 4]
        statuses: list[int] = []
        endless = threading.Thread(
            target=lambda: statuses.append(post(server, "/v2/models/loop/infer", body(1 << 60))[0])
        )
        endless.start()
        assert post(server, "/v2/models/loop/infer", body(3))[1]["outputs"][0]["data"] == [8, 8]
        endless.join()
        assert statuses == [504]
        until = time.monotonic() + 20
        while served.running:  # a run that no request waits for is ended
            assert time.monotonic() < until
            time.sleep(0.01)


def test_runs_are_expected_to_be_as_quick_as_those_before() -> None:
    class Session:
        def run(
            self, inputs: Mapping[str, np.ndarray], outputs: tuple[str, ...] | None = None
        ) -> dict[str, np.ndarray]:
            end = time.thread_time() + (0.001 if inputs["x"][0] else 0)
            while time.thread_time() < end:
                pass
            return {}

        def close(self) -> None:
            pass

    runs = QuickRuns(Session)  # type: ignore[arg-type]
    quick, slow = {"x": np.zeros(4)}, {"x": np.ones(4)}
    assert not runs.expects(quick)
    runs.took(quick, 1.0)
    assert not runs.expects(quick)
    runs.took(quick, 1e-5)
    assert runs.expects(quick) and runs.expects({"x": np.zeros(3)}) and not runs.expects({"x": np.zeros(5)})
    runs.run(slow, ("y",))
    assert not runs.expects(quick, ("y",)) and runs.expects(quick)
    for left in (True, True, False):
        runs.run(slow)
        assert runs.expects(quick) == left
    runs.took(quick, 1e-5)
    runs.run(slow)
    runs.run(quick)
    assert runs.expects(quick)
    runs.close()
    assert not runs.expects(quick)
