"""nnefc compared with ncnn on networks that both have from one PNNX source: `python benchmarks/ncnn_networks.py [NAME
…]`.

Needs `torch`, `pnnx` and `ncnn`. Traces the networks of the PNNX tests with larger inputs, three of them as wide as
published too, converts each once, and measures the result of both compilers in float32 as `measure.py` does: each in a
process of its own, in turns. Prints the page; of all networks it is written to `results/PROCESSOR/pnnx.md`. About six
minutes.

ncnn shares a convolution among threads by blocks of output channels, each as long as a vector. The networks of the
tests have one or two such blocks in most layers, so that a second thread has nothing to do there: they are measured on
one thread.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np
from conditions import Watch, page, write_page
from measure import Latency, Plan, answers_of, take_turns
from worker import EngineError, Worker

import nnefc

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "tests" / "data" / "pnnx"
TITLE = "nnefc compared with ncnn, both from PNNX"


@dataclass(frozen=True)
class Case:
    """A network of the tests, and how it is measured.

    Attributes:
        name: of the module, in `tests/data/pnnx/networks.py`.
        shape: of the input.
        wide: arguments of a module with as many channels as published; without them it is on one thread.
    """

    name: str
    shape: tuple[int, ...]
    wide: Mapping[str, int] = field(default_factory=dict)


CASES = {
    "resnet18": Case("resnet18", (1, 3, 224, 224)),
    "mobilenet_v2": Case("mobilenet_v2", (1, 3, 224, 224)),
    "unet": Case("unet", (1, 1, 256, 256)),
    "detector": Case("detector", (1, 3, 320, 320)),
    "vit": Case("vit", (1, 3, 32, 32)),
    "tagger": Case("tagger", (1, 64)),
    "resnet18_wide": Case("resnet18", (1, 3, 224, 224), {"width": 64, "classes": 1000}),
    "mobilenet_v2_wide": Case("mobilenet_v2", (1, 3, 224, 224), {"times": 4, "classes": 1000}),
    "unet_wide": Case("unet", (1, 1, 256, 256), {"width": 64}),
}
ENGINES = {"nnefc": ".so", "ncnn": ".ncnn.param"}


@dataclass(frozen=True)
class Row:
    """What was found for one network and number of threads; `agreement` is the largest difference over the largest
    value of ncnn's output."""

    network: str
    threads: int
    latency: dict[str, Latency]
    agreement: float

    @property
    def ratio(self) -> float:
        """ncnn's median over nnefc's: above one, nnefc is faster."""
        return self.latency["ncnn"].median / self.latency["nnefc"].median


def convert(name: str, folder: Path) -> Path:
    """Both conversions of one network and an input for it into `folder`; returns the path without an ending."""
    import pnnx
    import torch

    sys.path.insert(0, str(DATA))
    from make import settle
    from networks import NETWORKS

    torch.manual_seed(0)
    case = CASES[name]
    shape, words = case.shape, case.name == "tagger"
    value = torch.randint(0, 50, shape) if words else torch.randn(*shape)
    base = folder / name
    np.savez(base.with_suffix(".npz"), value.numpy())
    module = NETWORKS[case.name][0](**case.wide).eval()
    settle(module)
    torch.jit.trace(module, value, check_trace=False).save(str(base.with_suffix(".pt")))
    sizes = ",".join(map(str, shape))
    # fp16=0: what ncnn stores stays float32.
    command = [pnnx.EXEC_PATH, f"{name}.pt", f"inputshape=[{sizes}]{'i64' if words else 'f32'}", "fp16=0"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    nnefc.compile(f"{base}.pnnx.param").export(f"{base}.so")
    return base


def measure(name: str, plan: Plan, folder: Path) -> list[Row]:
    """A row for each number of threads."""
    base = convert(name, folder)
    rows = []
    for threads in plan.threads if CASES[name].wide else (1,):
        workers: list[Worker] = []
        try:
            for engine, ending in ENGINES.items():
                workers.append(Worker(engine, Path(f"{base}{ending}"), base.with_suffix(".npz"), threads))
            agreement = difference(workers, folder)
            rows.append(Row(name, threads, take_turns(workers, plan), agreement))
        finally:
            for worker in workers:
                worker.close()
    return rows


def difference(workers: Sequence[Worker], folder: Path) -> float:
    """The largest difference of the outputs over the largest value of the last one's."""
    own, other = (output.astype(np.float64) for (output,) in answers_of(workers, folder).values())
    return float(np.abs(own.reshape(other.shape) - other).max() / np.abs(other).max())


def body(rows: Sequence[Row], failed: Mapping[str, str], plan: Plan) -> list[str]:
    """What the table means, and the table; `failed` has reasons, by network."""
    kinds = {"narrow": [1], "wide": plan.threads}
    means = [
        f"{statistics.geometric_mean(ratios):.2f} of the {kind} ones on {threads} thread{'s' if threads > 1 else ''}"
        for kind, counts in kinds.items()
        for threads in counts
        if (
            ratios := [
                r.ratio for r in rows if r.threads == threads and bool(CASES[r.network].wide) == (kind == "wide")
            ]
        )
    ]
    cells = [
        f"| {row.network} | {row.threads} | {shown(row.latency['nnefc'])} | {shown(row.latency['ncnn'])} "
        f"| {row.ratio:.2f} | {row.agreement:.1e} |"
        for row in rows
    ]
    return [
        f"nnefc {version('nnefc')}, ncnn {version('ncnn')}, pnnx {version('pnnx')}.",
        "",
        "The small networks of the PNNX tests on larger inputs, and three of them as wide as published, with random"
        " weights, a batch of one, float32: ncnn with storage and arithmetic of 16 bits off. ncnn shares a convolution"
        " among threads by blocks of output channels, of which the small ones have one or two in most layers: they are"
        " measured on one thread. Each engine in a process of its own, held to as many processors as threads;"
        f" warmed up, then in turns, {plan.repeats} of at least {plan.seconds} s. Milliseconds: median (minimum)."
        " *Ratio*: ncnn's median over nnefc's; above 1 nnefc is faster. *Agreement*: the largest difference of the"
        " outputs over the largest value.",
        "",
        f"Geometric mean of the ratios: {', '.join(means)}.",
        "",
        "| network | threads | nnefc | ncnn | ratio | agreement |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        *cells,
        *(f"| {name} | | not measured: {reason} |" for name, reason in failed.items()),
    ]


def shown(latency: Latency) -> str:
    """Median and minimum time."""
    return f"{latency.median:.3f} ({latency.minimum:.3f})"


def main(names: Sequence[str]) -> None:
    """Measure the networks named, or all."""
    processors = len(os.sched_getaffinity(0))
    plan = Plan(threads=tuple(count for count in Plan.threads if count <= processors))
    watch = Watch()
    rows: list[Row] = []
    failed: dict[str, str] = {}
    for name in names or CASES:
        print(f"measuring {name}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            try:
                rows += measure(name, plan, Path(folder))
            except EngineError as error:
                failed[name] = str(error).partition("\n")[0]
                print(f"  not measured: {failed[name]}", file=sys.stderr)
    conditions, lines = watch.end(), body(rows, failed, plan)
    print(page(TITLE, conditions, lines))
    if not names:
        write_page("pnnx", TITLE, conditions, lines)


if __name__ == "__main__":
    main(sys.argv[1:])
