"""`nnefc serve`: names, options, the end of the process; the protocol itself is tests/serving's."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from runtime_samples import DYNAMIC_SAMPLE, link, object_file, sample_library

from nnefc.cli import main
from nnefc.serving.settings import Policy


def run_serve(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["serve", *arguments])
    return result.exit_code, result.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["a b.so"], 1, "'a b' cannot be the name of a model"),
        (["a.so", "a=b.so"], 1, "two libraries are version 1 of a"),
        (["a/x=a.so"], 1, "'x' is not a version"),
        (["a/0=a.so"], 1, "'0' is not a version"),
        (["a.so", "--no-http", "--no-grpc"], 2, "nothing to listen for"),
        (["a.so", "--limit", "batch"], 2, "not of the form NAME=64"),
        (["a.so", "--limit", "n=²"], 2, "not of the form NAME=64"),
        (["a.so", "--limit", "n=4", "--limit", "n=8"], 2, "two limits of n"),
    ],
)
def test_mistakes(arguments: list[str], status: int, words: str) -> None:
    code, text = run_serve(*arguments)
    assert code == status and words in text


def test_a_key_of_another_length_is_refused_by_its_name(tmp_path: Path) -> None:
    for length in (0, 31, 33):
        (tmp_path / "key").write_bytes(bytes(length))
        code, text = run_serve("a.so", "--weights-key", str(tmp_path / "key"))
        assert code == 1 and f"{tmp_path / 'key'} is not a key of 32 bytes" in text


def test_the_key_is_not_shown_among_the_settings() -> None:
    assert "secret" not in repr(Policy(weights_key=b"secret"))


def test_a_library_that_is_not_there() -> None:
    pytest.importorskip("aiohttp")
    assert run_serve("none.so", "--port", "0", "--grpc-port", "0") == (1, "error: none.so does not exist\n")


def test_a_network_with_states_is_refused() -> None:
    pytest.importorskip("aiohttp")
    code, text = run_serve(str(sample_library()), "--port", "0", "--grpc-port", "0")
    assert code == 1 and "has states" in text


@pytest.fixture(scope="module")
def stateless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("aiohttp")
    pytest.importorskip("grpc")
    path = tmp_path_factory.mktemp("serve") / "open.so"
    return link([object_file("dynamic_network.c")], b"", DYNAMIC_SAMPLE, path)


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process, and its port of HTTP."""
    command = [sys.executable, "-m", "nnefc", "serve", *arguments, "--port", "0", "--grpc-port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if found := re.match(r"listening: http 127\.0\.0\.1:(\d+), grpc 127\.0\.0\.1:\d+", line):
                    yield process, int(found[1])
                    break
            else:
                raise AssertionError("it did not start")
        finally:
            process.kill()


def test_sigterm_ends_the_process_with_status_0(stateless: Path) -> None:
    x = {"name": "x", "datatype": "FP32", "shape": [2, 8], "data": [1] * 16}
    scale = {"name": "scale", "datatype": "FP32", "shape": [8], "data": [2] * 8}
    body = json.dumps({"inputs": [x, scale]}).encode()
    with running(f"net={stateless}", "--sessions", "2", "--threads", "1") as (process, port):
        url = f"http://127.0.0.1:{port}/v2/models/net/infer"
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=20) as answer:
            assert len(json.loads(answer.read())["outputs"]) == 2
        begin = time.monotonic()
        os.kill(process.pid, signal.SIGTERM)
        assert process.stderr is not None
        tail = process.stderr.read()
        assert process.wait(20) == 0 and time.monotonic() - begin < 10
        assert "shutting down: 0 requests under way" in tail and tail.endswith("ended\n")


def test_a_port_that_is_taken_is_an_error(stateless: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        code, text = run_serve(str(stateless), "--port", port, "--grpc-port", "0")
        assert code == 1 and "error:" in text and port in text
        code, text = run_serve(str(stateless), "--port", "0", "--grpc-port", port)
        assert code == 1 and f"gRPC cannot listen on 127.0.0.1:{port}" in text
