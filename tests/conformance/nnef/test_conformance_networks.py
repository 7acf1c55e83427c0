"""Whole networks against onnxruntime on their ONNX twins."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import khronos_documents
import numpy as np
import onnx
import onnxruntime
import pytest
from models import zoo

import nnefc

TOLERANCE = 1e-4  # of the largest value of the output

SMALL = 8  # divides the numbers of channels
SLOW = (
    "bvlc_alexnet",
    "densenet121",
    "googlenet",
    "inception_v1",
    "inception_v2",
    "resnet",
    "resnet50",
    "vgg",
    "vgg19",
    "zfnet512",
)
"""Of layers that others have, too."""


def some(names: Iterable[str]) -> list[object]:
    """Their names as parameters, of which `make test` takes those that have layers of their own."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in names]


def compare(model: Path, twin: Path, folder: Path) -> None:
    """Compile `model`, run the library and the twin on the same value, compare."""
    session = onnxruntime.InferenceSession(str(twin), providers=["CPUExecutionProvider"])
    (value,) = zoo.input_of(onnx.load(twin)).values()
    (expected,) = session.run(None, {session.get_inputs()[0].name: value})

    library = folder / "network.so"
    nnefc.compile(model).export(library)
    with nnefc.load(library, threads=2) as network:
        (found,) = network.run({network.inputs[0].name: value}).values()

    assert found.shape == expected.shape
    assert np.ptp(expected) > 0.01 * np.abs(expected).max(), "an output that is the same everywhere shows nothing"
    assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("name", some(zoo.NAMES))
@pytest.mark.slow
def test_small_network(name: str, tmp_path: Path) -> None:
    twins = zoo.write_twins(tmp_path, name, divide=SMALL)
    compare(twins.nnef, twins.onnx, tmp_path)


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("resnet50", "shufflenet")), "squeezenet"]
)
@pytest.mark.slow
def test_small_network_from_onnx(name: str, tmp_path: Path) -> None:
    twin = zoo.write_twins(tmp_path, name, divide=SMALL).onnx
    compare(twin, twin, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.NAMES)
def test_whole_network(name: str, tmp_path: Path) -> None:
    twins = zoo.write_twins(tmp_path, name)
    compare(twins.nnef, twins.onnx, tmp_path)


@pytest.mark.parametrize("name", some(khronos_documents.DOCUMENTS))
@pytest.mark.slow
def test_small_document(name: str, tmp_path: Path) -> None:
    model, twin = khronos_documents.write_twins(tmp_path, name, divide=SMALL)
    compare(model, twin, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", khronos_documents.DOCUMENTS)
def test_whole_document(name: str, tmp_path: Path) -> None:
    model, twin = khronos_documents.write_twins(tmp_path, name)
    compare(model, twin, tmp_path)
