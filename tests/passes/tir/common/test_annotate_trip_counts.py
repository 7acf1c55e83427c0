"""Parallel loops that say how many iterations they have."""

from __future__ import annotations

import tvm_ffi
from tir_programs import function
from tvm import tirx

from nnefc.passes.tir.common.annotate_trip_counts import annotate_trip_counts
from nnefc.targets.machine.cpu.parsing import parse_target

TARGET = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids")
LOOPS = """
    C: T.Buffer((T.int64(9999),)), n: T.int64
    for k in range(3):
        for i in T.parallel(n * T.int64(2)):
            for j in range(5):
                C[i] = C[i] + T.float32(1)
    for i in T.parallel(T.int64(7)):
        C[i] = T.float32(1)
"""


def test_each_parallel_loop_and_no_other_is_announced() -> None:
    func = annotate_trip_counts(function(LOOPS), TARGET)
    sequences: list[tirx.SeqStmt] = []
    tvm_ffi.structural_walk(func, (tirx.SeqStmt, sequences.append))
    annotated = []
    for sequence in sequences:
        for before, loop in zip(sequence.seq, list(sequence.seq)[1:], strict=False):
            if isinstance(before, tirx.Evaluate) and isinstance(loop, tirx.For):
                assert loop.kind == tirx.ForKind.PARALLEL
                annotated.append((str(before.value), str(loop.extent)))
    assert len(annotated) == str(func).count("T.parallel") == str(func).count("nnefc_rounds") == 2
    assert all(extent in call.replace("T.Cast", "") for call, extent in annotated)


def test_loops_of_one_thread_stay_as_they_are() -> None:
    alone = function(LOOPS.replace("T.parallel", "range"))
    assert annotate_trip_counts(alone, TARGET).body.same_as(alone.body)
