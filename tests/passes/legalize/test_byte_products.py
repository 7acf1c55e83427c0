"""Products with matrices in blocks by `vpmaddubsw`: exact where rows are integers, whatever the integers are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import TensorProto, helper

import nnefc
from nnefc.passes.tir.dot.byte_split import LARGEST

_COLUMNS, _DEPTH = 24, 256
_MATRICES = {  # bits, block, limits of the integers
    "four": (4, 32, (0, 16)),
    "four_max": (4, 32, (15, 16)),
    "four_in_long_blocks": (4, 128, (14, 16)),
    "four_min": (4, 16, (0, 1)),
    "two": (2, 64, (0, 4)),
    "eight": (8, 32, (0, 256)),
    "eight_max": (8, 32, (254, 256)),
    "eight_min": (8, 16, (0, 2)),
    "six": (8, 16, (96, 160)),
    "seven": (8, 32, (129, 256)),
    "sixteen_kinds": (8, 32, (120, 136)),
}


def _codes(name: str) -> np.ndarray:
    bits, _, limits = _MATRICES[name]
    codes = np.random.default_rng(1).integers(*limits, (_COLUMNS, _DEPTH)).astype(np.uint8)
    if name == "seven":
        codes[:, ::2] = 129 + (codes[:, ::2] > 200) * 126
    assert codes.max() < 1 << bits
    return codes


def _model(rows: int, level: int) -> bytes:
    nodes, constants = [], []
    for name, (bits, block, _) in _MATRICES.items():
        codes = _codes(name).reshape(_COLUMNS, -1, 8 // bits)
        packed = np.bitwise_or.reduce(codes << (np.arange(8 // bits) * bits).astype(np.uint8), axis=-1)
        data = packed.reshape(_COLUMNS, _DEPTH // block, -1)
        scales = np.full(_COLUMNS * _DEPTH // block, 0.5, np.float32)
        constants += [
            helper.make_tensor(f"{name}_data", TensorProto.UINT8, data.shape, data.tobytes(), raw=True),
            helper.make_tensor(f"{name}_scales", TensorProto.FLOAT, scales.shape, scales),
        ]
        sizes = {"K": _DEPTH, "N": _COLUMNS, "bits": bits, "block_size": block, "accuracy_level": level}
        given = ["x", f"{name}_data", f"{name}_scales"]
        nodes.append(helper.make_node("MatMulNBits", given, [name], domain="com.microsoft", **sizes))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, _DEPTH])
    y = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, _COLUMNS]) for name in _MATRICES]
    graph = helper.make_graph(nodes, "products", [x], y, constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def _rows(rows: int, largest: int) -> Sequence[np.ndarray]:
    """Integers whose largest one in each block is `largest`, so that rounding changes none."""
    rng = np.random.default_rng(rows)
    mixed = rng.integers(-largest, largest + 1, (rows, _DEPTH))
    mixed[:, ::16] = largest
    same = np.full((rows, _DEPTH), largest)
    return [mixed, same, -same]


@pytest.mark.parametrize(("rows", "level", "largest"), [(1, 4, 127), (9, 4, 127), (3, 2, LARGEST)])
def test_products_of_integers_are_exact(rows: int, level: int, largest: int) -> None:
    with nnefc.compile(_model(rows, level), target="x86-64-v3").load(threads=1) as model:
        for x in _rows(rows, largest):
            found = model.run({"x": x.astype(np.float32)})
            for name, (bits, _, _) in _MATRICES.items():
                wanted = x @ (_codes(name).T.astype(np.int64) - (1 << (bits - 1))) / 2
                bound = 2e-7 * (np.abs(x) @ np.abs(_codes(name).T.astype(np.int64) - (1 << (bits - 1)))).max() + 1e-6
                assert np.abs(found[name] - wanted).max() <= bound, name
