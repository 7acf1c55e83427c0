"""Modules of PyTorch, beside PyTorch itself; where it and its exporter to ONNX are installed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import nnefc  # noqa: E402
import nnefc.torch  # noqa: E402
from nnefc.torch import backend  # noqa: E402


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()


def network() -> Any:
    layers = [torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers).eval().requires_grad_(False)


def check(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_module_with_an_dynamic_batch(tmp_path: Path) -> None:
    module = network()
    dynamic_batch = ({0: torch.export.Dim("batch")},)
    compiled = nnefc.torch.compile(module, torch.randn(2, 3, 8, 8), dynamic_shapes=dynamic_batch, threads=1)
    for batch in (1, 2, 5):
        x = torch.randn(batch, 8, 8, 3).permute(0, 3, 1, 2)  # not dense
        check(compiled(x), module(x))
    compiled.export(tmp_path / "net.so")
    x = torch.randn(3, 3, 8, 8)
    check(torch.from_numpy(nnefc.load(tmp_path / "net.so")(x)), module(x))
    with pytest.raises(nnefc.RunError):
        compiled(torch.randn(2, 4, 8, 8))


def test_one_tensor_as_several_arguments_is_an_example_of_each() -> None:
    example = torch.randn(2, 3)
    compiled = nnefc.torch.compile(Weighted(), example, example, threads=1)
    a, b = torch.randn(2, 3), torch.randn(2, 3)
    check(compiled(a, b), a * 2 + b)


class Weighted(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    def forward(self, a: Any, b: Any) -> Any:
        return a * 2 + b


class Structured(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """Named arguments, a number, an input that is an output, None, and a result that is there twice."""

    def forward(self, a: Any, pair: tuple[Any, Any], *, k: int = 3) -> dict[str, Any]:
        b, c = pair
        product = a @ b.T * k
        return {"s": product, "n": (a, None), "c": [c + 1, product]}


def test_bfloat16_goes_in_and_out() -> None:
    a, b = torch.randn(2, 3).bfloat16(), torch.randn(2, 3).bfloat16()
    found = nnefc.torch.compile(Weighted(), a, b, threads=1)(a, b)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, a * 2 + b)


def test_structures_of_arguments_and_results() -> None:
    a, b, c = torch.randn(4, 6), torch.randn(5, 6), torch.arange(3)
    compiled = nnefc.torch.compile(Structured(), a, (b, c), kwargs={"k": 2})
    check(compiled(a, (b, c), k=2), Structured()(a, (b, c), k=2))
    with pytest.raises(nnefc.CompileError, match=r"is 5, but the module was compiled with 2"):
        compiled(a, (b, c), k=5)
    with pytest.raises(nnefc.CompileError, match="compiled for"):
        compiled(a, b, k=2)


def test_what_cannot_be_exported() -> None:
    class Branches(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        def forward(self, x: Any) -> Any:
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(nnefc.CompileError, match="PyTorch cannot export Branches"):
        nnefc.torch.compile(Branches(), torch.ones(2))
    with pytest.raises(nnefc.CompileError, match="changes"):
        nnefc.torch.compile(network().train(), torch.randn(2, 3, 8, 8))


def test_torch_compile_takes_every_size() -> None:
    module = network()
    compiled = torch.compile(module, backend=backend, options={"threads": 1})
    for batch in (1, 4, 7):
        x = torch.randn(batch, 3, 8, 8)
        check(compiled(x), module(x))
    module[0].weight.mul_(2)
    check(compiled(x), module(x))
    module[0].weight.data = torch.randn(4, 3, 3, 3)
    check(compiled(x), module(x))


def test_parameters_of_inference_mode_are_left_to_pytorch() -> None:
    with torch.inference_mode():
        module = network()
        compiled = torch.compile(module, backend=backend)
        x = torch.randn(2, 3, 8, 8)
        with pytest.warns(UserWarning, match="made in inference mode"):
            check(compiled(x), module(x))
        module[0].weight.mul_(2)
        check(compiled(x), module(x))


def test_numbers_that_are_no_sizes() -> None:
    def scaled(x: Any, k: int) -> Any:
        return x * k

    compiled = torch.compile(scaled, backend=backend, dynamic=True)
    for k in (2, 3, 3):
        check(compiled(torch.ones(3, 5), k), torch.full((3, 5), float(k)))


def test_gradients_are_left_to_pytorch() -> None:
    module = network().requires_grad_(True)
    compiled = torch.compile(module, backend=backend)
    x = torch.randn(2, 3, 8, 8)
    with pytest.warns(UserWarning, match="no_grad"):
        compiled(x).sum().backward()
    assert module[0].weight.grad is not None
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        check(compiled(x), module(x))
