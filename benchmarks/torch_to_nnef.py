"""Networks that torch-to-nnef exports, compared with PyTorch and tract: `python benchmarks/torch_to_nnef.py FOLDER
[NAME …]`.

FOLDER keeps the exports; what is missing is exported, for which these are needed:

    pip install torch_to_nnef torch torchvision timm transformers

Each network is compiled without options, run at all of its sizes, traced or not, and compared with PyTorch. At the
traced sizes it is measured compared with tract as `measure.py` does: each engine in a process of its own on one
processor, in turns. What counts is the time of processors on all threads of the process. Prints the page; of all
networks it is written to `results/PROCESSOR/torch_to_nnef.md`. With the exports there it takes about twelve minutes.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import click
import numpy as np
from conditions import Watch, page, write_page
from exact import errors
from measure import Latency, Plan, compile_library, take_turns
from peers import TRACT_NNEF
from worker import EngineError, Worker

import nnefc

TITLE = "Networks that torch-to-nnef exports, compared with tract"
HERE = Path(__file__).resolve().parent
LIBRARIES = HERE.parent / "build" / "torch_to_nnef"
NETWORKS = tuple(
    ast.literal_eval(key)
    for node in ast.parse((HERE / "exports" / "networks.py").read_text(encoding="utf-8")).body
    if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict)
    for key in node.value.keys
    if key is not None
)
"""Read without running that file, which needs what exports need."""
TOLERANCE = {"f32": 1e-4, "f16": 1e-2, "int8": 1e-2, "Q4_0": 1e-2}
_PATIENCE = 600.0


@dataclass(frozen=True)
class Row:
    """What was found for one network.

    Attributes:
        kind: of its weights.
        sizes: of each run; the first is the traced one.
        differences: of each run from PyTorch: the largest over the largest value.
        seconds: of compilation.
        latency: processor milliseconds of a run, by engine; tract may be missing.
        tract_difference: tract's difference from PyTorch, or why it does not run the network.
    """

    network: str
    kind: str
    sizes: tuple[Mapping[str, int], ...]
    differences: tuple[float, ...]
    seconds: float
    latency: Mapping[str, Latency]
    tract_difference: str

    @property
    def agrees(self) -> bool:
        """Whether all runs are as near to PyTorch as the weights let them be."""
        return max(self.differences) <= TOLERANCE[self.kind]

    @property
    def ratio(self) -> float | None:
        """tract's median over nnefc's: above one, nnefc takes less time. None where tract does not run it."""
        if TRACT_NNEF not in self.latency:
            return None
        return self.latency[TRACT_NNEF].median / self.latency["nnefc"].median


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("networks", nargs=-1, type=click.Choice(NETWORKS))
@click.option("--repeats", default=3, show_default=True, help="Turns of each engine.")
@click.option("--seconds", default=0.2, show_default=True, help="Length of a turn.")
def main(folder: Path, networks: tuple[str, ...], repeats: int, seconds: float) -> None:
    """Export to FOLDER what is not there, and measure NETWORKS, or all."""
    failed: dict[str, str] = {}
    for network in networks or NETWORKS:
        if not (folder / network / "recipe.json").exists():
            click.echo(f"exporting {network}", err=True)
            reason = export(network, folder)
            failed |= {network: reason} if reason else {}
    plan = Plan(threads=(1,), repeats=repeats, seconds=seconds, processor=True)
    watch = Watch()
    rows: list[Row] = []
    for network in networks or NETWORKS:
        if network in failed:
            continue
        click.echo(f"measuring {network}", err=True)
        try:
            rows.append(measure(network, folder / network, plan))
        except (EngineError, subprocess.SubprocessError, nnefc.RunError, nnefc.LoadError) as error:
            failed[network] = str(error).partition("\n")[0]
            click.echo(f"  failed: {failed[network]}", err=True)
            continue
        ratio, apart = rows[-1].ratio, max(rows[-1].differences)
        click.echo(f"  {'' if ratio is None else f'{ratio:.2f} ×, '}apart {apart:.1e}", err=True)
    conditions, lines = watch.end(), body(rows, failed, plan)
    click.echo(page(TITLE, conditions, lines))
    if not networks:
        write_page("torch_to_nnef", TITLE, conditions, lines)


def export(network: str, folder: Path) -> str:
    """Export a network in a process of its own; why it could not be, or nothing."""
    program = HERE / "exports" / "export.py"
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(program), str(folder), network],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=_PATIENCE,
            env=os.environ | {"TQDM_DISABLE": "1"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not exported in {_PATIENCE:.0f} s"
    if done.returncode == 0:
        return ""
    messages = [line for line in done.stderr.splitlines() if line.strip()] or ["for no reason that it tells"]
    return f"not exported: {messages[-1][:120]}"


def measure(network: str, folder: Path, plan: Plan) -> Row:
    """Compile a network, compare it with PyTorch at all sizes, and take turns with tract at the traced one."""
    recipe = json.loads((folder / "recipe.json").read_text())
    LIBRARIES.mkdir(parents=True, exist_ok=True)
    model, library = folder / "model.nnef.tgz", LIBRARIES / f"{network}.so"
    facts = compile_library(model, library)
    with nnefc.load(library, threads=1) as loaded:
        differences = []
        for number in range(len(recipe["sizes"])):
            values, expected = run_of(folder, number)
            (made,) = loaded.run(values).values()
            differences.append(difference(made, expected))
    values, expected = run_of(folder, 0)
    given = library.with_suffix(".npz")
    np.savez(given, **values)
    workers = [Worker("nnefc", library, given, 1)]
    try:
        try:
            workers.append(Worker(TRACT_NNEF, model, given, 1))
            tract_difference = f"{difference(answer(workers[1], LIBRARIES), expected):.1e}"
        except EngineError as error:
            slow = str(error).endswith(f"status {-signal.SIGALRM}")
            workers[1:], tract_difference = [], "needs more than 10 s for a run" if slow else "does not run it"
        latency = take_turns(workers, plan)
    finally:
        for worker in workers:
            worker.close()
    return Row(
        network, recipe["kind"], tuple(recipe["sizes"]), tuple(differences), facts["seconds"], latency, tract_difference
    )


def run_of(folder: Path, number: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The inputs of one of PyTorch's runs, and its output."""
    with np.load(folder / f"run{number}.npz") as arrays:
        values = dict(arrays)
    return values, values.pop("output")


