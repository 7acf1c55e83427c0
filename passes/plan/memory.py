"""Plans the workspace statically: assigns every buffer between two kernels to storage at compile time.

Five things bring buffers together before offsets are chosen:

- a reshape is no work: its result is its operand;
- the parts of a tensor that are whole slices of it are read where they lie;
- the operands of a concatenation of whole slices are written straight to their position in its result;
- an element-wise step overwrites an operand after its last use;
- a network's output is written straight to the caller's memory.

Parts, and operands of concatenations, lie where they come to lie; a target that loads vectors from aligned addresses
only has those copied that would not.

What is left are storages with a size and a time of life; they are placed greedily, the largest first (Pisarchyk and
Lee, 2020).

The body of a choice or a loop has a plan of its own, and its workspace is the step's private part of the one around.
A loop's states live where its results are, or move from iteration to iteration: see `loop_states.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.ir import GlobalVar

from nnefc.ir.network import Loop
from nnefc.passes.plan.locations import OUTPUT, MemoryLocation
from nnefc.passes.plan.loop_states import alternating_states, moving_states, results_of_body
from nnefc.passes.plan.offsets import DynamicStorage, Storage, alive_at, assign_offsets, stacked, with_dynamic_offsets
from nnefc.passes.plan.program import Buffer, IfStep, LoopStep, MemoryKind, Program, Step
from nnefc.passes.schedule.in_place import InPlace
from nnefc.symbolic.dims import Dimension, bounds, expression, greatest, substituted, variables, widest

__all__ = ["COUNTER_BYTES", "BufferCopy", "Counts", "MemoryPlan", "plan_memory"]


@dataclass(frozen=True)
class Counts:
    """Data-dependent sizes: their upper bounds, or the part of the workspace that waits for them."""

    limits: Mapping[tirx.Var, Dimension]
    parts: Mapping[tirx.Var, int]

    def part(self, size: Dimension) -> int:
        """Returns the part of the workspace that can be laid out when this size is known."""
        return max((self.parts.get(var, 0) for var in variables(expression(size))), default=0) if self.parts else 0

    def tell(self, size: Dimension) -> bool:
        """Whether a size depends on any of them."""
        return any(var in self.limits or var in self.parts for var in variables(expression(size)))


COUNTER_BYTES = 64
"""Bytes of a loop's counter, which lies at the beginning of the loop's workspace, before that of its body."""


Action = Step | IfStep | LoopStep


@dataclass(frozen=True)
class BufferCopy:
    """A copy of bytes: an operand of a concatenation that lies elsewhere, or an output that no kernel writes
    directly.
    """

    source: Buffer
    target: MemoryLocation
    bytes: Dimension


@dataclass(frozen=True)
class MemoryPlan:
    """The addresses of a program's buffers, with its remaining actions.

    Attributes:
        actions: kernels, choices, loops and copies, in order.
        positions: the location of each buffer.
        step_workspaces: for each of the actions that has one, by its position, where its private workspace begins.
        second_states: for each of the loops, by its position, the second buffers of states that alternate between two,
            by the state.
        bodies: the plans of the bodies of each choice and loop.
        workspace_bytes: the size of the workspace.
        alive: the bytes of the workspace that are in use while each of the actions runs.
        constant_offsets, state_offsets: where each constant and each state begins in its area.
        constant_bytes, state_bytes: the sizes of these areas.
        storages: what lies in the workspace, where dynamic dimensions leave the offsets to the library; the workspace
            has no size then.
    """

    actions: tuple[Action | BufferCopy, ...]
    positions: Mapping[Buffer, MemoryLocation]
    step_workspaces: Mapping[int, MemoryLocation]
    second_states: Mapping[int, Mapping[int, MemoryLocation]]
    bodies: Mapping[Action, tuple[MemoryPlan, ...]]
    workspace_bytes: int
    alive: tuple[int, ...]
    constant_offsets: tuple[int, ...]
    state_offsets: tuple[int, ...]
    constant_bytes: int
    state_bytes: int
    storages: tuple[DynamicStorage, ...] = ()

    @property
    def lower_bound(self) -> int:
        """The largest number of bytes in use at one time: no plan needs less."""
        return max(self.alive, default=0)

    def with_room(self) -> MemoryPlan:
        """Returns the plan with a further storage at the beginning of the workspace, for programs that run instead of
        this one.

        The library knows its size: it is at least that of the workspace, where that is known here.
        """
        last = 1 + max((storage.last for storage in self.storages), default=0)
        return replace(self, storages=(*self.storages, DynamicStorage(tirx.Var("room", "int64"), 0, last, last)))

    def workspace_at(self, sizes: Mapping[tirx.Var, int]) -> int:
        """Returns the bytes of the workspace when the dynamic dimensions have these values."""
        if not self.storages:
            return self.workspace_bytes
        parts: defaultdict[int, list[Storage]] = defaultdict(list)
        for storage in self.storages:
            parts[storage.part].append(Storage(substituted(storage.bytes, sizes), storage.first, storage.last))
        return sum(map(assign_offsets, parts.values()))


def plan_memory(
    program: Program,
    in_place: Mapping[GlobalVar, InPlace],
    kernel_workspaces: Mapping[GlobalVar, Dimension],
    alignment: int = 1,
    counts: Counts | None = None,
    loop: Loop | None = None,
) -> MemoryPlan:
    """Plans the memory of a program.

    Args:
        program: the steps.
        in_place: what each kernel allows.
        kernel_workspaces: bytes of each kernel's private workspace, in its canonical dimensions; kernels without one
            may be missing.
        alignment: bytes, of what kernels read and write.
        counts: the data-dependent sizes; of a body, those of the program around it.
        loop: the loop that the program is the body of, if any: it finds its states elsewhere in each iteration.
    """
    counts = Counts(program.limits, program.parts) if counts is None else counts

    def plan_body(step: IfStep | LoopStep, body: Program) -> MemoryPlan:
        loop = step.loop if isinstance(step, LoopStep) else None
        return plan_memory(body, in_place, kernel_workspaces, alignment, counts, loop)

    bodies: dict[Action, tuple[MemoryPlan, ...]] = {
        step: tuple(plan_body(step, body) for body in step.bodies)
        for step in program.steps
        if not isinstance(step, Step)
    }
    aliases = _Aliases()
    for view, (whole, offset) in program.views.items():
        aliases.join(view, whole, offset)
    steps = _without_views(program, in_place, alignment, aliases, counts)
    lifetimes = _lifetimes(program, steps, aliases)
    storages = _Storages(program, in_place, aliases, lifetimes, loop).after(steps)
    workspaces = {
        time: Storage(size, time, time)
        for time, step in enumerate(steps)
        if (size := _workspace_of(step, kernel_workspaces, bodies))
    }
    second = {
        time: {
            state: Storage(step.body.states[state].bytes, time, time)
            for state in alternating_states(step.body, step.loop, bodies[step][0].positions)
        }
        for time, step in enumerate(steps)
        if isinstance(step, LoopStep)
    }
    saved = _states_to_save(program, aliases, len(steps))
    placed = [storage for storage in dict.fromkeys(storages.values()) if storage.outside is None]
    placed += [*(storage for _, storage in saved.values()), *workspaces.values()]
    placed += [storage for states in second.values() for storage in states.values()]
    for storage in placed:
        storage.bytes = widest(storage.bytes, counts.limits)
        storage.part = counts.part(storage.bytes)
    inside = [
        replace(storage, bytes=_not_negative(storage.bytes), first=time, last=time)
        for time, step in enumerate(steps)
        if not isinstance(step, _Move)
        for body in bodies.get(step, ())
        for storage in body.storages
    ]
    dynamic_storages = with_dynamic_offsets(placed, inside)
    workspace_bytes = 0 if dynamic_storages else assign_offsets(placed)
    addresses = _Addresses(aliases, storages)
    positions = addresses.of_all(program, steps) | {copy: _in_workspace(storage) for copy, storage in saved.values()}
    constant_offsets, constant_bytes = stacked(buffer.nbytes for buffer in program.constants)
    state_offsets, state_bytes = stacked(buffer.bytes for buffer in program.states)
    return MemoryPlan(
        actions=(
            *(addresses.copy(step) if isinstance(step, _Move) else step for step in steps),
            *_output_copies(program, positions),
            *_state_updates(program, positions, {new: copy for new, (copy, _) in saved.items()}, loop),
        ),
        positions=positions,
        step_workspaces={time: _in_workspace(storage) for time, storage in workspaces.items()},
        second_states={
            time: {state: _in_workspace(storage) for state, storage in states.items()}
            for time, states in second.items()
        },
        bodies=bodies,
        workspace_bytes=workspace_bytes,
        alive=() if dynamic_storages else alive_at(placed),
        constant_offsets=constant_offsets,
        state_offsets=state_offsets,
        constant_bytes=constant_bytes,
        state_bytes=state_bytes,
        storages=dynamic_storages,
    )


def _not_negative(size: Dimension) -> Dimension:
    """Clamps a size to 0: sizes in a body are negative where dimensions are so small that it does not run."""
    return greatest(size, 0) if bounds(size)[0] < 0 else size


# Views: buffers that are parts of others.


class _Aliases:
    """The buffers that are parts of others, and their offsets; all others are roots."""

    def __init__(self) -> None:
        self._whole: dict[Buffer, tuple[Buffer, Dimension]] = {}
        self._parts: dict[Buffer, list[Buffer]] = {}  # of each root that has any

    def join(self, part: Buffer, whole: Buffer, offset: Dimension) -> None:
        """Makes a root a part of another buffer, `offset` bytes from its beginning."""
        self._whole[part] = (whole, offset)
        root, _ = self.root(whole)
        self._parts.setdefault(root, []).extend((part, *self._parts.pop(part, ())))

    def parts_of(self, root: Buffer) -> list[Buffer]:
        """Returns a root, and all buffers that are parts of it."""
        return [root, *self._parts.get(root, ())]

    def root(self, buffer: Buffer) -> tuple[Buffer, Dimension]:
        """Returns the root that a buffer is a part of, and where it begins there."""
        path = []
        while buffer in self._whole:
            path.append(buffer)
            buffer, _ = self._whole[buffer]
        offset: Dimension = 0
        for part in reversed(path):  # from the root on; who asks next has one step to go
            offset += self._whole[part][1]
            self._whole[part] = (buffer, offset)
        return buffer, offset


@dataclass(frozen=True)
class _Move:
    """A view that could not be resolved: copies `source` to `offset` bytes into `target`."""

    source: Buffer
    target: Buffer
    offset: Dimension

    @property
    def touched(self) -> tuple[Buffer, ...]:
        """Returns the buffers that it reads and writes."""
        return self.source, self.target


_Steps = Sequence[Action | _Move]


def _touched(step: Action | _Move) -> tuple[Buffer, ...]:
    return step.touched if isinstance(step, _Move) else (*step.reads, *step.writes)


def _without_views(
    program: Program, in_place: Mapping[GlobalVar, InPlace], alignment: int, aliases: _Aliases, counts: Counts
) -> _Steps:
    """Resolves reshapes, parts and concatenations; returns the remaining steps."""
    left: list[Action | _Move] = []
    updates = _StateUpdates(program, in_place, aliases)
    for time, step in enumerate(program.steps):
        allowed = in_place.get(step.kernel, InPlace()) if isinstance(step, Step) else InPlace()
        if allowed.reshape:
            aliases.join(step.writes[0], step.reads[0], 0)
        elif allowed.parts:
            left += _split(step.reads[0], step.writes, alignment, aliases, counts)
        elif allowed.concatenation:
            left += _concatenated(step.reads, step.writes[0], alignment, aliases, counts)
        elif allowed.updates is not None:
            operand, result = step.reads[allowed.updates], step.writes[0]
            if isinstance(step, Step) and updates.may_be_in_place(step, allowed.updates, time):
                aliases.join(result, aliases.root(operand)[0], 0)
            else:
                left.append(_Move(operand, result, 0))
            left.append(step)
        else:
            left.append(step)
    return left


class _StateUpdates:
    """The results of a program that may overwrite the state that they update."""

    def __init__(self, program: Program, in_place: Mapping[GlobalVar, InPlace], aliases: _Aliases) -> None:
        self._aliases = aliases
        reshaped = {
            step.writes[0]: step.reads[0]
            for step in program.steps
            if isinstance(step, Step) and in_place.get(step.kernel, InPlace()).reshape
        }
        self._new = {}
        for state, new in zip(program.states, program.new_states, strict=True):
            while new in reshaped:
                new = reshaped[new]
            self._new[state] = new
        self._last: dict[Buffer, float] = {}  # when each buffer is read for the last time
        for time, step in enumerate(program.steps):
            self._last |= dict.fromkeys(step.reads, time)
        self._last |= dict.fromkeys((*program.outputs, *program.new_states), math.inf)

    def may_be_in_place(self, step: Step, position: int, time: int) -> bool:
        """Whether the operand at `position` is the state that the result updates, and has no later use.

        Steps before `time`, that of the step, may read it.

        Others may have read it before `time`, that of the step.
        """
        root, offset = self._aliases.root(step.reads[position])
        if root.kind is not MemoryKind.STATE or offset != 0 or self._new.get(root) is not step.writes[0]:
            return False
        if any(self._aliases.root(read)[0] is root for i, read in enumerate(step.reads) if i != position):
            return False
        return all(self._last.get(view, -1) <= time for view in self._aliases.parts_of(root))


def _split(
    whole: Buffer, parts: Sequence[Buffer], alignment: int, aliases: _Aliases, counts: Counts
) -> Iterator[_Move]:
    """Makes parts of a tensor aliases of it, except those that would not be aligned."""
    for part, offset in _one_after_the_other(parts):
        if _can_begin(offset, alignment, counts):
            aliases.join(part, whole, offset)
        else:
            there = replace(part)
            aliases.join(there, whole, offset)
            yield _Move(there, part, 0)


def _concatenated(
    parts: Sequence[Buffer], whole: Buffer, alignment: int, aliases: _Aliases, counts: Counts
) -> Iterator[_Move]:
    """Makes operands aliases of the concatenation's result, if they have no other location and are aligned there."""
    for part, offset in _one_after_the_other(parts):
        root, _ = aliases.root(part)
        is_free = root.kind is MemoryKind.WORKSPACE and root.bytes == part.bytes and root is not whole
        is_free = is_free and counts.part(root.bytes) == counts.part(whole.bytes)
        if is_free and _can_begin(offset, alignment, counts):
            aliases.join(root, whole, offset)
        else:
            yield _Move(part, whole, offset)


