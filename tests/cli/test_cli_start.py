"""What a command imports is what it needs: starting is most of the time that a small network takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from runtime_samples import sample_library

from nnefc.cli import main

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "examples" / "digits" / "model.nnef"

NOTED = """
import atexit, sys
atexit.register(lambda: open({position!r}, "w").write("\\n".join(name for name in sys.modules if sys.modules[name])))
"""
TORCH = 'raise AssertionError("the command line imported torch")'


def without_settings() -> dict[str, str]:
    """The environment without settings of TVM that users may have made."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TVM_")}


def modules_after(program: str, folder: Path) -> set[str]:
    """The modules that a new process has at the end of a program; there is a torch, which must not be imported."""
    position = folder / "modules"
    (folder / "torch.py").write_text(TORCH)
    paths = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", NOTED.format(position=str(position)) + program],
        capture_output=True,
        text=True,
        env=without_settings() | {"PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    return set(position.read_text().splitlines())


def modules_of(arguments: list[str], folder: Path) -> set[str]:
    """The modules that the command line has at its end."""
    return modules_after(f"sys.argv = {['nnefc', *arguments]!r}\nfrom nnefc.__main__ import main\nmain()", folder)


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


COMPILER = {"lark", "ml_dtypes", "onnx", "torch", "tvm", "tvm_ffi"}


def test_importing_the_package_imports_nothing_that_is_large(tmp_path: Path) -> None:
    assert packages(modules_after("import nnefc", tmp_path)) & {"numpy", *COMPILER} == set()


def test_the_loader_is_imported_when_it_is_asked_for(tmp_path: Path) -> None:
    modules = modules_after("import nnefc\nassert nnefc.load.__module__ == 'nnefc.loader'", tmp_path)
    assert "nnefc.loader" in modules
    assert packages(modules) & COMPILER == set()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["compile", "--help"], ["targets"]], ids=" ".join)
def test_help_and_the_list_of_targets_need_neither_the_compiler_nor_numpy(arguments: list[str], tmp_path: Path) -> None:
    assert packages(modules_of(arguments, tmp_path)) & {"numpy", *COMPILER} == set()


def test_the_list_of_commands_imports_none_of_them(tmp_path: Path) -> None:
    modules = modules_of(["--help"], tmp_path)
    assert (
        modules & {"nnefc.driver.options", *(f"nnefc.cli.{each.module}" for each in main.commands._lazy.values())}
        == set()
    )


@pytest.mark.parametrize("arguments", [["run", "--random", "0"], ["inspect"]], ids=lambda words: words[0])
def test_libraries_are_run_and_inspected_without_importing_the_compiler(arguments: list[str], tmp_path: Path) -> None:
    modules = modules_of([*arguments, str(sample_library())], tmp_path)
    assert packages(modules) & COMPILER == set()


def test_compiling_for_a_cpu_imports_nothing_of_gpus_nothing_of_other_formats_and_no_torch(tmp_path: Path) -> None:
    modules = modules_of(["compile", str(MODEL), "-o", str(tmp_path / "digits.so")], tmp_path)
    assert packages(modules) & {"lark", "onnx", "rich", "torch"} == set()
    assert "tvm_ffi.cpp.extension" not in modules
    of_gpus = {name for name in modules if name.startswith("nnefc.") and {"cuda", "gpu"} & set(name.split("."))}
    assert of_gpus <= {"nnefc.loader.gpu", "nnefc.targets.machine.cuda.target"}  # the parts that any network needs
    others = [
        f"nnefc.frontends.{each}" for each in ("gguf", "huggingface", "nnef.dynamic.network", "onnx", "pnnx", "tflite")
    ]
    others += ["nnefc.inspect.html", "nnefc.quantizer.quantize", "nnefc.tokenizer"]
    assert {name for name in modules if name.startswith(tuple(others))} == set()


def test_threads_of_numpy_sleep_in_a_process_for_one_command_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = "import os, sys, atexit\natexit.register(lambda: print(os.environ['OPENBLAS_THREAD_TIMEOUT']))\n"
    program += "sys.argv = ['nnefc', '--version']\nfrom nnefc.__main__ import main\nmain()"
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    for given, wanted in ({}, "4"), ({"OPENBLAS_THREAD_TIMEOUT": "20"}, "20"):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | given)
        assert done.stdout.splitlines()[-1] == wanted


def test_compiling_in_a_program_of_others_imports_no_torch(tmp_path: Path) -> None:
    assert "torch" not in modules_after(
        "import gc, nnefc\nassert nnefc.compile and gc.isenabled() and 'tvm' in sys.modules", tmp_path
    )


def test_functions_of_tvm_are_looked_up_at_their_first_use_and_none_is_missed() -> None:
    program = """
import sys, tvm_ffi
from functools import partial
from nnefc.support import minimal_tvm

all_at_once = tvm_ffi.init_ffi_api
minimal_tvm.import_tvm()
assert tvm_ffi.init_ffi_api is all_at_once
put_off = {
    made.args[1]: module
    for module in list(sys.modules.values())
    if isinstance(made := vars(module).get("__getattr__"), partial) and made.func is minimal_tvm._function_of
}
assert len(put_off) > 40 and sum(map(len, map(vars, put_off.values()))) < 1000
functions = 0
for name in tvm_ffi.registry.list_global_func_names():
    namespace, _, own = name.rpartition(".")
    if namespace in put_off:
        assert getattr(put_off[namespace], own).__name__ == own
        functions += 1
assert functions > 1000
assert not hasattr(put_off["relax"], "NoSuchFunction") and not hasattr(put_off["relax"], "__wrapped__")
"""
    assert subprocess.run([sys.executable, "-c", program], env=without_settings()).returncode == 0


@pytest.mark.slow
def test_tvm_is_whole_where_a_program_imports_it_first() -> None:
    program = "import sys\nsys.modules['torch'] = None\n"
    program += "import tvm, nnefc\nassert nnefc.compile and tvm.backend.is_loaded('cuda')"
    assert subprocess.run([sys.executable, "-c", program], env=without_settings()).returncode == 0


def test_what_is_kept_from_tvm_can_be_imported_afterwards(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("here = True")
    program = """
import os, sys
from nnefc.support.minimal_tvm import import_tvm
import_tvm()
unused = "tvm.s_tir.meta_schedule.search_strategy"
assert not {unused, "tvm.topi.vision.nms", "email.message"} & {*sys.modules}
import tvm, torch
assert torch.here and not tvm.backend.is_loaded("cuda") and "TVM_DEVICE_BACKEND_AUTOLOAD" not in os.environ
assert callable(tvm.s_tir.meta_schedule.tune_tir) and unused in sys.modules
assert callable(tvm.topi.vision.non_max_suppression) and tvm.relax.distributed.DeviceMesh.__name__
assert callable(tvm.relax.op.distributed.annotate_sharding) and tvm.topi.cpp.vision.yolo.__name__
from importlib.metadata import version
assert version("ziglang")
assert type(tvm.topi.gpu).__name__ and not [finder for finder in sys.meta_path if "nnefc" in type(finder).__module__]
from nnefc.targets.machine.cuda.target import parse_cuda_target
parse_cuda_target("cuda").to_tvm()
assert tvm.backend.is_loaded("cuda")
"""
    done = subprocess.run([sys.executable, "-c", program], env=without_settings() | {"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0
