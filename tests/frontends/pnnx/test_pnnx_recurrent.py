"""Recurrent layers of every shape compared with NumPy in float64, and sequences of any length."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pnnx_files import annotation, operator_network, write_network

import nnefc
from nnefc.frontends.pnnx import load
from nnefc.ir.network import Body, Loop, Network

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def step(kind: str, x: np.ndarray, h: np.ndarray, c: np.ndarray, w: dict[str, np.ndarray], end: str) -> Any:
    """PyTorch's formulas: the new hidden state and the new cell."""
    zero = np.zeros(())
    given = x @ w[f"weight_ih_{end}"].T + w.get(f"bias_ih_{end}", zero)
    again = h @ w[f"weight_hh_{end}"].T + w.get(f"bias_hh_{end}", zero)
    if kind == "RNN":
        return np.tanh(given + again), c
    if kind == "GRU":
        (r, z, n), (rh, zh, nh) = np.split(given, 3, -1), np.split(again, 3, -1)
        z = sigmoid(z + zh)
        return (1 - z) * np.tanh(n + sigmoid(r + rh) * nh) + z * h, c
    i, f, g, o = np.split(given + again, 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    return (h @ w[f"weight_hr_{end}"].T if f"weight_hr_{end}" in w else h), c


def reference(kind: str, x: np.ndarray, first: list[np.ndarray], w: dict[str, np.ndarray], layers: int) -> Any:
    """`x [T, B, I]` through the layers; the results, and the last hidden states and cells."""
    directions = 2 if "weight_ih_l0_reverse" in w else 1
    last: list[tuple[np.ndarray, np.ndarray]] = []
    for layer in range(layers):
        results = []
        for end in (f"l{layer}", f"l{layer}_reverse")[:directions]:
            (h, c), rows = (state[len(last)] for state in first), []
            for row in x[::-1] if "reverse" in end else x:
                h, c = step(kind, row, h, c, w, end)
                rows.append(h)
            results.append(np.stack(rows[::-1] if "reverse" in end else rows))
            last.append((h, c))
        x = np.concatenate(results, -1)
    return x, np.stack([h for h, _ in last]), np.stack([c for _, c in last])


def weights(
    rng: np.random.Generator, kind: str, sizes: tuple[int, int, int], layers: int, directions: int, bias: bool
) -> dict[str, np.ndarray]:
    """Of I inputs, H hidden values and a projection to P of them, or 0."""
    inputs, hidden, projected = sizes
    rows, out, shapes = GATES[kind] * hidden, projected or hidden, {}
    for layer, end in product(range(layers), ("", "_reverse")[:directions]):
        name = f"l{layer}{end}"
        shapes |= {f"weight_ih_{name}": (rows, inputs if layer == 0 else out * directions)}
        shapes |= {f"weight_hh_{name}": (rows, out)}
        shapes |= {f"bias_{part}_{name}": (rows,) for part in ("ih", "hh") if bias}
        shapes |= {f"weight_hr_{name}": (projected, hidden)} if projected else {}
    return {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_layers_agree_with_pytorchs_formulas(whole: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    lines: list[str] = []
    tensors: dict[str, np.ndarray] = {}
    inputs: list[np.ndarray] = []
    expected: list[np.ndarray] = []

    def layer(kind: str, steps: int, layers: int, directions: int, flags: str = "", projected: int = 0) -> None:
        """Flags: of a single sequence (s), the batch first (f), without biases (u), from given states (g)."""
        batch, width, hidden = (1 if "s" in flags else 3), 5, 7
        own = weights(rng, kind, (width, hidden, projected), layers, directions, "u" not in flags)
        shapes = [(layers * directions, batch, size) for size in (projected or hidden, hidden)]
        states = [rng.standard_normal(s).astype(np.float32) * ("g" in flags) for s in shapes]
        x = rng.standard_normal((steps, batch, width)).astype(np.float32)
        y, *last = reference(kind, x.astype(np.float64), [s.astype(np.float64) for s in states], own, layers)
        last = last[: 2 if kind == "LSTM" else 1]
        given = [x, *(states[: len(last)] if "g" in flags else [])]
        if "s" in flags:
            given, y, last = [v[:, 0] for v in given], y[:, 0], [v[:, 0] for v in last]
        elif "f" in flags:
            given[0], y = given[0].swapaxes(0, 1), y.swapaxes(0, 1)
        name, first = f"r{len(tensors)}", len(inputs)
        inputs.extend(given)
        expected.extend([y, *last])
        tensors.update({f"{name}.{key}": value for key, value in own.items()})
        made = len(expected) - 1 - len(last)
        operands = [*(f"x{i}" for i in range(first, len(inputs))), *(f"y{i}" for i in range(made, len(expected)))]
        attributes = {
            "input_size": width, "hidden_size": hidden, "num_layers": layers, "bias": "u" not in flags,
            "batch_first": "f" in flags, "bidirectional": directions == 2,
        }  # fmt: skip
        attributes |= {"proj_size": projected} if kind == "LSTM" else {}
        words = [f"{key}={value}" for key, value in attributes.items()]
        words += [f"@{key}={annotation(value)}" for key, value in own.items()]
        lines.append(f"nn.{kind} {name} {len(given)} {len(last) + 1} {' '.join([*operands, *words])}")

    layer("LSTM", 6, 2, 2, "fg", projected=4)
    layer("GRU", 3, 1, 2, "uf")
    layer("RNN", 7, 2, 1, "sgu")
    if whole:
        layer("LSTM", 5, 1, 1, "s", projected=2)
        layer("LSTM", 1, 2, 1, "ug")
        layer("GRU", 4, 2, 2, "sg")
        layer("RNN", 2, 1, 2, "g")
    sources = [f"pnnx.Input in{i} 0 1 x{i} #x{i}={annotation(value)}" for i, value in enumerate(inputs)]
    sinks = [f"pnnx.Output out{i} 1 0 y{i}" for i in range(len(expected))]
    path = write_network(tmp_path, [*sources, *lines, *sinks], tensors)
    made = nnefc.compile(path).load(threads=1)(*(np.ascontiguousarray(value) for value in inputs))
    for number, (result, wanted) in enumerate(zip(made, expected, strict=True)):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5, err_msg=str(number))


def statements(part: Network | Body) -> int:
    """How many bindings and functions a network has, with those of its bodies."""
    blocks = part.module["main"].body.blocks
    own = sum(len(block.bindings) for block in blocks) + len(part.module.get_global_vars())
    return own + sum(statements(body) for control in part.controls for body in control.bodies)


def test_a_long_sequence_is_as_much_code_as_a_short_one(tmp_path: Path) -> None:
    own = weights(np.random.default_rng(0), "LSTM", (4, 3, 0), 2, 2, bias=True)
    parameters = "input_size=4 hidden_size=3 num_layers=2 bidirectional=True"

    def network(steps: int) -> Network:
        x = np.zeros((steps, 1, 4), np.float32)
        return load(operator_network(tmp_path, "nn.LSTM", [x], parameters, outputs=3, **own))

    long = network(10_000)
    assert statements(long) == statements(network(10))
    assert [control.trip_count for control in long.controls if isinstance(control, Loop)] == [10_000] * 4


@pytest.mark.slow
def test_ten_thousand_steps_are_computed(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    own = weights(rng, "GRU", (3, 4, 0), 1, 1, bias=True)
    x = rng.standard_normal((10_000, 1, 3)).astype(np.float32)
    path = operator_network(tmp_path, "nn.GRU", [x], "input_size=3 hidden_size=4", outputs=2, **own)
    made = nnefc.compile(path).load(threads=1)(x)
    wide = {name: value.astype(np.float64) for name, value in own.items()}
    expected = reference("GRU", x.astype(np.float64), [np.zeros((1, 1, 4))] * 2, wide, 1)
    for result, wanted in zip(made, expected, strict=False):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
