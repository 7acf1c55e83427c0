"""Run all of ONNX's node tests and write the table of results.

    python tests/conformance/onnx/run.py                      nnefc, then docs/onnx-conformance.md
    python tests/conformance/onnx/run.py --engine onnxruntime beside it, in the same table
    python tests/conformance/onnx/run.py --only test_scatter  some, printed only
    python tests/conformance/onnx/run.py --sample 100         those that `make test` runs, printed only
    python tests/conformance/onnx/run.py --suite stored       models that the package onnx carries, printed only

Tests run in processes of their own, which may crash; what is done is kept in build/conformance and not run again unless
`--fresh` says so.
"""

from __future__ import annotations

import argparse
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

from onnx_cases import SUITES, Case, sample
from onnx_engines import ENGINES
from onnx_floor import Floor
from onnx_outcome import Outcome
from onnx_report import write_report

from nnefc.cli.tvm_alone import import_tvm

ROOT = Path(__file__).resolve().parents[3]
_SECONDS = 120
"""After which a test counts as one that does not end."""
_SLOW = 5.0
"""Seconds from which a test is reported: compiling one should not take long."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="default: nnefc")
    parser.add_argument("--suite", choices=list(SUITES), default="node", help="stored: models with data, printed only")
    parser.add_argument("--only", metavar="TEXT", help="tests with this in their names; no table is written")
    parser.add_argument("--sample", type=int, metavar="N", help="N tests by the hash of their names, and each operator")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--fresh", action="store_true", help="run again what was run before")
    options = parser.parse_args()
    begin = time.monotonic()
    cases = SUITES[options.suite]()
    printed = bool(options.only or options.sample or options.suite != "node")
    if options.only:
        cases = [case for case in cases if options.only in case.name]
    if options.sample:
        cases = sample(cases, options.sample, ("test_scatter", "test_convinteger"))
    print(f"{len(cases)} tests collected in {time.monotonic() - begin:.0f} s", flush=True)
    for engine in options.engine or ["nnefc"]:
        begin = time.monotonic()
        kept = ROOT / "build" / "conformance" / f"onnx-{engine}.jsonl"
        outcomes = {} if options.fresh or printed else _read(kept)
        missing = [case for case in cases if case.name not in outcomes]
        kept.parent.mkdir(parents=True, exist_ok=True)
        if options.fresh:
            kept.unlink(missing_ok=True)
        with open(os.devnull if printed else kept, "a") as file:
            for name, outcome in run_all(engine, missing, options.workers):
                outcomes[name] = outcome
                file.write(json.dumps([name, outcome.status, outcome.reason]) + "\n")
                file.flush()
                if printed:
                    print(f"{outcome.status:8} {name} {outcome.reason}", flush=True)
        passed = sum(outcomes[case.name].passed for case in cases)
        print(f"{engine}: {passed} of {len(cases)} pass, in {time.monotonic() - begin:.0f} s", flush=True)
    if not printed:
        found = {engine: _read(ROOT / "build" / "conformance" / f"onnx-{engine}.jsonl") for engine in ENGINES}
        if all(case.name in found["nnefc"] for case in cases):
            _raise_floor(found["nnefc"], cases)
        write_report(ROOT / "docs" / "onnx-conformance.md", cases, {k: v for k, v in found.items() if v})


def _raise_floor(outcomes: dict[str, Outcome], cases: list[Case]) -> None:
    """Keep what the tests came to, unless one came to less than before: then nothing is written."""
    floor = Floor()
    for name, text in (fallen := floor.fallen(outcomes)).items():
        print(f"{name}: {text}", file=sys.stderr)
    if fallen:
        sys.exit(f"{len(fallen)} tests came to less than tests/conformance/onnx/floor.txt says: nothing is written")
    floor.raise_to(outcomes, [case.name for case in cases])


def _read(path: Path) -> dict[str, Outcome]:
    if not path.exists():
        return {}
    rows = (json.loads(line) for line in path.read_text().splitlines() if line.endswith("]"))
    return {name: Outcome(status, reason) for name, status, reason in rows}


def run_all(engine: str, cases: list[Case], workers: int) -> Any:
    """Yields names and outcomes, in the order in which they come."""
    if engine == "nnefc":
        import_tvm()
        import nnefc.driver  # noqa: F401  # once for all processes, which are forked
    waiting = list(reversed(cases))
    busy: dict[Connection, tuple[Any, Case, float]] = {}
    while waiting or busy:
        while waiting and len(busy) < workers:
            _give(engine, _start(engine), waiting.pop(), busy)
        for connection in wait(list(busy), timeout=1.0):
            assert isinstance(connection, Connection)
            process, case, begin = busy.pop(connection)
            if (seconds := time.monotonic() - begin) > _SLOW:
                print(f"{case.name} took {seconds:.1f} s", file=sys.stderr)
            try:
                yield case.name, connection.recv()
            except (EOFError, ConnectionError):
                process.join()
                yield case.name, Outcome("broken", f"the process died with status {process.exitcode}")
                continue
            if waiting:
                _give(engine, (process, connection), waiting.pop(), busy)
            else:
                connection.close()
        for connection, (process, case, begin) in list(busy.items()):
            if time.monotonic() - begin > _SECONDS:
                del busy[connection]
                process.kill()
                process.join()
                yield case.name, Outcome("broken", f"no end after {_SECONDS} s")


def _start(engine: str) -> tuple[Any, Connection]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(engine, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _give(
    engine: str, worker: tuple[Any, Connection], case: Case, busy: dict[Connection, tuple[Any, Case, float]]
) -> None:
    worker[1].send(case)
    busy[worker[1]] = (worker[0], case, time.monotonic())


def _work(engine: str, connection: Connection) -> None:
    os.environ["TVM_NUM_THREADS"] = "1"
    while True:
        try:
            case = connection.recv()
        except EOFError:
            return
        connection.send(ENGINES[engine](case))


if __name__ == "__main__":
    main()
