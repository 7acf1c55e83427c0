"""The table of microarchitectures: that LLVM knows its processors, and that what it says makes sense."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from nnefc.targets.machine.cpu.architecture import ARCHITECTURES, Architecture
from nnefc.targets.machine.cpu.costs import MICROARCHITECTURES, Microarchitecture, microarchitecture_of
from nnefc.targets.machine.cpu.llvm import cpus_of
from nnefc.targets.machine.cpu.parsing import parse_target

ROWS = list(dict.fromkeys(row for rows in MICROARCHITECTURES.values() for row in rows))


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda a: a.name)
def test_each_processor_is_one_that_llvm_knows_and_is_in_one_row(architecture: Architecture) -> None:
    *rows, other = MICROARCHITECTURES[architecture.name]
    named = [name for row in rows for name in row.processors]
    assert not other.processors
    assert len(set(named)) == len(named)
    assert set(named) <= set(cpus_of(f"{architecture.llvm}-unknown-linux-gnu"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_costs_are_of_the_right_order(row: Microarchitecture) -> None:
    costs = row.costs(16)
    assert 0.25 <= costs.multiply_adds <= 4
    assert 2 <= costs.latency <= 8
    assert costs.loads <= costs.broadcasts
    assert costs.l1_bytes < costs.l2_bytes
    assert costs.l2_bytes_per_cycle >= costs.l3_bytes_per_cycle >= costs.memory_bytes_per_cycle


def test_longer_vectors_begin_no_more_often() -> None:
    for row in ROWS:
        costs = (dataclasses.replace(row.costs(size), in_order=None) for size in (16, 64))
        short, long = ([cost for cost in dataclasses.astuple(each) if cost is not None] for each in costs)
        assert all(a >= b for a, b in zip(short, long, strict=True)), row.name


@pytest.mark.parametrize(
    ("target", "name", "multiply_adds"),
    [
        ("emeraldrapids", "Golden Cove server", 2),
        ("znver4", "Zen 4", 1),
        ("llvm -mcpu=x86-64-v3", "Haswell", 2),
        ("x86-64", "x86-64", 1),
        ("raspberrypi3", "Cortex-A53", 1),
        ("raspberrypi5", "Cortex-A76", 2),
        ("aarch64-linux-gnu", "64-bit Arm", 1),
        ("wasm32-wasi", "WebAssembly", 2),
    ],
)
def test_a_target_has_the_costs_of_its_processor(target: str, name: str, multiply_adds: int) -> None:
    """Also of those for which code is made for another one, as for Cortex-A53."""
    (row,) = [row for row in ROWS if row.name == name]
    machine = parse_target(target)
    assert machine.costs == row.costs(machine.vectors.bytes)
    assert machine.costs.multiply_adds == multiply_adds


def test_an_unknown_processor_has_the_costs_of_its_instruction_set() -> None:
    assert microarchitecture_of("x86_64", "bdver4").name == "x86-64"


def test_sizes_of_caches_in_a_file_replace_the_table(tmp_path: Path) -> None:
    path = tmp_path / "board.json"
    path.write_text(json.dumps({"triple": "aarch64-linux-gnu", "cpu": "cortex-a76", "l1_bytes": 1 << 14}))
    costs = parse_target(str(path)).costs
    assert costs == dataclasses.replace(parse_target("cortex-a76").costs, l1_bytes=1 << 14)
