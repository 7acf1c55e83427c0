"""Attention with masks, positions, shared heads and caches compared with the definition, written in NumPy; in one
network."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_operator_cases import SAMPLE_AND_ALL, Case, check, compiled, sample

RNG = np.random.default_rng(11)


def real(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def attended(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    past_key: np.ndarray | None = None,
    past_value: np.ndarray | None = None,
    lengths: np.ndarray | None = None,
    **given: Any,
) -> list[np.ndarray]:
    """The four results, computed in float64."""
    dtype, past = q.dtype, 0
    if past_key is not None:
        past = past_key.shape[2]
        k, v = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
    q, wide, values = (x.astype(np.float64) for x in (q, k, v))
    wide, values = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (wide, values))
    stages = [q @ wide.swapaxes(2, 3) * given.get("scale", 1 / np.sqrt(q.shape[3]))]
    cap = given.get("softcap", 0.0)
    stages.append(cap * np.tanh(stages[0] / cap) if cap else stages[0])
    queries, keys = stages[0].shape[2:]
    bias = np.zeros((queries, keys))
    if mask is not None:
        bias = np.where(mask, 0, -np.inf) if mask.dtype == bool else mask.astype(np.float64)
        tail = keys - bias.shape[-1]
        bias = np.pad(bias, [(0, 0)] * (bias.ndim - 1) + [(0, tail)], constant_values=-np.inf)
    first = np.full(len(q), past) if lengths is None else lengths - queries
    position = first[:, None, None, None] + np.arange(queries)[:, None]
    key, seen = np.arange(keys), np.ones((len(q), 1, queries, keys), bool)
    seen &= key < (keys if lengths is None else lengths[:, None, None, None])
    left, right = given.get("left_window_size", -1), given.get("right_window_size", -1)
    seen &= (key <= position) if given.get("is_causal") else True
    seen &= (key >= position - left) if left >= 0 else True
    seen &= (key <= position + right) if right >= 0 else True
    stages.append(np.where(seen, stages[1] + bias, -np.inf))
    largest = np.maximum(stages[2].max(-1, keepdims=True), -1e300)
    powers = np.exp(stages[2] - largest)
    stages.append(powers / np.maximum(powers.sum(-1, keepdims=True), 1e-300))
    results = [stages[3] @ values, k, v, stages[given.get("qk_matmul_output_mode", 0)]]
    return [result.astype(dtype) for result in results]


def cases() -> list[tuple[Case, list[np.ndarray]]]:
    q, k, v = real(2, 6, 5, 8), real(2, 3, 7, 8), real(2, 3, 7, 4)
    past = real(2, 3, 4, 8), real(2, 3, 4, 4)
    hidden = RNG.random((2, 1, 5, 7)) < 0.5
    hidden[0, 0, 2] = False
    lengths = np.array([3, 7], np.int64)
    wide = [x.astype(np.float64) for x in (q, k, v)]
    given: list[tuple[list[np.ndarray | None], dict[str, Any]]] = [
        ([q, k, v], {"scale": 0.3, "softcap": 1.5}),
        ([q, k, v, real(5, 7)], {"qk_matmul_output_mode": 2}),
        ([q, k, v, hidden], {"qk_matmul_output_mode": 3}),
        ([q, k, v, hidden[:, :, :, :6]], {"qk_matmul_output_mode": 3}),
        ([q, k, v, real(5, 4)], {"is_causal": 1}),
        ([q, k, v], {"is_causal": 1, "softcap": 2.0, "qk_matmul_output_mode": 1}),
        ([q, k, v, None, *past], {"is_causal": 1}),
        ([q, k, v, hidden[0, :, :, :1], *past], {"left_window_size": 2, "right_window_size": 1}),
        ([q, k[:, :, :2], v[:, :, :2]], {"left_window_size": 1, "qk_matmul_output_mode": 3}),
        ([q, k, v, None, None, None, lengths], {"is_causal": 1, "qk_matmul_output_mode": 3}),
        ([q, k, v, hidden, None, None, lengths], {"right_window_size": 0}),
        (wide, {"softmax_precision": 1}),
        ([q, k, v], {"softmax_precision": 11}),
    ]
    made = []
    for operands, attributes in given:
        outputs = 4 if "qk_matmul_output_mode" in attributes else 1  # else shape inference knows no types
        wanted = attended(*operands, **attributes)[:outputs]
        made.append((Case("Attention", operands, attributes, outputs=outputs), wanted))
        if len(operands) == 4:  # the same with a mask that is known at compile time
            made.append((Case("Attention", operands, attributes, frozenset({3}), outputs), wanted))
    return made


@SAMPLE_AND_ALL
def test_attention_agrees_with_its_definition(whole: bool) -> None:
    every = cases()
    given, wanted = zip(*(every[index] for index in sample([case for case, _ in every], whole)), strict=True)
    check(given, compiled(given, 25), wanted, tolerance=1e-4)
