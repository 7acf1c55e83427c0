"""The digits example: its files, its training's arithmetic, and what `make run` prints."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import nnef
import numpy as np
import pytest

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MIN_RIGHT = 0.98


@pytest.fixture(scope="module")
def training() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_train", DIGITS / "train.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trained_values() -> dict[str, np.ndarray]:
    """By label, as the `nnef` package reads them."""
    graph = nnef.load_graph(str(DIGITS / "model.nnef"))
    variables = (operation for operation in graph.operations if operation.name == "variable")
    return {o.attribs["label"]: graph.tensors[o.outputs["output"]].data for o in variables}


def test_the_trained_network_is_right_on_images_held_back(training: ModuleType) -> None:
    held = np.load(DIGITS / "test.npz")
    assert len(held["labels"]) >= 300
    answers = training.classify(held["images"], trained_values()).argmax(1)
    assert (answers == held["labels"]).mean() >= MIN_RIGHT


def test_model_and_images_are_small() -> None:
    files = [DIGITS / "test.npz", *(file for file in (DIGITS / "model.nnef").rglob("*") if file.is_file())]
    assert sum(file.stat().st_size for file in files) < 1_000_000


def test_the_gradients_of_training_are_those_of_its_loss(training: ModuleType) -> None:
    rng = np.random.default_rng(3)
    learned, measured = training.initial(rng)
    learned = {name: value.astype(np.float64) for name, value in learned.items()}
    learned["norm1/offset"] += rng.standard_normal(learned["norm1/offset"].shape)
    images, labels = rng.random((4, 1, 8, 8)), np.array([1, 5, 0, 5])

    def loss() -> float:
        found: float = training.step(images, labels, learned, measured)[0]
        return found

    gradient = training.step(images, labels, learned, measured)[1]
    for name, value in learned.items():
        for position in rng.integers(0, value.size, 3):
            at = np.unravel_index(position, value.shape)
            kept, step = value[at], 1e-6
            value[at] = kept + step
            above = loss()
            value[at] = kept - step
            below = loss()
            value[at] = kept
            assert gradient[name][at] == pytest.approx((above - below) / (2 * step), rel=2e-4, abs=1e-8), name


@pytest.mark.slow
def test_running_it_compiles_classifies_and_says_how_well() -> None:
    done = subprocess.run([sys.executable, DIGITS / "run.py"], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found = re.search(r"Right on (\d+) of (\d+) held-back images", done.stdout)
    assert found, done.stdout
    right, count = map(int, found.groups())
    assert count == len(np.load(DIGITS / "test.npz")["labels"])
    assert right >= MIN_RIGHT * count
    assert any(half in done.stdout for half in "▀▄█")
