"""The example for Ray Serve: a replica without Ray, whose server gets the requests, and several with it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pytest
from openai import OpenAI
from served_texts import CONTEXT, LIKELIEST, MESSAGES

import nnefc

FOLDER = Path(__file__).parents[2] / "examples" / "engines"
CHAT = "/v1/chat/completions"


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("replica")


def test_requests_and_streams_are_passed_on(replica: Any, text_library: Path) -> None:
    async def run() -> None:
        made = await asyncio.to_thread(replica.Replica, {"small": text_library}, 1)
        (model,) = made._server.texts

        async def ask(path: str, **given: Any) -> Any:
            headers = {"Content-Type": "application/json", "Host": "example.com", "Connection": "close"}
            return await made.ask("POST", path, headers, json.dumps({**LIKELIEST, **given}).encode())

        async def whole(answer: Any) -> bytes:
            return b"".join([part async for part in answer.parts])

        answer = await ask(CHAT, messages=MESSAGES)
        text = json.loads(await whole(answer))["choices"][0]["message"]["content"]
        assert answer.status == 200 and answer.headers["Content-Type"].startswith("application/json")
        answers = await asyncio.gather(*(ask(CHAT, messages=MESSAGES, stream=True) for _ in range(5)))
        for stream in await asyncio.gather(*map(whole, answers)):
            parts = [json.loads(line[6:]) for line in stream.split(b"\n\n") if line.startswith(b"data: {")]
            assert "".join(part["choices"][0]["delta"].get("content", "") for part in parts) == text
        wrong = await ask(CHAT, messages=[])
        assert wrong.status == 400 and json.loads(await whole(wrong))["error"]["param"] == "messages"
        left = await ask("/v1/completions", prompt="hello", stream=True, max_tokens=CONTEXT, guided_regex="[a-c]{150}")
        await anext(left.parts)
        await left.parts.aclose()
        while made._server.texts.active:  # until the server has noticed
            await asyncio.sleep(0.01)
        assert model.engine.has_room_for(model.engine.sequences)
        health = await made.ask("GET", "/health", {}, b"")
        assert json.loads(await whole(health)) == {"status": "ok"}
        await made.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_library_that_cannot_be_served_is_an_error(replica: Any, libraries: dict[str, Path]) -> None:
    with pytest.raises(nnefc.LoadError, match="has no tokenizer"):
        replica.Replica({"rows": libraries["rows"]}, 1)


def _address(output: IO[str]) -> str:
    """Where the program says that it listens; fails where it ends before."""
    for line in output:
        if line.startswith("listening: "):
            return line.split()[1]
    raise AssertionError("the program has ended")


def _processes() -> list[int]:
    """The processes of replicas."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if "ServeReplica:default:Chat" in line]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_replicas_under_ray_serve_answer_and_one_that_is_lost_is_replaced(text_library: Path, tmp_path: Path) -> None:
    library = tmp_path / "small.so"
    library.write_bytes(text_library.read_bytes())
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = [sys.executable, str(FOLDER / "ray_serve_chat.py"), str(library), "--port", str(port)]
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "HOME": str(tmp_path)}
    with subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            client = OpenAI(base_url=_address(running.stdout), api_key="none", max_retries=8)
            made = client.chat.completions.create(messages=MESSAGES, **LIKELIEST).choices[0].message.content
            parts = client.chat.completions.create(messages=MESSAGES, stream=True, **LIKELIEST)
            assert "".join(part.choices[0].delta.content or "" for part in parts) == made
            lost, _ = _processes()
            os.kill(lost, signal.SIGKILL)
            with ThreadPoolExecutor(4) as pool:
                given = [{"messages": MESSAGES, **LIKELIEST}] * 20
                answers = pool.map(lambda each: client.chat.completions.create(**each), given)
                assert {answer.choices[0].message.content for answer in answers} == {made}
            end = time.monotonic() + 120
            while len(_processes()) < 2:
                assert time.monotonic() < end
                time.sleep(0.5)
        finally:
            running.send_signal(signal.SIGINT)
    assert running.returncode == 0
