"""What tract's dialect keeps between runs: pulses of streams, scans, running means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnef_tract import model, real

import nnefc
from nnefc.support.diagnostics import CompileError

PULSE = "extension tract_registry tract_pulse;\nextension tract_registry tract_extra;\nextension tract_symbol S;"
BEGIN = "x = tract_core_external(shape = [1, 2, 4], datum_type = 'f32');\n"
FILTER = real(3, 2, 3)


def runs(folder: Path, x: np.ndarray, **options: Any) -> np.ndarray:
    """The results of runs of four steps each, one after the other; and again after a reset."""
    pieces = [np.ascontiguousarray(piece) for piece in np.split(x, x.shape[-1] // 4, -1)]
    with nnefc.compile(folder, **options).load() as network:
        made = [np.asarray(network(piece)) for piece in pieces]
        network.reset()
        np.testing.assert_array_equal(network(pieces[0]), made[0])
    return np.concatenate(made, -1)


def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[-1], -1)
    return np.einsum("nctk,ock->not", windows.astype(np.float64), w)


@pytest.mark.parametrize(
    ("border", "mode"), [pytest.param("constant", "constant", marks=pytest.mark.slow), ("replicated", "edge")]
)
def test_a_convolution_of_pulses_is_that_of_the_stream(border: str, mode: str, tmp_path: Path) -> None:
    """The stream ends after 18 elements; the network's delay is 3."""
    body = f"""{BEGIN}
    d = tract_pulse_delay(x, axis = 2, delay = 2, overlap = 0);
    p = tract_pulse_pulse_pad(d, axis = 2, before = 2, begin_input = 2, overlap = 0, after = 1, end_input = S + 2,
                              border = '{border}');
    o = tract_pulse_delay(p, axis = 2, delay = 0, overlap = 2);
    w = variable<scalar>(label = 'w', shape = [3, 2, 3]);
    y = conv(o, w, 0.0, padding = [(0, 0)], stride = [1], dilation = [1]);"""
    folder, x = model(tmp_path, body, {"w": FILTER}, before=PULSE), real(1, 2, 24)
    expected = convolved(np.pad(x[..., :18], ((0, 0), (0, 0), (2, 1)), mode), FILTER)
    made = runs(folder, x, shape={"S": 18})
    np.testing.assert_allclose(made[..., 2 : 2 + expected.shape[-1]], expected, rtol=1e-4, atol=1e-5)


def test_a_stream_whose_length_no_input_tells_has_no_end(tmp_path: Path) -> None:
    body = f"""{BEGIN} m = tract_pulse_mask(x, axis = 2, begin = 3, end = S + 3, value = 7.0);
    y = tract_pulse_cumsum(m, axis = 2, exclusive = true, skip = 2);"""
    x = real(1, 2, 12)
    seen = np.where(np.arange(12) < 3, 7, x)
    sums = np.cumsum(np.where(np.arange(12) < 2, 0, seen), -1)
    expected = np.concatenate([np.zeros((1, 2, 1)), sums[..., :-1]], -1)
    np.testing.assert_allclose(runs(model(tmp_path, body, before=PULSE), x), expected, rtol=1e-5, atol=1e-5)


def test_a_symbol_that_no_input_tells_must_be_given_where_it_is_needed(tmp_path: Path) -> None:
    folder = model(tmp_path, f"{BEGIN} y = tract_core_broadcast(x, shape = [S, 2, 4]);", before=PULSE)
    with pytest.raises(CompileError, match="no input tells the size of the symbol 'S'"):
        nnefc.compile(folder)


def test_running_means_skip_the_elements_before_the_stream_begins(tmp_path: Path) -> None:
    body = f"{BEGIN} y = tract_extra_exp_mean_norm(x, [[1.0, 2.0]], axis = 2, alpha = 0.75, skip = 5);"
    x = real(1, 2, 12)
    mean, expected = np.array([[1.0, 2.0]]), x.astype(np.float64)
    for step in range(5, 12):
        mean = 0.75 * mean + 0.25 * x[..., step]
        expected[..., step] = x[..., step] - mean
    np.testing.assert_allclose(runs(model(tmp_path, body, before=PULSE), x), expected, rtol=1e-5, atol=1e-5)


