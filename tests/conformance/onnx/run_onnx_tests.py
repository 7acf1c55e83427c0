"""Run the tests of ONNX's own runner, `onnx.backend.test.BackendTest`, and write the table of results.

    python tests/conformance/onnx/run_onnx_tests.py                       nnefc, then docs/onnx-conformance.md
    python tests/conformance/onnx/run_onnx_tests.py --engine onnxruntime  onnxruntime, in the same table
    python tests/conformance/onnx/run_onnx_tests.py --only test_scatter   some tests, printed only
    python tests/conformance/onnx/run_onnx_tests.py --kind real           tests of one kind, printed only
    python tests/conformance/onnx/run_onnx_tests.py --count               the table's numbers again; nothing is run
    python tests/conformance/onnx/run_onnx_tests.py --minutes 30          as many as fit; a later run continues

Tests run in processes of their own, which may crash; what is done is kept in build/conformance and not run again unless
`--fresh` says so, or another version of the peer is installed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

from onnx_engines import ENGINES, PACKAGES
from onnx_floor import Floor
from onnx_outcome import Outcome
from onnx_report import write_report
from onnx_suite import KINDS, Suite, Test, collect

ROOT = Path(__file__).resolve().parents[3]
KEPT = ROOT / "build" / "conformance"
_SECONDS = 120
"""After which a test counts as one that does not end."""
_SLOW = 5.0
"""Seconds from which a test is reported: compiling one should not take long."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="default: nnefc")
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="default: all")
    parser.add_argument("--only", metavar="TEXT", help="tests with this in their names; no table is written")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--fresh", action="store_true", help="run again what was run before")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="of each engine; a later run goes on")
    parser.add_argument("--count", action="store_true", help="print what was found before")
    options = parser.parse_args()
    os.environ["ONNX_MODELS"] = str(KEPT / "models")  # where the runner keeps data of large networks
    begin = time.monotonic()
    tests = collect(options.kind or list(KINDS))
    if options.count:
        _print_counts(tests)
        return
    printed = bool(options.only or options.kind)
    if options.only:
        tests = [test for test in tests if options.only in test.name]
    print(f"{len(tests)} tests collected in {time.monotonic() - begin:.0f} s", flush=True)
    for engine in options.engine or ["nnefc"]:
        _run_engine(engine, tests, options.workers, printed, options.fresh, options.minutes)
    if not printed:
        found = {engine: _read(engine) for engine in ENGINES}
        whole = {engine: of for engine, of in found.items() if all(test.name in of for test in tests)}
        if "nnefc" in whole:
            _raise_floor(whole["nnefc"], tests)
            write_report(ROOT / "docs" / "onnx-conformance.md", tests, whole)


def _kept(engine: str) -> Path:
    return KEPT / f"onnx-{engine}.jsonl"


def _version(engine: str) -> str:
    """Of the installed package; empty for nnefc, of which every commit may find something else."""
    return importlib.metadata.version(PACKAGES[engine]) if engine in PACKAGES else ""


def _run_engine(
    engine: str, tests: list[Test], workers: int, printed: bool, fresh: bool, minutes: float = float("inf")
) -> None:
    """Run what is not known yet, as much as the time is enough for, and print how many pass."""
    begin = time.monotonic()
    outcomes = {} if fresh or printed else _read(engine)
    missing = [test for test in tests if test.name not in outcomes]
    KEPT.mkdir(parents=True, exist_ok=True)
    if fresh and not printed:
        _kept(engine).unlink(missing_ok=True)
    with open(os.devnull if printed else _kept(engine), "a") as file:
        for name, outcome in run_all(engine, missing, workers, begin + 60 * minutes):
            outcomes[name] = outcome
            file.write(json.dumps([name, outcome.status, outcome.reason, _version(engine)]) + "\n")
            file.flush()
            if printed:
                print(f"{outcome.status:8} {name} {outcome.reason}", flush=True)
    print(f"{_count(engine, tests, outcomes)}, in {time.monotonic() - begin:.0f} s", flush=True)


def _count(engine: str, tests: list[Test], outcomes: dict[str, Outcome]) -> str:
    done = [outcomes[test.name] for test in tests if test.name in outcomes]
    return f"{engine}: {sum(outcome.passed for outcome in done)} of {len(done)} pass"


def _print_counts(tests: list[Test]) -> None:
    for engine in ENGINES:
        if outcomes := _read(engine):
            print(_count(engine, tests, outcomes))


def _raise_floor(outcomes: dict[str, Outcome], tests: list[Test]) -> None:
    """Keep what the tests came to, unless one came to less than before: then nothing is written."""
    floor = Floor()
    for name, text in (fallen := floor.fallen(outcomes)).items():
        print(f"{name}: {text}", file=sys.stderr)
    if fallen:
        sys.exit(f"{len(fallen)} tests came to less than tests/conformance/onnx/floor.txt says: nothing is written")
    floor.raise_to(outcomes, [test.name for test in tests])


def _read(engine: str) -> dict[str, Outcome]:
    """What was found before with this version; rows without one count for all."""
    path = _kept(engine)
    lines = path.read_text().splitlines() if path.exists() else []
    if not lines:
        return {}
    version = _version(engine)
    rows = (json.loads(line) for line in lines if line.endswith("]"))
    return {name: Outcome(status, reason) for name, status, reason, *of in rows if not of or of[0] == version}


def run_all(engine: str, tests: list[Test], workers: int, end: float = float("inf")) -> Any:
    """Yields names and outcomes, in the order in which they come; begins no test after `end`, of the clock."""
    suite = Suite(ENGINES[engine]())  # once for all processes, which are forked
    waiting = list(reversed(tests))
    busy: dict[Connection, tuple[Any, Test, float]] = {}
    while waiting or busy:
        if time.monotonic() > end:
            waiting.clear()
        while waiting and len(busy) < workers:
            _give(_start(suite), waiting.pop(), busy)
        for connection in wait(list(busy), timeout=1.0):
            assert isinstance(connection, Connection)
            process, test, begin = busy.pop(connection)
            if (seconds := time.monotonic() - begin) > _SLOW:
                print(f"{test.name} took {seconds:.1f} s", file=sys.stderr)
            try:
                yield test.name, connection.recv()
            except (EOFError, ConnectionError):
                process.join()
                yield test.name, Outcome("broken", f"the process died with status {process.exitcode}")
                continue
            if waiting:
                _give((process, connection), waiting.pop(), busy)
            else:
                connection.close()
        for connection, (process, test, begin) in list(busy.items()):
            if time.monotonic() - begin > _SECONDS:
                del busy[connection]
                process.kill()
                process.join()
                yield test.name, Outcome("broken", f"no end after {_SECONDS} s")


def _start(suite: Suite) -> tuple[Any, Connection]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(suite, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _give(worker: tuple[Any, Connection], test: Test, busy: dict[Connection, tuple[Any, Test, float]]) -> None:
    worker[1].send(test)
    busy[worker[1]] = (worker[0], test, time.monotonic())


def _work(suite: Suite, connection: Connection) -> None:
    os.environ["TVM_NUM_THREADS"] = "1"
    while True:
        try:
            test = connection.recv()
        except EOFError:
            return
        connection.send(suite.run(test))


if __name__ == "__main__":
    main()
