"""Layers that keep a summary of each sequence, and experts that a document chooses, compared with NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nnefc

TAPS, CHANNELS, HEADS, WIDTH, GROUPS, SIZE, CONTEXT, COUNT = 4, 6, 4, 5, 2, 3, 40, 3
RNG = np.random.default_rng(8)
DOCUMENT = f"""version 1.0;
extension tract_registry tract_core;
extension tract_registry nnefc;
extension tract_symbol B;
extension tract_assert B >= 1;
extension tract_assert B <= {COUNT};
extension tract_symbol S;
extension tract_assert S >= 1;
extension tract_assert S <= {CONTEXT};

graph g(tokens, sequences, x, rows, time, enter, leave, taps, bias, decay) -> (y, z) {{
    tokens = tract_core_external(shape = [B, S], datum_type = 'i64');
    sequences = tract_core_external(shape = [B], datum_type = 'i64');
    x = tract_core_external(shape = [B, S, {CHANNELS}], datum_type = 'f32');
    rows = tract_core_external(shape = [B, S, {HEADS}, {WIDTH}], datum_type = 'f32');
    time = tract_core_external(shape = [B, S, {HEADS}], datum_type = 'f32');
    enter = tract_core_external(shape = [B, S, {GROUPS}, {SIZE}], datum_type = 'f32');
    leave = tract_core_external(shape = [B, S, {GROUPS}, {SIZE}], datum_type = 'f32');
    taps = tract_core_external(shape = [{CHANNELS}, {TAPS}], datum_type = 'f32');
    bias = tract_core_external(shape = [1, {CHANNELS}], datum_type = 'f32');
    decay = tract_core_external(shape = [1, {HEADS}], datum_type = 'f32');
    (before, lengths) = nnefc_positions(tokens, sequences, count = {COUNT}, context = {CONTEXT});
    y = nnefc_causal_convolution(x, taps, before, lengths, bias = bias);
    z = nnefc_state_space(rows, time, decay, enter, leave, before, lengths);
}}
"""


def convolved(x: np.ndarray, taps: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Of all rows of a sequence, `[S, C]`, after zeros."""
    padded = np.concatenate([np.zeros((TAPS - 1, CHANNELS)), x])
    return np.stack([(padded[n : n + TAPS] * taps.T).sum(0) for n in range(len(x))]) + bias


