"""Inserts a user's pass, a checked function from program to program, after a pass of the backend's list.

nnefc.compile(model, passes=[nnefc.passes.after("fold affine", drop_double_negation)])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from nnefc.passes.manager import Insertion
from nnefc.support.diagnostics import CompileError
from nnefc.support.internal_errors import TRACEBACK

__all__ = ["after"]


def after(name: str, change: Callable[[Any], Any] | tvm.ir.transform.Pass, *, called: str | None = None) -> Insertion:
    """Returns a pass for `nnefc.compile(passes=[…])`, which runs after the pass of this name.

    Args:
        name: of a pass that `nnefc compile --print-passes` lists.
        change: a function that is given the program and returns it, changed or not; or a pass of TVM. Over the graph,
            the program is a `tvm.IRModule` of Relax: that of the network, and that of each body of a branch or a loop.
            Over kernels it is a `tvm.tirx.PrimFunc`, over objects a `tvm.IRModule` of functions of TIR.
        called: the name of the pass, which `--dump` and errors mention; by default that of the function.
    """
    own = called or _name_of(change)

    def run(program: Any) -> Any:
        try:
            made = _applied(change, program)
        except CompileError:
            raise
        except Exception as error:
            raise CompileError(
                f"the pass {own!r}, after {name!r}, failed: {type(error).__name__}: {_last_line(error)}",
                hint=f"{TRACEBACK}=1 shows where",
            ) from error
        wrong = _what_is_wrong(program, made)
        if wrong:
            raise CompileError(f"the pass {own!r}, after {name!r}, {wrong}")
        return made

    return Insertion(name, run, own)


def _name_of(change: Any) -> str:
    if isinstance(change, tvm.ir.transform.Pass):
        return str(change.info.name)
    return str(getattr(change, "__name__", type(change).__name__)).replace("_", " ")


def _applied(change: Any, program: Any) -> Any:
    if isinstance(change, tvm.ir.transform.Pass) and isinstance(program, tirx.PrimFunc):
        return change(tvm.IRModule({"main": program}))["main"]
    return change(program)


def _what_is_wrong(before: Any, after: Any) -> str:
    """Returns what is wrong with the program that a pass returned; an empty text for a valid one."""
    if not isinstance(after, type(before)):
        return f"returned {type(after).__name__}, not {type(before).__name__}"
    if isinstance(before, tirx.PrimFunc):
        return "" if _has_parameters_of(before, after) else "changed the parameters of a kernel"
    if not isinstance(before, tvm.IRModule):
        return ""
    functions = {gv.name_hint: func for gv, func in after.functions.items()}
    for gv, func in before.functions.items():
        if isinstance(func, relax.Function):
            other = functions.get(gv.name_hint)
            if other is None:
                return f"removed the function {gv.name_hint!r}"
            if not _has_parameters_of(func, other):
                return f"changed the parameters or results of {gv.name_hint!r}"
    if any(isinstance(func, relax.Function) for func in after.functions.values()):
        try:
            relax.analysis.well_formed(after)
        except Exception as error:  # of several types
            return f"returned a module that is not well-formed: {_last_line(error)}"
    return ""


def _last_line(error: Exception) -> str:
    """Returns what an error of TVM says, without its trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _has_parameters_of(before: Any, after: Any) -> bool:
    """Returns whether two functions have parameters and results of the same types."""
    if len(before.params) != len(after.params):
        return False
    result = "ret_type" if isinstance(before, tirx.PrimFunc) else "ret_ty"
    types = [[*(param.ty for param in func.params), getattr(func, result)] for func in (before, after)]
    return all(tvm_ffi.structural_equal(one, other) for one, other in zip(*types, strict=True))
