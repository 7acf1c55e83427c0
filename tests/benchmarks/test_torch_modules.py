"""The table of PyTorch's modules: what it says of engines that run, and of those that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch_modules
from torch_modules import _cells, _ratio, _summary

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


def test_a_compiler_is_asked_once_for_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def in_process(name: str, engines: list[str], keep: Path, prepare: bool = False) -> dict[str, Any]:
        asked.append((*engines, "prepare") if prepare else tuple(engines))
        if prepare and engines == ["aotinductor"]:
            return {"failed": "takes longer than 600 s of processor time"}
        return {"parameters": 1, "engines": {each: {"seconds": len(asked), "error": 0.0} for each in engines}}

    monkeypatch.setattr(torch_modules, "_in_process", in_process)
    monkeypatch.setattr(torch_modules, "_state", lambda engine: "digest")
    engines = ["eager", "inductor", "aotinductor"]
    prepared = {"inductor": 1, "aotinductor": "takes longer than 600 s of processor time"}
    assert torch_modules._prepared("net", engines, tmp_path) == prepared
    assert torch_modules._prepared("net", engines, tmp_path) == prepared
    assert torch_modules._row("net", engines, tmp_path) == {
        "parameters": 1,
        "engines": {
            "eager": {"seconds": 3, "error": 0.0},
            "inductor": {"seconds": 1, "error": 0.0},
            "aotinductor": {"failed": "takes longer than 600 s of processor time"},
        },
    }
    assert asked == [("inductor", "prepare"), ("aotinductor", "prepare"), ("eager", "inductor")]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "net-aotinductor-digest.json",
        "net-inductor-digest.json",
    ]


@pytest.mark.parametrize(
    ("ends", "failure"),
    [
        ("os.kill(os.getpid(), signal.SIGXCPU)", "takes longer than 600 s of processor time"),
        ("raise SystemExit('ImportError: no')", "ImportError: no"),
    ],
)
def test_a_process_that_ends_early_says_why(
    ends: str, failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch_modules.py").write_text(f"import os, signal\n{ends}\n", encoding="utf-8")
    monkeypatch.setattr(torch_modules, "HERE", tmp_path)
    assert torch_modules._in_process("net", ["inductor"], tmp_path, prepare=True) == {"failed": failure}
