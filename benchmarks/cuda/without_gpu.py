"""What can be checked in code for GPUs without one: do results agree, and what do the kernels take?

    python benchmarks/cuda/without_gpu.py [NETWORK ...]

Digits and the small networks of the tests run on an emulator, in all precisions, compared with code for this CPU. The
networks are compiled whole, and NVIDIA's compiler reports registers, shared memory and spills. Nothing is timed.
Without names it takes those in WHOLE and writes benchmarks/results/cuda.md.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import click
import numpy as np

import nnefc
from nnefc.targets.codegen.cuda.code import CudaCode
from nnefc.targets.codegen.cuda.compiler import Usage

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(ROOT / "benchmarks"),
    *(str(ROOT / "tests" / "cuda" / p) for p in ("../helpers", "", "driver", "emulator")),
]

from conditions import Conditions, page, write_page  # noqa: E402
from emulated_networks import on_cuda  # noqa: E402
from models.networks import NAMES, write_twins  # noqa: E402
from small_networks import NETWORKS, Net  # noqa: E402

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
ARCHITECTURES = (80, 90)

WHOLE = ("resnet50", "mobilenet_v2", "bert_base", "squeezenet", "lstm")
TITLE = "Code for GPUs, without a GPU"


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(NAMES))
def main(networks: tuple[str, ...]) -> None:
    """Compile NETWORKS, or a choice of them."""
    usages = {name: resources(name) for name in networks or WHOLE}
    lines = ["Nothing here was run on a GPU, and nothing was timed.", "", *agreement(), "", *summary(usages)]
    for name, usage in list(usages.items())[:1]:
        lines += ["", *kernels(name, usage)]
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
            cells = [f"{_difference(path, inputs, precision):.1e}" for precision in PRECISIONS]
            lines.append(f"| {name} | {' | '.join(cells)} |")
            print(lines[-1], file=sys.stderr)
    return lines


def _image() -> np.ndarray:
    return np.random.default_rng(0).random((1, 1, 8, 8), dtype=np.float32)


def _difference(path: Path, inputs: Mapping[str, np.ndarray], precision: str) -> float:
    wanted = _results(path, inputs)
    with on_cuda(precision=precision):
        found = _results(path, inputs)
    return max(_relative(found[name], wanted[name]) for name in wanted)


def _results(path: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    with nnefc.compile(path).load(threads=1) as network:
        return dict(network.run(inputs))


def _relative(found: np.ndarray, wanted: np.ndarray) -> float:
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    return float(np.abs(a - b).max(initial=0.0) / max(np.abs(b).max(initial=0.0), 1e-30))


def resources(network: str) -> tuple[Usage, ...]:
    """What the kernels of a network take, as NVIDIA's compiler reports it."""
    target = "cuda -arch=" + ",".join(f"sm_{number}" for number in ARCHITECTURES)
    artifact = nnefc.compile(write_twins(ROOT / "build" / "models", network).nnef, target)
    assert isinstance(artifact.code, CudaCode)
    print(network, len(artifact.code.kernels.launches), "launches", file=sys.stderr)
    return artifact.code.image.usage


def summary(usages: Mapping[str, tuple[Usage, ...]]) -> list[str]:
    """The maximum that a kernel of each network takes, by architecture."""
    lines = [
        "## What the kernels take",
        "",
        "| network | architecture | kernels | max registers | max shared bytes | spilling | max spilled bytes |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, usage in usages.items():
        for architecture in ARCHITECTURES:
            own = [u for u in usage if u.architecture == architecture]
            spilled = [u.spill_stores + u.spill_loads for u in own]
            numbers = (
                len(own), max(u.registers for u in own), max(u.shared_bytes for u in own),
                sum(count > 0 for count in spilled), max(spilled),
            )  # fmt: skip
            lines.append(f"| {name} | sm_{architecture} | {' | '.join(map(str, numbers))} |")
    return lines


def kernels(name: str, usage: tuple[Usage, ...]) -> list[str]:
    """A line for each kernel of one network."""
    head = " | ".join(f"sm_{number}: registers | shared | spilled" for number in ARCHITECTURES)
    lines = [f"## Each kernel of {name}", "", f"| kernel | {head} |", "|---" + "|---:" * 3 * len(ARCHITECTURES) + "|"]
    by_kernel: dict[str, dict[int, Usage]] = {}
    for item in usage:
        by_kernel.setdefault(item.kernel, {})[item.architecture] = item
    for kernel, found in sorted(by_kernel.items()):
        parts = (found[number] for number in ARCHITECTURES)
        cells = [str(n) for u in parts for n in (u.registers, u.shared_bytes, u.spill_stores + u.spill_loads)]
        lines.append(f"| `{kernel}` | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    main()
