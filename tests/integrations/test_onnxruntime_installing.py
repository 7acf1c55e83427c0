"""nnefc in place of onnxruntime in programs that are not edited, and what packages import from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnxruntime_calls import linear

from nnefc.onnxruntime import main

PROGRAM = """
import sys
from importlib.metadata import version

import numpy as np
import onnxruntime as ort
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
(y,) = session.run(["y"], {"x": np.ones((2, 5), np.float32), "k": np.array(1)})
print(type(session).__module__.partition(".")[0], y.shape, __name__, version("onnxruntime") == ort.__version__)
try:
    session.run(None, {"x": y, "k": y})
except InvalidArgument:
    print("invalid", *sys.argv[2:])
"""

IMPORTS = {
    "audio separators": "from onnxruntime import InferenceSession, SessionOptions, get_available_providers, get_device",
    "bark": "from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, InvalidProtobuf, NoSuchFile",
    "basic-pitch": "import onnxruntime as ort; ort.InferenceSession",
    "ddddocr": "import onnxruntime; onnxruntime.set_default_logger_severity(3)",
    "detectors": "from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions",
    "analyzers": "import onnxruntime; onnxruntime.get_available_providers()",
    "fastembed": "import onnxruntime as ort; ort.ExecutionMode.ORT_SEQUENTIAL; ort.GraphOptimizationLevel",
    "faster-whisper": "import onnxruntime; onnxruntime.SessionOptions().log_severity_level = 4",
    "gfpgan": "import onnxruntime.backend",
    "harmony": "from onnxruntime import OrtValue, IOBinding, RunOptions",
    "insightface": "import onnxruntime; class_ = onnxruntime.InferenceSession; class_.__init__",
    "kokoro": "import onnxruntime as rt; rt.get_all_providers()",
    "magika": "import onnxruntime as rt; rt.InferenceSession, rt.SessionOptions",
    "mlflow": "import onnxruntime; onnxruntime.__version__",
    "neural_compressor": "from onnxruntime.quantization.calibrate import CalibrationDataReader",
    "nudenet": "import onnxruntime; from onnxruntime.capi import _pybind_state as C; C.get_available_providers()",
    "olive": "from onnxruntime import __version__ as OrtVersion; from onnxruntime.capi._pybind_state import OrtDevice",
    "onnx-asr": "import onnxruntime as rt; rt.SessionOptions, rt.capi.onnxruntime_pybind11_state.OrtValueVector",
    "onnxmltools": "from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph, NotImplemented",
    "openwakeword": "import onnxruntime as ort; ort.SessionOptions().inter_op_num_threads = 1",
    "optimum": "from onnxruntime.transformers.io_binding_helper import TypeHelper; import onnxruntime.tools",
    "optimum exporters": "from onnxruntime.transformers.fusion_options import FusionOptions",
    "optimum quantization": "from onnxruntime.quantization import QuantFormat, QuantType; QuantType.QInt8",
    "optimum training": "import onnxruntime.training; from onnxruntime.training.ortmodule import ORTModule",
    "piper": "import onnxruntime; onnxruntime.SessionOptions()",
    "providers": "from onnxruntime.capi.onnxruntime_inference_collection import check_and_normalize_provider_args",
    "rapidocr": "from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions, get_device",
    "readers": "from onnxruntime.quantization import CalibrationDataReader\nclass Reader(CalibrationDataReader): ...",
    "rembg": "import onnxruntime as ort; ort.get_device()",
    "sentence transformers": "from onnxruntime import SessionOptions; from onnxruntime.quantization import *",
    "silero-vad": "import onnxruntime; onnxruntime.SessionOptions().intra_op_num_threads = 1",
    "skl2onnx": "import onnxruntime as rt; from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException",
    "supervision": "from onnxruntime.datasets import get_example",
    "swift-f0": "import onnxruntime; onnxruntime.InferenceSession",
    "torch.onnx": "from onnxruntime.capi import _pybind_state as ORTC; ORTC.OrtDevice.cpu()",
    "tritonclient": "import onnxruntime as ort; ort.NodeArg, ort.ModelMetadata",
    "validation": "from onnxruntime.capi.onnxruntime_validation import get_package_name_and_version_info",
    "wav2lip": "import onnxruntime as ort; [ort.OrtMemType.DEFAULT, ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR]",
}
"""What packages import, by their names or kinds."""

REFUSED = """
try:
    import onnxruntime.no_such_module
except ModuleNotFoundError:
    print("no module")
from onnxruntime.quantization import quantize_dynamic
quantize_dynamic("a", "b")
"""


def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nnefc.onnxruntime", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("program")
    onnx.save(linear(), made / "linear.onnx")
    (made / "program.py").write_text(f"import adjacent\n{PROGRAM}")
    (made / "adjacent.py").write_text("")
    return made


def test_a_program_runs_unedited(folder: Path) -> None:
    done = run(folder / "program.py", folder / "linear.onnx", "--own", "argument")
    assert (done.stdout, done.returncode) == ("nnefc (2, 4) __main__ True\ninvalid --own argument\n", 0), done.stderr


def test_what_packages_import_is_there() -> None:
    code = "\n".join(f"{lines}\nprint({name!r})" for name, lines in IMPORTS.items())
    done = run("-c", f"{code}\n{REFUSED}")
    assert done.stdout.splitlines() == [*IMPORTS, "no module"], done.stderr
    assert "onnxruntime.quantization.quantize_dynamic is not a part of nnefc: nnefc.quantize" in done.stderr


def test_a_module_runs_with_its_arguments() -> None:
    assert run("-m", "json.tool", "--help").stdout.startswith("usage:")


def test_mistakes_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, status, message in (
        (["no.py"], 2, "error: there is no program no.py\n"),
        ([], 2, "usage:"),
        (["-m"], 2, "usage:"),
        (["--help"], 0, "usage:"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        assert ended.value.code == status
        assert (captured.out if status == 0 else captured.err).startswith(message)


@pytest.mark.slow
def test_child_processes_have_it_too() -> None:
    code = """
import subprocess, sys
own = "import onnxruntime, warnings; print(onnxruntime.InferenceSession.__module__.partition('.')[0])"
warnings = "-Werror::RuntimeWarning"
print(subprocess.run([sys.executable, warnings, "-c", own], capture_output=True, text=True).stdout)
"""
    done = run("-c", code)
    assert done.stdout.split() == ["nnefc"], done.stderr


def test_onnxruntime_comes_back() -> None:
    code = """
import warnings; warnings.simplefilter("ignore")
import onnxruntime as before
import nnefc.onnxruntime as ours
ours.install(), ours.install()
import onnxruntime as between
ours.uninstall(), ours.uninstall()
import onnxruntime as after
print(before.InferenceSession is not between.InferenceSession, between.InferenceSession is ours.InferenceSession)
print(after.InferenceSession.__module__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split()[:2] == ["True", "True"], done.stderr
    assert done.stdout.split()[2].startswith("onnxruntime.")
