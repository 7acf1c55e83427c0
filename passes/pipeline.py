"""Takes a network from a front end to kernels with an entry and a memory plan, by the passes of a backend.

The order of the passes is in the backend's list, which is one page: `compiler/backends/cpu_passes.py` and
`cuda_passes.py`. This module runs each phase of the list on what it reads: modules of Relax, then each kernel, then the
program that calls the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count
from typing import Any, TypeVar

import tvm
from tvm import tirx
from tvm.ir import GlobalVar

from nnefc.ir.network import Body, Control, If, Loop, Network, called_controls
from nnefc.passes.backend import KernelCall, KernelUse, Lowered, LoweredKernel, OperandLocation, TimedKernel
from nnefc.passes.compute.dot.depthwise_int8x4 import use_int8x4
from nnefc.passes.compute.dot.depthwise_int16x2 import use_int16x2
from nnefc.passes.compute.dot.dot_intrinsics import use_dot_products
from nnefc.passes.compute.dot.packed_int4 import use_packed_elements
from nnefc.passes.compute.vector_math import use_vector_math
from nnefc.passes.kernel_contents import content_of, with_numbered_variables
from nnefc.passes.legalize.element_wise import ELEMENT_WISE
from nnefc.passes.legalize.quantization import QUANTIZATION
from nnefc.passes.legalize.reductions import REDUCTIONS
from nnefc.passes.legalize.repeated_calls import repeating
from nnefc.passes.legalize.reshape_views import VIEWS
from nnefc.passes.manager import Pass, PassManager, Phase
from nnefc.passes.plan.entry import ControlledCall
from nnefc.passes.plan.entry_sizes import sizes_function
from nnefc.passes.plan.memory import MemoryPlan
from nnefc.passes.plan.program import (
    Buffer,
    Program,
    Step,
    called_with_elements,
    element_ranges,
    interface_of,
    kernel_stages,
)
from nnefc.passes.plan.served_outputs import memory_users, served_outputs
from nnefc.passes.plan.symbols import ENTRY, SIZES, kernel_symbol, symbol_of_content
from nnefc.passes.program_passes import LibraryContext, ProgramContext, ProgramState
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.arithmetic import arithmetic_formula, arithmetic_of
from nnefc.passes.schedule.in_place import in_place_of
from nnefc.passes.schedule.schedules import dynamic_sizes_of
from nnefc.passes.tir.dot.byte_split import use_byte_split
from nnefc.support.internal_errors import working_in, working_on
from nnefc.symbolic.dims import is_known

__all__ = [
    "MAIN",
    "GraphContext",
    "Lowered",
    "Receiver",
    "joined",
    "legalizations",
    "lower",
    "optimized",
    "register_operators",
    "without_code",
]

Receiver = Callable[[tirx.PrimFunc | bytes], None]
"""Called with each kernel of the host as soon as it is flat, and with object files of kernels that are compiled
already.
"""

MAIN = "main"
"""The unit that observers of passes know a network by; `main.body0` is a body of a branch or a loop in it."""

_LEGALIZATIONS = {**ELEMENT_WISE, **REDUCTIONS, **QUANTIZATION, **VIEWS}


@dataclass
class GraphContext:
    """The context of passes over the graph, besides the module.

    Attributes:
        settings: the target and options of the compilation.
        modules: the modules of the network and of the bodies in it, as they are before the present pass.
        algorithms: the choice of algorithms, once a pass has made it.
    """

    settings: Any
    modules: Sequence[tvm.IRModule] = ()
    algorithms: Any = None


_Part = TypeVar("_Part", Network, Body)


def optimized(network: Network, manager: PassManager, unit: str = MAIN) -> Network:
    """Runs all passes over Relax on a network, and on the bodies of its branches and loops.

    Args:
        unit: what observers know the network by.
    """
    register_operators()
    context = GraphContext(manager.settings)
    for step in manager.of(Phase.GRAPH, Phase.LEGALIZE):
        working_in(f"the pass '{step.name}'")
        if step.analyzes:
            context.modules = list(_modules(network))
            manager.apply(step, network.module, context, unit)
        else:
            network = _after(step, network, manager, context, unit)
    return network


def _after(step: Pass, part: _Part, manager: PassManager, context: GraphContext, unit: str) -> _Part:
    """Runs a pass on the module of a network or a body, then on the bodies in it that the module still calls."""
    part = replace(part, module=manager.apply(step, part.module, context, unit))
    if not part.controls:
        return part
    called, numbers = called_controls(part), count()
    controls: list[Control] = []
    for index, control in enumerate(part.controls):
        units = [f"{unit}.body{next(numbers)}" for _ in control.bodies]
        match control:
            case _ if index not in called:  # nothing needs its results
                controls.append(control)
            case If(then, other):
                controls.append(
                    If(
                        _after(step, then, manager, context, units[0]),
                        _after(step, other, manager, context, units[1]),
                    )
                )
            case Loop(body):
                controls.append(replace(control, body=_after(step, body, manager, context, units[0])))
    return replace(part, controls=tuple(controls))


def _modules(part: Network | Body) -> Iterator[tvm.IRModule]:
    """Returns the modules of a network or a body, and of the bodies in it."""
    yield part.module
    called = called_controls(part)
    for index, control in enumerate(part.controls):
        if index in called:
            for body in control.bodies:
                yield from _modules(body)


def legalizations(own: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Returns the legalizations of Relax operators by name, with those of a backend's `own`, for one module."""
    return {name: _noted(name, legalize) for name, legalize in repeating({**_LEGALIZATIONS, **own}).items()}


