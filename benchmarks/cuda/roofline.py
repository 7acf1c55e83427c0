"""Predicts the time of each launch on a GPU by the model of `roofline_model.py`, without a GPU: `make gpu-report`.

    python benchmarks/cuda/roofline.py [NETWORK[*BATCH][:int8] ...] [--precision fp16]

Without names it takes those in WHOLE and writes benchmarks/results/cuda_roofline.md. Issue is left out where
`cuobjdump` of the CUDA toolkit is not found.
"""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
from tvm import s_tir

from nnefc.backends.cuda import CudaBackend
from nnefc.passes.backend import KernelUse
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.gpu.attention.analysis import attention_of
from nnefc.passes.schedule.gpu.contractions.analysis import product_of
from nnefc.symbolic.dims import size_hint
from nnefc.targets.codegen.cuda.code import CudaCode
from nnefc.targets.codegen.cuda.compiler import Usage
from nnefc.targets.codegen.cuda.device_functions import Launch
from nnefc.targets.machine.cuda.capabilities import default_gpu
from nnefc.targets.machine.cuda.target import CudaTarget
from nnefc.targets.machine.gpu.description import WARP, Gpu

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "cuda")]

from conditions import Conditions, page, write_page  # noqa: E402
from machine_code import Case, Loop, compiled, disassembled, loops_of  # noqa: E402
from roofline_model import Prediction, Work, predict  # noqa: E402

WHOLE = ("resnet50*32", "bert_base*16", "mobilenet_v2*32")
QUANTIZED = ("resnet50*32:int8",)
ARCHITECTURES = (80, 89, 90, 100)
TITLE = "Predicted times on GPUs"

_ABOUT = [
    "No GPU was used, and nothing was timed. Each launch is predicted by a roofline model, which",
    "[`roofline_model.py`](../cuda/roofline_model.py) states, from the sizes of its buffers, its multiply-adds, the",
    "instructions of its main loop in the machine code and their operands in shared memory, and the device of",
    "[`devices.py`](../../targets/machine/gpu/devices.py) that the code is tuned for. Networks are in `fp16`, or",
    "quantized where their name ends in `:int8`. *Roofline* is the larger of memory and products, *share* that part",
    "of the prediction. The model leaves out waiting within a launch, so predictions are lower bounds:",
    "[published times](cuda_published.md) of products are longer.",
]
_HEAD = [
    "| network*batch | device | launches | roofline, ms | predicted, ms | share | launches, ms |",
    "|---|---|---:|---:|---:|---:|---:|",
]


_OPERANDS = (
    (1, re.compile(r"nnefc_multiply_(warpgroup_|into_memory_)?([su]8|e[45]m)")),
    (4, re.compile(r"nnefc_multiply_(single|(warpgroup|into_memory)_tf32)")),
)
"""Bytes of the operands of products, of kernels that call such functions; others multiply 16-bit floats."""


def prediction_of(launch: Launch, work: Work, usage: Usage | None, gpu: Gpu) -> Prediction:
    """Predicts a launch on a device."""
    blocks, threads = math.prod(map(int, launch.grid)), math.prod(launch.block)
    return predict(launch.kernel, work, blocks, resident_blocks(launch, threads, usage, gpu), gpu)


