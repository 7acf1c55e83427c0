"""Networks on machines without an operating system, under emulators: their results are those of the host."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from boards import BOARDS, run_on_board
from numpy_reference import convolve
from onnx import TensorProto, helper, numpy_helper
from quantized_layers import quantized

import nnefc

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "model.nnef"


def skip_without(target: str) -> None:
    if BOARDS[target].missing:
        pytest.skip(f"needs {BOARDS[target].missing}")


@pytest.mark.parametrize(
    "target", [*(pytest.param(each, marks=pytest.mark.slow) for each in ("cortex-m4", "cortex-m55")), "riscv32imc"]
)
@pytest.mark.slow
def test_digits_are_recognized(target: str) -> None:
    skip_without(target)
    image = np.random.default_rng(0).random((1, 1, 8, 8)).astype(np.float32)
    expected = nnefc.compile(DIGITS).run({"image": image})["probability"]
    measured = run_on_board(nnefc.compile(DIGITS, target), {"image": image})
    np.testing.assert_allclose(measured.outputs["probability"], expected, rtol=1e-4)
    assert measured.stack_bytes < 1024


@pytest.mark.parametrize(
    "target",
    ["cortex-m0plus", *(pytest.param(t, marks=pytest.mark.slow) for t in ("cortex-m4", "cortex-m55")), "riscv32imc"],
)
@pytest.mark.sample(1)
def test_integers_are_those_of_the_host(target: str, tmp_path: Path) -> None:
    skip_without(target)
    model = tmp_path / "small.onnx"
    data = quantized(model)
    expected = nnefc.compile(model).run({"x": data})
    measured = run_on_board(nnefc.compile(model, target), {"x": data})
    for name, value in expected.items():
        assert np.ptp(value) > 0
        np.testing.assert_array_equal(measured.outputs[name], value)


class _Int8Network:
    """A network in int8 that grows node by node from the input `x`, `[1, 3, 12, 12]`; weights are random."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(2)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def node(self, kind: str, *inputs: str, **attributes: object) -> str:
        self._nodes.append(helper.make_node(kind, list(inputs), [f"t{len(self._nodes)}"], **attributes))
        return f"t{len(self._nodes) - 1}"

    def _constant(self, value: object, dtype: type) -> str:
        self._constants.append(numpy_helper.from_array(np.asarray(value, dtype), f"c{len(self._constants)}"))
        return str(self._constants[-1].name)

    def through_int8(self, x: str, scale: float, zero: int) -> str:
        grid = self._constant(scale, np.float32), self._constant(zero, np.int8)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *grid), *grid)

    def conv(self, x: str, *shape: int, group: int = 1, **attributes: object) -> str:
        weights = self._constant(self._random.integers(-127, 128, shape), np.int8)
        w = weights, self._constant(0.005, np.float32), self._constant(0, np.int8)
        attributes = {"pads": [shape[-1] // 2] * 4, **attributes}
        made = self.node("Conv", x, self.node("DequantizeLinear", *w), group=group, **attributes)
        return self.through_int8(made, 0.05, 4)

    def write(self, path: Path, y: str) -> np.ndarray:
        """Write the network whose output is `y`; returns an input."""
        graph = helper.make_graph(
            self._nodes,
            "network",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 12, 12))],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
            self._constants,
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
        return self._random.standard_normal((1, 3, 12, 12)).astype(np.float32)


def branches(path: Path) -> np.ndarray:
    """Write a network in int8 whose two branches are added, and the mean of their sum; returns an input."""
    net = _Int8Network()
    x = net.through_int8("x", 0.02, 3)
    left = net.conv(net.conv(x, 16, 3, 3, 3), 16, 16, 3, 3)
    total = net.through_int8(net.node("Relu", net.node("Add", left, net.conv(x, 16, 3, 1, 1))), 0.04, -128)
    return net.write(path, net.through_int8(net.node("GlobalAveragePool", total), 0.03, -128))


