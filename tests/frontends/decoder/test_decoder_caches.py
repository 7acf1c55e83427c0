"""Caches of keys and values: rounded numbers, rings of windows, and the memory that a session takes for them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnefc
from nnefc.driver.artifact import Artifact

HEADS, KEY_HEADS, SEQUENCES, CONTEXT, ROWS, WINDOW, KEPT = 4, 2, 3, 200_704, 165, 9, 12
DOCUMENT = """version 1.0;
extension tract_registry tract_core;
extension tract_registry nnefc;
extension tract_symbol S;
extension tract_assert S >= 1;
extension tract_assert S <= {context};
extension tract_symbol B;
extension tract_assert B >= 1;
extension tract_assert B <= {sequences};

graph g(tokens, sequences, q, k, v) -> (y, z) {{
    tokens = tract_core_external(shape = [B, S], datum_type = 'i64');
    sequences = tract_core_external(shape = [B], datum_type = 'i64');
    q = tract_core_external(shape = [B, {heads}, S, {width}], datum_type = 'f32');
    k = tract_core_external(shape = [B, {keys}, S, {width}], datum_type = 'f32');
    v = tract_core_external(shape = [B, {keys}, S, {width}], datum_type = 'f32');
    (before, lengths) = nnefc_positions(tokens, sequences, count = {sequences}, context = {context});
    y = nnefc_cached_attention(q, k, v, before, storage = 'f16');
    z = nnefc_cached_attention(q, k, v, before, storage = 'q8', window = {window}, kept = {kept});
}}
"""


def document(folder: Path, width: int) -> Path:
    sizes = {"heads": HEADS, "keys": KEY_HEADS, "window": WINDOW, "kept": KEPT, "sequences": SEQUENCES}
    (folder / "graph.nnef").write_text(DOCUMENT.format(context=CONTEXT, width=width, **sizes))
    return folder


def rounded(x: np.ndarray, storage: str) -> np.ndarray:
    """The numbers that a cache holds."""
    if storage == "f16":
        return x.astype(np.float16).astype(np.float64)
    scales = np.maximum(np.abs(x).max(-1, keepdims=True), np.float32(1e-30)) / np.float32(127)
    return np.rint(x / scales) * scales.astype(np.float64)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, window: int) -> np.ndarray:
    """Of the last queries, `[H, L, E]`, to all keys, `[G, S, E]`."""
    k, v = (np.repeat(x, HEADS // KEY_HEADS, 0) for x in (k, v))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
    query, key = np.arange(k.shape[1] - q.shape[1], k.shape[1])[:, None], np.arange(k.shape[1])
    scores = np.where((key <= query) & (key > query - window), scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v


def numbers(seed: int, rows: int, width: int) -> list[np.ndarray]:
    """Queries, keys and values."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((count, rows, width)).astype(np.float32) for count in (HEADS, KEY_HEADS, KEY_HEADS)]


