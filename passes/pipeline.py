"""The order of all passes: from a front end's network to one module of code and its memory plan.

Who reads this file knows what happens to a network, and when.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir import GlobalVar

from nnefc.network import Body, Choice, Control, Loop, Network, control_index
from nnefc.passes.compute.dot_product import use_dot_products
from nnefc.passes.compute.vector_math import use_vector_math
from nnefc.passes.graph.assign_layouts import AssignLayouts
from nnefc.passes.graph.compute_in_integers import ComputeInIntegers
from nnefc.passes.graph.fold_affine import FoldAffine
from nnefc.passes.graph.fold_constants import FoldConstants
from nnefc.passes.graph.fold_permutations import FoldPermutations
from nnefc.passes.graph.fuse import fuse
from nnefc.passes.graph.group_parts import GroupParts
from nnefc.passes.graph.join_local_response import JoinLocalResponse
from nnefc.passes.graph.steps_apart import values_between
from nnefc.passes.legalize.limits import LIMITS
from nnefc.passes.legalize.lower_rows import LowerRows
from nnefc.passes.legalize.lower_scans import LowerScans
from nnefc.passes.legalize.pack_integer_matmul import PackIntegerMatmul
from nnefc.passes.legalize.pack_matmul import PackMatmul
from nnefc.passes.legalize.quantization import QUANTIZATION
from nnefc.passes.plan.entry import ENTRY, entry_module, exported_kernel
from nnefc.passes.plan.in_place import in_place_of
from nnefc.passes.plan.memory import InPlace, MemoryPlan, plan_memory
from nnefc.passes.plan.program import Program, program_of
from nnefc.passes.schedule.cpu import CPU_RULES
from nnefc.passes.schedule.rule import scheduled
from nnefc.passes.tir.kernels import Kernel, lower_kernel
from nnefc.targets.machine.target import Target

__all__ = ["Lowered", "Observer", "Receiver", "lower", "through_graph_passes"]

# Called after each phase with its name and the module as it is then.
Observer = Callable[[str, tvm.IRModule], None]

# Given each kernel as soon as it is code.
Receiver = Callable[[tirx.PrimFunc], None]


@dataclass(frozen=True)
class Lowered:
    """A network as code.

    Attributes:
        module: TIR, flat: the entry and its kernels.
        program, plan: what the entry was made from.
        scratch_bytes: what one worker needs for itself during a run.
    """

    module: tvm.IRModule
    program: Program
    plan: MemoryPlan
    scratch_bytes: int

    @property
    def entry(self) -> tirx.PrimFunc:
        """The function that calls the kernels."""
        return self.module[ENTRY]

    @property
    def constants(self) -> tuple[np.ndarray, ...]:
        """The trained values, in the order of `plan.constant_offsets`."""
        return self.program.constants


def graph_passes(target: Target, strict: bool = False) -> list[tuple[str, tvm.ir.transform.Pass]]:
    """Relax → Relax, by phase; `strict` as in :func:`lower`."""
    return [
        # Phase 1. Know at compile time what can be known.
        ("fold constants", FoldConstants(keep=("dequantize",))),
        ("compute in integers", ComputeInIntegers(strict)),
        ("fold dequantized constants", FoldConstants()),
        # Phase 2. Fewer operations: scales and shifts disappear in the weights before them, shuffles become gathers.
        ("fold affine", FoldAffine()),
        ("join local response", JoinLocalResponse()),
        ("fold permutations", FoldPermutations()),
        ("group parts", GroupParts()),
        # Phase 3. Choose layouts and, with them, the computations of convolutions, poolings and matrix products.
        ("assign layouts", AssignLayouts(target, strict)),
        ("pack matmul", PackMatmul(target, strict)),
        ("pack integer matmul", PackIntegerMatmul(target)),
        ("lower rows", LowerRows(target)),
        ("lower scans", LowerScans(target)),
        # Phase 4. Every other operation becomes a computation of its own.
        ("legalize", relax.transform.LegalizeOps({**LIMITS, **QUANTIZATION})),
        ("fold packed constants", FoldConstants()),
        # Phase 5. Join element-wise operations with what produces their operands; equal kernels become one.
        ("fuse", fuse(values_between)),
    ]


_Passes = Sequence[tuple[str, tvm.ir.transform.Pass]]
_Part = TypeVar("_Part", Network, Body)


def through_graph_passes(part: _Part, passes: _Passes, observe: Observer) -> _Part:
    """A network, or a body in it, with the passes run on its module and on those of the bodies in it, one by one."""

    def observe_body(name: str, module: tvm.IRModule) -> None:
        observe(f"{name} of body" if "of body" not in name else name, module)

    module = part.module
    observe("network", module)
    for name, transform in passes:
        module = transform(module)
        observe(name, module)
    called = {control_index(binding.value) for block in module["main"].body.blocks for binding in block.bindings}
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
    return replace(part, module=module, controls=tuple(controls))


def lower(
    network: Network,
    target: Target,
    observe: Observer,
    strict: bool = False,
    receive: Receiver = lambda _kernel: None,
) -> Lowered:
    """Take a network all the way to code.

    Args:
        observe: called after each phase.
        strict: leave out algorithms that round otherwise than the plain sum does.
        receive: given each kernel, so that code generation need not wait for the others.

    Raises:
        CompileError: an operation has no lowering.
    """
    use_vector_math()
    use_dot_products()
    with target.to_tvm():
        network = through_graph_passes(network, graph_passes(target, strict), observe)

    # Phase 6. Ask each kernel what the memory plan may do with its operands, then give it its schedule.
    program = program_of(network)
    in_place: dict[GlobalVar, InPlace] = {}
    kernels: dict[GlobalVar, tirx.PrimFunc] = {}
    lowered: dict[GlobalVar, Kernel] = {}
    for gv, func in sorted(program.kernels.items(), key=lambda item: item[0].name_hint):
        allowed = in_place[gv] = in_place_of(func)
        if not (allowed.reshape or allowed.concatenation or allowed.parts):
            kernels[gv] = scheduled(func, CPU_RULES, target)
            lowered[gv] = lower_kernel(kernels[gv])
            receive(exported_kernel(gv, lowered[gv]))
    observe("schedule", tvm.IRModule(kernels))

    # Phase 7. Plan the memory, and make the plan a function that calls the kernels.
    plan = plan_memory(program, in_place, {gv: kernel.workspace_bytes for gv, kernel in lowered.items()})
    entry = entry_module(program, plan, lowered, target.size_type)
    observe("entry", entry)
    return Lowered(entry, program, plan, max((k.scratch_bytes for k in lowered.values()), default=0))
