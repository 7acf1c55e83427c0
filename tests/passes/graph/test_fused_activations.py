"""Activations are computed with the convolution that they follow, also where dimensions have the size 1."""

from __future__ import annotations

import numpy as np
import pytest
from relax_programs import network_of, program, target
from tvm import tirx

from nnefc.backends import backend_of
from nnefc.passes.pipeline import lower


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
    kernels: dict[str, list[str]] = {}

    def observe(name: str, made: object) -> None:
        functions = made.functions.items()  # type: ignore[attr-defined]
        kernels[name] = [str(gv.name_hint) for gv, func in functions if isinstance(func, tirx.PrimFunc)]

    lower(network_of(module), backend_of(target("llvm")), observe)
    assert any(name.startswith("fused_convolution_") for name in kernels["schedule"]), kernels["schedule"]
