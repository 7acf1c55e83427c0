"""Calculating with sizes that are known at run time: what is simplified, what is known, and what is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import permutations

import pytest
from tvm import te, tirx

from nnefc.frontends.dynamic_shapes import DynamicDimensions, dynamic_shape_context
from nnefc.frontends.refusals import reason_of
from nnefc.support.diagnostics import CompileError, WriteError
from nnefc.symbolic.dims import (
    LARGEST,
    Dimension,
    DynamicSize,
    Range,
    Size,
    bounds,
    broadcast,
    ceil_div,
    dimension,
    element_count,
    expression,
    greatest,
    known_less,
    may_exceed,
    minimum,
    named,
    ranges,
    size_hint,
    substituted,
    widest,
)
from nnefc.symbolic.refinement import Refined, Refinement, refined
from nnefc.symbolic.unification import unify_dims

N, H, W = (tirx.Var(name, "int64") for name in "nhw")


@pytest.fixture(autouse=True)
def _known() -> Iterator[None]:
    with ranges({N: Range(1, 64, 1), H: Range(1, 4096, 224), W: Range(32, 4096, 320)}):
        yield


def test_sizes_that_cancel_are_numbers() -> None:
    h, w = dimension(H), dimension(W)
    assert [h - h, h * w // w - h, (h + 1) * 2 - 2 * h, h * 0, 64 * h % 16] == [0, 0, 2, 0, 0]
    assert all(isinstance(size, int) for size in (h - h, (h + 1) * 2 - 2 * h))


def test_equal_sizes_are_known_as_equal_whichever_way_they_are_computed() -> None:
    h = dimension(H)
    twice = ((h - 1) // 2 + 1 - 1) // 2 + 1
    assert (h - 1) // 2 + 1 == (h + 1) // 2
    assert twice == (h + 3) // 4
    assert hash(twice) == hash((h + 3) // 4)
    assert h != dimension(W)
    assert h != h + 1


def test_products_of_several_sizes_are_equal_in_any_order() -> None:
    n, h, w = dimension(N), dimension(H), dimension(W)
    in_order = n * h * w * 6
    assert all(w * 2 * (h * 3) * n == in_order for n, h, w in permutations((n, h, w)))
    assert (w + 1) * h * n + 2 - n * (h * (w + 1)) == 2


def test_products_of_sums_are_equal_wherever_their_common_factors_are() -> None:
    n, h, w = dimension(N), dimension(H), dimension(W)
    assert (2 * (h + 1)) * w * 7 == (h + 1) * w * 14
    assert not may_exceed((2 * h + 2) * ceil_div(w, 14) * 14, (h + 1) * ceil_div(w, 14) * 28)
    assert (n + 1) * (h + 1) * (w - 3) - n * h * w == n * w - 3 * (n * h + n + h) + w * (h + 1) - 3
    assert (h + 1) * n != (h + 2) * n


def test_quotients_are_by_positive_numbers() -> None:
    h = dimension(H)
    up = -(-h // 3)
    assert up == ceil_div(h, 3)
    assert substituted(up, {H: 7}) == 3
    assert "-3" not in str(up)
    assert (-h // 4) * 2 + 2 * ceil_div(h, 4) == 0


def test_a_sum_that_is_one_of_several_factors_is_divided() -> None:
    h, w = dimension(H), dimension(W)
    rows, columns = (h - 1) // 32 + 1, (w - 1) // 32 + 1
    assert rows * 32 * columns // 32 == rows * columns
    assert (h + 1) * 6 * (w + 2) // 3 == 2 * (h + 1) * (w + 2)
    assert (h + 1) * 6 * (w + 2) // 4 != (h + 1) * (w + 2)


def test_multiples_are_asked_of_the_dimensions_that_need_them_alone() -> None:
    n, h, w = dimension(N), dimension(H), dimension(W)
    with pytest.raises(Refined) as asked:
        unify_dims(n * (h // 8) * w, n * ((h - 1) // 8 + 1) * w)
    assert asked.value.multiples == {"h": 8}
    with pytest.raises(Refined) as asked:
        unify_dims(n * (h // 8) * (w // 8), n * ((h - 1) // 8 + 1) * ((w - 1) // 8 + 1))
    assert asked.value.multiples == {"h": 8, "w": 8}


def test_products_of_sums_are_multiplied_out_where_they_cancel() -> None:
    h, w = dimension(H), dimension(W)
    assert (h + 1) * (2 * h - 1) - (h * h * 2 + h) == -1
    assert (h + w) * (h - w) == h * h - w * w
    assert (h + 1) * (h + 1) != h * h + 1


def test_sizes_of_known_dimensions_are_numbers_however_large_they_are() -> None:
    n, h = dimension(N), dimension(H)
    size = substituted(n * h * 4, {N: 1 << 30, H: 1 << 30})
    assert isinstance(size, int) and size == 1 << 62


def test_what_is_filled_up_to_a_multiple_is_seen_to_be_one() -> None:
    w = dimension(W)
    added = ceil_div(w, 13) * 13 - w
    assert (w + added) % 13 == 0
    assert not may_exceed(w, w + added)
    assert not may_exceed(w // 2, ceil_div(w // 2, 32) * 32)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (lambda h, w: h > 0, True),
        (lambda h, w: h >= 1, True),
        (lambda h, w: w < 32, False),
        (lambda h, w: h + 2 >= 3, True),
        (lambda h, w: h * w > 31, True),
        (lambda h, w: w // 4 < 8, False),
        (lambda h, w: h <= 4096, True),
    ],
)
def test_comparisons_follow_from_the_ranges(condition: object, holds: bool) -> None:
    assert condition(dimension(H), dimension(W)) is holds


def test_a_comparison_that_the_ranges_leave_open_is_refused_with_its_sizes() -> None:
    with pytest.raises(CompileError, match=r"depends on whether h > 5, which the ranges leave open") as error:
        bool(dimension(H) > 5)
    assert "narrow the ranges" in str(error.value)


def test_products_of_sizes_without_a_largest_one_have_names() -> None:
    """Their bounds are those of int64, which the ends of TVM's ranges do not reach."""
    variables = [tirx.Var(name, "int64") for name in "abcdef"]
    with ranges({var: DynamicSize().values for var in variables}):
        count = math.prod(Size(var) for var in variables)
        assert bounds(count)[1] > 1 << 40
        assert bounds(named("e", count)) == (1, 1 << 40)


