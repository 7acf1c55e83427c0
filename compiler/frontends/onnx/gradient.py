"""Lowers `Gradient` of ai.onnx.preview.training by reverse-mode differentiation.

The part of the program that makes `y` from `xs` and `zs` is taken out as a function of its own, differentiated by
`relax.transform.Gradient`, and put back with the node's inputs instead of `xs` and `zs`.
"""

from __future__ import annotations

import tvm
from tvm import relax

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.refusals import REFUSALS
from nnefc.ir.dataflow import bindings_of
from nnefc.support.diagnostics import CompileError
from nnefc.support.minimal_tvm import load_derivatives

__all__: list[str] = []


@operator("Gradient", since=(1,), domain="ai.onnx.preview.training")
def _gradient(ctx: Context, node: Node) -> list[Value]:
    names = (*node.attributes["xs"], *node.attributes.get("zs", ()))
    if len(names) != len(node.operands):
        raise CompileError(
            f"{node.description}: it has {len(node.operands)} inputs for {len(names)} names in 'xs' and 'zs'"
        )
    named = [_named(ctx, node, name) for name in names]
    target = _named(ctx, node, node.attributes["y"])
    inputs = [value for value in node.inputs if value is not None]
    for name, source, value in zip(names, named, inputs, strict=True):
        if (source.dtype, source.shape) != (value.dtype, value.shape):
            raise CompileError(f"{node.description}: the input for '{name}' differs from it in type or shape")
    count = len(node.attributes["xs"])
    if target.expr is None or not any(source.expr is not None for source in named[:count]):
        raise CompileError(f"{node.description}: '{node.attributes['y']}' does not depend on what is computed")
    load_derivatives()
    function, free = _function(ctx, node, target, [ctx.expr(source) for source in named])
    try:
        adjoint = relax.transform.Gradient("main", list(function["main"].params[:count]))(function)["main_adjoint"]
    except REFUSALS as error:
        raise CompileError(
            f"{node.description}: an operator between 'xs' and 'y' has no derivative here",
            hint="give its derivative with other nodes",
        ) from error
    results = _inlined(ctx, adjoint, [*(ctx.expr(value) for value in inputs), *free])
    return [ctx.emit(result) for result in results]


def _named(ctx: Context, node: Node, name: str) -> Value:
    value = ctx.find(name) if ctx.find is not None else None
    if not isinstance(value, Value):
        raise CompileError(f"{node.description}: there is no tensor '{name}' before it")
    return value


def _function(
    ctx: Context, node: Node, target: Value, sources: list[relax.Expr]
) -> tuple[tvm.IRModule, list[relax.Var]]:
    """A module whose `main` computes the sum of `target` from `sources`, and what else its parameters stand for."""
    bindings: dict[relax.Var, relax.Expr] = {}
    free: dict[relax.Var, relax.Var] = {}
    needed = _between(ctx, target.expr, sources)
    params = [
        relax.Var(f"x{index}", relax.TensorType([int(e) for e in s.ty.shape], s.ty.dtype))
        for index, s in enumerate(sources)
    ]
    known = dict(
        zip(
            [s for s in sources if isinstance(s, relax.Var)],
            [p for s, p in zip(sources, params, strict=True) if isinstance(s, relax.Var)],
            strict=True,
        )
    )
    for var in needed:
        bindings[var] = ctx.builder.lookup_binding(var)
    for var in bindings:
        for used in relax.analysis.free_vars(bindings[var]):
            if used not in bindings and used not in known and used not in free:
                free[used] = relax.Var(f"v{len(free)}", used.ty)
    builder = relax.BlockBuilder()
    replaced: dict[relax.Var, relax.Expr] = {**known, **free}
    with builder.function("main", [*params, *free.values()]):
        with builder.dataflow():
            for var, value in bindings.items():
                replaced[var] = builder.emit(_substituted(value, replaced))
            total = relax.op.sum(replaced[target.expr])
            result = builder.emit_output(total)
        builder.emit_func_output(result)
    return builder.finalize(), list(free)


def _between(ctx: Context, target: relax.Expr, sources: list[relax.Expr]) -> list[relax.Var]:
    """The variables that depend on a source and that the target depends on, in order."""
    stops = [source for source in sources if isinstance(source, relax.Var)]
    depends: dict[relax.Var, bool] = dict.fromkeys(stops, True)
    order: list[relax.Var] = []
    waiting: list[tuple[relax.Var, bool]] = [(target, False)]
    while waiting:
        var, ready = waiting.pop()
        if var in depends:
            continue
        value = ctx.builder.lookup_binding(var) if isinstance(var, relax.DataflowVar) else None
        used = relax.analysis.free_vars(value) if value is not None else []
        if not ready:
            waiting.append((var, True))
            waiting += [(other, False) for other in used if other not in depends]
            continue
        depends[var] = any(depends[other] for other in used)
        if depends[var]:
            order.append(var)
    return order


def _substituted(expr: relax.Expr, replaced: dict[relax.Var, relax.Expr]) -> relax.Expr:
    return relax.expr_functor.PyExprMutator.visit_expr(_Substitution(replaced), expr)


@relax.expr_functor.mutator
class _Substitution(relax.expr_functor.PyExprMutator):  # type: ignore[misc]
    def __init__(self, replaced: dict[relax.Var, relax.Expr]) -> None:
        super().__init__()
        self._replaced = replaced

    def visit_var_(self, var: relax.Var) -> relax.Expr:
        return self._replaced.get(var, var)

    def visit_dataflow_var_(self, var: relax.DataflowVar) -> relax.Expr:
        return self._replaced.get(var, var)


def _inlined(ctx: Context, function: relax.Function, arguments: list[relax.Expr]) -> list[relax.Expr]:
    """The second part of the function's result, its gradients, for these arguments."""
    replaced: dict[relax.Var, relax.Expr] = dict(zip(function.params, arguments, strict=True))
    for binding in bindings_of(function):
        replaced[binding.var] = ctx.builder.emit(_substituted(binding.value, replaced), ctx.emitter.hint)
    result = _substituted(function.body.body, replaced)
    pair = ctx.builder.emit(result)
    gradients = ctx.builder.emit(relax.TupleGetItem(pair, 1))
    return [relax.TupleGetItem(gradients, index) for index in range(len(gradients.ty.fields))]
