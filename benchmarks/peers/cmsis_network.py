"""A network as calls of CMSIS-NN, the library of kernels for Cortex-M, on a board under QEMU: its instructions.

CMSIS-NN is fetched as source (`git clone https://github.com/ARM-software/CMSIS-NN`), and compiled by the same compiler
as networks of nnefc are. A network is one call for each layer, as an ahead-of-time compiler would write it: nothing
interprets a model, buffers are fixed. Layers have the shapes of the network, weights and scales of no meaning: no
kernel's work depends on them.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from nnefc.targets.link.zig import zig
from nnefc.targets.machine.cpu.parsing import parse_target

__all__ = ["VARIABLE", "Measured", "missing", "run", "version"]

VARIABLE = "CMSIS_NN"
"""The environment variable that names the folder of CMSIS-NN's source."""

_HERE = Path(__file__).parent
_FAMILIES = ("BasicMath", "Convolution", "FullyConnected", "Pooling", "Softmax", "Transpose")
_TESTS = _HERE.parents[1] / "tests" / "targets" / "microcontrollers"
_VECTORS = {"cortex-m55": "+mve_fp"}
"""Options of zig's compiler for the intrinsics of vectors."""


@dataclass(frozen=True)
class Measured:
    """A run: see `Measured` of `tests/targets/boards.py`."""

    instructions: int
    stack_bytes: int
    flash_bytes: int


def missing() -> str:
    """What has to be there; "" if nothing."""
    return "" if (_source() / "Include" / "arm_nnfunctions.h").exists() else f"{VARIABLE}=FOLDER with CMSIS-NN's source"


def version() -> str:
    """Which version this is, by its header."""
    header = (_source() / "Include" / "arm_nn_types.h").read_text(encoding="utf-8")
    revision = next((line.split()[-1] for line in header.splitlines() if "$Revision:" in line), "")
    return f"CMSIS-NN, arm_nn_types.h {revision}".strip()


def run(model: Path, target: str, folder: Path) -> Measured:
    """Run a model of ONNX in float32, of which only layers and shapes are read; `folder` gets the program."""
    from boards import BOARDS, stored_bytes

    board = BOARDS[target]
    (folder / "net.h").write_text(_layers(onnx.load(model), folder / "weights.bin"))
    sizes = [stored_bytes(_program(target, folder, empty)) for empty in (True, False)]
    done = subprocess.run([*board.command, str(folder / "net.elf")], capture_output=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"{board.name} ended with {done.returncode}: {done.stderr.decode()}")
    ticks, stack = np.frombuffer(done.stdout[:8], np.uint32)
    return Measured(round(int(ticks) * board.tick), int(stack), sizes[1] - sizes[0])


def _source() -> Path:
    return Path(os.environ.get(VARIABLE, "CMSIS-NN"))


class _Weights:
    """The bytes that all layers read, and where each of their arrays begins."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self.parts: list[bytes] = []
        self._size = 0

    def _add(self, values: np.ndarray) -> int:
        start, content = self._size, values.tobytes()
        content += bytes(-len(content) % 16)
        self.parts.append(content)
        self._size += len(content)
        return start

    def bytes_of(self, count: int) -> str:
        return f"weights + {self._add(self._random.integers(-127, 128, count).astype(np.int8))}"

    def words(self, values: np.ndarray) -> str:
        return f"(int32_t *)(weights + {self._add(values.astype('<i4'))})"

    def scales(self, outputs: int) -> str:
        """Biases, multipliers and shifts of channels."""
        biases = self.words(self._random.integers(-500, 500, outputs))
        return f"{biases}, {self.words(np.full(outputs, 1 << 30))}, {self.words(np.full(outputs, -8))}"


def _layers(model: onnx.ModelProto, weights_file: Path) -> str:
    """C of the layers, which `main.c` includes."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    infos = (*graph.value_info, *graph.input, *graph.output)
    shapes = {info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in infos}
    constants = {value.name: list(value.dims) for value in graph.initializer}
    weights, names = _Weights(), {graph.input[0].name: "input"}
    calls, sums, sizes = [], [], {"input": int(np.prod(shapes[graph.input[0].name]))}
    for number, node in enumerate(graph.node):
        x, (made,) = names[node.input[0]], node.output
        if node.op_type in ("Relu", "Flatten"):  # a limit of the layer before; a shape
            names[made] = x
            continue
        names[made] = y = f"t{number}"
        sizes[y] = int(np.prod(shapes[made]))
        attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        match node.op_type:
            case "Conv":
                of_x, of_y = shapes[node.input[0]], shapes[made]
                calls.append(_convolution(x, y, of_x, of_y, constants[node.input[1]], attributes, weights))
            case "Gemm":
                inputs, outputs = constants[node.input[1]]
                w, b = weights.bytes_of(inputs * outputs), weights.words(np.arange(outputs))
                sizes[f"sums{number}"] = 4 * outputs
                total = f"(int32_t *)sums{number}"
                calls.append(f"dense({x}, {inputs}, {w}, {b}, {total}, {y}, {outputs});")
                sums.append(f"sums_of({w}, {b}, {total}, {inputs}, {outputs});")
            case "GlobalAveragePool":
                _, channels, height, width = shapes[node.input[0]]
                calls.append(f"mean({x}, {height}, {width}, {channels}, {y});")
            case "Add":
                calls.append(f"sum({x}, {names[node.input[1]]}, {y}, {sizes[y]});")
            case "Softmax":
                calls.append(f"arm_softmax_s8({x}, 1, {sizes[y]}, 1 << 30, 22, -200, {y});")
            case kind:
                raise NotImplementedError(f"operator {kind}")
    weights_file.write_bytes(b"".join(weights.parts))
    return "\n".join(_source_of(calls, sums, sizes))


