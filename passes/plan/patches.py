"""Computes the first layers of a network a few rows at a time, so that tensors between them are never whole.

    b = first(a); c = second(b); d = third(c)
        →    for each part of d's rows:  b' = first(a'); c' = second(b'); d' = third(c')

a', b' and c' are the rows that the part needs; those that two parts need are computed for both (Lin et al.,
"MCUNetV2", 2021). All elements are computed as before. Which layers these are, and how many rows a part has, is
chosen for the smallest workspace, but nothing that adds a third to the network's arithmetic. For each choice, a part
in the middle tells what is in use at a time; memory is planned for the best of them, of which one is taken. Parts of
equal sizes, which are most, share their kernels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import tvm_ffi
from tvm import tirx
from tvm.ir import GlobalVar

from nnefc.passes.plan.memory import MemoryPlan, plan_memory
from nnefc.passes.plan.program import Buffer, MemoryKind, Pool, Program, Step
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.arithmetic import arithmetic_of
from nnefc.passes.schedule.in_place import InPlace, in_place_of
from nnefc.passes.schedule.row_slices import ROWS, KernelRows, Rows, rows_of, write_rows
from nnefc.passes.tir.common.alignment import aligned
from nnefc.support.element_types import element_bytes

__all__ = ["in_patches"]

_MAX_ADDED = 1 / 3
"""The largest share of the network's arithmetic that may be computed again."""

_MIN_SAVED = 1 / 8
"""The share of the workspace that computing in parts has to save, to be worth its code."""

_NEAR = 1.03
"""Workspaces that are larger by this factor at most count as equal: then the smallest arithmetic decides."""

_COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 48)
"""The numbers of parts that are tried."""

_MAX_STEPS = 64
"""The maximum number of steps that are computed in parts."""

_MAX_PLANS = 8
"""The number of memory plans that are computed: for the choices whose estimate, from a part in the middle, is best."""

_NEARLY = 1.1
"""The factor by which that estimate may exceed the arithmetic: parts at the borders have fewer rows."""


def in_patches(program: Program, pool: Pool) -> Program:
    """Returns the program with its first layers in parts, if all sizes are known and the workspace becomes much
    smaller.

    Args:
        pool: names of the kernels in the library.
    """
    if not program.is_straight:
        return program
    analyses = {gv: KernelAnalysis(func) for gv, func in program.kernels.items()}
    in_place = {gv: in_place_of(analysis) for gv, analysis in analyses.items()}
    plan = plan_memory(program, in_place, {})
    if plan.storages:  # dynamic dimensions
        return program
    work = {gv: arithmetic_of(func) for gv, func in program.kernels.items()}
    max_added = _MAX_ADDED * sum(work[step.kernel] for step in program.steps if isinstance(step, Step))
    wanted = plan.workspace_bytes * (1 - _MIN_SAVED)
    guesses = _guesses(program, plan, analyses, in_place, work)
    tried = [guess for guess in guesses if guess.added <= max_added * _NEARLY]
    found: list[tuple[int, _Plan]] = []
    for guess in sorted(tried, key=lambda guess: (math.ceil(math.log(guess.bytes, _NEAR)), guess.added))[:_MAX_PLANS]:
        if guess.bytes > wanted:
            break
        made = guess.plan(program, work)
        if made is not None and made.added <= max_added:
            found.append((_size(program, in_place, made), made))
    minimum = min((size for size, _ in found), default=plan.workspace_bytes)
    if minimum > wanted or minimum >= plan.workspace_bytes:
        return program
    best = min(
        (plan for size, plan in found if size <= minimum * _NEAR), key=lambda plan: (plan.added, len(plan.parts))
    )
    return _Writer(program, best, pool).program()