def answer(worker: Worker, folder: Path) -> np.ndarray:
    """The first output of an engine."""
    file = folder / "answer.npz"
    worker.answer(file)
    with np.load(file) as arrays:
        first: np.ndarray = next(iter(arrays.values()))
    file.unlink()
    return first


def difference(made: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference over the largest value; infinite where shapes differ."""
    if np.shape(made) != np.shape(expected):
        return float("inf")
    return float(errors(np.asarray(made), expected)[0])


def body(rows: Sequence[Row], failed: Mapping[str, str], plan: Plan) -> list[str]:
    """What the table means, and the table."""
    ratios = [row.ratio for row in rows if row.ratio is not None]
    slower = [row.network for row in rows if row.ratio is not None and row.ratio < 1]
    agreeing = sum(row.agrees for row in rows)
    mean = f"{statistics.geometric_mean(ratios):.2f}" if ratios else "none"
    cells = [
        f"| {row.network} | {row.kind} | {spelled(row.sizes)} "
        f"| {'' if row.agrees else '**differs:** '}{', '.join(f'{apart:.1e}' for apart in row.differences)} "
        f"| {row.seconds:.1f} "
        f"| {shown(row.latency['nnefc'])} | {shown(row.latency.get(TRACT_NNEF))} "
        f"| {'' if row.ratio is None else f'{row.ratio:.2f}'} | {row.tract_difference} |"
        for row in rows
    ]
    return [
        f"nnefc {version('nnefc')}, tract {version('tract')}.",
        "",
        "Networks with random weights, exported by torch-to-nnef for tract, and compiled as they are. *Sizes*: of the"
        " traced run, then of others, which the same library computes. *Apart*: of each run the largest difference from"
        " PyTorch over the largest value; 1e-4 may be between them, 1e-2 for weights of 16 bits and fewer. *Compile*:"
        " seconds. Milliseconds of one run at the traced sizes on all threads of the process, held to one processor:"
        f" median (minimum) of {plan.repeats} turns of at least {plan.seconds} s. tract runs the fastest of "
        f"its optimized"
        " forms: as it is, with the traced sizes for symbols, with operators of transformers found. *Ratio*: tract's"
        " median over nnefc's; above 1 nnefc takes less time. *tract apart*: how far it is from PyTorch.",
        "",
        f"{len(rows)} of {len(rows) + len(failed)} networks load, {agreeing} agree with PyTorch at all sizes. Geometric"
        f" mean of {len(ratios)} ratios: {mean}. Slower than tract: {', '.join(slower) or 'none'}.",
        "",
        "| network | weights | sizes | apart | compile | nnefc | tract | ratio | tract apart |",
        "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
        *cells,
        *(f"| {name} | | {reason.replace('|', '/')} |" for name, reason in failed.items()),
    ]


def spelled(sizes: Sequence[Mapping[str, int]]) -> str:
    """The sizes of all runs; nothing where none is open."""
    return "; ".join(", ".join(f"{name} = {size}" for name, size in each.items()) for each in sizes)


def shown(latency: Latency | None) -> str:
    """Median and minimum time."""
    return "" if latency is None else f"{latency.median:.3f} ({latency.minimum:.3f})"


if __name__ == "__main__":
    main()
