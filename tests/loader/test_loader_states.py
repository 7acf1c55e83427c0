"""States read, changed and copied; tokens one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from relax_programs import network_of, program, target

import nnefc
from nnefc.driver.compile import compile_network
from nnefc.ir.network import State
from nnefc.loader.generation import Reader, generated
from nnefc.loader.sampling import Sampler
from nnefc.loader.tensors import Tensor


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sum of all that came, and a count whose bytes do not fill a line."""
    module = program(
        """x[1, 17]; s[1, 17]; n[1] -> y, t, m
        t = R.add(s, x)
        y = R.add(t, s)
        m = R.add(n, R.const([1.0], "float32"))"""
    )
    states = [State("s", np.ones((1, 17), np.float32)), State("n", np.full(1, 5, np.float32))]
    path = tmp_path_factory.mktemp("states") / "m.so"
    compile_network(network_of(module, states), target("llvm -mcpu=x86-64-v3")).export(path)
    return path


@pytest.fixture
def model(library: Path) -> Iterator[nnefc.Model]:
    with nnefc.load(library, threads=1) as made:
        yield made


X = np.full((1, 17), 2, np.float32)


def test_states_are_read_and_changed(model: nnefc.Model) -> None:
    model(X)
    np.testing.assert_array_equal(model.read_state("s"), np.full((1, 17), 3))
    np.testing.assert_array_equal(model.read_state("n"), [6])
    model.write_state("s", np.arange(17, dtype=np.float32)[None])
    np.testing.assert_array_equal(model.read_state("n"), [6])
    np.testing.assert_array_equal(model(X), 2 * np.arange(17)[None] + 2)
    np.testing.assert_array_equal(model.read_state("n"), [7])


def test_states_change_in_runs_without_outputs(model: nnefc.Model) -> None:
    model.time_kernels()
    assert model.run({"x": X}, outputs=[]) == {}
    assert {name for kernel in model.profile() if kernel.calls for name in kernel.tensors} == {"t", "m"}
    np.testing.assert_array_equal(model.read_state("n"), [6])
    np.testing.assert_array_equal(model(X), np.full((1, 17), 8))


def test_a_fork_goes_on_by_itself(model: nnefc.Model) -> None:
    model(X)
    with model.fork(threads=2) as other:
        model(X)
        np.testing.assert_array_equal(other.read_state("s"), np.full((1, 17), 3))
        np.testing.assert_array_equal(other(X), np.full((1, 17), 8))
    np.testing.assert_array_equal(model(X), np.full((1, 17), 12))


def test_what_does_not_fit_is_refused(model: nnefc.Model) -> None:
    with pytest.raises(nnefc.RunError, match='no state "t"; its states are s: float32'):
        model.read_state("t")
    with pytest.raises(nnefc.RunError, match=r'state "s" has the shape \[17\]'):
        model.write_state("s", np.zeros(17, np.float32))
    with pytest.raises(nnefc.RunError, match='state "n" is an array of float64'):
        model.write_state("n", np.zeros(1))
    for function in ("nnefc_get_state", "nnefc_set_state"):
        call = model._library.function(function)
        assert call(model._session.open(), 2, X.ctypes.data) == 1
        assert call(model._session.open(), 0, None) == 1
        assert call(None, 0, X.ctypes.data) == 1
    assert model._library.dll.nnefc_copy_states(model._session.open(), None) == 1
    assert model._library.dll.nnefc_copy_states(model._session.open(), model._session.open()) == 0
    with pytest.raises(nnefc.RunError, match="one input of tokens"):
        model.generate([1], most=1)


def test_networks_without_states_have_no_functions_for_them() -> None:
    module = program("x[1] -> y\n        y = R.add(x, x)")
    with compile_network(network_of(module), target("llvm -mcpu=x86-64-v3")).load() as model:
        assert not hasattr(model._library.dll, "nnefc_get_state")
        with model.fork() as other:
            np.testing.assert_array_equal(other(np.ones(1, np.float32)), [2])


def test_a_sampler_draws_as_often_as_the_chances_say() -> None:
    logits = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))
    drawn = {
        "all": Sampler(1.0, seed=1),
        "of two": Sampler(1.0, top_k=2, seed=2),
        "of a share": Sampler(1.0, top_p=0.65, seed=3),
        "cold": Sampler(0.5, seed=4),
    }
    wanted = {
        "all": [0.1, 0.4, 0.2, 0.3],
        "of two": [0, 4 / 7, 0, 3 / 7],
        "of a share": [0, 4 / 7, 0, 3 / 7],
        "cold": np.array([1, 16, 4, 9]) / 30,
    }
    for name, sample in drawn.items():
        counts = np.bincount([sample(logits) for _ in range(4000)], minlength=4)
        np.testing.assert_allclose(counts / 4000, wanted[name], atol=0.04, err_msg=name)
    assert [Sampler(1.0, seed=7)(logits) for _ in range(9)] == [Sampler(1.0, seed=7)(logits)] * 9
    assert Sampler()(logits) == Sampler(1.0, top_k=1)(logits) == Sampler(1.0, top_p=0.1)(logits) == 1


@pytest.mark.parametrize("wrong", [{"temperature": -1.0}, {"top_k": 0}, {"top_p": 0.0}, {"temperature": float("nan")}])
def test_samplers_of_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(nnefc.RunError, match=next(iter(wrong))):
        Sampler(**wrong)


def test_tokens_follow_each_other_until_the_end() -> None:
    read: list[list[int]] = []

    def run(tokens: np.ndarray) -> np.ndarray:
        assert tokens.dtype == np.int64
        read.extend(tokens.tolist())
        return np.eye(10, dtype=np.float32)[[(tokens[0] + 1) % 10]]  # logits of each token; the last one counts

    reader = Reader(run, [Tensor("tokens", "int64", (1, "S"))], [Tensor("logits", "float32", (1, "S", 10))])
    assert list(generated(reader, [3, 5], 9, [9], Sampler())) == [6, 7, 8]
    assert read == [[3, 5], [6], [7], [8]]
    assert list(generated(reader, [3, 5], 2, [], Sampler())) == [6, 7]
    read.clear()
    assert list(generated(reader, [0] * 1100, 2, [], Sampler())) == [1, 2]
    assert [len(tokens) for tokens in read] == [512, 512, 76, 1]
    with pytest.raises(nnefc.RunError, match="at least one token"):
        generated(reader, [], 2, [], Sampler())
