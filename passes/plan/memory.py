"""A static plan of the workspace: where every buffer between two kernels lives, decided at compile time.

Five things bring buffers together before offsets are chosen:

- a reshape is no work: its result is its operand;
- the parts of a tensor that are whole slices of it are read where they lie;
- the operands of a concatenation of whole slices are written straight to their place in its result;
- an element-wise step writes over an operand that nobody reads any more;
- a network's output is written straight to the caller's memory.

Parts, and operands of concatenations, lie where they come to lie; a target that loads vectors from aligned addresses
only has those copied that would not.

What is left are storages with a size and a time of life; they are placed greedily, the largest first (Pisarchyk and
Lee, 2020).

The body of a choice or a loop has a plan of its own, and its workspace is the step's private part of the one around.
A loop's states live where its results are; their first values are brought there, unless they are there already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tvm.ir import GlobalVar

from nnefc.passes.plan.program import Buffer, ChoiceStep, Kind, LoopStep, Program, Step
from nnefc.passes.schedule.in_place import InPlace
from nnefc.passes.tir.alignment import aligned

__all__ = ["COUNTER_BYTES", "Copy", "MemoryPlan", "Place", "plan_memory"]

COUNTER_BYTES = 64
"""What a loop's number of the round takes at the beginning of its workspace, before that of its body."""


@dataclass(frozen=True)
class Place:
    """An address: `offset` bytes into an input, an output, a state, a constant or the workspace.

    `base` is a :class:`Kind`'s value or `output`; `index` counts what there are several of, and is 0 for the workspace.
    """

    base: str
    index: int
    offset: int


Action = Step | ChoiceStep | LoopStep


@dataclass(frozen=True)
class Copy:
    """Bytes that have to move: an operand of a concatenation that lives elsewhere, or an output that is no result."""

    source: Buffer
    target: Place
    bytes: int


@dataclass(frozen=True)
class MemoryPlan:
    """The plan.

    Attributes:
        actions: kernels, choices, loops and copies, in order.
        places: where each buffer lives.
        own_workspace: for each of the actions that has one, by its position, where its private workspace begins.
        bodies: the plans of the bodies of each choice and loop.
        workspace_bytes: the size of the workspace.
        lower_bound: the largest sum of buffers alive at one time; no plan needs less.
        constant_offsets, state_offsets: where each constant and each state begins in its area.
        constant_bytes, state_bytes: the sizes of these areas.
    """

    actions: tuple[Action | Copy, ...]
    places: Mapping[Buffer, Place]
    own_workspace: Mapping[int, Place]
    bodies: Mapping[Action, tuple[MemoryPlan, ...]]
    workspace_bytes: int
    lower_bound: int
    constant_offsets: tuple[int, ...]
    state_offsets: tuple[int, ...]
    constant_bytes: int
    state_bytes: int


@dataclass(eq=False)
class _Storage:
    """Memory that one buffer, or several that were brought together, live in."""

    bytes: int
    first: int
    last: int
    output: int | None = None
    offset: int = 0


@dataclass
class _Planner:
    program: Program
    in_place: Mapping[GlobalVar, InPlace]
    own_bytes: Mapping[GlobalVar, int]
    bodies: Mapping[Action, tuple[MemoryPlan, ...]]
    alignment: int
    parent: dict[Buffer, tuple[Buffer, int]] = field(default_factory=dict)
    storage: dict[Buffer, _Storage] = field(default_factory=dict)

    def root(self, buffer: Buffer) -> tuple[Buffer, int]:
        """The buffer that `buffer` is a part of, and where it begins there."""
        offset = 0
        while buffer in self.parent:
            buffer, inner = self.parent[buffer]
            offset += inner
        return buffer, offset

    def workspace_of(self, step: Action) -> int:
        """Bytes that only this step uses."""
        needed = max((body.workspace_bytes for body in self.bodies.get(step, ())), default=0)
        match step:
            case Step():
                return self.own_bytes.get(step.kernel, 0)
            case LoopStep():
                return COUNTER_BYTES + needed
        return needed

    def overwritable(self, step: Action, position: int) -> list[int]:
        """Positions of operands that the result at `position` may be written over, if nobody reads them any more."""
        match step:
            case Step() if len(step.writes) == 1:
                return list(self.in_place.get(step.kernel, InPlace()).overwritable)
            case LoopStep() if position < len(step.body.states):
                return [step.first_state + position]
        return []


def plan_memory(
    program: Program, in_place: Mapping[GlobalVar, InPlace], own_bytes: Mapping[GlobalVar, int], alignment: int = 1
) -> MemoryPlan:
    """Plan the memory of a program.

    Args:
        program: the steps.
        in_place: what each kernel allows.
        own_bytes: private workspace of each kernel; kernels without one may be missing.
        alignment: bytes, of what kernels read and write.
    """
    bodies: dict[Action, tuple[MemoryPlan, ...]] = {
        step: tuple(plan_memory(body, in_place, own_bytes, alignment) for body in step.bodies)
        for step in program.steps
        if not isinstance(step, Step)
    }
    planner = _Planner(program, in_place, own_bytes, bodies, alignment)
    steps = _join_views(planner)
    return _place(planner, steps)


