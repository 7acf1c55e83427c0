"""3 × 3 convolutions by Winograd's minimal filtering F(4×4, 3×3) (Lavin and Gray, 2016), in blocked layout.

    V[36, C, tiles] = Bᵀ d B        for each tile of 6 × 6 inputs
    M[36, O, tiles] = U V           36 matrix products, U = G g Gᵀ computed at compile time
    Y[O, 4 × 4 per tile] = Aᵀ M A

A tile of 16 results takes 36 multiplications for each pair of channels instead of 144.

The tiles are seen as polynomials, multiplied at the points 0, ±p, ±q and infinity. Rounding errors grow with how unlike
the powers of the points are: with the usual 1 and 2 they are three times as large as with 5/8 and 3/2, for random
values. (Barabasz, Anderson, Soodhalter and Gregg, 2020, and Alam, Anderson, Barabasz and Gregg, 2022, have the search
for points.) All coefficients of data and products are exact in float32; the filter is transformed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import te, tirx

from nnefc.passes.compute.choice import PERIODS, chosen
from nnefc.passes.compute.long_sums import LONGEST_PART

__all__ = ["OUTPUT_TILE", "multiply_tiles", "tiles_of", "transform_filter", "transform_input", "transform_output"]

OUTPUT_TILE = 4
_INPUT_TILE = OUTPUT_TILE + 2
_PART = 128  # terms of a sum over channels, whose rounding the transform of the result makes larger
_P, _Q = 5 / 8, 3 / 2
_PRODUCT, _SUM = _P**2 * _Q**2, _P**2 + _Q**2  # (x² - p²) (x² - q²) = x⁴ - sum · x² + product


def _filter_row(point: float, others: tuple[float, ...]) -> list[float]:
    """The value of a polynomial of three coefficients at a point, over what interpolation divides by."""
    return [point**power / math.prod(point - other for other in others) for power in range(3)]


_G = np.array(
    [
        _filter_row(0, (_P, -_P, _Q, -_Q)),
        _filter_row(_P, (0, -_P, _Q, -_Q)),
        _filter_row(-_P, (0, _P, _Q, -_Q)),
        _filter_row(_Q, (0, _P, -_P, -_Q)),
        _filter_row(-_Q, (0, _P, -_P, _Q)),
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
    p, q, p2, q2, total, product = _constants(d[0], _P, _Q, _P**2, _Q**2, _SUM, _PRODUCT)
    near_even, near_odd = d[4] - q2 * d[2], p * (d[3] - q2 * d[1])
    far_even, far_odd = d[4] - p2 * d[2], q * (d[3] - p2 * d[1])
    return [
        product * d[0] + (d[4] - total * d[2]),
        near_even + near_odd,
        near_even - near_odd,
        far_even + far_odd,
        far_even - far_odd,
        product * d[1] + (d[5] - total * d[3]),
    ]


def _output_row(m: Sequence[tirx.Expr]) -> list[tirx.Expr]:
    """Aᵀ times a column of six."""
    p, q, p2, q2, p3, q3 = _constants(m[0], _P, _Q, _P**2, _Q**2, _P**3, _Q**3)
    near, near_difference, far, far_difference = m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]
    return [
        m[0] + near + far,
        p * near_difference + q * far_difference,
        p2 * near + q2 * far,
        p3 * near_difference + (q3 * far_difference + m[5]),
    ]


def _constants(like: tirx.Expr, *values: float) -> list[tirx.Expr]:
    return [tirx.const(value, like.expr_ty().dtype) for value in values]


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

    periods = [_INPUT_TILE, _INPUT_TILE, 1, 1, 1]
    return te.compute((_INPUT_TILE, _INPUT_TILE, blocks, tiles, size), element, name="tile", attrs={PERIODS: periods})


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
        attrs={LONGEST_PART: _PART},
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

    periods = [1, 1, OUTPUT_TILE, OUTPUT_TILE, 1]
    return te.compute((batch, blocks, height, width, size), element, name="result", attrs={PERIODS: periods})
