"""How bulk copies see tensors: offsets become coordinates, which conditions keep within their dimensions."""

from __future__ import annotations

from tvm import tirx

from nnefc.passes.schedule.cuda.filter_boxes import Filters
from nnefc.passes.schedule.cuda.tensor_coordinates import Affine, coordinates_of

N, C, Y, X, K, L = (tirx.Var(name, "int32") for name in "ncyxkl")
AXES = {N: 3, C: 3, Y: 8, X: 5, K: 3, L: 8}
SIZES = 8, 5, 8, 3, 3
OFFSET = 960 * N + 320 * C + 40 * Y + 8 * X + 40 * K + L - 40


def test_an_offset_is_split_into_coordinates_that_conditions_bound() -> None:
    inside = tirx.all(tirx.const(1, "int32") <= Y + K, tirx.const(9, "int32") > Y + K)
    assert coordinates_of(OFFSET, inside, AXES, SIZES) == (
        Affine({L: 1}, 0),
        Affine({X: 1}, 0),
        Affine({Y: 1, K: 1}, -1),
        Affine({C: 1}, 0),
        Affine({N: 1}, 0),
    )


def test_coordinates_that_may_leave_their_dimension_are_none() -> None:
    above = tirx.const(1, "int32") <= Y + K
    assert coordinates_of(OFFSET, None, AXES, SIZES) is None
    assert coordinates_of(OFFSET, above, AXES, SIZES) is None
    assert coordinates_of(40 * Y * Y + L, None, AXES, SIZES) is None
    assert coordinates_of(40 * Y + 8 * X + L, None, AXES, SIZES) is not None


def test_filters_begin_at_lines_of_a_box() -> None:
    filters = Filters(tirx.Var("w", "int32"), lanes=16, lines=4, vectors=2, of_batch=8)
    found = filters.coordinates(*(tirx.const(value, "int32") for value in (32, 48, 2)))
    assert [int(value) for value in found] == [0, 2 * 8 + 32 * 16 // 256, 48 // 16]
