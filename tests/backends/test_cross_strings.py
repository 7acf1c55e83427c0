"""Strings on every machine: with pointers of 32 and 64 bits, and C libraries of all kinds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from emulation import MACHINES, Machine, run_on
from onnx import TensorProto, helper, numpy_helper

import nnefc

STRING, INT64, FLOAT, BOOL = TensorProto.STRING, TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL
TARGETS = ("armv7", "wasm32", "windows")
SLOW = ("aarch64", "riscv64")


def model() -> onnx.ModelProto:
    """Numbers that become strings, are joined, changed, cut and matched, and become numbers again."""
    nodes = [
        helper.make_node("Cast", ["x"], ["text"], to=STRING),
        helper.make_node("StringConcat", ["text", "more"], ["long"]),
        helper.make_node("StringNormalizer", ["long"], ["upper"], case_change_action="UPPER"),
        helper.make_node("StringSplit", ["upper"], ["words", "numbers"]),
        helper.make_node("RegexFullMatch", ["long"], ["matches"], pattern="-?[1-4]*[5-9]? [a-zß]+ é"),
        helper.make_node("Gather", ["words", "one"], ["word"], axis=1),
        helper.make_node("Equal", ["word", "wanted"], ["equal"]),
        helper.make_node(
            "TfIdfVectorizer", ["words"], ["counts"], pool_strings=["7", "STRASSE", "STRASSE", "É"],
            ngram_counts=[0, 2], ngram_indexes=[0, 1, 2], min_gram_length=1, max_gram_length=2, max_skip_count=0,
            mode="TF",
        ),
        helper.make_node(
            "LabelEncoder", ["text"], ["label"], domain="ai.onnx.ml", keys_strings=["7", "", "-12"],
            values_int64s=[70, 0, -120],
        ),
        helper.make_node("Cast", ["text"], ["back"], to=FLOAT),
    ]  # fmt: skip
    kinds = {"numbers": INT64, "matches": BOOL, "equal": BOOL, "counts": FLOAT, "label": INT64, "back": FLOAT}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", INT64, [6])],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()],
        [
            numpy_helper.from_array(np.array(" straße é", object), "more"),
            numpy_helper.from_array(np.array(1), "one"),
            numpy_helper.from_array(np.array(["STRASSE", "x"] * 3, object), "wanted"),
        ],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 4)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(
    "machine",
    [
        pytest.param(machine, id=machine.name, marks=[pytest.mark.slow] if machine.name in SLOW else [])
        for machine in MACHINES
        if machine.name in (*TARGETS, *SLOW)
    ],
)
@pytest.mark.sample(1)
def test_strings_on_every_machine(machine: Machine, tmp_path: Path) -> None:
    if machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    proto, path = model(), tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    x = np.array([7, -12, 0, 123456789012, -(1 << 63), 3])
    found = run_on(machine, nnefc.compile(path, machine.target), {"x": x})
    expected = {
        "numbers": [3] * 6,
        "matches": [True, True, False, False, False, True],
        "equal": [True, False] * 3,
        "counts": [[number == 7, 1, 1] for number in x],
        "label": [70, -120, -1, -1, -1, -1],
        "back": x.astype(np.float32),
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, name)
