"""Floats that cancel as real numbers would, compared with onnxruntime: rounding by large constants, infinities and
NaN."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx_models import info, loaded, model, node, tensor

from nnefc.driver.compile import compile_network
from nnefc.driver.options import CodeOptions
from nnefc.targets.machine.cpu.parsing import parse_target

X = np.array([0.3, 1.7, -2.6, np.inf, np.nan, 5], np.float32)
MAGIC = np.float32(1.5 * 2**23)
CONSTANTS = {"magic": MAGIC, "less": -MAGIC, "ten": 10, "tenth": 0.1, "none": 0}
NODES = [
    node("Add", ["x", "magic"], ["a"]),
    node("Sub", ["a", "magic"], ["rounded"]),
    node("Mul", ["x", "ten"], ["b"]),
    node("Add", ["b", "magic"], ["c"]),
    node("Add", ["c", "less"], ["d"]),
    node("Mul", ["d", "tenth"], ["in steps"]),
    node("Add", ["z", "x"], ["e"]),
    node("Sub", ["e", "z"], ["rounded by data"]),
    node("Add", ["x", "z"], ["f"]),
    node("Sub", ["z", "f"], ["negated"]),
    node("Relu", ["x"], ["g"]),
    node("Sub", ["g", "g"], ["less itself"]),
    node("Equal", ["x", "x"], ["h"]),
    node("Cast", ["h"], ["equals itself"], to=1),
    node("Mul", ["x", "none"], ["times zero"]),
    node("Less", ["x", "ten"], ["i"]),
    node("Not", ["i"], ["j"]),
    node("Cast", ["j"], ["not less"], to=1),
    node("Equal", ["x", "z"], ["k"]),
    node("Not", ["k"], ["l"]),
    node("Cast", ["l"], ["not equal"], to=1),
    node("Or", ["i", "k"], ["m"]),
    node("Not", ["m"], ["n"]),
    node("Cast", ["n"], ["neither"], to=1),
    node("GreaterOrEqual", ["x", "ten"], ["o"]),
    node("Or", ["i", "o"], ["p"]),
    node("Cast", ["p"], ["less or not"], to=1),
    node("Where", ["j", "x", "z"], ["chosen"]),
    node("Div", ["none", "x"], ["of zero"]),
    node("Div", ["x", "less itself"], ["by zero"]),
]
RESULTS = ["rounded", "in steps", "rounded by data", "negated", "less itself", "equals itself", "times zero"]
RESULTS += ["not less", "not equal", "neither", "less or not", "chosen", "of zero", "by zero"]


@pytest.mark.parametrize("way", ["default", "strict", "reproducible"])
@pytest.mark.sample(1)
def test_floats_that_cancel_keep_their_roundings_and_nan(tmp_path: Path, way: str) -> None:
    constants = [tensor(name, value) for name, value in CONSTANTS.items()]
    made = model(NODES, [info("x", [6]), info("z", [6])], [info(name, [6]) for name in RESULTS], constants)
    feeds = {"x": X, "z": np.full(6, MAGIC)}
    wanted = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    target = parse_target("llvm")
    target = target.made_reproducible() if way == "reproducible" else target
    with compile_network(loaded(made, tmp_path), target, CodeOptions(strict=way == "strict")).load() as library:
        found = library.run(feeds)
    for name, expected in zip(RESULTS, wanted, strict=True):
        np.testing.assert_array_equal(found[name], expected, err_msg=name)
