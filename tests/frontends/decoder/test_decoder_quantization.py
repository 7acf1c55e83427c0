"""Matrices of floats rounded to blocks: within the documented error, also for tiny and for huge numbers."""

from __future__ import annotations

import numpy as np
import pytest

from nnefc.frontends.decoder.quantization import can_be_rounded, in_eight_bits, in_four_bits

RNG = np.random.default_rng(8)


def matrix(scale: float) -> np.ndarray:
    """Rows of several sizes, zeros and equal numbers among them."""
    made = RNG.standard_normal((6, 96)) * scale * np.array([1, 0.05, 50, 0, 1, 1])[:, None]
    made[4] = scale
    made[5, :32] = 0
    return made.astype(np.float32)


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
def test_the_error_is_within_what_is_documented(scale: float) -> None:
    given = matrix(scale)
    parts = given.reshape(6, 3, 32)
    largest, width = np.abs(parts).max(-1, keepdims=True), np.ptp(parts, -1, keepdims=True)
    eight, four = (made(given).values().reshape(parts.shape) for made in (in_eight_bits, in_four_bits))
    assert (np.abs(eight - parts) <= largest / 250).all()
    rounding = np.abs(parts).max(-1, keepdims=True) / 1000  # of the offset, to 16 bits
    assert (np.abs(four - parts) <= width / 29 + rounding).all()
    assert in_eight_bits(given).scales.dtype == (np.float16 if scale == 1 else np.float32)


def test_matrices_alone_are_rounded() -> None:
    assert can_be_rounded("blk.0.attn_q.weight", (64, 32))
    for label, shape in (("a", (1, 32)), ("a", (64, 33)), ("a", (2, 4, 32)), ("blk.0.ffn_gate_inp.weight", (8, 32))):
        assert not can_be_rounded(label, shape)
