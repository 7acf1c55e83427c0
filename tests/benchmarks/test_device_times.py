"""What runs on a machine with a GPU and neither a compiler of ours nor PyTorch, on the stand-in for the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from emulate import emulate
from emulated_networks import on_cuda
from fake_driver import driver_folder
from small_networks import Net

import nnefc

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "cuda" / "on_device.py"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two libraries of a network as `libraries.py` writes them, one with wrong results to compare with; kernels."""
    folder = tmp_path_factory.mktemp("libraries")
    net = Net(seed=4)
    path = folder / "network.onnx"
    path.write_bytes(net.model([net.do("Relu", net.floats(10, 3, 8))]).SerializeToString())
    inputs = np.random.default_rng(0).standard_normal((10, 3, 8), dtype=np.float32)  # as `inputs.drawn` has them
    with on_cuda() as made:
        nnefc.compile(path)
        (artifact,) = made
        for name, wanted in (("right", np.maximum(inputs, 0)), ("wrong", inputs)):
            own = folder / name
            own.mkdir()
            artifact.export(own / "network.so")
            np.savez(own / "wanted.npz", **{artifact.description.outputs[0].name: wanted[::5]})
            about = {"network": "relu", "batch": 1, "precision": "fp32", "seconds": 1.0, "commit": "0"}
            shapes = {artifact.description.inputs[0].name: list(inputs.shape)}
            (own / "about.json").write_text(json.dumps({**about, "inputs": shapes}))
        kernels = emulate(artifact.code.kernels.source, folder)
    (folder / "kernels").symlink_to(kernels.path)
    return folder


def run(libraries: Path, out: Path, *options: str, code: int = 0) -> dict[str, dict[str, float]]:
    """What the script writes, by the libraries' names; it ends with a code."""
    environment = {"LD_LIBRARY_PATH": str(driver_folder()), "NNEFC_EMULATED_KERNELS": str(libraries / "kernels")}
    command = [sys.executable, str(SCRIPT), str(libraries), "--out", str(out), *options]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    written = json.loads(out.read_text())
    assert (written["device"], written["cuda"]) == ("Emulated GPU", "13.0")
    return {row["name"]: row for row in written["rows"]}


def test_results_come_first_and_a_second_run_goes_on(libraries: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    out.write_text(json.dumps({"rows": [{"name": "wrong", "error": 7.0, "own": 3.0}]}))
    rows = run(libraries, out, code=1)
    assert rows["right"]["error"] == 0 and rows["right"]["own"] > 0 and rows["right"]["own host"] > 0
    assert rows["wrong"]["error"] == 7 and rows["wrong"]["own"] == 3  # of an earlier run
    out.unlink()
    rows = run(libraries, out, "wrong", code=1)
    assert 0.5 < rows["wrong"]["error"] <= 1


def test_nothing_begins_when_the_time_is_over(libraries: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    run(libraries, out, "right")
    out.write_text(json.dumps(json.loads(out.read_text()) | {"rows": []}))
    assert run(libraries, out, "--seconds", "0") == {}
