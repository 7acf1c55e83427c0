"""Vectors that repeat a byte, which TVM's code generator writes as functions that CUDA does not have."""

from __future__ import annotations

import pytest
from tvm import tirx

from nnefc.targets.codegen.cuda.byte_vectors import repeat_bytes_in_words


def repeated(value: tirx.Expr, lanes: int) -> str:
    func = tirx.PrimFunc([], tirx.Evaluate(tirx.Broadcast(value, lanes)))
    return str(repeat_bytes_in_words(func).body)


@pytest.mark.parametrize(("dtype", "value", "word"), [("int8", -100, -0x63636364), ("uint8", 7, 0x07070707)])
def test_a_byte_is_repeated_in_words(dtype: str, value: int, word: int) -> None:
    text = repeated(tirx.IntImm(dtype, value), 16)
    assert f'reinterpret("{dtype}x16", ' in text and f"T.Broadcast({word}, 4)" in text


@pytest.mark.parametrize(("dtype", "lanes"), [("int8", 4), ("uint8", 2), ("int32", 4)])
def test_other_vectors_stay(dtype: str, lanes: int) -> None:
    assert "reinterpret" not in repeated(tirx.IntImm(dtype, 1), lanes)
