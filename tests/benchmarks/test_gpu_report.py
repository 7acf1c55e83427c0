"""The report on code for GPUs: the words for networks, records of kernels, and what is added up of them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import click
import gpu_report
import kernel_records
import pytest
from cases import Case
from kernel_records import Kernel, NotCompiled, resident_blocks
from machine_code import Loop
from models.networks import NAMES
from roofline_model import Work

from nnefc.targets.machine.cuda.capabilities import default_gpu

COUNTS = {"HMMA": 16, "LDSM": 4, "LDGSTS.16": 4, "IMAD": 8, "BRA": 1}
LOOP = Loop("product_kernel", 80, COUNTS, True, True, 16 * 2048, 0, fetched_bytes=2048, wavefronts=32, conflicts=8)
WORK = Work(1e9, 4e6, True, False, False, 2, False, LOOP)
KERNEL = Kernel("product_kernel", 80, 3, 216, 128, 96, 51200, 0, 3, False, WORK)


@pytest.mark.parametrize(
    ("word", "case"),
    [
        ("resnet50", Case("resnet50", 0, 0, 1, False)),
        ("resnet50*32:int8", Case("resnet50", 0, 0, 32, True)),
        ("bert_base@512*16", Case("bert_base", 512, 0, 16, False)),
        ("decoder_1b@1+512", Case("decoder_1b", 1, 512, 1, False)),
    ],
)
def test_words_name_networks_with_their_sizes(word: str, case: Case) -> None:
    assert Case.of(word) == case


@pytest.mark.parametrize("word", ["resnet51", "resnet50*", "resnet50@3", "resnet50:fp8", "../resnet50"])
def test_other_words_are_refused(word: str) -> None:
    with pytest.raises(click.ClickException, match="resnet5"):
        Case.of(word)


def test_all_networks_of_the_pages_have_a_word() -> None:
    assert len({Case.of(word) for word in gpu_report.WHOLE}) == len(gpu_report.WHOLE)
    assert {*NAMES} <= {Case.of(word).network for word in gpu_report.WHOLE}


def test_records_are_read_as_they_were_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    monkeypatch.setattr(kernel_records, "_kept", lambda *_: kept)
    other = replace(KERNEL, name="cast_kernel", work=Work(0, 1e6, False, False, False, 2, False, None))
    kept.write_text(json.dumps({80: [asdict(KERNEL), asdict(other)], 90: []}))
    assert kernel_records.records_of("mlp") == {80: [KERNEL, other], 90: []}
    kept.write_text(json.dumps({"error": "there is no such operator"}))
    with pytest.raises(NotCompiled, match="no such operator"):
        kernel_records.records_of("mlp")


def test_blocks_of_a_processor_are_limited_by_what_they_take() -> None:
    a100 = default_gpu(80)  # 65,536 registers, 164 KiB, 2,048 threads, 32 blocks
    assert resident_blocks(128, 16, 0, a100) == 16
    assert resident_blocks(128, 168, 0, a100) == 3
    assert resident_blocks(128, 16, 67584, a100) == 2
    assert resident_blocks(32, 16, 0, a100) == 32
    assert KERNEL.occupancy == 3 * 128 / 2048


def test_iterations_are_multiply_adds_over_those_of_a_warp() -> None:
    assert KERNEL.iterations == 3 * 1e9 / LOOP.multiply_adds
    assert replace(KERNEL, work=replace(WORK, loop=replace(LOOP, is_loop=False))).iterations == 0


def test_the_busiest_pipe_and_fetches_bound_tensor_cores() -> None:
    cycles = KERNEL.loop_cycles
    assert cycles["tensor"] == 16 * 2048 / 256
    assert cycles["shared"] == (32 + 8) * 4
    assert gpu_report.busiest(cycles) == ("shared", 160)
    totals = gpu_report.Totals.of([KERNEL])
    assert totals.tensor_share == pytest.approx(128 / 160)
    assert totals.tensor / totals.fetching == pytest.approx(128 / (2048 * 4 / default_gpu(80).fetch_bytes_per_cycle))
    assert totals.conflicts / (totals.conflicts + totals.wavefronts) == pytest.approx(8 / 40)
    assert totals.fetched / totals.products == pytest.approx(2048 / 16)


def test_goals_say_which_figure_of_an_architecture_misses_one() -> None:
    narrow = replace(KERNEL, name="other", work=replace(WORK, loop=replace(LOOP, counts=COUNTS | {"STS.2": 1})))
    slow = replace(KERNEL, work=replace(WORK, loop=replace(LOOP, conflicts=32.0)))
    rows = gpu_report.goals({"resnet50*32": {80: [KERNEL] * 20}, "mlp*32": {80: [KERNEL, narrow], 89: [slow]}})
    assert [row.split(" | ")[1:3] for row in rows[2:]] == [
        ["yes: 0 of 1", "yes: 80%"],
        ["no: 1 of 2 / 0 of 1", "no: 80% / 50%"],
    ]
    assert rows[2].endswith("| no: 60 |")  # above 54
    assert rows[3].endswith("| 6 / 3 |")


def test_launches_of_bert_are_those_of_a_layer() -> None:
    kernels = [replace(KERNEL, name=name, launches=n) for name, n in (("attention_kernel", 12), ("matmul_kernel", 73))]
    assert gpu_report.of_run("bert_base*16", kernels) == 7
    assert gpu_report.of_run("vit_b16", kernels) == 85


def test_launches_whose_size_depends_on_data_have_no_time() -> None:
    totals = gpu_report.Totals.of([KERNEL, replace(KERNEL, name="open", blocks=0)])
    assert (totals.launches, totals.open_launches) == (6, 3)
    assert totals.predicted == gpu_report.Totals.of([KERNEL]).predicted


def test_tables_have_as_many_cells_as_columns() -> None:
    other = replace(KERNEL, name="cast_kernel", work=Work(0, 1e6, False, False, False, 2, False, None))
    found = {"mlp*32": {80: [KERNEL, other, replace(KERNEL, name="open", blocks=0)], 90: [other]}}
    tables = [table(found) for table in (gpu_report.goals, gpu_report.taken, gpu_report.predicted, gpu_report.loops)]
    tables += [table(found["mlp*32"][80]) for table in (gpu_report.kernel_table, gpu_report.loop_table)]
    for rows in tables:
        assert len({row.count("|") for row in rows}) == 1
    assert "| gru | no code |" in gpu_report.report(found, {"gru": "no code"})
