"""Computes 3 × 3 convolutions by Winograd's minimal filtering (Lavin and Gray, 2016) in blocked layout.

    V[(m + 2) (n + 2), C, tiles] = Bᵀ d B        for each tile of (m + 2) × (n + 2) inputs
    M[(m + 2) (n + 2), O, tiles] = U V           as many matrix products, U = G g Gᵀ computed at compile time
    Y[O, m × n per tile] = Aᵀ M A

m and n are 2 or 4. Of 9 multiplications for each result and pair of channels F(4 × 4) leaves 36/16, and F(2 × 2) 16/4;
their transformed filters have 36 and 16 elements instead of 9.

The tiles are seen as polynomials, multiplied at a few points and at infinity: 0, ±1 for two results, 0, ±p, ±q for
four. Rounding errors grow with how unlike the powers of the points are: with the usual 1 and 2 they are three times as
large as with 5/8 and 3/2, for random values. (Barabasz, Anderson, Soodhalter and Gregg, 2020, and Alam, Anderson,
Barabasz and Gregg, 2022, have the search for points.) All coefficients of data and products are exact in float32; the
filter is transformed in float64.

The products may be those of bfloat16: transforms are computed in float32, and U and V are rounded once. Of random
values, V of F(2 × 2) has 4 times the variance of d, and the rounding errors of the 9 products in a result add up to
25/9 times the variance of those of the direct sum: the error is 5/3 times as large. F(2 × 4) makes it 2.8 times as
large, F(4 × 4) 4.8 times. Where vectors compute in float16, which rounds to an eighth of that, all of it is, up to
F(2 × 4); the coefficients of data and products are exact in it too.

Bytes are multiplied exactly: V of F(2 × 2) is a sum of four of them, 4 U a whole number of 12 bits, so that both fit
into int16, and products that are added up in int32 are 4 times the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import te, tirx

from nnefc.ir.attributes import LONGEST_PART, PERIODS
from nnefc.passes.compute.blocked import multiply
from nnefc.passes.compute.periodic_select import chosen
from nnefc.support.element_types import BYTES
from nnefc.symbolic.dims import Dimension, ceil_div, dimension, expression

__all__ = [
    "Tile",
    "fits_int32",
    "multiply_tiles",
    "points_of",
    "tiles_of",
    "transform_filter",
    "transform_input",
    "transform_integer_filter",
    "transform_output",
    "transformed_input",
]

Tile = tuple[int, int]
"""Rows and columns of results that are computed together: 2 or 4 of each."""

_TAPS = 3
_FILTERS = 16  # blocks of channels of filters that are transformed together
_SCALE = 4  # of transformed filters of integers in tiles of 2 × 2, whose coefficients are quarters
_PART = 128  # terms of a sum over channels, whose rounding the transform of the result makes larger
_P, _Q = 5 / 8, 3 / 2
_PRODUCT, _SUM = _P**2 * _Q**2, _P**2 + _Q**2  # (x² - p²) (x² - q²) = x⁴ - sum · x² + product


def _filter_row(point: float, others: tuple[float, ...]) -> list[float]:
    """Returns the value of a polynomial of three coefficients at a point, over what interpolation divides by."""
    return [point**power / math.prod(point - other for other in others) for power in range(3)]


# By the number of results: what each point makes of three taps of the filter.
_FILTER_ROWS = {
    2: np.array([_filter_row(0, (1, -1)), _filter_row(1, (0, -1)), _filter_row(-1, (0, 1)), [0, 0, 1]]),
    4: np.array(
        [
            _filter_row(0, (_P, -_P, _Q, -_Q)),
            _filter_row(_P, (0, -_P, _Q, -_Q)),
            _filter_row(-_P, (0, _P, _Q, -_Q)),
            _filter_row(_Q, (0, _P, -_P, -_Q)),
            _filter_row(-_Q, (0, _P, -_P, _Q)),
            [0, 0, 1],
        ]
    ),
}


def tiles_of(size: Dimension, results: int) -> Dimension:
    """Returns the number of tiles of so many results that cover a dimension of the result."""
    return ceil_div(size, results)


def points_of(tile: Tile) -> int:
    """Returns the products of a tile for each pair of channels, and the size of its transformed filter."""
    rows, columns = tile
    return (rows + _TAPS - 1) * (columns + _TAPS - 1)


def transform_filter(packed: np.ndarray, tile: Tile) -> np.ndarray:
    """`[O blocks, I blocks, 3, 3, i, o]` → `[points, O blocks, I blocks, i, o]`, computed in float64."""
    outer, inner, _, _, *block = packed.shape
    rows, columns = tile
    points, transform = points_of(tile), np.kron(_FILTER_ROWS[rows], _FILTER_ROWS[columns])
    # In TVM's memory, so that a constant of it needs no copy.
    transformed = np.from_dlpack(tvm.runtime.empty((points, outer, inner, *block), str(packed.dtype)))
    # By parts that stay in the cache, and products for which BLAS wakes no threads: on a busy machine those take far
    # longer.
    for o in range(outer):
        for i in range(0, inner, _FILTERS):
            part = packed[o, i : i + _FILTERS]
            products = transform @ part.reshape(len(part), 9, -1).astype(np.float64)
            transformed[:, o, i : i + _FILTERS] = products.swapaxes(0, 1).reshape(points, len(part), *block)
    return transformed


def transform_integer_filter(packed: np.ndarray) -> np.ndarray:
    """:func:`transform_filter` of int8 for tiles of 2 × 2, times `_SCALE`: int16."""
    transformed: np.ndarray = _SCALE * transform_filter(packed.astype(np.float32), (2, 2))  # exact
    return transformed.astype(np.int16)


def fits_int32(transformed: np.ndarray) -> bool:
    """Whether int32 holds all sums of products, for any bytes in the data.

    Transformed bytes have magnitudes of 2 · 255 at most, those of the point 1, 1, which are sums of four, 4 · 255.

    Args:
        transformed: `[points, O blocks, I blocks, i, o]`, of :func:`transform_integer_filter`.
    """
    terms = np.abs(transformed.astype(np.int64)).sum(axis=(2, 3)).reshape(4, 4, -1) * (2 * 255)
    terms[1, 1] *= 2
    results = (terms[row : row + 3, column : column + 3].sum((0, 1)) for row in (0, 1) for column in (0, 1))
    return all(int(sums.max()) <= np.iinfo(np.int32).max for sums in results)


def _input_of_two(d: Sequence[tirx.Expr]) -> list[tirx.Expr]:
    """Bᵀ times a column of four."""
    return [d[2] - d[0], d[1] + d[2], d[2] - d[1], d[3] - d[1]]


def _output_of_two(m: Sequence[tirx.Expr]) -> list[tirx.Expr]:
    """Aᵀ times a column of four."""
    return [m[0] + (m[1] + m[2]), (m[1] - m[2]) + m[3]]


def _input_of_four(d: Sequence[tirx.Expr]) -> list[tirx.Expr]:
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


def _output_of_four(m: Sequence[tirx.Expr]) -> list[tirx.Expr]:
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


_INPUT_ROWS = {2: _input_of_two, 4: _input_of_four}
_OUTPUT_ROWS = {2: _output_of_two, 4: _output_of_four}


def _columns(
    count: int,
    shape: tuple[object, ...],
    transform: Callable[[Sequence[tirx.Expr]], list[tirx.Expr]],
    load: Callable[..., tirx.Expr],
    width: int,
) -> list[te.Tensor]:
    """Transform the rows of a tile, of `width` elements; returns a tensor for each column of the result."""

    def column(q: int) -> te.Tensor:
        def element(r: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
            return transform([load(r, k, *tail) for k in range(width)])[q]

        return te.compute(shape, element, name=f"column{q}")

    return [column(q) for q in range(count)]


def transform_input(data: te.Tensor, height: Dimension, width: Dimension, tile: Tile) -> te.Tensor:
    """Bᵀ d B for all tiles; of bytes in int16.

    Args:
        data: `[N, I blocks, m · height + 2, n · width + 2, b]`, padded, for tiles of m × n results.
        height, width: the number of tiles.

    Returns:
        `[m + 2, n + 2, I blocks, N · height · width, b]`.
    """
    batch, blocks, _, _, size = data.shape
    tiles = dimension(batch) * height * width
    steps = tile
    height_, width_ = expression(height), expression(width)
    rows, columns = (results + _TAPS - 1 for results in tile)

    def load(r: tirx.Var, k: int, cb: tirx.Var, t: tirx.Var, lane: tirx.Var) -> tirx.Expr:
        n, y, x = t // (height_ * width_), t // width_ % height_, t % width_
        element = data(n, cb, y * steps[0] + r, x * steps[1] + k, lane)
        return element.astype("int16") if data.dtype in BYTES else element

    along = _columns(columns, (rows, blocks, tiles, size), _INPUT_ROWS[tile[1]], load, columns)

    def element(a: tirx.Var, b: tirx.Var, cb: tirx.Var, t: tirx.Var, lane: tirx.Var) -> tirx.Expr:
        made = [_INPUT_ROWS[tile[0]]([column(r, cb, t, lane) for r in range(rows)]) for column in along]
        return chosen(b, [chosen(a, column) for column in made])

    return te.compute(
        (rows, columns, blocks, tiles, size), element, name="tile", attrs={PERIODS: [rows, columns, 1, 1, 1]}
    )


def transformed_input(data: te.Tensor, height: Dimension, width: Dimension, tile: Tile, dtype: str) -> te.Tensor:
    """:func:`transform_input`, its result in the 16-bit float `dtype`."""
    tiles = transform_input(data, height, width, tile)
    return te.compute(tiles.shape, lambda *index: tiles(*index).astype(dtype), name="converted")


def multiply_tiles(
    transformed: te.Tensor,
    weights: te.Tensor,
    product: Callable[[tirx.Expr, tirx.Expr], tirx.Expr] = multiply,
) -> te.Tensor:
    """Multiplies the transformed data by the transformed filters, `[m + 2, n + 2, I blocks, tiles, i]` by `[points, O
    blocks, I blocks, i, o]`: `[m + 2, n + 2, O blocks, tiles, o]`.

    Args:
        product: of an element of the data and one of the weights; both may be packed, as for :mod:`.dot_product`.
    """
    rows, columns, blocks, tiles, size = transformed.shape
    _, outer, _, _, lanes = weights.shape
    is_exact = str(transformed.dtype).startswith("int")
    rc, ri = te.reduce_axis((0, blocks), "rc"), te.reduce_axis((0, size), "ri")
    return te.compute(
        (rows, columns, outer, tiles, lanes),
        lambda a, b, o, t, lane: te.sum(
            product(transformed(a, b, rc, t, ri), weights(a * columns + b, o, rc, ri, lane)), axis=[rc, ri]
        ),
        name="products",
        attrs={} if is_exact else {LONGEST_PART: _PART},
    )


def transform_output(products: te.Tensor, batch: int, height: int, width: int, tile: Tile) -> te.Tensor:
    """Aᵀ M A for all tiles: `[m + 2, n + 2, O blocks, tiles, b]` to `[N, O blocks, height, width, b]`.

    Integers are divided by the scale of their filters.
    """
    rows, columns, blocks, _, size = products.shape
    down, across = tile
    tile_rows, tile_columns = tiles_of(height, down), tiles_of(width, across)

    def load(r: tirx.Var, k: int, o: tirx.Var, n: tirx.Var, y: tirx.Var, x: tirx.Var, lane: tirx.Var) -> tirx.Expr:
        return products(r, k, o, (n * expression(tile_rows) + y) * expression(tile_columns) + x, lane)

    along = _columns(
        across, (rows, blocks, batch, tile_rows, tile_columns, size), _OUTPUT_ROWS[across], load, int(columns)
    )

    def element(n: tirx.Var, o: tirx.Var, y: tirx.Var, x: tirx.Var, lane: tirx.Var) -> tirx.Expr:
        at = o, n, y // down, x // across, lane
        made = [_OUTPUT_ROWS[down]([column(r, *at) for r in range(int(rows))]) for column in along]
        if products.dtype == "int32":
            made = [[value // _SCALE for value in column] for column in made]
        return chosen(x % across, [chosen(y % down, column) for column in made])

    return te.compute(
        (batch, blocks, height, width, size), element, name="result", attrs={PERIODS: [1, 1, down, across, 1]}
    )
