"""Programs of other packages with nnefc instead of onnxruntime, where these packages are installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnxruntime_programs import PROGRAMS, Program, compared, difference, run


def installed(name: str) -> pytest.MarkDecorator:
    missing = not PROGRAMS[name].is_installed
    return pytest.mark.skipif(missing, reason=f"{' or '.join(PROGRAMS[name].packages)} is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=installed(name)) for name in PROGRAMS])
def test_a_program_finds_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNEFC_CACHE", str(tmp_path))
    verdict, _, _ = compared(name)
    assert verdict.startswith("equal")


def test_a_failing_program_is_not_equal() -> None:
    assert "ZeroDivisionError" in run(Program((), "result = 1 / 0"), instead=False).error


def test_differences_are_those_of_lists() -> None:
    assert difference([[100.0, 1.0], "a"], [[100.0, 2.0], "a"]) == 0.01
    assert difference({"a": 3.0}, {"a": 2.0}) == 0.5
    for found, wanted in ((["a"], ["b"]), ([1.0], [1.0, 2.0]), ({"a": 1.0}, {"b": 1.0})):
        with pytest.raises(ValueError, match="and"):
            difference(found, wanted)
