"""Attention in one launch by multiply-adds of float32, and of a single query, against NumPy in float64."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from attention_kernels import TARGET, TOLERANCES, Case, assert_close
from emulate import device_code

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.gpu.attention.analysis import attention_of
from nnefc.targets.codegen.cuda.compiler import compile_image, find_compiler

OLD = replace(TARGET, architectures=(75,))


@pytest.mark.parametrize(
    "case",
    [
        Case(40, 60, 64, dtype="float32", mask="causal", heads=4, sharing=4),
        Case(33, 50, 20, dtype="float32", mask="added", width=12),
        Case(65, 33, 128, dtype="float32", heads=1),
    ],
    ids=str,
)
@pytest.mark.sample(1)
def test_attention_is_what_numpy_computes(case: Case) -> None:
    result, expected, rule = case.run()
    assert_close(result, expected, TOLERANCES["float32"])
    assert rule == "AttentionRule"


@pytest.mark.parametrize(
    "case",
    [
        Case(1, 77, 64, mask="added"),
        Case(1, 700, 40, heads=6, sharing=3, stored="float32"),
        Case(1, 40, 128, dtype="float32", heads=8, sharing=4),
        Case(1, 1, 80),
        Case(1, 300, 20, width=12, dtype="float32"),
        Case(1, 600, 256, heads=1),
        Case(1, 129, 7, width=3, heads=3),
    ],
    ids=str,
)
@pytest.mark.sample(2)
def test_a_single_query_reads_keys_once(case: Case) -> None:
    result, expected, rule = case.run()
    assert_close(result, expected, TOLERANCES[case.dtype])
    assert rule == "SingleQueryRule"


@pytest.mark.parametrize("queries", [1, 30])
def test_rows_of_which_nothing_is_seen_are_nan(queries: int) -> None:
    result, expected, _ = Case(queries, 40, 16, mask="added", hides_row=True, dtype="float32").run()
    assert np.isnan(expected[1, -1]).all() and np.isnan(expected).sum() == np.isnan(expected[1, -1]).sum()
    assert_close(result, expected, TOLERANCES["float32"])


def test_devices_without_the_instructions_multiply_float32() -> None:
    result, expected, rule = Case(20, 30, 32).run(OLD)
    assert_close(result, expected, TOLERANCES["float16"])
    assert rule == "AttentionRule"


def test_keys_of_a_window_are_all_that_a_tile_reads() -> None:
    attention = attention_of(KernelAnalysis(Case(300, 300, 64, mask="window").kernel()), TARGET)
    assert attention is not None
    assert (len(attention.ends), len(attention.firsts)) == (1, 1)
    assert attention.heads_sharing() == 1


@pytest.mark.parametrize("sharing", [1, 2, 4])
def test_heads_that_share_keys_are_found(sharing: int) -> None:
    attention = attention_of(KernelAnalysis(Case(1, 50, 64, heads=8, sharing=sharing).kernel()), TARGET)
    assert attention is not None
    assert attention.heads_sharing() == sharing


@pytest.mark.parametrize(
    "case",
    [Case(512, 512, 64, heads=12, dtype="float32"), Case(1, 4096, 128, heads=8, sharing=4)],
    ids=str,
)
@pytest.mark.slow
def test_main_loops_spill_nothing_and_load_sixteen_bytes(case: Case) -> None:
    source = device_code([case.scheduled()], TARGET).source
    for usage in compile_image(source, (80, 90)).usage:
        assert usage.stack_bytes == usage.spill_stores == usage.spill_loads == 0
    ptx = find_compiler().ptx(source, 80).decode()
    assert "mma.sync" not in ptx
    if case.queries > 1:
        assert "cp.async.cg.shared.global" in ptx
    else:
        assert re.search(r"ld\.global\S*\.v4", ptx)
