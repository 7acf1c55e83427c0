"""The runtime under stress: `python tests/fuzz/runtime_stress.py [--minutes 60] [--seed 0]`.

First the model of its threads in every order of steps (`pool_model.py`), in larger settings than the tests take. Then
`storm.c` by turns as a library is built, with libraries that are opened and closed, and under the sanitizers of threads
and of memory: sessions of all kinds from many threads while processes fork, signals arrive, threads are moved to other
processors, and memory runs out. It ends at the first failure, and says how to have it again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "helpers"), str(TESTS / "targets" / "runtime"), str(TESTS / "fuzz")]

import click  # noqa: E402
from pool_model import explore  # noqa: E402
from record import Record  # noqa: E402
from runtime_samples import ZIG_CC, sample_library  # noqa: E402
from test_runtime_model import SETTINGS  # noqa: E402
from test_runtime_sanitizers import (  # noqa: E402
    ARM,
    COMPILERS,
    ON_ARM,
    THREADS,
    build_stress,
    can_link_and_run,
)

_SECONDS = 20
_OPENED = "libraries opened and closed"
_PATIENCE = 300


def ways(folder: Path) -> dict[str, list[str]]:
    """The commands to run, by name, to whose seconds a seed is added; a sanitizer that is not installed is left out."""
    compilers = {"as a library is built": [*ZIG_CC, "-O2"]}
    wanted = [(THREADS, COMPILERS), ("-fsanitize=address,undefined", COMPILERS), (THREADS, (ARM,))]
    for flag, names in wanted:
        compiler = next((name for name in names if can_link_and_run(name, flag)), None)
        if compiler is None:
            click.echo(f"without {flag}: it needs {' or '.join(names)}", err=True)
        else:
            compilers[f"{compiler} {flag}"] = [compiler, "-O1", "-g", flag, "-fno-sanitize-recover=all"]
    found = {}
    for number, (name, command) in enumerate(compilers.items()):
        built = folder / str(number)
        built.mkdir()
        runs = ON_ARM if command[0] == ARM else ()
        found[name] = [*runs, str(build_stress(command, built)), str(_SECONDS)]
    copies = [str(shutil.copy(sample_library(), folder / f"{number}.so")) for number in range(3)]
    return {**found, _OPENED: [*found["as a library is built"], *copies]}


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the first storm.")
@click.option("--record", type=click.Path(path_type=Path), help="A file of counts that this run is added to.")
def main(minutes: float, seed: int, record: Path | None) -> None:
    """Stress the runtime."""
    begin = time.monotonic()
    end = begin + 60 * minutes
    states = {}
    for name, setting in SETTINGS.items():
        explored = explore(setting)
        states[name] = explored.states
        click.echo(f"model, {name}: {explored.states:,} states, {explored.steps:,} steps")
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="nnefc-stress-") as folder:
        commands = ways(Path(folder))
        while time.monotonic() < end:
            name = list(commands)[seed % len(commands)]
            index = commands[name].index(str(_SECONDS)) + 1
            command = [*commands[name][:index], str(seed), *commands[name][index:]]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
                failed, printed = done.returncode != 0, done.stdout + done.stderr
            except subprocess.TimeoutExpired as late:
                failed, printed = True, f"did not end within {late.timeout:.0f} s"
            if failed:
                raise click.ClickException(f"{name}, seed {seed}: {printed[-4000:]}")
            for part in printed.splitlines()[0].split(", "):
                number, what = part.split()
                counts[what] += int(number)
            seed += 1
    if record is not None:
        stressed = {"minutes": round((time.monotonic() - begin) / 60)}
        Record({"states": states, "runtime": counts, "stressed": stressed}).add_to(record)
    click.echo(", ".join(f"{number:,} {what}" for what, number in counts.items()) + ": no failure")


if __name__ == "__main__":
    main()
