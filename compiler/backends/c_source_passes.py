"""Pass pipeline of the C source backend in order, from the Relax function of a front end to functions in C.

Passes over the graph, the schedules and the memory plan are those of the CPU backend for a processor without vectors.
What works around LLVM, and instructions that C has no form of, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial

import tvm
import tvm_ffi
from tvm import tirx

from nnefc.backends import cpu_steps as cpu
from nnefc.backends.cpu_passes import BLOCKS, EXPORT, FLAT, GRAPH, LEGALIZE, OBJECT, PLAN, PROGRAM, SCHEDULE
from nnefc.backends.kernel_context import KernelContext
from nnefc.ir.attributes import NO_ALIAS
from nnefc.passes.compute.vector_math import VECTOR_FUNCTIONS
from nnefc.passes.manager import Pass, PassList, Phase, Property, of_phase
from nnefc.passes.tir.dot.dot_instructions import BYTE_PRODUCT
from nnefc.targets.codegen.c.helpers import PREFIX
from nnefc.targets.codegen.c.scalar_loops import has_vectors, serialize_vectors
from nnefc.targets.codegen.cpu.object_passes import each

__all__ = ["PASSES", "math_functions"]

_LOWERING = "llvm.FLowerIntrinsic"


def _of(passes: Iterable[Pass], *names: str) -> list[Pass]:
    """Returns some of the passes, in their order."""
    found = [step for step in passes if step.name in names]
    assert len(found) == len(names), set(names) - {step.name for step in found}
    return found


def mark_shared(func: tirx.PrimFunc, context: KernelContext) -> tirx.PrimFunc:
    """Marks kernels whose operands may share memory with their results."""
    in_place = context.use.in_place
    shares = bool(in_place.overwritable) or in_place.updates is not None
    return func.with_attr(NO_ALIAS, False) if shares else func


def serialize_loops(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Serializes loops that were to become vectors, but for those over the bytes of a word."""
    return serialize_vectors(func, {BYTE_PRODUCT})


def vectorize_words(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Vectorizes the loops that are left, with vectors of fixed lengths."""
    if not has_vectors(func):
        return func
    fixed = tvm.IRModule({"kernel": func.with_attr("target", _FIXED_LENGTHS)})
    made: tirx.PrimFunc = tirx.transform.VectorizeLoop(True)(fixed)["kernel"]
    return made.with_attr("target", func.attrs["target"])


_FIXED_LENGTHS = tvm.target.Target("llvm")


def share_scalars(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Computes common subexpressions once, in functions without vectors: the words of a vector have no names in C."""
    found: list[tirx.Ramp] = []
    tvm_ffi.structural_walk(func.body, (tirx.Ramp, found.append))
    return func if found else _SHARE(tvm.IRModule({"kernel": func}))["kernel"]


_SHARE = tirx.transform.CommonSubexprElim()


def name_functions(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a function that calls elementary functions of float32 by names, instead of computing them in place.

    y[i] = exp(x[i])     →     y[i] = nnefc__exp(x[i])
    """

    def named(call: tvm.ir.Call) -> tirx.Expr:
        name = str(getattr(call.op, "name", ""))
        if name not in VECTOR_FUNCTIONS or str(call.expr_ty().dtype) != "float32":
            return call
        made: tirx.Expr = tirx.call_pure_extern("float32", name.replace("tirx.", PREFIX), *call.args)
        return made

    return tvm_ffi.structural_map(func, (tvm.ir.Call, named))


@cache
def math_functions() -> dict[str, tirx.PrimFunc]:
    """Returns the elementary functions of float32, which use no library, by the names that kernels call."""
    made = {}
    for operator in sorted(VECTOR_FUNCTIONS):
        x = tirx.Var("x", "float32")
        name = operator.replace("tirx.", PREFIX)
        value = tvm.ir.Op.get(operator).get_attr(_LOWERING)(tirx.call_intrin("float32", operator, x))
        func = tirx.PrimFunc([x], tirx.Return(value), ret_type=tvm.ir.PrimType("float32"))
        made[name] = func.with_attr("global_symbol", name)
    return made


pointers = partial(of_phase, Phase.POINTERS, requires=[Property.POINTERS])
for_target = partial(of_phase, Phase.OBJECT, requires=[Property.TARGET])

C_SCHEDULE = _of(
    SCHEDULE,
    *("name dimensions", "drop empty reductions", "schedule", "tensor parameters", "accumulate dot products"),
    *("tanh for sigmoid", "round as integers", "opaque constants"),
)
C_FLAT = _of(
    FLAT,
    *("assume ranges", "partition loops", "partition windows", "peel static tail tiles", "round to bf16"),
    *("split vector tails", "stack buffers", "scratch parameters", "raw pointers"),
)
C_POINTERS = (pointers("mark shared operands", mark_shared), EXPORT)
C_OBJECT = (
    *_of(OBJECT, "bind target", "legalize bf16 arithmetic", "widen indices", "partition conditions"),
    for_target("serialize vectors", cpu.tvm_step(each(serialize_loops))),
    *_of(OBJECT, "unroll", "simplify unrolled"),
    for_target("vectorize words", cpu.tvm_step(each(vectorize_words)), ensures=[Property.VECTORS]),
    *_of(OBJECT, "hoist conditions", "renormalize splits", "simplify vectors", "remove no-ops", "guard selects"),
    for_target("common subexpressions", cpu.tvm_step(each(share_scalars))),
    *_of(OBJECT, "legalize bf16 storage"),
    for_target("name functions", cpu.tvm_step(each(name_functions))),
    *_of(OBJECT, "lower intrinsics"),
)

PASSES = PassList([*GRAPH, *LEGALIZE, *PROGRAM, *C_SCHEDULE, *BLOCKS, *C_FLAT, *C_POINTERS, *PLAN, *C_OBJECT])
