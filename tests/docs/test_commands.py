"""Every command of every page: what it calls has such options, goals and files; and it runs, as it is written."""

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
from documented_commands import ELSEWHERE, NOT_RUN, PAGES, ROOT, Shown, blocks_of, inline_of, is_run_here, mistake_in

import nnefc


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


WITH_COMMANDS = [page for page in PAGES if blocks_of(page)]
HERE = [
    page
    for page in WITH_COMMANDS
    if named(page) not in ELSEWHERE and any(is_run_here(c) for block in blocks_of(page) for c in block)
]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_what_commands_call_is_there(page: Path) -> None:
    commands = [command for block in blocks_of(page) for command in block]
    wrong = {command.text: mistake for command in commands if (mistake := mistake_in(command, page))}
    mistakes = {command.text: mistake for command in inline_of(page) if (mistake := mistake_in(command, page))}
    wrong |= {text: mistake for text, mistake in mistakes.items() if "requires an argument" not in mistake}
    assert wrong == {}


def test_mistakes_are_seen() -> None:
    page = ROOT / "README.md"
    wrong = [
        *("nnefc compil model.onnx", "nnefc compile model.onnx --outputs m.so", "nnefc run m.so --random"),
        *("nnefc compile m.onnx --target aarch64-linux", "nnefc compare m.nnef --reference tflite", "make tests"),
        *(
            "python examples/none.py",
            "python benchmarks/run.py --every",
            "pip install 'nnefc[all]'",
            "nnefc --includes",
        ),
    ]
    assert [text for text in wrong if not mistake_in(Shown(text), page)] == []


def test_networks_that_pages_add_to_projects_have_targets_that_are_known() -> None:
    names = [name for page in PAGES for name in re.findall(r"nnefc_add_network\(.* TARGET (\S+)", page.read_text())]
    assert names
    assert [mistake_in(Shown(f"nnefc compile m --target {name}"), ROOT) for name in names] == [""] * len(names)


def test_every_page_is_run_by_a_test_that_is_there() -> None:
    for page, tests in ELSEWHERE.items():
        assert (ROOT / page) in WITH_COMMANDS, page
        for test in tests:
            file, _, name = test.partition("::")
            assert f"def {name}(" in (ROOT / file).read_text(), test
    texts = [command.text for page in WITH_COMMANDS for block in blocks_of(page) for command in block]
    assert [pattern for pattern in NOT_RUN if not any(re.match(pattern, text) for text in texts)] == []


NETWORK = """<ir_version: 8, opset_import: ["" : 17]>
net (float[n, 3, 16, 16] image) => (float[n, 5] scores) {
    c = Conv <pads = [1, 1, 1, 1]> (image, filter)
    d = Relu (c)
    e = GlobalAveragePool (d)
    f = Flatten (e)
    scores = Gemm (f, weights)
}"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What pages take for granted: the examples, a model, inputs for it, libraries of it."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for name in ("targets", "tests", "docs", "packaging"):
        (tmp_path / name).symlink_to(ROOT / name)
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(NETWORK)
    for name, shape in {"filter": (4, 3, 3, 3), "weights": (4, 5)}.items():
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
        )
    onnx.save(model, tmp_path / "model.onnx")
    shutil.copytree(ROOT / "examples" / "digits" / "model.nnef", tmp_path / "model.nnef")
    np.savez(tmp_path / "images.npz", image=random.random((8, 3, 16, 16), np.float32))
    random.random(64, np.float32).tofile(tmp_path / "image.f32")
    nnefc.compile(tmp_path / "model.onnx").export(tmp_path / "model.so")
    nnefc.compile(ROOT / "examples" / "digits" / "model.nnef").export(tmp_path / "digits.so")
    for name in ("old.so", "new.so"):
        shutil.copy(tmp_path / "model.so", tmp_path / name)
    for program, stands_for in (("cc", "cc"), ("c++", "c++")):
        script = tmp_path / "bin" / program
        script.parent.mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang {stands_for} "$@"\n')
        script.chmod(0o755)
    return tmp_path


def write_programs(page: str, folder: Path) -> None:
    """Writes the last whole program of each language that a part of a page shows, as main.c or main.cpp."""
    for language in ("c", "cpp"):
        shown = [text for text in re.findall(rf"^```{language}\n(.*?)^```", page, re.M | re.S) if "int main" in text]
        if shown:
            (folder / f"main.{language}").write_text(shown[-1])


@pytest.mark.slow
@pytest.mark.parametrize("page", HERE, ids=named)
def test_commands_run_as_they_are_written(page: Path, folder: Path) -> None:
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    begin = folder / page.parent.relative_to(ROOT) if page.is_relative_to(ROOT / "examples") else folder
    for image in (folder / "image.f32",):
        if begin != folder:
            shutil.copy(image, begin)
    text = page.read_text()
    for block in blocks_of(page):
        write_programs(text.partition(block[0].text)[0], begin)
        script = "\n".join(command.text for command in block if is_run_here(command))
        done = subprocess.run(
            ["sh", "-e", "-c", script],
            cwd=begin,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
