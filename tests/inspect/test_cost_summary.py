"""Counts of a network, compared with numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from nnefc.inspect.cost_summary import inspect_network
from nnefc.ir.network import Network, State


def zeros(*shape: int) -> relax.Expr:
    return relax.const(np.zeros(shape, "float32"))


def tensor(name: str, *shape: int, dtype: str = "float32") -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, dtype))


def network(parameters: list[relax.Var], body: object, states: tuple[State, ...] = ()) -> Network:
    """The network whose outputs `body(builder, *parameters)` returns."""
    builder = relax.BlockBuilder()
    with builder.function("main", parameters):
        with builder.dataflow():
            results = body(builder, *parameters)
            returned = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(returned)
    inputs = tuple(p.name for p in parameters[: len(parameters) - len(states)])
    outputs = tuple(f"y{i}" for i in range(len(results) - len(states)))
    return Network("net", builder.get(), inputs, outputs, states)


def test_grouped_convolution_relu_and_matrix_product() -> None:
    def body(b: relax.BlockBuilder, x: relax.Var) -> list[relax.Var]:
        y = b.emit(relax.op.nn.conv2d(x, zeros(8, 2, 3, 3), padding=(1, 1, 1, 1), groups=2))
        y = b.emit(relax.op.nn.relu(y))
        y = b.emit(relax.op.reshape(y, (1, 288)))
        return [b.emit(relax.op.matmul(y, zeros(288, 10)))]

    found = inspect_network(network([tensor("x", 1, 4, 6, 6)], body))
    assert [(t.name, t.dtype, t.shape) for t in found.inputs] == [("x", "float32", (1, 4, 6, 6))]
    assert [(t.name, t.dtype, t.shape) for t in found.outputs] == [("y0", "float32", (1, 10))]
    assert found.parameters == 8 * 2 * 9 + 2880
    assert found.parameter_bytes == 4 * found.parameters
    assert found.multiply_adds == 288 * 2 * 9 + 2880  # 288 outputs that read 2 channels of 3 x 3; 10 that read 288
    assert found.live_bytes == 2 * 288 * 4  # the convolution's and the relu's results; the reshape has none


def test_transposed_and_one_dimensional_convolution() -> None:
    def body(b: relax.BlockBuilder, x: relax.Var) -> list[relax.Var]:
        y = b.emit(relax.op.nn.conv1d_transpose(x, zeros(3, 5, 4), strides=2))  # 3 x 7 inputs, 5 x 4 products each
        return [b.emit(relax.op.nn.conv1d(y, zeros(2, 5, 3)))]  # 16 long; 2 x 14 outputs of 5 x 3 products

    found = inspect_network(network([tensor("x", 1, 3, 7)], body))
    assert found.outputs[0].shape == (1, 2, 14)
    assert found.multiply_adds == 3 * 7 * 5 * 4 + 2 * 14 * 5 * 3


def test_a_constant_used_twice_counts_once() -> None:
    def body(b: relax.BlockBuilder, x: relax.Var) -> list[relax.Var]:
        shared = zeros(1, 6)
        return [b.emit(relax.op.multiply(b.emit(relax.op.add(x, shared)), shared))]

    assert inspect_network(network([tensor("x", 1, 6)], body)).parameters == 6


def test_batched_matrix_product_of_two_activations() -> None:
    def body(b: relax.BlockBuilder, x: relax.Var, y: relax.Var) -> list[relax.Var]:
        return [b.emit(relax.op.matmul(x, y))]

    found = inspect_network(network([tensor("x", 2, 3, 4), tensor("y", 2, 4, 5)], body))
    assert found.multiply_adds == 2 * 3 * 4 * 5


def test_inputs_live_until_their_last_use_and_outputs_to_the_end() -> None:
    def body(b: relax.BlockBuilder, x: relax.Var) -> list[relax.Var]:
        first = b.emit(relax.op.exp(x))  # x and first: 200
        second = b.emit(relax.op.sum(first, axis=[0]))  # first and second: 101 elements
        third = b.emit(relax.op.negative(second))
        return [first, third]  # first, second, third: 102

    assert inspect_network(network([tensor("x", 100)], body)).live_bytes == 200 * 4


def test_parts_of_a_split_keep_the_whole_alive() -> None:
    def body(b: relax.BlockBuilder, x: relax.Var) -> list[relax.Var]:
        parts = b.emit(relax.op.split(x, 2, axis=0))  # x and parts: 80 elements
        part = b.emit(relax.TupleGetItem(parts, 0))
        y = b.emit(relax.op.exp(part))  # parts and y: 60
        return [b.emit(relax.op.concat([y, part, y, part], axis=0))]  # parts, y and the result: 140

    assert inspect_network(network([tensor("x", 40)], body)).live_bytes == 140 * 4


def test_states_are_no_inputs_and_their_new_values_no_outputs() -> None:
    def body(b: relax.BlockBuilder, x: relax.Var, s: relax.Var) -> list[relax.Var]:
        return [b.emit(relax.op.add(x, s)), x]

    state = State("memory", np.zeros(5, "float32"))
    found = inspect_network(network([tensor("x", 5), tensor("s", 5)], body, (state,)))
    assert [t.name for t in found.inputs] == ["x"]
    assert [t.name for t in found.outputs] == ["y0"]
    assert [t.name for t in found.states] == ["memory"]


@pytest.mark.parametrize(("dtype", "size"), [("bool", 1), ("int8", 1), ("float16", 2), ("int64", 8)])
def test_bytes_follow_the_element_type(dtype: str, size: int) -> None:
    def body(b: relax.BlockBuilder, x: relax.Var) -> list[relax.Var]:
        return [x]

    assert inspect_network(network([tensor("x", 7, dtype=dtype)], body)).live_bytes == 7 * size
