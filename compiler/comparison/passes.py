"""Finds the graph pass that changes what a network computes, by evaluating the program after each pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tvm

from nnefc.comparison.reference import UnfusedEvaluation, cannot_be_unfused
from nnefc.driver.locks import in_turn
from nnefc.ir.network import Network
from nnefc.passes.backend import Backend
from nnefc.passes.manager import PassManager, PassRun
from nnefc.passes.pipeline import optimized
from nnefc.support.diagnostics import CompileError

__all__ = ["check_unfused", "first_wrong_pass", "outputs_after_each"]

Array = np.ndarray[Any, Any]

IsRight = Callable[[Mapping[str, Array]], bool]
"""Whether these are the network's outputs."""


def check_unfused(network: Network) -> None:
    """Refuse a network that cannot be computed after each pass.

    Raises:
        CompileError: it needs the compiler's runtime.
    """
    reason = cannot_be_unfused(network)
    if reason is not None:
        raise CompileError(
            f"passes cannot be distinguished for this network: {reason}",
            hint="leave --passes out; with --strict and with other values of --precision there are fewer passes",
        )


def outputs_after_each(
    network: Network, backend: Backend, inputs: Mapping[str, Array], strict: bool, memory_budget: float
) -> Iterator[tuple[str, Mapping[str, Array]]]:
    """The network's outputs after each pass that changes it, by the name of the pass; first those of "network".

    Args:
        network: see :func:`check_unfused`.
    """
    with in_turn(), backend.target.host.to_tvm():
        for name, module in _after_each(network, backend, strict, memory_budget):
            yield name, _outputs(network, module, backend, inputs)


def first_wrong_pass(
    network: Network,
    backend: Backend,
    inputs: Mapping[str, Array],
    is_right: IsRight,
    strict: bool,
    memory_budget: float,
) -> str | None:
    """The first pass after which the network gives other outputs; `network` is what its front end made.

    The passes are halved again and again: what is wrong after one is taken to be so after all that follow.

    Args:
        network: see :func:`check_unfused`.

    Returns:
        the name of the pass; "network" if what the front end made is wrong already; None if no pass is at fault.
    """
    with in_turn(), backend.target.host.to_tvm():
        modules = _after_each(network, backend, strict, memory_budget)
        right, wrong = -1, len(modules)
        while wrong - right > 1:
            middle = (right + wrong) // 2
            if is_right(_outputs(network, modules[middle][1], backend, inputs)):
                right = middle
            else:
                wrong = middle
    return modules[wrong][0] if wrong < len(modules) else None


def _outputs(
    network: Network, module: tvm.IRModule, backend: Backend, inputs: Mapping[str, Array]
) -> Mapping[str, Array]:
    """Returns the outputs of the network's module after a pass."""
    given = [*(inputs[name] for name in network.inputs), *(state.initial for state in network.states)]
    found = UnfusedEvaluation(module, given, own=backend.computations).results(len(network.outputs))
    return dict(zip(network.outputs, found, strict=True))


def _after_each(
    network: Network, backend: Backend, strict: bool, memory_budget: float
) -> Sequence[tuple[str, tvm.IRModule]]:
    """Returns the program after each pass that changes it, by the name of the pass; that of the front end is first."""
    modules: list[tuple[str, tvm.IRModule]] = [("network", network.module)]

    def observe(run: PassRun) -> None:
        if run.changed:
            modules.append((run.step.name, run.after))

    optimized(network, PassManager(backend, backend.settings(strict, memory_budget), observers=[observe]))
    return modules
