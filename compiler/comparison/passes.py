"""Finds the graph pass that changes what a network computes, by evaluating the program after passes."""

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
"""Whether the outputs, by name, are those of the network."""


def check_unfused(network: Network) -> None:
    """Check that a network can be evaluated after each pass.

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
    """Yield the network's outputs after each pass that changes it, with the name of the pass; first those before all
    passes, as "network".

    Args:
        network: as for :func:`check_unfused`.
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
    """Return the first pass after which the network has wrong outputs, by bisection.

    The bisection assumes that outputs that are wrong after a pass remain wrong after all later ones.

    Args:
        network: as the front end returns it; see :func:`check_unfused`.

    Returns:
        the name of the pass; "network" if the outputs are wrong before all passes; None if they are right after all.
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
    """Return the outputs of a module after a pass."""
    given = [*(inputs[name] for name in network.inputs), *(state.initial for state in network.states)]
    found = UnfusedEvaluation(module, given, own=backend.computations).results(len(network.outputs))
    return dict(zip(network.outputs, found, strict=True))


def _after_each(
    network: Network, backend: Backend, strict: bool, memory_budget: float
) -> Sequence[tuple[str, tvm.IRModule]]:
    """Yield the module after each pass that changes it, with the name of the pass; the front end's module is the
    first.
    """
    modules: list[tuple[str, tvm.IRModule]] = [("network", network.module)]

    def observe(run: PassRun) -> None:
        if run.changed:
            modules.append((run.step.name, run.after))

    optimized(network, PassManager(backend, backend.settings(strict, memory_budget), observers=[observe]))
    return modules
