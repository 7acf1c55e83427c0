"""Evaluates a network operator by operator, without any pass, schedule or memory plan: a slow and simple reference.

Each operator runs as a kernel of TVM without a schedule, or as a matrix product of NumPy. Results are kept as long as a
later operator needs them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from nnefc.ir.constant_evaluation import evaluate, external_calls
from nnefc.ir.dataflow import bindings_of
from nnefc.ir.network import Network, control_index
from nnefc.passes.graph.rewriter import constant
from nnefc.passes.pipeline import legalizations, register_operators
from nnefc.passes.schedule.fill_padding import fill_border
from nnefc.passes.schedule.schedules import schedule_of

__all__ = ["UnfusedEvaluation", "cannot_be_unfused", "one_by_one"]

Array = np.ndarray[Any, Any]

_TOGETHER = 48
"""The number of bindings that are compiled together."""


def cannot_be_unfused(network: Network) -> str | None:
    """Return why a network cannot be evaluated without the compiler's runtime; None if it can."""
    main = network.module["main"]
    if any(control_index(binding.value) is not None for binding in bindings_of(main)):
        return "it has choices or loops"
    if network.has_text:
        return "it computes with strings"
    if network.dynamic_dimensions or network.all_data_dependent_sizes:
        return "it has sizes that are known at run time alone"
    kernels = [func for func in network.module.functions.values() if isinstance(func, tirx.PrimFunc)]
    if any(external_calls(kernel) for kernel in kernels):
        return "its kernels call functions of the runtime"
    return None


class _OneByOne:
    """The description of a machine without vectors."""

    def lanes(self, dtype: str) -> int:
        return 1


def one_by_one(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a kernel without a schedule, which TVM can compile."""
    return fill_border(schedule_of(kernel), _OneByOne()).without_attr("global_symbol")


class UnfusedEvaluation:
    """Evaluates a module binding by binding.

    Args:
        module: of Relax, before or after any pass, with known sizes.
        inputs: of `main`, in their order, states included.
        wanted: the names of variables that will be asked for, in addition to the results.
        own: operators that the backend computes in its own way.
    """

    def __init__(
        self,
        module: tvm.IRModule,
        inputs: Sequence[Array],
        wanted: Collection[str] = (),
        own: Mapping[str, Any] | None = None,
    ) -> None:
        register_operators()
        legalized = relax.transform.LegalizeOps(legalizations(own or {}), ["relax.matmul"])(module)
        self._main = legalized["main"]
        self._kernels = {
            gv: one_by_one(func) for gv, func in legalized.functions.items() if isinstance(func, tirx.PrimFunc)
        }
        self._bindings = bindings_of(self._main)
        self._known: dict[relax.Var, Any] = {
            param: constant(np.array(value, order="C")).value
            for param, value in zip(self._main.params, inputs, strict=True)
        }
        self._next = 0
        self._last_use = self._uses()
        self._wanted = {binding.var for binding in self._bindings if str(binding.var.name) in set(wanted)}

    def of(self, names: Collection[str]) -> dict[str, Array]:
        """Evaluate up to some variables and return their values; each variable can be asked for once, in the
        module's order.
        """
        indices = {str(binding.var.name): index for index, binding in enumerate(self._bindings)}
        self._go_on(max((indices[name] + 1 for name in names), default=0))
        found = {}
        for name in names:
            var = self._bindings[indices[name]].var
            found[name] = self._known[var].numpy()
            self._wanted.discard(var)
        return found

    def results(self, count: int) -> list[Array]:
        """Return the first `count` results of `main`."""
        self._go_on(len(self._bindings))
        return [value.numpy() for value in self._value(self._main.body.body)[:count]]

    def _uses(self) -> dict[relax.Var, int]:
        """Return the index of the last binding that reads each variable; results are kept to the end."""
        last = dict.fromkeys(self._main.params, -1)
        last |= {binding.var: index for index, binding in enumerate(self._bindings)}
        for index, binding in enumerate(self._bindings):
            last.update(dict.fromkeys(relax.analysis.free_vars(binding.value), index))
        last.update(dict.fromkeys(relax.analysis.free_vars(self._main.body.body), len(self._bindings)))
        return last

    def _go_on(self, end: int) -> None:
        while self._next < end:
            stop = min(end, self._next + _TOGETHER)
            part = self._bindings[self._next : stop]
            kept = [b.var for b in part if self._last_use[b.var] >= stop or b.var in self._wanted]
            read = {var for binding in part for var in relax.analysis.free_vars(binding.value)}
            known = {var: value for var, value in self._known.items() if var in read}
            found = evaluate(part, kept, self._kernels, known)
            self._known = {
                var: value
                for var, value in (*self._known.items(), *zip(kept, found, strict=True))
                if self._last_use[var] >= stop or var in self._wanted
            }
            self._next = stop

    def _value(self, expr: relax.Expr) -> list[Any]:
        match expr:
            case relax.Tuple():
                return [value for field in expr.fields for value in self._value(field)]
            case relax.TupleGetItem():
                return [self._known[expr.tuple_value][expr.index]]
            case relax.Var():
                known = self._known[expr]
                return [known] if isinstance(known, tvm.runtime.Tensor) else list(known)
        return [expr.value]