@pytest.mark.parametrize("target", ["cortex-m4", pytest.param("cortex-m55", marks=pytest.mark.slow)])
def test_what_is_kept_between_kernels_is_bytes(target: str, tmp_path: Path) -> None:
    """Two tensors of 16 channels, and the image next to them: in float32, one alone would take 9,216 bytes."""
    data = branches(tmp_path / "branches.onnx")
    artifact = nnefc.compile(tmp_path / "branches.onnx", target)
    assert artifact.description.workspace_bytes <= 2 * 16 * 14**2 + 1024
    skip_without(target)
    (expected,) = nnefc.compile(tmp_path / "branches.onnx").run({"x": data}).values()
    (found,) = run_on_board(artifact, {"x": data}).outputs.values()
    assert np.ptp(expected) > 0
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("target", ["cortex-m4", pytest.param("cortex-m55", marks=pytest.mark.slow)])
def test_padding_of_depthwise_convolutions_takes_no_memory(target: str, tmp_path: Path) -> None:
    """The data and the result of a convolution, 40 channels each, are all of the arena."""
    net = _Int8Network()
    x = net.conv(net.through_int8("x", 0.02, 3), 40, 3, 1, 1)
    uneven = {"pads": [1, 3, 3, 1], "dilations": [2, 2]}
    for attributes in ({}, uneven, {"pads": [2, 0, 0, 2]}):
        x = net.conv(net.conv(x, 40, 1, 3, 3, group=40, **attributes), 40, 40, 1, 1)
    data = net.write(tmp_path / "padded.onnx", net.through_int8(net.node("GlobalAveragePool", x), 0.01, 0))
    artifact = nnefc.compile(tmp_path / "padded.onnx", target)
    pixels = 48 if target == "cortex-m55" else 40  # in blocks of 16 channels, or of 8
    assert artifact.description.workspace_bytes <= 2 * pixels * 12**2
    skip_without(target)
    (expected,) = nnefc.compile(tmp_path / "padded.onnx").run({"x": data}).values()
    (found,) = run_on_board(artifact, {"x": data}).outputs.values()
    assert np.ptp(expected) > 0
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_blocks_of_few_channels_are_read_by_all_convolutions(tmp_path: Path) -> None:
    """Tensors of 4 and 8 channels, concatenated with each other and with one of 16."""
    net, target = _Int8Network(), "cortex-m55"
    eight = net.conv(net.conv(net.through_int8("x", 0.02, 3), 8, 3, 3, 3), 8, 1, 3, 3, group=8)
    four = net.conv(eight, 4, 8, 1, 1)
    joined = net.node("Concat", eight, net.conv(four, 16, 4, 3, 3), axis=1)
    narrow = net.node("Concat", four, net.conv(joined, 8, 24, 1, 1), axis=1)
    grouped = net.conv(narrow, 24, 4, 3, 3, group=3)
    data = net.write(tmp_path / "few.onnx", net.conv(grouped, 8, 24, 1, 1))
    skip_without(target)
    (expected,) = nnefc.compile(tmp_path / "few.onnx").run({"x": data}).values()
    (found,) = run_on_board(nnefc.compile(tmp_path / "few.onnx", target), {"x": data}).outputs.values()
    assert np.ptp(expected) > 0
    np.testing.assert_array_equal(found, expected)


def test_few_channels_take_the_memory_of_few(tmp_path: Path) -> None:
    """The result of the first convolution and that of the second, 8 channels each, with padding around the first."""
    net = _Int8Network()
    x = net.conv(net.conv(net.through_int8("x", 0.02, 3), 8, 3, 3, 3), 8, 1, 3, 3, group=8)
    net.write(tmp_path / "few.onnx", net.node("GlobalAveragePool", x))
    artifact = nnefc.compile(tmp_path / "few.onnx", "cortex-m55")
    assert artifact.description.workspace_bytes <= 8 * (14**2 + 12**2) + 256


