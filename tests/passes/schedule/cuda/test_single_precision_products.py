"""Networks in TF32 on devices that multiply what bulk copies fetch: results, dynamic sizes, products left to warps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from emulated_networks import differences, on_cuda
from product_cases import DynamicProducts, choose_kind
from small_networks import Net

import nnefc
from nnefc.passes.schedule.cuda import tensor_core
from nnefc.passes.schedule.cuda.warp_tiles import BulkTile

FUNCTIONS = ("nnefc_multiply_warpgroup_tf32", "nnefc_multiply_into_memory_tf32", "nnefc_multiply_single")


def convolutions(net: Net) -> list[str]:
    """An image's three channels, strides, a residual, a sum of two convolutions of one pixel, and groups."""

    def conv(x: str, inputs: int, outputs: int, size: int, stride: int = 1, group: int = 1) -> str:
        weight = net.weight(outputs, inputs // group, size, size)
        window = {"pads": [size // 2] * 4, "strides": [stride] * 2, "group": group}
        return net.do("Conv", x, weight, net.weight(outputs, scale=0.1), **window)

    x = net.do("Relu", conv(net.floats(2, 3, 21, 18), 3, 16, 7, 2))
    a = net.do("Relu", conv(x, 16, 24, 3, 2))
    y = net.do("Relu", net.do("Add", conv(a, 24, 40, 1), conv(x, 16, 40, 1, 2)))
    z = net.do("Add", conv(y, 40, 40, 3), y)
    return [net.do("Relu", z), conv(y, 40, 80, 3, group=1), conv(conv(y, 40, 64, 1), 64, 64, 3, group=2)]


def products(net: Net) -> list[str]:
    """Products with known matrices, with a transposed one, and with one that lies across the depth."""
    x = net.floats(2, 70, 36)
    a = net.do("Tanh", net.do("Add", net.do("MatMul", x, net.weight(36, 72)), net.weight(72)))
    across = net.do("MatMul", a, net.do("Transpose", net.floats(2, 48, 72), perm=[0, 2, 1]))
    b = net.do("MatMul", across, net.floats(2, 48, 20))
    return [b, net.do("MatMul", a, net.weight(72, 9)), net.do("MatMul", net.floats(3, 68), net.weight(68, 24))]


@pytest.mark.parametrize(
    ("build", "architecture", "wanted_kernels"),
    [
        pytest.param(products, 100, [0, 3, 1], marks=pytest.mark.slow),
        pytest.param(convolutions, 90, [6, 0, 1], marks=pytest.mark.slow),
        pytest.param(convolutions, 100, [0, 6, 1], marks=pytest.mark.slow),
        pytest.param(products, 90, [3, 0, 1], marks=pytest.mark.slow),
    ],
)
def test_networks_give_what_code_for_this_machine_gives(
    build: Callable[[Net], list[str]],
    architecture: int,
    wanted_kernels: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = Net(seed=1)
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model(build(net)).SerializeToString())
    wanted = nnefc.compile(path).run(net.inputs)
    choose_kind(monkeypatch, BulkTile)
    monkeypatch.setattr(tensor_core, "is_faster", lambda *_: True)
    with on_cuda(checks=True, precision="tf32", architectures=(architecture,)) as made:
        found = nnefc.compile(path).run(net.inputs)
    assert not [line for name in wanted for line in differences(name, found[name], wanted[name], 4e-3)]
    kernels = made[-1].code.kernels.source.split("__global__")[1:]
    assert [sum(function in kernel for kernel in kernels) for function in FUNCTIONS] == wanted_kernels


def test_dynamic_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    products = DynamicProducts(tmp_path, "float32")
    choose_kind(monkeypatch, BulkTile)
    with on_cuda(precision="tf32", architectures=(90,)) as made, nnefc.compile(products.path).load() as model:
        for n, m, h, s in ((1, 1, 1, 3), (2, 37, 2, 70)):
            products.check(model, n, m, h, s)
    source = made[-1].code.kernels.source
    assert all(source.count(f"{FUNCTIONS[way]}") for way in (0, 2))
