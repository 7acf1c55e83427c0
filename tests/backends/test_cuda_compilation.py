"""The way of a network to a library for GPUs: source, machine code, launches, and what users see of them."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import nnefc
from nnefc.cli import main
from nnefc.driver.artifact import Artifact
from nnefc.support.diagnostics import CompileError
from nnefc.targets.codegen.cuda import compiler as cuda_compiler
from nnefc.targets.codegen.cuda.code import CudaCode
from nnefc.targets.codegen.cuda.compiler import compile_image, find_compiler
from nnefc.targets.description.library_file import read_metadata

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "model.nnef"
TARGET = "cuda -arch=sm_80,sm_90"

_TRIVIAL = 'extern "C" __global__ void nothing(float *x) { x[threadIdx.x] = 1; }'


@pytest.fixture(scope="module", autouse=True)
def by_nvrtc() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cuda_compiler.COMPILER_VARIABLE, "nvrtc")
        yield


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dump")


@pytest.fixture(scope="module")
def digits(dump: Path, by_nvrtc: None) -> Artifact:
    return nnefc.compile(DIGITS, TARGET, dump=dump)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of one kernel."""
    path = tmp_path_factory.mktemp("small") / "small.nnef"
    path.write_text("version 1.0; graph g(x) -> (y) { x = external<scalar>(shape = [2, 3]); y = exp(x); }")
    return path


def test_infinite_constants_of_bfloat16_are_written_in_cuda() -> None:
    """The maximum of a pooling window begins with minus infinity."""
    code = nnefc.compile(DIGITS, "cuda -arch=sm_90", precision="bf16").code
    assert isinstance(code, CudaCode) and "-CUDART_INF_F" in code.kernels.source


def test_every_launch_is_legal_and_of_a_kernel_that_the_compiler_made(digits: Artifact) -> None:
    assert isinstance(digits.code, CudaCode)
    compiled = {(usage.kernel, usage.architecture) for usage in digits.code.image.usage}
    for launch in digits.code.kernels.launches:
        assert {(launch.kernel, 80), (launch.kernel, 90)} <= compiled
        assert 1 <= math.prod(launch.block) <= 1024
        assert all(1 <= size < 1 << 31 for size in launch.grid)


def test_the_larger_of_many_numbers_compiles(tmp_path: Path) -> None:
    """NaN counts: CUDA's vectors cannot be compared with themselves."""
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 64, 64, 64)) for name in "xyz"]
    graph = helper.make_graph([helper.make_node("Max", ["x", "y"], ["z"])], "g", kinds[:2], kinds[2:])
    onnx.save(helper.make_model(graph), tmp_path / "model.onnx")
    nnefc.compile(tmp_path / "model.onnx", "cuda -arch=sm_80")


def test_tiles_of_bytes_and_of_floats_compile_in_one_source(tmp_path: Path) -> None:
    """C++ has one type for the name of dynamic shared memory in all kernels."""
    x, m, y, z = (
        helper.make_tensor_value_info(name, dtype, [1, 2, 64, 64])
        for name, dtype in (("x", TensorProto.FLOAT), ("m", TensorProto.UINT8), ("y", TensorProto.FLOAT), ("z", 6))
    )
    weights = onnx.numpy_helper.from_array(np.arange(4096, dtype=np.int8).reshape(64, 64), "w")
    nodes = [
        helper.make_node("Attention", ["x", "x", "x"], ["y"]),
        helper.make_node("MatMulInteger", ["m", "w"], ["z"]),
    ]
    path = tmp_path / "model.onnx"
    graph = helper.make_graph(nodes, "both", [x, m], [y, z], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)
    code = nnefc.compile(path, "cuda -arch=sm_80", precision="fp16").code
    assert isinstance(code, CudaCode)
    declared = set(re.findall(r"extern __shared__ __align__\(\d+\) ([\w ]+) (\w+)\[\]", code.kernels.source))
    assert len(declared) == len({name for _, name in declared}) == 2


def test_no_kernel_needs_memory_for_its_registers(digits: Artifact) -> None:
    assert isinstance(digits.code, CudaCode)
    print("\n".join(digits.code.resources()))
    assert all(usage.spill_stores == usage.spill_loads == 0 for usage in digits.code.image.usage)
    assert all(0 < usage.registers <= 255 for usage in digits.code.image.usage)


def test_the_image_has_code_of_each_architecture_and_ptx_of_the_newest(digits: Artifact) -> None:
    assert isinstance(digits.code, CudaCode)
    image = digits.code.image.image
    assert image[:4] == bytes.fromhex("50ed55ba")  # a fat binary's
    assert image.count(b"\x7fELF") == 2
    assert digits.code.image.architectures == (80, 90)


@pytest.mark.slow
def test_the_same_network_gives_the_same_library(digits: Artifact, tmp_path: Path) -> None:
    for folder, artifact in (("a", digits), ("b", nnefc.compile(DIGITS, TARGET))):
        (tmp_path / folder).mkdir()
        artifact.export(tmp_path / folder / "digits.so")
    assert (tmp_path / "a" / "digits.so").read_bytes() == (tmp_path / "b" / "digits.so").read_bytes()


