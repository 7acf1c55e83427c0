"""Functions of TIR in C: their text, and their results next to NumPy's, compiled by each compiler that is here."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from c_programs import COMPILERS, STRICT
from tvm import tirx
from tvm.ir import PointerType, PrimType

from nnefc.backends.c_source import CSourceBackend
from nnefc.backends.cpu_steps import ObjectContext
from nnefc.passes.manager import PassManager, Phase
from nnefc.passes.pipeline import register_operators
from nnefc.targets.codegen.c.c_types import literal
from nnefc.targets.codegen.c.functions import kernel_function
from nnefc.targets.codegen.c.names import Names, identifier
from nnefc.targets.machine.cpu.c_source import parse_c_target

COUNT = 24
Element = Callable[[tirx.Expr, tirx.Expr], tirx.Expr]


@dataclass(frozen=True)
class Case:
    """A function of two elements.

    Attributes:
        dtype, result: the types of its operands and of its result.
        element: an expression of TIR.
        wanted: the same in NumPy.
    """

    name: str
    dtype: str
    element: Element
    wanted: Callable[[np.ndarray, np.ndarray], np.ndarray]
    result: str = ""


def _const(value: float, like: tirx.Expr) -> tirx.Expr:
    return tirx.const(value, str(like.expr_ty().dtype))


def _wrapped(function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., np.ndarray]:
    def of(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return function(a, b)

    return of


def both(name: str, dtypes: Sequence[str], function: Callable[[Any, Any], Any]) -> list[Case]:
    """Cases of operators that are written the same in TIR and NumPy."""
    return [Case(f"{name}_{dtype}", dtype, function, function) for dtype in dtypes]


def each(name: str, element: Element, wanted: Callable[[Any, Any], Any]) -> list[Case]:
    """Cases for all types of integers."""
    return [Case(f"{name}_{dtype}", dtype, element, wanted) for dtype in INTEGERS]


def bits_set(values: np.ndarray) -> np.ndarray:
    return np.array([bin(n & 0xFFFFFFFF).count("1") for n in values.tolist()], np.int32)


def zeros_before(values: np.ndarray) -> np.ndarray:
    return np.array([32 - n.bit_length() for n in values.tolist()], np.int32)


INTEGERS = ("int8", "uint8", "int16", "int32", "uint32", "int64")
CASES = [
    *both("add", INTEGERS[:3], lambda a, b: a + b),
    *both("mul", ("int8", "uint8", "uint32"), lambda a, b: a * b - a),
    *both("shl", INTEGERS, lambda a, b: (a << 3) ^ b),
    *both("shr", INTEGERS, lambda a, b: (a >> 2) | (b & 5)),
    *both("not", INTEGERS, lambda a, b: ~a & b),
    *both("order", ("float32",), lambda a, b: (a - (b - a)) * (a + b) - (a * b) / (b * a)),
    *each(
        "max",
        lambda a, b: tirx.max(a, tirx.min(b, a >> 1)),
        lambda a, b: np.maximum(a, np.minimum(b, a >> 1)),
    ),
    *each("div", lambda a, _: tirx.floordiv(a, _const(3, a)), lambda a, _: a // np.array(3, a.dtype)),
    *each("mod", lambda a, _: tirx.floormod(a, _const(7, a)), lambda a, _: a % np.array(7, a.dtype)),
    *(
        Case(
            f"less_{t}",
            t,
            lambda a, b: tirx.And(a < b, tirx.Not(a >= _const(3, a))),
            lambda a, b: (a < b) & (a < 3),
            "bool",
        )
        for t in ("int8", "int32", "float32")
    ),
    Case(
        "select",
        "float32",
        lambda a, b: tirx.Select(a > b, a - b * a, b / a),
        lambda a, b: np.where(a > b, a - b * a, b / a),
    ),
    Case(
        "even",
        "float32",
        lambda a, b: tirx.nearbyint(a * _const(8, a)) + tirx.round(b),
        lambda a, b: np.rint(a * np.float32(8)) + np.rint(b),
    ),
    Case(
        "floor",
        "float32",
        lambda a, b: tirx.floor(a) - tirx.trunc(b) + tirx.ceil(a * b),
        lambda a, b: np.floor(a) - np.trunc(b) + np.ceil(a * b),
    ),
    Case(
        "wide",
        "float64",
        lambda a, b: tirx.sqrt(tirx.abs(a)) + tirx.nearbyint(b),
        lambda a, b: np.sqrt(np.abs(a)) + np.rint(b),
    ),
    Case("nan", "float32", lambda a, _: tirx.isnan(tirx.sqrt(a)), lambda a, _: np.isnan(np.sqrt(a)), "bool"),
    Case(
        "chosen",
        "float32",
        lambda a, b: tirx.if_then_else(a > b, tirx.exp(a), tirx.const(float("inf"), "float32")),
        lambda a, b: np.where(a > b, np.exp(a), np.float32(np.inf)),
    ),
    Case(
        "bits",
        "float32",
        lambda a, _: tirx.reinterpret("int32", a) ^ tirx.const(-(1 << 31), "int32"),
        lambda a, _: a.view(np.int32) ^ np.int32(-(1 << 31)),
        "int32",
    ),
    Case("half", "float16", lambda a, b: a * b + a, lambda a, b: (a * b).astype(np.float16) + a),
    Case(
        "to_half",
        "float64",
        lambda a, b: (a * b).astype("float16"),
        lambda a, b: (a * b).astype(np.float16),
        "float16",
    ),
    Case(
        "to_single",
        "float16",
        lambda a, b: a.astype("float32") - b.astype("float32"),
        lambda a, b: a.astype(np.float32) - b.astype(np.float32),
        "float32",
    ),
    Case(
        "narrow",
        "int32",
        lambda a, b: (a * b).astype("int8").astype("int32") + a.astype("uint8").astype("int32"),
        lambda a, b: (a * b).astype(np.int8).astype(np.int32) + a.astype(np.uint8),
    ),
    Case(
        "count",
        "int32",
        lambda a, b: tirx.popcount(a) + tirx.clz(tirx.max(b, _const(1, b))),
        lambda a, b: bits_set(a) + zeros_before(np.maximum(b, 1)),
    ),
]


def kernel(case: Case) -> tirx.PrimFunc:
    """A function that computes a case for all elements of two arrays."""
    types = (case.dtype, case.dtype, case.result or case.dtype)
    stored = ["int8" if t == "bool" else t for t in types]
    pointers = [tirx.Var(f"p{n}_data", PointerType(PrimType(t))) for n, t in enumerate(stored)]
    buffers = [
        tirx.decl_buffer((COUNT,), t, name=f"p{n}", data=p)
        for n, (t, p) in enumerate(zip(types, pointers, strict=True))
    ]
    i = tirx.Var("i", "int32")
    a, b, c = buffers
    store = tirx.BufferStore(c, case.element(a[i], b[i]), [i])
    body = [tirx.DeclBuffer(buffer, data=p) for buffer, p in zip(buffers, pointers, strict=True)]
    body += [tirx.For(i, 0, COUNT, tirx.ForKind.SERIAL, store), tirx.Return(tirx.IntImm("int32", 0))]
    func = tirx.PrimFunc(pointers, tirx.SeqStmt(body), ret_type=PrimType("int32"))
    return func.with_attrs({"global_symbol": f"nnefc_kernel_{case.name}", "calling_conv": 1})


@pytest.fixture(scope="module")
def backend() -> CSourceBackend:
    register_operators()
    made = CSourceBackend(parse_c_target("generic-c"))
    made.check()
    return made


def translated(backend: CSourceBackend, *functions: tirx.PrimFunc) -> str:
    """A C file of kernels, with the functions that they call."""
    manager = PassManager(backend, backend.settings(), backend.passes, [])
    context = ObjectContext(backend.target, Path("kernels.c"), is_dynamic=False, is_checked=False)
    module = tvm.IRModule({str(func.attrs["global_symbol"]): func for func in functions})
    made = manager.run([Phase.OBJECT], module, context, "kernels")
    texts = [kernel_function(made[gv.name_hint]).text for gv in made.functions]
    helpers, _ = backend._helpers("\n".join(texts))
    head = ["#include <math.h>", "#include <stdint.h>", "#include <string.h>"]
    head += ["#define NNEFC__NO_ALIAS restrict", "#define NNEFC__KERNEL", "#define NNEFC__COPY memcpy"]
    prototypes = [f"{line.removesuffix(' {')};" for text in texts for line in text.splitlines() if "KERNEL" in line]
    return "\n".join([*head, *helpers, *prototypes, *texts])


def operands(case: Case) -> list[np.ndarray]:
    random = np.random.default_rng(len(case.name))
    if case.dtype.startswith("float"):
        return [(random.standard_normal(COUNT) * 3).astype(case.dtype) for _ in range(2)]
    limits = np.iinfo(case.dtype)
    whole = case.dtype in ("int8", "uint8", "int16")
    low, high = (limits.min, limits.max) if whole else (max(limits.min, -(1 << 14)), 1 << 14)
    return [random.integers(low, high, COUNT, endpoint=True).astype(case.dtype) for _ in range(2)]


@pytest.mark.parametrize("command", COMPILERS, ids=lambda command: Path(command[-1]).stem)
def test_results_are_those_of_numpy(command: tuple[str, ...], backend: CSourceBackend, tmp_path: Path) -> None:
    source, library = tmp_path / "kernels.c", tmp_path / "kernels.so"
    source.write_text(translated(backend, *map(kernel, CASES)))
    words = [*command, *STRICT, "-O1", "-ffp-contract=off", "-shared", "-fPIC", str(source), "-lm", "-o", str(library)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    loaded = ctypes.CDLL(str(library))
    for case in CASES:
        a, b = operands(case)
        made = np.zeros(COUNT, case.result or case.dtype)
        getattr(loaded, f"nnefc__kernel_{case.name}")(*(ctypes.c_void_p(array.ctypes.data) for array in (a, b, made)))
        wanted = _wrapped(case.wanted)(a, b).astype(made.dtype)
        if case.name == "chosen":
            np.testing.assert_allclose(made, wanted, rtol=1e-6)
        else:
            np.testing.assert_array_equal(made, wanted, err_msg=case.name)


def body_of(backend: CSourceBackend, statement: Callable[..., tirx.Stmt], dtype: str = "float32") -> str:
    """The lines of a kernel of two pointers."""
    pointers = [tirx.Var(f"{name}_data", PointerType(PrimType(dtype))) for name in "ab"]
    buffers = [tirx.decl_buffer((64,), dtype, name=n, data=p) for n, p in zip("ab", pointers, strict=True)]
    body = [tirx.DeclBuffer(buffer, data=p) for buffer, p in zip(buffers, pointers, strict=True)]
    func = tirx.PrimFunc(pointers, tirx.SeqStmt([*body, statement(*buffers), tirx.Return(tirx.IntImm("int32", 0))]))
    text = kernel_function(func.with_attr("global_symbol", "nnefc_kernel_k")).text
    return "\n".join(line.strip() for line in text.splitlines()[1:-1])


def test_sums_of_a_tile_are_variables(backend: CSourceBackend) -> None:
    def tile(a: tirx.Var, b: tirx.Var) -> tirx.Stmt:
        sums, k = tirx.decl_buffer((2,), "float32", name="sums"), tirx.Var("k", "int32")
        add = [tirx.BufferStore(sums, sums[n] + a[k * 2 + n], [n]) for n in range(2)]
        return tirx.SeqStmt(
            [
                tirx.AllocBuffer(sums),
                *(tirx.BufferStore(sums, tirx.const(0, "float32"), [n]) for n in range(2)),
                tirx.For(k, 0, 8, tirx.ForKind.SERIAL, tirx.SeqStmt(add)),
                *(tirx.BufferStore(b, sums[n], [n]) for n in range(2)),
            ]
        )

    assert body_of(backend, tile).splitlines() == [
        "float sums_0 = 0.0f;",
        "float sums_1 = 0.0f;",
        "for (int32_t k = 0; k < 8; ++k) {",
        "sums_0 = sums_0 + a[k * 2];",
        "sums_1 = sums_1 + a[k * 2 + 1];",
        "}",
        "b[0] = sums_0;",
        "b[1] = sums_1;",
    ]


def test_a_vector_whose_lanes_are_read_again_is_computed_before_it_is_stored(backend: CSourceBackend) -> None:
    def reversed_lanes(a: tirx.Var, b: tirx.Var) -> tirx.Stmt:
        return tirx.BufferStore(b, b[tirx.Ramp(1, -1, 2)] + a[tirx.Ramp(0, 2, 2)], [tirx.Ramp(0, 1, 2)])

    assert body_of(backend, reversed_lanes).splitlines() == [
        "const float lane = b[1] + a[0];",
        "const float lane_1 = b[0] + a[2];",
        "b[0] = lane;",
        "b[1] = lane_1;",
    ]


def test_lanes_that_are_shuffled_are_read_before_any_is_stored(backend: CSourceBackend) -> None:
    def shifted(a: tirx.Var, b: tirx.Var) -> tirx.Stmt:
        whole = tirx.Ramp(0, 1, 2)
        moved = tirx.Shuffle([tirx.Broadcast(tirx.const(0, "float32"), 2), b[whole]], [1, 2])
        return tirx.BufferStore(b, b[whole] + moved, [whole])

    assert body_of(backend, shifted).splitlines() == [
        "(void)a;",
        "const float lane = b[0] + 0.0f;",
        "const float lane_1 = b[1] + b[0];",
        "b[0] = lane;",
        "b[1] = lane_1;",
    ]


def test_a_loop_may_end_early(backend: CSourceBackend) -> None:
    def found(a: tirx.Var, b: tirx.Var) -> tirx.Stmt:
        i = tirx.Var("i", "int32")
        end = tirx.IfThenElse(a[i] < tirx.const(0, "float32"), tirx.Evaluate(tirx.break_loop()), None)
        body = tirx.SeqStmt([end, tirx.BufferStore(b, a[i], [i])])
        return tirx.For(i, 0, 8, tirx.ForKind.SERIAL, body)

    assert body_of(backend, found).splitlines() == [
        "for (int32_t i = 0; i < 8; ++i) {",
        "if (a[i] < 0.0f) {",
        "break;",
        "}",
        "b[i] = a[i];",
        "}",
    ]


def test_one_of_two_values_alone_is_computed_where_it_needs_names(backend: CSourceBackend) -> None:
    def chosen(a: tirx.Var, b: tirx.Var) -> tirx.Stmt:
        x = tirx.Var("x", "float32")
        guarded = tirx.Let(x, a[b[0].astype("int32")], x * x)
        return tirx.BufferStore(b, tirx.if_then_else(b[0] < tirx.const(64, "float32"), guarded, b[1]), [2])

    assert body_of(backend, chosen).splitlines() == [
        "float chosen;",
        "if (b[0] < 64.0f) {",
        "const float x = a[(int32_t)b[0]];",
        "chosen = x * x;",
        "} else {",
        "chosen = b[1];",
        "}",
        "b[2] = chosen;",
    ]


def test_bytes_of_a_word_are_its_lanes(backend: CSourceBackend) -> None:
    def bytes_of(a: tirx.Var, b: tirx.Var) -> tirx.Stmt:
        parts = tirx.reinterpret("int8x4", a[0])
        return tirx.BufferStore(b, tirx.Shuffle([parts], [2]).astype("int32"), [0])

    assert body_of(backend, bytes_of, "int32") == "b[0] = (int32_t)(int8_t)(uint8_t)((uint32_t)a[0] >> 16u);"


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1.0, "float32", "1.0f"),
        (1e-7, "float32", "1e-07f"),
        (0.1, "float32", "0.1f"),
        (0.1, "float64", "0.1"),
        (float("inf"), "float32", "nnefc__float_of_bits(0x7f800000u)"),
        (1.5, "float16", "15872"),
        (-(1 << 31), "int32", "(-2147483647 - 1)"),
        (1 << 40, "int64", "1099511627776ll"),
        (7, "uint32", "7u"),
        (True, "bool", "1"),
    ],
)
def test_numbers_are_written_exactly(value: float, dtype: str, text: str) -> None:
    assert literal(value, dtype) == text


def test_floats_are_read_back_as_they_were() -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 20_000, dtype=np.uint32)
    values = bits.view(np.float32)
    values = values[np.isfinite(values)]
    texts = [literal(value, "float32") for value in values]
    assert all(re.fullmatch(r"-?[\d.]+(e[+-]\d+)?f", text) for text in texts)
    np.testing.assert_array_equal(np.array([text[:-1] for text in texts], np.float32), values)


def test_names_are_those_that_c_allows() -> None:
    names = Names()
    assert [names.fresh(name) for name in ("for", "x.1", "x.1", "", "2d")] == ["for_1", "x_1", "x_1_1", "v", "v2d"]
    with names.scope():
        assert names.fresh("inner") == "inner"
    assert names.fresh("inner") == "inner"
    assert len(identifier("a" * 200)) <= 63
