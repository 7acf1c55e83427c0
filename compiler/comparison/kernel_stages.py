"""Finds the lowering stage that changes the results of a kernel: its schedule, or a pass over its statements.

Each kernel of a network is run on its actual operands: first without a schedule, compiled by TVM's default pipeline,
and then again after its schedule and after each pass that changes it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.ir import GlobalVar, PointerType
from tvm.ir.expr import Call

from nnefc.comparison.reference import UnfusedEvaluation, one_by_one
from nnefc.driver.locks import in_turn
from nnefc.ir.constant_evaluation import external_calls
from nnefc.ir.dataflow import bindings_of
from nnefc.ir.error_metrics import Difference, difference
from nnefc.ir.network import Network
from nnefc.passes.backend import Backend, KernelUse, ObjectCompiler, Settings
from nnefc.passes.manager import PassManager, PassRun
from nnefc.passes.pipeline import optimized
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.in_place import in_place_of

__all__ = ["KernelStage", "kernel_stages"]

Array = np.ndarray[Any, Any]

_REPORTS = {"nnefc_iterations", "nnefc_kernel_error"}
"""Functions of the runtime that kernels call; they do not exist here."""


@dataclass(frozen=True)
class KernelStage:
    """A stage that changed a kernel.

    Attributes:
        kernel: its name.
        step: the stage: the schedule, or the name of a pass.
        difference: of the kernel's results from those without a schedule; the largest of all results.
        is_integer: whether that result has integers, in which a difference may be due to rounding.
    """

    kernel: str
    step: str
    difference: Difference
    is_integer: bool


def kernel_stages(
    network: Network, backend: Backend, inputs: Mapping[str, Array], strict: bool, memory_budget: float
) -> Generator[KernelStage, None, None]:
    """Yield each stage that changes a kernel, with the difference of its results, in the order of the network's calls.

    Kernels that need the runtime other than to report an error are left out.

    Args:
        network: that can be evaluated without fusion; see :func:`nnefc.comparison.passes.check_unfused`.
    """
    given = [*(inputs[name] for name in network.inputs), *(state.initial for state in network.states)]
    with in_turn(), backend.target.host.to_tvm():
        settings = backend.settings(strict, memory_budget)
        module = optimized(network, PassManager(backend, settings)).module
        values, wanted = _operands(module, given), _read_results(module["main"])
        for kernel, operands in values.items():
            func = module[kernel]
            if external_calls(func) <= _REPORTS:
                yield from _steps(kernel.name_hint, func, operands, wanted.get(kernel), backend, settings)


def _operands(module: tvm.IRModule, given: Sequence[Array]) -> dict[GlobalVar, list[Array]]:
    """Returns the operands of the first call of each kernel."""
    main = module["main"]
    calls: dict[GlobalVar, list[relax.Expr]] = {}
    for binding in bindings_of(main):
        call = binding.value
        if isinstance(call, relax.Call) and call.op == _CALL and call.args[0] not in calls:
            calls[call.args[0]] = list(call.args[1].fields)
    known = {param: np.asarray(value) for param, value in zip(main.params, given, strict=True)}
    wanted = {
        str(operand.name)
        for operands in calls.values()
        for operand in operands
        if isinstance(operand, relax.Var) and operand not in known
    }
    order = [str(b.var.name) for b in bindings_of(main) if str(b.var.name) in wanted]
    found = UnfusedEvaluation(module, given, wanted).of(order)

    def value(operand: relax.Expr) -> Array:
        if not isinstance(operand, relax.Var):
            array: Array = operand.value.numpy()
            return array
        return known[operand] if operand in known else found[str(operand.name)]

    return {kernel: list(map(value, operands)) for kernel, operands in calls.items()}


def _read_results(main: relax.Function) -> dict[GlobalVar, set[int]]:
    """Return which results of kernels with several results are read; the others are scratch memory."""
    makers: dict[relax.Var, GlobalVar] = {}
    found: dict[GlobalVar, set[int]] = {}
    for binding in bindings_of(main):
        value = binding.value
        if isinstance(value, relax.Call) and value.op == _CALL:
            makers[binding.var] = value.args[0]
        elif isinstance(value, relax.TupleGetItem) and value.tuple_value in makers:
            found.setdefault(makers[value.tuple_value], set()).add(int(value.index))
    return found


_CALL = tvm.ir.Op.get("relax.call_tir")


def _steps(
    name: str,
    func: tirx.PrimFunc,
    operands: Sequence[Array],
    wanted: set[int] | None,
    backend: Backend,
    settings: Settings,
) -> Iterator[KernelStage]:
    results = [
        (tuple(map(int, param.shape)), str(param.dtype)) for param in func.params[len(operands) :]
    ]  # no sizes follow: all are known
    analysis = KernelAnalysis(func)
    in_place = in_place_of(analysis)
    if in_place.is_view:
        return
    exact = _run(_without_reports(one_by_one(func)), operands, results, 0, None, backend)
    seen: list[tuple[str, tirx.PrimFunc]] = []

    def observe(run: PassRun) -> None:
        if run.changed and not run.version and (runnable := backend.runnable(run)) is not None:
            seen.append((run.step.name, _without_reports(runnable)))

    manager = PassManager(backend, settings, observers=[observe])
    lowered = backend.lower(KernelUse(name, analysis, len(results), in_place, True), manager)
    compiled = backend.objects(manager.unobserved())
    assert isinstance(lowered.workspace_bytes, int)  # all sizes are known
    for step, changed in seen:
        is_flat = not isinstance(changed.body, s_tir.SBlockRealize)
        found = _run(changed, operands, results, lowered.workspace_bytes, compiled if is_flat else None, backend)
        apart = [
            (difference(own, other), other.dtype.kind in "iu")
            for index, (own, other) in enumerate(zip(found, exact, strict=True))
            if wanted is None or index in wanted
        ]
        yield KernelStage(name, step, *max(apart, key=lambda each: each[0].relative))


def _run(
    func: tirx.PrimFunc,
    operands: Sequence[Array],
    results: Sequence[tuple[tuple[int, ...], str]],
    workspace_bytes: int,
    compiled: ObjectCompiler | None,
    backend: Backend,
) -> list[Array]:
    """Return the results of a kernel after a pass, compiled by the backend's remaining passes, or else by TVM's
    default pipeline.
    """
    func = func.without_attr("calling_conv").with_attr("global_symbol", "main")
    if compiled is not None:
        library = compiled.loaded([func])
    else:
        library = tvm.compile(tvm.IRModule({"main": func}), target=backend.target.host.to_tvm())
    tensors = [tvm.runtime.tensor(np.array(operand, order="C")) for operand in operands]
    tensors += [tvm.runtime.empty(shape, dtype) for shape, dtype in results]
    own = func.params[len(tensors) :]
    takes_pointers = any(isinstance(param.ty, PointerType) for param in func.params)
    if takes_pointers:
        memory = [tvm.runtime.empty((max(1, workspace_bytes),), "uint8") for _ in own]
        library["main"](*(ctypes.c_void_p(_address(tensor)) for tensor in (*tensors, *memory)))
    else:
        memory = [tvm.runtime.empty(tuple(map(int, param.shape)), str(param.dtype)) for param in own]
        library["main"](*tensors, *memory)
    return [tensor.numpy() for tensor in tensors[len(operands) :]]


def _address(tensor: tvm.runtime.Tensor) -> int:
    """Return the address of a tensor's first element."""
    array = np.from_dlpack(tensor)
    return int(array.ctypes.data)


def _without_reports(func: tirx.PrimFunc) -> tirx.PrimFunc:
    def change(stmt: tirx.Evaluate) -> tirx.Stmt:
        call = stmt.value
        is_report = isinstance(call, Call) and call.op == _EXTERN and str(call.args[0].value) in _REPORTS
        return tirx.Evaluate(tirx.IntImm("int32", 0)) if is_report else stmt

    return tvm_ffi.structural_map(func, (tirx.Evaluate, change))


_EXTERN = tvm.ir.Op.get("tirx.call_extern")