@dataclass(frozen=True, eq=False)
class _Plan:
    """The division of some steps into parts.

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


@dataclass(frozen=True, eq=False)
class _Guess:
    """An estimate of the memory of steps in parts of equal rows, from a part in the middle.

    Attributes:
        first, last, rows: as of a :class:`_Plan`.
        bytes: of the workspace.
        added: arithmetic that is done again.
    """

    first: int
    last: int
    rows: Sequence[KernelRows]
    height: int
    bytes: int
    added: float

    def plan(self, program: Program, work: Mapping[GlobalVar, int]) -> _Plan | None:
        """Returns the plan; None if a step would have no rows in some part."""
        parts = []
        for start in range(0, self.rows[-1].height, self.height):
            end = min(start + self.height, self.rows[-1].height)
            part = _part(program, self.first, self.last, self.rows, (start, end))
            if part is None:
                return None
            parts.append(part)
        computed = [sum(part[number][1] - part[number][0] for part in parts) for number in range(len(self.rows))]
        added = _added(_calls(program, self.first, self.last), self.rows, computed, work)
        return _Plan(self.first, self.last, self.rows, parts, added)


def _guesses(
    program: Program,
    plan: MemoryPlan,
    analyses: Mapping[GlobalVar, KernelAnalysis],
    in_place: Mapping[GlobalVar, InPlace],
    work: Mapping[GlobalVar, int],
) -> Iterator[_Guess]:
    """Yields all choices for the first steps that can be computed by rows."""
    kernels: dict[GlobalVar, KernelRows | None] = {}
    rows: list[KernelRows] = []
    first = 0
    around = _Around(program, plan)
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
            calls = _calls(program, first, number)
            there, held = around.bytes(first, number), around.held(first, number)
            for height in sorted({-(-found.height // count) for count in _COUNTS if count <= found.height}):
                start = -(-found.height // height) // 2 * height
                part = _part(program, first, number, rows, (start, min(start + height, found.height)))
                if part is None:
                    continue
                own = held + _alive_in(calls, rows, part, in_place)
                computed = [found.height / height * (end - begin) for begin, end in part]
                added = _added(calls, rows, computed, work)
                yield _Guess(first, number, tuple(rows), height, max(there, own, 1), added)
        if len(rows) == _MAX_STEPS:
            return


def _calls(program: Program, first: int, last: int) -> Sequence[Step]:
    return [step for step in program.steps[first : last + 1] if isinstance(step, Step)]


class _Around:
    """The contents of the workspace besides the results of some steps."""

    def __init__(self, program: Program, plan: MemoryPlan) -> None:
        self._steps, self._positions, self._alive = program.steps, plan.positions, plan.alive
        self._times = {id(action): time for time, action in enumerate(plan.actions)}
        self._read: dict[Buffer, int] = {}  # by the last step that does
        for number, step in enumerate(program.steps):
            self._read |= dict.fromkeys(step.reads, number)

    def bytes(self, first: int, last: int) -> int:
        """Returns the largest number of bytes in use while none of the steps runs."""
        inside = {self._times.get(id(step)) for step in self._steps[first : last + 1]}
        return max((size for time, size in enumerate(self._alive) if time not in inside), default=0)

    def held(self, first: int, last: int) -> int:
        """Returns the bytes in use while all of the steps run: results of other steps, and the last result."""
        (result,) = self._steps[last].writes
        before = [buffer for step in self._steps[:first] for buffer in step.writes]
        kept = [result, *(buffer for buffer in before if self._read.get(buffer, 0) >= first)]
        there = {self._positions[buffer]: buffer.bytes for buffer in kept}
        return sum(size for position, size in there.items() if position.base == MemoryKind.WORKSPACE.value)


def _alive_in(
    steps: Sequence[Step], rows: Sequence[KernelRows], part: Sequence[Rows], in_place: Mapping[GlobalVar, InPlace]
) -> int:
    """Returns the largest number of bytes that steps use at one time for a part, without the last result if that is
    whole.
    """
    roots: dict[Buffer, Buffer] = {}
    ends: dict[Buffer, int] = {}
    for number, step in enumerate(steps):
        (result,) = step.writes
        ends |= {roots[buffer]: number for buffer in step.reads if buffer in roots}
        is_view = in_place[step.kernel].reshape and step.reads[0] in roots
        roots[result] = roots[step.reads[0]] if is_view else result
        ends[roots[result]] = number
    sizes: dict[Buffer, int] = {}
    maximum = 0
    for number, (step, (begin, end)) in enumerate(zip(steps, part, strict=True)):
        (result,) = step.writes
        if number == len(steps) - 1 and _is_written_there(result):
            break
        overwritten = [
            root
            for position in in_place[step.kernel].overwritable
            if (root := roots.get(step.reads[position])) in sizes and ends[root] == number
        ]
        if roots[result] is result:
            sizes[result] = aligned(_temporary(result, (begin, end)).bytes)
        if overwritten:
            sizes.pop(overwritten[0])
        maximum = max(maximum, sum(sizes.values()))
        sizes = {root: size for root, size in sizes.items() if ends[root] > number}
    return maximum


def _is_closed(program: Program, first: int, last: int, rows: Sequence[KernelRows]) -> bool:
    """Whether other steps read only the last result of these steps, and these steps read each other only by rows."""
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


def _part(program: Program, first: int, last: int, rows: Sequence[KernelRows], own: Rows) -> Sequence[Rows] | None:
    """Returns the rows of each step's result for some rows of the last one; None if a step would have none."""
    steps = program.steps[first : last + 1]
    numbers = {step.writes[0]: number for number, step in enumerate(steps)}
    wanted: dict[int, Rows] = {last - first: own}
    for number in range(last - first, -1, -1):
        needs = rows[number].needs(wanted[number]) if number in wanted else None
        if needs is None:
            return None
        for buffer, param in zip(steps[number].reads, rows[number].kernel.func.params, strict=False):
            if buffer in numbers and param in needs:
                found, producer = needs[param], numbers[buffer]
                known = wanted.get(producer, found)
                wanted[producer] = min(known[0], found[0]), max(known[1], found[1])
    return [wanted[number] for number in range(len(steps))]


