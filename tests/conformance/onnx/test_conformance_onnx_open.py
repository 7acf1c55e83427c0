"""ONNX's node tests with all sizes open: a sample is compiled and run, of all it is tried whether they can be read.

`open_refused.txt` lists those that are read with the test's own sizes and not with open ones, and why.
`python test_conformance_onnx_open.py` writes it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from onnx_open import Case, collect, load_open, run_open

REFUSED = Path(__file__).parent / "open_refused.txt"

SAMPLE = (
    "test_add_bcast",
    "test_argmax_keepdims_example",
    "test_attention_4d",
    "test_averagepool_2d_ceil",
    "test_conv_with_strides_padding",
    "test_gemm_default_matrix_bias",
    "test_layer_normalization_3d_axis1_epsilon",
    "test_quantizelinear_axis",
    "test_spacetodepth_example",
    "test_top_k",
)


def read_refused() -> dict[str, str]:
    lines = (line.partition(" ") for line in REFUSED.read_text().splitlines())
    return {name: reason for name, _, reason in lines}


def found_refused() -> Iterator[tuple[str, str]]:
    """Tests that are read with their own sizes, and not with open ones; and why."""
    from nnefc.diagnostics import CompileError

    for case in collect():
        if "_expanded" in case.name:
            continue
        try:
            load_open(case)
        except CompileError as error:
            if _is_read(case):
                yield case.name, error.message.splitlines()[0][:160]


def _is_read(case: Case) -> bool:
    from nnefc.diagnostics import CompileError

    try:
        load_open(case, known=True)
    except CompileError:
        return False
    return True


pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::nnefc.diagnostics.ModelWarning")]


def test_operators_take_open_sizes() -> None:
    outcomes = {case.name: run_open(case) for case in collect() if case.name in SAMPLE}
    assert {name: found.reason for name, found in outcomes.items() if found.status != "pass"} == {}
    assert len(outcomes) == len(SAMPLE)


def test_no_more_tests_than_before_are_refused_with_open_sizes() -> None:
    assert {name for name, _ in found_refused()} <= set(read_refused())


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    REFUSED.write_text("".join(f"{name} {reason}\n" for name, reason in found_refused()))
