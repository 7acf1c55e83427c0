"""What each schedule rule reaches on typical computations, as a share of what the machine can do.

    python benchmarks/rules.py [RULE ...] [--strict]

compiles each computation below as a network of its own and times its kernels on one thread. The share is of the time
which the kernel needs at least: to compute as fast as registers allow, or to read and write its operands as fast as an
array of their size can be read, whichever is longer; the rate is in its unit.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kernel_times import KernelTime, kernel_times
from peak import build_peak, bytes_per_second, multiply_adds_per_second

from nnefc.driver.formats import load_network
from nnefc.driver.options import ReadOptions
from nnefc.targets.machine.cpu.parsing import parse_target

# Shape of the input, shape of a variable `w` or None, and the expression: NNEF's operations and their order of axes.
COMPUTATIONS: dict[str, tuple[list[int], list[int] | None, str]] = {
    "convolution 1 × 1, 256 → 256 at 28²": ([1, 256, 28, 28], [256, 256, 1, 1], "conv(x, w)"),
    "convolution 1 × 1, 16 → 64 at 55²": ([1, 16, 55, 55], [64, 16, 1, 1], "conv(x, w)"),
    "convolution 3 × 3, 128 → 128 at 28²": ([1, 128, 28, 28], [128, 128, 3, 3], "conv(x, w)"),
    "convolution 3 × 3, 512 → 512 at 7²": ([1, 512, 7, 7], [512, 512, 3, 3], "conv(x, w)"),
    "convolution 3 × 3 / 2, 64 → 128 at 56²": ([1, 64, 56, 56], [128, 64, 3, 3], "conv(x, w, stride = [2, 2])"),
    "convolution 5 × 5, 96 → 256 at 27², 2 groups": ([1, 96, 27, 27], [256, 48, 5, 5], "conv(x, w, groups = 2)"),
    "convolution 7 × 7 / 2, 3 → 64 at 224²": ([1, 3, 224, 224], [64, 3, 7, 7], "conv(x, w, stride = [2, 2])"),
    "convolution 7 × 7 / 2, 3 → 96 at 223²": (
        [1, 3, 223, 223],
        [96, 3, 7, 7],
        "conv(x, w, stride = [2, 2], padding = [(0, 0), (0, 0)])",
    ),
    "convolution 3 × 3 / 2, 64 → 96 at 75²": (
        [1, 64, 75, 75],
        [96, 64, 3, 3],
        "conv(x, w, stride = [2, 2], padding = [(0, 0), (0, 0)])",
    ),
    "convolution 1 × 1, 128 → 64 at 73²": ([1, 128, 73, 73], [64, 128, 1, 1], "conv(x, w)"),
    "convolution 3 × 3, 61 → 67 at 13²": ([1, 61, 13, 13], [67, 61, 3, 3], "conv(x, w)"),
    "deconvolution 2 × 2 / 2, 128 → 64 at 32²": ([1, 128, 32, 32], [128, 64, 2, 2], "deconv(x, w, stride = [2, 2])"),
    "product 128 × 768 × 3072": ([128, 768], [768, 3072], "matmul(x, w)"),
    "product 197 × 768 × 768": ([197, 768], [768, 768], "matmul(x, w)"),
    "product 1 × 4096 × 4096": ([1, 4096], [4096, 4096], "matmul(x, w)"),
    "depthwise 3 × 3, 128 at 56²": ([1, 128, 56, 56], [128, 1, 3, 3], "conv(x, w, groups = 0)"),
    "depthwise 3 × 3 / 2, 128 at 56²": ([1, 128, 56, 56], [128, 1, 3, 3], "conv(x, w, groups = 0, stride = [2, 2])"),
    "depthwise 5 × 5, 480 at 14²": ([1, 480, 14, 14], [480, 1, 5, 5], "conv(x, w, groups = 0)"),
    "max pooling 3 × 3 / 2, 64 at 112²": (
        [1, 64, 112, 112],
        None,
        "max_pool(x, size = [1, 1, 3, 3], stride = [1, 1, 2, 2], border = 'ignore')",
    ),
    "average pooling of all, 2048 at 7²": ([1, 2048, 7, 7], None, "mean_reduce(x, axes = [2, 3])"),
    "softmax of 1,000 × 128": ([1000, 128], None, "softmax(x, axes = [1])"),
    "sum of rows, 1,000 × 1,000": ([1000, 1000], None, "sum_reduce(x, axes = [1])"),
    "sum of columns, 1,000 × 1,000": ([1000, 1000], None, "sum_reduce(x, axes = [0])"),
    "largest of columns, 1,000 × 997": ([1000, 997], None, "max_reduce(x, axes = [0])"),
    "transposition, 1,000 × 1,000": ([1000, 1000], None, "transpose(x, axes = [1, 0])"),
    "tanh of 1,000,000": ([1000, 1000], None, "tanh(x)"),
}


def document(shape: list[int], variable: list[int] | None, expression: str) -> str:
    """The computation as an NNEF document."""
    weights = f"w = variable(shape = {variable}, label = 'w');" if variable else ""
    return f"version 1.0; graph net(x) -> (y) {{ x = external(shape = {shape}); {weights} y = {expression}; }}"


def measured(strict: bool) -> Iterator[tuple[str, KernelTime]]:
    """The kernels of each computation that take at least a tenth of its time."""
    target = parse_target("llvm")
    with tempfile.TemporaryDirectory() as folder:
        for name, computation in COMPUTATIONS.items():
            model = Path(folder) / "net.nnef"
            model.write_text(document(*computation))
            kernels = kernel_times(load_network(model, ReadOptions(random_weights=0)), target, strict)
            minimum = 0.1 * sum(kernel.seconds for kernel in kernels)
            yield from ((name, kernel) for kernel in kernels if kernel.seconds >= minimum)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rules", nargs="*", metavar="RULE", help="only these rules' kernels")
    parser.add_argument("--strict", action="store_true", help="without Winograd's algorithm")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library = build_peak(Path(folder))
        peak = 2 * multiply_adds_per_second(library, 1)
        print(f"Peak: {peak / 1e9:.0f} GFLOP/s on one thread.\n")
        print("| computation | kernel | rule | µs | rate | share |\n| --- | --- | --- | ---: | ---: | ---: |")
        for name, kernel in measured(options.strict):
            if options.rules and kernel.rule not in options.rules:
                continue
            computing = kernel.flops / peak
            moving = kernel.bytes / bytes_per_second(library, kernel.bytes, 1)
            if computing > moving:
                rate = f"{kernel.flops / kernel.seconds / 1e9:.1f} GFLOP/s"
            else:
                rate = f"{kernel.bytes / kernel.seconds / 1e9:.1f} GB/s"
            share = max(computing, moving) / kernel.seconds
            cells = [name, kernel.name, kernel.rule, f"{kernel.seconds * 1e6:.1f}", rate, f"{share:.0%}"]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