@pytest.mark.slow
def test_results_of_equal_layers_are_converted_apart(tmp_path: Path) -> None:
    """Twice the same kernel, on two tensors, read by one sum; and an axis of three, which fills no vector."""
    target = "cortex-m55"
    skip_without(target)
    random = np.random.default_rng(3)
    weights = random.integers(-127, 128, (8, 3, 1, 1)).astype(np.int8)
    values = {"w": weights, "ws": np.float32(0.01), "wz": np.int8(0), "s": np.float32(0.03), "z": np.int8(2)}
    nodes = [helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"])]
    for name in "xy":
        through = [("x8", name), ("xf", f"{name}_x8"), ("c", f"{name}_xf"), ("q", f"{name}_c"), ("f", f"{name}_q")]
        kinds = ("QuantizeLinear", "DequantizeLinear", "Conv", "QuantizeLinear", "DequantizeLinear")
        for kind, (made, given) in zip(kinds, through, strict=True):
            more = ["wf"] if kind == "Conv" else ["s", "z"]
            nodes.append(helper.make_node(kind, [given, *more], [f"{name}_{made}"]))
    nodes.append(helper.make_node("Sub", ["x_f", "y_f"], ["out"]))
    shape = (1, 3, 5, 7)
    graph = helper.make_graph(
        nodes,
        "twins",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()],
    )
    path = tmp_path / "twins.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    data = {name: random.standard_normal(shape).astype(np.float32) for name in "xy"}
    expected = nnefc.compile(path).run(data)["out"]
    found = run_on_board(nnefc.compile(path, target), data).outputs["out"]
    assert np.ptp(expected) > 0
    np.testing.assert_array_equal(found, expected)


STATEFUL = """version 1.0;

extension KHR_enable_operator_expressions;

graph count(x) -> (y)
{
    x = external<scalar>(shape = [1, 3]);
    s = variable<scalar>(shape = [1, 3], label = 's');
    y = s + x;
    t = update(s, y);
}
"""


def test_states_are_in_the_arena_and_begin_again(tmp_path: Path) -> None:
    """The program resets the states before each of its two runs."""
    skip_without("cortex-m4")
    folder = tmp_path / "count"
    folder.mkdir()
    (folder / "graph.nnef").write_text(STATEFUL)
    artifact = nnefc.compile(folder, "cortex-m4", random_weights=3)
    x = np.array([[1, 2, 3]], np.float32)
    first = nnefc.compile(folder, random_weights=3).run({"x": x})
    np.testing.assert_array_equal(run_on_board(artifact, {"x": x}).outputs["y"], first["y"])


def test_integers_are_multiplied_two_at_a_time_and_rounded_by_one_instruction(tmp_path: Path) -> None:
    quantized(tmp_path / "small.onnx")
    nnefc.compile(tmp_path / "small.onnx", "cortex-m4").emit("asm", tmp_path / "asm")
    text = "".join(path.read_text() for path in (tmp_path / "asm").iterdir())
    kernels = dict(re.findall(r"\n(nnefc_kernel_\w+):\n(.*?)\n\.Lfunc_end", text, re.DOTALL))
    dense = [body for name, body in kernels.items() if re.search("integer_(convolution|matmul)", name)]
    depthwise = [body for name, body in kernels.items() if "integer_depthwise" in name]
    assert len(dense) == 3
    assert all("smlad" in body and "ldrsb" not in body for body in dense)
    assert len(depthwise) == 1
    assert all("sxtb16" in body and "ldrsb" not in body for body in depthwise)
    assert all("vcvtr.s32.f32" in body and "nearbyintf" not in body for body in (*dense, *depthwise))


