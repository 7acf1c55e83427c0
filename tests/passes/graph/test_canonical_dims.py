"""Kernels that are used with several dynamic dimensions, each copy with tensors of its own."""

from __future__ import annotations

import numpy as np
import onnx.parser

import nnefc


def test_copies_of_a_kernel_share_no_tensors() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    reversed (float[T, B, 4] x, float[U, B, 4] z, int64[B] n) => (float[T, B, 4] y, float[U, B, 4] w) {
        y = ReverseSequence <batch_axis = 1, time_axis = 0> (x, n)
        w = ReverseSequence <batch_axis = 1, time_axis = 0> (z, n)
    }"""
    model = nnefc.compile(onnx.parser.parse_model(text)).load(threads=1)
    x, z = (np.random.default_rng(size).random((size, 2, 4), np.float32) for size in (5, 3))
    found = model.run({"x": x, "z": z, "n": np.array([3, 1])})
    for name, given in (("y", x), ("w", z)):
        expected = given.copy()
        expected[:3, 0] = given[2::-1, 0]
        np.testing.assert_array_equal(found[name], expected)
