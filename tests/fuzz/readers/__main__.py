"""Fuzz what reads files: `python tests/fuzz/readers [READER …] [--minutes 10]`, each for so long, or all:

    nnef     documents of three dialects, archives, tensor files, `graph.quant`
    onnx     models
    pnnx     param and bin files, expressions
    tflite   models of one operator
    library  libraries' headers and records, signatures, keys, weights files, encrypted ones, targets in words and JSON
    language_model  files of GGUF, folders with safetensors, quantized ones too, and modules of sentence-transformers
    tokenizer       tokenizer.json and the files next to it, vocabularies in GGUF, chat templates

With `atheris` installed (`pip install atheris`) new inputs are chosen by the code that they reach, else by the messages
that they cause. Inputs run in a process of their own with limited memory and time; one that raises anything but a
`CompileError` or a `LoadError`, dies, takes too long or too much memory is written to `--findings`, each kind once. The
exit status is 1 if there are any. `python tests/fuzz/readers nnef --input FILE` runs one again.
"""

from __future__ import annotations

import argparse
import ast
import faulthandler
import hashlib
import importlib.util
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[1]
_FOLDERS = ("helpers", "frontends/nnef", "frontends/nnef/dynamic")
sys.path += [str(HERE), str(HERE.parent), *(str(TESTS / folder) for folder in _FOLDERS)]

from execution import READERS, execute, inputs_of  # noqa: E402
from record import Record  # noqa: E402

SECONDS_AN_INPUT = 30

GUIDED = importlib.util.find_spec("atheris") is not None


