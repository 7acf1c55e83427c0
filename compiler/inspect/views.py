"""Builds the views of `nnefc view`: the model as read from its file, and the network after passes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path

import tvm

from nnefc.backends import backend_of
from nnefc.driver.compile import machine_of
from nnefc.driver.formats import load_network, load_operator_files
from nnefc.driver.locks import in_turn
from nnefc.driver.model_source import ModelSource
from nnefc.driver.options import CompileOptions
from nnefc.frontends.dynamic_shapes import dynamic_shape_context
from nnefc.inspect.about import Fact, about_rows, bytes_text
from nnefc.inspect.cost_summary import inspect_network
from nnefc.inspect.html.graph import BoxGraph
from nnefc.inspect.model_graph import graphs_of_model, graphs_of_passes
from nnefc.ir.network import Network
from nnefc.passes.manager import PassManager, PassRun
from nnefc.passes.pipeline import MAIN, optimized
from nnefc.support.diagnostics import CompileError

__all__ = ["COMPILED", "about_network", "graphs_of"]

COMPILED = "compiled"
"""The alias of the last pass."""


def graphs_of(model: str | os.PathLike[str], after: Sequence[str], options: CompileOptions) -> list[BoxGraph]:
    """Return the graphs of a model, as in its file and after each of the named passes.

    Args:
        model: NNEF, ONNX, TFLite or PNNX.
        after: the names of passes, or `compiled` for the last one.
        options: of reading and compiling the model.

    Raises:
        CompileError: as `nnefc.compile`; there is no pass of a name.
    """
    machine = machine_of(options)
    load_operator_files(options.read.operators)
    source = ModelSource.read(partial(load_network, Path(model), options.read))
    network = source.network
    about = about_network(network)
    graphs = [replace(graph, about=about) for graph in graphs_of_model(source)]
    if not after:
        return graphs
    backend = backend_of(machine)
    modules: dict[str, tvm.IRModule] = {"network": network.module}

    def observe(run: PassRun) -> None:
        if run.unit == MAIN:
            modules[run.step.name] = run.after

    settings = backend.settings(options.code.strict, options.code.memory_budget)
    manager = PassManager(backend, settings, observers=[observe])
    opened = dynamic_shape_context(network.dynamic_dimensions, network.input_shapes, network.all_data_dependent_sizes)
    with in_turn(), opened, backend.target.host.to_tvm():
        last = optimized(network, manager)
    for name in after:
        if name != COMPILED and name not in modules:
            near = get_close_matches(name, modules, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"the passes are {', '.join(modules)}"
            raise CompileError(f"there is no pass {name!r}", hint=hint)
        shown = last if name == COMPILED else replace(network, module=modules[name], controls=())
        made = graphs_of_passes(shown, f"after {name}" if name != COMPILED else "as compiled")
        graphs += [replace(graph, about=about) for graph in made]
    return graphs


def about_network(network: Network) -> tuple[Fact, ...]:
    """Return the facts about a network: parameters, arithmetic, memory, interface, metadata."""
    found = inspect_network(network)
    head = [
        ("network", found.name),
        ("parameters", f"{found.parameters:,} ({bytes_text(found.parameter_bytes)})"),
        ("multiply-adds of a run", f"{found.multiply_adds:,}"),
        ("activations alive at once", bytes_text(found.live_bytes)),
    ]
    dimensions = [(each.name, each.minimum, each.maximum) for each in found.dimensions]
    return about_rows(head, found.inputs, found.outputs, found.states, dimensions, found.metadata)
