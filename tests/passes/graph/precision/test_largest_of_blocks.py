"""Bounds of matrices in blocks: no element is larger, and where all codes occur, one is as large."""

from __future__ import annotations

import numpy as np
import pytest

from nnefc.ir.attributes import ADDS_OFFSETS, DEQUANTIZES_BLOCKS, FLOAT_BLOCKS
from nnefc.operators.nn.block_quantization import BlockTensor, Multiples
from nnefc.passes.graph.precision.largest_of_blocks import largest_of_blocks

RNG = np.random.default_rng(7)
SCALES = RNG.standard_normal((3, 4)).astype(np.float32)
OFFSETS = 50 * RNG.standard_normal((3, 4)).astype(np.float32)
EVERY = np.tile(np.arange(256, dtype=np.uint8), (3, 4, 1))


def multiples() -> Multiples:
    return Multiples(RNG.integers(-90, 91, (3, 4)).astype(np.int8), RNG.standard_normal((3, 2)).astype(np.float32))


CASES = {
    "4 bits": BlockTensor((3, 2048), 4, EVERY, SCALES),
    "offsets": BlockTensor((3, 1024), 8, EVERY, SCALES, OFFSETS),
    "multiples": BlockTensor((3, 4096), 2, EVERY, multiples(), multiples()),
    "floats": BlockTensor((3, 1024), 8, np.delete(EVERY, (127, 255), 2)[..., :254], SCALES, is_float=True),
}


@pytest.mark.parametrize("name", CASES)
def test_the_largest_element_is_the_bound(name: str) -> None:
    of = CASES[name]
    tensors = [of.codes]
    for part in (of.scales, of.offsets):
        tensors += [part.integers, part.factors] if isinstance(part, Multiples) else [] if part is None else [part]
    attributes = {DEQUANTIZES_BLOCKS: of.bits}
    attributes |= {} if of.offsets is None else {ADDS_OFFSETS: 1}
    attributes |= {FLOAT_BLOCKS: 1} if of.is_float else {}
    blocks = BlockTensor((*of.codes.shape[:2], -1), of.bits, of.codes, of.scales, of.offsets, of.is_float)
    np.testing.assert_allclose(largest_of_blocks(attributes, tensors), np.abs(blocks.values()).max(), rtol=1e-6)


def test_zero_points_and_tables() -> None:
    zeros = np.array([[3.0, 14.5]], np.float32)
    codes = np.zeros((1, 2, 16), np.uint8)
    scales = np.array([[2.0, -1.0]], np.float32)
    assert largest_of_blocks({DEQUANTIZES_BLOCKS: 4}, [codes, scales, zeros]) == 2 * 12
    assert largest_of_blocks({DEQUANTIZES_BLOCKS: 0}, [codes, scales, np.array([-3.0, 1.0], np.float32)]) == 6
