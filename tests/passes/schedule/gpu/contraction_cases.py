"""Contractions of networks as kernels for GPUs: lowered as in networks, scheduled, executed on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from emulate import device_code, run_kernel
from tvm import relax, tirx

from nnefc.ir.attributes import RULE
from nnefc.ir.dataflow import bindings_of
from nnefc.passes.graph.fold_constants import fold_constants
from nnefc.passes.graph.fusion.fusion_patterns import annotate_patterns
from nnefc.passes.graph.rewriter import array_of, constant, shape_of
from nnefc.passes.legalize.element_wise import ELEMENT_WISE
from nnefc.passes.legalize.row_major_contractions import CONTRACTIONS
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cuda import CUDA_RULES
from nnefc.passes.schedule.rule import scheduled
from nnefc.targets.codegen.cuda.compiler import Usage, compile_image, find_compiler, image_name
from nnefc.targets.codegen.cuda.device_functions import DeviceCode
from nnefc.targets.machine.cpu.parsing import parse_target
from nnefc.targets.machine.cuda.target import CudaTarget

__all__ = [
    "PROCESSOR_REGISTERS",
    "TARGET",
    "Operation",
    "assert_nearly_equal",
    "execute",
    "generated",
    "kernels",
    "lowered",
    "machine_code",
    "random",
]

TARGET = CudaTarget("cuda", parse_target("llvm"), (80, 90))

PROCESSOR_REGISTERS = 64 << 10
"""How many registers of 32 bits a processor of the target has."""

Operation = Callable[..., relax.Expr]


def random(rng: np.random.Generator, shape: Sequence[int], dtype: str = "float32") -> np.ndarray:
    """Numbers around zero; integers of the whole range."""
    if dtype.startswith(("int", "uint")):
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def lowered(operation: Operation, data: Sequence[np.ndarray], constants: Sequence[np.ndarray] = ()) -> tvm.IRModule:
    """`operation(*data, *constants)` as calls of kernels, as networks for CUDA have it."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType([*array.shape], str(array.dtype))) for i, array in enumerate(data)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(operation(*params, *map(constant, constants))))
        builder.emit_func_output(result)
    module = relax.transform.LegalizeOps({**ELEMENT_WISE, **CONTRACTIONS})(builder.finalize())
    module = annotate_patterns(fold_constants(module))
    module = relax.transform.FuseTIR()(relax.transform.FuseOps()(module))
    return relax.transform.DeadCodeElimination(["main"])(module)


def kernels(module: tvm.IRModule, target: CudaTarget = TARGET) -> list[tirx.PrimFunc]:
    """The kernels of a module, in the order of their calls, with their schedules."""
    calls = [binding.value for binding in bindings_of(module["main"])]
    return [
        scheduled(KernelAnalysis(module[call.args[0]]), CUDA_RULES, target)
        for call in calls
        if isinstance(call, relax.Call)
    ]


def execute(
    operation: Operation,
    data: Sequence[np.ndarray],
    constants: Sequence[np.ndarray] = (),
    target: CudaTarget = TARGET,
    offset: int = 0,
) -> tuple[np.ndarray, list[str]]:
    """The result of an operation, all accesses to memory checked; and the rules of its kernels.

    Args:
        offset: bytes from a well aligned position to where each tensor begins.
    """
    module = lowered(operation, data, constants)
    values = dict(zip(module["main"].params, data, strict=True))
    bindings = bindings_of(module["main"])
    calls = [binding for binding in bindings if isinstance(binding.value, relax.Call)]
    rules = []
    for binding, func in zip(calls, kernels(module, target), strict=True):
        operands = [values[arg] if arg in values else array_of(arg) for arg in binding.value.args[1].fields]
        dtype = str(binding.var.ty.dtype)
        result = _placed(np.full(shape_of(binding.var), np.nan if dtype.startswith("float") else 77, dtype), offset)
        given = [_placed(operand, offset) for operand in operands]
        for array in given:
            array.flags.writeable = False
        run_kernel(func, [*given, result], target)
        values[binding.var] = result
        rules.append(str(func.attrs[RULE]))
    return values[calls[-1].var], rules


def assert_nearly_equal(result: np.ndarray, wanted: np.ndarray, part: float = 2e-6) -> None:
    """Integers are equal, floats within a part of the largest one."""
    limit = 0 if result.dtype == np.int32 else part * np.abs(wanted).max()
    assert np.abs(result - wanted).max() <= limit


def generated(operation: Operation, given: Sequence[np.ndarray], target: CudaTarget, data: int = 0) -> DeviceCode:
    """The source of an operation's kernels; the first `data` operands, or all, are inputs."""
    inputs = data or len(given)
    return device_code(kernels(lowered(operation, given[:inputs], given[inputs:]), target), target)


def machine_code(code: DeviceCode, architecture: int) -> tuple[Usage, bytes]:
    """What the one kernel takes of a processor, after checks that nothing spills or is serialized; and its PTX."""
    compiler = find_compiler()
    assembled, log = compiler.cubin(code.source, image_name(code.source, architecture))
    assert assembled and "serialized" not in log
    assert "setmaxnreg" not in log  # ignored, if it were
    (usage,) = compile_image(code.source, (architecture,), compiler).usage
    assert usage.stack_bytes == usage.spill_stores == usage.spill_loads == 0
    return usage, compiler.ptx(code.source, architecture)


def _placed(array: np.ndarray, offset: int) -> np.ndarray:
    """A copy that begins `offset` bytes after a multiple of 64."""
    memory = np.empty(array.nbytes + 128, np.uint8)
    first = -memory.ctypes.data % 64 + offset
    copy = memory[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
