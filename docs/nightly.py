"""Run all tests in parts, and write what became of them into docs/what-works.md: `make nightly`.

    python docs/nightly.py [--part 2/8] [--workers 2]
    python docs/nightly.py --page                      # writes the page from tests/nightly.json

All tests, slow ones among them, take some two hours on two processors. Each part is a stretch of the tests in the order
of their files (`pytest --part`), and takes about a quarter of an hour where nothing else runs. Without `--part`, parts
that are not on record come first, then those that ran longest ago, so that each night goes on where another one ended.
What a part gave is kept with its commit in tests/nightly.json, from which the page has its table; sources that differ
from a commit are run, and not recorded. A test that does not end has failed after half an hour, and a part that pytest
cannot run leaves the others to run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import click

__all__ = ["PAGE", "PARTS", "RECORD", "Verdict", "page", "recorded", "verdict_of"]

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "what-works.md"
RECORD = ROOT / "tests" / "nightly.json"
PARTS = tuple(f"{number}/8" for number in range(1, 9))
MAX_NAMED = 20
"""Failed tests that the page names."""
_LONGEST = 1800
"""Seconds after which the process of a test is ended; another one runs the tests that are left."""
_BEGIN, _END = "<!-- nightly -->\n", "<!-- end of nightly -->\n"
_WRITTEN = (":!docs/what-works.md", ":!tests/nightly.json")
_HEAD = (
    f"    make nightly LOCKED=1 PART={PARTS[0]}       # without PART: all parts, those first that ran longest ago",
    "",
    "All tests, also those that `make test` leaves out: whole networks, tests of ONNX with dynamic shapes, commands",
    "of all pages, all interleavings of threads. With `LOCKED=1` packages are those of `packaging/locked.txt`.",
    "",
)


@dataclass(frozen=True)
class Verdict:
    """What became of a part.

    Attributes:
        date: when it ended, UTC.
        packages: versions of what most depends on.
        failed: names of tests that failed, or whose setup did.
        minutes: how long it ran, which is longer where other programs run.
        processor_minutes: how much of that it computed, in all of its processes together.
        files: the first and the last file of its tests.
        left_out: files whose packages are not installed, also those of other parts.
    """

    date: str
    commit: str
    minutes: int
    processor_minutes: int
    passed: int
    skipped: int
    failed: tuple[str, ...]
    packages: str
    files: tuple[str, str]
    left_out: tuple[str, ...]


def verdict_of(results: Path, commit: str, minutes: float, processor_minutes: float) -> Verdict:
    """Read what pytest wrote with `--junitxml`."""
    passed, skipped, failed, files, left_out = 0, 0, [], set(), set()
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        kinds, module, name = {child.tag for child in case}, case.get("classname", ""), case.get("name", "")
        if not module and kinds == {"skipped"}:  # a whole file, when it was imported
            left_out.add(_file(name))
            continue
        file = _file(module or name)
        files.add(file)
        if kinds & {"failure", "error"}:
            failed.append(f"{file}::{name}")
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
    packages = ", ".join(f"{name} {version(name)}" for name in ("apache-tvm", "ziglang", "onnx", "onnxruntime"))
    return Verdict(
        f"{datetime.now(UTC):%Y-%m-%d}",
        commit,
        round(minutes),
        round(processor_minutes),
        passed,
        skipped,
        tuple(sorted(failed)),
        packages,
        (min(files), max(files)),
        tuple(sorted(left_out)),
    )


def _file(module: str) -> str:
    return f"{module.replace('.', '/')}.py"


def recorded() -> dict[str, Verdict]:
    """The latest verdict on each part that has one, by its name."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    return {name: Verdict(**record[name]) for name in PARTS if name in record}


def page() -> str:
    """The text of the page, with the section of this record."""
    before, _, tail = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = tail.partition(_END)
    body = "\n".join(["## All tests", "", *_HEAD, *_table(recorded())])
    return f"{before}{_BEGIN}{body}\n{_END}{after}"


