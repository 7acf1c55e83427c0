"""Run all tests in parts, and write what became of them into docs/what-works.md: `make nightly`.

    python docs/nightly.py [--part 2/12] [--workers 2]
    python docs/nightly.py --page                      # writes the page from tests/nightly.json

All tests, slow ones among them, take longer than a night on two processors. Each part is a set of whole files of tests
(`pytest --part`), so that a night runs some, or a weekend all. What a part gave is kept with its commit in
tests/nightly.json, from which the page has its table; sources that differ from a commit are run, and not recorded.
A test that does not end has failed after two hours, and a part that pytest cannot run leaves the others to run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

__all__ = ["PAGE", "PARTS", "RECORD", "Verdict", "page", "verdict_of"]

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "what-works.md"
RECORD = ROOT / "tests" / "nightly.json"
PARTS = 12
MAX_NAMED = 20
"""Failed tests that the page names."""
_LONGEST = 7200
"""Seconds after which the process of a test is ended; another one runs the tests that are left."""
_BEGIN, _END = "<!-- nightly -->\n", "<!-- end of nightly -->\n"
_WRITTEN = (":!docs/what-works.md", ":!tests/nightly.json")
_HEAD = (
    "    make nightly LOCKED=1 PART=1/12       # without PART: all parts in turn",
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
    """

    date: str
    commit: str
    minutes: int
    passed: int
    skipped: int
    failed: tuple[str, ...]
    packages: str


def verdict_of(results: Path, commit: str, minutes: float) -> Verdict:
    """Read what pytest wrote with `--junitxml`."""
    passed, skipped, failed = 0, 0, []
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed.append(f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}")
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
    packages = ", ".join(f"{name} {version(name)}" for name in ("apache-tvm", "ziglang", "onnx", "onnxruntime"))
    return Verdict(
        f"{datetime.now(UTC):%Y-%m-%d}", commit, round(minutes), passed, skipped, tuple(sorted(failed)), packages
    )


def page() -> str:
    """The text of the page, with the section of this record."""
    record: Mapping[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    before, _, tail = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = tail.partition(_END)
    body = "\n".join(["## All tests", "", *_HEAD, *_table(record)])
    return f"{before}{_BEGIN}{body}\n{_END}{after}"


def _table(record: Mapping[str, Any]) -> Iterator[str]:
    yield "| part | ended | commit | passed | failed | skipped | minutes | with |"
    yield "|---|---|---|---:|---:|---:|---:|---|"
    names = [f"{number}/{PARTS}" for number in range(1, PARTS + 1)]
    for name in names:
        if name in record:
            found = Verdict(**record[name])
            counts = f"{found.passed:,} | {len(found.failed)} | {found.skipped:,} | {found.minutes}"
            yield f"| {name} | {found.date} | `{found.commit}` | {counts} | {found.packages} |"
    waiting = [name for name in names if name not in record]
    if waiting:
        yield ""
        yield f"Not run yet: {', '.join(waiting)}."
    failed = [test for name in names for test in record.get(name, {}).get("failed", ())]
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
    commit, start = _commit(), time.monotonic()
    words = ["-n", str(workers), "--dist", "worksteal", "--durations", "20", "--part", part, f"--junitxml={results}"]
    words += ["-o", f"faulthandler_timeout={_LONGEST}", "-o", "faulthandler_exit_on_timeout=true"]
    done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, check=False)
    if done.returncode not in (0, 1):  # something else than tests that fail
        raise click.ClickException(f"pytest ended with {done.returncode}: nothing is recorded of the part {part}")
    return verdict_of(results, commit, (time.monotonic() - start) / 60)


def _write() -> None:
    PAGE.write_text(page(), encoding="utf-8")


@click.command()
@click.option("--part", help=f"One of 1/{PARTS} … {PARTS}/{PARTS}.  [default: all, one after the other]")
@click.option("--workers", default=2, show_default=True, help="Processes.")
@click.option("--page", "page_alone", is_flag=True, help="Write the page from the record, and run nothing.")
def main(part: str | None, workers: int, page_alone: bool) -> None:
    """Run the tests, and record what became of them."""
    names = [f"{number}/{PARTS}" for number in range(1, PARTS + 1)]
    if page_alone:
        _write()
        return
    if part is not None and part not in names:
        raise click.UsageError(f"--part {part}: there are {', '.join(names)}")
    failed, errors = 0, []
    for name in names if part is None else [part]:
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
        record = json.loads(RECORD.read_text(encoding="utf-8")) | {name: asdict(verdict)}
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        _write()
    if failed:
        errors.append(f"{failed} tests failed")
    if errors:
        raise click.ClickException("; ".join(errors))


if __name__ == "__main__":
    main()
