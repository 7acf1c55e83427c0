"""Products and convolutions by outer products (SME): exact for odd sizes and all lengths of vectors, chosen by cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from emulation import refused_by, run_on, with_glibc
from numpy_reference import convolve
from onnx import TensorProto, helper, numpy_helper

import nnefc
from nnefc.passes.compute.outer_products import takes_outer_products
from nnefc.passes.tir.cpu.microkernels.aarch64_sme import OUTER_PRODUCTS, outer_product_text
from nnefc.targets.machine.cpu.parsing import parse_target

TARGET = "llvm -mtriple=aarch64-linux-gnu -mattr=+sme"
MACHINE = with_glibc("sme", TARGET, "qemu-aarch64", "-cpu", "max", opened=True)
PRODUCTS = {
    "float": ((3, 15, 64), (64, 70), np.float32, np.float32),
    "signed": ((37, 41), (41, 100), np.int8, np.int8),
    "unsigned": ((33, 128), (128, 97), np.uint8, np.uint8),
    "mixed": ((40, 50), (50, 65), np.uint8, np.int8),
    "vector": ((1, 64), (64, 70), np.float32, np.float32),
}

OUTER = ("fmopa", "smopa", "umopa", "usmopa")
CONVOLUTIONS = {
    "window": ((2, 20, 9, 11), (35, 20, 3, 2), [2, 1], [1, 0, 2, 1]),
    "pixels": ((1, 72, 5, 7), (40, 72, 1, 1), [1, 1], [0, 0, 0, 0]),
    "image": ((1, 3, 21, 23), (48, 3, 5, 5), [2, 2], [2, 2, 2, 2]),
}
"""Shapes of data and filters, strides, and padding before and after."""

_LARGE = 4000
"""Of weights: whole numbers, whose sums are exact, that no type of fewer bits has."""

Compiled = tuple[nnefc.Artifact, Mapping[str, np.ndarray], Mapping[str, np.ndarray]]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """All products and convolutions as one network, its inputs, and its results."""
    random, nodes, constants, inputs, results = np.random.default_rng(5), [], [], {}, {}
    for name, (left, right, data, weights) in PRODUCTS.items():
        low, high = (-9, 9) if data == np.float32 else (np.iinfo(data).min, np.iinfo(data).max + 1)
        x = inputs[f"{name}_x"] = random.integers(low, high, left).astype(data)
        low, high = (-_LARGE, _LARGE) if weights == np.float32 else (np.iinfo(weights).min, np.iinfo(weights).max + 1)
        w = random.integers(low, high, right).astype(weights)
        constants.append(numpy_helper.from_array(w, f"{name}_w"))
        operator = "MatMul" if data == np.float32 else "MatMulInteger"
        nodes.append(helper.make_node(operator, [f"{name}_x", f"{name}_w"], [name]))
        exact = x.astype(np.int64) @ w.astype(np.int64)
        results[name] = exact.astype(np.float32 if data == np.float32 else np.int32)
    for name, (data, filters, strides, padding) in CONVOLUTIONS.items():
        x = inputs[f"{name}_x"] = random.integers(-9, 9, data).astype(np.float32)
        w = random.integers(-_LARGE, _LARGE, filters).astype(np.float32)
        constants.append(numpy_helper.from_array(w, f"{name}_w"))
        nodes.append(helper.make_node("Conv", [f"{name}_x", f"{name}_w"], [name], strides=strides, pads=padding))
        results[name] = convolve(x, w, strides, padding, [1, 1], 1).astype(np.float32)
    kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int8): TensorProto.INT8}
    kinds |= {np.dtype(np.uint8): TensorProto.UINT8, np.dtype(np.int32): TensorProto.INT32}
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info(name, kinds[x.dtype], x.shape) for name, x in inputs.items()],
        [helper.make_tensor_value_info(name, kinds[y.dtype], None) for name, y in results.items()],
        constants,
    )
    path = tmp_path_factory.mktemp("outer") / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return nnefc.compile(path, TARGET), inputs, results


def test_each_kind_of_product_has_its_instruction_and_enters_streaming_mode_once(
    compiled: Compiled, tmp_path: Path
) -> None:
    compiled[0].emit("asm", tmp_path)
    text = "".join(path.read_text() for path in sorted(tmp_path.glob("*.s")))
    assert {name: text.count(f"\t{name}\t") for name in OUTER} == {"fmopa": 16, "smopa": 4, "umopa": 4, "usmopa": 4}
    assert text.count("\tsmstart") == text.count("\tsmstop") == sum(text.count(f"\t{name}\t") for name in OUTER) / 4


def test_a_callers_matrix_and_vectors_are_saved_before_streaming_mode() -> None:
    for instruction in OUTER_PRODUCTS.values():
        text = outer_product_text(instruction)
        assert text.index("mrs x9, S3_3_C13_C0_5") < text.index("str za[w12, 0]") < text.index("smstart")
        assert all(f"~{{v{number}}}" in text for number in range(32))


@pytest.mark.parametrize("bits", [128, 256, 512])
def test_results_are_exact_for_every_length_of_vectors(compiled: Compiled, bits: int) -> None:
    if MACHINE.missing:
        pytest.skip(f"needs: {MACHINE.missing}")
    length = f"max,sme-default-vector-length={bits // 8}"
    machine = replace(MACHINE, command=tuple(length if part == "max" else part for part in MACHINE.command))
    artifact, inputs, results = compiled
    found = run_on(machine, artifact, inputs)
    for name, result in results.items():
        step = 2 if result.dtype == np.int32 else 1  # QEMU before 9.0 adds other numbers of `smopa` to wrong sums
        np.testing.assert_array_equal(found[name][..., ::step, ::step], result[..., ::step, ::step], err_msg=name)


def test_a_library_looks_for_the_unit_where_its_kernels_use_it(compiled: Compiled) -> None:
    assert "sme" in compiled[0].description.cpu_features
    if not MACHINE.missing:
        assert "sme" in refused_by(replace(MACHINE, command=(*MACHINE.command[:-1], "cortex-a76")), compiled[0])


def test_the_cost_model_chooses_large_products_of_known_sizes() -> None:
    target = parse_target(TARGET)

    def taken(rows: int, depth: int, columns: int, dtype: str = "float32") -> bool:
        return takes_outer_products(target, (dtype, dtype), rows, depth, columns)

    assert taken(128, 768, 768) and taken(64, 256, 64, "int8")
    assert not taken(1, 768, 768) and not taken(4, 16, 8)
    assert not takes_outer_products(parse_target("neoverse-v2"), ("float32", "float32"), 128, 768, 768)