def test_a_convolution_of_one_channel_multiplies_neighbours_in_a_row(tmp_path: Path) -> None:
    skip_without("cortex-m4")
    random = np.random.default_rng(5)
    x = random.integers(-128, 128, (1, 1, 7, 23)).astype(np.int8)
    nodes, constants, wanted = [], [], []
    for n, (width, stride, dilation) in enumerate(((4, 2, 1), (3, 1, 2), (9, 3, 1))):
        weights = random.integers(-127, 128, (5, 1, 3, width)).astype(np.int8)
        constants.append(numpy_helper.from_array(weights, f"w{n}"))
        wanted.append(convolve(x, weights, [1, stride], [1, 2, 1, 3], [1, dilation], 1))
        how = {"pads": [1, 2, 1, 3], "strides": [1, stride], "dilations": [1, dilation]}
        nodes.append(helper.make_node("ConvInteger", ["x", f"w{n}"], [f"y{n}"], **how))
    graph = helper.make_graph(
        nodes,
        "one_channel",
        [helper.make_tensor_value_info("x", TensorProto.INT8, (1, 1, 7, 23))],
        [helper.make_tensor_value_info(f"y{n}", TensorProto.INT32, None) for n in range(len(nodes))],
        constants,
    )
    model = tmp_path / "one_channel.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), model)
    measured = run_on_board(nnefc.compile(model, "cortex-m4"), {"x": x})
    for n, expected in enumerate(wanted):
        np.testing.assert_array_equal(measured.outputs[f"y{n}"], expected, err_msg=f"y{n}")


def test_an_image_is_copied_once_with_its_padding(tmp_path: Path) -> None:
    """The channels of a pixel go to one word each, in the position that the padding leaves them."""
    skip_without("cortex-m4")
    random = np.random.default_rng(7)
    x = random.integers(-128, 128, (1, 3, 24, 20)).astype(np.int8)
    weights = random.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8)
    graph = helper.make_graph(
        [helper.make_node("ConvInteger", ["x", "w", "zero"], ["y"], pads=[1, 1, 0, 1], strides=[2, 2])],
        "image",
        [helper.make_tensor_value_info("x", TensorProto.INT8, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.int8(5), "zero")],
    )
    model = tmp_path / "image.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), model)
    artifact = nnefc.compile(model, "cortex-m4")
    assert artifact.description.workspace_bytes < 4 * 25 * 22 + 8 * 4 * 12 * 10 + 128
    wanted = convolve(x.astype(np.int64) - 5, weights, [2, 2], [1, 1, 0, 1], [1, 1], 1)
    np.testing.assert_array_equal(run_on_board(artifact, {"x": x}).outputs["y"], wanted)


def test_a_channel_that_a_convolution_has_made_is_read_where_it_lies(tmp_path: Path) -> None:
    skip_without("cortex-m4")
    random = np.random.default_rng(6)
    constants = [("w", random.integers(-50, 51, (1, 8, 3, 3)).astype(np.int8))]
    constants += [("v", random.integers(-50, 51, (8, 1, 3, 3)).astype(np.int8)), ("zero", np.int8(0))]
    constants += [("of_x", np.float32(0.1)), ("of_w", np.float32(0.01)), ("of_y", np.float32(0.2))]
    parameters = [["of_x", "zero", weights, "of_w", "zero", "of_y", "zero"] for weights in "wv"]
    graph = helper.make_graph(
        [
            helper.make_node("QLinearConv", ["x", *parameters[0]], ["t"], pads=[1] * 4),
            helper.make_node("QLinearConv", ["t", *parameters[1]], ["y"], pads=[1] * 4),
        ],
        "bottleneck",
        [helper.make_tensor_value_info("x", TensorProto.INT8, (1, 8, 7, 6))],
        [helper.make_tensor_value_info("y", TensorProto.INT8, (1, 8, 7, 6))],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants],
    )
    model = tmp_path / "bottleneck.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), model)
    x = random.integers(-128, 128, (1, 8, 7, 6)).astype(np.int8)
    measured = run_on_board(nnefc.compile(model, "cortex-m4"), {"x": x})
    np.testing.assert_array_equal(measured.outputs["y"], nnefc.compile(model).run({"x": x})["y"])


