"""What can be checked in code for GPUs without one: do results agree, and what do the kernels take?

    python benchmarks/cuda/without_gpu.py [NETWORK[*BATCH][:int8] ...]

Digits and the small networks of the tests run on an emulator, in all precisions, compared with code for this CPU. The
networks are compiled whole, for each architecture alone, and NVIDIA's compiler reports registers, shared memory and
spills. Nothing is timed. Without names it takes those in WHOLE and writes benchmarks/results/cuda.md.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

import nnefc
from nnefc.targets.codegen.cuda.code import CudaCode
from nnefc.targets.codegen.cuda.compiler import Usage

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(ROOT / "benchmarks"),
    str(ROOT / "benchmarks" / "cuda"),
    *(str(ROOT / "tests" / "cuda" / p) for p in ("../helpers", "", "driver", "emulator")),
]

from conditions import Conditions, page, write_page  # noqa: E402
from emulated_networks import on_cuda  # noqa: E402
from machine_code import Case, compiled  # noqa: E402
from small_networks import NETWORKS, Net  # noqa: E402

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
ARCHITECTURES = (80, 89, 90, 100)
TABLES = (80, 90)  # architectures with a line for each kernel

WHOLE = ("resnet50*32", "bert_base*16", "lstm", "resnet50*32:int8")
TITLE = "Code for GPUs, without a GPU"

_PRODUCTS = {
    "`tcgen05`": re.compile(r"\bnnefc_multiply_into_memory_"),
    "`wgmma`": re.compile(r"\bnnefc_multiply_warpgroup_"),
    "`mma.sync`": re.compile(r"\bnnefc_multiply_"),
}
"""What kernels multiply by, the first of these: newer devices have `mma.sync` in the same kernels."""
_BOXES = re.compile(r"\btensor_map\d")
_ATTENTION = "attention"
"""What kernels of attention, of which each layer of BERT has one, have in their names."""


@dataclass(frozen=True)
class Before:
    """What this compiler made of a network in `fp16` with tensors in row-major order, and with attention in parts.

    Attributes:
        launches: of a run, or of one layer.
        narrow: of the kernels with tensor cores, how many loaded and stored two bytes at a time in their main loops.
        tensor_cores: kernels with tensor cores.
    """

    launches: int
    narrow: int | None
    tensor_cores: int | None


BEFORE = {"resnet50*32": Before(87, 16, 31), "bert_base*16": Before(14, None, None)}
"""Read from the machine code for sm_90, by `cuobjdump`, before tensors were in blocks of channels."""


@click.command()
@click.argument("networks", nargs=-1)
def main(networks: tuple[str, ...]) -> None:
    """Compile NETWORKS, or a choice of them."""
    codes = {word: codes_of(word) for word in networks or WHOLE}
    lines = ["Nothing here was run on a GPU, and nothing was timed.", "", *agreement(), "", *progress(codes), ""]
    lines += summary(codes)
    for word, by_architecture in list(codes.items())[:1]:
        lines += ["", *kernels(word, by_architecture)]
    conditions = Conditions.now()
    click.echo(page(TITLE, conditions, lines))
    if not networks:
        write_page("cuda", TITLE, conditions, lines)


def agreement() -> list[str]:
    """The largest differences from this CPU's code, of digits and of the small networks."""
    lines = [
        "## Agreement",
        "",
        "Libraries on a driver that stands for NVIDIA's, their kernels executed by an emulator: the largest difference",
        "from the results of code for a CPU, as a part of the largest value.",
        "",
        "| network | " + " | ".join(PRECISIONS) + " |",
        "|---" + "|---:" * len(PRECISIONS) + "|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        networks = {"digits": (ROOT / "examples" / "digits" / "model.nnef", {"image": _image()})}
        for name, build in NETWORKS.items():
            net = Net(seed=len(name))
            path = Path(folder) / f"{len(networks)}.onnx"
            path.write_bytes(net.model(build(net)).SerializeToString())
            networks[name] = (path, net.inputs)
        for name, (path, inputs) in networks.items():
            wanted = _results(path, inputs)
            cells = [f"{_difference(path, inputs, precision, wanted):.1e}" for precision in PRECISIONS]
            lines.append(f"| {name} | {' | '.join(cells)} |")
            print(lines[-1], file=sys.stderr)
    return lines


def _image() -> np.ndarray:
    return np.random.default_rng(0).random((1, 1, 8, 8), dtype=np.float32)


def _difference(
    path: Path, inputs: Mapping[str, np.ndarray], precision: str, wanted: Mapping[str, np.ndarray]
) -> float:
    with on_cuda(precision=precision):
        found = _results(path, inputs)
    return max(_relative(found[name], wanted[name]) for name in wanted)


def _results(path: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    with nnefc.compile(path).load(threads=1) as network:
        return dict(network.run(inputs))


def _relative(found: np.ndarray, wanted: np.ndarray) -> float:
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    return float(np.abs(a - b).max(initial=0.0) / max(np.abs(b).max(initial=0.0), 1e-30))


def codes_of(word: str) -> dict[int, CudaCode]:
    """The code of a network for each architecture alone, in `fp16`."""
    codes = {number: compiled(Case.of(word), "fp16", (number,)) for number in ARCHITECTURES}
    print(word, *(len(code.launches_of_run) for code in codes.values()), "launches", file=sys.stderr)
    return codes


def launches_of(word: str, code: CudaCode) -> int:
    """The launches of a run; of BERT those of a layer, from one attention to the next."""
    called = [launch.kernel for launch in code.launches_of_run]
    if not word.startswith("bert"):
        return len(called)
    attention = [position for position, kernel in enumerate(called) if _ATTENTION in kernel]
    return attention[-1] - attention[-2]


def progress(codes: Mapping[str, Mapping[int, CudaCode]]) -> list[str]:
    """Old figures compared with new ones, of the networks that have some."""
    lines = [
        "## Before and now",
        "",
        "*Before*, tensors were in row-major order, attention was two products and a softmax, and all products were",
        "`mma.sync`. Of BERT the launches are those of a layer. *Narrow* are kernels whose main loop loads or stores",
        "two bytes at a time: [those of today](cuda_main_loops.md) have none.",
        "",
        "| network*batch | launches before | now | narrow before |",
        "|---|---:|---:|---:|",
    ]
    for word, before in BEFORE.items():
        if word in codes:
            now = sorted({launches_of(word, code) for code in codes[word].values()})
            narrow = "" if before.narrow is None else f"{before.narrow} of {before.tensor_cores}"
            lines.append(f"| {word} | {before.launches} | {' to '.join(map(str, now))} | {narrow} |")
    return lines


def summary(codes: Mapping[str, Mapping[int, CudaCode]]) -> list[str]:
    """The maximum that a kernel of each network takes, by architecture."""
    lines = [
        "## What the kernels take",
        "",
        "In `fp16`, or quantized where the name ends in `:int8`, for each architecture alone. How many kernels",
        "multiply by which instructions of tensor cores, and fetch *boxes* by bulk copies; shared memory is that of a",
        "block. The launches of a loop's body, as the LSTM's steps, count once.",
        "",
        f"| network*batch | architecture | launches | kernels | {' | '.join(_PRODUCTS)} | boxes | max registers "
        "| max shared bytes | spilling | max spilled bytes |",
        "|---|---" + "|---:" * (7 + len(_PRODUCTS)) + "|",
    ]
    for word, by_architecture in codes.items():
        for architecture, code in by_architecture.items():
            usage = code.image.usage
            spilled = [each.spill_stores + each.spill_loads for each in usage]
            bodies = [body_of(code.kernels.source, each.kernel) for each in usage]
            products = Counter(map(products_of, bodies))
            numbers = (
                len(code.launches_of_run),
                len(usage),
                *(products[name] for name in _PRODUCTS),
                sum(_BOXES.search(body) is not None for body in bodies),
                max(each.registers for each in usage),
                max(shared_bytes(code, each) for each in usage),
                sum(count > 0 for count in spilled),
                max(spilled),
            )
            lines.append(f"| {word} | sm_{architecture} | {' | '.join(map(str, numbers))} |")
    return lines


def body_of(source: str, kernel: str) -> str:
    """The text of a kernel, from its name to the next kernel."""
    return source.rpartition(f" {kernel}(")[2].partition("__global__")[0]


def products_of(body: str) -> str | None:
    """What a kernel multiplies by; None without tensor cores."""
    return next((name for name, pattern in _PRODUCTS.items() if pattern.search(body)), None)


def shared_bytes(code: CudaCode, usage: Usage) -> int:
    """The shared memory of a block, static and dynamic."""
    return usage.shared_bytes + max(
        launch.shared_bytes for launch in code.kernels.launches if launch.kernel == usage.kernel
    )


def kernels(word: str, codes: Mapping[int, CudaCode]) -> list[str]:
    """A line for each kernel of one network."""
    head = " | ".join(f"sm_{number}: registers | shared | spilled" for number in TABLES)
    lines = [f"## Each kernel of {word}", "", f"| kernel | {head} |", "|---" + "|---:" * 3 * len(TABLES) + "|"]
    found: dict[str, dict[int, Sequence[int]]] = {}
    for number in TABLES:
        for each in codes[number].image.usage:
            cells = each.registers, shared_bytes(codes[number], each), each.spill_stores + each.spill_loads
            found.setdefault(each.kernel, {})[number] = cells
    for kernel, by_architecture in sorted(found.items()):
        row = [str(cell) for number in TABLES for cell in by_architecture.get(number, ("", "", ""))]
        lines.append(f"| `{kernel}` | {' | '.join(row)} |")
    return lines


if __name__ == "__main__":
    main()
