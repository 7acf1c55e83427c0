"""Joins a kernel and the only reader of its result into one kernel, where a target has a schedule rule for it.

    p = product(h, w)                    # [1, 4 n]
    c', h' = cell(x, p, c)               # reads p[:, j], p[:, n + j], …      →      c', h' = product_cell(h, w, x, c)

Fusion in the graph joins element-wise operators with the kernel that computes the same elements. What is joined here
reads several elements of the first kernel's result for each of its own, as the gates of recurrent networks do.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import GlobalVar

from nnefc.ir.attributes import ATTRIBUTES
from nnefc.ir.rebuild import root_block, with_fields
from nnefc.passes.plan.program import Buffer, IfStep, LoopStep, Pool, Program, Step, kernel_stages
from nnefc.passes.tir.common.shapes import sizes_of

__all__ = ["join_steps"]


def join_steps(program: Program, is_useful: Callable[[tirx.PrimFunc], bool], names: Pool) -> Program:
    """Returns the program with kernels joined, in the bodies of branches and loops too.

    Args:
        is_useful: whether a joined kernel is better than two.
        names: of the kernels in the library.
    """
    joiner = _Joiner(program, is_useful, names)
    changed = joiner.joined(program)
    called = {step.kernel for step in kernel_stages(changed)}
    kernels = {gv: func for gv, func in {**program.kernels, **joiner.made}.items() if gv in called}
    return replace(changed, kernels=kernels)


_Pair = tuple[GlobalVar, GlobalVar, int]  # two kernels, and the operand of the second that is the first one's result


@dataclass
class _Joiner:
    """Joins the kernels of a program.

    Attributes:
        made: the joined kernels.
    """

    program: Program
    is_useful: Callable[[tirx.PrimFunc], bool]
    names: Pool
    made: dict[GlobalVar, tirx.PrimFunc] = field(default_factory=dict)
    _known: dict[_Pair, GlobalVar | None] = field(default_factory=dict)

    def joined(self, program: Program) -> Program:
        """Returns a program, or a body, with kernels joined."""
        reads = Counter(buffer for step in program.steps for buffer in step.reads)
        kept = {*program.outputs, *program.new_states, *program.counts}
        writers: dict[Buffer, int] = {}
        steps: list[Step | IfStep | LoopStep | None] = []
        for step in program.steps:
            match step:
                case IfStep():
                    steps.append(replace(step, then=self.joined(step.then), other=self.joined(step.other)))
                case LoopStep():
                    steps.append(replace(step, body=self.joined(step.body)))
                case Step():
                    steps.append(self._with_operand(step, steps, writers))
                    (result, *others) = step.writes
                    if not others and not step.sizes and reads[result] == 1 and result not in kept:
                        writers[result] = len(steps) - 1
        return replace(program, steps=tuple(step for step in steps if step is not None))

    def _with_operand(
        self, step: Step, earlier: list[Step | IfStep | LoopStep | None], writers: Mapping[Buffer, int]
    ) -> Step:
        """Joins a step with the step that writes one of its operands, which is removed; returns the step unchanged if
        no kernel gains.
        """
        for position, buffer in enumerate(step.reads):
            first = earlier[writers[buffer]] if buffer in writers and not step.sizes else None
            if not isinstance(first, Step):
                continue
            pair = first.kernel, step.kernel, position
            if pair not in self._known:
                self._known[pair] = self._kernel(*pair)
            kernel = self._known[pair]
            if kernel is not None:
                earlier[writers[buffer]] = None
                reads = (*first.reads, *step.reads[:position], *step.reads[position + 1 :])
                return Step(kernel, reads, step.writes, (), tuple(dict.fromkeys((*first.tensors, *step.tensors))))
        return step

    def _kernel(self, first: GlobalVar, second: GlobalVar, position: int) -> GlobalVar | None:
        """Returns the kernel that computes two steps, if it is useful."""
        functions = {**self.program.kernels, **self.made}
        func = joined_kernel(functions[first], functions[second], position)
        if func is None or not self.is_useful(func):
            return None
        hint = f"{first.name_hint}_{second.name_hint}"
        names = itertools.chain([hint], (f"{hint}_again{number}" for number in itertools.count(1)))
        own = GlobalVar(self.names.free_name(names))
        self.made[own] = func
        return own


def joined_kernel(first: tirx.PrimFunc, second: tirx.PrimFunc, position: int) -> tirx.PrimFunc | None:
    """Returns the kernel that computes the results of `second`, whose operand at `position` is the result of
    `first`.

    None for kernels with a meaning besides their loops, and where each element of the result is read only for one
    element of the second kernel's.

    None for kernels that the compiler treats as more than their loops, and where each element of the result is read for
    one of the second kernel's, as far as their numbers say.
    """
    if any(str(key) in ATTRIBUTES for func in (first, second) for key in (func.attrs.keys() if func.attrs else ())):
        return None
    roots = [func.body.block for func in (first, second)]
    *operands, result = first.params
    own = second.params[position]
    elements = [math.prod(sizes_of(param)) for param in (result, second.params[-1])]
    if (
        any(root.name_hint != "root" for root in roots)
        or not 0 < elements[1] < elements[0]
        or elements[0] % elements[1]
    ):
        return None
    taken: set[str] = set()
    tvm_ffi.structural_walk(first.body, (s_tir.SBlock, lambda block: taken.add(str(block.name_hint))))

    def renamed(block: s_tir.SBlock) -> s_tir.SBlock:
        name = str(block.name_hint)
        if name not in taken:
            return block
        return with_fields(block, name_hint=next(n for i in itertools.count(1) if (n := f"{name}_{i}") not in taken))

    body = tvm_ffi.structural_map(roots[1].body, (tirx.Var, lambda var: result if var.same_as(own) else var))
    body = tvm_ffi.structural_map(body, (s_tir.SBlock, renamed))
    bodies = [stmt.seq[:] if isinstance(stmt, tirx.SeqStmt) else [stmt] for stmt in (roots[0].body, body)]
    buffers = [result, *roots[0].alloc_buffers, *roots[1].alloc_buffers]
    params = [*operands, *(param for param in second.params if not param.same_as(own))]
    body = root_block(tirx.SeqStmt([*bodies[0], *bodies[1]]), buffers)
    return tirx.PrimFunc(params, body, first.ret_type, first.attrs)
