"""Runs the passes that a backend lists, one after the other, and reports each run to observers.

A backend declares one list, from the network that a front end returns to object files, in
`compiler/backends/*_passes.py`. What a pass is given depends on its phase:

    graph, legalize      a Relax module of the network, or of a body of a branch or a loop in it
    schedule … pointers  a kernel, a function of TIR
    program, plan        the program of a network: its calls and kernels, then the entry that calls them
    object               a TIR module of some kernels, then LLVM's module, then the bytes of an object file
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

import tvm_ffi

from nnefc.support.diagnostics import CompileError
from nnefc.support.internal_errors import leave_out

__all__ = [
    "ALWAYS",
    "Insertion",
    "Observer",
    "Pass",
    "PassCondition",
    "PassList",
    "PassManager",
    "PassRun",
    "Phase",
    "Property",
    "of_phase",
]


class Phase(StrEnum):
    """The form of the program that a pass reads and writes; in this order."""

    GRAPH = "graph"
    """Operators of Relax."""

    LEGALIZE = "legalize"
    """Operators of Relax become calls of kernels in TIR."""

    PROGRAM = "program"
    """The network as a list of calls of kernels."""

    SCHEDULE = "schedule"
    """A kernel in blocks gets the order of its loops, then instructions of the target."""

    BLOCKS = "blocks"
    """A scheduled kernel in blocks: allocations, then no blocks."""

    FLAT = "flat"
    """Loops over one-dimensional buffers, down to a function of raw pointers."""

    POINTERS = "pointers"
    """A function of raw pointers, until it is handed to the code generator."""

    PLAN = "plan"
    """All kernels of a network: the memory plan and the entry."""

    OBJECT = "object"
    """Functions of raw pointers become an object file."""


class Property(StrEnum):
    """A property of a program from some pass on: a pass names what it requires and what it ensures."""

    CONSTANTS = "constants"
    """Graph: what depends on constants alone is a constant."""

    CHOSEN = "chosen"
    """Graph: the manager's context holds the choice of algorithms."""

    LAYOUTS = "layouts"
    """Graph: convolutions, poolings and matrix products have the layout in which they are computed."""

    KERNELS = "kernels"
    """Graph: every call is a call of a kernel, or of a branch or a loop."""

    DIMENSIONS = "dimensions"
    """Graph: kernels are written with their own symbolic dimensions, listed in an attribute."""

    FUSED = "fused"
    """Graph: kernels have their final extent, and equal kernels are one."""

    SCHEDULED = "scheduled"
    """Kernel: its loops run in their final order."""

    TENSORS = "tensors"
    """Kernel: its parameters are its operands and results alone, without dimensions."""

    WORKSPACE = "workspace"
    """Kernel: buffers that live as long as a call are parameters."""

    FLAT = "flat"
    """Kernel: there are no blocks, and buffers have one dimension."""

    POINTERS = "pointers"
    """Kernel: its parameters are pointers, then dimensions; it returns a status."""

    SYMBOL = "symbol"
    """Kernel: it has a symbol and the calling convention of C."""

    PLANNED = "planned"
    """Program: each buffer between kernels has an address."""

    TARGET = "target"
    """Object: functions name the target that they are for."""

    UNROLLED = "unrolled"
    """Object: no loop is to be unrolled."""

    VECTORS = "vectors"
    """Object: no loop is to be vectorized."""

    BUILTINS = "builtins"
    """Object: every call is an instruction of LLVM or a function of C."""


@dataclass(frozen=True)
class PassCondition:
    """When a pass runs.

    Attributes:
        text: the condition in words, for `--print-passes`; empty for one that always holds.
        holds: the condition, of a backend's settings or of the context of a kernel or an object.
        parts: the conditions that must all hold, for one that is made of several.
    """

    text: str
    holds: Callable[[Any], bool]
    parts: tuple[PassCondition, ...] = ()

    def __and__(self, other: PassCondition) -> PassCondition:
        """Returns a condition that holds if both do."""
        parts = (*self.all_parts, *other.all_parts)
        return PassCondition(
            ", ".join(part.text for part in parts), lambda given: all(part.holds(given) for part in parts), parts
        )

    def __invert__(self) -> PassCondition:
        """Returns the negated condition."""
        return PassCondition(f"not {self.text}", lambda given: not self.holds(given))

    @property
    def all_parts(self) -> tuple[PassCondition, ...]:
        """Returns the conditions that must all hold."""
        return self.parts or ((self,) if self.text else ())


