"""Random numbers: which ones, how they are spread, and when they are the same again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import info, model, node, save, tensor
from tvm.ir import assert_structural_equal

import nnefc
from nnefc.frontends.onnx import load
from nnefc.support.diagnostics import CompileError

MANY = 200_000


def compiled(folder: Path, nodes: Sequence[onnx.NodeProto], *more: object, **options: object) -> nnefc.Model:
    """The outputs are what the nodes make."""
    made = [name for n in nodes for name in n.output]
    outputs = [onnx.ValueInfoProto(name=name) for name in made]
    for output in outputs:
        output.type.tensor_type.elem_type = _type_of(nodes, output.name)
    inputs = options.pop("inputs", [])
    return nnefc.compile(save(model(nodes, inputs, outputs, *more, **options), folder)).load()  # type: ignore[arg-type]


def _type_of(nodes: Sequence[onnx.NodeProto], name: str) -> int:
    maker = next(n for n in nodes if name in n.output)
    if maker.op_type == "Dropout" and name == maker.output[1]:
        return TensorProto.BOOL
    given = [a.i for a in maker.attribute if a.name == "dtype"]
    default = TensorProto.INT32 if maker.op_type == "Multinomial" else TensorProto.FLOAT
    return given[0] if given else default


def philox(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """Philox 4x32-10 by whole numbers, from the paper."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(second >> 32) ^ c[1] ^ k[0], second & 0xFFFFFFFF, (first >> 32) ^ c[3] ^ k[1], first & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def test_the_reference_has_the_papers_known_answers() -> None:
    ones = 0xFFFFFFFF
    assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox([ones] * 4, [ones] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    assert philox(pi, [0xA4093822, 0x299F31D0]) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def test_uniform_numbers_are_the_generators_words(tmp_path: Path) -> None:
    seed = 1.5
    random = compiled(tmp_path, [node("RandomUniform", [], ["y"], shape=[2, 5], seed=seed)])
    key = [int(np.float32(seed).view(np.uint32)), 0]
    for run in range(3):
        words = [word for block in range(3) for word in philox([block, 0, run, 0], key)][:10]
        wanted = (np.array(words, np.uint64) >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)
        np.testing.assert_array_equal(random(), wanted.reshape(2, 5))


def chi_square(counts: np.ndarray, expected: np.ndarray | float) -> float:
    """How far counts are from those expected, in standard deviations of that distance."""
    distance = float((((counts - expected) ** 2) / expected).sum())
    freedom = counts.size - 1
    return (distance - freedom) / math.sqrt(2 * freedom)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> nnefc.Model:
    """Draws many numbers of each type and distribution."""
    nodes = [
        node("RandomUniform", [], ["u"], shape=[MANY], low=-2.0, high=3.0),
        node("RandomUniform", [], ["d"], shape=[MANY], dtype=TensorProto.DOUBLE),
        node("RandomUniform", [], ["h"], shape=[MANY], dtype=TensorProto.FLOAT16),
        node("RandomNormal", [], ["n"], shape=[MANY], mean=1.0, scale=2.0),
        node("RandomNormal", [], ["m"], shape=[MANY], dtype=TensorProto.DOUBLE),
        *(node("RandomUniform", [], [name], shape=[MANY]) for name in ("a", "b")),
    ]
    return compiled(tmp_path_factory.mktemp("many"), nodes)


def test_numbers_are_spread_as_the_operators_say(many: nnefc.Model) -> None:
    drawn_by_name = many.run({})
    u, d, h, n, m = (drawn_by_name[name] for name in "udhnm")
    assert [a.dtype for a in (u, d, h, n, m)] == [np.float32, np.float64, np.float16, np.float32, np.float64]
    for drawn, low, high in ((u, -2, 3), (d, 0, 1), (h, 0, 1)):
        assert drawn.min() >= low
        assert drawn.max() < high
        counts = np.histogram(drawn.astype(np.float64), 64, (low, high))[0]
        assert abs(chi_square(counts, MANY / 64)) < 5 or drawn.dtype == np.float16
        unit = (drawn.astype(np.float64) - low) / (high - low)
        for power in (1, 2, 3, 4):
            assert abs((unit**power).mean() - 1 / (power + 1)) < 5 / math.sqrt(MANY)
    for drawn, mean, scale in ((n, 1, 2), (m, 0, 1)):
        unit = (drawn.astype(np.float64) - mean) / scale
        for power, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
            assert abs((unit**power).mean() - moment) < 5 * math.sqrt(spread / MANY)
        edges = np.array([-8, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 8])
        below = np.array([0.5 * (1 + math.erf(edge / math.sqrt(2))) for edge in edges])
        assert abs(chi_square(np.histogram(unit, edges)[0], np.diff(below) * MANY)) < 5


def test_nodes_runs_and_neighbours_are_independent(many: nnefc.Model) -> None:
    drawn = many.run({})
    a, b, c = drawn["a"], drawn["b"], many.run({})["a"]
    for first, second in ((a, b), (a, c), (a[:-1], a[1:]), (a[:-4], a[4:])):
        assert abs(np.corrcoef(first, second)[0, 1]) < 5 / math.sqrt(MANY)
        counts = np.histogram2d(first, second, 8, [(0, 1), (0, 1)])[0]
        assert abs(chi_square(counts, first.size / 64)) < 5


def test_a_session_draws_the_same_numbers_after_a_reset_and_other_ones_in_each_run(tmp_path: Path) -> None:
    shaped = [node("RandomNormalLike", ["x"], ["y"]), node("RandomUniformLike", ["x"], ["z"], seed=3.0)]
    inputs = [info("x", (3, 4))]
    network = compiled(tmp_path, shaped, inputs=inputs)
    x = {"x": np.zeros((3, 4), np.float32)}
    first, second = ([a.tobytes() for a in network.run(x).values()] for _ in range(2))
    assert not set(first) & set(second)
    network.reset()
    assert [a.tobytes() for a in network.run(x).values()] == first
    assert [a.tobytes() for a in network.session().run(x).values()] == first
    (tmp_path / "again").mkdir()
    again = compiled(tmp_path / "again", shaped[:1], inputs=inputs)
    assert [a.tobytes() for a in again.run(x).values()] == first[:1]


@pytest.mark.slow
def test_equal_seeds_are_equal_numbers(tmp_path: Path) -> None:
    nodes = [node("RandomUniform", [], [name], shape=[9], seed=s) for name, s in (("a", 2.0), ("b", 2.0), ("c", 3.0))]
    a, b, c = compiled(tmp_path, nodes).run({}).values()
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


@pytest.mark.slow
def test_bernoulli_and_multinomial_draw_with_the_chances_given(tmp_path: Path) -> None:
    chances = np.array([[0.1, 0.2, 0.3, 0.4], [0.97, 0.01, 0.01, 0.01]], np.float32)
    logs = tensor("logs", np.log(chances) + 7)
    nodes = [
        node("Multinomial", ["logs"], ["m"], sample_size=MANY, dtype=TensorProto.INT64),
        node("Bernoulli", ["chances"], ["b"], dtype=TensorProto.DOUBLE),
    ]
    spread = np.repeat(np.array([0.0, 0.25, 0.9, 1.0], np.float32), MANY)
    m, b = compiled(tmp_path, nodes, [logs, tensor("chances", spread)]).run({}).values()
    assert m.dtype == np.int64
    for row, wanted in zip(m, chances.astype(np.float64), strict=True):
        assert abs(chi_square(np.bincount(row, minlength=4), wanted * MANY)) < 5
    means = b.reshape(4, MANY).mean(1)
    assert set(np.unique(b)) == {0.0, 1.0}
    assert (means[0], means[3]) == (0, 1)
    assert np.abs(means[1:3] - [0.25, 0.9]).max() < 5 * 0.5 / math.sqrt(MANY)


def test_dropout_in_training_keeps_the_mean(tmp_path: Path) -> None:
    rate, training = tensor("rate", np.float32(0.3)), tensor("training", True, np.bool_)
    nodes = [node("Dropout", ["x", "rate", "training"], ["y", "mask"], seed=1)]
    x = np.random.default_rng(0).uniform(1, 2, MANY).astype(np.float32)
    network = compiled(tmp_path, nodes, [rate, training], inputs=[info("x", (MANY,))])
    y, mask = network.run({"x": x}).values()
    np.testing.assert_allclose(y, np.where(mask, x / np.float32(0.7), 0), rtol=1e-6)
    assert abs(mask.mean() - 0.7) < 5 * 0.5 / math.sqrt(MANY)


def test_random_numbers_in_a_loop_that_stays_one_are_refused(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("RandomUniformLike", ["s"], ["t"]), node("Identity", ["c"], ["d"])],
        "body",
        [info("i", (), TensorProto.INT64), info("c", (), TensorProto.BOOL), info("s")],
        [info("d", (), TensorProto.BOOL), info("t")],
    )
    nodes = [node("Loop", ["n", "", "x"], ["y"], body=body)]
    path = save(model(nodes, [info("n", (), TensorProto.INT64), info("x")], [info("y")]), tmp_path)
    with pytest.raises(CompileError, match="random numbers are not supported where the network decides"):
        load(path)


def test_a_network_without_random_numbers_has_no_state_for_them(tmp_path: Path) -> None:
    path = save(model([node("Relu", ["x"], ["y"])]), tmp_path)
    first, second = load(path), load(path)
    assert not first.states
    assert_structural_equal(first.module, second.module)
