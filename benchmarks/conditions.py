"""The conditions of a measurement, and the pages of results that state them.

Every page below `benchmarks/results` is written whole by its script, through :func:`write_page`: with the date, the
commit, the machine, and how many processors other programs kept busy before, during and after. A page is refused, not
written with a warning, where that number is above `MAX_BUSY` or the commit is not what was measured. What was timed
lies in a folder with the name of its processor, so that each kind has its own pages; `results/README.md` lists all.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

__all__ = [
    "MAX_BUSY",
    "RESULTS",
    "Conditions",
    "Watch",
    "busy_processors",
    "commit",
    "list_of_pages",
    "machine",
    "page",
    "processor",
    "write_page",
]

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
MAX_BUSY = 0.3
"""Processors that other programs may keep busy during a measurement that is published."""

_WRITTEN = (":!benchmarks/results", ":!tests/conformance/onnx/floor.txt")
_MEASURED = ("compiler", "passes", "targets", "benchmarks", "tests", "pyproject.toml", *_WRITTEN)


@dataclass(frozen=True)
class Conditions:
    """When, of what and where something was measured.

    Attributes:
        date: the end of the measurement, UTC.
        commit: of the sources, 12 digits; with "+" where files differ from it.
        machine: the processor and the system.
        busy: how many processors other programs kept busy before, during and after; empty where time plays no part.
        minutes: that the measurement took; None where that was not observed.
    """

    date: str
    commit: str
    machine: str
    busy: tuple[float, ...] = ()
    minutes: float | None = None

    @staticmethod
    def now() -> Conditions:
        """Of results in which time plays no part."""
        return Conditions(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", commit(), machine())

    def lines(self) -> list[str]:
        """The paragraph that every page begins with."""
        text = [f"Measured on {self.date}, commit {self.commit}.", f"{self.machine}."]
        if self.busy:
            numbers = "{:.2f} before, {:.2f} during, {:.2f} after".format(*self.busy)
            text.append(f"Processors that other programs kept busy: {numbers}.")
        if self.minutes is not None:
            text.append(f"It took {max(1, round(self.minutes))} min.")
        return [" ".join(text), ""]


class Watch:
    """Looks at the machine before and after a measurement; between them only this process and its children count as
    the measurement's own. Children must have been waited for when it ends."""

    def __init__(self, seconds: float = 5.0) -> None:
        """Sample the machine for `seconds`."""
        self._seconds = seconds
        self.before = busy_processors(seconds)
        self._clock, self._all, self._own = time.monotonic(), _busy_seconds(), _own_seconds()

    def end(self) -> Conditions:
        """The conditions, now that all is measured."""
        minutes = (time.monotonic() - self._clock) / 60
        others = (_busy_seconds() - self._all) - (_own_seconds() - self._own)
        during = max(0.0, others / max(time.monotonic() - self._clock, 1e-9))
        busy = (self.before, during, busy_processors(self._seconds))
        now = Conditions.now()
        return Conditions(now.date, now.commit, now.machine, busy, minutes)


def write_page(name: str, title: str, conditions: Conditions, body: Sequence[str], results: Path = RESULTS) -> Path:
    """Write the page `name`.md of results, whole, and the list of all pages; returns its path.

    Raises:
        click.ClickException: other programs kept processors busy, or the sources differ from their commit.
    """
    if max(conditions.busy, default=0.0) > MAX_BUSY:
        raise click.ClickException(
            f"{name} is not written: other programs kept {max(conditions.busy):.2f} processors busy, "
            f"{MAX_BUSY} at most spoil nothing"
        )
    if len(conditions.commit) != 12:
        raise click.ClickException(f"{name} is not written: commit what you measure first")
    folder = results / processor() if conditions.busy else results
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.md"
    path.write_text(page(title, conditions, body), encoding="utf-8")
    (results / "README.md").write_text(list_of_pages(results), encoding="utf-8")
    return path


def list_of_pages(results: Path = RESULTS) -> str:
    """The text of `results/README.md`: every page with its processor, date and commit, as the page itself says."""
    lines = [
        "# Results",
        "",
        "What was timed lies in a folder for each kind of processor, as LLVM names it; what does not depend on the",
        "machine lies here. Each page says with which command, when, of which commit and where it was measured.",
        "",
        "| page | processor | measured | commit |",
        "|---|---|---|---|",
    ]
    for path in sorted(results.rglob("*.md"), key=lambda path: (path.stem, path)):
        text = path.read_text(encoding="utf-8")
        found = re.search(r"^Measured on (\S+) .*?commit ([0-9a-f]{12})\.", text, re.MULTILINE)
        if found is None:
            continue
        kind = "" if path.parent == results else path.parent.name
        title = text.partition("\n")[0].removeprefix("# ")
        lines.append(f"| [{title}]({path.relative_to(results).as_posix()}) | {kind} | {found[1]} | `{found[2]}` |")
    return "\n".join([*lines, ""])


def page(title: str, conditions: Conditions, body: Sequence[str]) -> str:
    """The text of a page."""
    script = Path(sys.argv[0]).resolve()
    name = script.relative_to(ROOT) if script.is_relative_to(ROOT) else script.name
    head = [f"# {title}", "", f"Generated by `python {name}`; do not edit.", ""]
    return "\n".join([*head, *conditions.lines(), *body, ""])


def commit() -> str:
    """The commit of the sources, with "+" where measured files differ from it; "unknown" outside a checkout."""
    try:
        git = ["git", "-C", str(ROOT)]
        found = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", *_MEASURED], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip() + "+" * bool(changed.stdout.strip())


def processor() -> str:
    """LLVM's name of this machine's processor."""
    from tvm.target.codegen import llvm_get_system_cpu

    return str(llvm_get_system_cpu())


def machine() -> str:
    """The processors, by their own name and by LLVM's, and the system."""
    model, count = platform.processor() or platform.machine(), len(os.sched_getaffinity(0))
    information = Path("/proc/cpuinfo")
    if information.exists():
        lines = information.read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{count} × {model} ({processor()}), {system}"


def busy_processors(seconds: float) -> float:
    """How many processors were kept busy in the next `seconds`, by whatever runs."""
    clock, busy, own = time.monotonic(), _busy_seconds(), _own_seconds()
    time.sleep(seconds)
    return max(0.0, (_busy_seconds() - busy - _own_seconds() + own) / max(time.monotonic() - clock, 1e-9))


def _busy_seconds() -> float:
    """Processor time of the whole machine so far; what a hypervisor took away counts too."""
    user, nice, system, _idle, _waiting, *tail = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + sum(tail)) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Processor time of this process and of those children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