def _can_begin(offset: Dimension, alignment: int, counts: Counts) -> bool:
    """Whether a buffer may begin at this offset of another: it is aligned, and known before the run."""
    return offset % alignment == 0 and not counts.tell(offset)


def _one_after_the_other(parts: Sequence[Buffer]) -> Iterator[tuple[Buffer, Dimension]]:
    """Returns the parts with their offsets in the whole."""
    offset = 0
    for part in parts:
        yield part, offset
        offset += part.bytes


# Storages: roots that live in the same memory, one after the other.


_Lifetimes = Mapping[Buffer, tuple[int, int]]


def _lifetimes(program: Program, steps: _Steps, aliases: _Aliases) -> _Lifetimes:
    """Returns the first and last time that each root, or a part of it, is used; results are used at the end."""
    lives: dict[Buffer, tuple[int, int]] = {}
    touched = [*map(_touched, steps), (*program.outputs, *program.new_states)]
    for time, buffers in enumerate(touched):
        for buffer in buffers:
            root, _ = aliases.root(buffer)
            first, last = lives.get(root, (time, time))
            lives[root] = (min(first, time), max(last, time))
    return lives


class _Storages:
    """Assigns to each root in the workspace, or among the results, a storage of its own or an operand's."""

    def __init__(
        self,
        program: Program,
        in_place: Mapping[GlobalVar, InPlace],
        aliases: _Aliases,
        lives: _Lifetimes,
        loop: Loop | None,
    ) -> None:
        self._in_place, self._aliases, self._lives = in_place, aliases, lives
        self._storages: dict[Buffer, Storage] = {}
        self._results: dict[Buffer, tuple[str, int]] = {}  # roots that can live in the first result that they are
        results = [((OUTPUT, index), buffer) for index, buffer in enumerate(program.outputs)]
        results += results_of_body(program, loop) if loop is not None else []
        for result, buffer in results:
            root, offset = aliases.root(buffer)
            if root.kind is MemoryKind.WORKSPACE and offset == 0 and root.bytes == buffer.bytes:
                self._results.setdefault(root, result)

    def after(self, steps: _Steps) -> Mapping[Buffer, Storage]:
        """Returns the storages of all roots, given the steps in order."""
        for time, step in enumerate(steps):
            if isinstance(step, _Move):
                self._start(self._aliases.root(step.target)[0])
                continue
            for position, result in enumerate(step.writes):
                root, _ = self._aliases.root(result)
                if root.kind is MemoryKind.WORKSPACE and root not in self._storages:
                    self._start_result(step, position, root, time)
        return self._storages

    def _start(self, root: Buffer) -> None:
        if root not in self._storages:
            self._storages[root] = Storage(root.bytes, *self._lives[root], self._results.get(root))

    def _start_result(self, step: Action, position: int, root: Buffer, time: int) -> None:
        """Assigns to a result the storage of an operand that dies here, where the kernel allows it, or a new one."""
        dying = self._dying_operand(step, position, root, time)
        if dying is None or root is not step.writes[position] or root in self._results:
            self._start(root)
        else:
            dying.last = self._lives[root][1]
            self._storages[root] = dying

    def _dying_operand(self, step: Action, position: int, result: Buffer, time: int) -> Storage | None:
        """Returns the storage of an operand that may be overwritten, holds nothing else, and is not needed any more."""
        overwritable = self._overwritable(step, position)
        others = {self._aliases.root(b)[0] for i, b in enumerate(step.reads) if i not in overwritable}
        for index in overwritable:
            root, offset = self._aliases.root(step.reads[index])
            if root in others or root.kind is not MemoryKind.WORKSPACE or offset:
                continue  # another operand would change too, or it is not the plan's memory
            storage = self._storages[root]
            if root.bytes == result.bytes and self._lives[root][1] == storage.last == time and storage.outside is None:
                return storage
        return None

    def _overwritable(self, step: Action, position: int) -> Sequence[int]:
        """Returns the positions of operands that the result at `position` may overwrite, if this is their last use."""
        match step:
            case Step() if len(step.writes) == 1:
                return self._in_place.get(step.kernel, InPlace()).overwritable
            case LoopStep() if position < len(step.body.states):
                return [step.first_state + position]
        return []


