"""3 × 3 convolutions by Winograd's minimal filtering F(4×4, 3×3) (Lavin and Gray, 2016), in blocked layout.

    V[36, C, tiles] = Bᵀ d B        for each tile of 6 × 6 inputs
    M[36, O, tiles] = U V           36 matrix products, U = G g Gᵀ computed at compile time
    Y[O, 4 × 4 per tile] = Aᵀ M A

A tile of 16 results takes 36 multiplications for each pair of channels instead of 144. The result differs from the
direct sum by rounding: a few 1e-6 of the largest value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import te, tirx

from nnefc.passes.compute.choice import chosen

__all__ = ["OUTPUT_TILE", "multiply_tiles", "tiles_of", "transform_filter", "transform_input", "transform_output"]

OUTPUT_TILE = 4
_INPUT_TILE = OUTPUT_TILE + 2
_G = np.array(
    [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ]
)


def tiles_of(extent: int) -> int:
    """How many tiles cover a dimension of the result."""
    return -(-extent // OUTPUT_TILE)


def transform_filter(packed: np.ndarray) -> np.ndarray:
    """`[O blocks, I blocks, 3, 3, i, o]` → `[36, O blocks, I blocks, i, o]`, computed in float64."""
    outer, inner, _, _, *block = packed.shape
    transform = np.kron(_G, _G)
    # In TVM's memory, so that a constant of it needs no copy.
    transformed = np.from_dlpack(tvm.runtime.empty((36, outer, inner, *block), str(packed.dtype)))
    # By parts that stay in the cache, and for which BLAS wakes no threads: on a busy machine those take far longer.
    for o in range(outer):
        for i in range(inner):
            transformed[:, o, i] = (transform @ packed[o, i].reshape(9, -1).astype(np.float64)).reshape(36, *block)
    return transformed


def _input_row(d: Sequence[tirx.Expr]) -> list[tirx.Expr]:
    """Bᵀ times a column of six; common terms are written once, and found again by the code generator."""
    four, five, two = (tirx.const(value, d[0].expr_ty().dtype) for value in (4.0, 5.0, 2.0))
    even, odd = d[4] - four * d[2], d[3] - four * d[1]
    far, near = d[4] - d[2], two * (d[3] - d[1])
    return [
        four * d[0] - five * d[2] + d[4],
        even + odd,
        even - odd,
        far + near,
        far - near,
        four * d[1] - five * d[3] + d[5],
    ]


def _output_row(m: Sequence[tirx.Expr]) -> list[tirx.Expr]:
    """Aᵀ times a column of six."""
    two, four, eight = (tirx.const(value, m[0].expr_ty().dtype) for value in (2.0, 4.0, 8.0))
    sum1, difference1, sum2, difference2 = m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]
    return [
        m[0] + sum1 + sum2,
        difference1 + two * difference2,
        sum1 + four * sum2,
        difference1 + eight * difference2 + m[5],
    ]


def _columns(
    count: int, shape: tuple[object, ...], transform: Callable[..., list[tirx.Expr]], load: Callable[..., tirx.Expr]
) -> list[te.Tensor]:
    """One tensor for each column of a tile transformed along its rows; the first axis of each is the row."""

    def column(q: int) -> te.Tensor:
        def element(r: tirx.Var, *rest: tirx.Var) -> tirx.Expr:
            return transform([load(r, k, *rest) for k in range(_INPUT_TILE)])[q]

        return te.compute(shape, element, name=f"column{q}")

    return [column(q) for q in range(count)]


def transform_input(data: te.Tensor, height: int, width: int) -> te.Tensor:
    """Bᵀ d B for all tiles.

    Args:
        data: `[N, I blocks, 4 · height + 2, 4 · width + 2, b]`, padded.
        height, width: the number of tiles.

    Returns:
        `[6, 6, I blocks, N · height · width, b]`.
    """
    batch, blocks, _, _, size = data.shape
    tiles = int(batch) * height * width

    def load(r: tirx.Var, k: int, cb: tirx.Var, t: tirx.Var, lane: tirx.Var) -> tirx.Expr:
        n, y, x = t // (height * width), t // width % height, t % width
        return data(n, cb, y * OUTPUT_TILE + r, x * OUTPUT_TILE + k, lane)

    columns = _columns(_INPUT_TILE, (_INPUT_TILE, blocks, tiles, size), _input_row, load)

    def element(a: tirx.Var, b: tirx.Var, cb: tirx.Var, t: tirx.Var, lane: tirx.Var) -> tirx.Expr:
        rows = [_input_row([column(r, cb, t, lane) for r in range(_INPUT_TILE)]) for column in columns]
        return chosen(b, [chosen(a, row) for row in rows])

    return te.compute((_INPUT_TILE, _INPUT_TILE, blocks, tiles, size), element, name="tile")


def multiply_tiles(transformed: te.Tensor, weights: te.Tensor) -> te.Tensor:
    """The 36 matrix products: `[6, 6, I blocks, tiles, i]` and `[36, O blocks, I blocks, i, o]` to
    `[6, 6, O blocks, tiles, o]`."""
    _, _, blocks, tiles, size = transformed.shape
    _, outer, _, _, lanes = weights.shape
    rc, ri = te.reduce_axis((0, blocks), "rc"), te.reduce_axis((0, size), "ri")
    return te.compute(
        (_INPUT_TILE, _INPUT_TILE, outer, tiles, lanes),
        lambda a, b, o, t, lane: te.sum(
            transformed(a, b, rc, t, ri) * weights(a * _INPUT_TILE + b, o, rc, ri, lane), axis=[rc, ri]
        ),
        name="products",
    )


def transform_output(products: te.Tensor, batch: int, height: int, width: int) -> te.Tensor:
    """Aᵀ M A for all tiles: `[6, 6, O blocks, tiles, b]` to `[N, O blocks, height, width, b]`."""
    _, _, blocks, tiles, size = products.shape
    rows, cols = tiles_of(height), tiles_of(width)
    columns = _columns(
        OUTPUT_TILE,
        (_INPUT_TILE, blocks, tiles, size),
        _output_row,
        lambda r, k, cb, t, lane: products(r, k, cb, t, lane),
    )

    def element(n: tirx.Var, o: tirx.Var, y: tirx.Var, x: tirx.Var, lane: tirx.Var) -> tirx.Expr:
        t = (n * rows + y // OUTPUT_TILE) * cols + x // OUTPUT_TILE
        results = [_output_row([column(r, o, t, lane) for r in range(_INPUT_TILE)]) for column in columns]
        return chosen(x % OUTPUT_TILE, [chosen(y % OUTPUT_TILE, result) for result in results])

    return te.compute((batch, blocks, height, width, size), element, name="result")
