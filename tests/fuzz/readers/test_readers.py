"""A short run of the fuzzer of each reader; `tests/fuzz/readers` runs for as long as one likes."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from onnx import helper

pytest.importorskip("cryptography", reason="needs: nnefc[encrypt]")

sys.path.append(str(Path(__file__).parent))

from execution import execute, inputs_of

EVERY = {"nnef": 20, "pnnx": 20, "tflite": 20, "library": 1, "language_model": 1, "tokenizer": 4}
"""Of the seeds that are tried: most of the first two are run by other tests, too; those for ONNX take long to make."""


@pytest.fixture(scope="module", params=EVERY)
def reader(request: pytest.FixtureRequest) -> tuple[str, Any, list[bytes]]:
    inputs = inputs_of(request.param)
    return request.param, inputs, inputs.seeds()


def test_seeds_are_valid(reader: tuple[str, Any, list[bytes]], tmp_path: Path) -> None:
    """A fuzzer whose seeds are refused explores nothing."""
    name, inputs, corpus = reader
    assert {data[:1] for data in corpus} == set(inputs.TARGETS)
    chosen = corpus[:: EVERY[name]] + [data for data in corpus if data[:1] in b"QTA"]
    refused = [(data[:80], error) for data in chosen if (error := execute(inputs, data, tmp_path))]
    assert 2 * len(refused) <= len(chosen), refused[:3]  # operators of PNNX stand between tensors of any shapes


@pytest.mark.parametrize(("seed", "count"), [(0, 50), pytest.param(1, 200, marks=pytest.mark.slow(10))])
def test_changed_inputs_are_refused_or_accepted_but_never_break_anything(
    seed: int, count: int, reader: tuple[str, Any, list[bytes]], tmp_path: Path
) -> None:
    _, inputs, corpus = reader
    random = Random(seed)
    kinds = sorted(inputs.TARGETS)
    for number in range(count):
        alike = [data for data in corpus if data[:1] == kinds[number % len(kinds)]]
        execute(inputs, inputs.mutate(random.choice(alike), random, corpus), tmp_path)


def test_a_model_whose_names_are_no_text_is_changed_further() -> None:
    model = helper.make_model(helper.make_graph([helper.make_node("Add", ["a_", "b_"], ["c_"])] * 3, "g", [], []))
    damaged = b"O" + model.SerializeToString().replace(b"_", b"\xe6")
    inputs = inputs_of("onnx")
    assert all(inputs.mutate(damaged, Random(seed), [damaged])[:1] == b"O" for seed in range(100))
