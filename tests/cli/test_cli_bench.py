"""`nnefc bench`: libraries, and onnxruntime, time themselves in turns. No test depends on how long anything takes."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import helper
from onnx_models import graph, info, model, node, save
from runtime_samples import sample_library

import nnefc
from nnefc import load
from nnefc.cli import main
from nnefc.cli.commands.bench import _difference, _recorded, _shown
from nnefc.cli.commands.profiling.timing import Amount, Busy, Contender, Times, take_turns


def bench(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["bench", *map(str, arguments)])


def names_and_shapes(library: Path) -> list[list[tuple[str, str, tuple[int, ...]]]]:
    with load(library) as network:
        return [[(t.name, t.dtype, t.shape) for t in tensors] for tensors in (network.inputs, network.outputs)]


def onnx_twin(library: Path, path: Path, prefix: str = "") -> Path:
    """A model with the library's inputs, their names after a prefix, and with outputs of zeros."""
    inputs, outputs = names_and_shapes(library)
    values = [
        helper.make_tensor_value_info(prefix + name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        for name, dtype, shape in inputs
    ]
    made = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        for name, dtype, shape in outputs
    ]
    nodes = [
        helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(np.zeros(shape, np.dtype(dtype))))
        for name, dtype, shape in outputs
    ]
    twin = helper.make_graph(nodes, "twin", values, made)
    onnx.save(helper.make_model(twin, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_library_runs_as_often_as_asked() -> None:
    result = bench(sample_library(), "--runs", 7, "--threads", 1)
    assert result.exit_code == 0, result.output
    head, row, words = result.stdout.splitlines()[:3]
    assert head.split() == ["runs", "min", "median", "90", "%", "99", "%", "max", "runs/s"]
    assert row.split()[1] == "7"
    assert words == "milliseconds a run; 1 thread, 1 session"
    minimum, median, tenth, last, largest = map(float, row.split()[2:7])
    assert minimum <= median <= tenth <= last <= largest


def test_sessions_run_side_by_side_and_json_has_all_of_it() -> None:
    result = bench(sample_library(), "--runs", 4, "--sessions", 3, "--json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert (record["sessions"], record["results"][0]["runs"]) == (3, 12)
    times = record["results"][0]
    assert 0 < times["min"] <= times["mean"] <= times["max"]
    assert times["runs_per_second"] > 0 and times["bytes"]["constants"] > 0


def test_results_of_several_libraries_are_compared() -> None:
    same, other = sample_library("bench_same"), sample_library("bench_other", scale=2.0)
    record = json.loads(bench(same, same, other, "--runs", 2, "--json").stdout)
    assert [entry["largest_difference"] == 0 for entry in record["results"]] == [True, True, False]
    lines = bench(same, other, "--runs", 2).stdout.splitlines()
    assert lines[0].split()[-2:] == ["speed", "difference"]
    assert lines[1].split()[-2:] == ["1.00", "0"]


def test_networks_whose_inputs_have_other_names_are_given_the_same_values(tmp_path: Path) -> None:
    paths = []
    for name in ("x", "another"):
        made = model(graph([node("Exp", [name], ["y"])], [info(name, (5,))], [info("y", (5,))]))
        paths.append(tmp_path / f"{name}.so")
        nnefc.compile(save(made, tmp_path)).export(paths[-1])
    record = json.loads(bench(*paths, "--runs", 1, "--json").stdout)
    assert [entry["largest_difference"] for entry in record["results"]] == [0, 0]


@pytest.mark.parametrize("prefix", ["", "other_"])
def test_onnxruntime_takes_turns_on_the_same_inputs(prefix: str, tmp_path: Path) -> None:
    library = sample_library()
    twin = onnx_twin(library, tmp_path / "twin.onnx", prefix)
    record = json.loads(bench(library, "--runs", 3, "--against", twin, "--json").stdout)
    assert [entry["name"] for entry in record["results"]] == [str(library), f"onnxruntime {twin}"]
    assert record["results"][1]["runs"] == 3
    assert record["results"][1]["largest_difference"] == pytest.approx(1)  # all of it: the twin gives zeros


def test_mistakes_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = sample_library()
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    for arguments, text in (
        ([tmp_path / "none.so"], "does not exist"),
        ([library, "--input", "nobody=x.npy"], "'nobody' is not an input"),
        ([library, "--against", tmp_path / "none.onnx"], "there is no such file"),
        ([library, "--against", tmp_path / "broken.onnx"], "onnxruntime does not run"),
    ):
        result = bench(*arguments)
        assert (result.exit_code, result.stdout) == (1, "")
        assert text in result.stderr
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install onnxruntime" in bench(library, "--against", "x.onnx").stderr


def test_turns_end_when_all_have_run_enough() -> None:
    order: list[str] = []
    contenders = [Contender(name, [lambda name=name: order.append(name)]) for name in "ab"]
    times = take_turns(contenders, Amount(seconds=1.0, runs=3, warm_up=2))
    assert order[:4] == ["a", "a", "b", "b"]
    assert [len(each.runs) for each in times] == [3, 3]
    timed = take_turns(contenders, Amount(seconds=0.001, runs=None, warm_up=0))
    assert all(each.elapsed >= 0.001 and each.runs for each in timed)


def test_streams_run_at_the_same_time_and_their_errors_are_raised() -> None:
    together = threading.Barrier(3)
    met = Contender("met", [lambda: together.wait(timeout=30)] * 3)
    (times,) = take_turns([met], Amount(1.0, 1, 0))
    assert len(times.runs) == 3

    def fail() -> None:
        raise ValueError("a run that fails")

    with pytest.raises(ValueError, match="a run that fails"):
        take_turns([Contender("fails", [fail, lambda: None])], Amount(1.0, 2, 0))


def test_percentiles_are_of_the_runs() -> None:
    times = Times([float(i) for i in range(1, 101)], elapsed=50.0)
    assert (times.percentile(90), times.percentile(99), times.percentile(100)) == (90.0, 99.0, 100.0)
    assert (times.median, times.mean, times.rate) == (50.5, 50.5, 2.0)
    assert Times([3.0], 3.0).percentile(1) == 3.0


def test_work_of_this_process_is_not_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(0.0, 10.0, 5.0), (2.0, 16.0, 8.0)])
    monkeypatch.setattr(Busy, "_read", staticmethod(lambda: next(readings)))
    assert Busy().others() == 1.5  # 6 seconds of all, 3 of this process, in 2


def test_results_that_are_no_numbers_are_no_small_differences() -> None:
    one, nothing = np.float32([1, 2, 3]), np.float32([np.nan, 2, 3])
    assert _shown(_difference([one], [nothing])) == "wrong"
    assert _recorded(_difference([nothing], [one])) == "wrong"
    assert _difference([nothing], [nothing]) == 0
    assert _difference([nothing], [np.float32([np.nan, 2, 6])]) == 1
