"""The table of ONNX operators in the documentation."""

from __future__ import annotations

from pathlib import Path

from onnx_operators import operators_table

PAGE = Path(__file__).parents[4] / "docs" / "onnx-operators.md"


def test_the_page_shows_what_is_registered() -> None:
    assert PAGE.read_text() == operators_table(), "run: python docs/onnx_operators.py"


def test_a_row_names_versions_types_and_limits() -> None:
    rows = {row.split(" | ")[0].strip("| "): row for row in operators_table().splitlines() if row.startswith("| ")}
    assert "| 11, 13, 16, 18 |" in rows["ScatterElements"]
    assert "| 10 | int8, uint8 |" in rows["ConvInteger"]
    assert "known at compile time" in rows["DFT"]
    assert "| 15, 22 |" in rows["Bernoulli"]
