"""What the kernels of a network are made of, of four architectures: compiled once, and kept.

    python benchmarks/cuda/kernel_records.py WORD [--precision fp16] [--pretrained FOLDER]

writes what :func:`records_of` reads. A record is found again while the compiler, these scripts and the network's file
are the same. What the machine code says is found again while the kernels' source, their launches and NVIDIA's compiler
are the same, so that a change of the compiler costs no more than the kernels that it changes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import click
from tvm import s_tir

from nnefc.backends import cuda
from nnefc.passes.backend import KernelUse
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.gpu.attention.analysis import attention_of
from nnefc.passes.schedule.gpu.contractions.analysis import product_of
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import size_hint
from nnefc.targets.codegen.cuda.code import CudaCode
from nnefc.targets.codegen.cuda.compiler import (
    COMPILER_VARIABLE,
    DeviceImage,
    Usage,
    compile_image,
    find_compiler,
)
from nnefc.targets.codegen.cuda.device_functions import EncodedMap, Launch
from nnefc.targets.machine.cuda.capabilities import default_gpu
from nnefc.targets.machine.cuda.target import CudaTarget
from nnefc.targets.machine.gpu.description import WARP, Gpu

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "cuda")]

from cases import Case, compiled  # noqa: E402
from machine_code import Loop, loop_of  # noqa: E402
from roofline_model import Prediction, Work, predict  # noqa: E402
from sass import disassembled, functions_of  # noqa: E402

__all__ = ["ARCHITECTURES", "Kernel", "NotCompiled", "records_of", "resident_blocks"]

ARCHITECTURES = (80, 89, 90, 100)
"""Code for each alone is tuned for A100, L4, H100 and B200; instructions of sm_90a and sm_100a are used."""

PATIENCE = 1200
"""Seconds after which a network for all architectures is given up."""

_MAX_REASON = 300
"""Characters of why there is no code."""

os.environ.setdefault(COMPILER_VARIABLE, "nvrtc")  # several times as fast as nvcc

_STORE = ROOT / "build" / "gpu_report"
_COMPILER = ("compiler", "passes", "targets", "benchmarks/models")
_ANALYSIS = ("machine_code", "execution_pipes", "sass", "shared_addresses")
_OWN = (*_ANALYSIS, "cases", "kernel_records", "libraries")


class NotCompiled(Exception):
    """A network has no code for GPUs, or not in time; the message says why."""


@dataclass(frozen=True)
class Kernel:
    """A kernel as a network launches it, on one architecture.

    Attributes:
        name: its symbol.
        launches: of a run; those of branches and of a loop's body count once.
        blocks, threads: of a launch, and of a block; 0 blocks where their number depends on data.
        registers: of a thread.
        shared_bytes: of a block.
        spilled_bytes: of a thread, stored and loaded.
        resident: blocks of a processor at once.
        boxes: whether bulk copies fetch by tensor maps.
        work: what a launch computes and moves, with the main loop of tensor cores.
    """

    name: str
    architecture: int
    launches: int
    blocks: int
    threads: int
    registers: int
    shared_bytes: int
    spilled_bytes: int
    resident: int
    boxes: bool
    work: Work

    @property
    def gpu(self) -> Gpu:
        """Returns the device that the code is tuned for."""
        return default_gpu(self.architecture)

    @property
    def occupancy(self) -> float:
        """Returns the part of a processor's threads that are resident."""
        return self.resident * -(-self.threads // WARP) * WARP / self.gpu.architecture.threads_per_processor

    @property
    def prediction(self) -> Prediction:
        """Returns what the roofline model predicts of a launch."""
        return predict(self.name, self.work, self.blocks, self.resident, self.gpu)

    @property
    def iterations(self) -> float:
        """Returns how often warps run the main loop in all launches of a run; 0 without one, or if that is unknown."""
        loop = self.work.loop
        own = self.blocks and loop is not None and loop.is_loop and loop.multiply_adds
        return self.launches * self.work.multiply_adds / own if own else 0.0

    @property
    def loop_cycles(self) -> dict[str, float]:
        """Returns the cycles of each pipe in an iteration of the main loop; empty without one."""
        if not self.iterations:
            return {}
        assert self.work.loop is not None
        rate = self.work.multiply_adds / (self.prediction.products * self.gpu.processors)
        return self.work.loop.cycles(self.gpu.for_float8 if self.work.has_float8 else self.gpu, rate)


def records_of(word: str, precision: str = "fp16", pretrained: Path | None = None) -> dict[int, list[Kernel]]:
    """Returns the kernels of a network by architecture; compiles it in a process of its own if they are not kept.

    Raises:
        NotCompiled: there is no code for it, or it took too long.
    """
    kept = _kept(word, precision, pretrained)
    if not kept.exists():
        options = ["--precision", precision, *(("--pretrained", str(pretrained)) if pretrained else ())]
        try:
            done = subprocess.run([sys.executable, __file__, word, *options], timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            raise NotCompiled(f"not compiled in {PATIENCE // 60} minutes") from None
        if not kept.exists():
            raise NotCompiled(f"the compiler ended with {done.returncode}")
    found = json.loads(kept.read_text())
    if "error" in found:
        raise NotCompiled(found["error"])
    return {int(number): [_kernel(each) for each in kernels] for number, kernels in found.items()}


def _kernel(record: dict[str, Any]) -> Kernel:
    work = record["work"]
    loop = work["loop"] and Loop(**work["loop"])
    return Kernel(**record | {"work": Work(**work | {"loop": loop})})


def _kept(word: str, precision: str, pretrained: Path | None) -> Path:
    """Returns the file of a network's records."""
    case = Case.of(word)
    given = (pretrained or Path()) / f"{case.network}.onnx"
    content = given.read_bytes() if case.is_pretrained and given.exists() else b""
    name = re.sub(r"\W", "-", word)
    return _STORE / f"{name}-{_digest(_digest_of_sources(), find_compiler().name, word, precision, content)}.json"


def _digest(*parts: str | bytes) -> str:
    hashed = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hashed.update(len(data).to_bytes(8, "little") + data)
    return hashed.hexdigest()[:20]


@cache
def _digest_of_sources() -> str:
    files = sorted(path for folder in _COMPILER for path in (ROOT / folder).rglob("*.*") if path.is_file())
    sources = [path for path in files if path.suffix in (".py", ".h", ".c", ".nnef")]
    named = (part for path in sources for part in (str(path.relative_to(ROOT)), path.read_bytes()))
    return _digest(*named, *map(_own_source, _OWN))


def _own_source(name: str) -> bytes:
    """Returns the text of a module of this folder."""
    return (Path(__file__).parent / f"{name}.py").read_bytes()


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value))
    part.replace(path)