class Session:
    """Runs inputs, counts them, keeps findings; its numbers are in a file, for it may die at any time."""

    def __init__(self, reader: Any, findings: Path) -> None:
        self._reader = reader
        self._findings = findings
        self._folder = Path(tempfile.mkdtemp(prefix="nnefc-fuzz-"))
        self._current = findings / "current"
        self._dump = (findings / "watchdog").open("w")
        self._seen: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._written = 0.0

    def execute(self, data: bytes) -> str:
        """Run one input; a short text that is the same for inputs that behave alike."""
        self._current.write_bytes(data)
        self._dump.seek(0)
        faulthandler.dump_traceback_later(SECONDS_AN_INPUT, exit=True, file=self._dump)
        start = time.perf_counter()
        try:
            error = execute(self._reader, data, self._folder)
        except Exception as failure:
            return self._found(data, failure)
        finally:
            faulthandler.cancel_dump_traceback_later()
            self._counts["executions"] += 1
            if data[:1] in self._reader.TARGETS:
                self._counts[f"executions of {self._reader.TARGETS[data[:1]].__name__}"] += 1
            self._counts["slowest, ms"] = max(self._counts["slowest, ms"], int(1000 * (time.perf_counter() - start)))
            if time.time() > self._written + 1:
                self.save()
        self._counts["refused" if error else "accepted"] += 1
        return re.sub(r"'[^']*'|\[[^]]*\]|[0-9]+", "_", str(error))[:200] if error else f"accepted {len(data) // 50}"

    def save(self) -> None:
        self._counts["memory, MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        (self._findings / f"counts.{os.getpid()}.json").write_text(json.dumps(self._counts))
        self._written = time.time()

    def _found(self, data: bytes, failure: Exception) -> str:
        """Keep the input and its traceback, once for each location in the project that failed."""
        frames = [
            f for f in traceback.extract_tb(failure.__traceback__) if re.search("compiler|targets|passes", f.filename)
        ]
        location = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
        kind = f"{type(failure).__name__} at {location}"
        if kind not in self._seen:
            self._seen.add(kind)
            keep(self._findings, kind, data, "".join(traceback.format_exception(failure)))
        return kind


def keep(findings: Path, kind: str, data: bytes, report: str) -> None:
    name = re.sub(r"[^A-Za-z0-9.]+", "_", kind)
    if not (findings / f"{name}.input").exists():
        (findings / f"{name}.input").write_bytes(data)
        (findings / f"{name}.txt").write_text(f"{kind}\n\n{report}")


def bound_memory(gib: float) -> None:
    """Let this process have so much address space more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + int(gib * (1 << 30))
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def work(name: str, seconds: float, seed: int, memory: float, findings: Path) -> None:
    """Run inputs until the time is over."""
    if GUIDED:
        work_guided(name, seconds, seed, memory, findings)
    else:
        work_alone(name, seconds, seed, memory, findings)


def work_alone(name: str, seconds: float, seed: int, memory: float, findings: Path) -> None:
    """Inputs with a new behaviour join those that are mutated."""
    reader = inputs_of(name)
    session, random, end = Session(reader, findings), Random(seed), time.time() + seconds
    corpus = reader.seeds()
    bound_memory(memory)
    seen = {session.execute(data) for data in corpus}
    while time.time() < end:
        data = reader.mutate(random.choice(corpus), random, corpus)
        behaviour = session.execute(data)
        if behaviour not in seen and len(data) < 1 << 16:
            seen.add(behaviour)
            corpus.append(data)
    session.save()


def work_guided(name: str, seconds: float, seed: int, memory: float, findings: Path) -> None:
    import atheris

    instrumented = re.search(r"^INSTRUMENTED = (\[.*?\])", (HERE / f"{name}_inputs.py").read_text(), re.S | re.M)
    assert instrumented is not None
    with atheris.instrument_imports(include=ast.literal_eval(instrumented[1]), enable_loader_override=False):
        reader = inputs_of(name)
    session = Session(reader, findings)
    corpus = reader.seeds()
    bound_memory(memory)
    folder = findings / "corpus"
    folder.mkdir(exist_ok=True)
    for data in corpus:
        (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)

    def mutated(data: bytes, largest: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < 0.2:
            return bytes(atheris.Mutate(data, largest))[:largest]
        return bytes(reader.mutate(data, random, corpus)[:largest])

    def run(data: bytes) -> None:
        session.execute(data)

    options = [
        f"-max_total_time={int(seconds)}",
        f"-seed={seed}",
        "-max_len=65536",
        "-rss_limit_mb=0",
        f"-timeout={2 * SECONDS_AN_INPUT}",
        f"-artifact_prefix={findings}/",
    ]
    atheris.Setup([sys.argv[0], *options, str(folder)], run, custom_mutator=mutated)
    atheris.Fuzz()


def supervise(name: str, minutes: float, seed: int, memory_gib: float, findings: Path, record: Path | None) -> int:
    """Start workers until the time is over; one that dies is a finding."""
    set_aside(findings)
    start = time.time()
    end = start + 60 * minutes
    workers = 0
    with (findings / "worker.log").open("w") as log:
        while (left := end - time.time()) > 1:
            command = [sys.executable, str(HERE), name, "--worker", str(left), "--seed", str(seed + workers)]
            command += ["--memory", str(memory_gib), "--findings", str(findings)]
            workers += 1
            # Each thread would reserve 64 MiB of the address space for itself, and each input is evaluated in one.
            environment = {**os.environ, "MALLOC_ARENA_MAX": "2"}
            status = subprocess.run(command, stdout=log, stderr=log, env=environment).returncode
            if status and time.time() < end + 5:
                report = (findings / "watchdog").read_text() if (findings / "watchdog").exists() else ""
                kind = "hang" if report else f"died with status {status}"
                frames = re.findall(r'File "([^"]*(?:compiler|targets|passes)[^"]*)", line (\d+)', report)
                location = f" at {Path(frames[0][0]).name}:{frames[0][1]}" if frames else ""
                data = (findings / "current").read_bytes() if (findings / "current").exists() else b""
                keep(findings, kind + location, data, report)
                if not data:
                    print((findings / "worker.log").read_text()[-2000:], file=sys.stderr)
                    return 1
    return summarize(findings, time.time() - start, workers, record)


def set_aside(findings: Path) -> None:
    """Make the folder of a run: the counts of an earlier one go, and what it found goes to `earlier` inside."""
    earlier = findings / "earlier"
    earlier.mkdir(parents=True, exist_ok=True)
    for file in findings.glob("counts.*.json"):
        file.unlink()
    for file in (*findings.glob("*.txt"), *findings.glob("*.input")):
        file.replace(earlier / file.name)
    for name in ("current", "watchdog"):
        (findings / name).unlink(missing_ok=True)


def summarize(findings: Path, seconds: float, workers: int, record: Path | None) -> int:
    total: Counter[str] = Counter()
    for file in findings.glob("counts.*.json"):
        counts = json.loads(file.read_text())
        for name, value in counts.items():
            total[name] = max(total[name], value) if "," in name else total[name] + value
    found = sorted(file.read_text().splitlines()[0] for file in findings.glob("*.txt"))
    engine = "atheris" if GUIDED else "messages"
    print(f"{seconds / 60:.1f} minutes, guidance: {engine}, processes: {workers}")
    print(", ".join(f"{name}: {value:,}" for name, value in sorted(total.items())))
    print(f"findings: {len(found)}", *found, sep="\n  ")
    if record is not None:
        counts = {"inputs": total["executions"], "found": len(found), "minutes": round(seconds / 60)}
        Record({"readers": {findings.name: counts}}).add_to(record)
    return 1 if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", metavar="reader", help=f"some of {', '.join(READERS)}; all by default")
    parser.add_argument("--minutes", type=float, default=10, help="for each reader")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory", type=float, default=2, help="GiB that inputs may take")
    parser.add_argument("--findings", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--record", type=Path, help="a file of counts that this run is added to")
    parser.add_argument("--input", type=Path, help="run this file instead")
    parser.add_argument("--worker", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.readers) - set(READERS):
        parser.error(f"there is no reader {sorted(unknown)[0]}; choose some of {', '.join(READERS)}")
    readers = options.readers or READERS
    if options.worker is None and options.input is None:
        failed = 0
        for name in readers:
            print(f"{name}:", flush=True)
            findings = options.findings.resolve() / name
            failed |= supervise(name, options.minutes, options.seed, options.memory, findings, options.record)
        return failed
    if options.input is not None:
        reader = inputs_of(readers[0])
        bound_memory(options.memory)
        with tempfile.TemporaryDirectory() as folder:
            print(execute(reader, options.input.read_bytes(), Path(folder)) or "accepted")
        return 0
    work(readers[0], options.worker, options.seed, options.memory, options.findings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
