"""What models with linear attention do step by step in tract's dialect, compared with NumPy in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nnef_tract import HEAD, real

import nnefc

STREAM = "extension tract_symbol S;\n"


def written(folder: Path, inputs: dict[str, str], call: str) -> Path:
    """A model with inputs of these declarations, and the two results of a call."""
    externals = "\n".join(f"{name} = tract_core_external({declared});" for name, declared in inputs.items())
    text = f"{HEAD}{STREAM}graph network({', '.join(inputs)}) -> (y, z)\n{{\n{externals}\n(y, z) = {call};\n}}\n"
    (folder / "graph.nnef").write_text(text)
    return folder


@pytest.mark.parametrize("name", ["tract_transformers_causal_conv1d_update", "tract_qwen35_causal_conv1d_update"])
@pytest.mark.sample(1)
def test_a_convolution_goes_on_where_its_state_ends(name: str, tmp_path: Path) -> None:
    half, float_ = "datum_type = 'f16'", "datum_type = 'f32'"
    inputs = {
        "x": f"shape = [2, 6, S], {half}",
        "w": f"shape = [6, 1, 4], {half}",
        "s": f"shape = [2, 6, 4], {float_}",
    }
    weight, state = real(6, 1, 4).astype(np.float16), real(2, 6, 4)
    with nnefc.compile(written(tmp_path, inputs, f"{name}(x, w, s)")).load() as network:
        for size in (1, 3, 9):
            x = real(2, 6, size).astype(np.float16)
            elements = np.concatenate([state, x], 2).astype(np.float64)
            windows = np.lib.stride_tricks.sliding_window_view(elements[..., 1:], 4, 2)
            sums = (windows * weight.astype(np.float64)[None]).sum(-1)
            made, after = network(x, weight, state)
            assert (made.dtype, after.dtype) == (np.float16, np.float32)
            np.testing.assert_allclose(made, sums / (1 + np.exp(-sums)), rtol=2e-3, atol=1e-3)
            np.testing.assert_array_equal(after, elements[..., size:].astype(np.float32))


def delta_rule(*given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The gated delta rule, head by head and step by step."""
    query, key, value, decay, beta, before = (x.astype(np.float64) for x in given)
    state, made = before.copy(), np.empty(value.shape)
    share = value.shape[2] // query.shape[2]
    for b, step, head in np.ndindex(*value.shape[:3]):
        q, k = (x[b, step, head // share] for x in (query, key))
        q, k = (x / np.sqrt((x**2).sum() + 1e-6) for x in (q, k))
        own = state[b, head] * np.exp(decay[b, step, head])
        own += np.outer(k, (value[b, step, head] - k @ own) * beta[b, step, head])
        state[b, head], made[b, step, head] = own, q / np.sqrt(len(q)) @ own
    return made, state


@pytest.mark.parametrize("steps", ["1", "S"])
@pytest.mark.sample(1)
def test_a_gated_delta_rule(steps: str, tmp_path: Path) -> None:
    """Two heads of values for each of queries; one step has no loop."""
    shapes = {"q": "2, 8", "k": "2, 8", "v": "4, 8", "g": "4", "b": "4"}
    inputs = {name: f"shape = [2, {steps}, {tail}], datum_type = 'f32'" for name, tail in shapes.items()}
    inputs["s"] = "shape = [2, 4, 8, 8], datum_type = 'f32'"
    state = real(2, 4, 8, 8)
    folder = written(tmp_path, inputs, "tract_transformers_gdn_recurrent(q, k, v, g, b, s)")
    with nnefc.compile(folder).load() as network:
        for size in (1,) if steps == "1" else (2, 5):
            q, k, v, g, b = (real(2, size, *map(int, tail.split(", "))) for tail in shapes.values())
            given = (q, k, v, -np.abs(g), np.abs(b), state)
            for made, expected in zip(network(*given), delta_rule(*given), strict=True):
                np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


def test_a_state_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    inputs = {"x": "shape = [2, 6, 5]", "w": "shape = [6, 4]", "s": "shape = [2, 6, 3]"}
    inputs = {name: f"{shape}, datum_type = 'f32'" for name, shape in inputs.items()}
    with pytest.raises(nnefc.CompileError, match=r"a state \[2, 6, 3\] does not fit"):
        nnefc.compile(written(tmp_path, inputs, "tract_transformers_causal_conv1d_update(x, w, s)"))


def test_a_step_of_a_gru_with_its_product(tmp_path: Path) -> None:
    """As older documents have it."""
    inputs = {"x": "shape = [2, 9]", "r": "shape = [9, 3]", "h": "shape = [2, 3]"}
    inputs = {name: f"{shape}, datum_type = 'f32'" for name, shape in inputs.items()}
    x, r, h = real(2, 9), real(9, 3), real(2, 3)
    folder = written(tmp_path, inputs, "[tract_core_gru_cell(x, r, [0.5], h, hidden = 3), h]")
    product = h @ r.T + 0.5
    update, reset = (1 / (1 + np.exp(-(x + product)[:, n : n + 3])) for n in (0, 3))
    new = np.tanh(x[:, 6:] + reset * product[:, 6:])
    with nnefc.compile(folder).load() as network:
        np.testing.assert_allclose(network(x, r, h)[0], new + update * (h - new), rtol=1e-5, atol=1e-6)
