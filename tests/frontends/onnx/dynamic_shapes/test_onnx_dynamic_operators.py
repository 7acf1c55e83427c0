"""Operators whose inputs have dynamic dimensions only, each of a name of its own, compared with onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_operator_cases import HOST, Case, by_onnxruntime, check, feeds_of, model_of

from nnefc.driver.compile import compile_network
from nnefc.frontends.onnx import load
from nnefc.ir.network import Network
from nnefc.loader import RunError

OPSET = 21

pytestmark = pytest.mark.filterwarnings("ignore::nnefc.support.diagnostics.ModelWarning")


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def integers(dtype: type[np.integer[Any]], high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(high).integers(0, high, shape).astype(dtype)


def microsoft(op: str, *inputs: np.ndarray | None, outputs: int = 1, **attributes: Any) -> Case:
    return Case(op, inputs, attributes, outputs=outputs, domain="com.microsoft")


def opened(cases: list[Case], folder: Path) -> Network:
    """The network of a model with a name for each dimension of each input."""
    model = model_of(cases, OPSET)
    for info in model.graph.input:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            dim.dim_param = f"{info.name}_{axis}"
    onnx.save(model, folder / "model.onnx")
    return load(folder / "model.onnx")


def test_sizes_that_follow_from_each_other_are_unified(tmp_path: Path) -> None:
    cases = [
        Case("ScatterElements", [integers(np.int8, 9, 4, 5), integers(np.int32, 4, 2, 5), integers(np.int8, 7, 2, 5)]),
        Case("DequantizeLinear", [integers(np.int8, 99, 3, 6), floats(3, 3), integers(np.int8, 3, 3, 3)], {
            "axis": 1, "block_size": 2
        }),
        microsoft("MatMulNBits", floats(3, 32), integers(np.uint8, 255, 8, 2, 8), floats(8, 2), K=32, N=8, bits=4,
                  block_size=16),
        microsoft("RotaryEmbedding", floats(2, 4, 3, 8), integers(np.int64, 5, 2, 3), floats(10, 4), floats(10, 4)),
    ]  # fmt: skip
    network = opened(cases, tmp_path)
    with compile_network(network, HOST).load(threads=1) as model:
        results = model.run(feeds_of(cases))
    check(cases, [[np.asarray(results[f"y{number}_0"])] for number in range(len(cases))], by_onnxruntime(cases, OPSET))


def test_heads_that_share_keys_make_the_keys_a_fraction_of_the_queries(tmp_path: Path) -> None:
    lengths, total = np.full(2, 4, np.int32), np.array(5, np.int32)
    parts = [floats(2, 5, 64), floats(2, 5, 32), floats(2, 5, 32)]
    case = microsoft("GroupQueryAttention", *parts, None, None, lengths, total, num_heads=4, kv_num_heads=2, outputs=3)
    dimensions = {each.name: each for each in opened([case], tmp_path).dynamic_dimensions}
    assert dimensions["x0_0_2"].formula == ("*", ("//", "x0_1_2", 2), 4)
    assert dimensions["x0_1_2"].multiple == 2


def test_scales_of_quantized_recurrent_weights_are_one_of_each_direction(tmp_path: Path) -> None:
    weights, scales = (integers(np.uint8, 255, 1, size, 16) for size in (3, 4)), [floats(1), integers(np.uint8, 9, 1)]
    others = [None] * 5 + scales * 2
    network = opened([microsoft("DynamicQuantizeLSTM", floats(2, 1, 3), *weights, *others, hidden_size=4)], tmp_path)
    assert [network.input_shapes[f"x0_{index}"] for index in range(8, 12)] == [(1,)] * 4


BIASED = microsoft("Attention", floats(2, 5, 4), floats(4, 12), floats(12), num_heads=2, qkv_hidden_sizes=[4, 4, 4])
"""The bias broadcasts with products of 12 columns."""


def test_formulas_of_broadcasts_have_numbers_for_sizes_that_become_known(tmp_path: Path) -> None:
    formulas = [each.formula for each in opened([BIASED], tmp_path).dynamic_dimensions if each.formula]
    assert formulas == [("-", ("broadcast", "x0_2_0", 12), 12)]


@pytest.mark.slow
def test_a_broadcast_to_a_size_that_becomes_known_is_checked(tmp_path: Path) -> None:
    with compile_network(opened([BIASED], tmp_path), HOST).load(threads=1) as model:
        given = feeds_of([BIASED])
        check([BIASED], [[np.asarray(model.run(given)["y0_0"])]], by_onnxruntime([BIASED], OPSET))
        with pytest.raises(RunError, match="12"):
            model.run(given | {"x0_2": floats(11)})
