"""`nnefc compare`: what it prints, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from onnx_models import graph, info, model, node, save, tensor

import nnefc
from nnefc.cli import main
from nnefc.cli.commands.compare import DIFFERENT


def compare(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["compare", *map(str, arguments)])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    weights = tensor("w", np.random.default_rng(0).standard_normal((6, 4)))
    nodes = [node("MatMul", ["x", "w"], ["product"]), node("Softmax", ["product"], ["y"], axis=-1)]
    made = model(graph(nodes, [info("x", (5, 6))], [info("y", (5, 4))], [weights]))
    return save(made, tmp_path_factory.mktemp("compare"))


def test_the_table(path: Path) -> None:
    result = compare(path)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["error", "largest", "mean", "range", "type", "shape", "tensor", "of"]
    assert "product" in lines[1] and "MatMul" in lines[1]
    assert lines[-1] == "compared with onnxruntime: 2 tensors and 1 outputs, 0 of them too far away"


def test_the_first_that_is_too_far_away_is_named_and_tells_the_status(path: Path, tmp_path: Path) -> None:
    values = tmp_path / "values.npz"
    np.savez(values, x=np.random.default_rng(2).standard_normal((5, 6)).astype(np.float32))
    result = compare(path, "--precision", "bf16", "--max-error", 1e-6, "--inputs", values, "--json")
    assert result.exit_code == DIFFERENT, result.output
    record = json.loads(result.stdout)
    assert (record["close"], record["first"], record["reference"]) == (False, "product", "onnxruntime")
    text = compare(
        path,
        "--precision",
        "bf16",
        "--max-error",
        1e-6,
        "--input",
        f"x={values}",
        "--passes",
        "--html",
        tmp_path / "page.html",
    )
    assert text.exit_code == DIFFERENT, text.output
    assert "first too far away: product, of " in text.stdout
    assert "the first pass after which the outputs are wrong: " in text.stdout
    assert text.stdout.splitlines()[1].startswith("!")
    assert max(map(len, text.stdout.splitlines()[:5])) <= 100
    page = (tmp_path / "page.html").read_text()
    assert "<tr class=far><td>product</td>" in page and 'class="share"' in page
    assert '["error", "' in page and "first too far away: product" in page


def test_a_library_is_compared_by_its_outputs(path: Path, tmp_path: Path) -> None:
    library = tmp_path / "network.so"
    nnefc.compile(path).export(library)
    result = compare(path, "--library", library, "--random", 7)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0].split()[-1] == "output"


def test_precision_auto_is_refused(path: Path) -> None:
    assert compare(path, "--precision", "auto").exit_code == 2
