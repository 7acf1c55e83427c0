"""Element-wise computations that at least two formats can say."""

from typing import Any

import numpy as np
from formats import Computation, real

SHAPE = (2, 3, 4)


def of_one(name: str, nnef: str | None, onnx: str | None, pnnx: str | None, **more: Any) -> Computation:
    """A function of `x`; each format has its name."""
    says = None if nnef is None else f"{nnef}(x)"
    named = None if pnnx is None else (pnnx, {})
    return Computation(name, SHAPE, {}, says, None if onnx is None else (onnx, "x", {}), named, opset=22, **more)


def of_two(
    name: str, nnef: str | None, onnx: str | None, pnnx: str | None, dtype: str = "float32", **more: Any
) -> Computation:
    """A function of `x` and `y`, which broadcasts."""
    kind, _, attributes = (onnx or "").partition(" ")
    given = {key: int(value) if value.isdigit() else value for key, _, value in [attributes.partition("=")] if key}
    return Computation(
        name, SHAPE, {}, None if nnef is None else f"{nnef}(x, y)", (kind, "x y", given) if kind else None,
        None if pnnx is None else (pnnx, {}), inputs={"y": ((2, 1, 4), dtype)}, dtype=dtype, opset=22,
        **{"result": dtype, **more},
    )  # fmt: skip


COMPUTATIONS = [
    of_one("absolute value", "abs", "Abs", "torch.abs"),
    of_one("sign", "sign", None, "torch.sign"),
    of_one("negative", "neg", "Neg", "torch.neg"),
    of_one("reciprocal", "rcp", "Reciprocal", "torch.reciprocal"),
    of_one("square", "sqr", None, "torch.square"),
    of_one("round to even", None, "Round", "torch.round"),
    of_one("square root", "sqrt", "Sqrt", "torch.sqrt"),
    of_one("reciprocal of the square root", "rsqrt", None, "torch.rsqrt"),
    of_one("binary logarithm", "log2", None, "torch.log2"),
    of_one("sigmoid", "sigmoid", "Sigmoid", "nn.Sigmoid"),
    of_one("error function", None, "Erf", "torch.erf"),
    *(
        of_one(name, name, name.capitalize(), f"torch.{name}")
        for name in (
            *("floor", "ceil", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan"),
            *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
        )
    ),
    of_one("not a number", None, "IsNaN", "torch.isnan", result="bool"),
    of_one("infinity", None, "IsInf", "torch.isinf", result="bool"),
    of_one("logical not", "not", "Not", "torch.logical_not", dtype="bool", result="bool"),
    of_one("bitwise not", None, "BitwiseNot", "torch.bitwise_not", dtype="int32", result="int32"),
    of_two("sum", "add", "Add", "torch.add"),
    of_two("sum of integers", None, "Add", "torch.add", "int32"),
    of_two("difference", "sub", "Sub", "torch.sub"),
    of_two("product", "mul", "Mul", "torch.mul"),
    of_two("quotient", "div", "Div", "torch.div"),
    of_two("power", "pow", "Pow", "torch.pow"),
    of_two("maximum", "max", "Max", "torch.maximum"),
    of_two("minimum", "min", "Min", "torch.minimum"),
    of_two("minimum of integers", None, "Min", "torch.minimum", "int32"),
    of_two("remainder", None, "Mod", "torch.remainder", "int32"),
    of_two("remainder towards zero", None, "Mod fmod=1", "torch.fmod"),
    of_two("logical and", "and", "And", "torch.logical_and", "bool"),
    of_two("logical or", "or", "Or", "torch.logical_or", "bool"),
    of_two("logical exclusive or", None, "Xor", "torch.logical_xor", "bool"),
    of_two("bitwise and", None, "BitwiseAnd", "torch.bitwise_and", "int32"),
    of_two("bitwise or", None, "BitwiseOr", "torch.bitwise_or", "int32"),
    of_two("bitwise exclusive or", None, "BitwiseXor", "torch.bitwise_xor", "int32"),
    of_two("left shift", None, "BitShift direction=LEFT", "torch.bitwise_left_shift", "uint8"),
    of_two("right shift", None, "BitShift direction=RIGHT", "torch.bitwise_right_shift", "uint8"),
    of_two("equal", "eq", "Equal", "torch.eq", result="bool"),
    of_two("different", "ne", None, "torch.ne", result="bool"),
    of_two("less", "lt", "Less", "torch.lt", result="bool"),
    of_two("less or equal", "le", "LessOrEqual", "torch.le", result="bool"),
    of_two("greater", "gt", "Greater", "torch.gt", result="bool"),
    of_two("greater or equal", "ge", "GreaterOrEqual", "torch.ge", result="bool"),
    Computation(
        "sum of many", SHAPE, {"c": real(*SHAPE)}, "add_n([x, y, c])", ("Sum", "x y c", {}),
        inputs={"y": (SHAPE, "float32")},
    ),
    Computation(
        "power with a constant exponent", SHAPE, {"e": np.array(2.0, np.float32)}, "pow(x, 2.0)", ("Pow", "x e", {}),
        ("torch.square", {}),
    ),
    Computation(
        "clip", SHAPE, {"low": np.array(-0.5, np.float32), "high": np.array(1.5, np.float32)},
        "clamp(x, -0.5, 1.5)", ("Clip", "x low high", {}), ("torch.clamp min=-0.5 max=1.5", {}),
    ),
    Computation(
        "choice", SHAPE, {}, "select(x, y, z)", ("Where", "x y z", {}), ("torch.where", {}), dtype="bool",
        inputs={"y": (SHAPE, "float32"), "z": (SHAPE, "float32")},
    ),
    Computation(
        "cast", SHAPE, {}, None, ("Cast", "x", {"to": 6}), ("Tensor.to dtype=torch.int", {}), result="int32",
    ),
    Computation(
        "cast to booleans", SHAPE, {}, None, ("Cast", "x", {"to": 9}), ("Tensor.bool", {}), result="bool",
    ),
]  # fmt: skip
