"""16-bit floats on processors: what `--precision` multiplies, against sums in float64 of the same rounded operands."""

from __future__ import annotations

import functools
import io
import tempfile
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from emulated_amx import EMULATED, emulation
from emulation import run_on, with_glibc
from numpy_reference import convolve
from rich.console import Console
from small_networks import Net

import nnefc
from nnefc.driver import auto_precision as narrowest
from nnefc.driver.artifact import Artifact
from nnefc.driver.terminal_progress import ProgressPhases
from nnefc.operators.dtypes import numpy_dtype
from nnefc.support.diagnostics import CompileError
from nnefc.targets.description.library import LibraryDescription

_TYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp16": np.dtype(np.float16)}

# Groups, inputs, outputs, size, kernel, stride.
_CONVOLUTIONS = (
    (1, 32, 48, 9, 1, 1),
    (1, 19, 21, 8, 3, 2),
    (1, 3, 16, 11, 5, 1),
    (2, 32, 64, 5, 3, 1),
    (4, 12, 20, 5, 1, 1),
    (1, 202, 16, 3, 1, 1),
    (1, 3, 1, 9, 5, 1),
    (1, 64, 1, 7, 3, 1),
)
_PRODUCTS = ((16, 64, 48), (16, 64, 48), (1, 200, 33), (7, 93, 5), (5, 401, 40), (3, 2018, 16))

_COOPERLAKE = "llvm -mcpu=cooperlake"
_SAPPHIRE_RAPIDS = "llvm -mcpu=sapphirerapids"
_EMULATED = f"{_SAPPHIRE_RAPIDS}{EMULATED}"  # its matrix unit, in C
_ARM = with_glibc("arm", "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n2", "qemu-aarch64", "-cpu", "max")


