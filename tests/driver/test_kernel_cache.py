"""Tests of the cache of kernels: what a further network compiles, that its bytes are the same, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc
from nnefc.backends.cpu_steps import Objects
from nnefc.driver.artifact import Artifact
from nnefc.driver.caching.user_cache import kernel_files
from nnefc.driver.compile import compile_model
from nnefc.driver.option_keywords import compile_options

RELU, SIGMOID = "Relu", "Sigmoid"


def network(
    folder: Path, seed: int = 0, layers: Sequence[str] = (RELU,), name: str = "t", batch: int | str = 1
) -> Path:
    """Writes a network of convolutions, each with an activation, whose tensors are called `name` and a number."""
    rng = np.random.default_rng(seed)
    nodes, weights = [], []
    for number, activation in enumerate(layers):
        weight = rng.standard_normal((4, 4, 1, 1)).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"{name}w{number}"))
        nodes += [
            helper.make_node("Conv", [f"{name}{number}", f"{name}w{number}"], [f"{name}c{number}"]),
            helper.make_node(activation, [f"{name}c{number}"], [f"{name}{number + 1}"]),
        ]
    shape = (batch, 4, 3, 5)
    given = helper.make_tensor_value_info(f"{name}0", TensorProto.FLOAT, shape)
    made = helper.make_tensor_value_info(f"{name}{len(layers)}", TensorProto.FLOAT, shape)
    path = folder / f"{name}{seed}.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "net", [given], [made], weights), ir_version=8), path)
    return path


class Cached:
    """Compiles with a cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, model: Path, target: str = "llvm", **options: Any) -> tuple[Artifact, int]:
        """Returns what was compiled, and the number of kernels that were not in the cache."""
        before = len(self.files)
        artifact = compile_model(model, compile_options("test", options, target), None, self.folder)
        return artifact, len(self.files) - before

    @property
    def files(self) -> list[Path]:
        """The files of kernels."""
        return [path for path in self.all_files if not path.name.startswith("entry-")]

    @property
    def all_files(self) -> list[Path]:
        cache = kernel_files(self.folder)
        assert cache is not None
        return [file.path for file in cache.files()]


@pytest.fixture
def cached(tmp_path: Path) -> Cached:
    return Cached(tmp_path / "cache")


def test_other_weights_compile_no_kernel(tmp_path: Path, cached: Cached) -> None:
    _, first = cached(network(tmp_path))
    again, new = cached(network(tmp_path, seed=1, name="other"))
    assert first > 0 and new == 0
    cold = nnefc.compile(network(tmp_path, seed=1, name="other"))
    assert again.code.objects == cold.code.objects and again.description == cold.description
    x = np.random.default_rng(2).standard_normal((1, 4, 3, 5)).astype(np.float32)
    (weight,) = (numpy_helper.to_array(w) for w in onnx.load(tmp_path / "other1.onnx").graph.initializer)
    expected = np.maximum(np.einsum("oc,nchw->nohw", weight[:, :, 0, 0].astype(np.float64), x), 0)
    np.testing.assert_allclose(again.run({"other0": x})["other1"], expected, atol=1e-5)


@pytest.mark.parametrize("batch", [1, "batch"])
def test_other_weights_under_the_same_names_compile_nothing(
    batch: int | str, tmp_path: Path, cached: Cached, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached(network(tmp_path, batch=batch))
    files, compiled = cached.all_files, Counter[str]()

    def counting(self: Objects, functions: Sequence[Any], path: Path) -> Callable[[], bytes]:
        compiled[path.stem.rstrip("0123456789")] += 1
        return compile(self, functions, path)

    compile = Objects.__call__
    monkeypatch.setattr(Objects, "__call__", counting)
    other, _ = cached(network(tmp_path, seed=1, batch=batch))
    assert compiled["entry"] == 0 and sorted(cached.all_files) == sorted(files)
    assert compiled["kernels"] == (0 if batch == 1 else 1)  # the function that derives sizes
    assert other.code.objects == nnefc.compile(network(tmp_path, seed=1, batch=batch)).code.objects


def test_a_further_layer_compiles_what_is_new(tmp_path: Path, cached: Cached) -> None:
    cached(network(tmp_path, layers=[RELU] * 3))
    longer = network(tmp_path, seed=1, layers=[RELU, RELU, SIGMOID, RELU], name="longer")
    artifact, new = cached(longer)
    assert new == 1
    assert artifact.code.objects == nnefc.compile(longer).code.objects
    artifact.emit("asm", tmp_path / "cached")
    nnefc.compile(longer).emit("asm", tmp_path / "compiled")
    for text in (tmp_path / "compiled").iterdir():
        assert text.read_bytes() == (tmp_path / "cached" / text.name).read_bytes()


def test_dynamic_dimensions(tmp_path: Path, cached: Cached) -> None:
    cached(network(tmp_path, batch="batch"))
    other = network(tmp_path, seed=1, batch="batch", name="other")
    artifact, new = cached(other)
    assert new == 0 and artifact.code.objects == nnefc.compile(other).code.objects
    assert cached(other, shape={"batch": "1..64"})[1] > 0  # other facts, other code


def test_kernels_alike_but_for_the_ranges_of_their_sizes_are_apart() -> None:
    """A half of the height is 17 to 40, a quarter 9 to 20."""
    shape = [1, 4, "height", 6]
    nodes = []
    for source, half, result in (("x", "a", "y"), ("a", "b", "z")):
        nodes += [
            helper.make_node("MaxPool", [source], [half], kernel_shape=[1, 1], strides=[2, 1]),
            helper.make_node("Softmax", [half], [result], axis=1),
        ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, None, 6]) for name in "yz"]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)], results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = nnefc.compile(model, shape={"height": "33..80"}).load()
    for height in (33, 80):
        x = np.random.default_rng(height).standard_normal((1, 4, height, 6)).astype(np.float32)
        found = session.run({"x": x})
        for name, step in (("y", 2), ("z", 4)):
            wanted = np.exp(x[:, :, ::step])
            np.testing.assert_allclose(found[name], wanted / wanted.sum(axis=1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("options", [{"strict": True}, {"target": "llvm -mcpu=nehalem"}])
def test_options_and_targets_have_kernels_of_their_own(tmp_path: Path, cached: Cached, options: dict[str, Any]) -> None:
    model = network(tmp_path)
    assert cached(model)[1] > 0
    assert cached(model, **options)[1] > 0


def test_what_is_watched_compiles_all(tmp_path: Path, cached: Cached) -> None:
    model, seen = network(tmp_path), set()
    cached(model)
    options = compile_options("test", {}, "llvm")
    compile_model(model, replace(options, observers=(lambda run: seen.add(run.step.name),)), None, cached.folder)
    assert "machine code" in seen


def test_a_changed_file_is_compiled_again(tmp_path: Path, cached: Cached) -> None:
    model = network(tmp_path)
    made, _ = cached(model)
    for file in cached.all_files:
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert cached(model)[0].code.objects == made.code.objects


def test_a_folder_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert Cached(tmp_path / "cache")(network(tmp_path))[1] == 0


def test_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    nnefc.compile(network(tmp_path))
    assert not (tmp_path / "nnefc").exists()
    monkeypatch.delenv("NNEFC_CACHE")
    nnefc.compile(network(tmp_path))
    assert list((tmp_path / "nnefc" / "kernels").iterdir())
