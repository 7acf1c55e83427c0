"""The plan as one function that calls the kernels: the whole network in C's calling convention.

    nnefc_network(input0, …, output0, …, state, workspace, constants) -> int32
        kernel0(input0, constants + 0, workspace + 4096)
        while *(int64 *)(workspace + 0) < 100 && *(bool *)(workspace + 64)
            kernel1(workspace + 4096, constants + 6400, workspace + 64)
            *(int64 *)(workspace + 0) += 1
        …
        return 0

Offsets are constants, but for the items that a loop takes and makes in each round. Nothing is allocated and nothing is
checked here: the runtime did both before. It also notes by itself when one of its services fails a kernel, so the
kernels' own statuses are not looked at (TVM's code generator could only return a constant anyway); a loop asks it
before each round, for a kernel that failed may not have written what ends the loop.

The entry calls the kernels by their symbols, for its code goes into an object of its own: see `targets/cpu.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.ir import GlobalVar, PointerType, PrimType

from nnefc.passes.kernels import Kernel
from nnefc.passes.memory import COUNTER_BYTES, Copy, MemoryPlan, Place
from nnefc.passes.steps import Buffer, ChoiceStep, LoopStep, Program, Step

__all__ = ["ENTRY", "entry_module", "exported_kernel"]

ENTRY = "nnefc_network"
_FAILED = "nnefc_run_failed"  # of the runtime: whether a kernel of this run has failed
_C_CALLING_CONVENTION = 1  # an explicit one, so that TVM leaves the signature alone
_BYTE_POINTER = PointerType(PrimType("uint8"))
_SPAN = 1 << 40  # extent of the byte views; addresses lie within the plan, so it is never checked


@dataclass(frozen=True)
class _Area:
    """Where the places of one base and index begin: so many bytes into a view of a parameter of the entry."""

    view: tirx.Var
    offset: tirx.Expr

    def at(self, offset: int | tirx.Expr) -> _Area:
        """The area that begins further on."""
        return _Area(self.view, self.offset + offset)

    @property
    def address(self) -> tirx.Expr:
        """A pointer to bytes."""
        return tirx.address_of(self.view[self.offset])


_Areas = Mapping[tuple[str, int], _Area]


def entry_module(
    program: Program, plan: MemoryPlan, kernels: dict[GlobalVar, Kernel], size_type: str = "int64"
) -> tvm.IRModule:
    """One module with the entry and the kernels that it calls; `size_type` is C's size_t on the target."""
    params = {("input", i): _byte_pointer(f"input{i}") for i in range(len(program.inputs))}
    params |= {("output", i): _byte_pointer(f"output{i}") for i in range(len(program.outputs))}
    params |= {(name, 0): _byte_pointer(name) for name in ("state", "workspace", "constant")}
    views = {key: tirx.decl_buffer((_SPAN,), "uint8", name=p.name, data=p) for key, p in params.items()}
    areas = {key: _Area(view, _int64(0)) for key, view in views.items()}
    state, constant = areas.pop(("state", 0)), areas.pop(("constant", 0))
    areas |= {("state", i): state.at(offset) for i, offset in enumerate(plan.state_offsets)}
    areas |= {("constant", i): constant.at(offset) for i, offset in enumerate(plan.constant_offsets)}
    writer = _Writer(kernels, size_type)
    body = [tirx.DeclBuffer(view, data=params[key]) for key, view in views.items()]
    body += writer.statements(plan, areas)
    body.append(tirx.Return(tirx.IntImm("int32", 0)))
    entry = tirx.PrimFunc(list(params.values()), tirx.SeqStmt(body), ret_type=PrimType("int32"))
    return tvm.IRModule({**writer.used, ENTRY: _exported(entry, ENTRY)})


def exported_kernel(name: GlobalVar, kernel: Kernel) -> tirx.PrimFunc:
    """The function of a kernel, under the symbol that the entry calls it by."""
    return _exported(kernel.func, _symbol(name))