class _Contractions:
    """A network of contractions of odd sizes, each with an input of its own."""

    def __init__(self, scale: float = 1.0, step: int = 1) -> None:
        """Weights times `scale`; every `step`-th of the contractions."""
        net, rng, results = Net(seed=5), np.random.default_rng(6), []
        self.operands: list[tuple[np.ndarray, np.ndarray]] = []
        for groups, inputs, outputs, size, kernel, stride in _CONVOLUTIONS[::step]:
            x = net.floats(2, inputs, size, size)
            w = (rng.standard_normal((outputs, inputs // groups, kernel, kernel)) * scale).astype(np.float32)
            w = np.full_like(w, scale) if outputs == 1 else w  # adds up what is under its window
            window = {"strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": groups}
            results.append(net.do("Conv", x, net.constant(w), **window))
            self.operands.append((net.inputs[x], w))
        self.windows = [(groups, kernel, stride) for groups, *_, kernel, stride in _CONVOLUTIONS[::step]]
        for rows, depth, columns in _PRODUCTS[::step]:
            x = net.floats(1, rows, depth) if depth == 93 else net.floats(rows, depth)
            w = (rng.standard_normal((depth, columns)) * scale).astype(np.float32)
            w = w[None] if depth == 93 else w
            results.append(net.do("MatMul", x, net.constant(w)))
            self.operands.append((net.inputs[x], w))
        self.model, self.inputs = net.model(results), net.inputs

    def exact(self, number: int, change: np.dtype | None, power: int = 1) -> np.ndarray:
        """Result `number` in float64, of operands rounded to a type and taken to a power."""
        data, weights = (a.astype(change or a.dtype).astype(np.float64) ** power for a in self.operands[number])
        if number >= len(self.windows):
            return data @ weights
        groups, kernel, stride = self.windows[number]
        return convolve(data, weights, [stride] * 2, [kernel // 2] * 4, [1, 1], groups)


@functools.cache
def _contractions(scale: float = 1.0, step: int = 1) -> _Contractions:
    return _Contractions(scale, step)


def _compiled(case: _Contractions, folder: Path, target: str, precision: str, **options: object) -> Artifact:
    path = folder / "network.onnx"
    onnx.save(case.model, path)
    with emulation(target) as emulated:
        return nnefc.compile(path, emulated, precision=precision, strict=True, **options)


@functools.cache
def _lacking(target: str) -> str:
    """Returns why code for the target does not run here, or "": a small network shows it."""
    net = Net(seed=1)
    with tempfile.TemporaryDirectory() as folder, emulation(target) as llvm_target:
        path = Path(folder) / "network.onnx"
        onnx.save(net.model([net.do("Relu", net.floats(3, 5))]), path)
        try:
            nnefc.compile(path, llvm_target).load(threads=1).close()
        except nnefc.LoadError as error:
            return str(error)
    return ""


def _needs(target: str) -> None:
    if _lacking(target):
        pytest.skip(_lacking(target))


def _run_here(artifact: Artifact, folder: Path, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    artifact.export(folder / "network.so")
    try:
        model = nnefc.load(folder / "network.so")
    except nnefc.LoadError as error:
        pytest.skip(str(error))
    with model:
        made = model(*inputs.values())
    return [made] if isinstance(made, np.ndarray) else list(made)


def _check(case: _Contractions, results: list[np.ndarray], precision: str) -> None:
    """Sums are within rounding errors of float32; or of short sums of float16, of which few are large."""
    for number, result in enumerate(results):
        norm = np.sqrt(case.exact(number, None, power=2))
        error = np.abs(result - case.exact(number, _TYPES[precision])) / norm
        largest, mean = (4e-6, 4e-7) if precision == "bf16" else (1e-2, 1.6e-3)
        assert error.max() < largest and error.mean() < mean, (number, error.max(), error.mean())


@pytest.mark.parametrize(
    ("target", "precision"),
    [(_COOPERLAKE, "bf16"), (_SAPPHIRE_RAPIDS, "fp16"), (_SAPPHIRE_RAPIDS, "bf16"), (_EMULATED, "bf16")],
)
def test_pairs_of_float16_are_multiplied_on_x86(target: str, precision: str, tmp_path: Path) -> None:
    _needs(target)
    case = _contractions()
    artifact = _compiled(case, tmp_path, target, precision)
    _check(case, _run_here(artifact, tmp_path, case.inputs), precision)


@pytest.mark.parametrize(
    ("precision", "step"), [("bf16", 2), *(pytest.param(each, 1, marks=pytest.mark.slow) for each in _TYPES)]
)
def test_pairs_of_float16_are_multiplied_on_arm(precision: str, step: int, tmp_path: Path) -> None:
    if _ARM.missing:
        pytest.skip(f"needs: {_ARM.missing}")
    case = _contractions(step=step)
    results = run_on(_ARM, _compiled(case, tmp_path, _ARM.target, precision), case.inputs)
    _check(case, list(results.values()), precision)


@pytest.mark.parametrize("scale", [1e-7, 1e4])
def test_weights_of_any_size_stay_in_the_range_of_sums_in_float16(scale: float, tmp_path: Path) -> None:
    _needs(_SAPPHIRE_RAPIDS)
    case = _contractions(scale, 3)
    artifact = _compiled(case, tmp_path, _SAPPHIRE_RAPIDS, "fp16")
    for number, result in enumerate(_run_here(artifact, tmp_path, case.inputs)):
        norm = np.sqrt(case.exact(number, None, power=2))
        assert (np.abs(result - case.exact(number, None)) / norm).max() < 1e-2


@pytest.mark.parametrize(
    ("target", "precision", "instruction"),
    [
        (_COOPERLAKE, "bf16", "vdpbf16ps"),
        (_SAPPHIRE_RAPIDS, "fp16", "vfmadd231ph"),
        (_ARM.target, "bf16", "bfmmla"),
        (_ARM.target, "fp16", "fmla"),
    ],
)
@pytest.mark.sample(1)
def test_sums_stay_in_registers(target: str, precision: str, instruction: str, tmp_path: Path) -> None:
    net = Net(seed=1)
    x = net.floats(64, 256)
    onnx.save(net.model([net.do("MatMul", x, net.weight(256, 96))]), tmp_path / "network.onnx")
    nnefc.compile(tmp_path / "network.onnx", target, precision=precision).emit("asm", tmp_path)
    text = "\n".join(path.read_text() for path in sorted(tmp_path.glob("kernels*.s")))
    loop = max(_loops(text), key=lambda lines: sum(instruction in line for line in lines))
    assert sum(instruction in line for line in loop) >= 16
    assert not any("(%rsp)" in line or "[sp" in line for line in loop), "\n".join(loop)


def _loops(text: str) -> list[list[str]]:
    """The instructions from each label to a jump back to it, where no other label is between."""
    found, label, lines = [], "", list[str]()
    for line in text.splitlines():
        if line.startswith((".LBB", ".L")) and ":" in line:
            label, lines = line.split(":")[0], []
        elif label and line.split()[-1:] == [label]:
            found.append(lines)
            label, lines = "", []
        else:
            lines.append(line)
    return found


def test_a_processor_without_such_instructions_stores_weights_in_float16(tmp_path: Path) -> None:
    case = _contractions(step=3)
    narrow = _compiled(case, tmp_path, "x86-64-v3", "bf16")
    assert narrow.description.constant_bytes < 0.6 * sum(weights.nbytes for _, weights in case.operands)
    for number, result in enumerate(_run_here(narrow, tmp_path, case.inputs)):
        rounded = case.operands[number][1].astype(_TYPES["bf16"]).astype(np.float32)
        data = case.operands[number][0]
        own = _Contractions.__new__(_Contractions)
        own.operands, own.windows = {number: (data, rounded)}, case.windows  # type: ignore[assignment]
        expected, norm = own.exact(number, None), np.sqrt(own.exact(number, None, power=2))
        assert (np.abs(result - expected) / norm).max() < 4e-6


def test_the_first_and_the_last_contraction_can_be_kept_wide(tmp_path: Path) -> None:
    net = Net(seed=2)
    x = y = net.floats(1, 16, 6, 6)
    for _ in range(3):
        y = net.do("Relu", net.do("Conv", y, net.weight(32, 32 if y != x else 16, 1, 1)))
    onnx.save(net.model([y]), tmp_path / "network.onnx")

    def narrow_constants(keep_wide: tuple[str, ...]) -> int:
        made = nnefc.compile(tmp_path / "network.onnx", _COOPERLAKE, precision="bf16", keep_wide=keep_wide)
        return made.description.constant_bytes

    whole = 4 * (16 * 32 + 2 * 32 * 32)
    assert [narrow_constants(k) for k in (("first",), ("last",), ("first", "v2"), ("v*",))] == [
        whole // 2 + 2 * 16 * 32,
        whole // 2 + 2 * 32 * 32,
        whole // 2 + 2 * 16 * 32 + 2 * 32 * 32,
        whole,
    ]
    with pytest.raises(CompileError, match="no convolution or matrix product is called 'middle'"):
        narrow_constants(("middle",))


def test_what_no_processor_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"no precision tf32.*\n?.*fp32, bf16, fp16"):
        nnefc.compile(tmp_path, "x86-64-v3", precision="tf32")
    with pytest.raises(CompileError, match="unknown precision 'bf8' of target"):
        nnefc.compile(tmp_path, "x86-64-v3 -precision=bf8")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    """A network for any number of rows, whose results are far from small, and an input."""
    net = Net(seed=3)
    x = net.floats(6, 128)
    y = net.do("Relu", net.do("MatMul", x, net.weight(128, 96)))
    model = net.model([net.do("MatMul", y, net.weight(96, 10))])
    for info in (model.graph.input[0], model.graph.output[0]):
        info.type.tensor_type.shape.dim[0].dim_param = "rows"
    path = tmp_path_factory.mktemp("classifier") / "classifier.onnx"
    onnx.save(model, path)
    return path, net.inputs


@pytest.mark.parametrize("target", [_COOPERLAKE, _SAPPHIRE_RAPIDS])
def test_any_number_of_rows_is_multiplied(
    target: str, classifier: tuple[Path, dict[str, np.ndarray]], tmp_path: Path
) -> None:
    _needs(target)
    path, inputs = classifier
    precision = "bf16" if target == _COOPERLAKE else "fp16"
    wide, narrow = (nnefc.compile(path, target, precision=each) for each in ("fp32", precision))
    for rows in (1, 6, 37):
        data = np.resize(inputs["input0"], (rows, 128))
        (expected,), (found,) = (_run_here(artifact, tmp_path, {"input0": data}) for artifact in (wide, narrow))
        assert 0 < np.abs(found - expected).max() < 2e-2 * np.abs(expected).max()


def test_what_is_moved_between_contractions_is_stored_in_float16(tmp_path: Path) -> None:
    _needs(_SAPPHIRE_RAPIDS)
    net = Net(seed=4)
    x = net.floats(2, 32, 9, 9)
    y = net.do("Conv", x, net.weight(48, 32, 1, 1))
    begin, end, axes = (net.constant(np.array(values)) for values in ([1, 8], [8, 40], [2, 1]))
    z = net.do("Concat", net.do("Slice", y, begin, end, axes), net.do("Slice", y, begin, end, axes), axis=1)
    model = net.model([net.do("Conv", z, net.weight(16, 64, 1, 1))])
    for info in (model.graph.input[0], model.graph.output[0]):
        info.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, tmp_path / "network.onnx")
    wide, narrow = (
        nnefc.compile(tmp_path / "network.onnx", _SAPPHIRE_RAPIDS, precision=each) for each in ("fp32", "fp16")
    )
    (expected,), (found,) = (_run_here(artifact, tmp_path, net.inputs) for artifact in (wide, narrow))
    assert 0 < np.abs(found - expected).max() < 1e-2 * np.abs(expected).max()


@pytest.mark.parametrize(
    "bound", [1e5, *(pytest.param(x, marks=pytest.mark.slow) for x in (6.0, float(np.finfo(np.float32).max)))]
)
def test_limits_beyond_float16_are_applied_in_float32(bound: float, tmp_path: Path) -> None:
    if _ARM.missing:
        pytest.skip(f"needs: {_ARM.missing}")
    net = Net(seed=6)
    x = net.floats(1, 32, 9, 9)
    y = net.do("Conv", x, net.weight(32, 32, 1, 1))
    z = net.do("Clip", y, *(net.constant(np.float32(value)) for value in (-bound, bound)))
    onnx.save(net.model([net.do("Conv", z, net.weight(16, 32, 1, 1))]), tmp_path / "network.onnx")
    (expected,) = nnefc.compile(tmp_path / "network.onnx").run(net.inputs).values()
    narrow = nnefc.compile(tmp_path / "network.onnx", _ARM.target, precision="fp16")
    (found,) = run_on(_ARM, narrow, net.inputs).values()
    assert 0 < np.abs(found - expected).max() < 1e-2 * np.abs(expected).max()


@pytest.mark.slow
def test_auto_takes_what_is_fastest_of_all_within_the_error(
    classifier: tuple[Path, dict[str, np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, inputs = classifier

    def taken(bound: float, *seconds: float) -> list[tuple[str, float | None, bool]]:
        monkeypatch.setattr(narrowest, "_minimum_times", lambda runs: list(seconds))
        data = {"input0": np.stack([inputs["input0"]] * 2)}
        made = nnefc.compile(path, precision="auto", calibrate=data, max_error=bound)
        assert made.trials[0].error == 0 and all(trial.error > 0 for trial in made.trials[1:])
        sizes[made.trials[[trial.taken for trial in made.trials].index(True)].precision] = made.description
        return [(trial.precision, trial.seconds, trial.taken) for trial in made.trials]

    sizes: dict[str, LibraryDescription] = {}
    (_, (half, *_), _) = integers = taken(0.1, 3.0, 2.0, 1.0)
    assert integers == [("fp32", 3.0, False), (half, 2.0, False), ("int8", 1.0, True)]
    assert taken(0.1, 3.0, 1.0, 2.0)[1] == (half, 1.0, True)
    assert taken(0.1, 1.0, 2.0, 3.0)[0] == ("fp32", 1.0, True)  # Winograd's algorithm, say
    assert taken(0.1, 1.0, 1.01, 3.0)[1] == (half, 1.01, True)  # as fast, and smaller
    tight = taken(1e-7)
    assert {name for name, *_ in tight} == {"fp32", "bf16", "fp16", "int8"}
    assert [(name, seconds) for name, seconds, is_taken in tight if is_taken] == [("fp32", None)]
    constants = [sizes[name].constant_bytes for name in ("int8", half, "fp32")]
    assert constants[0] < 0.7 * constants[1] < 0.7 * constants[2]


def test_errors_are_of_shapes_labels_and_bfloat16_too() -> None:
    def error(found: np.ndarray, wanted: np.ndarray) -> float:
        return narrowest._error([{"y": found}, {"y": wanted}], [{"y": wanted}] * 2)

    ones = np.ones(4, np.float32)
    assert error(0.75 * ones, ones) == error(*(each.astype(numpy_dtype("bfloat16")) for each in (0.75 * ones, ones)))
    assert error(0.75 * ones, ones) == 0.25
    assert error(ones[:3], ones) == np.inf
    assert error(np.array([998, 999]), np.array([999, 999])) == 0.25  # one of four answers
    assert error(np.array([True, True]), np.array([False, False])) == 0.5
    assert error(np.array([99], np.uint8), np.array([100], np.uint8)) == 0.01
    assert error(ones[:0], ones[:0]) == 0


def test_results_in_bfloat16_are_compared_as_numbers(tmp_path: Path) -> None:
    cast = onnx.helper.make_node("Cast", ["x"], ["y"], to=onnx.TensorProto.BFLOAT16)
    values = [
        onnx.helper.make_tensor_value_info(name, kind, [4])
        for name, kind in (("x", onnx.TensorProto.FLOAT), ("y", onnx.TensorProto.BFLOAT16))
    ]
    made = onnx.helper.make_graph([cast], "g", values[:1], values[1:])
    onnx.save(onnx.helper.make_model(made, ir_version=10), tmp_path / "m.onnx")
    x = np.float32([1.5, -2, 0.25, 3])
    (found,) = narrowest._results(nnefc.compile(tmp_path / "m.onnx"), [{"x": x}])
    assert found["y"].dtype == np.float32
    assert np.array_equal(found["y"], x)


def test_minimum_times_are_of_the_runs_that_take_turns() -> None:
    quick, slow = narrowest._minimum_times([lambda: time.sleep(1e-3), lambda: time.sleep(0.03)])
    assert 1e-3 <= quick < 0.03 <= slow


def test_auto_takes_what_is_within_the_error(
    classifier: tuple[Path, dict[str, np.ndarray]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, inputs = classifier
    monkeypatch.setattr(narrowest, "_quantized", lambda _: None)
    monkeypatch.setattr(narrowest, "_minimum_times", lambda runs: [2.0, 1.0])
    np.savez(tmp_path / "rows.npz", input0=np.stack([inputs["input0"]] * 2))
    options = {"precision": "auto", "calibrate": tmp_path / "rows.npz"}
    assert "-precision=" not in nnefc.compile(path, max_error=1e-7, **options).target.name
    with pytest.raises(CompileError, match=r"no random values of the input input0: float32\[rows, 128\]"):
        nnefc.compile(path, precision="auto")
    text = io.StringIO()
    phases = ProgressPhases(Console(file=text))
    made = nnefc.compile(path, precision="auto", shape={"rows": 3}, progress=phases)
    assert "-precision=" in made.target.name
    assert text.getvalue().startswith("try fp32 ") and f"\ntry {made.trials[1].precision} " in text.getvalue()


def test_auto_says_what_it_needs(classifier: tuple[Path, dict[str, np.ndarray]]) -> None:
    path, inputs = classifier
    with pytest.raises(CompileError, match="no values of the input 'input0'"):
        nnefc.compile(path, precision="auto", calibrate={"other": inputs["input0"]})
    with pytest.raises(CompileError, match="shapes of the calibration"):
        nnefc.compile(path, precision="auto", calibrate={"input0": np.zeros(3, np.float32)})
    with pytest.raises(CompileError, match="method 'mean' is none of minmax"):
        nnefc.compile(path, precision="auto", calibrate=inputs, method="mean")
    with pytest.raises(CompileError, match="there are none for the method entropy"):
        nnefc.compile(path, precision="auto", method="entropy")
    with pytest.raises(CompileError, match="this machine does not run"):
        nnefc.compile(path, _ARM.target, precision="auto", shape={"rows": 1})
    with pytest.raises(CompileError, match="for precision auto"):
        nnefc.compile(path, max_error=0.1)