def _workspace_of(
    step: Action | _Move,
    kernel_workspaces: Mapping[GlobalVar, Dimension],
    bodies: Mapping[Action, tuple[MemoryPlan, ...]],
) -> int:
    """Returns the bytes that only this step uses."""
    match step:
        case _Move():
            return 0
        case Step():
            return substituted(kernel_workspaces.get(step.kernel, 0), dict(step.sizes))
    of_bodies = max((body.workspace_bytes for body in bodies[step]), default=0)
    return COUNTER_BYTES + of_bodies if isinstance(step, LoopStep) else of_bodies


# Addresses: where storages have come to lie.


@dataclass(frozen=True)
class _Addresses:
    aliases: _Aliases
    storages: Mapping[Buffer, Storage]

    def of_all(self, program: Program, steps: _Steps) -> dict[Buffer, MemoryLocation]:
        """Returns the locations of all buffers."""
        buffers = [*program.outputs, *program.new_states, *program.states, *program.counts]
        for step in (*program.steps, *steps):
            buffers += _touched(step)
        return {buffer: self.of(buffer) for buffer in buffers}

    def of(self, buffer: Buffer) -> MemoryLocation:
        """Returns the location of a buffer."""
        root, offset = self.aliases.root(buffer)
        if root.kind is not MemoryKind.WORKSPACE:
            return MemoryLocation(root.kind.value, root.index, offset)
        storage = self.storages[root]
        if storage.outside is not None:
            return MemoryLocation(*storage.outside, offset)
        return _in_workspace(storage, offset)

    def copy(self, move: _Move) -> BufferCopy:
        """Returns the copy that a move is."""
        target = self.of(move.target)
        return BufferCopy(move.source, replace(target, offset=target.offset + move.offset), move.source.bytes)


