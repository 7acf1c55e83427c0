"""Vectors whose lanes are read in another order: before and after, as text."""

from __future__ import annotations

import re

import pytest
from tir_programs import function
from tvm import tirx

from nnefc.passes.tir.cpu.permute_lanes import permute_lanes, use_permuted_loads

BEFORE = """
    x: T.Buffer((64,), "float32"), w: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")
    for i, turn in T.grid(4, 4):
        for lane in T.vectorized(16):
            y[i * 16 + lane] = y[i * 16 + lane] + x[{index}] * w[i * 16 + lane]
"""


def text(index: str) -> str:
    use_permuted_loads()
    body = function(BEFORE.format(index=index)).body
    return re.sub(r"\s+", " ", tirx.PrimFunc([], permute_lanes(body)).script()).replace("T.", "")


def test_a_vector_is_loaded_whole_and_turned_in_registers() -> None:
    assert "nnefc.turned(x[i * 16 + lane], turn) * w[i * 16 + lane]" in text("i * 16 + (lane ^ turn)")
    half = text("i * 16 + ((turn // 2 * 32 + lane) ^ turn)")
    assert "nnefc.turned(x[i * 16 + (turn // 2 * 32 + lane)], turn)" in half


@pytest.mark.parametrize(
    "index",
    [
        "i * 16 + ((turn * 8 + lane) ^ turn)",  # not from a full vector on
        "i + 2 * (lane ^ turn)",
        "i + lane + (lane ^ turn)",
        "lane ^ (lane // 2)",
        "i ^ turn",
    ],
)
def test_other_orders_stay_as_they_are(index: str) -> None:
    assert "nnefc.turned" not in text(index)
