"""Sums on WebAssembly: the instructions of their innermost loops, and what networks with them compute."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from emulation import MACHINES, run_on, with_relaxed_simd
from small_networks import Net
from test_emit_microkernels import convolved

import nnefc
from nnefc.passes.tir.cpu.microkernels.aarch64_loop import Accumulation
from nnefc.passes.tir.cpu.microkernels.wasm_simd import EngineProduct, code_of, engine_product_of

(_MACHINE,) = (machine for machine in MACHINES if machine.name == "wasm32")


def steps(rows: int, columns: int, terms: int) -> tuple[Accumulation, ...]:
    """Of a tile: sums one after the other, rows of as many numbers as there are terms, lines of vectors."""
    return tuple(
        Accumulation(4 * (row * columns + column), row * terms + term, 4 * (term * columns + column))
        for term in range(terms)
        for row in range(rows)
        for column in range(columns)
    )


def product_of(kind: str, widening: str, fused: bool) -> EngineProduct:
    """One that there is."""
    product = engine_product_of(kind, widening, True, fused)
    assert product is not None
    return product


@pytest.mark.parametrize(("rows", "columns"), [(6, 2), (2, 6), (1, 1), (7, 1), (5, 2)])
@pytest.mark.parametrize("fused", [True, False])
def test_each_factor_is_loaded_once_and_few_are_kept(rows: int, columns: int, fused: bool) -> None:
    text = code_of(product_of("float32", "", fused), steps(rows, columns, 4), False).text
    products = "f32x4.relaxed_madd" if fused else "f32x4.mul"
    assert text.count(products) == 4 * rows * columns
    assert len(re.findall(r"v128\.load ", text)) == 4 * columns
    assert text.count("v128.load32_splat") == 4 * rows
    operands = {int(number) for number in re.findall(r"local\.tee \$(\d+)", text)}
    assert len(operands) <= min(rows, columns) + 1


@pytest.mark.parametrize(("widening", "load"), [("nnefc.extended_int8", "_s"), ("nnefc.extended_uint8", "_u")])
def test_vectors_of_bytes_are_extended_while_they_are_loaded(widening: str, load: str) -> None:
    text = code_of(product_of("nnefc.wasm_dot", widening, False), steps(5, 2, 2), False).text
    assert text.count("i32x4.dot_i16x8_s") == text.count("i32x4.add") == 2 * 5 * 2
    assert re.findall(rf"i16x8\.load8x8{load} (\d+)", text) == ["0", "8", "16", "24"]


@pytest.mark.parametrize(("rows", "columns"), [(5, 2), (1, 3)])
@pytest.mark.parametrize("element_first", [True, False])
def test_relaxed_dot_products_take_signed_bytes_first(rows: int, columns: int, element_first: bool) -> None:
    product = engine_product_of("nnefc.wasm_udot", "", element_first, True)
    assert product is not None
    text = code_of(product, steps(rows, columns, 1), False).text
    first = re.findall(r"(load32_splat|v128\.load )", text)[0]
    assert first == ("v128.load " if element_first else "load32_splat")
    assert text.count("i32x4.relaxed_dot_i8x16_i7x16_add_s") == rows * columns


@pytest.mark.parametrize(
    ("rows", "columns", "terms", "parts"),
    [(6, 2, 8, 1), (3, 2, 8, 1), (2, 2, 8, 2), (1, 2, 8, 4), (1, 1, 4, 4), (1, 1, 1, 1)],
)
def test_few_sums_have_parts_so_that_none_waits_for_itself(rows: int, columns: int, terms: int, parts: int) -> None:
    sums = rows * columns
    for product, known in (
        (engine_product_of("float32", "", True, True), parts),
        (engine_product_of("float32", "", True, True, in_order=True), 1),
        (engine_product_of("nnefc.wasm_dot", "", True, True, in_order=True), parts),  # exact in any order
    ):
        assert product is not None
        text = code_of(product, steps(rows, columns, terms), False).text
        added = re.findall(r"local\.set \$(\d+)", text)
        assert len(added) == sums * terms
        assert set(map(int, added)) == set(range(sums * known))
        assert len(re.findall(rf"%t\d+ = {product.added} ", text)) == sums * (known - 1)


def test_offsets_are_relative_to_the_first_element_that_is_read() -> None:
    code = code_of(product_of("float32", "", True), (Accumulation(0, 7, 12), Accumulation(4, 9, 12)), True)
    assert (code.left, code.right) == ((7,), (12,))
    assert re.findall(r"load32_splat (\d+)", code.text) == ["0", "8"]


@pytest.mark.parametrize("target", ["wasm32-wasi", pytest.param("wasm32-relaxed", marks=pytest.mark.slow)])
def test_a_network_is_nearly_the_same(target: str, tmp_path: Path) -> None:
    """Convolutions of odd sizes into the middle of padded images and into row-major ones, strided ones, and
    products."""
    if _MACHINE.missing:
        pytest.skip(f"needs: {_MACHINE.missing}")
    net = Net(seed=5)
    x = net.do("Relu", convolved(net, net.floats(1, 12, 23, 25), 12, 40, 3))
    x = net.do("Relu", convolved(net, x, 40, 24, 1))
    x = net.do("Relu", convolved(net, x, 24, 24, 3, 2, 24))
    x = convolved(net, x, 24, 40, 1)
    x = net.do("Add", net.do("Relu", convolved(net, x, 40, 40, 5, 1, 40)), x)
    y = net.do("Relu", convolved(net, x, 40, 33, 3))
    rows = net.do("Reshape", y, net.constant(np.array([33, 12 * 13])))
    product = net.do(
        "MatMul", rows, net.constant(np.random.default_rng(7).standard_normal((156, 50)).astype(np.float32))
    )
    onnx.save(net.model([y, product]), tmp_path / "network.onnx")
    nnefc.compile(tmp_path / "network.onnx", "llvm").export(tmp_path / "network.so")
    with nnefc.load(tmp_path / "network.so") as model:
        expected = model(*net.inputs.values())
    artifact = nnefc.compile(tmp_path / "network.onnx", target)
    command = with_relaxed_simd() if "relaxed" in target else _MACHINE.command
    found = run_on(replace(_MACHINE, command=command), artifact, net.inputs).values()
    for here, there in zip(expected, found, strict=True):
        assert np.abs(here - there).max() < 1e-5 * np.abs(here).max()