@contextmanager
def _recorded() -> Iterator[dict[str, float]]:
    """Records the multiply-adds of the kernels that are compiled meanwhile, by their names."""
    found: dict[str, float] = {}
    lower = cuda.CudaBackend.lower

    def recorded(backend: cuda.CudaBackend, kernel: KernelUse, manager: Any) -> Any:
        found[kernel.name] = multiply_adds_of(kernel.kernel, backend.target)
        return lower(backend, kernel, manager)

    with mock.patch.object(cuda.CudaBackend, "lower", recorded):
        yield found


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


def kernels_of(case: Case, precision: str, architecture: int, pretrained: Path | None) -> list[Kernel]:
    """Compiles a network for an architecture, and returns its kernels in the order of their first launches."""
    without_image = mock.patch.object(cuda, "compile_image", lambda _source, numbers: DeviceImage(b"", numbers, (), ""))
    with tempfile.TemporaryDirectory() as folder, _recorded() as multiply_adds, without_image:
        code = compiled(case, precision, architecture, Path(folder), pretrained)
    usage, loops = _machine_code(code, architecture)
    found: dict[tuple[object, ...], Kernel] = {}
    for launch, own, moved in _launched(code, multiply_adds):
        body = _body(code.kernels.source, launch.kernel)
        work = _work(body, own, moved, loops.get(launch.kernel))
        kernel = _kernel_of(launch, work, usage[launch.kernel], architecture)
        same = kernel.name, kernel.blocks, moved, own
        before = found.get(same)
        found[same] = replace(kernel, launches=before.launches + 1) if before else kernel
    return list(found.values())


def _machine_code(code: CudaCode, architecture: int) -> tuple[dict[str, Usage], dict[str, Loop]]:
    """Returns what kernels take, and their main loops, by their names."""
    source, blocks = code.kernels.source, {launch.kernel: launch.block for launch in code.kernels.launches}
    analysis = map(_own_source, _ANALYSIS)
    digest = _digest(source, str(architecture), str(sorted(blocks.items())), find_compiler().name, *analysis)
    kept = _STORE / "machine_code" / f"{digest}.json"
    if not kept.exists():
        image = compile_image(source, (architecture,))
        functions = functions_of(disassembled(image.image))
        found = [loop for each in functions if (loop := loop_of(each, blocks[each.kernel])) is not None]
        _write(kept, {"usage": list(map(asdict, image.usage)), "loops": list(map(asdict, found))})
    read = json.loads(kept.read_text())
    usage, loops = [Usage(**each) for each in read["usage"]], (Loop(**each) for each in read["loops"])
    return {each.kernel: each for each in usage}, {each.kernel: each for each in loops}