def resident_blocks(launch: Launch, threads: int, usage: Usage | None, gpu: Gpu) -> int:
    """Returns how many blocks of a launch a processor has room for."""
    limits = gpu.architecture
    warps = -(-threads // WARP)
    by_threads = limits.threads_per_processor // (warps * WARP)
    if usage is None:
        return max(1, min(by_threads, limits.blocks_per_processor))
    registers = -(-max(usage.registers, 16) // 8) * 8 * warps * WARP
    shared = usage.shared_bytes + launch.shared_bytes + 1024  # of which the system takes some
    by_registers, by_shared = limits.registers_per_processor // registers, limits.shared_bytes_per_processor // shared
    return max(1, min(by_threads, by_registers, by_shared, limits.blocks_per_processor))


class Recorder:
    """The multiply-adds of the kernels that are compiled while it is installed, by their names."""

    def __init__(self) -> None:
        self.multiply_adds: dict[str, float] = {}
        self._lower = CudaBackend.lower

    def __enter__(self) -> Recorder:
        recorder, lower = self, self._lower

        def recorded(backend: CudaBackend, kernel: KernelUse, manager: object) -> object:
            recorder.multiply_adds[kernel.name] = multiply_adds_of(kernel.kernel, backend.target)
            return lower(backend, kernel, manager)  # type: ignore[arg-type]

        CudaBackend.lower = recorded  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_error: object) -> None:
        CudaBackend.lower = self._lower  # type: ignore[method-assign]


def multiply_adds_of(kernel: KernelAnalysis, target: CudaTarget) -> float:
    """Returns the products that a kernel adds up, for size hints."""
    attention = attention_of(kernel, target)
    if attention is not None:
        pairs = attention.elements * attention.queries * attention.keys
        return size_hint(pairs) * (attention.size + attention.width)
    try:
        product = product_of(kernel, target)
    except s_tir.ScheduleError:
        product = None
    if product is not None:
        return float(size_hint(product.batch.size * product.rows.size * product.columns.size * product.depth.size))
    sums = [step for step in kernel.reductions if step.contraction is not None]
    return sum(float(size_hint(step.iterations)) for step in sums)


def works_of(
    code: CudaCode, multiply_adds: Mapping[str, float], loops: Sequence[Loop]
) -> Iterator[tuple[Launch, Work]]:
    """Yields the launches with what they do; of several launches of a kernel, the first one multiplies."""
    by_kernel = {loop.kernel: loop for loop in loops}
    by_name = {function.name: function for function in code.kernels.functions}
    source = code.kernels.source
    for name in code.calls:
        function = by_name[name]
        for number, launch in enumerate(function.launches):
            loop = by_kernel.get(launch.kernel)
            buffers = {argument for argument in launch.arguments if isinstance(argument, int)}
            moved = sum(float(int(function.parameters[position].bytes)) for position in buffers)
            own = multiply_adds.get(name, 0.0) if number == 0 else 0.0
            body = source.rpartition(f" {launch.kernel}(")[2].partition("__global__")[0]
            has_matrices = loop is not None or "nnefc_multiply_" in body
            has_warpgroups = "nnefc_multiply_warpgroup" in body
            has_memory = "nnefc_multiply_into_memory" in body
            has_float8 = re.search(r"nnefc_multiply_(warpgroup_|into_memory_)?e[45]m", body) is not None
            size = next((size for size, pattern in _OPERANDS if pattern.search(body)), 2)
            yield launch, Work(own, moved, has_matrices, has_warpgroups, has_memory, size, has_float8, loop)


def predictions(case: Case, precision: str, architecture: int) -> list[Prediction]:
    """The launches of a network on the first device of an architecture."""
    gpu = default_gpu(architecture)
    with Recorder() as recorder:
        code = compiled(case, precision, (architecture,))
    loops = list(loops_of(disassembled(code))) if shutil.which("cuobjdump") else []
    usage = {each.kernel: each for each in code.image.usage if each.architecture == architecture}
    return [
        prediction_of(launch, work, usage.get(launch.kernel), gpu)
        for launch, work in works_of(code, recorder.multiply_adds, loops)
    ]


def total(word: str, gpu: Gpu, found: Sequence[Prediction]) -> str:
    """A line for one network on one device."""
    roofline, predicted = (sum(getattr(each, name) for each in found) for name in ("roofline", "cycles"))
    per_ms = gpu.clock_ghz * 1e6
    cells = [
        len(found),
        f"{roofline / per_ms:.3f}",
        f"{predicted / per_ms:.3f}",
        f"{roofline / predicted:.0%}",
        f"{len(found) * gpu.launch_cycles / per_ms:.3f}",
    ]
    return f"| {word} | {gpu.name} | {' | '.join(map(str, cells))} |"


def table(title: str, gpu: Gpu, found: Sequence[Prediction]) -> list[str]:
    """A line for each launch, in order."""
    head = "| launch | bound by | roofline, µs | predicted, µs | share | balance | resident blocks |"
    lines = [f"## {title}", "", head, "|---|---|---:|---:|---:|---:|---:|"]
    per_us = gpu.clock_ghz * 1e3
    for each in found:
        share = each.roofline / each.cycles if each.cycles else 1.0
        numbers = f"{each.roofline / per_us:.2f} | {each.cycles / per_us:.2f} | {share:.0%} | {each.balance:.0%}"
        lines.append(f"| `{each.kernel}` | {each.bound} | {numbers} | {each.resident} |")
    return lines


@click.command()
@click.argument("networks", nargs=-1)
@click.option("--precision", default="fp16")
def main(networks: tuple[str, ...], precision: str) -> None:
    """Predict the launches of NETWORKS."""
    totals, tables = list(_HEAD), []
    for word in networks or (*WHOLE, *QUANTIZED):
        case = Case.of(word)
        for number in ARCHITECTURES:
            found = predictions(case, precision, number)
            totals.append(total(word, default_gpu(number), found))
            if number == ARCHITECTURES[0] and word in (networks or WHOLE[:2]):
                tables += ["", *table(f"{case}, sm_{number}", default_gpu(number), found)]
    conditions = Conditions.now()
    lines = [*_ABOUT, "", *totals, *tables]
    click.echo(page(TITLE, conditions, lines))
    if not networks:
        write_page("cuda_roofline", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
