"""Activations are computed with the convolution that they follow, also where dimensions have the size 1."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from pass_runs import lower
from relax_programs import network_of, program, target
from tvm import tirx

from nnefc.backends import backend_of


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(
    "activation", ["R.nn.relu(c)", "R.clip(c, 0, 6)", "R.maximum(c, R.const(0.5))", "R.minimum(c, R.const(0.5))"]
)
def test_an_activation_is_in_the_kernel_of_its_convolution(batch: int, activation: str) -> None:
    module = program(
        f"""
        x[{batch}, 8, 6, 6] -> y
        c = R.nn.conv2d(x, w)
        y = {activation}
        """,
        w=np.ones((8, 8, 1, 1), np.float32),
    )
    assert any(name.startswith("fused_convolution_") for name in kernels_of(module)), kernels_of(module)


def test_a_scale_is_in_the_kernel_of_its_convolution_though_an_equal_one_spreads_what_is_computed() -> None:
    """A gate for each channel is multiplied by the same kernel as constants are."""
    module = program(
        """
        x[1, 16, 6, 6] -> y
        c = R.nn.conv2d(x, w)
        t = R.tanh(c)
        s = R.multiply(t, k)
        g = R.mean(s, axis=[2, 3], keepdims=True)
        y = R.multiply(s, g)
        """,
        w=np.ones((16, 16, 1, 1), np.float32),
        k=np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1),
    )
    names = kernels_of(module)
    assert any("convolution" in name and "multiply" in name for name in names), names
    assert not any("mean" in name and "multiply" in name for name in names), names


def kernels_of(module: tvm.IRModule) -> list[str]:
    """The names of the kernels that a program becomes."""
    kernels: dict[str, list[str]] = {}

    def observe(name: str, made: object) -> None:
        functions = made.functions.items()  # type: ignore[attr-defined]
        kernels[name] = [str(gv.name_hint) for gv, func in functions if isinstance(func, tirx.PrimFunc)]

    lower(network_of(module), backend_of(target("llvm")), observe)
    return kernels["schedule"]