def _in_workspace(storage: Storage, offset: int = 0) -> MemoryLocation:
    return MemoryLocation("workspace", storage.part, storage.offset + offset)


def _output_copies(program: Program, positions: Mapping[Buffer, MemoryLocation]) -> Iterator[BufferCopy]:
    """Returns copies of outputs to the caller's memory, for those that lie elsewhere."""
    for index, buffer in enumerate(program.outputs):
        if positions[buffer] != MemoryLocation(OUTPUT, index, 0):
            yield BufferCopy(buffer, MemoryLocation(OUTPUT, index, 0), buffer.bytes)


def _states_to_save(program: Program, aliases: _Aliases, time: int) -> dict[Buffer, tuple[Buffer, Storage]]:
    """Returns the new values of states that are old values of other states: they are saved before any state changes."""
    saved: dict[Buffer, tuple[Buffer, Storage]] = {}
    for state, new in zip(program.states, program.new_states, strict=True):
        root, offset = aliases.root(new)
        is_there = root is state and isinstance(offset, int) and offset == 0
        if root.kind is MemoryKind.STATE and not is_there and new not in saved:
            copy = Buffer(MemoryKind.WORKSPACE, -1 - len(saved), new.shape, new.dtype)
            saved[new] = copy, Storage(new.bytes, time, time)
    return saved


def _state_updates(
    program: Program, positions: Mapping[Buffer, MemoryLocation], saved: Mapping[Buffer, Buffer], loop: Loop | None
) -> list[BufferCopy]:
    """Copies new values to their states, after all steps that read the old values.

    In the body of a loop, those that the next iteration reads where they are stay there.
    """
    copies = [BufferCopy(new, positions[copy], new.bytes) for new, copy in saved.items()]
    moving = moving_states(program, loop, positions) if loop is not None else {}
    for index, new in enumerate(program.new_states):
        if index not in moving and positions[new] != MemoryLocation("state", index, 0):
            copies.append(BufferCopy(saved.get(new, new), MemoryLocation("state", index, 0), new.bytes))
    return copies
