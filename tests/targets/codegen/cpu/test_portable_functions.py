"""Elementary functions of reproducible libraries: against float64, at all sizes of numbers and at the edges."""

from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from onnx import TensorProto, helper, save
from tir_programs import function
from tvm import tirx
from tvm.ir.expr import TensorLoad

import nnefc
from nnefc.targets.codegen.cpu.portable_arithmetic import use_portable_functions
from nnefc.targets.codegen.cpu.portable_functions import FUNCTIONS

_UNARY = {
    "Acos": np.arccos, "Acosh": np.arccosh, "Asin": np.arcsin, "Asinh": np.arcsinh, "Atan": np.arctan, "Cos": np.cos,
    "Cosh": np.cosh, "Sin": np.sin, "Sinh": np.sinh, "Tan": np.tan,
}  # fmt: skip
_ELEMENTS = 4096


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    """All exponents, many numbers near 1, and what is special; a multiple of 16 and a few more."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, _ELEMENTS, np.uint64).astype(np.uint32).view(np.float32)
    near = rng.uniform(-3, 3, _ELEMENTS).astype(np.float32)
    turns = (np.arange(-500, 500) * np.pi / 2).astype(np.float32)
    edges = np.array(
        [0, -0.0, 1, -1, 0.5, np.inf, -np.inf, np.nan, 1e-45, 3e38, 88.7, -103.9, 0.01, 16384.5], np.float32
    )
    return np.concatenate([np.nan_to_num(bits, nan=1.0, posinf=3e38, neginf=-3e38), near, turns, edges])


@pytest.fixture(scope="module")
def results(values: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    powers = rng.choice([-2.5, -1, -0.0, 0.5, 1, 2, 3, 7.25, np.inf, -np.inf], values.size).astype(np.float32)
    nodes = [helper.make_node(name, ["x"], [name]) for name in _UNARY] + [helper.make_node("Pow", ["x", "y"], ["Pow"])]
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [values.size]) for n in ("x", "y")]
    made = [helper.make_tensor_value_info(n.output[0], TensorProto.FLOAT, [values.size]) for n in nodes]
    graph = helper.make_graph(nodes, "functions", given, made)
    file: Path = tmp_path_factory.mktemp("functions") / "functions.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), file)
    with nnefc.compile(file, reproducible=True).load(threads=1) as model:
        return {"y": powers, **model.run({"x": values, "y": powers})}


def _is_nearest(found: np.ndarray, exact: np.ndarray) -> None:
    """Whether results are those of float64, rounded, but where these lie about half way between two neighbours."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = exact.astype(np.float32)
        unit = np.spacing(np.abs(rounded)).astype(np.float64)
        apart = np.abs(found.astype(np.float64) - exact)
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    wrong = ~(same | (apart <= 0.5001 * unit))
    assert not wrong.any(), list(zip(np.nonzero(wrong)[0][:5], found[wrong][:5], exact[wrong][:5], strict=True))


@pytest.mark.parametrize("name", list(_UNARY))
def test_function_is_rounded_to_nearest(name: str, values: np.ndarray, results: dict[str, np.ndarray]) -> None:
    with np.errstate(all="ignore"):
        _is_nearest(results[name], _UNARY[name](values.astype(np.float64)))


def test_odd_functions_keep_the_sign_of_zero(values: np.ndarray, results: dict[str, np.ndarray]) -> None:
    zeros = values == 0
    for name in ("Asin", "Asinh", "Atan", "Sin", "Sinh", "Tan"):
        assert np.array_equal(np.signbit(results[name][zeros]), np.signbit(values[zeros])), name


def test_power_is_rounded_to_nearest(values: np.ndarray, results: dict[str, np.ndarray]) -> None:
    with np.errstate(all="ignore"):
        _is_nearest(results["Pow"], values.astype(np.float64) ** results["y"].astype(np.float64))


def nodes_in(func: tirx.PrimFunc, kind: type) -> list[tvm.ir.Node]:
    found: list[tvm.ir.Node] = []
    tvm_ffi.structural_walk(func, (kind, found.append))
    return found


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_values_have_no_names_which_tvm_would_inline(name: str) -> None:
    operands = "X[i], X[i + 1]" if name in ("atan2", "pow") else "X[i]"
    portable = use_portable_functions(
        function(f"""
            X: T.Buffer((99,)), Y: T.Buffer((99,)), i: T.int64
            Y[i] = T.{name}({operands})
        """)
    )
    assert not nodes_in(portable, tirx.Let)
    assert len(nodes_in(portable, tirx.BufferStore)) < 50


IN_A_BRANCH = """
    X: T.Buffer((99,)), Y: T.Buffer((99,)), i: T.int64
    Y[i] = T.if_then_else(i < 9, T.if_then_else(i < 3, T.sin(X[i]), X[5]), T.float32(0))
"""


def test_memory_is_read_under_the_conditions_of_the_statement() -> None:
    portable = use_portable_functions(function(IN_A_BRANCH))
    *kept, last = nodes_in(portable, tirx.BufferStore)
    reads = [store for store in kept if any(load.source.name == "X" for load in nodes_in(store.value, TensorLoad))]
    assert len(reads) == 1
    read = str(reads[0].value)
    assert read.index("i < T.int64(9)") < read.index("i < T.int64(3)") < read.index("X[i]")
    assert "X[5]" in str(last.value) and "X[i]" not in str(last.value)


SQUARES = """
    X: T.Buffer((99,)), Y: T.Buffer((99,)), i: T.int64
    Y[i] = X[i] * X[i]
"""


def test_names_that_functions_are_called_with_are_kept_too() -> None:
    func = function(SQUARES)
    var = tirx.Var("v", "float32")
    named = tirx.Let(var, func.body.value, tirx.sin(var) + var)
    store = tirx.BufferStore(func.body.buffer, named, func.body.indices)
    portable = use_portable_functions(tirx.PrimFunc(func.params, store, func.ret_type, func.attrs))
    assert not nodes_in(portable, tirx.Let)
    assert len([load for load in nodes_in(portable, TensorLoad) if load.source.name == "X"]) == 2