def _added(
    steps: Sequence[Step], rows: Sequence[KernelRows], computed: Sequence[float], work: Mapping[GlobalVar, int]
) -> float:
    """Returns the arithmetic that is done again if this number of rows of each step is computed in all."""
    shares = (count / kernel.height - 1 for count, kernel in zip(computed, rows, strict=True))
    return sum(max(share, 0.0) * work[step.kernel] for share, step in zip(shares, steps, strict=True))


def _size(program: Program, in_place: Mapping[GlobalVar, InPlace], plan: _Plan) -> int:
    """Returns the workspace of a program without the workspaces of kernels."""
    changed = _Writer(program, plan).program()
    return plan_memory(changed, in_place, {}).workspace_bytes


@dataclass(frozen=True)
class _Writer:
    """Writes a program with some of its steps in parts; with their kernels if there is a pool for their names."""

    old: Program
    plan: _Plan
    names: Pool | None = None
    _kernels: dict[GlobalVar, tirx.PrimFunc] = field(default_factory=dict)
    _alike: dict[object, list[GlobalVar]] = field(default_factory=dict)
    _views: dict[Buffer, tuple[Buffer, int]] = field(default_factory=dict)

    def program(self) -> Program:
        """Returns the new program."""
        first, last = self.plan.first, self.plan.last
        steps: list[Step] = []
        for part in self.plan.parts:
            steps += self._steps(part)
        kept = (*self.old.steps[:first], *steps, *self.old.steps[last + 1 :])
        called = {step.kernel for step in kept if isinstance(step, Step)}
        kernels = {gv: func for gv, func in self.old.kernels.items() if gv in called} | self._kernels
        return replace(self.old, steps=kept, kernels=kernels, views={**self.old.views, **self._views})

    def _steps(self, part: Sequence[Rows]) -> Iterator[Step]:
        """Returns the calls for one part."""
        first, last = self.plan.first, self.plan.last
        made: dict[Buffer, tuple[Buffer, Rows]] = {}
        for number, step in enumerate(self.old.steps[first : last + 1]):
            assert isinstance(step, Step)
            kernel, rows = self.plan.rows[number], part[number]
            needs = kernel.needs(rows)
            assert needs is not None
            reads: list[Buffer] = []
            held: dict[tirx.Var, int] = {}  # rows in memory of operands that have more rows than are needed
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
            if is_last and _is_written_there(result):
                self._views[own] = (result, rows[0] * _row_bytes(result))
            called = self._kernel(step.kernel, kernel, rows, held)
            yield replace(step, kernel=called, reads=tuple(reads), writes=(own,))
            if is_last and own not in self._views:
                position = self._from_row(result, rows[0])
                yield Step(self._copy(own, result), (own,), (position,), (), step.tensors)

    def _from_row(self, buffer: Buffer, row: int) -> Buffer:
        """Returns a tensor from a given row on."""
        if row == 0:
            return buffer
        view = Buffer(MemoryKind.WORKSPACE, buffer.index, buffer.shape, buffer.dtype)
        self._views[view] = (buffer, row * _row_bytes(buffer))
        return view

    def _kernel(
        self,
        gv: GlobalVar,
        kernel: KernelRows,
        rows: Rows,
        held: Mapping[tirx.Var, int],
    ) -> GlobalVar:
        """Returns the kernel of a part; equal parts share it."""
        if self.names is None:
            return GlobalVar("part") if held else gv
        return self._one_of(gv, kernel.part(rows, held), self.names)

    def _copy(self, source: Buffer, target: Buffer) -> GlobalVar:
        """Returns the kernel that writes a part into its tensor."""
        if self.names is None:
            return GlobalVar("copy")
        return self._one_of(GlobalVar("copy"), write_rows(source.shape, target.shape, source.dtype), self.names)

    def _one_of(self, gv: GlobalVar, func: tirx.PrimFunc, names: Pool) -> GlobalVar:
        nameless = func.without_attr("global_symbol")
        alike = self._alike.setdefault(tvm_ffi.structural_hash(nameless), [])
        for other in alike:
            if tvm_ffi.structural_equal(self._kernels[other].without_attr("global_symbol"), nameless):
                return other
        own = GlobalVar(names.free_name(f"{gv.name_hint}_rows{number}" for number in itertools.count()))
        self._kernels[own] = func
        alike.append(own)
        return own


def _temporary(buffer: Buffer, rows: Rows) -> Buffer:
    """Returns a buffer for some rows of a tensor."""
    shape = (*buffer.shape[:ROWS], rows[1] - rows[0], *buffer.shape[ROWS + 1 :])
    return Buffer(MemoryKind.WORKSPACE, buffer.index, shape, buffer.dtype)


def _is_written_there(result: Buffer) -> bool:
    """Whether the rows of the last result are contiguous in it, so that a part can be computed in its final
    location.
    """
    return math.prod(map(int, result.shape[:ROWS])) == 1


def _row_bytes(buffer: Buffer) -> int:
    return math.prod(map(int, buffer.shape[ROWS + 1 :])) * element_bytes(buffer.dtype)