def resident() -> int:
    """Bytes of the process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.fixture(scope="module", params=[pytest.param(16, marks=pytest.mark.slow), 6])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path, Artifact]:
    """The width of heads, what the compiler wrote of its passes, and the library."""
    folder = tmp_path_factory.mktemp("caches")
    options: Any = {"dump": folder / "dump", "dump_after": ["join attention"]}
    return request.param, folder / "dump", nnefc.compile(document(folder, request.param), **options)


class Session:
    """Runs sequences, and compares what each finds with attention to what its caches hold."""

    def __init__(self, model: nnefc.Model, width: int) -> None:
        self.model = model
        self.numbers = [numbers(sequence, ROWS, width) for sequence in range(SEQUENCES)]
        for _, _, v in self.numbers:
            v[:, 3], v[:, 5] = 0, 1000 * v[:, 5]

    def run(self, **lengths: int) -> None:
        """As many more positions of each sequence, by its number behind a letter."""
        counts, steps = self.model.read_state("P"), max(lengths.values())
        own = {int(name[1:]): length for name, length in lengths.items()}
        tokens = np.full((len(own), steps), -1)
        given = [np.full((len(own), x.shape[0], steps, x.shape[2]), 1e4, np.float32) for x in self.numbers[0]]
        for row, (sequence, length) in enumerate(own.items()):
            tokens[row, :length] = 1
            for x, whole in zip(given, self.numbers[sequence], strict=True):
                x[row, :, :length] = whole[:, counts[sequence] : counts[sequence] + length]
        results = self.model(tokens, np.array(list(own)), *given)
        for row, (sequence, length) in enumerate(own.items()):
            start, end = counts[sequence], counts[sequence] + length
            q, *caches = self.numbers[sequence]
            for found, storage, window in zip(results, ("f16", "q8"), (CONTEXT, WINDOW), strict=True):
                k, v = (rounded(x[:, :end], storage) for x in caches)
                wanted = attention(q[:, start:end].astype(np.float64), k, v, window)
                bound = 1e-5 * np.abs(v).max()
                made = np.asarray(found)[row, :, :length]
                np.testing.assert_allclose(made, wanted, rtol=0, atol=bound, err_msg=f"{storage} {lengths}")

    def set_back(self, sequence: int, count: int) -> None:
        counts = self.model.read_state("P")
        counts[sequence] = count
        self.model.write_state("P", counts)


def test_attention_reads_what_a_cache_holds(compiled: tuple[int, Path, Artifact]) -> None:
    """A prompt of more than a block of keys, some tokens, and single ones, of sequences of different lengths."""
    width, dump, artifact = compiled
    (joined,) = dump.glob("*join_attention.py")
    kernels = [line for line in joined.read_text().splitlines() if "def attention" in line]
    assert ["float16" in line or "int8" in line for line in kernels] == [True, True]  # caches are read as they are
    with artifact.load(threads=1) as model:
        held = sorted((state.dtype, state.shape[2]) for state in model.states if len(state.shape) == 4)
        assert held == sorted([("float16", CONTEXT), ("int8", KEPT), ("float32", KEPT)] * 2)
        session = Session(model, width)
        for lengths in (
            {"s0": 150},
            {"s0": 13},
            {"s2": 20, "s1": 3},
            {"s1": 1, "s2": 1},
            {"s0": 1},
            {"s1": 13, "s0": 1},
        ):
            session.run(**lengths)
        assert model.read_state("P").tolist() == [165, 17, 21] and not model.can_rewind
        for sequence, count in enumerate((165, 17, 21)):
            first = count - (KEPT - (WINDOW - 1))
            assert model.can_rewind_to(first, sequence) and not model.can_rewind_to(first - 1, sequence)
        session.set_back(0, 161)
        session.run(s2=4, s0=2)
        session.set_back(1, 12)
        with pytest.raises(nnefc.RunError, match="set back by more tokens than the caches of its windows hold"):
            session.run(s1=1)
        session.set_back(1, 0)
        session.run(s1=11)
        session.run(s1=1)
        assert model.can_rewind_to(1, 1)  # nothing is overwritten yet


@pytest.mark.skipif(sys.platform != "linux", reason="reads the size of the process from Linux")
def test_a_session_takes_memory_for_what_its_caches_hold(compiled: tuple[int, Path, Artifact]) -> None:
    width, _, artifact = compiled
    room = artifact.description.state_bytes
    assert room > 4 * SEQUENCES * KEY_HEADS * width * CONTEXT
    given = [np.zeros((1, 20), np.int64), np.array([1]), *(x[None] for x in numbers(4, 20, width))]
    with artifact.load(threads=1) as model:
        before = resident()
        with model.session(threads=1) as other:
            first = other(*given)
            with other.fork(threads=1) as third:
                for session in (other, third):
                    session.write_state("P", np.zeros(SEQUENCES, np.int64))
                    for one, again in zip(first, session(*given), strict=True):
                        np.testing.assert_array_equal(one, again)
                    session.reset()
                    assert not session.read_state("P").any()
                assert resident() - before < room // 4


def given_for(sequence: int, seed: int, rows: int, width: int) -> list[np.ndarray]:
    """The inputs of a run on so many positions of one sequence."""
    return [np.zeros((1, rows), np.int64), np.array([sequence]), *(x[None] for x in numbers(seed, rows, width))]


def test_a_copied_sequence_goes_on_as_if_it_had_read_all(compiled: tuple[int, Path, Artifact]) -> None:
    """Three users with one prefix: each has the results of a session that reads the prefix for each."""
    width, _, artifact = compiled
    prefix, has_pages = 2500, sys.platform == "linux"
    with artifact.load(threads=1) as model, model.session(threads=1) as alone:
        model(*given_for(0, 1, prefix, width))
        for sequence in range(SEQUENCES):
            alone(*given_for(sequence, 1, prefix, width))
        before = model.state_memory
        assert before.shared == before.mapped == 0 < before.own
        model.copy_sequence(0, 1)
        model.copy_sequence(0, 2)
        assert model.read_state("P").tolist() == [prefix] * SEQUENCES
        memory = model.state_memory
        if has_pages:
            assert memory.mapped == SEQUENCES * memory.shared > 0
            assert memory.own + memory.mapped <= alone.state_memory.own
            assert memory.own + memory.shared < 2 * before.own
        for sequence in (1, 0, 2):  # all write behind the prefix, in place of each other's pages at its end
            for one, other in zip(*(m(*given_for(sequence, sequence, 3, width)) for m in (model, alone)), strict=True):
                np.testing.assert_array_equal(one, other)
        assert model.state_memory.mapped == memory.mapped
        for each in (model, alone):
            each.write_state("P", np.array([prefix + 3, 0, prefix + 3]))
        for sequence, rows in ((1, prefix), (0, 1), (2, 1)):  # the second one writes over what it had in common
            for one, other in zip(*(m(*given_for(sequence, 7, rows, width)) for m in (model, alone)), strict=True):
                np.testing.assert_array_equal(one, other)
        if has_pages:
            assert model.state_memory.mapped == 2 * memory.shared
        with model.fork(threads=1) as third, model.session(threads=1) as fourth:
            model.copy_sequence(1, 0, to=fourth)
            for name in ("P", *(state.name for state in model.states)):
                np.testing.assert_array_equal(third.read_state(name), model.read_state(name))
            model.reset()
            for sequence, session, number in ((2, third, 2), (1, third, 1), (1, fourth, 0)):
                found = session(*given_for(number, 9, 2, width))
                for one, other in zip(found, alone(*given_for(sequence, 9, 2, width)), strict=True):
                    np.testing.assert_array_equal(one, other)
                counts = alone.read_state("P")
                counts[sequence] -= 2
                alone.write_state("P", counts)
            assert (third.state_memory.mapped > 0) == has_pages


def test_copies_of_sequences_that_cannot_be_are_refused(compiled: tuple[int, Path, Artifact]) -> None:
    width, _, artifact = compiled
    with artifact.load(threads=1) as model:
        model(*given_for(0, 1, 30, width))
        model.copy_sequence(0, 1, 26)
        assert model.read_state("P").tolist() == [30, 26, 0]
        model.copy_sequence(2, 1)
        model.copy_sequence(0, 0, 27)
        assert model.read_state("P").tolist() == [27, 0, 0]
        for arguments, message in (
            ((0, 3), "sequences 3 and 0 are not both of the 3 that a session has"),
            ((-1, 0), "sequences 0 and -1 are not both"),
            ((0, 1, 28), "28 positions of a sequence that has 27"),
            ((0, 1, -1), "-1 positions of a sequence that has 27"),
            ((0, 1, 9), "sequence 0 has 27 tokens, and cannot be set back to 9 of them"),
        ):
            with pytest.raises(nnefc.RunError, match=message):
                model.copy_sequence(*arguments)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("'q8'", "'q9'", "'storage' is 'q9', not one of f32, f16, q8"),
        ("kept = 12", "kept = 7", "caches of 7 positions do not hold those of a window of 9 before a query"),
        ("window = 9, ", "", "caches of 12 positions do not hold those of a window of 0 before a query"),
    ],
)
def test_caches_that_cannot_be_are_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = document(tmp_path, 16) / "graph.nnef"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(nnefc.CompileError, match=message):
        nnefc.compile(tmp_path)