LOOP = """fragment step( a: tensor<scalar>, h: tensor<scalar> ) -> ( h2: tensor<scalar>, n: tensor<scalar> )
{ h2 = a + h * 0.5; n = h2 * 2.0; }"""


def scan(first: str = "[[[1.0], [2.0]]]", more: str = "") -> str:
    return f"""{BEGIN} h = {first};
    y, last, after = tract_core_scan(body = 'step', scan = [('a', x, 2, 1)], state = [('h', h, 'h2')],
        output = [('n', 'full', 2, 1), ('n', 'last', 2, 1), ('h2', 'last', 2, 1)] {more});"""


def stepped(x: np.ndarray, first: np.ndarray, skip: int = 0) -> np.ndarray:
    state, made = first.astype(np.float64), []
    for step in range(x.shape[-1]):
        new = x[..., step : step + 1] + state * 0.5
        state = new if step >= skip else state
        made.append(new * 2)
    return np.concatenate(made, -1)


START = np.array([[[1.0], [2.0]]])


def test_scans_go_on_where_the_last_run_ended_if_asked_to(tmp_path: Path) -> None:
    folder, x = model(tmp_path, scan(), before=LOOP), real(1, 2, 12)
    np.testing.assert_allclose(runs(folder, x, scan_states="keep"), stepped(x, START), rtol=1e-5, atol=1e-6)
    again = np.concatenate([stepped(piece, START) for piece in np.split(x, 3, -1)], -1)
    np.testing.assert_allclose(runs(folder, x), again, rtol=1e-5, atol=1e-6)


def test_scans_of_pulses_go_on_unless_they_are_reset_every_turn(tmp_path: Path) -> None:
    before, x = f"{PULSE}\n{LOOP}", real(1, 2, 12)
    delayed = "x = tract_pulse_delay(x, axis = 2, delay = 0, overlap = 0); h ="
    kept = scan(more=", skip = 6").replace("h =", delayed, 1)
    made = runs(model(tmp_path, kept, before=before), x)
    np.testing.assert_allclose(made, stepped(x, START, skip=6), rtol=1e-5, atol=1e-6)
    reset = scan(more=", reset_every_turn = true").replace("h =", delayed, 1)
    again = np.concatenate([stepped(piece, START) for piece in np.split(x, 3, -1)], -1)
    np.testing.assert_allclose(runs(model(tmp_path, reset, before=before), x), again, rtol=1e-5, atol=1e-6)


def test_the_first_run_takes_the_first_state_from_its_inputs(tmp_path: Path) -> None:
    """And the last element that no state has is the one of the last iteration."""
    body = scan("slice(x, axes = [2], begin = [0], end = [1])").replace("y, last", "all, y")
    folder, x = model(tmp_path, body, before=LOOP), real(1, 2, 12)
    expected = stepped(x, x[..., :1])[..., 3::4]
    np.testing.assert_allclose(runs(folder, x, scan_states="keep"), expected, rtol=1e-5, atol=1e-6)


def test_states_whose_shape_only_a_run_knows_are_refused(tmp_path: Path) -> None:
    body = (
        scan("x[0]").replace("[1, 2, 4]", "[S, 2, 4]").replace("x[0]", "slice(x, axes = [2], begin = [0], end = [1])")
    )
    folder = model(tmp_path, body, before=f"{PULSE}\n{LOOP}")
    with pytest.raises(CompileError, match="which only a run knows") as caught:
        nnefc.compile(folder, scan_states="keep")
    assert "--scan-states reset" in str(caught.value.hint)


CACHE = "extension tract_symbol S;\nextension tract_symbol P;\nextension tract_assert S + P < 9;"
CACHED = """x = tract_core_external(shape = [1, 2, S, 3], datum_type = 'f32');
k = tract_transformers_{}dyn_kv_cache(x, name = 'k', axis = 2, datum_type = 'f32', {}
                                    past_sequence_shape = [1, 2, P, 3], input_sequence_shape = [1, 2, S, 3]);
p = tract_core_cast(tract_core_range(P, P + S, 1), to = 'f32');
y = concat([k, x + unsqueeze(p, axes = [0, 1, 3])], axis = 2);"""