def test_helium_multiplies_and_rounds_vectors(tmp_path: Path) -> None:
    quantized(tmp_path / "small.onnx")
    nnefc.compile(tmp_path / "small.onnx", "cortex-m55").emit("asm", tmp_path / "asm")
    text = "".join(path.read_text() for path in (tmp_path / "asm").iterdir())
    kernels = dict(re.findall(r"\n(nnefc_kernel_\w+):\n(.*?)\n\.Lfunc_end", text, re.DOTALL))
    sums = [body for name, body in kernels.items() if re.search("integer_(convolution|matmul)", name)]
    assert len(sums) == 3
    assert all(len(re.findall(r"vmlava?\.s8\s", body)) >= 4 for body in sums)
    assert all(re.search(r"vrintn\.f32\s+q", body) for body in sums)


INTEGER_PRODUCTS = (
    # data, weights, sizes of the image; filters, strides, dilation, groups
    ("int8", "int8", (5, 9, 7), (6, 5, 3, 3), 1, 1, 1),
    ("uint8", "int8", (3, 8, 11), (9, 3, 3, 5), 2, 1, 1),
    ("uint8", "uint8", (19, 5, 6), (7, 19, 1, 1), 1, 1, 1),
    ("int8", "int8", (3, 7, 9), (4, 3, 3, 2), 1, 2, 1),
    ("int8", "uint8", (40, 4, 4), (8, 10, 2, 3), 1, 1, 4),
    ("int8", "int8", (1, 6, 9), (5, 1, 4, 3), 2, 1, 1),
)


def integer_products(path: Path, step: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Write a network of every `step`-th product of bytes, each with a result of its own; returns its inputs and
    results.
    """
    random = np.random.default_rng(7)
    nodes, constants, values, inputs, outputs, wanted = [], [], {}, [], [], {}

    def product(kind: str, data: str, weights: str, shape: tuple[int, ...], of: tuple[int, ...], **how: object) -> None:
        number = len(nodes)
        limits = [np.iinfo(dtype) for dtype in (data, weights)]
        values[f"x{number}"] = random.integers(limits[0].min, limits[0].max + 1, shape).astype(data)
        w = random.integers(limits[1].min, limits[1].max + 1, of).astype(weights)
        constants.append(numpy_helper.from_array(w, f"w{number}"))
        x = values[f"x{number}"]
        options = [how[name] for name in ("strides", "pads", "dilations", "group") if how]
        wanted[f"y{number}"] = convolve(x, w, *options) if how else x.astype(np.int32) @ w
        element = TensorProto.INT8 if data == "int8" else TensorProto.UINT8
        inputs.append(helper.make_tensor_value_info(f"x{number}", element, shape))
        outputs.append(helper.make_tensor_value_info(f"y{number}", TensorProto.INT32, None))
        nodes.append(helper.make_node(kind, [f"x{number}", f"w{number}"], [f"y{number}"], **how))

    for data, weights, shape, of, stride, dilation, group in INTEGER_PRODUCTS[::step]:
        given = {"pads": [1, 0, 1, 2], "strides": [stride] * 2, "dilations": [dilation] * 2, "group": group}
        product("ConvInteger", data, weights, (1, *shape), of, **given)
    for depth, columns in ((3, 5), (24, 4), (33, 9), (48, 2))[::step]:
        product("MatMulInteger", "int8", "int8", (3, depth), (depth, columns))
    product("MatMulInteger", "uint8", "int8", (1, 32), (32, 6))
    graph = helper.make_graph(nodes, "products", inputs, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return values, wanted


@pytest.mark.parametrize(
    ("target", "step"),
    [("cortex-m55", 2), *(pytest.param(t, 1, marks=pytest.mark.slow) for t in ("cortex-m4", "cortex-m55"))],
)
def test_products_of_bytes_of_all_sizes_are_exact(target: str, step: int, tmp_path: Path) -> None:
    skip_without(target)
    values, wanted = integer_products(tmp_path / "products.onnx", step)
    measured = run_on_board(nnefc.compile(tmp_path / "products.onnx", target), values)
    for name, expected in wanted.items():
        np.testing.assert_array_equal(measured.outputs[name], expected, err_msg=name)
