"""The order of all passes for GPUs of NVIDIA's: from a front end's network to launches and their memory plan.

As in `passes/pipeline.py`; but tensors keep the plain layout, and a kernel becomes launches of the device's functions.
One that the device could only run in a single thread is left to the host, if it is much work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir import GlobalVar

from nnefc.network import Network
from nnefc.passes.compute.vector_math import use_vector_math
from nnefc.passes.graph.fold_affine import FoldAffine
from nnefc.passes.graph.fold_constants import FoldConstants
from nnefc.passes.graph.fuse import fuse
from nnefc.passes.graph.group_parts import GroupParts
from nnefc.passes.graph.join_local_response import JoinLocalResponse
from nnefc.passes.graph.use_half_precision import UseHalfPrecision
from nnefc.passes.legalize.limits import LIMITS
from nnefc.passes.legalize.lower_rows import LowerRows
from nnefc.passes.legalize.lower_scans import LowerScans
from nnefc.passes.legalize.plain_contractions import CONTRACTIONS
from nnefc.passes.legalize.quantization import QUANTIZATION
from nnefc.passes.legalize.whole_slices import WHOLE_SLICES
from nnefc.passes.pipeline import Observer, Receiver, through_graph_passes
from nnefc.passes.plan.device_memory import DeviceMemory
from nnefc.passes.plan.entry import BYTE_POINTER, ENTRY, entry_function, exported
from nnefc.passes.plan.in_place import in_place_of
from nnefc.passes.plan.memory import InPlace, MemoryPlan, plan_memory
from nnefc.passes.plan.program import Buffer, LoopStep, Program, Step, program_of
from nnefc.passes.schedule.cpu import CPU_RULES
from nnefc.passes.schedule.cuda import CUDA_RULES
from nnefc.passes.schedule.rule import scheduled
from nnefc.passes.tir.exact_doubles import with_exact_doubles
from nnefc.passes.tir.kernels import lower_kernel
from nnefc.passes.tir.shifted_remainders import with_safe_remainders
from nnefc.passes.tir.statements import rounds_of
from nnefc.targets.codegen.cuda.kernels import NO_ALIAS, DeviceKernel, NotOnDevice, device_kernel
from nnefc.targets.codegen.cuda.launches import Access, HostKernel, Operand
from nnefc.targets.codegen.workspace_buffers import buffer_bytes
from nnefc.targets.machine.cuda_target import CudaTarget

__all__ = ["LoweredForCuda", "cuda_graph_passes", "lower_for_cuda"]

_ALIGNMENT = 16  # bytes, of what a thread loads at once

_MOST_SERIAL_WORK = 1 << 14
"""Rounds of loops that one thread of a device may go through: its clock is a third of a processor's, and a step on the
host waits for two copies."""


@dataclass(frozen=True)
class LoweredForCuda:
    """A network as launches.

    Attributes:
        entry: the function that calls the kernels, for the host.
        kernels: what is launched, as code of the device.
        host_kernels: what the host computes; their functions went to the receiver.
        program, plan: what the entry was made from.
        scratch_bytes: what one worker of the host needs for itself during a run.
        capturable: whether the launches are the same in every run.
    """

    entry: tirx.PrimFunc
    kernels: tuple[DeviceKernel, ...]
    host_kernels: tuple[HostKernel, ...]
    program: Program
    plan: MemoryPlan
    scratch_bytes: int
    capturable: bool

    @property
    def constants(self) -> tuple[np.ndarray, ...]:
        """The trained values, in the order of `plan.constant_offsets`."""
        return self.program.constants


_PRECISIONS: Mapping[str, Sequence[tuple[str, tvm.ir.transform.Pass]]] = {
    "fp32": (),
    "tf32": (),  # a matter of instructions
    "fp16": (("use half precision", UseHalfPrecision()),),
}


def cuda_graph_passes(target: CudaTarget) -> list[tuple[str, tvm.ir.transform.Pass]]:
    """Relax → Relax, by phase."""
    return [
        # Phase 1. Know at compile time what can be known.
        ("fold constants", FoldConstants()),
        # Phase 2. Fewer operations: scales and shifts disappear in the weights before them.
        ("fold affine", FoldAffine()),
        ("join local response", JoinLocalResponse()),
        ("group parts", GroupParts()),
        # Phase 3. Narrow what contractions multiply, if that is asked for.
        *_PRECISIONS[target.precision],
        # Phase 4. Every operation becomes a computation of its own; threads share rows of any length.
        ("lower rows", LowerRows(replace(target, load_bytes=1))),
        ("lower scans", LowerScans(None)),
        ("legalize", relax.transform.LegalizeOps({**LIMITS, **QUANTIZATION, **CONTRACTIONS, **WHOLE_SLICES})),
        ("fold packed constants", FoldConstants()),
        # Phase 5. Join element-wise operations with what produces their operands; equal kernels become one.
        ("fuse", fuse()),
    ]


def lower_for_cuda(
    network: Network, target: CudaTarget, observe: Observer, receive: Receiver = lambda _kernel: None
) -> LoweredForCuda:
    """Take a network all the way to launches.

    Args:
        observe: called after each phase.
        receive: given each kernel of the host, so that code generation need not wait for the others.

    Raises:
        CompileError: an operation has no lowering.
    """
    use_vector_math()  # for what the host computes
    with target.host.to_tvm():
        network = through_graph_passes(network, cuda_graph_passes(target), observe)

    # Phase 6. Ask each kernel what the memory plan may do with its operands, then give it its schedule.
    program = program_of(network)
    work = _Kernels(program, target, receive)
    for gv, func in sorted(program.kernels.items(), key=lambda item: item[0].name_hint):
        work.add(gv, func)
    observe("schedule", tvm.IRModule(work.scheduled))

    # Phase 7. Plan the memory, and make the plan a function that launches the kernels.
    plan = plan_memory(program, work.in_place, work.own_bytes, _ALIGNMENT)
    memory = DeviceMemory()
    entry, used = entry_function(program, plan, work.signatures, memory)
    observe("entry", tvm.IRModule({ENTRY: entry}))
    return LoweredForCuda(
        entry,
        tuple(work.on_device[gv] for gv in used if gv in work.on_device),
        tuple(work.on_host[gv] for gv in used if gv in work.on_host),
        program,
        plan,
        work.scratch_bytes,
        capturable=not memory.read,
    )


class _Kernels:
    """The kernels of a program, each with its schedule, on the device or on the host.

    Attributes:
        in_place: what each allows the memory plan.
        scheduled: those that are not only views, with their schedules.
    """

    def __init__(self, program: Program, target: CudaTarget, receive: Receiver) -> None:
        self._target = target
        self._receive = receive
        self._results = {step.kernel: len(step.writes) for step in _kernel_steps(program)}
        self._unaligned = set(_called_with_items(program))
        self.in_place: dict[GlobalVar, InPlace] = {}
        self.scheduled: dict[GlobalVar, tirx.PrimFunc] = {}
        self.on_device: dict[GlobalVar, DeviceKernel] = {}
        self.on_host: dict[GlobalVar, HostKernel] = {}
        self.scratch_bytes = 0

    @property
    def own_bytes(self) -> dict[GlobalVar, int]:
        """The workspaces of the kernels, in the device's memory."""
        return {gv: kernel.function.workspace_bytes for gv, kernel in self.on_device.items()}

    @property
    def signatures(self) -> dict[GlobalVar, list[tvm.ir.Type]]:
        """The types of the functions that the entry calls: a pointer for each operand, and one to the workspace."""
        own = {gv for gv, size in self.own_bytes.items() if size}
        return {gv: [BYTE_POINTER] * (len(func.params) + (gv in own)) for gv, func in self.scheduled.items()}

    def add(self, gv: GlobalVar, func: tirx.PrimFunc) -> None:
        """Schedule and lower a kernel, unless it is no work."""
        allowed = self.in_place[gv] = in_place_of(func)
        if allowed.reshape or allowed.concatenation or allowed.parts:
            return
        target = replace(self._target, load_bytes=1) if gv in self._unaligned else self._target
        with_schedule = with_exact_doubles(with_safe_remainders(scheduled(func, CUDA_RULES, target)))
        if allowed.overwritable:  # the result may be written over an operand
            with_schedule = with_schedule.with_attr(NO_ALIAS, False)
        try:
            kernel = device_kernel(gv.name_hint, with_schedule, target)
        except NotOnDevice:
            self._add_to_host(gv, func)
            return
        if all(launch.threads == 1 for launch in kernel.function.launches) and rounds_of(func.body) > _MOST_SERIAL_WORK:
            self._add_to_host(gv, func)
            return
        self.scheduled[gv] = with_schedule
        self.on_device[gv] = kernel

    def _add_to_host(self, gv: GlobalVar, func: tirx.PrimFunc) -> None:
        self.scheduled[gv] = scheduled(func, CPU_RULES, self._target.host)
        kernel = lower_kernel(self.scheduled[gv])
        symbol = f"nnefc_host_{gv.name_hint}"
        self._receive(exported(kernel.func, symbol))
        self.scratch_bytes = max(self.scratch_bytes, kernel.scratch_bytes)
        reads = len(func.params) - self._results[gv]
        operands = [
            Operand(buffer_bytes(param), Access.READ if position < reads else Access.WRITE)
            for position, param in enumerate(func.params)
        ]
        if kernel.workspace_bytes:
            operands.append(Operand(kernel.workspace_bytes, Access.NONE))
        self.on_host[gv] = HostKernel(gv.name_hint, symbol, tuple(operands))


def _kernel_steps(program: Program) -> Iterator[Step]:
    """The calls of kernels, in bodies too."""
    for step in program.steps:
        if isinstance(step, Step):
            yield step
        else:
            for body in step.bodies:
                yield from _kernel_steps(body)


def _called_with_items(program: Program) -> Iterator[GlobalVar]:
    """Kernels in bodies of loops whose items begin anywhere: they must not load several elements at once."""
    for step in program.steps:
        if isinstance(step, Step):
            continue
        for body in step.bodies:
            yield from _called_with_items(body)
        if isinstance(step, LoopStep) and any(buffer.bytes % _ALIGNMENT for buffer in _items(step)):
            yield from (inner.kernel for inner in _kernel_steps(step.body))


def _items(step: LoopStep) -> tuple[Buffer, ...]:
    """The operands and results of a loop's body that are items of what the loop takes and makes."""
    scanned = len(step.loop.reversed_inputs)
    return (*step.body.inputs[len(step.body.inputs) - scanned :], *step.body.outputs)
