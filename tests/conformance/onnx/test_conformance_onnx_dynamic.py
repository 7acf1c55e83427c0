"""ONNX's node tests with all sizes open, compiled and run at the test's own.

`open_refused.txt` lists those that are read with the test's sizes and not with open ones, and those whose libraries
refuse the test's sizes, and why.
`python test_conformance_onnx_dynamic.py` writes it. Each reason is of a kind in `REASONS`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Set
from pathlib import Path

import pytest
from onnx_dynamic import Case, collect, load_dynamic, run_dynamic

REFUSED = Path(__file__).parent / "open_refused.txt"

PARTS = 8

REASONS = {
    r"do(es)? not fit|must agree|cannot take the shape|do not broadcast|do not make an image|needs? scales of the shape"
    r"|should be a scalar|is declared with|neither a row|do not divide|the query \[|the offsets \[": "sizes of several "
    "names must agree",
    r"depends on whether|which the ranges leave open": "what is computed depends on a size",
    r"must be one number|must be one integer": "an operand of one element is a vector of any length",
    r"must be known|not known at compile time|which is not known|which is not the same|known only at run time": "a "
    "number that must be known is a size",
    r"is not supported": "the operator is not supported",
    r"the network (takes|has)|both are the same": "sizes that the network takes by default leave out the test's own",
}
"""What reasons of refusals say, by what stands in them."""


RANDOM = "bernoulli|training_dropout"
"""Tests whose results are random: they run."""
MUST_AGREE = "they must be equal|both are the same|must be a multiple of|an image is of a kind that is not decoded"
"""Errors of a run: sizes that a library assumes to be related and that the test's own are not; images in WebP."""


def read_refused() -> dict[str, str]:
    lines = (line.partition(" ") for line in REFUSED.read_text().splitlines())
    return {name: reason for name, _, reason in lines}


def found_refused() -> Iterator[tuple[str, str]]:
    """Tests that are read with their sizes, and not with open ones; and why."""
    from nnefc.support.diagnostics import CompileError

    for case in collect():
        if "_expanded" in case.name:
            continue
        try:
            load_dynamic(case)
        except CompileError as error:
            if _is_read(case):
                yield case.name, error.message.splitlines()[0][:300]


def refused_in_runs(names: Set[str]) -> Iterator[tuple[str, str]]:
    """Those of these tests that compile with dynamic dimensions, and are refused at the test's own; and why."""
    for case in collect():
        if case.name in names:
            outcome = run_dynamic(case)
            if outcome.status == "refused" and not re.search(MUST_AGREE, outcome.reason):
                yield case.name, outcome.reason[:300]


def _is_read(case: Case) -> bool:
    from nnefc.support.diagnostics import CompileError

    try:
        load_dynamic(case, known=True)
    except CompileError:
        return False
    return True


pytestmark = pytest.mark.filterwarnings("ignore::nnefc.support.diagnostics.ModelWarning")


def test_every_refusal_has_a_reason_of_a_kind() -> None:
    refused = read_refused()
    assert list(refused) == [line.partition(" ")[0] for line in REFUSED.read_text().splitlines()], "each once"
    assert {name: why for name, why in refused.items() if not any(re.search(kind, why) for kind in REASONS)} == {}
    assert [kind for kind in REASONS if not any(re.search(kind, why) for why in refused.values())] == []


@pytest.mark.slow(100)
@pytest.mark.parametrize("part", range(PARTS))
def test_operators_take_dynamic_sizes(part: int) -> None:
    refused = read_refused()
    cases = [case for case in collect() if "_expanded" not in case.name and case.name not in refused]
    outcomes = {case.name: run_dynamic(case) for case in cases[part::PARTS]}
    failed = {
        name: found.reason for name, found in outcomes.items() if found.status != "pass" and not re.search(RANDOM, name)
    }
    assert {name: why for name, why in failed.items() if outcomes[name].status != "refused"} == {}
    assert {name: why for name, why in failed.items() if not re.search(MUST_AGREE, why)} == {}


@pytest.mark.slow(100)
def test_no_more_tests_than_before_are_refused_with_dynamic_sizes() -> None:
    assert {name for name, _ in found_refused()} <= set(read_refused())


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    found = dict(found_refused())
    found |= refused_in_runs(read_refused().keys() - found.keys())
    REFUSED.write_text("".join(f"{name} {reason}\n" for name, reason in found.items()))
