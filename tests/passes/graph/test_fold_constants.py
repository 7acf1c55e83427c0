"""What depends on constants alone is computed at compile time."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from relax_programs import Case, check, network_of, program, summary, target
from tvm import relax
from tvm.ir import assert_structural_equal

from nnefc.driver.compile import compile_network
from nnefc.ir import constant_evaluation as evaluation
from nnefc.ir.constant_evaluation import Budget
from nnefc.ir.dataflow import bindings_of
from nnefc.passes.graph.fold_constants import fold_constants

A = np.array([1.0, 4.0, 9.0], np.float32)
B = np.array([2, 3, 5], np.int32)
PROGRAMS = {
    "a function of a constant": (
        """x[3] -> b
        a = R.sqrt(A)
        b = R.add(x, a)""",
        """x[3] -> b
        b = R.add(x, sqrt)""",
        {"sqrt": np.array([1, 2, 3], np.float32)},
    ),
    "a chain of functions, one of them used twice": (
        """x[3] -> d
        a = R.sqrt(A)
        b = R.add(a, a)
        c = R.multiply(a, b)
        d = R.add(x, c)""",
        """x[3] -> d
        d = R.add(x, c)""",
        {"c": np.array([2, 8, 18], np.float32)},
    ),
    "a concatenation": (
        """x[6] -> b
        a = R.concat((A, A), axis=0)
        b = R.add(x, a)""",
        """x[6] -> b
        b = R.add(x, AA)""",
        {"AA": np.concatenate([A, A])},
    ),
    "integers and casts": (
        """x[3] -> c
        a = R.multiply(B, B)
        b = R.astype(a, "float32")
        c = R.add(x, b)""",
        """x[3] -> c
        c = R.add(x, squares)""",
        {"squares": np.array([4, 9, 25], np.float32)},
    ),
    "booleans": (
        """x[3] -> b
        a = R.greater(A, R.const(2.0, "float32"))
        b = R.where(a, x, A)""",
        """x[3] -> b
        b = R.where(mask, x, A)""",
        {"mask": np.array([False, True, True])},
    ),
    "no operands at all": (
        """x[3] -> b
        a = R.ones(R.shape([3]), "float32")
        b = R.add(x, a)""",
        """x[3] -> b
        b = R.add(x, ones)""",
        {"ones": np.ones(3, np.float32)},
    ),
    "one of several results": (
        """x[3] -> b, a
        a = R.sqrt(A)
        b = R.add(x, a)""",
        """x[3] -> b, sqrt
        b = R.add(x, sqrt)""",
        {"sqrt": np.array([1, 2, 3], np.float32)},
    ),
}


@pytest.mark.parametrize(("before", "after", "values"), PROGRAMS.values(), ids=PROGRAMS)
def test_constant_parts_become_constants(before: str, after: str, values: dict[str, np.ndarray]) -> None:
    folded = fold_constants(program(before, A=A, B=B))
    assert_structural_equal(folded, program(after, A=A, B=B, **values))


def test_parts_of_a_constant_are_constants() -> None:
    module = program(
        """x[1] -> d
        a = R.split(A, 3, axis=0)
        b = a[1]
        d = R.add(x, b)""",
        A=A,
    )
    folded = fold_constants(module)
    assert summary(folded) == "d[1] = add(x, const[1])\n-> d"
    outputs = compile_network(network_of(folded), target("llvm")).run({"x": np.zeros(1, np.float32)})
    assert outputs["y0"] == A[1]


def test_what_depends_on_an_input_is_kept() -> None:
    module = program(
        """x[3] -> c
        a = R.sqrt(x)
        b = R.add(a, A)
        c = R.multiply(b, A)""",
        A=A,
    )
    assert summary(fold_constants(module)) == summary(module)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int16", "int64", "bool"])
@pytest.mark.sample(4)
def test_every_type_is_folded_to_itself(dtype: str) -> None:
    value = np.array([1, 0, 3]).astype(dtype)
    module = program(f"x: {dtype}[2, 3] -> a\na = R.concat((x, R.reshape(V, R.shape([1, 3]))), axis=0)", V=value)
    outputs = compile_network(network_of(fold_constants(module)), target("llvm")).run({"x": np.ones((2, 3), dtype)})
    assert np.array_equal(outputs["y0"], np.concatenate([np.ones((2, 3), dtype), value[None]]))


def test_networks_of_constants_alone_run() -> None:
    network = network_of(program("x[3] -> b, a, A\na = R.sqrt(A)\nb = R.add(a, A)", A=A))
    outputs = compile_network(network, target("llvm")).run({"x": A})
    assert np.array_equal(outputs["y0"], A + np.sqrt(A))
    assert np.array_equal(outputs["y1"], np.sqrt(A))
    assert np.array_equal(outputs["y2"], A)


def test_equal_constants_of_different_types_stay_apart() -> None:
    zeros = [np.zeros(4, dtype) for dtype in ("float32", "int32")]

    def make(graph: object, x: object, n: object) -> list[object]:
        real, whole = (graph.constant(zero) for zero in zeros)
        return [graph.binary("add", x, real), graph.emit(relax.op.add(n.expr, whole.expr), n.array + whole.array)]

    check([Case([np.arange(4, dtype=np.float32), np.arange(4, dtype=np.int32)], make)])


def calls(module: tvm.IRModule) -> list[relax.Call]:
    return [b.value for b in bindings_of(module["main"]) if isinstance(b.value, relax.Call)]


CHAIN = """x[3] -> e
    a = R.sqrt(A)
    b = R.sqrt(a)
    c = R.sqrt(b)
    d = R.sqrt(c)
    e = R.add(x, d)"""


@pytest.mark.parametrize(("steps", "left"), [(24, 1), (23, 2), (18, 2), (12, 3), (5, 5), (1 << 20, 1)])
@pytest.mark.sample(2)
def test_no_more_is_folded_than_the_budget_allows(monkeypatch: pytest.MonkeyPatch, steps: int, left: int) -> None:
    """Each root reads three elements and writes as many."""
    monkeypatch.setattr(Budget, "for_constants", lambda elements: Budget(steps, 3))
    folded = fold_constants(program(CHAIN, A=A))
    assert len(calls(folded)) == left


def test_nothing_is_folded_that_is_much_larger_than_the_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """x[2, 3] -> c
        a = R.broadcast_to(A, (2, 3))
        b = R.sqrt(a)
        c = R.add(x, b)"""
    for largest, left in ((5, 3), (6, 1)):
        monkeypatch.setattr(Budget, "for_constants", lambda elements, largest=largest: Budget(1000, largest))
        folded = fold_constants(program(text, A=A))
        assert len(calls(folded)) == left


@pytest.mark.parametrize("repeats", [1, 3])
def test_large_products_between_other_steps(monkeypatch: pytest.MonkeyPatch, repeats: int) -> None:
    """NumPy's products read what the compiled part computes, and the other way round; also parts of several results."""
    monkeypatch.setattr(evaluation, "_MIN_FOR_NUMPY", 1)
    rng = np.random.default_rng(5)
    w, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 6), (3, 3)))
    lines, last = ["s = R.split(W, [3], axis=1)", "p = s[0]", "q = s[1]", "h0 = R.add(p, q)"], "h0"
    expected = w[:, :3] + w[:, 3:]
    for k in range(repeats):
        lines += [f"m{k} = R.matmul({last}, V)", f"h{k + 1} = R.add(m{k}, q)"]
        last, expected = f"h{k + 1}", expected @ v + w[:, 3:]
    text = "\n".join(["x[4, 3] -> z", *lines, f"z = R.multiply(x, {last})"])
    folded = fold_constants(program(text, W=w, V=v))
    (call,) = calls(folded)
    np.testing.assert_allclose(call.args[1].value.numpy(), expected, rtol=1e-4, atol=1e-5)
