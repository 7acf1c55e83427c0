"""tract's products and convolutions of integers, compared with the sums of what these stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nnef_tract import model

import nnefc

RNG = np.random.default_rng(5)
SCALES = "a0 = 3, a_scale = 0.1, b0 = -2, b_scale = 0.02, c0 = -5, c_scale = 0.25"


def codes(*shape: int, dtype: str = "int8") -> np.ndarray:
    minimum = np.iinfo(dtype).min
    return RNG.integers(minimum, minimum + 256, shape).astype(dtype)


W, B = codes(4, 3), RNG.integers(-500, 500, (3,)).astype(np.int32)
FILTER, BIAS = codes(4, 2, 3), RNG.integers(-900, 900, (4,)).astype(np.int32)


def rounded(sums: np.ndarray, scale: float = 0.25, zero: int = -5) -> np.ndarray:
    return np.clip(np.rint(sums * 0.1 * 0.02 / scale) + zero, -128, 127)


def product(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.int64) - 3) @ (W.astype(np.int64) + 2)


def convolved(x: np.ndarray) -> np.ndarray:
    """Two groups, a stride of 2, a border of zeros."""
    elements = np.pad(x.astype(np.int64) - 3, ((0, 0), (0, 0), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(elements, 3, 2)[:, :, ::2].reshape(1, 2, 2, -1, 3)
    filters = (FILTER.astype(np.int64) + 2).reshape(2, 2, 2, 3)
    return np.einsum("ngctk,gock->ngot", windows, filters).reshape(1, 4, -1) + BIAS[:, None]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (f"tract_core_qmatmul(x, w, 0, axes = [0, 1, 0, 1, 0, 1], {SCALES}, output_type = 'i8')", product),
        (
            f"tract_core_qmatmul(x, w, unsqueeze(b, axes = [1]), axes = [0, 1, 0, 1, 1, 0], {SCALES}, "
            "output_type = 'i8')",
            lambda x: (product(x) + B).T,
        ),
        (f"tract_core_einsum_q([x, w], 'mk,kn->mn', 'i32', 'i8', b, {SCALES})", lambda x: product(x) + B),
        (f"tract_core_einsum_q([x, w], 'mk,kn,n,,,,,,->nm', 'i32', 'i8', b, {SCALES})", lambda x: (product(x) + B).T),
    ],
)
@pytest.mark.sample(2)
def test_products_of_integers(call: str, expected: object, tmp_path: Path) -> None:
    """A bias has the product of both scales; halves may be rounded to either side."""
    body = f"""x = tract_core_external(shape = [S, 4], datum_type = 'i8');
    w = variable<integer>(label = 'w', shape = [4, 3]); b = variable<integer>(label = 'b', shape = [3]); y = {call};"""
    folder = model(tmp_path, body, {"w": W, "b": B}, before="extension tract_symbol S;")
    with nnefc.compile(folder).load() as network:
        for size in (1, 6):
            x = codes(size, 4)
            made = network(x)
            assert made.dtype == np.int8
            np.testing.assert_allclose(made, rounded(expected(x)), atol=1)  # type: ignore[operator]
            assert (made == rounded(expected(x))).mean() > 0.9  # type: ignore[operator]


@pytest.mark.parametrize("kind", ["'i8'", "'QI8(Z:-5 S:0.25)'"])
def test_a_convolution_of_integers(kind: str, tmp_path: Path) -> None:
    """Its result is integers, or what they stand for, which the next operation takes as it is."""
    body = f"""x = tract_core_external(shape = [1, 4, 9], datum_type = 'i8');
    w = variable<integer>(label = 'w', shape = [4, 2, 3]); b = variable<integer>(label = 'b', shape = [4]);
    y = tract_core_qconv(x, w, b, group = 2, dilation = [1], stride = [2], padding = [(1, 1)], border = 'constant',
        {SCALES}, output_dt = {kind});"""
    x = codes(1, 4, 9)
    with nnefc.compile(model(tmp_path, body, {"w": FILTER, "b": BIAS})).load() as network:
        made = network(x)
    expected = rounded(convolved(x))
    apart = np.abs(made - expected) if "Q" not in kind else np.abs(made / 0.25 - 5 - expected)
    assert made.dtype == (np.float32 if "Q" in kind else np.int8)
    assert apart.max() < 1.01 and (apart < 0.01).mean() > 0.9


def test_inputs_and_outputs_with_an_entry_are_integers(tmp_path: Path) -> None:
    """As tract takes and gives them."""
    folder = model(tmp_path, "x = external(shape = [2, 3]); y = relu(x);")
    entry = "zero_point_linear_quantize(zero_point = 100, scale = 0.05, bits = 8, signed = false);"
    (folder / "graph.quant").write_text(f'"x": {entry}\n"y": {entry}')
    x = codes(2, 3, dtype="uint8")
    with nnefc.compile(folder).load() as network:
        np.testing.assert_array_equal(network(x), np.maximum(x, 100), strict=True)


def test_an_unknown_type_of_integers_is_refused(tmp_path: Path) -> None:
    body = f"""x = tract_core_external(shape = [2, 4], datum_type = 'i8');
    y = tract_core_einsum_q([x, x], 'mk,nk->mn', 'i32', 'i4', 0, {SCALES});"""
    with pytest.raises(nnefc.CompileError, match="'i4' of a product of integers is not supported"):
        nnefc.compile(model(tmp_path, body))
