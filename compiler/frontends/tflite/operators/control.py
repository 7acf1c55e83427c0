"""Control flow: IF, WHILE, STABLEHLO_CASE, subgraphs that are called; and variables that are kept between runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from tvm import relax

from nnefc.frontends.tflite.lowering import Lowering, Node, Operand, Result, Value, operator
from nnefc.ir.network import If, Loop
from nnefc.operators.base import dtype_of, shape_of
from nnefc.operators.math.elementwise import Where, apply
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []


def _values(node: Node, first: int = 0) -> list[Value]:
    return [node.value(index) for index in range(first, len(node.inputs))]


def _type_of(operand: Operand) -> relax.TensorType:
    return relax.TensorType(shape_of(operand), dtype_of(operand))


@operator("CALL")
def _call(ctx: Lowering, node: Node) -> Result:
    return ctx.run_subgraph(node.options.subgraph, _values(node))


@operator("STABLEHLO_COMPOSITE")
def _composite(ctx: Lowering, node: Node) -> Result:
    return ctx.run_subgraph(node.options.decomposition_subgraph_index, _values(node))


@operator("CALL_ONCE")
def _call_once(ctx: Lowering, node: Node) -> Result:
    """Lower `CALL_ONCE` to nothing: the values that it assigns to variables are their initial states."""
    return []


@operator("IF", types=("bool",))
def _if(ctx: Lowering, node: Node) -> Result:
    then, other = node.options.then_subgraph_index, node.options.else_subgraph_index
    known = ctx.known(node.operand(0))
    given = _values(node, 1)
    if known is not None:
        return ctx.run_subgraph(then if known.reshape(-1)[0] else other, given)
    condition = ctx.reshaped(node.operand(0), ())
    return _either(ctx, condition, partial(_in_body, ctx, then, given), partial(_in_body, ctx, other, given))


@operator("STABLEHLO_CASE", types=("int32",))
def _case(ctx: Lowering, node: Node) -> Result:
    """Runs the subgraph of a number, the last one for a number that has none."""
    branches, given = [int(index) for index in node.options.branch_subgraph_indices], _values(node, 1)
    if not branches:
        raise CompileError("it has no branches")
    known = ctx.known(node.operand(0))
    if known is not None:
        number = int(known.reshape(-1)[0])
        return ctx.run_subgraph(branches[number if 0 <= number < len(branches) else -1], given)
    last = np.array(len(branches) - 1, np.int32)
    given_number = ctx.reshaped(node.operand(0), ())
    inside = apply(
        ctx,
        "logical_and",
        apply(ctx, "greater_equal", given_number, np.array(0, np.int32)),
        apply(ctx, "less", given_number, last),
    )
    chosen_number = ctx.bound(ctx.apply(Where(), inside, given_number, last))

    def chosen(first: int, end: int) -> list[Value]:
        """Runs one of the branches from `first` to before `end`, by a binary search: few conditions are nested."""
        if end - first == 1:
            return _in_body(ctx, branches[first], given)
        middle = (first + end) // 2
        condition = ctx.bound(apply(ctx, "less", chosen_number, np.array(middle, np.int32)))
        return _either(ctx, condition, partial(chosen, first, middle), partial(chosen, middle, end))

    return chosen(0, len(branches))


def _either(
    ctx: Lowering, condition: Operand, then: Callable[[], list[Value]], other: Callable[[], list[Value]]
) -> list[Value]:
    """Returns the values of one of two branches, which have the same types.

    Raises:
        CompileError: they have other types.
    """
    outputs: list[list[Value]] = []

    def branch(run: Callable[[], list[Value]]) -> Callable[..., list[Operand]]:
        def make(_: Sequence[relax.Expr], __: Sequence[relax.Expr]) -> list[Operand]:
            made = run()
            outputs.append(made)
            return [ctx.tensor(value) for value in made]

        return make

    bodies = [ctx.body([], [], branch(run)) for run in (then, other)]
    types = [[_type_of(ctx.tensor(value)) for value in each] for each in outputs]
    if [str(t) for t in types[0]] != [str(t) for t in types[1]]:
        raise CompileError("its branches give results of different types or shapes")
    operands = [condition, *bodies[0][1], *bodies[1][1]]
    made = ctx.control(If(bodies[0][0], bodies[1][0]), operands, types[0])
    return [Value(each, value.dtype, value.quantization) for each, value in zip(made, outputs[0], strict=True)]


def _in_body(ctx: Lowering, index: int, given: Sequence[Value]) -> list[Value]:
    """The outputs of a subgraph in a body; variables must not change there."""
    before = dict(ctx.variables)
    made = ctx.run_subgraph(index, given)
    if any(ctx.variables[name] is not value for name, value in before.items()):
        raise CompileError("a variable is assigned in a branch or a loop, which is not supported")
    return made


@operator("WHILE", "STABLEHLO_WHILE")
def _while(ctx: Lowering, node: Node) -> Result:
    condition, body = node.options.cond_subgraph_index, node.options.body_subgraph_index
    given = _values(node)
    first = [ctx.expr(ctx.tensor(value)) for value in given]

    def running(values: Sequence[Value]) -> Operand:
        (made,) = _in_body(ctx, condition, values)
        return ctx.reshaped(ctx.tensor(made), ())

    def make(_: Sequence[relax.Expr], states: Sequence[relax.Expr]) -> list[Operand]:
        values = [Value(state, v.dtype, v.quantization) for state, v in zip(states[1:], given, strict=True)]
        after = _in_body(ctx, body, values)
        for state, value in zip(states[1:], after, strict=True):
            made = ctx.tensor(value)
            if shape_of(made) != shape_of(state) or dtype_of(made) != dtype_of(state):
                raise CompileError(
                    f"a state of shape {list(shape_of(state))} becomes one of shape {list(shape_of(made))} in the loop"
                )
        return [running(after), *(ctx.tensor(value) for value in after)]

    start = ctx.expr(running(given))
    states = [start, *first]
    made, captured = ctx.body([relax.TensorType((), "int64")], [_type_of(state) for state in states], make, leading=1)
    loop = Loop(made, None, False, True, (), ())
    results = ctx.control(loop, [*captured, *states], [_type_of(state) for state in states])
    return [Value(each, v.dtype, v.quantization) for each, v in zip(results[1:], given, strict=True)]


# Variables: a handle is the variable's name.


@operator("VAR_HANDLE")
def _var_handle(ctx: Lowering, node: Node) -> Result:
    container, name = node.options.container, node.options.shared_name
    return Value(None, "resource", handle=f"{container}/{name}" if container else name or "variable")


def _variable(ctx: Lowering, node: Node) -> str:
    name = node.value(0).handle
    if not isinstance(name, str) or name not in ctx.variables:
        raise CompileError("it refers to no variable that is known at compile time")
    return name


@operator("READ_VARIABLE", types=("resource",))
def _read_variable(ctx: Lowering, node: Node) -> Result:
    return ctx.variables[_variable(ctx, node)]


@operator("ASSIGN_VARIABLE", types=("resource",))
def _assign_variable(ctx: Lowering, node: Node) -> Result:
    name = _variable(ctx, node)
    before, value = ctx.tensor(ctx.variables[name]), node.value(1)
    operand = ctx.tensor(value)
    if shape_of(operand) != shape_of(before) or dtype_of(operand) != dtype_of(before):
        raise CompileError(
            f"the variable '{name}' of shape {list(shape_of(before))} is assigned a tensor of shape "
            f"{list(shape_of(operand))}"
        )
    ctx.variables[name] = value
    return []
