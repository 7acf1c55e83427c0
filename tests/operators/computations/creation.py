"""Tensors made of numbers and sizes alone that at least two formats can say."""

import numpy as np
from formats import Computation
from onnx import numpy_helper

FIVE = {"value": numpy_helper.from_array(np.array([2.5], np.float32))}
COMPUTATIONS = [
    Computation("full", (2, 3), {"s": np.array([2, 3])}, "constant(shape = [2, 3], value = [2.5])",
                ("ConstantOfShape", "s", FIVE), ("torch.full_like fill_value=2.5", {})),
    Computation("arange", None, {"a": np.array(7), "b": np.array(-3), "c": np.array(-2)}, None,
                ("Range", "a b c", {}), ("torch.arange start=7 end=-3 step=-2", {}), result="int64"),
    Computation("arange of floats", None, {k: np.float32(v) for k, v in {"a": -1, "b": 2.5, "c": 0.25}.items()}, None,
                ("Range", "a b c", {}), ("torch.arange start=-1.0 end=2.5 step=0.25", {})),
]  # fmt: skip
