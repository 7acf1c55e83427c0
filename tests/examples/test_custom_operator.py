"""The example of operators of one's own: three formats, an operator in TE and one in C, known and dynamic sizes."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnefc.operators.custom_registry import REGISTERED

FOLDER = Path(__file__).parents[2] / "examples" / "custom_operator"


@pytest.fixture(autouse=True)
def _registrations() -> Iterator[None]:
    before = dict(REGISTERED)
    yield
    REGISTERED.clear()
    REGISTERED.update(before)


def test_models_of_all_formats_have_the_operators(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(FOLDER / "run.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["model.onnx"] * 2 + ["model.nnef"] * 2 + ["model.pnnx.param"] * 2