ALWAYS = PassCondition("", lambda _given: True)


@dataclass(frozen=True, eq=False)
class Pass:
    """A named step of a compilation.

    Attributes:
        name: unique in its list; what `--dump` names files by.
        phase: what kind of program it reads.
        run: gives the program after the pass, from the program before it and the context: what the phase knows besides
            the program.
        requires, ensures: what must hold before, and what holds afterwards.
        when: for which targets and options it runs.
        where: for which kernels or objects it runs.
        analyzes: whether it changes no program, but reads the modules of the whole network once.
        optional: whether libraries are right without it: an error in its code leaves it out, with a warning.
        inserted_after: the pass that a pass of a user follows; empty for others.
    """

    name: str
    phase: Phase
    run: Callable[[Any, Any], Any] = field(repr=False)
    requires: frozenset[Property] = frozenset()
    ensures: frozenset[Property] = frozenset()
    when: PassCondition = ALWAYS
    where: PassCondition = ALWAYS
    analyzes: bool = False
    optional: bool = False
    inserted_after: str = ""


@dataclass(frozen=True)
class Insertion:
    """A pass of a user: see :func:`nnefc.passes.after`.

    Attributes:
        after: the name of the pass that it follows.
        run: gives the program after it, from that before.
        name: of the pass.
    """

    after: str
    run: Callable[[Any], Any]
    name: str

    def as_pass(self, anchor: Pass) -> Pass:
        """Returns the user's pass with the phase and the conditions of the pass that it follows; it requires what that
        ensures.

        Raises:
            CompileError: nothing can follow that pass.
        """
        if anchor.phase in (Phase.PROGRAM, Phase.PLAN):
            raise CompileError(
                f"no pass can follow {anchor.name!r}, which makes the program of calls",
                hint="put it after a pass over the graph, kernels or objects: --print-passes shows the phases",
            )
        return Pass(
            self.name,
            anchor.phase,
            lambda program, _context: self.run(program),
            requires=anchor.requires | anchor.ensures,
            when=anchor.when,
            where=anchor.where,
            inserted_after=anchor.name,
        )


@dataclass(frozen=True, eq=False)
class PassRun:
    """One run of a pass, as observers receive it.

    Attributes:
        step: the pass.
        number: its position in the list of passes that run, from 1 on.
        unit: what it ran on: `main` and `main.body0` for graphs, or the name of a kernel, a program or an object.
        before, after: the program; of the same kind, except where a phase ends.
        seconds: processor time of the pass, without passes that ran inside it.
        version: whether the unit is a version of a kernel for some sizes, which becomes part of that kernel.
    """

    step: Pass
    number: int
    unit: str
    before: Any = field(repr=False)
    after: Any = field(repr=False)
    seconds: float
    version: bool = False

    @property
    def changed(self) -> bool:
        """Whether the program after the pass differs from the program before it."""
        if self.after is self.before:
            return False
        if not all(isinstance(program, tvm_ffi.Object) for program in (self.before, self.after)):
            return True
        return not tvm_ffi.structural_equal(self.before, self.after)


Observer = Callable[[PassRun], None]
"""Called after each run of a pass. Passes over objects run in several threads at a time."""


class PassList(Sequence[Pass]):
    """All passes of a backend in the order in which they run."""

    def __init__(self, passes: Iterable[Pass]) -> None:
        self._passes = tuple(passes)
        names = [step.name for step in self._passes]
        assert len(set(names)) == len(names), "two passes have one name"

    def __getitem__(self, index: Any) -> Any:
        return self._passes[index]

    def __len__(self) -> int:
        return len(self._passes)

    def named(self, name: str) -> Pass:
        """Returns the pass of a name.

        Raises:
            KeyError: there is none.
        """
        for step in self._passes:
            if step.name == name:
                return step
        raise KeyError(name)

    def for_settings(self, settings: object) -> PassList:
        """Returns the passes that run for a target and options."""
        return PassList(step for step in self._passes if step.when.holds(settings))

    def with_passes(self, inserted: Sequence[Insertion]) -> PassList:
        """Returns the list with passes of a user, each after the pass that it names.

        Raises:
            CompileError: there is no such pass, a name is taken, or nothing can follow the pass.
        """
        steps = list(self._passes)
        for each in inserted:
            names = [step.name for step in steps]
            if each.name in names:
                raise CompileError(f"there is a pass {each.name!r} already", hint="give yours another name: name=…")
            number = names.index(self.checked_name(each.after)) + 1
            while number < len(steps) and steps[number].inserted_after == each.after:
                number += 1
            steps.insert(number, each.as_pass(steps[names.index(each.after)]))
        return PassList(steps)

    def checked_name(self, name: str) -> str:
        """Returns the name if a pass has it.

        Raises:
            CompileError: none has it.
        """
        names = [step.name for step in self._passes]
        if name not in names:
            near = get_close_matches(name, names, 3, 0.5)
            hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "--print-passes lists all passes"
            raise CompileError(f"there is no pass {name!r}", hint=hint)
        return name

    def unmet(self) -> Iterator[tuple[Pass, Property]]:
        """Yields passes, each with a property that it requires and no pass before it ensures.

        A pass with a condition ensures its properties for passes with the same condition alone.
        """
        held: list[tuple[Property, tuple[PassCondition, ...]]] = []
        for step in self._passes:
            for required in sorted(step.requires):
                if not any(
                    each is required and all(part in step.where.all_parts for part in parts) for each, parts in held
                ):
                    yield step, required
            held += [(each, step.where.all_parts) for each in step.ensures]


