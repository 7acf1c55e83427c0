"""DynamicQuantizeLSTM, computed in integers, compared with onnxruntime."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import pytest
from exact_products import EXACT_PRODUCTS
from onnx_operator_cases import HOST, Case, by_onnxruntime, check, compiled, feeds_of, model_of, onnxruntime_session

from nnefc.driver.compile import compile_network
from nnefc.frontends.onnx import load
from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.cpu.parsing import parse_target

DOMAIN = "com.microsoft"
LENGTHS = np.array([3, 5, 4], np.int32)


def quantized(
    rng: np.random.Generator, shape: tuple[int, int, int], dtype: str, by_column: bool
) -> tuple[np.ndarray, ...]:
    """Weights, their scales and their zero points; onnxruntime wants one zero point for all columns, 0 for int8."""
    limits, (count, _, columns) = np.iinfo(dtype), shape
    weights = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    scales = rng.uniform(0.001, 0.003, (count, columns) if by_column else count).astype(np.float32)
    return weights, scales, np.full(scales.shape, 0 if dtype == "int8" else 117, dtype)


def case(
    rng: np.random.Generator,
    sizes: tuple[int, int, int, int] = (6, 3, 7, 9),
    direction: str = "forward",
    dtype: str = "int8",
    by_column: bool = False,
    bias: bool = True,
    lengths: np.ndarray | None = None,
    states: bool = True,
    peepholes: bool = False,
    constant: frozenset[int] = frozenset({1, 2, 3, 4, 8, 9, 10, 11}),
    outputs: int = 3,
    **attributes: Any,
) -> Case:
    """A layer of `sizes` steps, sequences, values and hidden values."""
    (time, batch, depth, hidden), count = sizes, 2 if direction == "bidirectional" else 1
    w = quantized(rng, (count, depth, 4 * hidden), dtype, by_column)
    r = quantized(rng, (count, hidden, 4 * hidden), dtype, by_column)

    def reals(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    optional = [
        reals(count, 8 * hidden) if bias else None,
        lengths,
        reals(count, batch, hidden) if states else None,
        reals(count, batch, hidden) if states else None,
        reals(count, 3 * hidden) if peepholes else None,
    ]
    inputs = [reals(time, batch, depth), w[0], r[0], *optional, *w[1:], *r[1:]]
    attributes |= {"hidden_size": hidden, "direction": direction}
    return Case("DynamicQuantizeLSTM", inputs, attributes, constant, outputs, DOMAIN)


def cases(rng: np.random.Generator) -> list[Case]:
    both = "bidirectional"
    return [
        case(rng),
        case(rng, (4, 1, 5, 18), both, "uint8", states=False),
        case(rng, (5, 3, 4, 11), both, "uint8", by_column=True, peepholes=True),
        case(rng, (7, 3, 4, 6), both, lengths=LENGTHS),  # no consumer asks for the steps from the sixth on
        case(rng, (5, 3, 4, 6), "reverse", "uint8", lengths=LENGTHS, constant=frozenset({1, 2})),
        case(rng, (1, 2, 3, 5), "reverse", by_column=True),
        case(rng, (4, 2, 3, 5), bias=False, constant=frozenset(), clip=0.4, input_forget=1),
        case(rng, (4, 2, 3, 5), activations=["HardSigmoid", "Softsign", "Tanh"]),
    ]


@EXACT_PRODUCTS
def test_layers_of_all_kinds_agree_with_onnxruntime() -> None:
    """Where a hidden value lies between two steps of its scale, engines may differ by more; here none does."""
    given = cases(np.random.default_rng(7))
    check(given, compiled(given, 17), by_onnxruntime(given, 17))


@pytest.mark.slow
def test_instructions_for_two_products_agree_too() -> None:
    given = [case(np.random.default_rng(8), (2, 2, 5, 18), dtype=dtype) for dtype in ("int8", "uint8")]
    check(given, compiled(given, 17, target="llvm -mcpu=x86-64-v3"), by_onnxruntime(given, 17))


def test_states_of_ended_sequences_count_in_the_range_where_the_sequence_is_unused() -> None:
    """onnxruntime keeps them then; it writes zeros over them in `Y`."""
    given = case(np.random.default_rng(9), (7, 3, 4, 6), lengths=LENGTHS, outputs=2)
    model = model_of([given], 17)
    model.graph.node[0].output[:] = ["", *model.graph.node[0].output]
    wanted = onnxruntime_session(model).run(None, feeds_of([given]))
    with TemporaryDirectory() as folder:
        onnx.save(model, path := Path(folder) / "model.onnx")
        network = load(path)
    with compile_network(network, HOST).load(threads=1) as library:
        found = library.run(feeds_of([given]))
    check([given], [list(found.values())], [wanted])


def test_without_steps_the_states_stay() -> None:
    given = case(np.random.default_rng(12), (0, 2, 3, 5))
    ((sequence, hidden, cell),) = compiled([given], 17)
    assert sequence.shape == (0, 1, 2, 5)
    np.testing.assert_array_equal(hidden, given.inputs[5])
    np.testing.assert_array_equal(cell, given.inputs[6])


@pytest.mark.parametrize(
    "target",
    ["llvm -mcpu=icelake-server", pytest.param("x86-64-v3", marks=pytest.mark.slow), "llvm -mtriple=riscv64-linux-gnu"],
)
@pytest.mark.sample(1)
def test_weights_stay_bytes(target: str, tmp_path: Path) -> None:
    given = case(np.random.default_rng(10), (2, 1, 64, 128), bias=False, states=False)
    path = tmp_path / "model.onnx"
    onnx.save(model_of([given], 17), path)
    made = compile_network(load(path), parse_target(target))
    weights = sum(given.inputs[index].nbytes for index in (1, 2))
    assert made.description.constant_bytes < 1.05 * weights


@pytest.mark.parametrize(
    ("index", "shape", "message"),
    [
        (2, (1, 9, 35), r"its weights \[1,9,35\] should be \[1,9,36\]"),
        (8, (2,), r"\[2\] scales do not fit the weights \[1,7,36\]"),
    ],
)
def test_what_does_not_fit_is_an_error(tmp_path: Path, index: int, shape: tuple[int, ...], message: str) -> None:
    given = case(np.random.default_rng(11))
    inputs = list(given.inputs)
    inputs[index] = np.ones(shape, inputs[index].dtype)
    path = tmp_path / "model.onnx"
    onnx.save(model_of([Case(given.op, inputs, given.attributes, given.constant, 3, DOMAIN)], 17), path)
    with pytest.raises(CompileError, match=message):
        load(path)
