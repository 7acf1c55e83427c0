"""The order of all passes: from a front end's network to kernels with an entry, and their memory plan.

Who reads this file knows what happens to a network, and when, on its way to any kind of machine. What one kind does in
its own way is in its file in `compiler/backends/`, which fits beside this page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import tvm
from tvm import relax, tirx
from tvm.ir import GlobalVar

from nnefc.internal_errors import working_in, working_on
from nnefc.ir.attributes import RULE
from nnefc.network import Body, Choice, Control, Loop, Network, called_controls
from nnefc.passes.backend import (
    MEMORY_BUDGET,
    Backend,
    GraphPasses,
    KernelUse,
    Lowered,
    LoweredKernel,
    NamedPass,
    OperandPlace,
    TimedKernel,
)
from nnefc.passes.compute.depthwise_rows import use_pairs_of_bytes
from nnefc.passes.compute.depthwise_words import use_words
from nnefc.passes.compute.dot_code import use_dot_products
from nnefc.passes.compute.packed_items import use_packed_items
from nnefc.passes.compute.two_digits import use_two_digits
from nnefc.passes.compute.vector_math import use_vector_math
from nnefc.passes.graph.fold_affine import FoldAffine
from nnefc.passes.graph.fold_constants import FoldConstants
from nnefc.passes.graph.fuse import fuse
from nnefc.passes.graph.group_parts import GroupParts
from nnefc.passes.graph.join_local_response import JoinLocalResponse
from nnefc.passes.graph.own_sizes import OwnSizes
from nnefc.passes.legalize.differences import PlainDifferences
from nnefc.passes.legalize.element_wise import ELEMENT_WISE
from nnefc.passes.legalize.lower_rows import LowerRows
from nnefc.passes.legalize.lower_scans import LowerScans
from nnefc.passes.legalize.quantization import QUANTIZATION
from nnefc.passes.legalize.reductions import REDUCTIONS
from nnefc.passes.legalize.views import VIEWS
from nnefc.passes.plan.compiled_kernels import CompiledKernels
from nnefc.passes.plan.entry import entry_function
from nnefc.passes.plan.entry_sizes import counted_sizes, sizes_function
from nnefc.passes.plan.memory import MemoryPlan, plan_memory
from nnefc.passes.plan.merged_kernels import merged_kernels
from nnefc.passes.plan.patches import in_patches
from nnefc.passes.plan.program import (
    Buffer,
    Pool,
    Program,
    Step,
    called_with_items,
    face_of,
    item_ranges,
    kernel_steps,
    program_of,
)
from nnefc.passes.plan.symbols import ENTRY, SIZES
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.arithmetic import arithmetic_of
from nnefc.passes.schedule.in_place import in_place_of
from nnefc.passes.schedule.schedules import open_sizes_of
from nnefc.sizes import is_known

__all__ = [
    "Lowered",
    "Observer",
    "Place",
    "Receiver",
    "computations",
    "joined",
    "legalizations",
    "lower",
    "optimized",
    "simplifications",
    "through_graph_passes",
    "use_own_operators",
    "without_code",
]

# Called after each phase with its name and the module as it is then.
Observer = Callable[[str, tvm.IRModule], None]

# Given each kernel that the host runs as soon as it is flat.
Receiver = Callable[[tirx.PrimFunc], None]

_LEGALIZATIONS = {**ELEMENT_WISE, **REDUCTIONS, **QUANTIZATION, **VIEWS}


def simplifications(own: GraphPasses) -> list[NamedPass]:
    """Relax → Relax, the first phases, with the backend's own passes."""
    return [
        ("network", tvm.ir.transform.Sequential([])),
        # Phase 1. Know at compile time what can be known.
        ("fold constants", FoldConstants(keep=("dequantize",))),
        *own.integers,
        ("fold dequantized constants", FoldConstants()),
        # Phase 2. Fewer operations: scales and shifts disappear in the weights before them, shuffles become gathers.
        ("fold affine", FoldAffine()),
        ("join local response", JoinLocalResponse()),
        *own.shuffles,
        ("group parts", GroupParts()),
    ]


