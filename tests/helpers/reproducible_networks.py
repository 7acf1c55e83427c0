"""Networks whose results differ most easily from processor to processor, and inputs at the borders of arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from pnnx_files import annotation, write_network

__all__ = ["AT_BORDERS", "BORDERS", "Given"]

Given = tuple[Path, dict[str, np.ndarray]]
"""A network's file, and its inputs."""

_ONE_OPERAND = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "exp2", "expm1", "log", "log10",
    "log1p", "log2", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh",
)  # fmt: skip
_TWO_OPERANDS = ("atan2", "div", "fmod", "logaddexp", "maximum", "minimum", "mul", "pow", "remainder")


def _borders() -> np.ndarray:
    """1,021 numbers: signed zeros, subnormal, next to integers' ranges, infinite and none, and others of all sizes."""
    rng = np.random.default_rng(22)
    ranges = np.array([2.0**k for k in (7, 8, 15, 16, 24, 31, 32, 52, 63, 64)], np.float32)
    chosen = np.array([0, 1e-45, 5e-42, 1.17e-38, 1.18e-38, 0.1, 0.5, 1, 1.5, 2, 2.5, 3, 88.7, 104, 3.4e38], np.float32)
    near = [ranges, np.nextafter(ranges, np.float32(0)), np.nextafter(ranges, np.float32(np.inf)), ranges - 1, chosen]
    numbers = np.concatenate([*near, [np.float32(np.inf)]])
    sizes = np.exp2(rng.uniform(-149, 127, 500)).astype(np.float32) * rng.choice([-1, 1], 500).astype(np.float32)
    some = np.concatenate([numbers, -numbers, [np.float32(np.nan)], sizes])
    return np.concatenate([some, rng.standard_normal(1021 - some.size).astype(np.float32)])


BORDERS = _borders()


def _functions(folder: Path) -> Given:
    """Elementary functions, and what is left of a division."""
    texts = [
        *(f"{name}(@0)" for name in _ONE_OPERAND), *(f"{name}(@0,@1)" for name in _TWO_OPERANDS),
        "pow(2,@0)", "pow(10,@0)",
    ]  # fmt: skip
    lines = [f"pnnx.Input in{i} 0 1 {i} #{i}={annotation(BORDERS)}" for i in range(2)]
    for i, text in enumerate(texts, 2):
        both = "@1" in text
        lines.append(f"pnnx.Expression e{i} {1 + both} 1 0 {'1 ' * both}{i} expr={text}")
    lines += [f"pnnx.Output out{i} 1 0 {i}" for i in range(2, len(texts) + 2)]
    others = np.random.default_rng(1).permutation(BORDERS)
    return write_network(folder, lines), {"0": BORDERS, "1": others}


def _onnx(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int | str],
    outputs: dict[str, int],
    constants: dict[str, np.ndarray],
) -> Path:
    """A model of one input of float32, "x"."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, dtype, None) for name, dtype in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), folder / "m.onnx")
    return folder / "m.onnx"


def _conversions(folder: Path) -> Given:
    """Numbers to integers and narrower floats that do not hold them all, roundings, and the greater of two."""
    types = ("INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64", "BOOL", "DOUBLE")
    nodes, outputs = [], {}
    for name in types:
        outputs[name] = getattr(TensorProto, name)
        nodes.append(helper.make_node("Cast", ["x"], [name], to=outputs[name]))
    for name in ("FLOAT16", "BFLOAT16"):
        nodes.append(helper.make_node("Cast", ["x"], [f"{name} narrow"], to=getattr(TensorProto, name)))
        nodes.append(helper.make_node("Cast", [f"{name} narrow"], [name], to=TensorProto.FLOAT))
        outputs[name] = TensorProto.FLOAT
    for op in ("Ceil", "Floor", "Relu", "Round", "Sign", "Abs", "Reciprocal", "Elu", "Celu", "Selu"):
        nodes.append(helper.make_node(op, ["x"], [op]))
        outputs[op] = TensorProto.FLOAT
    nodes.append(helper.make_node("Clip", ["x", "low", "high"], ["Clip"]))
    for dtype in ("int8", "uint8"):
        nodes.append(helper.make_node("QuantizeLinear", ["x", "high", f"zero {dtype}"], [f"codes {dtype}"]))
        outputs[f"codes {dtype}"] = TensorProto.INT8 if dtype == "int8" else TensorProto.UINT8
    outputs["Clip"] = TensorProto.FLOAT
    constants = {"low": np.float32(-0.0), "high": np.float32(6), "zero int8": np.int8(3), "zero uint8": np.uint8(100)}
    return _onnx(folder, nodes, BORDERS.shape, outputs, constants), {"x": BORDERS}


def _quantized(folder: Path) -> Given:
    """A convolution of bytes, and a product with weights of four bits."""
    rng = np.random.default_rng(4)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["b"]),
        helper.make_node("QLinearConv", ["b", "s", "z", "w", "ws", "wz", "t", "z"], ["c"], pads=[1] * 4),
        helper.make_node("DequantizeLinear", ["c", "t", "z"], ["y"]),
        helper.make_node(
            "MatMulNBits", ["y", "n", "ns", "nz"], ["p"], domain="com.microsoft", K=45, N=21, bits=4, block_size=16
        ),
    ]
    constants = {
        "s": np.float32(0.03), "z": np.uint8(120), "w": rng.integers(-128, 128, (13, 5, 3, 3)).astype(np.int8),
        "ws": rng.uniform(0.001, 0.01, 13).astype(np.float32), "wz": np.zeros(13, np.int8), "t": np.float32(0.07),
        "n": rng.integers(0, 256, (21, 3, 8)).astype(np.uint8),
        "ns": rng.uniform(0.01, 0.1, 63).astype(np.float32), "nz": rng.integers(0, 256, 42).astype(np.uint8),
    }  # fmt: skip
    path = _onnx(folder, nodes, (2, 5, 7, 45), {"c": TensorProto.UINT8, "p": TensorProto.FLOAT}, constants)
    return path, {"x": rng.standard_normal((2, 5, 7, 45), np.float32)}


def _dynamic_size(folder: Path) -> Given:
    """Long sums over a size that is known only when the network runs."""
    rng = np.random.default_rng(5)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("LayerNormalization", ["m", "g"], ["n"]),
        helper.make_node("Sin", ["n"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"], axis=0),
        helper.make_node("ReduceMean", ["m"], ["z"], keepdims=0),
    ]
    constants = {"w": rng.standard_normal((37, 19), np.float32), "g": rng.standard_normal(19, np.float32)}
    path = _onnx(folder, nodes, ("n", 37), {"y": TensorProto.FLOAT, "z": TensorProto.FLOAT}, constants)
    return path, {"x": rng.standard_normal((43, 37), np.float32)}


AT_BORDERS: dict[str, Callable[[Path], Given]] = {
    "functions": _functions,
    "conversions": _conversions,
    "quantized": _quantized,
    "dynamic size": _dynamic_size,
}
"""By name: writes a network into a folder."""