def _convolution(
    x: str,
    y: str,
    of_x: list[int],
    of_y: list[int],
    of_w: list[int],
    attributes: Mapping[str, object],
    weights: _Weights,
) -> str:
    """The call of a convolution with `SAME_UPPER`, whose tensors have channels last."""
    outputs, depth, *kernel = of_w
    strides = [int(stride) for stride in attributes["strides"]]  # type: ignore[attr-defined]
    pads = [
        max(0, (out - 1) * stride + size - length) // 2
        for out, stride, size, length in zip(of_y[2:], strides, kernel, of_x[2:], strict=True)
    ]
    is_depthwise = int(attributes.get("group", 1)) > 1  # type: ignore[call-overload]
    dims = [1, *kernel, outputs] if is_depthwise else [outputs, *kernel, depth]
    w = weights.bytes_of(int(np.prod(of_w)))
    numbers = ", ".join(map(str, (*strides, *pads)))
    shapes = [f"DIMS(1, {shape[2]}, {shape[3]}, {shape[1]})" for shape in (of_x, of_y)]
    filters = f"DIMS({', '.join(map(str, dims))})"
    name = "depthwise" if is_depthwise else "convolution"
    return f"{name}({x}, {shapes[0]}, {w}, {filters}, {weights.scales(outputs)}, {numbers}, {y}, {shapes[1]});"


def _source_of(calls: list[str], sums: list[str], sizes: Mapping[str, int]) -> Iterator[str]:
    yield '__asm__(".section .rodata\\n.balign 64\\n.globl weights\\nweights: .incbin \\"weights.bin\\"\\n.previous");'
    yield "extern int8_t weights[];"
    for name, size in sizes.items():
        yield f"static int8_t {name}[{size}] __attribute__((aligned(16)));"
    for name, lines in (("LAYERS", calls), ("SUMS", sums)):
        yield f"#define {name} \\\n    " + " \\\n    ".join(lines or [""])
    yield ""


def _program(target: str, folder: Path, empty: bool) -> Path:
    """The program; without the network, for what else it has."""
    from boards import BOARDS, EXAMPLE

    host, board, source = parse_target(target), BOARDS[target], _source()
    made = folder / ("empty.elf" if empty else "net.elf")
    files = [*board.sources, _HERE / "cmsis" / "main.c"]
    if not empty:
        files += [file for family in _FAMILIES for file in sorted(source.glob(f"Source/{family}Functions/*s8*.c"))]
        files += [
            file for file in sorted(source.glob("Source/NNSupportFunctions/*.c")) if not re.search("f16|f32", file.name)
        ]
    names = list(dict.fromkeys(map(str, files)))
    words = [
        *zig(),
        "cc",
        "-target",
        host.zig_target,
        f"-mcpu={host.zig_cpu}{_VECTORS.get(target, '')}",
        "-O3",
        "-g0",
        "-fno-sanitize=all",
        "-w",
    ]
    words += [
        "-ffreestanding",
        "-fno-unwind-tables",
        "-ffunction-sections",
        "-fdata-sections",
        "-Wl,--gc-sections",
    ]
    positions = (
        _HERE / "cmsis",
        _HERE / "emx",
        EXAMPLE,
        _TESTS,
        source / "Include",
        folder,
    )  # the first has what C libraries have
    words += [*(f"-I{position}" for position in positions), "-DPAINTED=65536", *["-DEMPTY"] * empty]
    words += ["-Wl,-e,board_start", "-T", str(board.script), *names, "-o", str(made)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return made
