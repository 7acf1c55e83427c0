"""The plan as one function that calls the kernels: the whole network in C's calling convention.

    nnefc_network(input0, …, output0, …, state, workspace, constants) -> int32
        kernel0(input0, constants + 0, workspace + 4096)
        kernel1(workspace + 4096, constants + 6400, workspace + 0)
        …
        return 0

All offsets are constants. Nothing is allocated and nothing is checked here: the runtime did both before. It also notes
by itself when one of its services fails a kernel, so the kernels' own statuses are not looked at (TVM's code generator
could only return a constant anyway).

The entry calls the kernels by their symbols, for its code goes into an object of its own: see `targets/cpu.py`.
"""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm.ir import GlobalVar, PointerType, PrimType

from nnefc.passes.kernels import Kernel
from nnefc.passes.memory import Copy, MemoryPlan, Place
from nnefc.passes.steps import Program, Step

__all__ = ["ENTRY", "entry_module", "exported_kernel"]

ENTRY = "nnefc_network"
_C_CALLING_CONVENTION = 1  # an explicit one, so that TVM leaves the signature alone
_BYTE_POINTER = PointerType(PrimType("uint8"))
_SPAN = 1 << 40  # extent of the byte views; addresses are constants, so it is never checked


def entry_module(program: Program, plan: MemoryPlan, kernels: dict[GlobalVar, Kernel]) -> tvm.IRModule:
    """One module with the entry and the kernels that it calls."""
    params = {("input", i): _byte_pointer(f"input{i}") for i in range(len(program.inputs))}
    params |= {("output", i): _byte_pointer(f"output{i}") for i in range(len(program.outputs))}
    params |= {(name, 0): _byte_pointer(name) for name in ("state", "workspace", "constant")}
    views = {key: tirx.decl_buffer((_SPAN,), "uint8", name=p.name, data=p) for key, p in params.items()}
    used: dict[str, tirx.PrimFunc] = {}

    def address(place: Place) -> tirx.Expr:
        return tirx.address_of(views[place.base, place.index][tirx.IntImm("int64", place.offset)])

    body: list[tirx.Stmt] = [tirx.DeclBuffer(view, data=params[key]) for key, view in views.items()]
    for time, action in enumerate(plan.actions):
        match action:
            case Step():
                kernel = kernels[action.kernel]
                symbol = _symbol(action.kernel)
                used[symbol] = exported_kernel(action.kernel, kernel)
                places = [plan.places[buffer] for buffer in (*action.reads, *action.writes)]
                if time in plan.own_workspace:
                    places.append(plan.own_workspace[time])
                types = [param.ty for param in kernel.func.params]
                arguments = [tirx.reinterpret(t, address(p)) for t, p in zip(types, places, strict=True)]
                body.append(tirx.Evaluate(tirx.call_extern("int32", symbol, *arguments)))
            case Copy():
                source, target = address(plan.places[action.source]), address(action.target)
                body.append(tirx.Evaluate(tirx.call_extern("handle", "memcpy", target, source, _size(action.bytes))))
    body.append(tirx.Return(tirx.IntImm("int32", 0)))
    entry = tirx.PrimFunc(list(params.values()), tirx.SeqStmt(body), ret_type=PrimType("int32"))
    return tvm.IRModule({**used, ENTRY: _exported(entry, ENTRY)})


def exported_kernel(name: GlobalVar, kernel: Kernel) -> tirx.PrimFunc:
    """The function of a kernel, under the symbol that the entry calls it by."""
    return _exported(kernel.func, _symbol(name))


def _symbol(kernel: GlobalVar) -> str:
    return f"nnefc_kernel_{kernel.name_hint}"


def _exported(func: tirx.PrimFunc, symbol: str) -> tirx.PrimFunc:
    """`func` under a symbol that other objects of the library can call as a C function."""
    return func.with_attrs({"global_symbol": symbol, "calling_conv": _C_CALLING_CONVENTION})


def _size(count: int) -> tirx.IntImm:
    return tirx.IntImm("int64", count)


def _byte_pointer(name: str) -> tirx.Var:
    return tirx.Var(name, _BYTE_POINTER)