def test_questions_have_answers_where_comparisons_have_none() -> None:
    h = dimension(H)
    assert (may_exceed(h, 5), known_less(h, 5), may_exceed(h, 4096), known_less(h, 4097)) == (True, False, False, True)
    assert (bounds((h + 1) // 2), bounds(7)) == ((1, 2048), (7, 7))


def test_bounds_are_those_of_each_value_of_a_remainder() -> None:
    left = dimension(H) % 3
    assert [bounds(size) for size in (1 - (left + 1) // 2, (left + 1) // 2 + 1 - left, left)] == [(0, 1)] * 2 + [(0, 2)]


def test_size_hints_are_those_of_dimensions() -> None:
    n, h, w = map(dimension, (N, H, W))
    assert (size_hint(element_count((n, 3, h, w // 4))), size_hint(7)) == (3 * 224 * 80, 7)


def test_dimensions_of_two_operands_are_those_of_the_one_that_is_not_repeated() -> None:
    h = dimension(H)
    assert [broadcast(1, h), broadcast(h, 1), broadcast(h, h)] == [h, h, h]


def test_sizes_can_be_written_with_other_dimensions() -> None:
    assert substituted((dimension(H) + 1) // 2, {H: dimension(W) * 2}) == dimension(W)
    assert substituted(5, {H: 1}) == 5


def test_divisions_by_a_size_that_becomes_zero_have_a_value() -> None:
    n, h = dimension(N), dimension(H)
    for size, value in ((h // n, 0), (h % n, h), (h * 3 % (n * 2) + 1, h * 3 + 1), ((h + 5) // (h // n), 0)):
        assert substituted(size, {N: 0}) == value


def test_an_dynamic_size_is_never_taken_for_a_number() -> None:
    h = dimension(H)
    assert not isinstance(h, int)
    for use in (int, range, float, lambda size: [0] * size):
        with pytest.raises(TypeError):
            use(h)


def test_tensors_of_tvm_have_dynamic_sizes() -> None:
    shape: tuple[Dimension, ...] = (dimension(N), 3, (dimension(H) + 1) // 2)
    assert [dimension(size) for size in te.placeholder(shape).shape] == list(shape)


def test_variables_that_nothing_is_reported_about_are_no_less_than_nothing() -> None:
    size = Size(tirx.Var("other", "int64"))
    assert size >= 0
    assert may_exceed(1, size)


def test_a_name_stands_for_a_size_without_bounds_too() -> None:
    vast, minimum = named("e", dimension(N) * dimension(H) * dimension(W) * (1 << 40)), named("e", dimension(N))
    assert bounds(named("e", dimension(N) * (dimension(H) - 3)))[0] == 0
    assert bounds(vast)[1] >= 1 << 40 and size_hint(vast) == 224 * 320 << 40
    assert bounds(minimum) == (1, 64) and size_hint(minimum) == 1


def compared(refinement: Refinement) -> tuple[bool, bool, list[tuple[str, int, int]]]:
    """A network that asks twice how large a dimension is, of typically 30; and what it becomes."""
    made = DynamicDimensions(refinement)
    h, w = made.size("h", DynamicSize(likely=30)), made.size("w", DynamicSize())
    with dynamic_shape_context(made.all(), {"x": (h, w)}):
        return h // 2 > 48, h >= 5, [(each.name, each.minimum, each.maximum) for each in made.all()]


def test_a_dimension_that_a_comparison_depends_on_is_refined_around_its_size_hint() -> None:
    found, refinement = refined(compared)
    assert found == (False, True, [("h", 5, 97), ("w", 1, LARGEST)])
    assert "the size of 'h' must be from 5 to 97" in refinement.notes["h"]


def test_dimensions_that_decide_a_comparison_together_are_named() -> None:
    def build(refinement: Refinement) -> bool:
        made = DynamicDimensions(refinement)
        h, w = made.size("h", DynamicSize(3, 50)), made.size("w", DynamicSize(2, 9))
        with dynamic_shape_context(made.all(), {"x": (h, w)}):
            return h * w > 48

    with pytest.raises(CompileError, match="depends on whether") as error:
        refined(build)
    assert "narrow the ranges of 'h' and 'w'" in str(error.value.hint)


def test_a_file_that_cannot_be_written_is_no_error_of_dynamic_sizes() -> None:
    sizes = DynamicDimensions(Refinement())
    size = sizes.size("h", DynamicSize())
    full, wrong = WriteError("cannot write x", hint="make room"), CompileError("it is wrong", hint="fix it")
    for error, hint in ((full, "make room"), (wrong, "fix it; or give the sizes that are open, .*--shape h=.*")):
        with pytest.raises(CompileError) as caught, dynamic_shape_context(sizes.all(), {"x": (size,)}):
            raise error
        assert re.fullmatch(hint, str(caught.value.hint))


def test_a_name_that_is_a_number_is_not_reported_where_it_is_the_size() -> None:
    def made(refinement: Refinement) -> None:
        sizes = DynamicDimensions(refinement)
        one, two = sizes.size("64", DynamicSize()), sizes.size("h", DynamicSize())
        with dynamic_shape_context(sizes.all(), {"x": (one, two)}):
            assert unify_dims(one, 64) and unify_dims(two, 3)

    _, refinement = refined(made)
    assert list(refinement.notes) == ["h"]


def test_limits_of_sizes_are_limits_of_their_products_and_choices() -> None:
    first, last = tirx.Var("first", "int64"), tirx.Var("last", "int64")
    height, width = dimension(H), dimension(W)
    part = {first: Range(0, 4096, 1), last: Range(0, 4096, 9)}
    with ranges({H: Range(1, 4096, 224), W: Range(32, 4096, 320), **part}):
        apart = Size(last) - Size(first)
        assert widest(apart * apart, {first: height, last: height}) == height * height
        choice = dimension(tirx.Select(last == 0, tirx.IntImm("int64", 0), first))
        assert widest(choice * width, {first: height, last: height}) == height * width
        assert str(choice) == "(0 if last == 0 else first)"
        assert reason_of(ValueError("no sum of T.max(n - T.int64(3), T.int64(-1))")) == "no sum of max(n - 3, (-1))"


def test_minima_of_sums_are_equal_in_any_order_of_the_terms() -> None:
    height, width = dimension(H), dimension(W)
    a, b = minimum(height, 7), greatest(height - 300, 1)
    one, other = (tirx.min(expression(width), sum_) for sum_ in (a.expr + b.expr, b.expr + a.expr))
    assert dimension(one) == dimension(other)