def _join_views(planner: _Planner) -> list[Action | tuple[Buffer, Buffer, int]]:
    """Resolve reshapes, parts and concatenations; returns the steps left and copies as (source, target, offset)."""
    left: list[Action | tuple[Buffer, Buffer, int]] = []
    for step in planner.program.steps:
        allowed = planner.in_place.get(step.kernel, InPlace()) if isinstance(step, Step) else InPlace()
        if allowed.reshape:
            planner.parent[step.writes[0]] = (step.reads[0], 0)
        elif allowed.parts:
            offset = 0
            for part in step.writes:
                if offset % planner.alignment == 0:
                    planner.parent[part] = (step.reads[0], offset)
                else:
                    there = replace(part)
                    planner.parent[there] = (step.reads[0], offset)
                    left.append((there, part, 0))
                offset += part.bytes
        elif allowed.concatenation:
            offset = 0
            for part in step.reads:
                root, _ = planner.root(part)
                free = root.kind is Kind.WORKSPACE and root.bytes == part.bytes and root is not step.writes[0]
                if free and offset % planner.alignment == 0:
                    planner.parent[root] = (step.writes[0], offset)
                else:
                    left.append((part, step.writes[0], offset))
                offset += part.bytes
        else:
            left.append(step)
    return left


def _place(planner: _Planner, steps: list[Action | tuple[Buffer, Buffer, int]]) -> MemoryPlan:
    program = planner.program
    lives = _lives(planner, steps)
    results = (*program.outputs, *program.new_states)
    output_of = _outputs_written_directly(planner, program.outputs)
    for time, step in enumerate(steps):
        if isinstance(step, tuple):
            _storage_of(planner, planner.root(step[1])[0], lives, output_of)
        else:
            _start_storages(planner, step, time, lives, output_of)
    own: dict[int, _Storage] = {
        time: _Storage(size, time, time)
        for time, step in enumerate(steps)
        if not isinstance(step, tuple) and (size := planner.workspace_of(step))
    }
    saved = _states_to_save(planner, len(steps))
    storages = [s for s in dict.fromkeys(planner.storage.values()) if s.output is None]
    storages += [storage for _, storage in saved.values()]
    workspace_bytes = _assign_offsets([*storages, *own.values()])

    constant_offsets, constant_bytes = _stack(buffer.nbytes for buffer in program.constants)
    state_offsets, state_bytes = _stack(buffer.bytes for buffer in program.states)
    places: dict[Buffer, Place] = {}

    def place(buffer: Buffer) -> Place:
        root, offset = planner.root(buffer)
        match root.kind:
            case Kind.INPUT:
                return Place("input", root.index, offset)
            case Kind.CONSTANT:
                return Place("constant", root.index, offset)
            case Kind.STATE:
                return Place("state", root.index, offset)
        storage = planner.storage[root]
        if storage.output is not None:
            return Place("output", storage.output, offset)
        return Place("workspace", 0, storage.offset + offset)

    for step in program.steps:
        for buffer in (*step.reads, *step.writes):
            places[buffer] = place(buffer)
    for buffer in (*results, *program.states):
        places[buffer] = place(buffer)
    actions: list[Action | Copy] = []
    for step in steps:
        if isinstance(step, tuple):
            source, target, offset = step
            base, places[source] = places[target], place(source)
            actions.append(Copy(source, Place(base.base, base.index, base.offset + offset), source.bytes))
        else:
            actions.append(step)
    for index, buffer in enumerate(program.outputs):
        if places[buffer] != Place("output", index, 0):
            actions.append(Copy(buffer, Place("output", index, 0), buffer.bytes))
    for buffer, storage in saved.values():
        places[buffer] = Place("workspace", 0, storage.offset)
    actions += _state_updates(program, places, {new: buffer for new, (buffer, _) in saved.items()})
    return MemoryPlan(
        actions=tuple(actions),
        places=places,
        own_workspace={time: Place("workspace", 0, s.offset) for time, s in own.items()},
        bodies=planner.bodies,
        workspace_bytes=workspace_bytes,
        lower_bound=_lower_bound([*storages, *own.values()]),
        constant_offsets=constant_offsets,
        state_offsets=state_offsets,
        constant_bytes=constant_bytes,
        state_bytes=state_bytes,
    )


def _lives(planner: _Planner, steps: list[Action | tuple[Buffer, Buffer, int]]) -> dict[Buffer, tuple[int, int]]:
    """First and last time that each root buffer, or a part of it, is touched."""
    lives: dict[Buffer, tuple[int, int]] = {}

    def touch(buffer: Buffer, time: int) -> None:
        root, _ = planner.root(buffer)
        first, last = lives.get(root, (time, time))
        lives[root] = (min(first, time), max(last, time))

    for time, step in enumerate(steps):
        touched = step[:2] if isinstance(step, tuple) else (*step.reads, *step.writes)
        for buffer in touched:
            touch(buffer, time)
    for buffer in (*planner.program.outputs, *planner.program.new_states):
        touch(buffer, len(steps))
    return lives


