"""Element types of language models' files, compared with the package gguf on random blocks, and on zeros and ones."""

from __future__ import annotations

import gguf
import gguf.quants
import numpy as np
import pytest

from nnefc.frontends.decoder.weights import StoredTensor, stacked
from nnefc.frontends.tensor_types import GGML_TYPES
from nnefc.frontends.tensor_types.requantized import REQUANTIZED
from nnefc.operators.nn.block_quantization import BlockTensor, Multiples

KINDS = gguf.GGMLQuantizationType
ROWS, BLOCKS = 3, 4


def blocks_of(number: int) -> np.ndarray:
    """Random bytes, rows of the smallest and of the largest ones, and random bytes after a first one of 0xFF."""
    size = GGML_TYPES[number].block_bytes
    made = np.random.default_rng(number).integers(0, 256, (ROWS + 3, BLOCKS, size), np.uint8)
    made[-3:-1] = np.reshape([0, 0xFF], (2, 1, 1))
    made[-1, :, 0] = 0xFF
    return made.reshape(len(made), -1)


def decoded_one_by_one(data: np.ndarray, bits: int) -> np.ndarray:
    """Elements of Q1_0 and Q2_0, which the package does not decode: a scale, and 16 bytes of codes as one integer."""
    found = []
    for block in data.reshape(-1, 18):
        (scale,), codes = block[:2].view("<f2").astype(np.float32), int.from_bytes(block[2:].tobytes(), "little")
        integers = [codes >> position & (1 << bits) - 1 for position in range(0, 128, bits)]
        found += [scale * ((-1, 1)[code] if bits == 1 else code - 1) for code in integers]
    return np.array(found, np.float32)


@pytest.mark.parametrize("number", GGML_TYPES, ids=[kind.name for kind in GGML_TYPES.values()])
def test_blocks_are_the_numbers_that_the_format_defines(number: int) -> None:
    kind, data = GGML_TYPES[number], blocks_of(number)
    shape = (len(data), BLOCKS * kind.elements)
    with np.errstate(all="ignore"):
        if kind.name == "F64":
            wanted = data.view("<f8").astype(np.float32)
        elif kind.name in ("Q1_0", "Q2_0"):
            wanted = decoded_one_by_one(data, int(kind.name[1])).reshape(shape)
        else:
            wanted = gguf.quants.dequantize(data, KINDS(number)).astype(np.float32).reshape(shape)
        found = kind.tensor(data, shape)
        found = found.values() if isinstance(found, BlockTensor) else found
    if kind.name in REQUANTIZED:
        finite = np.isfinite(wanted).reshape(-1, 32).all(1)
        wanted, found = wanted.reshape(-1, 32)[finite], found.reshape(-1, 32)[finite]
        bound = np.abs(wanted).max(1, keepdims=True) / 253
        assert finite.sum() > BLOCKS
        assert (np.abs(found - wanted) <= bound).all()
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("number", GGML_TYPES, ids=[kind.name for kind in GGML_TYPES.values()])
def test_sizes_of_blocks_are_those_of_the_format(number: int) -> None:
    kind = GGML_TYPES[number]
    known = {int(own): sizes for own, sizes in gguf.GGML_QUANT_SIZES.items()} | {42: (64, 18)}
    assert (kind.elements, kind.block_bytes) == known[number]


def test_tensors_of_several_slices_are_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("Q6_K", 14), ("BF16", 30), ("Q4_1", 3)):
        kind, data = GGML_TYPES[number], blocks_of(number)
        data[-1] = 0
        shape = (len(data), BLOCKS * kind.elements)
        monkeypatch.undo()
        whole = kind.tensor(data, shape)
        monkeypatch.setattr("nnefc.frontends.tensor_types.tensor_type._CHUNK_BYTES", 3 * kind.block_bytes)
        sliced = kind.tensor(data, shape)
        if isinstance(whole, BlockTensor):
            assert isinstance(sliced, BlockTensor), name
            np.testing.assert_array_equal(sliced.codes, whole.codes)
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(sliced.values(), whole.values())
        else:
            np.testing.assert_array_equal(sliced, whole)


def test_rows_of_a_matrix_and_matrices_below_each_other_stay_in_blocks() -> None:
    kind, data = GGML_TYPES[12], blocks_of(12)[:ROWS]
    data.reshape(ROWS, BLOCKS, -1)[..., :4] = np.array([0.1, -0.3], "<f2").view(np.uint8)
    tensor = StoredTensor(kind, (ROWS, BLOCKS * kind.elements), data.reshape(-1))
    order = np.array([2, 0, 1])
    wanted = gguf.quants.dequantize(data, KINDS.Q4_K)
    below = stacked([tensor, tensor.rows(order)])
    for found, numbers in ((tensor.rows(order), wanted[order]), (below, np.concatenate([wanted, wanted[order]]))):
        blocks = found.value()
        assert isinstance(blocks, BlockTensor) and isinstance(blocks.scales, Multiples)
        np.testing.assert_array_equal(blocks.values(), numbers)
