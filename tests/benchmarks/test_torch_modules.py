"""The table of PyTorch's modules: what it says of engines that run, and of those that do not."""

from __future__ import annotations

from pathlib import Path

from torch_modules import _cells, _first_seconds, _ratio, _summary

ENGINES = {
    "eager": {"seconds": 0.1, "error": 1e-7, "milliseconds": 8.0},
    "nnefc": {"seconds": 2.0, "error": 2e-6, "milliseconds": 2.0},
    "inductor": {"seconds": 30.0, "error": 1e-6, "milliseconds": 3.0},
    "aotinductor": {"failed": "RuntimeError: no"},
}


def test_a_row_has_the_ratio_of_engines_that_run() -> None:
    assert _cells("net", 1_500_000, ENGINES) == [
        *("net", "1.5", "8", "2", "3", "-"),
        *("1.5", "-", "2.0e-06", "2", "30"),
    ]
    assert _ratio({"nnefc": ENGINES["nnefc"]}, "inductor") is None


def test_the_summary_counts_modules_that_run_and_agree() -> None:
    wrong = {**ENGINES, "nnefc": {"seconds": 1.0, "error": 0.5, "milliseconds": 2.0}}
    fails = {**ENGINES, "nnefc": {"failed": "CompileError: no"}}
    first, *others = _summary(
        {"a": {"engines": ENGINES}, "b": {"engines": wrong}, "c": {"engines": fails}, "d": {"failed": ""}}
    )
    assert first.startswith("Of 4 modules, nnefc runs 2; 1 agree")
    assert others == [
        "Times as fast as inductor: 1.50 (mean of 2), 1.50 at least.",
        "Times as fast as PyTorch without compiler: 4.00 (mean of 2), 4.00 at least.",
    ]


def test_the_seconds_of_a_compilation_are_those_of_the_first_one(tmp_path: Path) -> None:
    assert [_first_seconds(tmp_path / "net.json", seconds) for seconds in (30.0, 0.5)] == [30.0, 30.0]