def _noted(name: str, legalize: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a legalization that records for messages which call it works on."""

    def noted(*args: Any) -> Any:
        working_on(f"the operator '{name}'")
        return legalize(*args)

    return noted


def register_operators() -> None:
    """Registers with TVM the operators of kernels that are this compiler's own, in this process."""
    use_vector_math()
    use_dot_products()
    use_packed_elements()
    use_byte_split()
    use_int8x4()
    use_int16x2()


def without_code(network: Network, receive: Receiver, library_context: LibraryContext) -> Lowered:
    """Returns a network without code, for sizes that only specialized programs have: its interface, and workspace for
    these programs.
    """
    program = interface_of(network)
    plan = MemoryPlan((), {}, {}, {}, {}, 0, (), (), (), 0, 0).with_room()
    symbol = library_context.symbol.replace(ENTRY, SIZES)
    receive(sizes_function(program, plan, [d.var for d in network.dynamic_dimensions], symbol=symbol))
    return Lowered(tvm.IRModule({}), (), program, plan, library_context.symbol)


def joined(programs: Sequence[Lowered]) -> Lowered:
    """Joins several programs of a library: the first one, with the functions of all."""
    first, *others = programs
    if not others:
        return first
    functions = {gv.name_hint: func for program in programs for gv, func in program.module.functions.items()}
    compiled = {symbol: kernel for program in programs for symbol, kernel in program.compiled.items()}
    return replace(first, module=tvm.IRModule(functions), compiled=compiled)


def lower(
    network: Network,
    manager: PassManager,
    receive: Receiver = lambda _kernel: None,
    library_context: LibraryContext | None = None,
) -> Lowered:
    """Lowers a network for code generation: runs the graph passes, schedules its kernels, plans memory and builds the
    entry.

    Args:
        manager: runs the passes of a backend.
        receive: given each kernel of the host, so that code generation need not wait for the others.
        library_context: the program's position among several of one library.

    The ranges of the network's dynamic dimensions hold around the call: see :func:`nnefc.symbolic.dims.ranges`.

    Raises:
        CompileError: an operation has no lowering.
    """
    backend, library_context = manager.backend, library_context or LibraryContext()
    unit = library_context.symbol.replace(ENTRY, MAIN)
    with backend.target.host.to_tvm():
        network = optimized(network, manager, unit)
    working_in("scheduling")
    context = ProgramContext(backend, library_context)
    state: ProgramState = manager.run([Phase.PROGRAM], ProgramState(network), context, unit)
    state = _with_kernels(state, manager, context, receive)
    working_in("the memory plan")
    before, called_before = len(library_context.timed or ()), len(library_context.calls)
    state = manager.run([Phase.PLAN], state, context, unit)
    if context.merges:
        for kernel in state.kernels.values():
            if kernel.host is not None and kernel.same is None:
                receive(kernel.host)
    program, plan = state.listed, state.planned
    if state.dynamic_dimensions or (library_context.data_dependent is None and network.all_data_dependent_sizes):
        own = library_context.symbol.replace(ENTRY, SIZES)
        receive(sizes_function(program, plan, state.dynamic_dimensions, backend.max_elements, own))
    steps = (library_context.timed or ())[before:]
    timed = tuple(_timed(step, program, state.kernels, plan, library_context.operators) for step in steps)
    called = tuple(state.kernels[gv] for gv in state.called)
    compiled = {kernel.symbol: kernel.compiled for kernel in called if kernel.compiled is not None}
    operations = cache(lambda gv: arithmetic_of(program.kernels[gv]))  # many calls are of one kernel
    controlled = library_context.calls[called_before:]
    calls = tuple(_kernel_call(call, state.kernels, operations) for call in controlled)
    users = memory_users(program, plan, served_outputs(program)) if calls else ()
    return Lowered(
        state.module,
        called,
        program,
        plan,
        library_context.symbol,
        timed,
        context.backend.cancellable,
        compiled,
        calls,
        users,
        state.kept,
    )


def _with_kernels(
    state: ProgramState, manager: PassManager, context: ProgramContext, receive: Receiver
) -> ProgramState:
    """Lowers each kernel of a program, unless the memory plan can do without it."""
    backend, library_context, program = context.backend, context.library_context, state.listed
    results = {step.kernel: len(step.writes) for step in kernel_stages(program)}
    unaligned = set(called_with_elements(program, backend.alignment))
    analyses = {gv: KernelAnalysis(func) for gv, func in program.kernels.items()}
    in_place = {gv: in_place_of(kernel) for gv, kernel in analyses.items()}
    tables = element_ranges(program) if library_context.checked is not None else {}
    kernels: dict[GlobalVar, LoweredKernel] = {}
    number = len(analyses)
    for done, gv in enumerate(sorted(analyses, key=lambda gv: gv.name_hint)):
        library_context.on_progress(done, number)
        working_on(partial(_kernel_of, program, gv))
        analysis = analyses.pop(gv)
        if in_place[gv].is_view:
            continue
        use = KernelUse(
            gv.name_hint,
            analysis,
            results[gv],
            in_place[gv],
            aligned=gv not in unaligned,
            sizes=dynamic_sizes_of(program.kernels[gv]),
            checked=library_context.checked is not None,
            element_ranges=tables.get(gv, {}),
            symbol=kernel_symbol(gv.name_hint),
        )
        kernels[gv] = _lowered(use, manager, context, receive)
    return replace(state, in_place=in_place, kernels=kernels)


def _lowered(use: KernelUse, manager: PassManager, context: ProgramContext, receive: Receiver) -> LoweredKernel:
    """Lowers a kernel, or finds it compiled, and hands over the code."""
    library_context = context.library_context
    content = content_of(use, manager.settings) if library_context.by_content else None
    if content is not None:
        return _lowered_by_content(replace(use, symbol=symbol_of_content(use.name, content)), manager, context, receive)
    kernel = context.backend.lower(use, manager)
    if context.merges or kernel.host is None:
        return kernel
    same = None if library_context.compiled is None else library_context.compiled.like(kernel.host)
    if same is None:
        receive(kernel.host)
    return replace(kernel, same=same)


def _lowered_by_content(
    use: KernelUse, manager: PassManager, context: ProgramContext, receive: Receiver
) -> LoweredKernel:
    """Lowers a kernel whose symbol identifies its content, or finds it compiled."""
    library_context, facts = context.library_context, copy_context()

    def host() -> tirx.PrimFunc:
        function = facts.run(context.backend.lower, use, manager.unobserved()).host
        assert function is not None
        return function

    kernel = None if library_context.cache is None else library_context.cache.find(use, host)
    if kernel is None:
        kernel = replace(context.backend.lower(use, manager), symbol=use.symbol)
    if use.symbol in library_context.symbols:
        return kernel
    library_context.symbols.add(use.symbol)
    if kernel.compiled is not None:
        receive(kernel.compiled.content)
    elif kernel.host is not None:
        receive(with_numbered_variables(kernel.host))
    return kernel


def _kernel_of(program: Program, kernel: GlobalVar) -> str:
    """Returns the kernel of a call and the model's tensors that it computes, for messages."""
    tensors = dict.fromkeys(
        name for step in kernel_stages(program) if step.kernel.same_as(kernel) for name in step.tensors
    )
    shown = ", ".join(f"'{name}'" for name in tensors)
    return f"the kernel '{kernel.name_hint}'" + (f", which computes {shown}" if shown else "")


def _timed(
    step: Step,
    program: Program,
    kernels: Mapping[GlobalVar, LoweredKernel],
    plan: MemoryPlan,
    operators: Mapping[str, str],
) -> TimedKernel:
    """Returns the profile entry of a kernel's call."""
    sizes = [buffer.bytes for buffer in (*step.reads, *step.writes)]
    return TimedKernel(
        kernel=step.kernel.name_hint,
        tensors=step.tensors,
        rule=kernels[step.kernel].rule,
        operations=arithmetic_of(program.kernels[step.kernel]),
        bytes=sum(size for size in sizes if isinstance(size, int)) if all(map(is_known, sizes)) else 0,
        operators=tuple(dict.fromkeys(operators[name] for name in step.tensors if name in operators)),
        reads=tuple(_location_of(buffer, plan) for buffer in step.reads),
        writes=tuple(_location_of(buffer, plan) for buffer in step.writes),
        operation_formula=arithmetic_formula(program.kernels[step.kernel], dict(step.sizes)),
    )


def _kernel_call(
    call: ControlledCall, kernels: Mapping[GlobalVar, LoweredKernel], operations: Callable[[GlobalVar], int]
) -> KernelCall:
    """Returns the library's description of a call that a run may skip or take the time of.

    Args:
        operations: returns those of a kernel.
    """
    step = call.step
    if not isinstance(step, Step):
        return KernelCall("", (), "", 0, 0, call.served)
    sizes = [buffer.bytes for buffer in (*step.reads, *step.writes)]
    moved = sum(size for size in sizes if isinstance(size, int)) if all(map(is_known, sizes)) else 0
    rule = kernels[step.kernel].rule
    return KernelCall(step.kernel.name_hint, step.tensors, rule, operations(step.kernel), moved, call.served)


def _location_of(buffer: Buffer, plan: MemoryPlan) -> OperandLocation:
    type_ = f"{buffer.dtype}[{', '.join(map(str, buffer.shape))}]"
    size = buffer.bytes if isinstance(buffer.bytes, int) else 0
    found = plan.positions.get(buffer)
    if found is None:
        return OperandLocation("body", 0, None, size, type_)
    return OperandLocation(
        found.base, found.index, found.offset if isinstance(found.offset, int) else None, size, type_
    )
