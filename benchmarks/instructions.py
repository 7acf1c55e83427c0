"""Instructions of one inference under QEMU: a measure of code, not of time.

A program that runs the network twice executes so many more than one that runs it once. Where a program is never twice
the same, as Python is by millions of instructions, and one whose threads wait for each other by many more, the mean of
several more runs is taken, and of each number of runs the smallest of two programs.
"""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import version_converter
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

import nnefc
from nnefc.targets.link.toolchain import RUNTIME
from nnefc.targets.link.zig import zig

__all__ = ["DATA", "Loop", "compiled", "instructions", "loops", "program", "quantized"]

_HERE = Path(__file__).parent
DATA = ("int8", "uint8")  # of quantized networks; onnxruntime is faster with the one or the other
_OPSET = 17  # quantized channel by channel
_IMAGES = 2  # that ranges are taken from
_ARM = 4  # bytes of an instruction of 64-bit Arm
_LONGEST = 512 * _ARM  # bytes of QEMU's blocks, at most

_folder = tempfile.TemporaryDirectory(prefix="nnefc-counting-", ignore_cleanup_errors=True)


def instructions(emulator: Sequence[str], command: Sequence[str], more: int = 1) -> float:
    """Of one run, the mean of so many runs more than the first; `command` is followed by the number of runs."""
    name, *options = emulator
    counting = [name, "-plugin", str(_plugin()), *options, *command]
    programs = 2 if more > 1 else 1
    once, again = (min(_executed([*counting, str(runs)]) for _ in range(programs)) for runs in (1, 1 + more))
    return (again - once) / more


def _executed(command: Sequence[str]) -> int:
    return int(re.findall(r"instructions: (\d+)", _run(command))[-1])


def _run(command: Sequence[str]) -> str:
    """What an emulated program and its plugin print as errors."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800).stderr


@dataclass(frozen=True)
class Loop:
    """Instructions from one to the branch back to it, with no other branch among them.

    Attributes:
        code: their bytes.
        executed: how many of them a run executes.
    """

    code: bytes
    executed: int


def loops(emulator: Sequence[str], command: Sequence[str]) -> tuple[list[Loop], int]:
    """The innermost loops of one run more on a 64-bit Arm, and how many instructions it executes in all."""
    once, twice = (_blocks(emulator, [*command, str(runs)]) for runs in (1, 2))
    total = sum(
        sign * count * len(code) // _ARM for blocks, sign in ((twice, 1), (once, -1)) for code, count in blocks.values()
    )
    iterations = _iterations(twice)
    iterations.subtract(_iterations(once))
    return [Loop(code, count * len(code) // _ARM) for code, count in iterations.items() if count > 0], total


_Blocks = Mapping[int, tuple[bytes, int]]
"""By address: the instructions up to a branch, or to the end of a page, and how often they were executed."""


def _blocks(emulator: Sequence[str], command: Sequence[str]) -> _Blocks:
    name, *options = emulator
    blocks: dict[int, tuple[bytes, int]] = {}
    with tempfile.NamedTemporaryFile("r", prefix="nnefc-blocks-") as file:
        _run([name, "-plugin", f"{_plugin()},blocks={file.name}", *options, *command])
        for line in file:
            address, count, code = line.split()
            position, made = int(address, 16), bytes.fromhex(code)
            same, before = blocks.get(position, (made, 0))
            blocks[position] = made, int(count) + (before if same == made else 0)
    return blocks


def _iterations(blocks: _Blocks) -> Counter[bytes]:
    """How often each loop was executed, by its instructions.

    The first iteration after other code lies in the block that this code begins.
    """
    found: Counter[bytes] = Counter()
    begins = sorted(blocks)
    for number, first in enumerate(begins):
        code, position = b"", first
        while position in blocks and _target(code, position) is None:
            part, times = blocks[position]
            if times < blocks[first][1]:
                break
            code, position = code + part, position + len(part)
        if _target(code, position) == first:
            near = begins[bisect_left(begins, first - _LONGEST) : number + 1]
            found[code] += sum(blocks[begin][1] for begin in near if first < begin + len(blocks[begin][0]))
    return found


# Branches: of which bits, what they have to be, and the first bit and the number of those of the distance.
_BRANCHES = (
    (0xFF000010, 0x54000000, 5, 19),  # b.ne and the like
    (0x7E000000, 0x34000000, 5, 19),  # cbz, cbnz
    (0x7E000000, 0x36000000, 5, 14),  # tbz, tbnz
    (0x7C000000, 0x14000000, 0, 26),  # b, bl
    (0xFE000000, 0xD6000000, 0, 0),  # br, blr, ret
)


def _target(code: bytes, end: int) -> int | None:
    """Where instructions branch to, of which the last one ends at an address: None where they go on there, -1 where
    only a register tells."""
    word = int.from_bytes(code[-_ARM:], "little")
    for bits, value, first, width in _BRANCHES:
        if code and word & bits == value:
            distance = word >> first & (1 << width) - 1
            return end - _ARM + _ARM * (distance - (distance >> width - 1 << width)) if width else -1
    return None


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


class _Images(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Random ones."""

    def __init__(self, name: str, shape: Sequence[int]) -> None:
        rng = np.random.default_rng(0)
        self._left = [{name: rng.standard_normal(shape).astype(np.float32)} for _ in range(_IMAGES)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self._left.pop() if self._left else None


def compiled(model: Path, target: str, numbers: str) -> nnefc.Artifact:
    """A network in float32, float16 or int8 (see :func:`quantized`) for another processor."""
    precision = " -precision=fp16" if numbers == "float16" else ""
    return nnefc.compile(quantized(model) if numbers == "int8" else model, target + precision)


def quantized(model: Path, data: str = DATA[0]) -> Path:
    """The same network with weights of int8, a scale for each channel, and data of int8 or uint8, next to the file."""
    result = model.with_suffix(f".q{data}.onnx")
    if result.exists() and result.stat().st_mtime >= model.stat().st_mtime:
        return result
    (given,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).get_inputs()
    newer, folded = (result.with_suffix(f".{name}.onnx") for name in ("newer", "folded"))
    onnx.save(version_converter.convert_version(onnx.load(model), _OPSET), newer)
    quant_pre_process(newer, folded, skip_symbolic_shape=True)  # scales and shifts go into the weights before them
    types = {"int8": quantization.QuantType.QInt8, "uint8": quantization.QuantType.QUInt8}
    quantization.quantize_static(
        folded,
        result,
        _Images(given.name, given.shape),
        per_channel=True,
        activation_type=types[data],
        weight_type=types["int8"],
    )
    newer.unlink()
    folded.unlink()
    return result
