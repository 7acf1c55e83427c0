"""Data-dependent sizes that kernels read from the memory of the device: which ones, and why the host needs others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence

import pytest
from tvm import tirx
from tvm.ir import GlobalVar

from nnefc.ir.network import DataDependentSize
from nnefc.passes.plan.kept_counts import KeptCount, KeptCounts, kept_counts
from nnefc.passes.plan.program import Buffer, MemoryKind, Program, Step
from nnefc.symbolic.dims import Dimension, Range, Size

READER, OTHER = GlobalVar("reader"), GlobalVar("other")
_NUMBERS = itertools.count()


def count(name: str, limit: int | None) -> DataDependentSize:
    return DataDependentSize(tirx.Var(name, "int64"), limit, Range(0, 100, 10))


def buffer(*shape: Dimension) -> Buffer:
    return Buffer(MemoryKind.WORKSPACE, next(_NUMBERS), shape, "float32")


def call(kernel: GlobalVar, *sizes: Dimension) -> Step:
    """Calls a kernel that is written with as many sizes."""
    own = tuple((tirx.Var(f"size{position}", "int64"), size) for position, size in enumerate(sizes))
    return Step(kernel, (), (buffer(*sizes),), own)


def program(counts: Sequence[DataDependentSize], steps: Sequence[Step], *outputs: Dimension) -> Program:
    found = {Buffer(MemoryKind.WORKSPACE, next(_NUMBERS), (1,), "int64"): (each,) for each in counts}
    results = tuple(buffer(size) for size in outputs)
    return Program(tuple(steps), (), (), results, (), (), {}, found)


def kept(of: Program, readers: Collection[GlobalVar] = (READER,)) -> KeptCounts:
    return kept_counts(of, readers, [(output, 0) for output in range(len(of.outputs))])


def test_kernels_read_what_follows_from_one_count() -> None:
    n, m = count("n", 100), count("m", 50)
    found = kept(program([n, m], [call(READER, 8, Size(n.var) * 4 + 1, Size(m.var))], Size(m.var), 7))
    assert found.slots == {n.var: 0, m.var: 1}
    assert found.arguments == {READER: (1, 2)}
    assert found.outputs == (KeptCount(1, 1, 0), None)
    (step,) = program([n, m], [call(READER, 8, Size(n.var) * 4 + 1, Size(m.var))]).steps
    assert isinstance(step, Step)
    assert list(found.read_by(step)) == [KeptCount(0, 4, 1), KeptCount(1, 1, 0)]


@pytest.mark.parametrize("size", [lambda n, m: n * m, lambda n, m: n // 2, lambda n, m: 100 - n])
def test_the_host_reads_what_is_no_multiple_of_one_count(size: Callable[[Size, Size], Dimension]) -> None:
    n, m, other = count("n", 100), count("m", 100), count("other", 100)
    found = kept(program([n, m, other], [call(READER, size(Size(n.var), Size(m.var)), Size(other.var))]))
    assert n.var not in found.slots
    assert found.slots[other.var] == len(found.slots) - 1


def test_the_host_reads_sizes_of_outputs_and_of_kernels_that_take_none_from_the_device() -> None:
    n, m = count("n", 100), count("m", 100)
    assert kept(program([n, m], [call(READER, Size(n.var)), call(OTHER, Size(m.var))])).slots == {n.var: 0}
    assert kept(program([n, m], [call(READER, Size(n.var))], Size(n.var) + Size(m.var))).slots == {}


def test_a_kernel_has_the_same_arguments_in_all_calls() -> None:
    n = count("n", 100)
    assert kept(program([n], [call(READER, Size(n.var)), call(READER, 100)])).slots == {}


@pytest.mark.parametrize("limit", [None, 0])
def test_sizes_without_memory_before_the_run_are_the_hosts(limit: int | None) -> None:
    n = count("n", limit)
    assert kept(program([n], [call(READER, Size(n.var))])) == KeptCounts()
