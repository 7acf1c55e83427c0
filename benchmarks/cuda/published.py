"""Compares the models of GPUs with published measurements of matrix products, without a GPU.

    python benchmarks/cuda/published.py [--no-write]

Three predictions of each product are compared with the time that was measured:

    roofline    the larger of memory and products (`roofline_model.py`)
    balanced    the same with blocks divided among processors, and a launch; their tile is the published one, else that
                of the tile model
    tile model  the cycles by which the compiler chooses tiles (`passes/schedule/gpu/contractions/tiling.py`), and a
                launch

The machine code of the kernels is not known, so that the roofline model's issue is left out.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from nnefc.passes.schedule.cuda.warp_tiles import BYTE_TILES, COPIED_TILES, WarpgroupTile, bulk_tiles, warpgroup_tiles
from nnefc.passes.schedule.gpu.contractions.tiling import AnyTile, Tiling, choose_tiling
from nnefc.targets.machine.cuda.capabilities import capability_of
from nnefc.targets.machine.gpu.description import Gpu
from nnefc.targets.machine.gpu.devices import GPUS

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "cuda")]

from conditions import Conditions, page, write_page  # noqa: E402
from roofline_model import Work, predict  # noqa: E402

TITLE = "Predicted and published times of products on GPUs"


@dataclass(frozen=True)
class Source:
    """Where measurements were published.

    Attributes:
        title: with its author or project.
        device: that it names.
        gpu: the description of the device, or of one like it.
        dtype: of the operands; sums are float32.
        result_bytes: of an element of the result.
        library: what multiplied.
    """

    title: str
    url: str
    device: str
    gpu: str
    dtype: str
    result_bytes: int
    library: str


@dataclass(frozen=True)
class Measured:
    """A published measurement of a product of M × K by K × N elements.

    Attributes:
        tflops: 10¹² operations in a second, of which a multiply-add is two.
        tile: rows and columns of a block's tile, if they were published.
    """

    source: Source
    rows: int
    columns: int
    depth: int
    tflops: float
    tile: tuple[int, int] | None = None

    @property
    def moved_bytes(self) -> int:
        """Both operands and the result, each once."""
        of_bytes = self.source.dtype == "float8"
        operands = (2 - of_bytes) * self.depth * (self.rows + self.columns)
        return operands + self.source.result_bytes * self.rows * self.columns

    @property
    def us(self) -> float:
        """The time in microseconds."""
        return 2 * self.rows * self.columns * self.depth / self.tflops / 1e6


_PROFILER = Source(
    "NVIDIA, CUTLASS documentation: CUTLASS Profiler, “Example Tensor Core GEMM Operations”",
    "https://docs.nvidia.com/cutlass/latest/media/docs/cpp/profiler.html",
    "compute capability 8.0",
    "a100",
    "float16",
    4,
    "CUTLASS",
)
_A100 = Source(
    "triton-lang/triton, issue 3551: “Performance gap for MVM example on A100 in fp16”",
    "https://github.com/triton-lang/triton/issues/3551",
    "A100",
    "a100",
    "float16",
    2,
    "cuBLAS",
)
_H100 = Source(
    "triton-lang/triton, issue 3672: “Difference in performance of matmul between the tutorial and triton/ops/matmul”",
    "https://github.com/triton-lang/triton/issues/3672",
    "H100",
    "h100",
    "float16",
    2,
    "cuBLAS",
)
_H100_2048 = Source(
    "triton-lang/triton, issue 2339: “Matmul performance on H100”",
    "https://github.com/triton-lang/triton/issues/2339",
    "H100",
    "h100",
    "float16",
    2,
    "cuBLAS",
)
_FAST = Source(
    "P. Shankhdhar, fast.cu: “Handwritten H100 matmul kernels”",
    "https://github.com/pranjalssh/fast.cu",
    "H100 SXM",
    "h100",
    "bfloat16",
    2,
    "cuBLAS",
)
_FAST_OWN = replace(_FAST, library="kernel 11")
_GIST = Source(
    "Chillee: “H100 peak matmul FLOPS”",
    "https://gist.github.com/Chillee/2ec89696db8b7ed1c24461159e325405",
    "H100",
    "h100",
    "bfloat16",
    2,
    "CUTLASS, tuned",
)
_FLOAT8 = Source(
    "DeepSeek, DeepGEMM, README of its first release: “Normal GEMMs for dense models”",
    "https://github.com/deepseek-ai/DeepGEMM",
    "H800",  # an H100 with slower links to other GPUs
    "h100",
    "float8",
    2,
    "DeepGEMM",
)

MEASURED = (
    Measured(_PROFILER, 3456, 4096, 8192, 235.138, (256, 128)),
    Measured(_A100, 512, 512, 512, 21.845),
    Measured(_A100, 1024, 1024, 1024, 104.858),
    Measured(_A100, 2048, 2048, 2048, 233.017),
    Measured(_A100, 3072, 3072, 3072, 229.243),
    Measured(_H100, 512, 512, 512, 28.630),
    Measured(_H100, 1024, 1024, 1024, 121.135),
    Measured(_H100, 2048, 2048, 2048, 511.306),
    Measured(_H100, 3072, 3072, 3072, 584.685),
    Measured(_H100_2048, 2048, 512, 512, 102.613),
    Measured(_H100_2048, 2048, 1024, 1024, 243.148),
    Measured(_H100_2048, 2048, 4096, 4096, 613.742),
    Measured(_H100_2048, 2048, 8192, 8192, 721.601),
    Measured(_FAST, 6144, 6144, 6144, 741.1),
    Measured(_FAST, 8192, 8192, 8192, 797.8),
    Measured(_FAST_OWN, 6144, 6144, 6144, 794.5, (128, 256)),
    Measured(_FAST_OWN, 8192, 8192, 8192, 807.7, (128, 256)),
    Measured(_GIST, 4224, 2048, 8192, 780.169),
    Measured(_FLOAT8, 64, 2112, 7168, 206),
    Measured(_FLOAT8, 64, 24576, 1536, 289),
    Measured(_FLOAT8, 64, 7168, 16384, 336),
    Measured(_FLOAT8, 128, 4096, 7168, 533),
    Measured(_FLOAT8, 128, 7168, 16384, 645),
    Measured(_FLOAT8, 4096, 2112, 7168, 1058),
    Measured(_FLOAT8, 4096, 32768, 512, 590),
    Measured(_FLOAT8, 4096, 4096, 7168, 1304),
    Measured(_FLOAT8, 4096, 7168, 16384, 1358),
)


@dataclass(frozen=True)
class Compared:
    """A measurement, and what the models predict, in microseconds."""

    measured: Measured
    tile: tuple[int, int]
    roofline: float
    balanced: float
    tiled: float


def chosen_tiling(measured: Measured, gpu: Gpu) -> Tiling:
    """Returns the tile and the slices of the depth that the compiler would take for a device."""
    of_bytes, architecture = measured.source.dtype == "float8", gpu.architecture
    tiles: tuple[AnyTile, ...] = BYTE_TILES if of_bytes else COPIED_TILES
    if capability_of(gpu).has_warpgroup_products:
        size = 2 - of_bytes
        tiles = (*tiles, *warpgroup_tiles(architecture, size), *bulk_tiles(architecture, size))
    return choose_tiling(1, measured.rows, measured.columns, measured.depth, gpu, tiles, measured.moved_bytes)


def compare(measured: Measured) -> Compared:
    """Predicts a published product."""
    source, rows, columns, depth = measured.source, measured.rows, measured.columns, measured.depth
    of_bytes = source.dtype == "float8"
    gpu = next(gpu for gpu in GPUS if gpu.name == source.gpu)
    gpu = gpu.for_float8 if of_bytes else gpu
    tiling = chosen_tiling(measured, gpu)
    tile = measured.tile or (tiling.tile.rows, tiling.tile.columns)
    blocks = math.ceil(rows / tile[0]) * math.ceil(columns / tile[1]) * (1 if measured.tile else tiling.slices)
    has_warpgroups = capability_of(gpu).has_warpgroup_products and (
        measured.tile is not None or isinstance(tiling.tile, WarpgroupTile)
    )
    multiply_adds = float(rows * columns * depth)
    work = Work(multiply_adds, measured.moved_bytes, True, has_warpgroups, False, 2 - of_bytes, of_bytes, None)
    found = predict(source.library, work, blocks, 1, gpu)
    has_warpgroups = capability_of(gpu).has_warpgroup_products
    best = predict(source.library, replace(work, has_warpgroups=has_warpgroups), blocks, 1, gpu)
    per_us = gpu.clock_ghz * 1e3
    launched = [(cycles + gpu.launch_cycles) / per_us for cycles in (found.cycles, tiling.cycles(gpu))]
    return Compared(measured, tile, best.roofline / per_us, *launched)


def table(found: Sequence[Compared]) -> list[str]:
    """A line for each product: the time that was measured, and the predictions as parts of it."""
    columns = (
        "device | by | type | M × N × K | measured, µs | TFLOP/s | tile | roofline | balanced | tile model | source"
    )
    lines = [f"| {columns} |", "|---|---|---|---|---:|---:|---|---:|---:|---:|---:|"]
    urls = list(dict.fromkeys(each.measured.source.url for each in found))
    for each in found:
        measured, source = each.measured, each.measured.source
        sizes = f"{measured.rows:,} × {measured.columns:,} × {measured.depth:,}"
        tile = f"{each.tile[0]} × {each.tile[1]}" + ("" if measured.tile else "*")
        parts = " | ".join(f"{time / measured.us:.2f}" for time in (each.roofline, each.balanced, each.tiled))
        words = f"{source.device} | {source.library} | {source.dtype} | {sizes}"
        number = urls.index(source.url) + 1
        lines.append(f"| {words} | {measured.us:,.1f} | {measured.tflops:,.0f} | {tile} | {parts} | {number} |")
    titles = {each.measured.source.url: each.measured.source.title for each in found}
    sources = [f"{number}. [{titles[url]}]({url})" for number, url in enumerate(urls, 1)]
    return [*lines, "", "\\* chosen by the tile model; others are published.", "", *sources]


def means(found: Sequence[Compared]) -> list[str]:
    """The geometric means of predicted by measured times, for short and for long products."""
    lines = ["| measured | products | roofline | balanced | tile model |", "|---|---:|---:|---:|---:|"]
    for title, low, high in (("below 50 µs", 0.0, 50.0), ("50 µs and more", 50.0, math.inf)):
        those = [each for each in found if low <= each.measured.us < high]
        parts = [
            math.exp(sum(math.log(getattr(each, name) / each.measured.us) for each in those) / len(those))
            for name in ("roofline", "balanced", "tiled")
        ]
        lines.append(f"| {title} | {len(those)} | {' | '.join(f'{part:.2f}' for part in parts)} |")
    return lines


_ABOUT = [
    "No GPU was used: others published these times, of other libraries. [`published.py`](../cuda/published.py)",
    "predicts the same products by the [roofline model](../cuda/roofline_model.py), of memory and tensor cores alone",
    "(*roofline*) and with blocks divided among processors and a launch (*balanced*), and by the",
    "[model that chooses tiles](../../passes/schedule/gpu/contractions/tiling.py), with a launch (*tile model*).",
    "Numbers are predicted by measured time: below 1, the model is too fast. Devices are those of",
    "[`devices.py`](../../targets/machine/gpu/devices.py) at their highest regular clock, which a device at its power",
    "limit does not keep; H800 is taken to be an H100. A launch is predicted as one of a graph, and measured from the",
    "host.",
]


@click.command()
@click.option("--write/--no-write", default=True)
def main(write: bool) -> None:
    """Compare predictions with published measurements."""
    found = [compare(measured) for measured in MEASURED]
    lines = [*_ABOUT, "", *means(found), "", *table(found)]
    conditions = Conditions.now()
    click.echo(page(TITLE, conditions, lines))
    if write:
        write_page("cuda_published", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