@pytest.mark.parametrize(("kind", "more"), [("", ""), ("quantized_", "bits = 8,")])
@pytest.mark.sample(1)
def test_caches_hold_what_all_runs_brought(kind: str, more: str, tmp_path: Path) -> None:
    """At most 7 positions before a run: fewer than 9 in all, and a run brings at least one."""
    folder = model(tmp_path, CACHED.format(kind, more), before=f"{CACHE}\nextension tract_assert S >= 1;")
    with nnefc.compile(folder).load() as network:
        for _ in range(2):
            pieces: list[np.ndarray] = []
            for size in (3, 1, 2, 1):
                past = sum(piece.shape[2] for piece in pieces)
                pieces.append(real(1, 2, size, 3))
                positions = np.arange(past, past + size, dtype=np.float32)[None, None, :, None]
                expected = np.concatenate([*pieces, pieces[-1] + positions], 2)
                np.testing.assert_allclose(network(pieces[-1]), expected, rtol=1e-6)
            pieces.append(pieces[1])
            made = network(pieces[1])  # one more than there is room for
            np.testing.assert_allclose(made[:, :, :8], np.concatenate(pieces, 2), rtol=1e-6)
            with pytest.raises(nnefc.RunError, match="a size 'P' that the network does not take: it takes 0 to 7"):
                network(pieces[1])
            network.reset()


def test_caches_without_a_limit_need_one(tmp_path: Path) -> None:
    folder = model(tmp_path, CACHED.format("", ""), before=CACHE.replace("S + P < 9", "P >= 0"))
    with pytest.raises(CompileError, match="how much the caches may hold") as caught:
        nnefc.compile(folder)
    assert "--shape P=0..2048" in str(caught.value.hint)
    artifact = nnefc.compile(folder, shape={"P": "0..4"})
    assert [state.shape for state in artifact.description.states] == [(), (2, 1, 4, 3)]
    assert not nnefc.compile(folder, shape={"P": 0}).description.states


def test_limits_of_caches_hold_in_code_for_some_sizes(tmp_path: Path) -> None:
    folder = model(tmp_path, CACHED.format("", ""), before=CACHE.replace("S + P < 9", "P >= 0"))
    with nnefc.compile(folder, shape={"P": "0..6"}, specialize=[{"S": 1}]).load(threads=1) as network:
        pieces: list[np.ndarray] = []
        for size in (2, 1, 1, 3):
            past = sum(piece.shape[2] for piece in pieces)
            pieces.append(real(1, 2, size, 3))
            positions = np.arange(past, past + size, dtype=np.float32)[None, None, :, None]
            expected = np.concatenate([*pieces, pieces[-1] + positions], 2)
            np.testing.assert_allclose(network(pieces[-1]), expected, rtol=1e-6)


def test_a_window_of_keys_is_what_attention_sees(tmp_path: Path) -> None:
    """More queries than keys have heads: two of a group."""
    body = """x = tract_core_external(shape = [1, 4, S, 8], datum_type = 'f32');
    k = slice(x, axes = [1], begin = [1], end = [3]);
    y = tract_transformers_window_kv_sdpa(x, k, k * 2.0, axis = 2, window = 4);"""
    keys = np.zeros((1, 2, 0, 8))
    with nnefc.compile(model(tmp_path, body, before=CACHE)).load() as network:
        for size in (1, 2, 3, 6):
            x = real(1, 4, size, 8)
            keys = np.concatenate([keys, x[:, 1:3]], 2)[:, :, -4:]
            seen = np.repeat(keys, 2, 1)
            powers = np.exp(x @ seen.swapaxes(2, 3) / np.sqrt(8))
            expected = powers / powers.sum(-1, keepdims=True) @ (2 * seen)
            np.testing.assert_allclose(network(x), expected, rtol=1e-4, atol=1e-5)
