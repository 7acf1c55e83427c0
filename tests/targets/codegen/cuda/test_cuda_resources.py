"""What the compiler of NVIDIA's says of whole networks: their kernels keep what they compute with in registers."""

from __future__ import annotations

from pathlib import Path

import pytest
from models import zoo

import nnefc
from nnefc.targets.codegen.cuda.code import CudaCode
from nnefc.targets.codegen.cuda.compiler import COMPILER_VARIABLE

TARGET = "cuda -arch=sm_80,sm_90"

# Bytes of a thread. Without a bound to keep, the compiler may still put a word or two into memory, to have more threads
# side by side; a tile that does not fit spills hundreds.
MAX_SPILLED = 16


def _check(name: str, precision: str, folder: Path, divide: int = 1) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(COMPILER_VARIABLE, "nvrtc")
        twins = zoo.write_twins(folder, name, divide=divide)
        artifact = nnefc.compile(twins.onnx, TARGET, precision=precision)
    assert isinstance(artifact.code, CudaCode)
    print("\n".join(artifact.code.resources()))
    usage = artifact.code.image.usage
    assert [kernel for kernel in usage if max(kernel.spill_stores, kernel.spill_loads) > MAX_SPILLED] == []
    assert len(usage) == 2 * len({launch.kernel for launch in artifact.code.kernels.launches})


@pytest.mark.slow
@pytest.mark.parametrize(("name", "precision"), [("shufflenet", "fp32"), ("squeezenet", "fp16")])
def test_a_small_network_keeps_its_registers(name: str, precision: str, tmp_path: Path) -> None:
    _check(name, precision, tmp_path, 8)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
@pytest.mark.parametrize("name", zoo.NAMES)
def test_a_whole_network_keeps_its_registers(name: str, precision: str, tmp_path: Path) -> None:
    _check(name, precision, tmp_path)