def _outputs_written_directly(planner: _Planner, outputs: Iterable[Buffer]) -> dict[Buffer, int]:
    """Root buffers that can live in the caller's memory, each by the first output that it is."""
    direct: dict[Buffer, int] = {}
    for index, buffer in enumerate(outputs):
        root, offset = planner.root(buffer)
        if root.kind is Kind.WORKSPACE and offset == 0 and root.bytes == buffer.bytes:
            direct.setdefault(root, index)
    return direct


def _storage_of(
    planner: _Planner, root: Buffer, lives: Mapping[Buffer, tuple[int, int]], output_of: Mapping[Buffer, int]
) -> _Storage:
    if root not in planner.storage:
        first, last = lives[root]
        planner.storage[root] = _Storage(root.bytes, first, last, output_of.get(root))
    return planner.storage[root]


def _start_storages(
    planner: _Planner,
    step: Action,
    time: int,
    lives: Mapping[Buffer, tuple[int, int]],
    output_of: Mapping[Buffer, int],
) -> None:
    """Give the results of a step storages: those of operands that die here, where the kernel allows it."""
    for position, result in enumerate(step.writes):
        root, _ = planner.root(result)
        if root in planner.storage:
            continue
        overwritable = planner.overwritable(step, position)
        others = {planner.root(b)[0] for i, b in enumerate(step.reads) if i not in overwritable}
        candidates = [step.reads[i] for i in overwritable]
        reusable = (b for b in candidates if planner.root(b)[0] not in others)  # else another operand changes too
        dying = next((s for b in reusable if (s := _dying(planner, b, time, root, lives)) is not None), None)
        if dying is None or root is not result or root in output_of:
            _storage_of(planner, root, lives, output_of)
        else:
            dying.last = lives[root][1]
            planner.storage[root] = dying


def _dying(
    planner: _Planner, operand: Buffer, time: int, result: Buffer, lives: Mapping[Buffer, tuple[int, int]]
) -> _Storage | None:
    """The storage of `operand`, if it holds nothing else and nobody needs it after `time`."""
    root, offset = planner.root(operand)
    if root.kind is not Kind.WORKSPACE or offset or root.bytes != result.bytes or lives[root][1] != time:
        return None
    storage = planner.storage[root]
    return storage if storage.output is None and storage.last == time else None


def _assign_offsets(storages: list[_Storage]) -> int:
    """Choose offsets so that storages alive at the same time do not overlap; returns the bytes in all."""
    placed: list[_Storage] = []
    end = 0
    for storage in sorted(storages, key=lambda s: (-s.bytes, s.first)):
        size = aligned(storage.bytes)
        offset = 0
        for other in placed:  # in order of their offsets
            if other.last < storage.first or storage.last < other.first:
                continue
            if other.offset - offset >= size:
                break
            offset = max(offset, other.offset + aligned(other.bytes))
        storage.offset = offset
        placed.append(storage)
        placed.sort(key=lambda s: s.offset)
        end = max(end, offset + size)
    return end


def _lower_bound(storages: list[_Storage]) -> int:
    times = {s.first for s in storages}
    return max((sum(aligned(s.bytes) for s in storages if s.first <= t <= s.last) for t in times), default=0)


def _stack(sizes: Iterable[int]) -> tuple[tuple[int, ...], int]:
    """Offsets of areas of these sizes, one after the other, and their end."""
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end += aligned(size)
    return tuple(offsets), end


def _states_to_save(planner: _Planner, time: int) -> dict[Buffer, tuple[Buffer, _Storage]]:
    """New values of states that are the old values of others: each is saved before any state changes."""
    saved: dict[Buffer, tuple[Buffer, _Storage]] = {}
    for state, new in zip(planner.program.states, planner.program.new_states, strict=True):
        root, _ = planner.root(new)
        if root.kind is Kind.STATE and root is not state and new not in saved:
            copy = Buffer(Kind.WORKSPACE, -1 - len(saved), new.shape, new.dtype)
            saved[new] = copy, _Storage(new.bytes, time, time)
    return saved


def _state_updates(program: Program, places: Mapping[Buffer, Place], saved: Mapping[Buffer, Buffer]) -> list[Copy]:
    """Bring the states' new values to their place, after everything that reads the old ones."""
    copies = [Copy(new, places[copy], new.bytes) for new, copy in saved.items()]
    for index, (state, new) in enumerate(zip(program.states, program.new_states, strict=True)):
        if places[new] != Place("state", index, 0):
            copies.append(Copy(saved.get(new, new), Place("state", index, 0), state.bytes))
    return copies
