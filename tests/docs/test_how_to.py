"""The pages on how to do something: their commands and programs run, on networks that are small."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
import small_folders
from language_models import WORDS, write_model

import nnefc

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "how-to"
ADDING = sorted(PAGES.glob("add-*.md"))


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)


def shell(commands: str, folder: Path) -> str:
    """What commands print that find this environment's `nnefc` and `python`."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-e", "-c", commands],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": path},
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like the repository's root to a program, where it runs."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def network(text: str, path: Path) -> None:
    model = onnx.parser.parse_model(text)
    onnx.save(model, path)


def scaled(folder: Path) -> np.ndarray:
    """What the library `model.so` gives for 0 to 5."""
    with nnefc.load(folder / "model.so") as model:
        found: np.ndarray = model(np.arange(6, dtype=np.float32))
        return found


SCALE = """<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>
net (float[6] x) => (float[6] y) { y = com.example.Scale <by = 3.0> (x) }"""

IN_C = """
from nnefc import custom

SOURCE = custom.CSource.file("scale.c")


@custom.register(onnx="com.example::Scale")
class Scale(custom.CustomOperator):
    by: float = 2.0

    def lower(self, at, x):
        shape = custom.shape_of(x)
        return custom.call_c(at, SOURCE, "scale", [x], [(shape, "float32")], shape[0], self.by)
"""


@pytest.mark.slow
def test_the_page_on_operators_of_ones_own(folder: Path) -> None:
    (operators,), (commands,) = blocks("custom-operator.md", "python"), blocks("custom-operator.md", "sh")
    network(SCALE, folder / "model.onnx")
    (folder / "operators.py").write_text(operators)
    assert "Scale" in shell(commands, folder)
    np.testing.assert_array_equal(scaled(folder), 3 * np.arange(6))
    (source,) = blocks("custom-operator.md", "c")
    (folder / "scale.c").write_text(source)
    (folder / "operators.py").write_text(IN_C)
    shell(commands, folder)
    np.testing.assert_array_equal(scaled(folder), 3 * np.arange(6))


MEANS = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1, 3, 224, 224] image) => (float[1, 3] scores) {
    means = GlobalAveragePool (image)
    scores = Flatten (means)
}"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="needs: node")
def test_the_page_on_browsers(folder: Path) -> None:
    network(MEANS, folder / "model.onnx")
    shell(blocks("browser.md", "sh")[0], folder)
    for name in ("udot", "sdot", "relaxed"):  # of which the engine may take one
        shutil.copy(folder / "model.wasm", folder / f"model.{name}.wasm")
    for name in ("nnefc.mjs", "nnefc_module.mjs", "nnefc_text.mjs"):
        shutil.copy(ROOT / "targets" / "runtime" / name, folder)
    default_choice, chosen, _ = blocks("browser.md", "js")
    (folder / "default_choice.mjs").write_text(f"{default_choice}console.log(scores.length);\n")
    begin = default_choice.partition("\n")[0]
    (folder / "chosen.mjs").write_text(f"{begin}\n{chosen}console.log(model.target);\n")
    assert shell("node default_choice.mjs", folder) == "3\n"
    assert shell("node chosen.mjs", folder) == "wasm32-wasi\n"


@pytest.mark.slow
def test_the_page_on_language_models(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a random model of few words, for which tokens and contexts are smaller numbers."""

    def smaller(text: str) -> str:
        text = text.replace("4096", "128").replace("--sample 40", "--sample 9")
        return re.sub(r"\[\[?1, .*\]", lambda found: re.sub(r"\d\d+", lambda n: str(int(n[0]) % WORDS), found[0]), text)

    write_model(folder / "model.gguf", tied=False)
    one, several, _ = (smaller(text) for text in blocks("language-model.md", "sh")[1:])
    _, first, generated, _, side_by_side = (smaller(text) for text in blocks("language-model.md", "python"))
    names = {"nnefc": nnefc, "np": np}
    shell(one, folder)
    exec(first, names)
    exec(generated, names)
    assert len(capsys.readouterr().out.splitlines()) <= 100
    shell(several, folder)
    exec(side_by_side, names)
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} <= {"0", "1", "2"}


@pytest.mark.slow
def test_the_commands_of_the_reference_of_language_models(folder: Path) -> None:
    """With random models of few words, in a file and in a folder."""
    write_model(folder / "model.gguf", tied=False, layers=1)
    tensors = {name: ("F32", value.shape, value.tobytes()) for name, value in small_folders.values().items()}
    small_folders.write(folder / "SmolLM2-135M", small_folders.CONFIG, model=small_folders.safetensors(tensors))
    shell(blocks("../language-models.md", "sh")[0].replace("4096", "128"), folder)
    assert all((folder / name).exists() for name in ("model.so", "model.nnef"))


@pytest.mark.parametrize("page", ADDING, ids=lambda page: page.stem)
def test_tables_that_pages_name_are_in_the_files_that_they_link_to(page: Path) -> None:
    """Names in capitals, in a paragraph with a link to a file."""
    for paragraph in re.split(r"\n\n|\n(?=\d\. |   - )", page.read_text()):
        links = [page.parent / link for link in re.findall(r"\]\(([^)#:]+\.(?:py|c))\)", paragraph)]
        if links:
            text = "".join(link.read_text() for link in links)
            assert [name for name in re.findall(r"`(_?[A-Z][A-Z_]{3,})`", paragraph) if name not in text] == []


def test_the_code_of_the_page_on_operators_is_in_the_source() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "compiler").rglob("activation.py"))
    examples = blocks("add-an-operator.md", "python")
    assert len(examples) == 6
    assert [example for example in examples if example not in sources] == []


def test_the_page_on_operators_writes_all_generated_pages_of_operators() -> None:
    text = (PAGES / "add-an-operator.md").read_text()
    commands = re.findall(r"^```\n(python .*?)^```", text, re.MULTILINE | re.DOTALL)[0].splitlines()
    pages = {"operators", "nnef-writing", "nnef-operations", "onnx-operators", "pnnx-operators", "tflite-operators"}
    assert {path.stem for path in (ROOT / "docs").glob("*.md") if re.search("operat|writing", path.stem)} == pages
    assert len(commands) == len(pages)


@pytest.mark.parametrize("page", ADDING, ids=lambda page: page.stem)
def test_commands_that_pages_name_are_there(page: Path) -> None:
    for command in re.findall(r"python (?:-m )?([\w./]+)", page.read_text()):
        folder, _, tail = command.partition(".")
        position = ROOT / "compiler" / tail.replace(".", "/") if folder == "nnefc" else ROOT / command
        alternatives = [position, position.with_suffix(".py"), ROOT / tail.replace(".", "/")]
        assert any(path.exists() for path in alternatives), command


NEGATED = """<ir_version: 8, opset_import: ["" : 17]>
net (float[6] x) => (float[6] y) { a = Neg (x) b = Neg (a) y = Exp (b) }"""


@pytest.mark.slow
def test_a_pass_of_a_user(folder: Path) -> None:
    network(NEGATED, folder / "model.onnx")
    own, times, _ = blocks("add-a-pass.md", "python")
    (folder / "own.py").write_text(own + times)
    printed = shell("python own.py", folder)
    assert "drop double negation" not in printed and printed.splitlines()[-1].endswith("total, of processor time")
    assert "negative" in (folder / "dump" / "000_network.py").read_text()
    assert "negative" not in next((folder / "dump").glob("*_drop_double_negation.py")).read_text()
    assert np.allclose(scaled(folder), np.exp(np.arange(6)))
