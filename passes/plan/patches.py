"""Compute the first layers of a network a few rows at a time, so that tensors between them are never whole.

    b = first(a); c = second(b); d = third(c)
        →    for each part of d's rows:  b' = first(a'); c' = second(b'); d' = third(c')

a', b' and c' are the rows that the part needs; those that two parts need are computed for both (Lin et al.,
"MCUNetV2", 2021). All elements are computed as before. Which layers these are, and how many rows a part has, follows
from the plans of memory for the choices that there are: the one with the smallest workspace is taken, but none that
adds a third to the network's arithmetic. Parts of equal sizes, which are most, share their kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import tvm_ffi
from tvm import tirx
from tvm.ir import GlobalVar

from nnefc.element_types import item_bytes
from nnefc.passes.plan.memory import plan_memory
from nnefc.passes.plan.program import Buffer, Kind, Program, Step
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.arithmetic import arithmetic_of
from nnefc.passes.schedule.in_place import InPlace, in_place_of
from nnefc.passes.schedule.row_parts import ROWS, KernelRows, Rows, rows_of, write_rows

__all__ = ["in_patches"]

_MOST_ADDED = 1 / 3
"""Arithmetic that is done again, as a share of the network's."""

_LEAST_SAVED = 1 / 8
"""Of the workspace; less is not worth the code of parts."""

_NEAR = 1.03
"""Workspaces that are larger by this factor at most count as equal: then the least arithmetic decides."""

_COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 48)
"""Parts that are tried."""

_MOST_STEPS = 64
"""That are computed in parts."""


def in_patches(program: Program) -> Program:
    """The program, its first layers in parts where all sizes are known and that makes the workspace much smaller."""
    if not program.is_straight:
        return program
    analyses = {gv: KernelAnalysis(func) for gv, func in program.kernels.items()}
    in_place = {gv: in_place_of(analysis) for gv, analysis in analyses.items()}
    work = {gv: arithmetic_of(func) for gv, func in program.kernels.items()}
    total = sum(work[step.kernel] for step in program.steps if isinstance(step, Step))
    plan = plan_memory(program, in_place, {})
    if plan.storages:  # sizes are open
        return program
    before = plan.workspace_bytes
    found = [
        (_size(program, in_place, plan), plan)
        for plan in _plans(program, analyses, in_place, work)
        if plan.added <= _MOST_ADDED * total
    ]
    least = min((size for size, _ in found), default=before)
    if not found or least >= before or least > before * (1 - _LEAST_SAVED):
        return program
    best = min((plan for size, plan in found if size <= least * _NEAR), key=lambda plan: (plan.added, len(plan.parts)))
    return _Writer(program, best).program()


@dataclass(frozen=True, eq=False)
class _Plan:
    """How some steps are computed in parts.

    Attributes:
        first, last: the steps, by their numbers.
        rows: of the kernel of each.
        parts: for each part, the rows of the result of each step.
        added: arithmetic that is done again.
    """

    first: int
    last: int
    rows: Sequence[KernelRows]
    parts: Sequence[Sequence[Rows]]
    added: float


