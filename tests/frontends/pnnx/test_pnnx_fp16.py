"""Networks that PyTorch keeps in half precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pnnx_files import write_network

import nnefc


def test_layers_are_computed_in_float32_and_stored_in_half_precision(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    k, w = (
        (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float16)
        for shape in ((32, 16, 3, 3), (64, 32))
    )
    lines = [
        "pnnx.Input in0 0 1 0 #0=(1,16,9,7)f16",
        "nn.Conv2d conv 1 1 0 1 bias=False dilation=(1,1) groups=1 in_channels=16 kernel_size=(3,3) out_channels=32 "
        "padding=(0,0) padding_mode=zeros stride=(1,1) @weight=(32,16,3,3)f16",
        "F.relu relu 1 1 1 2",
        "torch.mean mean 1 1 2 3 dim=(2,3) keepdim=False",
        "nn.Linear linear 1 1 3 4 bias=False in_features=32 out_features=64 @weight=(64,32)f16",
        "pnnx.Output out 1 0 4",
    ]
    path = write_network(tmp_path, lines, {"conv.weight": k, "linear.weight": w})
    x = random.standard_normal((1, 16, 9, 7)).astype(np.float16)
    artifact = nnefc.compile(path)
    (made,) = artifact.run({"in0": x}).values()
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (2, 3))
    sums = np.einsum("nchwij,ocij->nohw", windows, k.astype(np.float64))
    expected = np.maximum(sums, 0).mean((2, 3)) @ w.T.astype(np.float64)
    assert made.dtype == np.float16
    np.testing.assert_allclose(made.astype(np.float64), expected, rtol=1e-3, atol=2e-4)
    if artifact.target.widens("float16"):
        assert artifact.description.constant_bytes <= 1.1 * (k.nbytes + w.nbytes)
