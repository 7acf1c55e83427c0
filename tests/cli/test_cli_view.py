"""`nnefc view`: pages of models of all formats, before and after passes, also as a browser shows them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import CHROMIUM
from click.testing import CliRunner, Result
from onnx_models import graph, info, model, node, save, tensor

from nnefc.cli import main

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "model.nnef"
PNNX = ROOT / "tests" / "data" / "pnnx" / "convolutions.pnnx.param"


def view(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["view", *map(str, arguments)])


def facts(page: Path) -> list[list[list[list[str]]]]:
    """The facts of the boxes of each graph."""
    text = page.read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="application/json" id="facts">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)  # type: ignore[no-any-return]


def titles(boxes: list[list[list[str]]]) -> list[str]:
    return [box[0][1] for box in boxes]


def shown(page: Path, folder: Path, fragment: str = "") -> str:
    """The page as a browser has it after its scripts, without a network."""
    done = subprocess.run(
        [
            *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"),
            *(f"--user-data-dir={folder / 'browser'}", "--dump-dom", f"file://{page}#{fragment}"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A named convolution with a bias, an activation, and a branch."""
    rng = np.random.default_rng(0)
    weights = [tensor("w", rng.standard_normal((4, 3, 3, 3))), tensor("b", rng.standard_normal(4))]
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], name="stem<1>", pads=[1] * 4, strides=[2, 2]),
        node("Relu", ["c"], ["r"]),
        node("Add", ["c", "r"], ["y"], name="join"),
    ]
    made = model(graph(nodes, [info("x", ("batch", 3, 8, 8))], [info("y", ("batch", 4, 4, 4))], weights))
    return save(made, tmp_path_factory.mktemp("view"))


def test_a_model_is_shown_as_its_file_says_it(network: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = view(network, "-o", page)
    assert result.exit_code == 0, result.output
    (boxes,) = facts(page)
    assert titles(boxes) == ["input", "Conv", "Relu", "Add", "output"]
    conv: Any = dict(boxes[1])
    assert conv["name"] == "c" and conv["type"] == "float32[batch, 4, 4, 4]" and "stem<1>" in conv["in the model"]
    assert "stride = (2, 2)" in conv["Convolution"]
    assert (conv["w"], conv["constants"]) == ("float32[4, 3, 3, 3], 432 bytes", "448 bytes")
    text = page.read_text(encoding="utf-8")
    assert not re.search(r'(src|href)="', text) and "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert text.count("<path") == 5 and text.count("<script") == 3
    (links,) = json.loads(re.findall(r'id="links">(.*?)</script>', text, re.DOTALL)[0])
    assert links["edges"][0] == [0, 1, "x: float32[batch, 3, 8, 8]"] and links["kinds"].keys() > {"convolution"}
    about = dict(links["about"])
    assert about["inputs"] == "x: float32[batch, 3, 8, 8]" and about["parameters"].startswith("112 ")
    assert about["dynamic dimensions"].startswith("batch: 0 ") and "outputs" in about


def test_passes_are_shown_next_to_it(network: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = view(network, "-o", page, "--after", "fold affine", "--after", "compiled")
    assert result.exit_code == 0, result.output
    _, folded, compiled = facts(page)
    assert "nn.conv2d" in titles(folded)
    assert len(compiled) < len(folded)
    assert any({"c", "r", "y"} <= set(dict(box).get("computes", "").split(", ")) for box in compiled)
    wrong = view(network, "-o", page, "--after", "fold afine")
    assert wrong.exit_code == 1 and "did you mean 'fold affine'" in wrong.stderr


@pytest.mark.parametrize(("path", "operators"), [(DIGITS, {"conv", "relu", "softmax"}), (PNNX, {"nn.Conv2d"})])
def test_other_formats(path: Path, operators: set[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = view(path, "-o", page)
    assert result.exit_code == 0, result.output
    assert operators <= set(titles(facts(page)[0]))


def test_what_is_in_branches_is_a_graph_of_its_own(tmp_path: Path) -> None:
    import onnx

    bodies = {
        name: onnx.helper.make_graph([node(op, ["x"], [f"{name}_y"])], "body", [], [info(f"{name}_y")])
        for name, op in (("then_branch", "Tanh"), ("else_branch", "Abs"))
    }
    nodes = [
        node("ReduceSum", ["x"], ["total"], keepdims=0),
        node("Greater", ["total", "zero"], ["positive"]),
        node("If", ["positive"], ["y"], **bodies),
    ]
    path = save(model(graph(nodes, initializers=[tensor("zero", 0.0)])), tmp_path)
    result = view(path, "-o", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    whole, then, other = facts(tmp_path / "page.html")
    assert "If" in titles(whole) and "Tanh" in titles(then) and "Abs" in titles(other)


def test_mistakes_are_reported(network: Path, tmp_path: Path) -> None:
    assert "not the name of a page" in view(network, "-o", tmp_path / "page.txt").stderr
    assert "there is no folder" in view(network, "-o", tmp_path / "none" / "page.html").stderr
    assert view(network, "-o", tmp_path / "page.html", "--precision", "auto").exit_code == 2


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_a_browser_searches_and_shows_facts(network: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert view(network, "-o", page, "--after", "compiled").exit_code == 0
    without_options = shown(page, tmp_path)
    assert without_options.count('class="graph shown"') == 1 and 'viewBox="-12' in without_options
    found = shown(page, tmp_path, "find=stem")
    assert 'class="box found chosen"' in found and "1 of 1" in found
    panel = found.partition("<aside>")[2].partition("</aside>")[0]
    assert "stride = (2, 2)" in panel and panel.index("reads from") < panel.index("is read by")
    assert "multiply-adds" in without_options.partition("<aside>")[2].partition("</aside>")[0]
    other = shown(page, tmp_path, "graph=1&find=nothing-like-it")
    assert "0 found" in other and "searched" not in other.partition("<body>")[2].partition("<script")[0]
