"""Loops that read by pointers to where they begin: which do, and that they read the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm_ffi
from tir_programs import function
from tvm import tirx

import nnefc
from nnefc.ir.attributes import DYNAMIC_SHAPES
from nnefc.passes.tir.common.strength_reduce_pointers import strength_reduce_pointers

LARGEST = "T.int64(9223372036854775807)"
LIKE = 'T.handle("float32"), B_data: T.handle("float32"), C_data: T.handle("float32"), h: T.int64, w: T.int64'

READS = f"""
    A_data: {LIKE}
    A = T.decl_buffer((T.int64(999),), data=A_data)
    B = T.decl_buffer((T.int64(999),), data=B_data)
    C = T.decl_buffer((T.int64(999),), data=C_data)
    for k in range(h):
        for j in range(T.int64(16)):
            a: T.let[T.int64] = T.call_llvm_intrin("int64", "llvm.smin.i64", {LARGEST}, k * w + h + j * T.int64(2))
            for r in T.unroll(T.int64(4)):
                C[r] = C[r] + A[a + r * T.int64(16)] * {{other}}
"""


def changed(text: str) -> list[tirx.Bind]:
    """The pointers that are made in a program."""
    func = function(text).with_attr(DYNAMIC_SHAPES, True)
    found: list[tirx.Bind] = []
    tvm_ffi.structural_walk(strength_reduce_pointers(func).body, (tirx.Bind, found.append))
    return [bind for bind in found if bind.var.name == "p"]


def test_what_is_written_is_read_as_before() -> None:
    assert len(changed(READS.format(other="C[a]"))) == 2


def test_what_is_read_under_a_condition_is_read_as_before() -> None:
    value = "T.if_then_else(w > T.int64(2), B[a + r], T.float32(0))"
    assert len(changed(READS.format(other=value))) == 2
    assert len(changed(READS.format(other="B[a + r]"))) == 4


NEST = """
    A_data: T.handle("float32"), B_data: T.handle("float32"), C_data: T.handle("float32")
    A = T.decl_buffer((T.int64(9999),), data=A_data)
    B = T.decl_buffer((T.int64(9999),), data=B_data)
    C = T.decl_buffer((T.int64(8),), data=C_data)
    for o in T.parallel(T.int64(2)):
        for c in range(T.int64(6)):
            for y in range(T.int64(3)):
                for x in range({first}, T.int64(3)):
                    for i in range(T.int64(16)):
                        for r in T.unroll(T.int64(4)):
                            for l in T.vectorized(T.int64(2)):
                                C[r * T.int64(2) + l] = C[r * T.int64(2) + l] + {value}
"""
AT = "c * T.int64(1600) + o * T.int64(64) + y * T.int64(160) + x * T.int64(16) + r * T.int64(16) + i"


def nested(value: str, first: str = "T.int64(0)") -> list[str]:
    """What the pointers of a nest of loops point to."""
    found: list[tirx.Bind] = []
    made = strength_reduce_pointers(function(NEST.format(value=value, first=first)), in_deep_loops=True)
    tvm_ffi.structural_walk(made.body, (tirx.Bind, found.append))
    return [str(bind.value) for bind in found if bind.var.name == "p"]


def test_the_two_innermost_loops_of_a_deep_nest_read_by_pointers_to_what_those_around_say() -> None:
    (shared,) = nested(f"A[{AT}] * A[{AT} + x * T.int64(32)]")
    assert "A[c * T.int64(1600) + o * T.int64(64) + y * T.int64(160)]" in shared
    assert len(nested(f"A[{AT}] * B[c * T.int64(768) + y * T.int64(256) + x * T.int64(32) + l]")) == 2
    assert len(nested(f"A[{AT}] * A[{AT} + T.int64(1)]")) == 2  # each to an element that is read


def test_what_the_first_iterations_do_not_read_is_read_as_before() -> None:
    assert nested(f"A[{AT}] * B[x * T.int64(32) + l]", first="T.int64(1)") == []
    assert nested(f"T.if_then_else(x > T.int64(1), A[{AT}], T.float32(0))") == []
    assert nested(f"C[{AT}] + A[i // T.int64(2) + c] + A[x * c + y] + B[i + x]") == []


def test_shallow_nests_and_other_targets_are_left_as_they_are() -> None:
    text = NEST.format(value=f"A[{AT}]", first="T.int64(0)")
    deep, shallow = function(text), function(text.replace("for c in range(", "for c in T.parallel("))
    assert strength_reduce_pointers(deep) is deep
    assert strength_reduce_pointers(shallow, in_deep_loops=True) is shallow


DOCUMENT = """
version 1.0;
extension KHR_enable_operator_expressions;
graph g(x) -> (z)
{
    x = external<scalar>(shape = [0, 24, 0, 0]);
    f = variable<scalar>(shape = [40, 24, 3, 3], label = 'f');
    h = variable<scalar>(shape = [24, 40, 1, 1], label = 'h');
    y = relu(conv(x, f, stride = [2, 2], padding = [(1, 1), (1, 1)]));
    z = conv(y, h, padding = [(0, 0), (0, 0)]) + box(x, size = [1, 1, 3, 3], stride = [1, 1, 2, 2],
        padding = [(0, 0), (0, 0), (1, 1), (1, 1)], normalize = true);
}
"""


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.slow)])
def test_the_results_are_those_of_known_sizes(precision: str, tmp_path: Path) -> None:
    model = tmp_path / "g.nnef"
    model.write_text(DOCUMENT.strip())
    x = np.random.default_rng(1).standard_normal((2, 24, 29, 43)).astype(np.float32)
    results = []
    for shape in ({}, {"x": x.shape}):
        with nnefc.compile(model, random_weights=0, precision=precision, shape=shape).load() as library:
            results.append(library(x))
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-4)
