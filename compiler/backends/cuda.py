"""CUDA backend: tensors in row-major layout, kernels launched on the device, device memory.

The entry runs on the host. A kernel that the device could only run in a single thread runs on the host, if it is much
work. The passes are in `cuda_passes.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from tvm import tirx

from nnefc.backends.cpu_steps import Objects
from nnefc.backends.cuda_passes import COMPUTATIONS, PASSES, CudaSettings, host_symbol
from nnefc.backends.kernel_context import KernelContext
from nnefc.ir.attributes import C_CALL
from nnefc.passes.backend import MEMORY_BUDGET, Backend, KernelUse, Lowered, LoweredKernel
from nnefc.passes.manager import PassManager, Phase
from nnefc.passes.plan.device_memory import READERS, DeviceMemory
from nnefc.passes.plan.entry_memory import Memory
from nnefc.passes.plan.entry_operands import BYTE_POINTER
from nnefc.passes.plan.program import Program, Step
from nnefc.passes.schedule.cpu import CPU_RULES
from nnefc.passes.schedule.cpu.specialize_row_count import with_sizes
from nnefc.passes.schedule.cuda import CUDA_RULES, has_own_instructions
from nnefc.passes.schedule.gpu.single_row import RULES_OF_ONE_ROW, sizes_of_one_row
from nnefc.passes.tir.common.name_symbolic_dims import named_sizes
from nnefc.passes.tir.common.shapes import tensor_bytes
from nnefc.passes.tir.common.statements import iterations_of
from nnefc.passes.tir.gpu.narrow_indices import MAX_ELEMENTS
from nnefc.symbolic.dims import Dimension, dimension, is_known, substituted
from nnefc.targets.codegen.cuda.code import CudaCode
from nnefc.targets.codegen.cuda.compiler import compile_image, find_compiler
from nnefc.targets.codegen.cuda.device_functions import DeviceCode
from nnefc.targets.codegen.cuda.formulas import number_of
from nnefc.targets.codegen.cuda.kernels import (
    DeviceKernel,
    NotOnDevice,
    device_kernel,
    joined,
    with_version,
    without_versions,
)
from nnefc.targets.codegen.cuda.launches import Access, HostKernel, HostOperand, launches_source
from nnefc.targets.codegen.cuda.sizes_in_memory import reads_counts, with_counts
from nnefc.targets.machine.cuda.target import CudaTarget
from nnefc.targets.machine.gpu.description import LOAD_BYTES

__all__ = ["CudaBackend", "make_backend"]


class CudaBackend(Backend):
    """NVIDIA GPUs, and the CPU that launches their kernels."""

    alignment = LOAD_BYTES
    max_elements = MAX_ELEMENTS
    passes = PASSES
    computations = COMPUTATIONS

    target: CudaTarget

    def __init__(self, target: CudaTarget) -> None:
        self.target = target

    def check(self) -> None:
        find_compiler()

    def settings(self, strict: bool = False, memory_budget: float = MEMORY_BUDGET) -> CudaSettings:
        return CudaSettings(self.target, strict, memory_budget)

    def lower(self, kernel: KernelUse, manager: PassManager) -> LoweredKernel:
        try:
            return self._for_device(kernel, manager)
        except NotOnDevice:
            return self._for_host(kernel, manager)

    def _for_device(self, kernel: KernelUse, manager: PassManager) -> LoweredKernel:
        if kernel.kernel.func.attrs and C_CALL in kernel.kernel.func.attrs:
            raise NotOnDevice(f"{kernel.name} calls a function in C of the user's")
        target = self.target if kernel.aligned else replace(self.target, load_bytes=1)
        context = KernelContext(manager, kernel, target, CUDA_RULES, kernel.sizes, on_host=False)
        made, code = self._launched(context)
        assert made.scheduled is not None
        serial = all(launch.threads == 1 for launch in code.function.launches)
        if serial and iterations_of(kernel.kernel.func.body) > self.target.gpu.serial_trip_count:
            raise NotOnDevice(f"{kernel.name} is much work for one thread")
        code = self._with_parts(made, self._with_one_row(context, code))
        workspace = code.workspace_bytes
        parameters = [BYTE_POINTER] * (len(made.scheduled.params) + bool(workspace))
        return LoweredKernel(made.scheduled, parameters, workspace, code=code)

    def _launched(self, context: KernelContext, version: bool = False) -> tuple[KernelContext, DeviceKernel]:
        """Lowers a kernel to launches."""

        def device(made: KernelContext, func: tirx.PrimFunc) -> DeviceKernel:
            return device_kernel(
                made.use.name, func, len(made.own), made.machine, made.sizes, named_sizes(made.scheduled)
            )

        return context.run_then(device, Phase.BLOCKS, version=version)

    def _with_one_row(self, context: KernelContext, code: DeviceKernel) -> DeviceKernel:
        """Returns the code of a product of any number of rows, with code of its own for one row where that differs.

        The same holds for an attention of any number of queries.
        """
        kernel = context.use
        ones = sizes_of_one_row(kernel.kernel, kernel.sizes, self.target) if kernel.sizes else {}
        if not ones:
            return code
        sizes = [size for size in kernel.sizes if size not in ones]
        single = context.version("of_one_row", with_sizes(kernel.kernel, ones), sizes)
        made, version = self._launched(single, version=True)
        return with_version(code, version, kernel.sizes, ones) if made.rule in RULES_OF_ONE_ROW else code

    def _with_parts(self, made: KernelContext, code: DeviceKernel) -> DeviceKernel:
        """Returns the code with that of its own for architectures with instructions which others do not have."""
        kernel = made.use
        for part in made.machine.parts:
            if not has_own_instructions(kernel.kernel, made.rule, part):
                continue
            version = replace(made.version(f"of_sm_{part.oldest}", kernel.kernel, kernel.sizes), machine=part)
            with contextlib.suppress(NotOnDevice):  # then those devices run what all others run
                _, own = self._launched(version, version=True)
                code = with_version(code, own, kernel.sizes, {}, part.architectures)
        return code

    def _for_host(self, kernel: KernelUse, manager: PassManager) -> LoweredKernel:
        context = KernelContext(manager, kernel, self.target.host, CPU_RULES, kernel.sizes)
        made, lowered = context.run(Phase.BLOCKS, Phase.FLAT, Phase.POINTERS)
        func = made.scheduled
        assert func is not None
        reads = len(func.params) - kernel.results
        written = Access.WRITE if kernel.in_place.updates is None else Access.BOTH  # what is not updated stays
        names = {size: f"size{number}" for number, size in enumerate(kernel.sizes)}

        def operand(size: Dimension, access: Access) -> HostOperand:
            for var, value in reversed(named_sizes(func)):
                size = substituted(size, {var: dimension(value)})
            return HostOperand(number_of(size, names), access)

        operands = [
            operand(tensor_bytes(param), Access.READ if position < reads else written)
            for position, param in enumerate(func.params)
        ]
        if not is_known(made.workspace_bytes) or made.workspace_bytes:
            operands.append(operand(made.workspace_bytes, Access.NONE))
        return LoweredKernel(
            func,
            [BYTE_POINTER] * len(func.params),
            scratch_bytes=made.scratch_bytes,
            host=lowered,
            code=HostKernel(kernel.name, host_symbol(kernel.name), tuple(operands), tuple(names.values())),
        )

    def reads_counts(self, kernel: LoweredKernel) -> bool:
        return isinstance(kernel.code, DeviceKernel) and reads_counts(kernel.code.function)

    def objects(self, manager: PassManager) -> Objects:
        return Objects(manager, self.target.host)

    def memory(self) -> Memory:
        return DeviceMemory()

    def finish(
        self,
        lowered: Lowered,
        objects: tuple[bytes, ...],
        manager: PassManager,
        dump: Callable[[str, str], None] | None = None,
    ) -> CudaCode:
        dump = dump or (lambda _name, _text: None)
        device = self.device_code(lowered)
        dump("kernels.cu", device.source)
        image = compile_image(device.source, self.target.architectures)
        on_host = [kernel.code for kernel in lowered.kernels if isinstance(kernel.code, HostKernel)]
        launches = launches_source(
            device.functions,
            on_host,
            image_bytes=len(image.image),
            architectures=image.architectures,
            capturable=_without_kept(lowered).is_straight and not any(kernel.sizes for kernel in on_host),
            readers=READERS,
            messages=device.messages,
            arrival_bytes=device.arrival_bytes,
            counts_offset=device.counts_offset,
            output_counts=lowered.kept.outputs if any(lowered.kept.outputs) else (),
        )
        dump("launches.c", launches)
        own = {function.name for function in device.functions}
        calls = tuple(name for name in _called(lowered.program) if name in own)
        code = CudaCode(objects, device, image, launches, calls)
        dump("resources.txt", "\n".join([*code.resources(), ""]))
        return code

    def device_code(self, lowered: Lowered) -> DeviceCode:
        """Returns the source of what the device runs."""
        positions = {kernel.name_hint: own for kernel, own in lowered.kept.arguments.items()}
        kernels = [kernel.code for kernel in lowered.kernels if isinstance(kernel.code, DeviceKernel)]
        # The host, which chooses versions, does not know sizes that stay on the device.
        code = joined([without_versions(k) if positions.get(k.function.name) else k for k in kernels], self.target)
        return with_counts(code, positions, len(lowered.kept.slots))


def _without_kept(lowered: Lowered) -> Program:
    """Returns a program without the data-dependent sizes for which the entry does not wait: those that stay in the
    device's memory, and checks."""
    found = lowered.program.counts.items()
    read = {buffer: tuple(c for c in own if c.var not in lowered.kept.slots and c.limit != 0) for buffer, own in found}
    return replace(lowered.program, counts={buffer: own for buffer, own in read.items() if own})


def _called(program: Program) -> Iterator[str]:
    """Yields the names of the kernels that a run calls; those of branches and loops once."""
    for step in program.steps:
        if isinstance(step, Step):
            yield str(step.kernel.name_hint)
        else:
            for body in step.bodies:
                yield from _called(body)


make_backend = CudaBackend