def _table(record: Mapping[str, Verdict]) -> Iterator[str]:
    yield "| part | from | to | ended | commit | passed | failed | skipped | minutes | processor minutes | with |"
    yield "|---|---|---|---|---|---:|---:|---:|---:|---:|---|"
    for name, found in record.items():
        files = " | ".join(f"`{file}`" for file in found.files)
        counts = f"{found.passed:,} | {len(found.failed)} | {found.skipped:,}"
        minutes = f"{found.minutes} | {found.processor_minutes}"
        yield f"| {name} | {files} | {found.date} | `{found.commit}` | {counts} | {minutes} | {found.packages} |"
    waiting = [name for name in PARTS if name not in record]
    if waiting:
        yield ""
        yield f"Not run yet: {', '.join(waiting)}."
    left_out = sorted({file for found in record.values() for file in found.left_out})
    if left_out:
        yield ""
        yield f"Left out, for packages that are not there: {', '.join(f'`{file}`' for file in left_out)}."
    failed = [test for found in record.values() for test in found.failed]
    if failed:
        yield ""
        yield (
            "Failed: "
            + ", ".join(f"`{name}`" for name in failed[:MAX_NAMED])
            + ", and others" * (len(failed) > MAX_NAMED)
            + "."
        )


def _commit() -> str:
    """The commit of the sources, with "+" where files differ from it."""
    git = ["git", "-C", str(ROOT)]
    found = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", ".", *_WRITTEN], capture_output=True, text=True, check=True
    )
    return found.stdout.strip() + "+" * bool(changed.stdout.strip())


def run_part(part: str, workers: int) -> Verdict:
    """Run the tests of a part; what pytest prints is shown."""
    results = ROOT / "build" / "nightly" / f"{part.replace('/', '-of-')}.xml"
    results.parent.mkdir(parents=True, exist_ok=True)
    results.unlink(missing_ok=True)
    commit, start, used = _commit(), time.monotonic(), _used_by_children()
    words = ["-n", str(workers), "--dist", "worksteal", "--durations", "20", "--part", part, f"--junitxml={results}"]
    words += ["-o", f"faulthandler_timeout={_LONGEST}", "-o", "faulthandler_exit_on_timeout=true"]
    done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, check=False)
    if done.returncode not in (0, 1):  # something else than tests that fail
        raise click.ClickException(f"pytest ended with {done.returncode}: nothing is recorded of the part {part}")
    return verdict_of(results, commit, (time.monotonic() - start) / 60, (_used_by_children() - used) / 60)


def _used_by_children() -> float:
    """Seconds of processors that ended processes have taken, and those that they waited for."""
    return sum(os.times()[2:4])


def _write() -> None:
    PAGE.write_text(page(), encoding="utf-8")


@click.command()
@click.option("--part", help=f"One of {PARTS[0]} … {PARTS[-1]}.  [default: all, those first that ran longest ago]")
@click.option("--workers", default=2, show_default=True, help="Processes.")
@click.option("--page", "page_alone", is_flag=True, help="Write the page from the record, and run nothing.")
def main(part: str | None, workers: int, page_alone: bool) -> None:
    """Run the tests, and record what became of them."""
    if page_alone:
        _write()
        return
    if part is not None and part not in PARTS:
        raise click.UsageError(f"--part {part}: there are {', '.join(PARTS)}")
    ended = {name: verdict.date for name, verdict in recorded().items()}
    failed, errors = 0, []
    for name in sorted(PARTS, key=lambda name: ended.get(name, "")) if part is None else [part]:
        try:
            verdict = run_part(name, workers)
        except click.ClickException as error:
            errors.append(error.message)
            continue
        failed += len(verdict.failed)
        click.echo(f"{name}: {verdict.passed} passed, {len(verdict.failed)} failed, {verdict.skipped} skipped")
        if len(verdict.commit) != 12:
            click.echo(f"{name} is not recorded: files differ from their commit", err=True)
            continue
        record = {name: asdict(found) for name, found in (recorded() | {name: verdict}).items()}
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        _write()
    if failed:
        errors.append(f"{failed} tests failed")
    if errors:
        raise click.ClickException("; ".join(errors))


if __name__ == "__main__":
    main()
