"""Rows of images, computed as one axis where they are dense."""

import numpy as np
import pytest
import tvm
from pass_runs import lower
from relax_programs import network_of, opened, program, target

from nnefc.backends import backend_of
from nnefc.ir.attributes import JOINED_ROWS, RULE
from nnefc.passes.tir.common.peel_tail_tiles import tiled_axes
from nnefc.symbolic.dims import ranges


def products(text: str, **weights: np.ndarray) -> list[tvm.tirx.PrimFunc]:
    """The scheduled products of a network with dynamic sizes."""
    network = opened(network_of(program(text, **weights)))
    seen: dict[str, tvm.IRModule] = {}
    with ranges({d.var: d.values for d in network.dynamic_dimensions}):
        lower(network, backend_of(target("llvm -mcpu=x86-64-v4")), seen.__setitem__)
    return [f for f in seen["schedule"].functions.values() if f.attrs[RULE] == "ContractionRule"]


@pytest.mark.parametrize("after", ["R.nn.relu(y)", "R.nn.relu(R.add(y, x))"], ids=["activation", "residual"])
def test_a_convolution_of_single_pixels_has_one_remainder(after: str) -> None:
    text = f'x[1, 32, "h", "w"] -> z\ny = R.nn.conv2d(x, f)\nz = {after}'
    (func,) = products(text, f=np.ones((32, 32, 1, 1), np.float32))
    assert func.attrs[JOINED_ROWS]
    assert len(tiled_axes(func)) == 1
    assert sum(len(param.shape) == 4 for param in func.params) >= 2  # all images: their channels are in blocks


@pytest.mark.parametrize("attributes", ["padding=1", "strides=2"])
def test_windows_and_steps_keep_both_axes(attributes: str) -> None:
    size = 3 if attributes == "padding=1" else 1
    text = f'x[1, 3, "h", "w"] -> y\ny = R.nn.conv2d(x, f, {attributes})'
    assert all(JOINED_ROWS not in f.attrs for f in products(text, f=np.ones((32, 3, size, size), np.float32)))


def test_images_of_known_sizes_are_joined_into_padded_ones() -> None:
    """On WebAssembly, whose last tile may be smaller."""
    text = "x[1, 32, 14, 14] -> z\ny = R.nn.relu(R.nn.conv2d(x, f))\nz = R.nn.conv2d(y, g, padding=1, groups=32)"
    network = network_of(program(text, f=np.ones((32, 32, 1, 1), np.float32), g=np.ones((32, 1, 3, 3), np.float32)))
    seen: dict[str, tvm.IRModule] = {}
    lower(network, backend_of(target("wasm32-wasi")), seen.__setitem__)
    (func,) = (f for f in seen["schedule"].functions.values() if f.attrs[RULE] == "ContractionRule")
    assert func.attrs[JOINED_ROWS]
    assert any(list(param.shape)[2:4] == [16, 16] for param in func.params if len(param.shape) == 5)