def test_a_dump_ends_with_source_launches_and_resources(digits: Artifact, dump: Path) -> None:
    assert isinstance(digits.code, CudaCode)
    *_, entry, source, launches, resources = sorted(dump.glob("*.*"))
    assert [path.name[4:] for path in (entry, source, launches, resources)] == [
        "build_entry.py",
        "kernels.cu",
        "launches.c",
        "resources.txt",
    ]
    assert source.read_text() == digits.code.kernels.source
    assert "nnefc_cuda_launch(0, " in launches.read_text()
    assert len(resources.read_text().splitlines()) == 1 + len(digits.code.image.usage)


def test_a_static_library_comes_with_a_header(digits: Artifact, tmp_path: Path) -> None:
    digits.export(tmp_path / "network.a", name="digits")
    assert (tmp_path / "network.a").stat().st_size > 10_000
    assert "digits_enqueue" in (tmp_path / "digits.h").read_text()


def test_the_host_may_be_an_arm(small: Path, tmp_path: Path) -> None:
    nnefc.compile(small, "cuda -arch=sm_87 -host=aarch64-linux-gnu").export(tmp_path / "small.so")
    content = (tmp_path / "small.so").read_bytes()
    assert int.from_bytes(content[18:20], "little") == 183  # EM_AARCH64
    metadata = read_metadata(tmp_path / "small.so")
    assert metadata is not None
    assert metadata.description.target == "cuda -arch=sm_87 -host=aarch64-linux-gnu"


def test_inspect_says_what_the_library_needs(digits: Artifact, tmp_path: Path) -> None:
    digits.export(tmp_path / "digits.so")
    result = CliRunner().invoke(main, ["inspect", str(tmp_path / "digits.so")])
    assert result.exit_code == 0
    assert "NVIDIA's driver and a GPU: sm_80, sm_90 or newer" in result.output


def test_the_command_compiles_and_reports(small: Path, tmp_path: Path) -> None:
    output = tmp_path / "small.so"
    result = CliRunner().invoke(main, ["compile", str(small), "-t", "cuda -arch=sm_80", "-o", str(output), "-v"])
    assert result.exit_code == 0, result.output
    assert re.search(r"\d+ launches; NVRTC 13\.\d+: at most \d+ registers a thread, no kernels with", result.stderr)
    assert output.exists()


def test_source_can_be_emitted(digits: Artifact, tmp_path: Path) -> None:
    digits.emit("cuda", tmp_path)
    assert 'extern "C" __global__' in (tmp_path / "kernels.cu").read_text()


def test_a_gpu_has_no_assembly_of_llvms_and_a_cpu_no_cuda(digits: Artifact, small: Path, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="there is no asm"):
        digits.emit("asm", tmp_path)
    with pytest.raises(CompileError, match="there is no cuda"):
        nnefc.compile(small).emit("cuda", tmp_path)


@pytest.mark.slow
def test_half_precision_halves_the_weights(digits: Artifact) -> None:
    half = nnefc.compile(DIGITS, TARGET, precision="fp16")
    assert half.description.target == f"{TARGET} -precision=fp16"
    assert half.inputs == digits.inputs
    assert half.outputs == digits.outputs
    assert half.description.constant_bytes < 0.6 * digits.description.constant_bytes


def test_without_a_compiler_the_error_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (cuda_compiler.COMPILER_VARIABLE, "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cuda_compiler.metadata, "files", lambda _package: None)
    cuda_compiler._nvrtc.cache_clear()
    with pytest.raises(CompileError) as raised:
        nnefc.compile(DIGITS, "cuda")
    assert "no CUDA compiler" in raised.value.message
    assert "pip install 'nnefc[cuda]'" in (raised.value.hint or "")
    cuda_compiler._nvrtc.cache_clear()


def test_a_compiler_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cuda_compiler.COMPILER_VARIABLE, "/nowhere/nvcc")
    with pytest.raises(CompileError, match="/nowhere/nvcc"):
        find_compiler()


def test_an_architecture_that_the_compiler_does_not_know_is_an_error() -> None:
    with pytest.raises(CompileError) as raised:
        compile_image(_TRIVIAL, (70, 80))
    assert re.search(r"NVRTC 13\.\d+ has no code for sm_70", raised.value.message)
    assert "sm_80" in (raised.value.hint or "")


def test_errors_of_the_compiler_are_shown() -> None:
    with pytest.raises(CompileError, match='identifier "y" is undefined'):
        compile_image('extern "C" __global__ void wrong(float *x) { x[0] = y; }', (80,))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
@pytest.mark.slow
def test_nvcc_reports_the_same_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cuda_compiler.COMPILER_VARIABLE, "nvcc")
    image = compile_image(_TRIVIAL, (80, 90))
    assert image.compiler.startswith("nvcc ")
    assert [(usage.kernel, usage.architecture) for usage in image.usage] == [("nothing", 80), ("nothing", 90)]
    assert image.image[:4] == bytes.fromhex("50ed55ba")
