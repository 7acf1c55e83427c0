"""Whole networks and families of operators as the converter writes them, against what PyTorch computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pnnx_files import DATA

import nnefc

NAMES = sorted(path.name.removesuffix(".pnnx.param") for path in DATA.glob("*.pnnx.param"))


def arrays(name: str, kind: str) -> list[np.ndarray]:
    with np.load(DATA / f"{name}.npz") as file:
        return [file[f"{kind}_{i}"] for i in range(sum(key.startswith(kind) for key in file))]


def test_there_are_networks_and_operators() -> None:
    assert {"resnet18", "mobilenet_v2", "unet", "detector", "vit", "tagger", "expressions", "recurrent"} <= set(NAMES)


OTHERS_HAVE = {
    "activations", "convolutions", "indices", "mobilenet_v2", "normalizations", "pools", "reductions", "resnet18",
    "resolutions", "shapes", "unet", "vit",
}  # fmt: skip
"""Networks whose layers, each kind, are in others or in `test_pnnx_operators.py`."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in OTHERS_HAVE else []) for name in NAMES]
)
@pytest.mark.sample(1)
def test_compiled_network_agrees_with_pytorch(name: str) -> None:
    model = nnefc.compile(DATA / f"{name}.pnnx.param").load(threads=1)
    results = model(*arrays(name, "input"))
    results = list(results) if isinstance(results, tuple | list) else [results]
    expected = arrays(name, "output")
    assert len(results) == len(expected)
    for number, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype), number
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4, err_msg=str(number))
        else:
            np.testing.assert_array_equal(result, wanted, err_msg=str(number))


@pytest.mark.parametrize("name", ["resnet18", "detector", "expressions"])
def test_converting_again_gives_a_network_that_agrees(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("pnnx")
    monkeypatch.syspath_prepend(str(DATA))
    import make
    from networks import NETWORKS
    from operators import OPERATORS

    torch.manual_seed(7)
    build, sample = {**NETWORKS, **OPERATORS}[name]
    module, inputs = build().eval(), sample()
    make.settle(module)
    with torch.no_grad():
        expected = make.flat(module(*inputs))
    make.convert(module, inputs, tmp_path / name)
    model = nnefc.compile(tmp_path / f"{name}.pnnx.param").load(threads=1)
    results = model(*[x.numpy() for x in inputs])
    results = list(results) if isinstance(results, tuple | list) else [results]
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted.numpy(), rtol=1e-4, atol=1e-4)