def scanned(rows: np.ndarray, time: np.ndarray, decay: np.ndarray, enter: np.ndarray, leave: np.ndarray) -> np.ndarray:
    """Of all rows of a sequence, `[S, H, E]`, step by step."""
    state, made = np.zeros((HEADS, WIDTH, SIZE)), []
    enter, leave = (np.repeat(each, HEADS // GROUPS, 1) for each in (enter, leave))
    for n in range(len(rows)):
        entered = time[n][:, None, None] * rows[n][:, :, None] * enter[n][:, None]
        state = state * np.exp(time[n] * decay)[:, None, None] + entered
        made.append((state * leave[n][:, None]).sum(-1))
    return np.stack(made)


def test_states_are_those_of_each_sequence_step_by_step(tmp_path: Path) -> None:
    """Sequences of several lengths in one run, runs shorter than a convolution, one that begins again."""
    (tmp_path / "graph.nnef").write_text(DOCUMENT)
    taps, bias, decay = (
        RNG.standard_normal(shape).astype(np.float32) for shape in ((CHANNELS, TAPS), (1, CHANNELS), (1, HEADS))
    )
    decay = -np.abs(decay)
    shapes = ((CHANNELS,), (HEADS, WIDTH), (HEADS,), (GROUPS, SIZE), (GROUPS, SIZE))
    held: dict[int, list[np.ndarray]] = {}
    with nnefc.compile(tmp_path).load(threads=1) as model:
        for lengths in ({0: 7, 2: 3}, {2: 1, 0: 1}, {1: 2}, {0: 1, 1: 1, 2: 5}, {2: 2, 1: 9}):
            steps = max(lengths.values())
            given = [RNG.standard_normal((len(lengths), steps, *shape)).astype(np.float32) for shape in shapes]
            given[2] = np.abs(given[2])
            tokens = np.full((len(lengths), steps), -1)
            for row, length in enumerate(lengths.values()):
                tokens[row, :length] = 1
            if lengths == {2: 2, 1: 9}:
                counts = model.read_state("P")
                counts[2] = 0
                model.write_state("P", counts)
                held.pop(2)
            found = model(tokens, np.array(list(lengths)), *given, taps, bias, decay)
            for row, (number, length) in enumerate(lengths.items()):
                own = [each[row, :length].astype(np.float64) for each in given]
                known = held.get(number, [each[:0] for each in own])
                held[number] = [np.concatenate(pair) for pair in zip(known, own, strict=True)]
                x, rows, time, enter, leave = held[number]
                wanted = convolved(x, taps, bias), scanned(rows, time, decay[0], enter, leave)
                for result, expected in zip(found, wanted, strict=True):
                    np.testing.assert_allclose(
                        np.asarray(result)[row, :length], expected[-length:], rtol=1e-4, atol=1e-4, err_msg=str(lengths)
                    )


EXPERTS, INNER, ROWS = 3, 16, 5
FED = """version 1.0;
extension tract_registry tract_core;
extension tract_registry nnefc;
graph g(x, chosen, shares, w1, w2, w3, b1, b2, b3) -> (simple, clamped) {{
    x = tract_core_external(shape = [{ROWS}, {SIZE}], datum_type = 'f32');
    chosen = tract_core_external(shape = [{ROWS}, 2], datum_type = 'i64');
    shares = tract_core_external(shape = [{ROWS}, 2], datum_type = 'f32');
    w1 = tract_core_external(shape = [{LINES}, {SIZE}], datum_type = 'f32');
    w2 = tract_core_external(shape = [{OUT}, {INNER}], datum_type = 'f32');
    w3 = tract_core_external(shape = [{LINES}, {SIZE}], datum_type = 'f32');
    b1 = tract_core_external(shape = [{EXPERTS}, {INNER}], datum_type = 'f32');
    b2 = tract_core_external(shape = [{EXPERTS}, {SIZE}], datum_type = 'f32');
    b3 = tract_core_external(shape = [{EXPERTS}, {INNER}], datum_type = 'f32');
    simple = nnefc_experts(x, chosen, shares, w1, w2, count = {EXPERTS}, activation = 'relu');
    clamped = nnefc_experts(x, chosen, shares, w1, w2, w3, b1, b2, b3, count = {EXPERTS}, alpha = 1.5, limit = 0.7);
}}
"""


def test_rows_have_the_sum_of_their_experts(tmp_path: Path) -> None:
    sizes = {"LINES": EXPERTS * INNER, "OUT": EXPERTS * SIZE, "EXPERTS": EXPERTS, "INNER": INNER, "SIZE": SIZE}
    (tmp_path / "graph.nnef").write_text(FED.format(ROWS=ROWS, **sizes))
    shapes = [(EXPERTS * INNER, SIZE), (EXPERTS * SIZE, INNER), (EXPERTS * INNER, SIZE)]
    shapes += [(EXPERTS, INNER), (EXPERTS, SIZE), (EXPERTS, INNER)]
    x, shares, *layers = (RNG.standard_normal(s).astype(np.float32) for s in ((ROWS, SIZE), (ROWS, 2), *shapes))
    chosen = np.array([[0, 2], [1, 0], [2, 1], [0, 1], [2, 0]])
    w1, w2, w3 = (each.reshape(EXPERTS, -1, each.shape[1]).astype(np.float64) for each in layers[:3])
    b1, b2, b3 = layers[3:]
    simple, clamped = np.zeros((2, ROWS, SIZE))
    for row in range(ROWS):
        for expert, share in zip(chosen[row], shares[row], strict=True):
            simple[row] += share * (w2[expert] @ np.maximum(w1[expert] @ x[row], 0))
            gate = np.minimum(w1[expert] @ x[row] + b1[expert], 0.7)
            linear = np.clip(w3[expert] @ x[row] + b3[expert], -0.7, 0.7)
            inner = gate / (1 + np.exp(-1.5 * gate)) * (linear + 1)
            clamped[row] += share * (w2[expert] @ inner + b2[expert])
    with nnefc.compile(tmp_path).load(threads=1) as model:
        found = model(x, chosen, shares, *layers)
    for result, wanted in zip(found, (simple, clamped), strict=True):
        np.testing.assert_allclose(np.asarray(result), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("taps, before, lengths", "taps, sequences, lengths", "'before' is not a result of 'nnefc_positions'"),
        (f"shape = [{CHANNELS}, {TAPS}]", f"shape = [{CHANNELS + 1}, {TAPS}]", "do not fit rows"),
        (f"[B, S, {GROUPS}, {SIZE}]", f"[B, S, 3, {SIZE}]", "4 heads of 5 elements cannot share 3 groups"),
    ],
)
def test_what_does_not_fit_is_refused(old: str, new: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(DOCUMENT.replace(old, new))
    with pytest.raises(nnefc.CompileError, match=reason):
        nnefc.compile(tmp_path)
