"""Kernels that move memory more than they compute, as TE makes them, and what NumPy computes for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from emulate import device_code, emulate, run_function
from tvm import te, tirx

from nnefc.ir.attributes import RULE
from nnefc.ir.empty_reductions import fold_empty_reductions
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cuda import CUDA_RULES
from nnefc.passes.schedule.rule import scheduled
from nnefc.targets.codegen.cuda.compiler import compile_image
from nnefc.targets.codegen.cuda.device_functions import DeviceCode
from nnefc.targets.machine.cpu.parsing import parse_target
from nnefc.targets.machine.cuda.target import CudaTarget

TARGET = CudaTarget("cuda", parse_target("llvm"))
RULE = RULE  # the attribute of a scheduled kernel that names its rule


@dataclass(frozen=True)
class Case:
    """A kernel, what it is given and what it must write."""

    name: str
    func: tirx.PrimFunc
    inputs: Sequence[np.ndarray]
    expected: Sequence[np.ndarray]


def case(
    name: str,
    compute: Callable[..., te.Tensor | list[te.Tensor]],
    reference: Callable[..., np.ndarray | list[np.ndarray]],
    *inputs: np.ndarray,
) -> Case:
    """A case from a computation of TE and one of NumPy, of the same operands."""
    operands = [
        te.placeholder([tirx.IntImm("int64", size) for size in array.shape], str(array.dtype), f"in{i}")
        for i, array in enumerate(inputs)
    ]
    made, wanted = compute(*operands), reference(*inputs)
    results = made if isinstance(made, list) else [made]
    expected = [np.asarray(array) for array in (wanted if isinstance(wanted, list) else [wanted])]
    return Case(
        f"{name} of {', '.join(f'{a.dtype}{list(a.shape)}' for a in inputs)}",
        te.create_prim_func([*operands, *results]),
        inputs,
        [array.astype(str(result.dtype)) for array, result in zip(expected, results, strict=True)],
    )


def kernels_of(cases: Sequence[Case], rules: Sequence[object] = CUDA_RULES) -> list[tirx.PrimFunc]:
    """The scheduled kernels, called k0, k1, …"""
    return [
        scheduled(KernelAnalysis(fold_empty_reductions(c.func)), rules, TARGET).with_attr("global_symbol", f"k{i}")
        for i, c in enumerate(cases)
    ]


def rules_of(cases: Sequence[Case]) -> list[str]:
    """The names of the rules that took the kernels."""
    return [str(kernel.attrs[RULE]) for kernel in kernels_of(cases)]


def check(
    cases: Sequence[Case], folder: Path, rules: Sequence[object] = CUDA_RULES, taken: str | None = None
) -> DeviceCode:
    """Run all kernels in the emulator, threads forward and backward, and compare; returns how they are launched.

    `taken` is the rule that must have scheduled all of them.
    """
    scheduled_kernels = kernels_of(cases, rules)
    assert taken is None or {str(kernel.attrs[RULE]) for kernel in scheduled_kernels} == {taken}
    code = device_code(scheduled_kernels, TARGET)
    kernels = emulate(code.source, folder)
    wrong = []
    for c, function in zip(cases, code.functions, strict=True):
        results = [np.zeros(array.shape, array.dtype) for array in c.expected]
        inputs = [np.array(array, order="C") for array in c.inputs]
        for array in inputs:
            array.flags.writeable = False
        try:
            run_function(kernels, function, [*inputs, *results], orders=(0, 1))
            for result, expected in zip(results, c.expected, strict=True):
                np.testing.assert_allclose(result, expected, **tolerance(expected), err_msg=c.name)
        except Exception as error:
            wrong.append(f"{c.name}: {error}")
    assert not wrong, "\n\n".join(wrong)
    return code


def check_resources(cases: Sequence[Case]) -> None:
    """Compile all kernels for two architectures: nothing spills, and registers suffice to keep a processor busy.

    With more than 64 registers a thread, half of a processor would stay idle.
    """
    image = compile_image(device_code(kernels_of(cases), TARGET).source, [80, 90])
    print(*image.usage, sep="\n")
    assert {usage.architecture for usage in image.usage} == {80, 90}
    assert all(
        usage.spill_stores == usage.spill_loads == usage.stack_bytes == 0 and usage.registers <= 64
        for usage in image.usage
    ), image.usage
    assert all(usage.shared_bytes <= TARGET.shared_bytes for usage in image.usage)


def tolerance(array: np.ndarray) -> dict[str, float]:
    """How far a result may be from `array`."""
    relative = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-12}.get(str(array.dtype), 0.0)
    return {"rtol": relative, "atol": relative * float(np.nanmax(np.abs(array), initial=1.0)) if relative else 0.0}


def real(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Random values, the same for the same shape; of integers small ones."""
    rng = np.random.default_rng(abs(hash(shape)))
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype.startswith("float"):
        return np.asarray(rng.standard_normal(shape)).astype(dtype)
    return np.asarray(rng.integers(-9 if dtype.startswith("int") else 0, 10, shape)).astype(dtype)
