"""What `nnefc view` shows: a model as its file says it, and the network after passes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import tvm

from nnefc.backends import backend_of
from nnefc.diagnostics import CompileError
from nnefc.formats import load_network, load_operator_files
from nnefc.frontends.leaving_open import leaving_open
from nnefc.model_graph import graphs_of_model, graphs_of_passes
from nnefc.pages.graph import Graph
from nnefc.passes.backend import MEMORY_BUDGET
from nnefc.passes.pipeline import optimized
from nnefc.source import Source
from nnefc.targets.machine.any_target import parse_any_target
from nnefc.turns import in_turn

__all__ = ["COMPILED", "graphs_of"]

COMPILED = "compiled"
"""What the last pass is called besides its name."""


def graphs_of(
    model: str | os.PathLike[str],
    after: Sequence[str] = (),
    target: str = "llvm",
    *,
    strict: bool = False,
    memory_budget: float = MEMORY_BUDGET,
    precision: str | None = None,
    keep_wide: Sequence[str] = (),
    operators: Sequence[str | os.PathLike[str]] = (),
    **reading: Any,
) -> list[Graph]:
    """The graphs of a model, and after each of the passes named.

    Args:
        model: NNEF, ONNX or PNNX.
        after: names of passes, `compiled` for the last.
        target, strict, memory_budget, precision, keep_wide, operators, reading: as for `nnefc.compile`.

    Raises:
        CompileError: as `nnefc.compile`; there is no pass of a name.
    """
    machine = parse_any_target(target, precision, keep_wide)
    load_operator_files(operators)
    source = Source.read(partial(load_network, Path(model), **reading))
    network = source.network
    graphs = graphs_of_model(source)
    if not after:
        return graphs
    backend = backend_of(machine)
    modules: dict[str, tvm.IRModule] = {}
    opened = leaving_open(network.open_dimensions, network.input_shapes, network.all_counts)
    with in_turn(), opened, backend.target.host.to_tvm():
        last = optimized(network, backend, modules.__setitem__, strict, memory_budget)
    for name in after:
        if name != COMPILED and name not in modules:
            near = get_close_matches(name, modules, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"the passes are {', '.join(modules)}"
            raise CompileError(f"there is no pass {name!r}", hint=hint)
        shown = last if name == COMPILED else replace(network, module=modules[name], controls=())
        graphs += graphs_of_passes(shown, f"after {name}" if name != COMPILED else "as compiled")
    return graphs
