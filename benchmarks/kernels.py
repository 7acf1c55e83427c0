"""Where the time of a network goes: every kernel by itself.

    python benchmarks/kernels.py MODEL [--shape NAME=EXTENTS ...] [--rows N]

prints, for each kernel of the compiled network, its time in all, how often it is called, its rate, and the schedule
rule that it got. One thread; the least of several runs, in processor time, so that other programs disturb little.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kernel_times import kernel_times

from nnefc.driver.formats import load_network
from nnefc.driver.options import ReadOptions
from nnefc.targets.machine.cpu.parsing import parse_target


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, sizes = text.rpartition("=")
    return name, tuple(map(int, filter(None, sizes.split(","))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--rows", type=int, default=25)
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--shape", action="append", type=_shape, default=[], help="such as x=1,3,224,224; repeatable")
    options = parser.parse_args()
    random_weights = 0 if options.model.endswith(".nnef") else None
    network = load_network(Path(options.model), ReadOptions(random_weights=random_weights, shape=dict(options.shape)))
    kernels = kernel_times(network, parse_target(options.target))
    total = sum(kernel.seconds * kernel.calls for kernel in kernels)
    print(f"{total * 1e3:.2f} ms in {len(kernels)} kernels")
    for kernel in kernels[: options.rows]:
        seconds = kernel.seconds * kernel.calls
        rate = kernel.flops / kernel.seconds / 1e9
        shapes = " ".join("x".join(map(str, shape)) for shape in kernel.shapes)
        print(
            f"{seconds * 1e3:8.3f} ms {100 * seconds / total:5.1f} % {kernel.calls:3d} × {rate:7.1f} G/s"
            f" {kernel.rule:18} {kernel.name[:44]:44} {shapes}"
        )


if __name__ == "__main__":
    main()
