"""Attention in one launch by tensor cores, against NumPy in float64; what its main loop copies."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from attention_kernels import TARGET, TOLERANCES, Case, assert_close
from emulate import device_code

from nnefc.targets.codegen.cuda.compiler import compile_image, find_compiler


@pytest.mark.parametrize(
    "case",
    [
        Case(70, 90, 40, width=24, mask="causal"),
        Case(7, 77, 128, mask="added"),
        Case(77, 1, 64),
        Case(130, 130, 80, mask="window", heads=1),
        Case(20, 45, 64, stored="float32", heads=4, sharing=2),
        Case(197, 197, 64, heads=1),
        Case(50, 512, 64, heads=1, mask="window", window=200),
        Case(18, 19, 7, width=5),
    ],
    ids=str,
)
@pytest.mark.sample(3)
def test_attention_is_what_numpy_computes(case: Case) -> None:
    result, expected, rule = case.run()
    assert_close(result, expected, TOLERANCES["float16"])
    assert rule == "TensorCoreAttentionRule"


@pytest.mark.parametrize(
    "case",
    [
        Case(20, 40, 240, heads=1, dtype="bfloat16", mask="causal"),
        Case(20, 70, 256, heads=1, mask="window"),
        Case(70, 90, 192, width=128, mask="causal"),
        Case(40, 75, 160, mask="added", heads=4, sharing=2),
        Case(33, 100, 250, width=256, stored="float32", heads=1),
        Case(130, 130, 256, width=40, mask="causal", heads=1),
    ],
    ids=str,
)
@pytest.mark.sample(1)
def test_wide_heads_are_what_numpy_computes(case: Case) -> None:
    result, expected, rule = case.run()
    assert_close(result, expected, TOLERANCES[case.dtype])
    assert rule == "TensorCoreAttentionRule"


@pytest.mark.parametrize("size", [(256, 256), (192, 192), (192, 128), (160, 160)], ids=str)
@pytest.mark.parametrize("architectures", [(80,), (89, 90, 100)], ids=str)
@pytest.mark.sample(1)
def test_wide_heads_spill_nothing(architectures: tuple[int, ...], size: tuple[int, int]) -> None:
    target = replace(TARGET, architectures=architectures)
    kernel = Case(512, 512, size[0], width=size[1], heads=12, mask="causal").scheduled(target)
    for usage in compile_image(device_code([kernel], target).source, architectures).usage:
        assert usage.stack_bytes == usage.spill_stores == usage.spill_loads == 0


@pytest.mark.parametrize(
    "case",
    [Case(512, 512, 64, heads=12, mask="added"), Case(512, 512, 128, heads=12, mask="causal")],
    ids=str,
)
@pytest.mark.sample(1)
def test_main_loops_spill_nothing_and_copy_sixteen_bytes(case: Case) -> None:
    source = device_code([case.scheduled()], TARGET).source
    for usage in compile_image(source, (80, 90)).usage:
        assert usage.stack_bytes == usage.spill_stores == usage.spill_loads == 0
    ptx = find_compiler().ptx(source, 80).decode()
    assert "mma.sync" in ptx and "cp.async.cg.shared.global" in ptx
    narrow = re.findall(r"\b(?:ld|st)\.(?:global|shared)(?!\S*\.v\d)\S*\.[bu]16\b", ptx)
    assert not [line for line in narrow if "shared" in line or "ld" in line]