def _launched(code: CudaCode, multiply_adds: Mapping[str, float]) -> Iterator[tuple[Launch, float, float]]:
    """Yields the launches of a run with their multiply-adds and bytes; of several of a kernel, the first multiplies."""
    by_name = {function.name: function for function in code.kernels.functions}
    for name in code.calls:
        function = by_name[name]
        for number, launch in enumerate(function.launches):
            buffers = {argument for argument in launch.arguments if isinstance(argument, int)}
            buffers |= {argument.parameter for argument in launch.arguments if isinstance(argument, EncodedMap)}
            sizes = (function.parameters[position].bytes for position in buffers)
            moved = sum(float(size) for size in sizes if isinstance(size, int))
            yield launch, multiply_adds.get(name, 0.0) if number == 0 else 0.0, moved


def _body(source: str, kernel: str) -> str:
    """Returns the text of a kernel, from its name to the next kernel."""
    return source.rpartition(f" {kernel}(")[2].partition("__global__")[0]


_OPERANDS = (
    (1, re.compile(r"nnefc_multiply_(warpgroup_|into_memory_)?([su]8|e[45]m)")),
    (4, re.compile(r"nnefc_multiply_(single|(warpgroup|into_memory)_tf32)")),
)
"""Bytes of the operands of products, of kernels that call such functions; others multiply 16-bit floats."""


def _work(body: str, multiply_adds: float, moved: float, loop: Loop | None) -> Work:
    return Work(
        multiply_adds,
        moved,
        has_matrices=loop is not None or "nnefc_multiply_" in body,
        has_warpgroups="nnefc_multiply_warpgroup" in body,
        has_tensor_memory="nnefc_multiply_into_memory" in body,
        element_bytes=next((size for size, pattern in _OPERANDS if pattern.search(body)), 2),
        has_float8=re.search(r"nnefc_multiply_(warpgroup_|into_memory_)?e[45]m", body) is not None,
        loop=loop,
    )


def _kernel_of(launch: Launch, work: Work, usage: Usage, architecture: int) -> Kernel:
    threads = math.prod(launch.block)
    first, *others = launch.grid
    shared = usage.shared_bytes + launch.shared_bytes
    return Kernel(
        launch.kernel,
        architecture,
        launches=1,
        blocks=first * math.prod(others) if isinstance(first, int) else 0,
        threads=threads,
        registers=usage.registers,
        shared_bytes=shared,
        spilled_bytes=usage.spill_stores + usage.spill_loads,
        resident=resident_blocks(threads, usage.registers, shared, default_gpu(architecture)),
        boxes=any(isinstance(argument, EncodedMap) for argument in launch.arguments),
        work=work,
    )


def resident_blocks(threads: int, registers: int, shared_bytes: int, gpu: Gpu) -> int:
    """Returns how many blocks a processor has room for.

    Args:
        threads: of a block.
        registers: of a thread.
        shared_bytes: of a block.
        gpu: the device.
    """
    limits, warps = gpu.architecture, -(-threads // WARP)
    by_threads = limits.threads_per_processor // (warps * WARP)
    by_registers = limits.registers_per_processor // (-(-max(registers, 16) // 8) * 8 * warps * WARP)
    by_shared = limits.shared_bytes_per_processor // (shared_bytes + 1024)  # of which the system takes some
    return max(1, min(by_threads, by_registers, by_shared, limits.blocks_per_processor))


@click.command()
@click.argument("word")
@click.option("--precision", default="fp16")
@click.option("--pretrained", type=click.Path(path_type=Path, exists=True, file_okay=False))
def main(word: str, precision: str, pretrained: Path | None) -> None:
    """Record the kernels of the network that WORD names."""
    case, kept = Case.of(word), _kept(word, precision, pretrained)
    try:
        found = {number: kernels_of(case, precision, number, pretrained) for number in ARCHITECTURES}
    except CompileError as error:
        _write(kept, {"error": " ".join(error.message.split())[:_MAX_REASON]})
        return
    _write(kept, {number: [asdict(kernel) for kernel in kernels] for number, kernels in found.items()})


if __name__ == "__main__":
    main()
