"""Which workarounds a target gets."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from nnefc.targets.machine.cpu.parsing import parse_target
from nnefc.targets.machine.llvm_quirks import Quirks, quirks_of

QUIRKS = {
    "x86-64": {"calls_rounding", "rounding_conversion", "searches_deep_loops"},
    "x86-64-v2": {"rounding_conversion", "searches_deep_loops", "widens_high_products"},
    "x86-64-v3": {
        *("rounding_conversion", "searches_deep_loops", "spare_registers", "spills_float_sums"),
        "widens_high_products",
    },
    "cortex-a72": {"rounding_conversion", "keeps_ranges", "selects_min_max", "spills_sums"},
    "neoverse-v1": {"selects_min_max", "spills_sums"},  # vectors of SVE
    "armv7-linux-gnueabihf": {"calls_rounding", "rounding_conversion", "keeps_ranges", "selects_min_max"},
    "riscv64-linux-gnu": set[str](),
    "riscv64gcv-linux-gnu": {"rounding_conversion"},
    "wasm32-wasi": {
        *("rounding_conversion", "keeps_ranges", "spills_sums", "spills_totals", "converts_lane_by_lane"),
        "rebuilds_constants",
    },
    "cortex-m4": {"keeps_ranges"},
    "riscv32imc": {"keeps_ranges"},
}


@pytest.mark.parametrize("name", QUIRKS)
def test_each_target_has_the_workarounds_of_its_instruction_set_and_features(name: str) -> None:
    assert {quirk for quirk, value in asdict(parse_target(name).quirks).items() if value} == QUIRKS[name]


def test_small_modules_have_no_loops_in_assembler() -> None:
    quirks = parse_target("wasm32-wasi").made_small().quirks
    assert (quirks.spills_sums, quirks.rebuilds_constants, quirks.spills_totals) == (False, False, True)


def test_a_machine_without_a_name_has_none() -> None:
    assert quirks_of("", (), small=False) == Quirks()
