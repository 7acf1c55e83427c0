"""Products of matrices for tests of several instructions: operands, what NumPy computes, and choices of tiles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import emulate
import numpy as np
import pytest
from contraction_cases import Operation, random
from onnx import helper, numpy_helper
from tvm import relax, te, tirx
from tvm.relax import op

from nnefc.loader import Model
from nnefc.passes.compute.fp16_matmul import multiply_transposed
from nnefc.passes.graph.quantized.quantized_values import sum_type
from nnefc.passes.schedule.cuda import tensor_core
from nnefc.passes.schedule.gpu.contractions.tiling import AnyTile, Tiling, choose_tiling
from nnefc.targets.machine.cuda.capabilities import SPECIFIC_FEATURES
from nnefc.targets.machine.gpu.description import Gpu

__all__ = [
    "DynamicProducts",
    "choose_kind",
    "choose_tile",
    "emulate_portable",
    "expected",
    "multiplied",
    "multiply_deep",
    "rounded",
]


def multiplied(sizes: tuple[int, ...], transposed: tuple[int, ...], dtype: str) -> tuple[Operation, list[np.ndarray]]:
    """A product with a bias, an activation and a residual, of operands that lie as they are or transposed."""
    *batch, rows, columns, depth = sizes
    rng = np.random.default_rng(depth)
    shapes = ((*batch, rows, depth), (*batch, depth, columns))
    operands = [random(rng, shape).astype(dtype) for shape in shapes]
    given = [x.swapaxes(-1, -2).copy() if side in transposed else x for side, x in enumerate(operands)]
    given += [random(rng, (*batch, rows, columns)), random(rng, (columns,))]

    def product(*of: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, depth), "k")

        def element(side: int, *position: tirx.Expr) -> tirx.Expr:
            *outer, a, b = position
            return of[side][(*outer, b, a) if side in transposed else position].astype("float32")

        return te.compute(
            (*batch, rows, columns),
            lambda *at: te.sum(element(0, *at[:-1], k) * element(1, *at[:-2], k, at[-1]), axis=k),
        )

    def operation(a: relax.Expr, b: relax.Expr, residual: relax.Expr, bias: relax.Expr) -> relax.Expr:
        builder = relax.BlockBuilder.current()
        return op.add(op.nn.relu(op.add(builder.emit_te(product, a, b), bias)), residual)

    return operation, given


def expected(given: Sequence[np.ndarray], transposed: tuple[int, ...]) -> np.ndarray:
    """What :func:`multiplied` gives, in float64."""
    wide = [x.astype(np.float64) for x in (*map(rounded, given[:2]), *given[2:])]
    a, b = (x.swapaxes(-1, -2) if side in transposed else x for side, x in enumerate(wide[:2]))
    return np.maximum(a @ b + wide[3], 0) + wide[2]


def multiply_deep(a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """The product of a matrix with the transpose of another, both along the depth, of 8 bits or of float32."""
    sums = "float32" if a.ty.dtype == "float32" else sum_type(str(a.ty.dtype))
    return relax.BlockBuilder.current().emit_te(multiply_transposed, a, b, sums)


def rounded(given: np.ndarray) -> np.ndarray:
    """What bulk copies make of an array: float32 is rounded to TF32, to nearest, ties to even."""
    if given.dtype != np.float32:
        return given
    bits = given.view(np.uint32)
    nearest = bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))
    return np.where(np.isfinite(given), nearest & np.uint32(0xFFFFE000), bits).view(np.float32)


def choose_tile(monkeypatch: pytest.MonkeyPatch, tile: AnyTile, slices: int = 1) -> None:
    """Lets every product have a tile, and so many slices of the depth."""

    def choose(
        batch: int, rows: int, columns: int, depth: int, _gpu: Gpu, tiles: Sequence[AnyTile], _moved_bytes: int
    ) -> Tiling:
        assert tile in tiles
        return Tiling(tile, batch, rows, columns, depth, slices)

    monkeypatch.setattr(tensor_core, "choose_tiling", choose)


def choose_kind(monkeypatch: pytest.MonkeyPatch, kind: type[AnyTile], blocks: int = 1) -> None:
    """Lets every product that has tiles of a kind, for so many blocks that multiply together, have the best of them."""

    def choose(*sizes: Any) -> Tiling:
        *of_product, gpu, tiles, moved_bytes = sizes
        chosen = [t for t in tiles if isinstance(t, kind) and t.blocks_of_cluster == blocks]
        return choose_tiling(*of_product, gpu, chosen or tiles, moved_bytes)

    monkeypatch.setattr(tensor_core, "choose_tiling", choose)


def emulate_portable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the emulator run code as for architectures without instructions of their own."""
    emulated = emulate.emulate

    def portable(source: str, *given: Any, **options: Any) -> emulate.EmulatedKernels:
        assert any(macro in source for macro in SPECIFIC_FEATURES.values())
        for macro in SPECIFIC_FEATURES.values():
            source = source.replace(macro, "NO_SUCH_FEATURES")
        return emulated(source, *given, **options)

    monkeypatch.setattr(emulate, "emulate", portable)


class DynamicProducts:
    """A file with the products of `[n, m, 128]` and a matrix, and of `[h, s, 64]` and `[h, 64, 72]`."""

    def __init__(self, folder: Path, dtype: str = "float16") -> None:
        self.path, self._dtype = folder / "network.onnx", np.dtype(dtype)
        self._weight = np.random.default_rng(3).standard_normal((128, 72)).astype(dtype) / 8
        element = helper.np_dtype_to_tensor_dtype(self._dtype)
        types = {"x": ["n", "m", 128], "a": ["h", "s", 64], "b": ["h", 64, 72], "y": None, "z": None}
        x, a, b, y, z = (helper.make_tensor_value_info(n, element, s) for n, s in types.items())
        nodes = [helper.make_node("MatMul", names, [to]) for names, to in ((("x", "w"), "y"), (("a", "b"), "z"))]
        graph = helper.make_graph(nodes, "g", [x, a, b], [y, z], [numpy_helper.from_array(self._weight, "w")])
        self.path.write_bytes(helper.make_model(graph, ir_version=10).SerializeToString())

    def check(self, model: Model, n: int, m: int, h: int, s: int) -> None:
        """Runs them for sizes, and compares."""
        rng = np.random.default_rng(3)
        given = [rng.standard_normal(shape).astype(self._dtype) for shape in ((n, m, 128), (h, s, 64), (h, 64, 72))]
        wide = [x.astype(np.float64) for x in given]
        wanted = wide[0] @ self._weight.astype(np.float64), wide[1] @ wide[2]
        for result, correct in zip(model(*given), wanted, strict=True):
            assert np.abs(result - correct).max(initial=0) <= 1e-3 * np.abs(correct).max(initial=0)
