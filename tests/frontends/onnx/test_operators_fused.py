"""Operators that onnxruntime's optimizer writes, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_operator_cases import Case, by_onnxruntime, check, compiled


def case(op: str, *inputs: np.ndarray, **attributes: Any) -> Case:
    return Case(op, inputs, attributes, frozenset({2}), domain="com.microsoft")


def test_they_agree_with_onnxruntime() -> None:
    rng = np.random.default_rng(5)

    def reals(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    rows = [reals(2, 5, 12) for _ in range(2)]
    given = [
        case("FastGelu", reals(3, 7)),
        case("FastGelu", rows[0], reals(12)),
        case("FusedMatMul", reals(2, 5, 3), reals(2, 5, 4), transA=1, alpha=0.3),
        case("FusedMatMul", reals(6, 5), reals(4, 5), transB=1),
        case("SkipLayerNormalization", *rows, reals(12), epsilon=1e-5),
        case("SkipLayerNormalization", *rows, reals(12), reals(12), reals(12)),
    ]
    check(given, compiled(given, 14), by_onnxruntime(given, 14))
