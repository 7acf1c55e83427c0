"""Whole networks as libraries for CUDA, executed without a GPU, beside the same networks on this CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulated_networks import agree
from small_networks import NETWORKS, Net

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