def computations(own: GraphPasses, modules: Sequence[tvm.IRModule]) -> list[NamedPass]:
    """Relax → Relax, the phases after those; `modules` are all of the network's, as they are now."""
    return [
        # Phase 3. Choose element types, layouts and, with them, the computations of contractions and poolings.
        *own.contractions(modules),
        ("lower rows", LowerRows(own.rows)),
        ("lower scans", LowerScans(own.scans)),
        # Phase 4. Every other operation becomes a computation of its own.
        ("legalize", relax.transform.LegalizeOps(legalizations(own.computations))),
        ("plain differences", PlainDifferences()),
        ("own sizes", OwnSizes()),
        ("fold packed constants", FoldConstants()),
        # Phase 5. Join element-wise operations with what produces their operands; equal kernels become one.
        ("fuse", fuse(own.cuts, own.moves)),
        ("own sizes of groups", OwnSizes()),
        ("fold widened constants", FoldConstants(widened=True)),
    ]


def legalizations(own: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """How operators of Relax become computations, by their names, with those of a backend's `own`."""
    return {name: _noted(name, legalize) for name, legalize in {**_LEGALIZATIONS, **own}.items()}


def _noted(name: str, legalize: Callable[..., Any]) -> Callable[..., Any]:
    """A legalization that says what it works on."""

    def noted(*args: Any) -> Any:
        working_on(f"the operator '{name}'")
        return legalize(*args)

    return noted


_Part = TypeVar("_Part", Network, Body)


def through_graph_passes(part: _Part, passes: Sequence[NamedPass], observe: Observer) -> _Part:
    """A network, or a body in it, with the passes run on its module and on those of the bodies in it, one by one."""

    def observe_body(name: str, module: tvm.IRModule) -> None:
        observe(f"{name} of body" if "of body" not in name else name, module)

    module = part.module
    for name, transform in passes:
        working_in(f"the pass '{name}'")
        module = transform(module)
        observe(name, module)
    part = replace(part, module=module)
    called = called_controls(part)
    controls: list[Control] = []
    for index, control in enumerate(part.controls):
        match control:
            case _ if index not in called:  # nothing needs its results
                controls.append(control)
            case Choice(then, other):
                bodies = [through_graph_passes(body, passes, observe_body) for body in (then, other)]
                controls.append(Choice(*bodies))
            case Loop(body):
                controls.append(replace(control, body=through_graph_passes(body, passes, observe_body)))
    return replace(part, controls=tuple(controls))


def _modules(part: Network | Body) -> Iterator[tvm.IRModule]:
    """Those of a network or a body, and of the bodies in it."""
    yield part.module
    called = called_controls(part)
    for index, control in enumerate(part.controls):
        if index in called:
            for body in control.bodies:
                yield from _modules(body)


def optimized(
    network: Network,
    backend: Backend,
    observe: Observer,
    strict: bool = False,
    memory_budget: float = MEMORY_BUDGET,
) -> Network:
    """A network after all passes over Relax; the arguments are those of :func:`lower`."""
    use_own_operators()
    own = backend.graph_passes(strict, memory_budget)
    network = through_graph_passes(network, simplifications(own), observe)
    return through_graph_passes(network, computations(own, list(_modules(network))), observe)


def use_own_operators() -> None:
    """Make TVM know the operators of kernels that are this compiler's own, in this process."""
    use_vector_math()
    use_dot_products()
    use_packed_items()
    use_two_digits()
    use_words()
    use_pairs_of_bytes()


def without_code(network: Network, receive: Receiver, place: Place) -> Lowered:
    """A network of whose sizes only those of programs beside it have code: its face, and room for their workspaces."""
    program = face_of(network)
    plan = MemoryPlan((), {}, {}, {}, 0, (), (), (), 0, 0).with_room()
    symbol = place.symbol.replace(ENTRY, SIZES)
    receive(sizes_function(program, plan, [d.var for d in network.open_dimensions], symbol=symbol))
    return Lowered(tvm.IRModule({}), (), program, plan, place.symbol)


def joined(programs: Sequence[Lowered]) -> Lowered:
    """The first of several programs of a library, with the functions of all."""
    first, *others = programs
    if not others:
        return first
    functions = {gv.name_hint: func for program in programs for gv, func in program.module.functions.items()}
    return replace(first, module=tvm.IRModule(functions))


@dataclass(frozen=True)
class Place:
    """Where a program stands among several of one library.

    Attributes:
        pool: constants, and names of kernels, of all.
        symbol: of its entry.
        has_others: whether others run in its place for some sizes.
        counted: of one of these others, the sizes that it has to write: those of `counted_sizes` of the first.
        timed: the calls of kernels that are timed, of all; None if none are.
        operators: what the model computes tensors by, for the description of what is timed.
        checked: what of the model computes tensors, for what failed checks say; None if nothing is checked.
        told: called before each kernel gets its schedule: how many have one, and how many there are.
        compiled: kernels that are in the library already, and that programs may call instead of compiling equal ones.
    """

    pool: Pool = field(default_factory=Pool)
    symbol: str = ENTRY
    has_others: bool = False
    counted: Sequence[tuple[int, int]] | None = None
    timed: list[Step] | None = None
    operators: Mapping[str, str] = field(default_factory=dict)
    checked: Mapping[str, str] | None = None
    told: Callable[[int, int], None] = lambda _done, _all: None
    compiled: CompiledKernels | None = None


def lower(
    network: Network,
    backend: Backend,
    observe: Observer,
    strict: bool = False,
    receive: Receiver = lambda _kernel: None,
    memory_budget: float = MEMORY_BUDGET,
    place: Place | None = None,
) -> Lowered:
    """Take a network all the way to code generation.

    Args:
        observe: called after each phase.
        strict: leave out algorithms that round otherwise than the plain sum does.
        receive: given each kernel of the host, so that code generation need not wait for the others.
        memory_budget: what the trained values may grow to for faster algorithms, as a factor.
        place: among several programs of one library.

    The ranges of the network's open dimensions hold around the call: see :func:`nnefc.sizes.ranges`.

    Raises:
        CompileError: an operation has no lowering.
    """
    with backend.target.host.to_tvm():
        network = optimized(network, backend, observe, strict, memory_budget)

    working_in("scheduling")
    # Phase 6. Analyse each kernel: what the memory plan may do with its operands, and what schedule suits it.
    place = place or Place()
    program = program_of(network, place.pool)
    if backend.patches:
        program = in_patches(program, place.pool)
    open_dimensions = [d.var for d in network.open_dimensions] + [c.var for c in network.unlimited_counts]
    results = {step.kernel: len(step.writes) for step in kernel_steps(program)}
    unaligned = set(called_with_items(program, backend.alignment))
    analyses = {gv: KernelAnalysis(func) for gv, func in program.kernels.items()}
    in_place = {gv: in_place_of(kernel) for gv, kernel in analyses.items()}
    tables = item_ranges(program) if place.checked is not None else {}
    kernels: dict[GlobalVar, LoweredKernel] = {}
    merges = backend.merges_kernels and place.compiled is None and place.checked is None
    count = len(analyses)
    for done, gv in enumerate(sorted(analyses, key=lambda gv: gv.name_hint)):
        place.told(done, count)
        working_on(partial(_kernel_of, program, gv))
        analysis = analyses.pop(gv)
        if not in_place[gv].is_view:
            sizes = open_sizes_of(program.kernels[gv])
            use = KernelUse(
                gv.name_hint,
                analysis,
                results[gv],
                in_place[gv],
                aligned=gv not in unaligned,
                sizes=sizes,
                checked=place.checked is not None,
                item_ranges=tables.get(gv, {}),
                strict=strict,
            )
            kernels[gv] = kernel = backend.lower(use)
            if not merges and kernel.host is not None:
                same = None if place.compiled is None else place.compiled.like(kernel.host)
                kernels[gv] = kernel = replace(kernel, same=same)
                if kernel.same is None:
                    receive(kernel.host)
    if merges:
        kernels = _merged(kernels, program, backend.target.host.size_type)
        for kernel in kernels.values():
            if kernel.host is not None and kernel.same is None:
                receive(kernel.host)
    observe("schedule", tvm.IRModule({gv: kernel.scheduled for gv, kernel in kernels.items()}))

    working_in("the memory plan")
    # Phase 7. Plan the memory, and make the plan a function that calls the kernels.
    workspaces = {gv: kernel.workspace_bytes for gv, kernel in kernels.items()}
    plan = plan_memory(program, in_place, workspaces, backend.alignment)
    is_first = place.counted is None
    plan = plan.with_room() if place.has_others and is_first and open_dimensions else plan
    signatures = {gv: kernel.parameters for gv, kernel in kernels.items()}
    counted = place.counted if place.counted is not None else counted_sizes(program)
    symbols = {gv: kernel.same for gv, kernel in kernels.items() if kernel.same is not None}
    numbers = {gv: kernel.numbers for gv, kernel in kernels.items()}
    before = len(place.timed or ())
    entry, called = entry_function(
        program,
        plan,
        signatures,
        backend.memory(),
        open_dimensions,
        counted,
        place.symbol,
        place.timed,
        symbols,
        numbers,
        place.checked,
    )
    if open_dimensions or (is_first and network.all_counts):
        own = place.symbol.replace(ENTRY, SIZES)
        receive(sizes_function(program, plan, open_dimensions, backend.most_items, own))
    on_host = [kernels[gv].host for gv in called if gv not in symbols]
    module = tvm.IRModule({**{str(f.attrs["global_symbol"]): f for f in on_host if f is not None}, place.symbol: entry})
    observe("entry", module)
    steps = (place.timed or ())[before:]
    timed = tuple(_timed(step, program, kernels, plan, place.operators) for step in steps)
    return Lowered(module, tuple(kernels[gv] for gv in called), program, plan, place.symbol, timed)


def _merged(kernels: Mapping[GlobalVar, LoweredKernel], program: Program, dtype: str) -> dict[GlobalVar, LoweredKernel]:
    """The kernels, of which several may be calls of one function, with numbers of this type."""
    made = dict(kernels)
    known = (gv for gv in kernels if not open_sizes_of(program.kernels[gv]))
    functions = {gv: host for gv in known if (host := kernels[gv].host) is not None}
    for gv, call in merged_kernels(functions, dtype).items():
        symbol = str(call.function.attrs["global_symbol"])
        same = None if symbol == functions[gv].attrs["global_symbol"] else symbol
        made[gv] = replace(kernels[gv], host=call.function, same=same, numbers=call.numbers)
    return made


def _kernel_of(program: Program, kernel: GlobalVar) -> str:
    """The kernel, and what of the model it computes, for messages."""
    tensors = dict.fromkeys(
        name for step in kernel_steps(program) if step.kernel.same_as(kernel) for name in step.tensors
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
    """What the profile of a library says of a call of a kernel."""
    sizes = [buffer.bytes for buffer in (*step.reads, *step.writes)]
    return TimedKernel(
        kernel=step.kernel.name_hint,
        tensors=step.tensors,
        rule=str(kernels[step.kernel].scheduled.attrs[RULE]),
        operations=arithmetic_of(program.kernels[step.kernel]),
        bytes=sum(size for size in sizes if isinstance(size, int)) if all(map(is_known, sizes)) else 0,
        operators=tuple(dict.fromkeys(operators[name] for name in step.tensors if name in operators)),
        reads=tuple(_place_of(buffer, plan) for buffer in step.reads),
        writes=tuple(_place_of(buffer, plan) for buffer in step.writes),
    )


def _place_of(buffer: Buffer, plan: MemoryPlan) -> OperandPlace:
    type_ = f"{buffer.dtype}[{', '.join(map(str, buffer.shape))}]"
    size = buffer.bytes if isinstance(buffer.bytes, int) else 0
    found = plan.places.get(buffer)
    if found is None:
        return OperandPlace("body", 0, None, size, type_)
    return OperandPlace(found.base, found.index, found.offset if isinstance(found.offset, int) else None, size, type_)
