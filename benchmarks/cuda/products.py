"""Products of matrices in fp16 by several tiles, for `on_device.py` to time: a check of the model that chooses tiles.

    python benchmarks/cuda/products.py FOLDER [--arch 90] [--tiles 4] [ROWSxCOLUMNSxDEPTH ...]

writes, for each size, libraries of one matrix product with a bias by the tiles that the model takes to be the fastest,
of each instruction, in the format of `libraries.py`. On the machine with a GPU,

    python benchmarks/cuda/on_device.py FOLDER --out products.json --profiles profiles

checks their results and times their kernels. No GPU is needed here.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import click
import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

import nnefc
from nnefc.passes.schedule.cuda import tensor_core
from nnefc.passes.schedule.cuda.warp_tiles import BulkTile, PairTile, TensorMemoryTile, WarpgroupTile
from nnefc.passes.schedule.gpu.contractions.tiling import AnyTile, Tiling, choose_tiling
from nnefc.symbolic.dims import size_hint
from nnefc.targets.machine.gpu.description import Gpu

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "cuda")]

from inputs import drawn  # noqa: E402
from libraries import write_library  # noqa: E402

SIZES = ("2048x2304x768", "2048x768x768", "2048x3072x768", "2048x768x3072", "4096x4096x4096", "8192x8192x8192")
"""The products of a layer of BERT with 16 sentences of 128 tokens, and large ones."""


@click.command()
@click.argument("folder", type=Path)
@click.argument("sizes", nargs=-1)
@click.option("--arch", default=90)
@click.option("--tiles", default=4, help="How many of each instruction.")
def main(folder: Path, sizes: tuple[str, ...], arch: int, tiles: int) -> None:
    """Compile products of SIZES, or a choice of them."""
    os.environ["NNEFC_CACHE"] = "0"  # tiles are no part of what a cache goes by
    for word in sizes or SIZES:
        rows, columns, depth = map(int, word.split("x"))
        number, known = 0, 1
        while number < known:  # the first compilation says how many there are
            known = compile_product(folder, (rows, columns, depth), arch, tiles, number)
            number += 1


def compile_product(folder: Path, size: tuple[int, int, int], arch: int, tiles: int, number: int) -> int:
    """Compiles a product by one of its tilings, with its number; returns how many there are."""
    rows, columns, depth = size
    found: list[Tiling] = []

    def choose(
        batch: int, rows: int, columns: int, depth: int, gpu: Gpu, known: Sequence[AnyTile], moved_bytes: int
    ) -> Tiling:
        found[:] = fastest((batch, rows, columns, depth), gpu, known, moved_bytes, tiles)
        return found[number]

    rng = np.random.default_rng(1)
    weight = np.resize(rng.standard_normal(4096, dtype=np.float32) / np.float32(depth) ** 0.5, (depth, columns))
    bias = rng.standard_normal(columns, dtype=np.float32)
    with tempfile.TemporaryDirectory() as position, mock.patch.object(tensor_core, "choose_tiling", choose):
        path = Path(position) / "product.onnx"
        values = [numpy_helper.from_array(array, name) for name, array in (("w", weight), ("b", bias))]
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, depth])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])
        nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
        save(helper.make_model(helper.make_graph(nodes, "product", [x], [y], values)), path)
        began = time.monotonic()
        artifact = nnefc.compile(path, f"cuda -arch=sm_{arch}", precision="fp16")
        tiling = found[number]
        name = f"{rows}x{columns}x{depth}-{kind_of(tiling.tile)}-{described(tiling)}"
        inputs = {"x": [rows, depth]}
        about = {
            "network": name,
            "batch": 1,
            "precision": "fp16",
            "inputs": inputs,
            "seconds": time.monotonic() - began,
        }
        write_library(folder / name, artifact, {"y": drawn(inputs)["x"] @ weight + bias}, about)
    return len(found)


def fastest(
    sizes: tuple[int, int, int, int], gpu: Gpu, tiles: Sequence[AnyTile], moved_bytes: int, count: int
) -> list[Tiling]:
    """Returns the fastest tilings of each instruction, and way to copy, by the model, one for each tile."""
    found = []
    for kind in dict.fromkeys(map(kind_of, tiles)):
        own = [tile for tile in tiles if kind_of(tile) == kind]
        tilings = (choose_tiling(*sizes, gpu, [tile], moved_bytes) for tile in own)
        found += sorted(tilings, key=lambda each: each.cycles(gpu))[:count]
    return found


def kind_of(tile: AnyTile) -> str:
    """Returns the instruction that multiplies, and `bulk` if one thread copies."""
    if isinstance(tile, TensorMemoryTile):
        return "tcgen05-pair" if isinstance(tile, PairTile) else "tcgen05-bulk"
    if isinstance(tile, BulkTile):
        return "wgmma-bulk"
    return "wgmma" if isinstance(tile, WarpgroupTile) else "mma"


def described(tiling: Tiling) -> str:
    """Returns a name of the tile and the slices."""
    tile = tiling.tile
    stages = f"-{tile.stages}" if isinstance(tile, WarpgroupTile) else ""
    return f"{tile.rows}x{tile.columns}{stages}-s{size_hint(tiling.slices)}"


if __name__ == "__main__":
    main()
