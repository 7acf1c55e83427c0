"""Code for NVIDIA GPUs: tensors in the plain layout, kernels that become launches, memory that is the device's.

The entry runs on the host. A kernel that the device could only run in a single thread is left to the host, if it is
much work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import tvm
from tvm import tirx

from nnefc.ir.attributes import C_CALL, NO_ALIAS, RULE
from nnefc.passes.backend import Backend, GraphPasses, KernelUse, Lowered, LoweredKernel, NamedPass
from nnefc.passes.graph.use_narrow_floats import UseNarrowFloats, check_names
from nnefc.passes.legalize.fetch_blocks import FetchBlocks
from nnefc.passes.legalize.pack_block_matmul import WidenBlocks
from nnefc.passes.legalize.plain_contractions import CONTRACTIONS
from nnefc.passes.legalize.whole_slices import WHOLE_SLICES
from nnefc.passes.plan.device_memory import READERS, DeviceMemory
from nnefc.passes.plan.entry_areas import BYTE_POINTER
from nnefc.passes.plan.entry_memory import Memory
from nnefc.passes.plan.symbols import exported
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu import CPU_RULES
from nnefc.passes.schedule.cpu.few_rows import with_sizes
from nnefc.passes.schedule.cuda import CUDA_RULES
from nnefc.passes.schedule.cuda.guards import with_guarded_steps
from nnefc.passes.schedule.cuda.one_row import sizes_of_one_row
from nnefc.passes.schedule.cuda.vector_product import VectorProductRule
from nnefc.passes.schedule.rule import scheduled, with_sizes_named
from nnefc.passes.schedule.schedules import scalars_of
from nnefc.passes.tir.announced_rounds import with_announced_rounds
from nnefc.passes.tir.exact_doubles import with_exact_doubles
from nnefc.passes.tir.kernels import Kernel, lower_kernel
from nnefc.passes.tir.named_sizes import named_sizes
from nnefc.passes.tir.narrow_indices import MOST_ELEMENTS, with_narrow_indices
from nnefc.passes.tir.sizes import tensor_bytes
from nnefc.passes.tir.statements import rounds_of
from nnefc.passes.tir.tvm_workarounds.opaque_constants import without_refused_constants
from nnefc.passes.tir.tvm_workarounds.shifted_remainders import with_safe_remainders
from nnefc.passes.tir.workspace import with_workspace_parameters
from nnefc.sizes import Dimension, dimension, is_known, substituted
from nnefc.targets.codegen.cuda.code import CudaCode
from nnefc.targets.codegen.cuda.compiler import compile_image, find_compiler
from nnefc.targets.codegen.cuda.formulas import number_of
from nnefc.targets.codegen.cuda.kernels import (
    DeviceCode,
    DeviceKernel,
    NotOnDevice,
    device_kernel,
    joined,
    with_version,
)
from nnefc.targets.codegen.cuda.launches import Access, HostKernel, Operand, launches_source
from nnefc.targets.machine.cpu.target import HALF_FLOATS
from nnefc.targets.machine.cuda.target import CudaTarget

__all__ = ["CudaBackend", "make_backend"]


class CudaBackend(Backend):
    """NVIDIA GPUs, and the CPU that launches their kernels."""

    alignment = 16  # of what a thread loads at once
    most_items = MOST_ELEMENTS

    target: CudaTarget

    def __init__(self, target: CudaTarget) -> None:
        self.target = target

    def check(self) -> None:
        find_compiler()

    def graph_passes(self, strict: bool, memory_budget: float) -> GraphPasses:
        return GraphPasses(
            contractions=lambda modules: [
                *([] if self.target.precision in HALF_FLOATS else [("fetch blocks", FetchBlocks())]),
                ("widen blocks", WidenBlocks()),
                *self._narrowing(modules),
            ],
            rows=replace(self.target, load_bytes=1),  # threads share rows of any length
            scans=self.target.gpu,
            computations={**CONTRACTIONS, **WHOLE_SLICES},
        )

    def _narrowing(self, modules: Sequence[tvm.IRModule]) -> Sequence[NamedPass]:
        """What makes half floats of the operands of contractions; tf32 is a matter of instructions."""
        dtype = HALF_FLOATS.get(self.target.precision)
        if not dtype:
            return ()
        check_names(modules, self.target.keep_wide)
        return [("use narrow floats", UseNarrowFloats(dtype, keep_wide=self.target.keep_wide))]

    def lower(self, kernel: KernelUse) -> LoweredKernel:
        try:
            return self._for_device(kernel)
        except NotOnDevice:
            return self._for_host(kernel)

    def _for_device(self, kernel: KernelUse) -> LoweredKernel:
        if kernel.kernel.func.attrs and C_CALL in kernel.kernel.func.attrs:
            raise NotOnDevice(f"{kernel.name} calls a function in C of the user's")
        func, code = self._on_device(kernel)
        serial = all(launch.threads == 1 for launch in code.function.launches)
        if serial and rounds_of(kernel.kernel.func.body) > self.target.gpu.serial_rounds:
            raise NotOnDevice(f"{kernel.name} is much work for one thread")
        code = self._with_one_row(kernel, code)
        workspace = code.workspace_bytes
        return LoweredKernel(func, [BYTE_POINTER] * (len(func.params) + bool(workspace)), workspace, code=code)

    def _on_device(self, kernel: KernelUse) -> tuple[tirx.PrimFunc, DeviceKernel]:
        """A kernel with its schedule, and its launches."""
        return with_sizes_named(kernel.kernel, lambda named: self._launched(replace(kernel, kernel=named)))

    def _launched(self, kernel: KernelUse) -> tuple[tirx.PrimFunc, DeviceKernel]:
        target = self.target if kernel.aligned else replace(self.target, load_bytes=1)
        func = scheduled(kernel.kernel, CUDA_RULES, target)
        if kernel.sizes:
            func = with_narrow_indices(with_guarded_steps(func), scalars_of(func))
        func = without_refused_constants(with_exact_doubles(with_safe_remainders(func)))
        if kernel.in_place.overwritable:  # the result may be written over an operand
            func = func.with_attr(NO_ALIAS, False)
        placed, buffers = with_workspace_parameters(func)
        return func, device_kernel(kernel.name, placed, len(buffers), target, kernel.sizes, named_sizes(func))

    def _with_one_row(self, kernel: KernelUse, code: DeviceKernel) -> DeviceKernel:
        """The code of a product of any number of rows, with code of its own for one row if that is another way."""
        ones = sizes_of_one_row(kernel.kernel, kernel.sizes, self.target) if kernel.sizes else {}
        if not ones:
            return code
        single = replace(
            kernel,
            name=f"{kernel.name}_of_one_row",
            kernel=with_sizes(kernel.kernel, ones),
            sizes=[size for size in kernel.sizes if size not in ones],
        )
        func, version = self._on_device(single)
        is_other = func.attrs[RULE] == VectorProductRule.__name__
        return with_version(code, version, kernel.sizes, ones) if is_other else code

    def _for_host(self, kernel: KernelUse) -> LoweredKernel:
        func, lowered = with_sizes_named(kernel.kernel, lambda named: self._lowered_for_host(named, kernel.sizes))
        symbol = f"nnefc_host_{kernel.name}"
        reads = len(func.params) - kernel.results
        written = Access.WRITE if kernel.in_place.updates is None else Access.BOTH  # what is not updated stays
        names = {size: f"size{number}" for number, size in enumerate(kernel.sizes)}

        def operand(size: Dimension, access: Access) -> Operand:
            for var, value in reversed(named_sizes(func)):
                size = substituted(size, {var: dimension(value)})
            return Operand(number_of(size, names), access)

        operands = [
            operand(tensor_bytes(param), Access.READ if position < reads else written)
            for position, param in enumerate(func.params)
        ]
        if not is_known(lowered.workspace_bytes) or lowered.workspace_bytes:
            operands.append(operand(lowered.workspace_bytes, Access.NONE))
        return LoweredKernel(
            func,
            [BYTE_POINTER] * len(func.params),
            scratch_bytes=lowered.scratch_bytes,
            host=exported(with_announced_rounds(lowered.func, self.target.host), symbol),
            code=HostKernel(kernel.name, symbol, tuple(operands), tuple(names.values())),
        )

    def _lowered_for_host(self, kernel: KernelAnalysis, sizes: Sequence[tirx.Var]) -> tuple[tirx.PrimFunc, Kernel]:
        func = without_refused_constants(scheduled(kernel, CPU_RULES, self.target.host))
        return func, lower_kernel(func, sizes)

    def memory(self) -> Memory:
        return DeviceMemory()

    def finish(self, lowered: Lowered, objects: tuple[bytes, ...], dump: Callable[[str, str], None]) -> CudaCode:
        device = self.device_code(lowered)
        dump("kernels.cu", device.source)
        image = compile_image(device.source, self.target.architectures)
        on_host = [kernel.code for kernel in lowered.kernels if isinstance(kernel.code, HostKernel)]
        launches = launches_source(
            device.functions,
            on_host,
            image_bytes=len(image.image),
            architectures=image.architectures,
            capturable=lowered.program.is_straight and not any(kernel.sizes for kernel in on_host),
            readers=READERS,
            messages=device.messages,
        )
        dump("launches.c", launches)
        code = CudaCode(objects, device, image, launches)
        dump("resources.txt", "\n".join([*code.resources(), ""]))
        return code

    def device_code(self, lowered: Lowered) -> DeviceCode:
        """The source of what the device runs."""
        return joined([k.code for k in lowered.kernels if isinstance(k.code, DeviceKernel)], self.target)


make_backend = CudaBackend
