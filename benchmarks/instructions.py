"""Instructions of one inference under QEMU: a measure of code, not of time.

A program that runs the network twice executes so many more than one that runs it once.
"""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import version_converter
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

from nnefc.targets.link.toolchain import RUNTIME
from nnefc.targets.link.zig import zig

__all__ = ["instructions", "program", "quantized"]

_HERE = Path(__file__).parent
_OPSET = 17  # quantized channel by channel
_PICTURES = 2  # that ranges are taken from

_folder = tempfile.TemporaryDirectory(prefix="nnefc-counting-", ignore_cleanup_errors=True)


def instructions(emulator: Sequence[str], command: Sequence[str]) -> int:
    """Of one run more: `command` is followed by the number of runs."""
    name, *options = emulator
    counted = [name, "-plugin", str(_plugin()), *options, *command]
    once, twice = (_executed([*counted, str(runs)]) for runs in (1, 2))
    return twice - once


def _executed(command: Sequence[str]) -> int:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
    return int(re.findall(r"instructions: (\d+)", done.stderr)[-1])


@functools.cache
def program(name: str, zig_target: str) -> Path:
    """A program of this folder, compiled for a machine."""
    made = Path(_folder.name) / f"{name}-{zig_target}"
    arguments = ["-target", zig_target, "-O1", "-s", f"-I{RUNTIME}", str(_HERE / f"{name}.c"), "-ldl", "-lm"]
    subprocess.run([*zig(), "cc", *arguments, "-o", str(made)], check=True)
    return made


@functools.cache
def _plugin() -> Path:
    made = Path(_folder.name) / "count_instructions.so"
    source = str(_HERE / "count_instructions.c")
    undefined = "-Wl,-z,undefs"  # the emulator has what it calls
    subprocess.run([*zig(), "cc", "-shared", "-fPIC", "-O1", undefined, source, "-o", str(made)], check=True)
    return made


class _Pictures(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Random ones."""

    def __init__(self, name: str, shape: Sequence[int]) -> None:
        rng = np.random.default_rng(0)
        self._left = [{name: rng.standard_normal(shape).astype(np.float32)} for _ in range(_PICTURES)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self._left.pop() if self._left else None


def quantized(model: Path) -> Path:
    """The same network with weights of int8, a scale for each channel, and data of uint8, beside the file."""
    result = model.with_suffix(".int8.onnx")
    if result.exists() and result.stat().st_mtime >= model.stat().st_mtime:
        return result
    (data,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).get_inputs()
    newer, folded = (result.with_suffix(f".{name}.onnx") for name in ("newer", "folded"))
    onnx.save(version_converter.convert_version(onnx.load(model), _OPSET), newer)
    quant_pre_process(newer, folded, skip_symbolic_shape=True)  # scales and shifts go into the weights before them
    quantization.quantize_static(folded, result, _Pictures(data.name, data.shape), per_channel=True)
    newer.unlink()
    folded.unlink()
    return result