class PassManager:
    """Runs the passes of one backend, for one compilation.

    Attributes:
        backend: whose passes they are; a :class:`nnefc.passes.backend.Backend`.
        settings: what conditions of passes are about: the target and options of the compilation.
        passes: those that run.
    """

    def __init__(
        self, backend: Any, settings: Any, passes: PassList | None = None, observers: Sequence[Observer] = ()
    ) -> None:
        """Takes the passes to run; by default those of the backend."""
        self.backend = backend
        self.settings = settings
        self.passes = (backend.passes if passes is None else passes).for_settings(settings)
        self._observers = tuple(observers)
        self._by_phase = {phase: tuple(step for step in self.passes if step.phase is phase) for phase in Phase}
        self._numbers = {step.name: number for number, step in enumerate(self.passes, 1)}
        self._running = _Running()

    @property
    def is_observed(self) -> bool:
        """Returns whether observers learn of the runs of passes."""
        return bool(self._observers)

    def runs_inserted(self, inserted: Insertion) -> bool:
        """Returns whether a pass of a user runs."""
        return inserted.name in self._numbers

    def unobserved(self) -> PassManager:
        """Returns a manager of the same passes without observers."""
        return PassManager(self.backend, self.settings, self.passes)

    def of(self, *phases: Phase) -> tuple[Pass, ...]:
        """Returns the passes of some phases, in order."""
        return tuple(step for phase in phases for step in self._by_phase[phase])

    def run(self, phases: Sequence[Phase], program: Any, context: Any, unit: str, version: bool = False) -> Any:
        """Returns the program after the passes of these phases."""
        for step in self.of(*phases):
            if step.where.holds(context):
                program = self.apply(step, program, context, unit, version)
        return program

    def apply(self, step: Pass, program: Any, context: Any, unit: str, version: bool = False) -> Any:
        """Returns the program after one pass."""
        if not self._observers:
            return _run(step, program, context)
        running = self._running
        outer, running.inside = running.inside, 0.0
        start = time.thread_time()
        try:
            after = _run(step, program, context)
        finally:
            seconds, inside = time.thread_time() - start, running.inside
            running.inside = outer + seconds
        self.report(PassRun(step, self._numbers[step.name], unit, program, after, seconds - inside, version))
        return after

    def report(self, run: PassRun) -> None:
        """Notifies the observers of a run."""
        for observe in self._observers:
            observe(run)


def _run(step: Pass, program: Any, context: Any) -> Any:
    """Runs a pass, and returns the program after it; if the code of an optional pass fails, the program before it."""
    if not step.optional:
        return step.run(program, context)
    try:
        return step.run(program, context)
    except Exception as error:
        leave_out(f"the pass '{step.name}'", error)
        return program


class _Running(threading.local):
    """The pass that runs in a thread; `inside` is the time of passes that ran within it."""

    inside = 0.0


def of_phase(
    phase: Phase,
    name: str,
    run: Callable[[Any, Any], Any],
    *,
    requires: Iterable[Property] = (),
    ensures: Iterable[Property] = (),
    when: PassCondition = ALWAYS,
    where: PassCondition = ALWAYS,
    analyzes: bool = False,
    optional: bool = False,
) -> Pass:
    """Makes a pass; see :class:`Pass`."""
    return Pass(name, phase, run, frozenset(requires), frozenset(ensures), when, where, analyzes, optional)
