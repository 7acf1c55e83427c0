"""The documentation's table of operators."""

from __future__ import annotations

from tflite_operators import PAGE, operators_table


def test_the_table_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == operators_table(), "run: python docs/tflite_operators.py"