def _plans(
    program: Program,
    analyses: Mapping[GlobalVar, KernelAnalysis],
    in_place: Mapping[GlobalVar, InPlace],
    work: Mapping[GlobalVar, int],
) -> Iterator[_Plan]:
    """All choices for the first steps that can be computed by rows."""
    kernels: dict[GlobalVar, KernelRows | None] = {}
    rows: list[KernelRows] = []
    first = 0
    for number, step in enumerate(program.steps):
        if not isinstance(step, Step):
            return
        if step.kernel not in kernels:
            how = in_place[step.kernel]
            moves = how.concatenation or how.parts or how.updates is not None or len(step.writes) != 1
            kernels[step.kernel] = None if moves else rows_of(analyses[step.kernel])
        found = kernels[step.kernel]
        if found is None:
            if len(rows) > 1:
                return
            rows, first = [], number + 1
            continue
        rows.append(found)
        if in_place[step.kernel].reshape:  # what comes before it may be the last step as well
            continue
        if len(rows) > 1 and _is_closed(program, first, number, rows):
            ops = [work[each.kernel] for each in program.steps[first : number + 1] if isinstance(each, Step)]
            for height in sorted({-(-found.height // count) for count in _COUNTS if count <= found.height}):
                made = _parts(program, first, number, rows, height)
                if made is not None:
                    yield _Plan(first, number, tuple(rows), made, _added(made, rows, ops))
        if len(rows) == _MOST_STEPS:
            return


def _is_closed(program: Program, first: int, last: int, rows: Sequence[KernelRows]) -> bool:
    """Whether of what steps compute the others read only the last result, and they themselves only rows."""
    made = {step.writes[0]: number for number, step in enumerate(program.steps[first : last + 1])}
    inner = {buffer for buffer, number in made.items() if number < last - first}
    if inner & {*program.outputs, *program.new_states, *program.counts}:
        return False
    for number, step in enumerate(program.steps):
        if not first <= number <= last:
            if inner & set(step.reads):
                return False
            continue
        kernel = rows[number - first]
        for buffer, param in zip(step.reads, kernel.kernel.func.params, strict=False):
            if buffer in made and param not in kernel.tensors:
                return False
    return True


def _parts(
    program: Program, first: int, last: int, rows: Sequence[KernelRows], height: int
) -> list[Sequence[Rows]] | None:
    """The rows of each step's result for parts of so many rows of the last one; None if a step would have none."""
    steps = program.steps[first : last + 1]
    numbers = {step.writes[0]: number for number, step in enumerate(steps)}
    made: list[Sequence[Rows]] = []
    for start in range(0, rows[-1].height, height):
        wanted: dict[int, Rows] = {last - first: (start, min(start + height, rows[-1].height))}
        for number in range(last - first, -1, -1):
            if number not in wanted:
                return None
            needs = rows[number].needs(wanted[number])
            if needs is None:
                return None
            for buffer, param in zip(steps[number].reads, rows[number].kernel.func.params, strict=False):
                if buffer in numbers and param in needs:
                    own, producer = needs[param], numbers[buffer]
                    known = wanted.get(producer, own)
                    wanted[producer] = min(known[0], own[0]), max(known[1], own[1])
        made.append([wanted[number] for number in range(len(steps))])
    return made


def _added(parts: Sequence[Sequence[Rows]], rows: Sequence[KernelRows], work: Sequence[int]) -> float:
    computed = [sum(part[number][1] - part[number][0] for part in parts) for number in range(len(rows))]
    shares = (count / kernel.height - 1 for count, kernel in zip(computed, rows, strict=True))
    return sum(max(share, 0.0) * own for share, own in zip(shares, work, strict=True))


def _size(program: Program, in_place: Mapping[GlobalVar, InPlace], plan: _Plan) -> int:
    """The workspace without those of kernels."""
    changed = _Writer(program, plan, named=False).program()
    return plan_memory(changed, in_place, {}).workspace_bytes


@dataclass(frozen=True)
class _Writer:
    """Writes a program with some of its steps in parts; `named` says whether with their kernels."""

    old: Program
    plan: _Plan
    named: bool = True
    _kernels: dict[GlobalVar, tirx.PrimFunc] = field(default_factory=dict)
    _alike: dict[object, list[GlobalVar]] = field(default_factory=dict)
    _views: dict[Buffer, tuple[Buffer, int]] = field(default_factory=dict)

    def program(self) -> Program:
        """The new program."""
        first, last = self.plan.first, self.plan.last
        steps: list[Step] = []
        for part in self.plan.parts:
            steps += self._steps(part)
        kept = (*self.old.steps[:first], *steps, *self.old.steps[last + 1 :])
        called = {step.kernel for step in kept if isinstance(step, Step)}
        kernels = {gv: func for gv, func in self.old.kernels.items() if gv in called} | self._kernels
        return replace(self.old, steps=kept, kernels=kernels, views={**self.old.views, **self._views})

    def _steps(self, part: Sequence[Rows]) -> Iterator[Step]:
        """The calls for one part."""
        first, last = self.plan.first, self.plan.last
        made: dict[Buffer, tuple[Buffer, Rows]] = {}
        for number, step in enumerate(self.old.steps[first : last + 1]):
            assert isinstance(step, Step)
            kernel, rows = self.plan.rows[number], part[number]
            needs = kernel.needs(rows)
            assert needs is not None
            reads: list[Buffer] = []
            held: dict[tirx.Var, int] = {}  # rows that are in memory, of operands of which more are there than needed
            params = kernel.kernel.func.params
            for buffer, param in zip(step.reads, params, strict=False):
                if param not in needs:
                    reads.append(buffer)
                elif buffer in made and made[buffer][1] == needs[param]:
                    reads.append(made[buffer][0])
                else:
                    there, base = (made[buffer][0], made[buffer][1][0]) if buffer in made else (buffer, 0)
                    held[param] = int(there.shape[ROWS])
                    reads.append(self._from_row(there, needs[param][0] - base))
            (result,) = step.writes
            own = _temporary(result, rows)
            made[result] = own, rows
            is_last = number == last - first
            if is_last and math.prod(map(int, result.shape[:ROWS])) == 1:
                self._views[own] = (result, rows[0] * _row_bytes(result))
            called = self._kernel(step.kernel, kernel, rows, held)
            yield replace(step, kernel=called, reads=tuple(reads), writes=(own,))
            if is_last and own not in self._views:
                place = self._from_row(result, rows[0])
                yield Step(self._copy(own, result), (own,), (place,), (), step.tensors)

    def _from_row(self, buffer: Buffer, row: int) -> Buffer:
        """A tensor from one of its rows on."""
        if row == 0:
            return buffer
        view = Buffer(Kind.WORKSPACE, buffer.index, buffer.shape, buffer.dtype)
        self._views[view] = (buffer, row * _row_bytes(buffer))
        return view

    def _kernel(
        self,
        gv: GlobalVar,
        kernel: KernelRows,
        rows: Rows,
        held: Mapping[tirx.Var, int],
    ) -> GlobalVar:
        """The kernel of a part; one for all that compute the same."""
        if not self.named:
            return GlobalVar("part") if held else gv
        return self._one_of(gv, kernel.part(rows, held))

    def _copy(self, source: Buffer, target: Buffer) -> GlobalVar:
        """The kernel that writes a part between the other rows of its tensor."""
        if not self.named:
            return GlobalVar("copy")
        return self._one_of(GlobalVar("copy"), write_rows(source.shape, target.shape, source.dtype))

    def _one_of(self, gv: GlobalVar, func: tirx.PrimFunc) -> GlobalVar:
        nameless = func.without_attr("global_symbol")
        alike = self._alike.setdefault(tvm_ffi.structural_hash(nameless), [])
        for other in alike:
            if tvm_ffi.structural_equal(self._kernels[other].without_attr("global_symbol"), nameless):
                return other
        name, number = f"{gv.name_hint}_rows", 0
        while any(str(known.name_hint) == f"{name}{number}" for known in self._kernels):
            number += 1
        own = GlobalVar(f"{name}{number}")
        self._kernels[own] = func
        alike.append(own)
        return own


def _temporary(buffer: Buffer, rows: Rows) -> Buffer:
    """Some rows of a tensor."""
    shape = (*buffer.shape[:ROWS], rows[1] - rows[0], *buffer.shape[ROWS + 1 :])
    return Buffer(Kind.WORKSPACE, buffer.index, shape, buffer.dtype)


def _row_bytes(buffer: Buffer) -> int:
    return math.prod(map(int, buffer.shape[ROWS + 1 :])) * item_bytes(buffer.dtype)
