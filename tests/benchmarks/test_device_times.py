"""What runs on a machine with a GPU and neither a compiler of ours nor PyTorch, on the stand-in for the driver."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import device_page
import libraries
import numpy as np
import onnxruntime_peers
import products
import pytest
import stuck_steps
from device_steps import error
from emulate import emulate
from emulated_networks import without_machine_code
from fake_driver import driver_folder
from inputs import drawn
from on_device import PYTORCH, StepError, Worker, steps
from small_networks import Net

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "cuda" / "on_device.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library as `libraries.py` writes it, the same with other results to compare with, and a file that is none."""
    folder = tmp_path_factory.mktemp("libraries")
    net = Net(seed=4)
    path = folder / "relu.onnx"
    path.write_bytes(net.model([net.do("Relu", net.floats(10, 3, 8))]).SerializeToString())
    with without_machine_code():
        libraries.compile_network(folder, path, 1, 90, ["fp32"])
    right, wrong, broken = folder / "relu-1-fp32", folder / "wrong", folder / "broken"
    (folder / "kernels").symlink_to(emulate((right / "kernels.cu").read_text(), folder).path)
    for copy in (wrong, broken):
        shutil.copytree(right, copy)
    ((name, wanted),) = np.load(right / "wanted.npz").items()
    np.savez(wrong / "wanted.npz", **{name: wanted - 1})
    (broken / "network.so").write_bytes(b"no library")
    return folder


def run(folder: Path, out: Path, *options: str, code: int = 0) -> tuple[dict[str, dict[str, Any]], str]:
    """What the script writes, by the libraries' names, and prints; it ends with a code."""
    environment = {"LD_LIBRARY_PATH": str(driver_folder()), "NNEFC_EMULATED_KERNELS": str(folder / "kernels")}
    command = [sys.executable, str(SCRIPT), str(folder), "--out", str(out), "--peers", "", *options]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    if not out.exists():
        return {}, done.stdout
    written = json.loads(out.read_text())
    assert (written["device"], written["cuda"]) == ("Emulated GPU", "13.0")
    return {row["name"]: row for row in written["rows"]}, done.stdout


def test_every_step_is_written_and_a_failure_ends_one_step_alone(folder: Path, tmp_path: Path) -> None:
    rows, printed = run(folder, tmp_path / "results.json", code=1)
    assert rows["relu-1-fp32"]["error"] == 0 and rows["relu-1-fp32"]["own"] > 0 and rows["relu-1-fp32"]["own host"] > 0
    assert 0.5 < rows["wrong"]["error"] < float("inf") and rows["wrong"]["own"] > 0
    assert "LoadError" in rows["broken"]["error failed"] and "LoadError" in rows["broken"]["own failed"]
    assert "2 of 3 libraries checked; wrong results: wrong\n" in printed
    lines = device_page.body([rows["relu-1-fp32"], rows["wrong"]])
    assert any(line.startswith("| `relu` | 1 | fp32 |") for line in lines)


def test_a_second_run_goes_on_with_what_is_missing(folder: Path, tmp_path: Path) -> None:
    about = json.loads((folder / "wrong" / "about.json").read_text())
    known = {key: about[key] for key in ("network", "batch", "precision", "seconds", "commit")}
    rows = [
        {**known, "name": "wrong", "error": 7.0, "own failed": "a traceback"},
        {**known, "name": "relu-1-fp32", "error": 7.0, "own": 7.0, "commit": "of another compiler"},
    ]
    out = tmp_path / "results.json"
    out.write_text(json.dumps({"rows": rows}))
    found, _ = run(folder, out, "wrong", "relu-1-fp32", code=1)
    assert found["wrong"]["error"] == 7 and found["wrong"]["own"] > 0 and "own failed" not in found["wrong"]
    assert found["relu-1-fp32"]["error"] == 0


def test_nothing_begins_when_the_time_is_over(folder: Path, tmp_path: Path) -> None:
    rows, printed = run(folder, tmp_path / "results.json", "relu-1-fp32", "--seconds", "0")
    assert rows == {}
    assert "0 of 1 libraries checked" in printed and "goes on with the other 2 steps" in printed


def test_a_machine_without_a_driver_is_named(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(folder), "--out", str(tmp_path / "results.json")]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no GPU can be used: OSError: libcuda.so.1" in done.stderr


def test_a_step_that_takes_too_long_is_ended() -> None:
    with pytest.raises(StepError, match="took more than 1 s") as caught:
        Worker(stuck_steps.wait).do("error", {}, 1)
    assert caught.value.is_late


def test_a_process_that_ends_is_an_error_of_its_step() -> None:
    with pytest.raises(StepError, match="the process ended with 3") as caught:
        Worker(stuck_steps.end).do("error", {}, 30)
    assert not caught.value.is_late


def test_what_has_failed_is_tried_last() -> None:
    rows = {"a": {"error failed": "a traceback", "precision": "fp32", "network": "x"}, "b": {"own": 1.0}}
    found = [(part, row is rows["a"]) for part, row in steps(rows, ["error", "own"])]
    assert found == [("error", False), ("own", True), ("error", True)]


@pytest.mark.parametrize(
    ("found", "wanted", "expected"),
    [
        ([1, 2], [1, 2], 0),
        ([1, 3], [1, 2], 0.5),
        ([1, np.nan], [1, 2], np.inf),
        ([1, np.inf], [1, np.inf], 0),
        ([np.nan, 2], [np.nan, 2], 0),
        ([0, 0], [0, 0], 0),
    ],
)
def test_errors_are_parts_of_the_largest_value(found: list[float], wanted: list[float], expected: float) -> None:
    every = np.repeat(np.array(found), 5)
    assert error(every, np.array(wanted)) == expected


def test_networks_of_pytorch_are_those_that_it_can_time() -> None:
    source = (SCRIPT.parent / "torch_peers.py").read_text()  # torch need not be installed
    (table,) = (
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "NETWORKS"
    )
    assert isinstance(table, ast.Dict)
    assert {key.value for key in table.keys if isinstance(key, ast.Constant)} == set(PYTORCH)


def test_onnxruntime_runs_what_was_compiled(folder: Path) -> None:
    about = json.loads((folder / "relu-1-fp32" / "about.json").read_text())
    found = onnxruntime_peers.milliseconds("cpu", folder / about["model"], "fp32", drawn(about["inputs"]))
    assert found > 0


@pytest.mark.slow(20)
def test_products_by_several_tiles_are_checked_and_timed(tmp_path: Path) -> None:
    with without_machine_code():
        for number in range(2):
            products.compile_product(tmp_path, (64, 64, 64), 90, 1, number)
    names = [path.parent.name for path in tmp_path.glob("*/about.json")]
    assert {name.split("-")[1] for name in names} == {"mma", "wgmma"}
    for name in names:
        own = tmp_path / name
        (tmp_path / "kernels").unlink(missing_ok=True)
        (tmp_path / "kernels").symlink_to(emulate((own / "kernels.cu").read_text(), own).path)
        rows, _ = run(tmp_path, tmp_path / "results.json", name)
        assert rows[name]["error"] < 1e-3 and rows[name]["own"] > 0
