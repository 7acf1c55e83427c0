"""Products of one row with matrices of 4 bits, compared with the speed of the memory that they are read from.

    python benchmarks/weights_only.py [--threads 1 --threads 2] [--repeats 16] [--seconds 0.1]

Such products, `MatMulNBits` of ONNX, are what a language model computes for each token; every byte of a matrix is read
once. A chain of them has several times the bytes that caches hold. Compared with onnxruntime, and compared with an
array of as many bytes that is read from end to end. Writes results/PROCESSOR/weights_only.md.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import onnx
from conditions import Watch, page, write_page
from measure import REFERENCE, Plan, answers_of, compile_library, difference, start, take_turns
from onnx import TensorProto, helper, numpy_helper
from peak import MemoryReader, build_peak
from report import table, time_spelled

FOLDER = Path(__file__).resolve().parent.parent / "build" / "weights_only"
TITLE = "Products of one row with weights of 4 bits"
WIDTHS = (4096, 11008)
"""Rows and columns of every other matrix; of those between them, columns and rows."""
_PAIR_BYTES = WIDTHS[0] * WIDTHS[1]  # of two matrices, without scales
_MIN_BYTES = 3 * _PAIR_BYTES  # of a chain, 135 MB
_MAX_BYTES = 1_400_000_000  # scales and zero points add a third at most, and files of ONNX end at 2 GiB
_CACHES = 4  # times the bytes that caches hold
_MEMORY = 1 / 16  # of the machine's, as a model is held several times while it is made, compiled and loaded
_MICROSOFT = "com.microsoft"
_EXPLANATION = (
    "A chain of {products} products, of {0} × {1} and {1} × {0} random weights in turns: {megabytes:.0f} MB of 4 bits,",
    "where the caches of the last level hold {cache:.0f} MB. Medians in milliseconds, of runs that both engines and a",
    "program that reads an array took in turns. *Level*: the model's `accuracy_level`; 4 lets engines round rows to 8",
    "bits. *MB*: constants that nnefc reads. *memory*: the time that an array of as many bytes takes to be read on as",
    "many threads, and *GB/s* its speed; *of memory*: that time over nnefc's. *Difference*: of results, over the",
    "largest one.",
    "",
)


def cache_bytes(threads: int, devices: Path = Path("/sys/devices/system/cpu")) -> int:
    """What the caches of the third level hold that as many processors use as there are threads; 0 if none is known."""
    found = {}
    for processor in sorted(os.sched_getaffinity(0))[:threads]:
        for cache in devices.glob(f"cpu{processor}/cache/index*"):
            if (cache / "level").read_text().strip() == "3":
                shared = (cache / "shared_cpu_list").read_text()
                found[shared] = int((cache / "size").read_text().strip().removesuffix("K")) * 1024
    return sum(found.values())


def pairs_of_matrices(cache: int, memory: int) -> int:
    """Of a chain that is several times as large as caches of so many bytes, or as a machine's memory allows."""
    largest = max(min(_MAX_BYTES, int(memory * _MEMORY)), _MIN_BYTES)
    return math.ceil(min(max(_CACHES * cache, _MIN_BYTES), largest) / _PAIR_BYTES)


@dataclass(frozen=True)
class Kind:
    """How weights are stored: elements that share a scale, whether there are zero points, what engines may round rows
    to.

    Attributes:
        level: `accuracy_level` of `MatMulNBits`; 0 keeps rows in float32, 4 lets them be rounded to 8 bits.
    """

    block: int
    zeros: bool = False
    level: int = 0

    @property
    def name(self) -> str:
        """Of its files."""
        return f"blocks_of_{self.block}{'_zeros' if self.zeros else ''}_{self.level}"


KINDS = (Kind(32), Kind(32, level=4), Kind(32, zeros=True), Kind(64), Kind(128), Kind(128, zeros=True, level=4))


@dataclass(frozen=True)
class Row:
    """What was found for one kind and number of threads.

    Attributes:
        bytes: of nnefc's constants.
        milliseconds: of a run, by engine, and of reading an array as large.
        difference: of the results.
    """

    kind: Kind
    threads: int
    bytes: int
    milliseconds: dict[str, float]
    difference: float


