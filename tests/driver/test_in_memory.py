"""Models that are in memory, and things that are no models."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import info, model, node, tensor

import nnefc
from nnefc.driver import in_memory
from nnefc.support.diagnostics import CompileError

WEIGHTS = np.arange(700 * 700, dtype=np.float32).reshape(700, 700) / 70_000  # more than are linked as other data
X = np.linspace(-1, 1, 700, dtype=np.float32)[None]


def product() -> onnx.ModelProto:
    sizes = [info("x", (1, 700))], [info("y", (1, 700))]
    return model([node("MatMul", ["x", "w"], ["y"])], *sizes, [tensor("w", WEIGHTS)])


def serialized() -> bytes:
    content: bytes = product().SerializeToString()
    return content


@pytest.mark.parametrize(
    "written", [product(), serialized(), gzip.compress(serialized())], ids=["message", "bytes", "compressed"]
)
@pytest.mark.sample(2)
def test_models_in_memory_are_compiled_and_exported(written: Any, tmp_path: Path) -> None:
    """Their files are gone by then."""
    artifact = nnefc.compile(written)
    artifact.export(tmp_path / "net.so")
    with nnefc.load(tmp_path / "net.so") as loaded:
        assert loaded.name == "g"
        np.testing.assert_allclose(loaded(X), X @ WEIGHTS, rtol=1e-4, atol=1e-3)


def test_options_hold_for_them_too() -> None:
    graph = model([node("Neg", ["x"], ["y"])], [info("x", ("n", 2))])
    assert nnefc.compile(graph, shape={"n": 3}).inputs[0].shape == (3, 2)


def test_messages_of_two_gigabytes_are_kept_with_their_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """What protobuf does not write is written with its data in a second file."""

    def large(_model: onnx.ModelProto) -> bytes:
        raise ValueError("Failed to serialize proto")

    monkeypatch.setattr(in_memory, "_serialized", large)
    with pytest.raises(CompileError, match="cannot be written down: Failed"):
        nnefc.compile(product())
    monkeypatch.setattr(in_memory, "_MAX_BYTES", 0)
    with nnefc.compile(product()).load() as loaded:
        np.testing.assert_allclose(loaded(X), X @ WEIGHTS, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("position", ["initializer", "constant", "branch"])
def test_external_data_of_a_model_in_memory_is_asked_for(position: str) -> None:
    """A model in memory has no folder: the message names the ways to give one."""
    away = tensor("w", WEIGHTS)
    away.ClearField("raw_data")
    away.data_location = onnx.TensorProto.EXTERNAL
    away.external_data.add(key="location", value="m.data")
    graph = product()
    if position == "initializer":
        graph.graph.initializer[0].CopyFrom(away)
    elif position == "constant":
        del graph.graph.initializer[:]
        graph.graph.node.insert(0, node("Constant", [], ["w"], value=away))
    else:
        branch = onnx.helper.make_graph([node("Constant", [], ["w"], value=away)], "b", [], [info("w", (700, 700))])
        graph.graph.node.insert(0, node("If", ["c"], ["v"], then_branch=branch, else_branch=branch))
    for given in (graph, graph.SerializeToString()):
        with pytest.raises(
            CompileError, match=r"'w' is in the file 'm\.data', and a model in memory has no folder"
        ) as found:
            nnefc.compile(given)
        assert "load_external_data_for_model" in str(found.value.hint)


def of_package(name: str) -> object:
    """Something whose type is derived from one of a package."""
    base = type("Module", (), {"__module__": f"{name}.nn.modules"})
    return type("Mine", (base,), {"__module__": "__main__"})()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "no builtins.NoneType$"),
        (3, "no builtins.int$"),
        (product().graph, r"no onnx\S*GraphProto\n.*onnx.helper.make_model"),
        (of_package("torch"), r"no __main__.Mine\n.*nnefc.torch.compile"),
        (of_package("sklearn"), r"no __main__.Mine\n.*nnefc.sklearn.compile"),
        (of_package("keras"), r"no __main__.Mine\n.*tf2onnx"),
    ],
)
def test_what_is_no_model_is_refused_with_the_way_to_one(given: Any, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        nnefc.compile(given)
