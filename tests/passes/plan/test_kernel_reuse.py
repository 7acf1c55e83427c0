"""Kernels that further programs of a library call instead of compiling equal ones."""

from __future__ import annotations

from tvm import tirx

from nnefc.passes.plan.kernel_reuse import CompiledKernels


def kernel(symbol: str, value: int) -> tirx.PrimFunc:
    return tirx.PrimFunc([], tirx.Evaluate(tirx.IntImm("int32", value))).with_attr("global_symbol", symbol)


def test_equal_kernels_are_found_by_what_they_compute() -> None:
    known = CompiledKernels()
    assert known.like(kernel("first", 1)) is None
    assert known.like(kernel("other", 2)) is None
    assert known.like(kernel("again", 1)) == "first"


def test_kernels_of_a_program_that_comes_to_nothing_are_compiled_again() -> None:
    known = CompiledKernels()
    known.like(kernel("first", 1))
    draft = known.copy()
    assert draft.like(kernel("again", 1)) == "first"
    assert draft.like(kernel("dropped", 2)) is None
    assert known.like(kernel("later", 2)) is None
