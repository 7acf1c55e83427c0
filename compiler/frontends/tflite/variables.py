"""Finds the tensors that a model keeps between runs: variable tensors, and resource variables with first values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tvm import relax

from nnefc.frontends.tflite.model import Model, OperatorDef, Subgraph, TensorDef
from nnefc.ir.network import State
from nnefc.operators.base import Array
from nnefc.support.diagnostics import CompileError

__all__ = ["initial_variables", "state_of", "subgraphs_that_run", "variable_name"]


def variable_name(operator: OperatorDef) -> str:
    """The name of the variable that a VAR_HANDLE refers to."""
    options = operator.options
    container, name = getattr(options, "container", ""), getattr(options, "shared_name", "")
    return f"{container}/{name}" if container else name or "variable"


def state_of(name: str, tensor: TensorDef, model: Model, initial: Array | None = None) -> tuple[relax.Var, State]:
    """The parameter of a variable and its state: with a first value, or zeros.

    Raises:
        CompileError: a size is open.
    """
    if tensor.dtype == "string":
        raise CompileError(f"{model.file}: the variable '{name}' of strings is not supported")
    if initial is None:
        initial = model.array(tensor)
    if initial is None:
        if not tensor.has_shape or None in tensor.shape:
            raise CompileError(f"{model.file}: the variable '{name}' has a size that is open")
        zero = (
            0 if tensor.quantization is None or not tensor.quantization.is_single else int(tensor.quantization.zero[0])
        )
        initial = np.full(tuple(size or 0 for size in tensor.shape), zero, tensor.dtype)
    state = State(name, np.array(initial))
    return relax.Var(f"state_{name}", relax.TensorType(initial.shape, str(initial.dtype))), state


def subgraphs_that_run(model: Model, entry: int) -> Iterator[Subgraph]:
    """A subgraph, and those that it runs, once each."""
    waiting, seen = [entry], {entry}
    while waiting:
        subgraph = model.subgraphs[waiting.pop()]
        yield subgraph
        for operator in subgraph.operators:
            more = [i for i in _runs(operator) if 0 <= i < len(model.subgraphs) and i not in seen]
            waiting += more
            seen.update(more)


def initial_variables(model: Model, entry: int) -> Iterator[tuple[str, TensorDef, Array | None]]:
    """The resource variables that a subgraph, and those that it runs, refer to: name, type and first value.

    The first value is what a subgraph of CALL_ONCE assigns, a constant; without one it is zeros.
    """
    firsts: dict[str, Array] = {}
    types: dict[str, TensorDef] = {}
    for subgraph in subgraphs_that_run(model, entry):
        handles: dict[int, str] = {}
        for operator in subgraph.operators:
            if operator.name == "VAR_HANDLE" and operator.outputs:
                handles[operator.outputs[0]] = variable_name(operator)
            elif operator.name == "READ_VARIABLE" and operator.inputs and operator.outputs:
                types.setdefault(handles.get(operator.inputs[0], ""), subgraph.tensors[operator.outputs[0]])
            elif operator.name == "ASSIGN_VARIABLE" and len(operator.inputs) == 2:
                _note(model, subgraph, operator, handles, types, firsts, entry)
    for name, tensor in types.items():
        if name:
            yield name, tensor, firsts.get(name)


def _note(
    model: Model,
    subgraph: Subgraph,
    operator: OperatorDef,
    handles: dict[int, str],
    types: dict[str, TensorDef],
    firsts: dict[str, Array],
    entry: int,
) -> None:
    name, tensor = handles.get(operator.inputs[0], ""), subgraph.tensors[operator.inputs[1]]
    types.setdefault(name, tensor)
    array = model.array(tensor)
    if subgraph.index != entry and array is not None:
        firsts.setdefault(name, array)
        types[name] = tensor


def _runs(operator: OperatorDef) -> list[int]:
    """The subgraphs that an operator runs."""
    fields = ("init_subgraph_index", "then_subgraph_index", "else_subgraph_index", "cond_subgraph_index",
              "body_subgraph_index", "subgraph")  # fmt: skip
    return [vars(operator.options)[name] for name in fields if name in vars(operator.options)]