class _Writer:
    """Writes the statements of the entry.

    Attributes:
        used: the kernels that they call, by the symbols that they call them by.
    """

    def __init__(self, kernels: dict[GlobalVar, Kernel], size_type: str) -> None:
        self._kernels = kernels
        self._size_type = size_type
        self.used: dict[str, tirx.PrimFunc] = {}

    def statements(self, plan: MemoryPlan, areas: _Areas) -> list[tirx.Stmt]:
        """The actions of a plan whose places are in these areas."""
        made: list[tirx.Stmt] = []
        for time, action in enumerate(plan.actions):
            place = plan.own_workspace.get(time)
            own = None if place is None else _area(place, areas)
            match action:
                case Step():
                    made.append(self._call(action, plan, areas, own))
                case ChoiceStep():
                    made += self._choice(action, plan, areas, own)
                case LoopStep():
                    assert own is not None
                    made += self._loop(action, plan, areas, own)
                case Copy():
                    made.append(
                        self._copy(_area(plan.places[action.source], areas), _area(action.target, areas), action.bytes)
                    )
        return made

    def _call(self, step: Step, plan: MemoryPlan, areas: _Areas, own: _Area | None) -> tirx.Stmt:
        kernel, symbol = self._kernels[step.kernel], _symbol(step.kernel)
        self.used[symbol] = exported_kernel(step.kernel, kernel)
        operands = [_area(plan.places[buffer], areas) for buffer in (*step.reads, *step.writes)]
        if own is not None:
            operands.append(own)
        types = [param.ty for param in kernel.func.params]
        arguments = [tirx.reinterpret(t, operand.address) for t, operand in zip(types, operands, strict=True)]
        return tirx.Evaluate(tirx.call_extern("int32", symbol, *arguments))

    def _choice(self, step: ChoiceStep, plan: MemoryPlan, areas: _Areas, own: _Area | None) -> list[tirx.Stmt]:
        condition, *operands = (_area(plan.places[buffer], areas) for buffer in step.reads)
        results = [_area(plan.places[buffer], areas) for buffer in step.writes]
        around = {key: area for key, area in areas.items() if key[0] == "constant"}
        around |= {("output", i): area for i, area in enumerate(results)}
        if own is not None:
            around["workspace", 0] = own
        branches = []
        for body, body_plan in zip(step.bodies, plan.bodies[step], strict=True):
            inputs, operands = operands[: len(body.inputs)], operands[len(body.inputs) :]
            inner = around | {("input", i): area for i, area in enumerate(inputs)}
            branches.append(_sequence(self.statements(body_plan, inner)))
        declared, holds = _scalar(condition, "int8")
        return [*declared, tirx.IfThenElse(holds != 0, *branches)]

    def _loop(self, step: LoopStep, plan: MemoryPlan, areas: _Areas, own: _Area) -> list[tirx.Stmt]:
        loop, body_plan = step.loop, plan.bodies[step][0]
        reads = [_area(plan.places[buffer], areas) for buffer in step.reads]
        results = [_area(plan.places[buffer], areas) for buffer in step.writes]
        count = len(step.body.states)
        kept = reads[int(loop.counted) : step.first_state]
        firsts, scanned = reads[step.first_state :][:count], reads[step.first_state + count :]
        declared, number = _scalar(own, "int64")
        conditions = [tirx.call_extern("int32", _FAILED) == 0]
        if loop.rounds is not None:
            conditions.insert(0, number < _int64(loop.rounds))
        if loop.counted:
            more, limit = _scalar(reads[0], "int64")
            declared += more
            conditions.insert(0, number < limit)
        if loop.conditional:
            more, running = _scalar(results[0], "int8")
            declared += more
            conditions.insert(0, running != 0)
        made = [*declared, tirx.BufferStore(number.source, _int64(0), [0])]
        for buffer, result, first, area in zip(step.body.states, step.writes, firsts, results, strict=False):
            if plan.places[result] != plan.places[step.reads[step.first_state + buffer.index]]:
                made.append(self._copy(first, area, buffer.bytes))
        present = tirx.Var("round", "int64")
        inner = {key: area for key, area in areas.items() if key[0] == "constant"}
        inner |= {("input", 0): own, ("workspace", 0): own.at(COUNTER_BYTES)}
        inner |= {("input", 1 + i): area for i, area in enumerate(kept)}
        inner |= {("state", i): area for i, area in enumerate(results[:count])}

        def item(area: _Area, buffer: Buffer, backwards: bool) -> _Area:
            position = _int64((loop.rounds or 0) - 1) - present if backwards else present
            return area.at(position * _int64(buffer.bytes))

        items = step.body.inputs[1 + len(kept) :]
        for buffer, area, backwards in zip(items, scanned, loop.reversed_inputs, strict=True):
            inner["input", buffer.index] = item(area, buffer, backwards)
        outputs = zip(step.body.outputs, results[count:], loop.reversed_outputs, strict=True)
        for index, (buffer, area, backwards) in enumerate(outputs):
            inner["output", index] = item(area, buffer, backwards)
        body = [
            tirx.Bind(present, number),
            *self.statements(body_plan, inner),
            tirx.BufferStore(number.source, present + 1, [0]),
        ]
        made.append(tirx.While(tirx.all(*conditions), tirx.SeqStmt(body)))
        return made

    def _copy(self, source: _Area, target: _Area, count: int) -> tirx.Stmt:
        size = tirx.IntImm(self._size_type, count)
        return tirx.Evaluate(tirx.call_extern("handle", "memcpy", target.address, source.address, size))


def _area(place: Place, areas: _Areas) -> _Area:
    return areas[place.base, place.index].at(place.offset)


def _symbol(kernel: GlobalVar) -> str:
    return f"nnefc_kernel_{kernel.name_hint}"


def _scalar(area: _Area, dtype: str) -> tuple[list[tirx.Stmt], tirx.Expr]:
    """The one item of this type in an area: what declares it, and the expression that reads it."""
    pointer = tirx.Var("item", PointerType(PrimType(dtype)))
    buffer = tirx.decl_buffer((1,), dtype, name="item", data=pointer)
    bound = tirx.Bind(pointer, tirx.reinterpret(pointer.ty, area.address))
    return [bound, tirx.DeclBuffer(buffer, data=pointer)], buffer[0]


def _sequence(statements: list[tirx.Stmt]) -> tirx.Stmt:
    if len(statements) == 1:
        return statements[0]
    return tirx.SeqStmt(statements) if statements else tirx.Evaluate(_int64(0))


def _exported(func: tirx.PrimFunc, symbol: str) -> tirx.PrimFunc:
    """`func` under a symbol that other objects of the library can call as a C function."""
    return func.with_attrs({"global_symbol": symbol, "calling_conv": _C_CALLING_CONVENTION})


def _int64(count: int) -> tirx.IntImm:
    return tirx.IntImm("int64", count)


def _byte_pointer(name: str) -> tirx.Var:
    return tirx.Var(name, _BYTE_POINTER)
