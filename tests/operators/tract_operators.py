"""Operators of tract's registries with what NumPy computes for them in float64: one document for all."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import nnefc

__all__ = ["CASES", "ELSEWHERE", "Case", "check", "names_called"]

Array = npt.NDArray[Any]
RNG = np.random.default_rng(29)
_TYPES = {"float32": "f32", "int64": "i64", "bool": "bool"}
REGISTRIES = ("tract_core", "tract_transformers", "tract_onnx")


def real(*shape: int) -> Array:
    """Random numbers in float32."""
    return RNG.standard_normal(shape).astype(np.float32)


def whole(minimum: int, limit: int, *shape: int) -> Array:
    """Random integers from `minimum` up to `limit`, int64."""
    return RNG.integers(minimum, limit, shape)


@dataclass(frozen=True)
class Case:
    """A call, and what it gives.

    Attributes:
        call: an expression of operands called a, b, ….
        operands: their values.
        expected: computes it of the operands; of reals in float64.
    """

    call: str
    operands: tuple[Array, ...]
    expected: Callable[..., Array]


def gelu_by_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def rms_norm(x: Array, epsilon: float) -> Array:
    found: Array = x / np.sqrt((x * x).mean(1, keepdims=True) + epsilon)
    return found


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def last_of(x: Array, min_or_max: Callable[..., Array]) -> Array:
    """The last index of the minimum or maximum along the second axis, which is kept."""
    return x.shape[1] - 1 - min_or_max(x[:, ::-1], 1)[:, None]


def scattered(x: Array, indices: Array, updates: Array) -> Array:
    found = x.copy()
    np.put_along_axis(found, indices, updates, 1)
    return found


def scattered_nd(x: Array, indices: Array, updates: Array) -> Array:
    found = x.copy()
    found[tuple(indices.T)] = updates
    return found


def gru(x: Array, product: Array, before: Array) -> Array:
    """Gates are update, reset, new."""
    update, reset = (1 / (1 + np.exp(-(x + product)[:, n : n + 3])) for n in (0, 3))
    found: Array = (1 - update) * np.tanh(x[:, 6:] + reset * product[:, 6:]) + update * before
    return found


def bilinear(x: Array, grid: Array) -> Array:
    """`[N, C, H, W]` at `[N, h, w, 2]`, corners not aligned, zeros outside."""
    n, c, height, width = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    across, down = ((grid[..., 0] + 1) * width - 1) / 2, ((grid[..., 1] + 1) * height - 1) / 2
    found = np.zeros((n, c, *grid.shape[1:3]))
    for dy in (0, 1):
        for dx in (0, 1):
            row, column = np.floor(down).astype(int) + dy, np.floor(across).astype(int) + dx
            share = (1 - np.abs(down - row)) * (1 - np.abs(across - column))
            rows, columns = (np.clip(v + 1, 0, s + 1) for v, s in ((row, height), (column, width)))
            for batch in range(n):
                found[batch] += share[batch] * padded[batch][:, rows[batch], columns[batch]]
    return found


def delta_rule(q: Array, k: Array, v: Array, decay: Array, beta: Array, state: Array) -> Array:
    """A gated delta rule (Yang et al., 2024): `[B, T, H, …]`, the state `[B, H, K, V]`."""
    q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
    state, rows = state.copy(), []
    for t in range(q.shape[1]):
        state = state * np.exp(decay[:, t])[..., None, None]
        error = (v[:, t] - np.einsum("bhkv,bhk->bhv", state, k[:, t])) * beta[:, t][..., None]
        state = state + np.einsum("bhk,bhv->bhkv", k[:, t], error)
        rows.append(np.einsum("bhkv,bhk->bhv", state, q[:, t] / math.sqrt(q.shape[-1])))
    return np.stack(rows, 1)


_X, _I, _J, _B = real(3, 5), whole(0, 50, 3, 5), whole(0, 50, 3, 5), whole(0, 2, 3, 5).astype(bool)
_TIES = np.array([[1, 3, 3, 0], [2, 0, 0, 2]], np.float32)
_SPECIAL = np.array([[1, np.nan, np.inf], [-np.inf, 0, -1]], np.float32)
_IMAGE, _GRID = real(2, 3, 5, 7), RNG.uniform(-1.1, 1.1, (2, 4, 3, 2)).astype(np.float32)
_RULE = (real(2, 3, 4, 8), real(2, 3, 4, 8) * 0.3, real(2, 3, 4, 8), -np.abs(real(2, 3, 4)), np.abs(real(2, 3, 4)))

CASES: Sequence[Case] = [
    Case("tract_core_argmax_reduce_last(a, axes = [1])", (_TIES,), lambda a: last_of(a, np.argmax)),
    Case("tract_core_argmin_reduce_last(a, axes = [1])", (_TIES,), lambda a: last_of(a, np.argmin)),
    Case("tract_core_bitand(a, b)", (_I, _J), lambda a, b: a & b),
    Case("tract_core_bitor(a, b)", (_I, _J), lambda a, b: a | b),
    Case("tract_core_bitxor(a, b)", (_I, _J), lambda a, b: a ^ b),
    Case("tract_core_bitnot(a)", (_I,), lambda a: ~a),
    Case("tract_core_xor(a, b)", (_B, _B[::-1].copy()), lambda a, b: a ^ b),
    Case("tract_shl(a, b)", (_I, whole(0, 4, 3, 5)), lambda a, b: a << b),
    Case("tract_shr(a, b)", (_I, whole(0, 4, 3, 5)), lambda a, b: a >> b),
    Case("tract_core_complex_to_inner_dim(a)", (real(3, 2),), lambda a: a),
    Case("tract_core_inner_dim_to_complex(a)", (real(3, 2),), lambda a: a),
    Case("tract_core_dyn_slice(a, 1, 4, len = 3, axis = 1)", (_X,), lambda a: a[:, 1:4]),
    Case("tract_core_gather_nd(a, b)", (_X, np.array([[0, 4], [2, 1]])), lambda a, b: a[b[:, 0], b[:, 1]]),
    Case("tract_core_gelu_approx(a)", (_X,), gelu_by_tanh),
    Case("tract_transformers_gelu_approx(a)", (_X,), gelu_by_tanh),
    Case("tract_core_hard_swish(a)", (4 * _X,), lambda a: a * np.clip(a / 6 + 0.5, 0, 1)),
    Case("tract_core_is_inf(a, detect_negative = false)", (_SPECIAL,), np.isposinf),
    Case("tract_core_is_nan(a)", (_SPECIAL,), np.isnan),
    Case("tract_core_one_hot(a, axis = 1, dim = 6)", (whole(0, 6, 4),), lambda a: np.eye(6)[a]),
    Case("tract_core_pow_const(a, exponent = 1.5)", (np.abs(_X),), lambda a: a**1.5),
    Case("tract_core_product_reduce(a, axes = [1])", (_X,), lambda a: a.prod(1, keepdims=True)),
    Case("tract_core_round_even(a)", (np.array([0.5, 1.5, -2.5, 2.4], np.float32),), np.rint),
    Case(
        "tract_core_scatter_elements(a, b, c, axis = 1)",
        (_X, np.array([[0, 4], [2, 1], [3, 0]]), real(3, 2)),
        scattered,
    ),
    Case("tract_core_silu(a)", (_X,), silu),
    Case("tract_transformers_silu(a)", (_X,), silu),
    Case("tract_core_softmax(a, axes = [1])", (_X,), lambda a: np.exp(a) / np.exp(a).sum(1, keepdims=True)),
    Case("tract_core_trilu(a, k = 1, upper = true)", (_X,), lambda a: np.triu(a, 1)),
    Case("tract_transformers_rms_norm(a, axis = 1, eps = 0.5)", (_X,), lambda a: rms_norm(a, 0.5)),
    Case("tract_onnx_grid_sample(a, b)", (_IMAGE, _GRID), bilinear),
    Case(
        "tract_onnx_resize(a, sizes = [2, 3, 10, 14], coord_transformer = 'asymmetric', interpolator = 'nearest')",
        (_IMAGE,),
        lambda a: a.repeat(2, 2).repeat(2, 3),
    ),
    Case("square(a)", (_X,), lambda a: a * a),
    Case("tract_core_erf(a)", (_X,), np.vectorize(math.erf)),
    Case("tract_core_scatter_nd(a, b, c)", (_X, np.array([[0, 4], [2, 1]]), real(2)), scattered_nd),
    Case("tract_core_gru_epilogue(a, b, c, hidden = 3)", (real(2, 9), real(2, 9), real(2, 3)), gru),
    Case("recip(a)", (np.abs(_X) + 0.5,), lambda a: 1 / a),
    Case("first(tract_qwen35_gdn_recurrent(a, b, c, d, e, f))", (*_RULE, real(2, 4, 8, 8)), delta_rule),
]


_LANGUAGE_MODELS = ("tests/examples/test_language_models.py", "write_model(")
_CACHES = ("tests/frontends/nnef/dynamic/test_nnef_streams.py", "dyn_kv_cache(")
_STATES = "tests/frontends/nnef/dynamic/test_nnef_recurrent_layers.py"
ELSEWHERE: Mapping[str, tuple[str, str]] = {
    "nnefc_attention": ("tests/frontends/gguf/test_gguf_encoders.py", "write_bert("),
    "nnefc_cached_attention": _LANGUAGE_MODELS,
    "nnefc_causal_convolution": (_STATES, "nnefc_causal_convolution("),
    "nnefc_experts": (_STATES, "nnefc_experts("),
    "nnefc_positions": _LANGUAGE_MODELS,
    "nnefc_state_space": (_STATES, "nnefc_state_space("),
    "tract_transformers_dyn_kv_cache": _CACHES,
    "tract_transformers_quantized_dyn_kv_cache": _CACHES,
}
"""Operators that whole networks have, or that keep states, compared with NumPy: the files, and the calls there."""


def names_called(text: str) -> set[str]:
    """What a text of the dialect calls."""
    return set(re.findall(r"\b([a-z_0-9]+)\(", text))


def _document(cases: Sequence[Case]) -> tuple[str, dict[str, Array]]:
    """A document that computes all, and its inputs; outputs are called y0, y1, …."""
    lines, inputs = [], {}
    for number, case in enumerate(cases):
        call = case.call
        for letter, value in zip("abcdef", case.operands, strict=False):
            name = f"{letter}{number}"
            inputs[name] = value
            shape, kind = list(value.shape), _TYPES[value.dtype.name]
            lines.append(f"{name} = tract_core_external(shape = {shape}, datum_type = '{kind}');")
            call = _renamed(call, letter, name)
        target = f"y{number}"
        if call.startswith("first("):
            call, target = call.removeprefix("first(")[:-1], f"(y{number}, tail{number})"
        lines.append(f"{target} = {call};")
    extensions = "".join(f"extension tract_registry {name};\n" for name in REGISTRIES)
    outputs = ", ".join(f"y{number}" for number in range(len(cases)))
    head = f"version 1.0;\n{extensions}graph cases({', '.join(inputs)}) -> ({outputs})"
    return f"{head}\n{{\n" + "\n".join(lines) + "\n}\n", inputs


def _renamed(call: str, letter: str, name: str) -> str:
    return re.sub(rf"\b{letter}\b", name, call)


def check(cases: Sequence[Case], folder: Path) -> None:
    """Compile all in one library, and compare."""
    text, inputs = _document(cases)
    (folder / "graph.nnef").write_text(text)
    with nnefc.compile(folder).load(threads=1) as library:
        found = library.run(inputs)
    for number, case in enumerate(cases):
        exact = [value.astype(np.float64) if value.dtype.kind == "f" else value for value in case.operands]
        wanted = np.asarray(case.expected(*exact))
        result = found[f"y{number}"]
        assert result.shape == wanted.shape, f"{case.call}: {result.shape}, not {wanted.shape}"
        np.testing.assert_allclose(result.astype(np.float64), wanted.astype(np.float64), 2e-5, 2e-5, err_msg=case.call)
