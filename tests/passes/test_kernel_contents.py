"""Kernels are the same content if they compute the same, whatever their variables are called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tir_programs import function

from nnefc.backends.cpu import CpuBackend
from nnefc.passes.kernel_contents import content_of, with_numbered_variables
from nnefc.targets.machine.any_target import parse_any_target
from nnefc.targets.machine.cpu.target import Target

_BODY = """{x}: T.Buffer((9,)), {y}: T.Buffer((9,))
    for {i} in range({count}):
        {y}[{i}] = {x}[{i}] + T.float32({number})
"""


def content(
    target: str = "llvm -mcpu=x86-64-v3", *, strict: bool = False, patches: bool = False, **how: Any
) -> str | None:
    names = {"x": "x", "y": "y", "i": "i", "count": 9, "number": 1.5} | how
    func = function(_BODY.format(**names))
    use: Any = SimpleNamespace(
        kernel=SimpleNamespace(func=func), sizes=(), results=1, in_place=how.get("in_place", False), aligned=True
    )
    machine = parse_any_target(target)
    assert isinstance(machine, Target)
    return content_of(use, CpuBackend(machine.with_patches() if patches else machine).settings(strict, None))


def test_names_of_variables_and_patches_do_not_count() -> None:
    assert content() == content(x="lv12", y="relu", i="ax0") == content(patches=True)


@pytest.mark.parametrize(
    "other",
    [
        {"count": 8},
        {"number": 2.5},
        {"x": "a", "y": "b", "in_place": True},
        {"target": "llvm -mcpu=x86-64-v4"},
        {"strict": True},
    ],
)
def test_everything_that_changes_code_counts(other: dict[str, Any]) -> None:
    assert content(**other) != content()


def test_variables_are_numbered_in_their_order() -> None:
    made = [
        with_numbered_variables(function(_BODY.format(x=x, y=y, i="i", count=9, number=1.5))) for x, y in ("ab", "xy")
    ]
    assert made[0].script() == made[1].script()
    assert "v0" in made[0].script()
