"""Innermost loops as instructions that multiply two vectors and sum up the products: before and after, as text."""

from __future__ import annotations

import re

from tir_programs import function
from tvm import tirx

from nnefc.ir.attributes import DOT_ACCUMULATE
from nnefc.passes.compute.dot.dot_accumulate import filled_up, vector_elements
from nnefc.passes.tir.cpu.lower_dot_accumulate import lower_dot_accumulate, use_dot_accumulate

BEFORE = """
    x: T.Buffer((32,), "int8"), w: T.Buffer((64,), "int8"), y: T.Buffer((2,), "int32")
    total = T.decl_buffer((2,), "int32")
    for k in range(2):
        for c in T.unroll(2):
            for i in T.serial(16, annotations={{"{note}": True}}):
                total[c] = total[c] + T.Cast("int32", x[k * 16 + i]) * T.Cast("int32", w[k * 32 + c * 16 + {position}])
    for lane in T.vectorized(2):
        y[lane] = total[lane] + 1
"""


def text(note: str, position: str = "i") -> str:
    use_dot_accumulate()
    body = function(BEFORE.format(note=note, position=position)).body
    return re.sub(r"\s+", " ", tirx.PrimFunc([], lower_dot_accumulate(body)).script()).replace("T.", "")


def test_a_loop_over_the_elements_of_a_vector_is_one_instruction_and_each_sum_a_variable() -> None:
    found = text(DOT_ACCUMULATE)
    vectors = "x[Ramp(Add(k * 16, 0), 1, 16)], w[Ramp(Add(k * 32 + c * 16, 0), 1, 16)]"
    assert f"total[c] = nnefc.lane_sum(total[c], {vectors})" in found
    assert "y[lane] = nnefc.chosen_sum(lane, total[0], total[1]) + 1" in found
    assert "range(16)" not in found


def test_other_loops_and_what_does_not_lie_side_by_side_stay_as_they_are() -> None:
    for found in (text("nnefc.other"), text(DOT_ACCUMULATE, "i * 2")):
        assert "nnefc.lane_sum(" not in found and "nnefc.chosen_sum" not in found
        assert "y[lane] = total[lane] + 1" in found


def test_vectors_are_as_long_as_those_of_the_machine() -> None:
    assert [vector_elements(count, 16) for count in (48, 24, 12, 6)] == [16, 8, 4, 1]
    assert [vector_elements(count, 16, same_sign=False) for count in (48, 12)] == [8, 4]
    assert vector_elements(64, 32) == 32
    assert [filled_up(count, 16) for count in (3, 5, 9, 17)] == [4, 8, 16, 32]