def model_of(kind: Kind, pairs: int) -> onnx.ModelProto:
    """The chain, whose results are about as large as what is multiplied."""
    rng = np.random.default_rng(0)
    nodes, constants, name = [], [], "x"
    for position in range(2 * pairs):
        depth, columns = WIDTHS if position % 2 == 0 else WIDTHS[::-1]
        blocks = -(-depth // kind.block)
        scales = rng.uniform(0.5, 1, (columns, blocks)) / (3.5 * np.sqrt(depth))  # 3.5: the deviation of their products
        parts = {
            "b": rng.integers(0, 256, (columns, blocks, kind.block // 2), dtype=np.uint8),
            "scales": scales.astype(np.float32),
        }
        if kind.zeros:
            low, high = rng.integers(6, 10, (2, columns, -(-blocks // 2)), dtype=np.uint8)
            parts["zeros"] = low | high << 4
        constants += [numpy_helper.from_array(array, f"{key}{position}") for key, array in parts.items()]
        sizes = {"K": depth, "N": columns, "bits": 4, "block_size": kind.block, "accuracy_level": kind.level}
        inputs = [name, *(f"{key}{position}" for key in parts)]
        name = f"y{position}"
        nodes.append(helper.make_node("MatMulNBits", inputs, [name], domain=_MICROSOFT, **sizes))
    given, result = (helper.make_tensor_value_info(each, TensorProto.FLOAT, [1, WIDTHS[0]]) for each in ("x", name))
    graph = helper.make_graph(nodes, "chain", [given], [result], constants)
    versions = [helper.make_opsetid("", 21), helper.make_opsetid(_MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def measure(kind: Kind, pairs: int, plan: Plan) -> list[Row]:
    """Compile the chain, and run it in both engines."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    model, library, given = (FOLDER / f"{kind.name}{ending}" for ending in (".onnx", ".so", ".npz"))
    onnx.save(model_of(kind, pairs), model)
    np.savez(given, x=np.random.default_rng(1).standard_normal((1, WIDTHS[0]), np.float32))
    size = int(compile_library(model, library)["constant_bytes"])
    peak, rows = build_peak(FOLDER), []
    for threads in plan.threads:
        workers = start({"nnefc": library, REFERENCE: model}, given, threads)
        try:
            answers = answers_of(workers, FOLDER)
            apart = difference(answers["nnefc"], answers[REFERENCE])
            workers.append(MemoryReader(peak, size, threads))
            latency = take_turns(workers, plan)
        finally:
            for worker in workers:
                worker.close()
        medians = {name: found.median for name, found in latency.items()}
        rows.append(Row(kind, threads, size, medians, apart))
    for file in (model, library, given):
        file.unlink()
    return rows


def body(rows: Sequence[Row], pairs: int, cache: int) -> list[str]:
    """The table, of chains of so many pairs on a machine with caches of so many bytes."""
    sizes = {"products": 2 * pairs, "megabytes": pairs * _PAIR_BYTES / 1e6, "cache": cache / 1e6}
    head = [line.format(*WIDTHS, **sizes) for line in _EXPLANATION]
    columns = ["threads", "block", "zero points", "level", "MB", "nnefc", REFERENCE, "ratio"]
    columns += [MemoryReader.peer, "GB/s", "of memory", "difference"]
    return [*head, *table(columns, map(_cells, sorted(rows, key=lambda row: row.threads)))]


def _cells(row: Row) -> list[str]:
    kind, (own, other, memory) = row.kind, (row.milliseconds[name] for name in ("nnefc", REFERENCE, MemoryReader.peer))
    stored = [str(row.threads), str(kind.block), "yes" if kind.zeros else "no", str(kind.level)]
    times = [f"{row.bytes / 1e6:.1f}", time_spelled(own), time_spelled(other), f"{other / own:.2f}"]
    bound = [time_spelled(memory), f"{1e-6 * row.bytes / memory:.1f}", f"{100 * memory / own:.0f} %"]
    return [*stored, *times, *bound, f"{row.difference:.1e}"]


@click.command()
@click.option("--threads", type=click.IntRange(min=1), multiple=True, help="Repeatable.  [default: 1 and 2]")
@click.option("--repeats", default=16, show_default=True, help="Turns of each engine.")
@click.option("--seconds", default=0.1, show_default=True, help="Length of a turn.")
@click.option("--only", type=click.IntRange(0, len(KINDS) - 1), help="Measure one kind; nothing is written.")
def main(threads: tuple[int, ...], repeats: int, seconds: float, only: int | None) -> None:
    """Measure, and write the page."""
    plan = Plan(threads=threads or Plan.threads, repeats=repeats, seconds=seconds)
    cache = cache_bytes(max(plan.threads))
    pairs = pairs_of_matrices(cache, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    watch, rows = Watch(), []
    for kind in KINDS if only is None else (KINDS[only],):
        rows += measure(kind, pairs, plan)
        for row in rows[-len(plan.threads) :]:
            click.echo("  ".join(_cells(row)), err=True)
    conditions, lines = watch.end(), body(rows, pairs, cache)
    click.echo(page(TITLE, conditions, lines))
    if only is None and not threads:
        write_page("weights_only", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
