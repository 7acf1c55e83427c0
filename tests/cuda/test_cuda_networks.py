"""Whole networks as libraries for CUDA, executed without a GPU, beside the same networks on this CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulated_networks import agree, on_cuda
from small_networks import NETWORKS, Net

import nnefc
from nnefc.loader import LoadError

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "model.nnef"


def test_digits_are_the_same_and_no_access_is_wrong() -> None:
    image = np.random.default_rng(0).random((1, 1, 8, 8), dtype=np.float32)
    agree(DIGITS, {"image": image}, checks=True)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_small_network_is_the_same_and_no_access_is_wrong(name: str, tmp_path: Path) -> None:
    net = Net(seed=len(name))
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model(NETWORKS[name](net)).SerializeToString())
    agree(path, net.inputs, checks=True)


def test_an_index_out_of_range_fails_the_run_with_a_message(tmp_path: Path) -> None:
    net = Net(seed=1)
    places = net.given(np.array([2, -3, 9], np.int64))
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model([net.do("Gather", net.floats(5, 4), places)]).SerializeToString())
    with on_cuda(checks=True), nnefc.compile(path).load() as network:
        with pytest.raises(LoadError, match="Gather: an index is out of range"):
            network.run(net.inputs)
        right = {**net.inputs, places: np.array([2, -3, 0], np.int64)}
        (found,) = network.run(right).values()
    np.testing.assert_array_equal(found, net.inputs["input1"][[2, 2, 0]])
