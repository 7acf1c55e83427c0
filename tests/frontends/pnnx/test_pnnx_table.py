"""The documentation's table of operators."""

from __future__ import annotations

from pathlib import Path

from pnnx_operators import operators_table

from nnefc.frontends.pnnx.operators.declaration import OPERATORS

TABLE = Path(__file__).parents[3] / "docs" / "pnnx-operators.md"


def test_the_table_is_up_to_date() -> None:
    assert TABLE.read_text(encoding="utf-8") == operators_table(), "run: python docs/pnnx_operators.py"


def test_there_are_operators_of_every_name_space() -> None:
    spaces = [name.partition(".")[0] for name in OPERATORS]
    assert {space: spaces.count(space) > 20 for space in ("nn", "F", "torch", "Tensor")} == dict.fromkeys(
        ("nn", "F", "torch", "Tensor"), True
    )
