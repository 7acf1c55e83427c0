"""`tract_core`: recurrent cells as tract writes them, and a whole GRU layer.

Gates are side by side along the last axis: input, output, forget and candidate of an LSTM; update, reset and candidate
of a GRU, whose reset comes after the product with the hidden state.
"""

from __future__ import annotations

from tvm import relax

from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.base import Operand, rank_of, shape_of
from nnefc.operators.math.elementwise import apply
from nnefc.operators.math.matrix import MatMul
from nnefc.operators.tensor.shape import Slice, Transpose, Unsqueeze
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []

_CORE = registry("tract_core")


def _gates(context: ExtensionContext, x: Operand, hidden: int, count: int) -> list[Operand]:
    axis = rank_of(x) - 1
    if shape_of(x)[axis] != count * hidden:
        raise CompileError(f"{count} gates of {hidden} are needed, the shape is {list(shape_of(x))}")
    return [context.emitter.apply(Slice({axis: (gate * hidden, hidden, 1)}), x) for gate in range(count)]


@_CORE.operator(
    "fragment tract_core_lstm_epilogue(preact: tensor<scalar>, c_prev: tensor<scalar>, hidden: integer) "
    "-> (ht: tensor<scalar>, ct: tensor<scalar>)"
)
def _lstm_epilogue(context: ExtensionContext, args: Arguments) -> tuple[Operand, Operand]:
    """Computes the hidden state and the cell of an LSTM from its products."""
    emitter = context.emitter
    gates = _gates(context, args.preact, args.hidden, 4)
    entry, exit_, forget = (apply(emitter, "sigmoid", gate) for gate in gates[:3])
    kept = apply(emitter, "multiply", forget, args.c_prev)
    cell = apply(emitter, "add", kept, apply(emitter, "multiply", entry, apply(emitter, "tanh", gates[3])))
    return apply(emitter, "multiply", exit_, apply(emitter, "tanh", cell)), cell


@_CORE.operator(
    "fragment tract_core_gru_epilogue(xh: tensor<scalar>, rh: tensor<scalar>, h_prev: tensor<scalar>, hidden: integer) "
    "-> (ht: tensor<scalar>)"
)
def _gru_epilogue(context: ExtensionContext, args: Arguments) -> Operand:
    """Computes the hidden state of a GRU from the products with its input and hidden state."""
    return _gru_step(context, args.xh, args.rh, args.h_prev, args.hidden)


@_CORE.operator(
    "fragment tract_core_gru_cell(xh: tensor<scalar>, r: tensor<scalar>, rb: tensor<scalar>, h_prev: tensor<scalar>, "
    "hidden: integer) -> (ht: tensor<scalar>)"
)
def _gru_cell(context: ExtensionContext, args: Arguments) -> Operand:
    """A step of a GRU, with the product with the hidden state."""
    emitter = context.emitter
    product = emitter.apply(MatMul(transpose_b=True), args.h_prev, args.r)
    return _gru_step(context, args.xh, apply(emitter, "add", product, args.rb), args.h_prev, args.hidden)


def _gru_step(context: ExtensionContext, xh: Operand, rh: Operand, before: Operand, hidden: int) -> Operand:
    emitter = context.emitter
    inputs, states = _gates(context, xh, hidden, 3), _gates(context, rh, hidden, 3)
    update, reset = (
        apply(emitter, "sigmoid", apply(emitter, "add", x, h)) for x, h in zip(inputs[:2], states[:2], strict=True)
    )
    new = apply(emitter, "tanh", apply(emitter, "add", inputs[2], apply(emitter, "multiply", reset, states[2])))
    return apply(emitter, "add", new, apply(emitter, "multiply", update, apply(emitter, "subtract", before, new)))


@_CORE.operator(
    "fragment tract_core_gru_seq(x: tensor<scalar>, w: tensor<scalar> = 0.0, r: tensor<scalar> = 0.0, "
    "b: tensor<scalar> = 0.0, initial_h: tensor<scalar> = 0.0, hidden: integer, chunk: integer = 1, "
    "has_bias: logical = false, reset_every_turn: logical = false, emit_y: logical = true, projected: logical = false) "
    "-> (y: tensor<scalar>, y_h: tensor<scalar>)",
    limits="chunks of 1 and -1",
)
def _gru_seq(context: ExtensionContext, args: Arguments) -> tuple[Operand, Operand]:
    """A GRU layer over `[batch, steps, inputs]`; `projected` are the inputs of gates, their bias among them."""
    emitter, hidden = context.emitter, args.hidden
    if abs(args.chunk) != 1:
        raise CompileError(f"'chunk' is {args.chunk}: a layer reads one step at a time, forward (1) or backward (-1)")
    x, start = args.x, emitter.reshaped(args.initial_h, (shape_of(args.x)[0], hidden))
    kept = None
    if context.keeps_states and not args.reset_every_turn:
        start, kept = emitter.kept(start)
    biases = _gates(context, emitter.reshaped(args.b, (6 * hidden,)), 3 * hidden, 2) if args.has_bias else []
    if not args.projected:
        x = emitter.apply(MatMul(transpose_b=True), x, emitter.reshaped(args.w, (1, *shape_of(args.w)[-2:])))
        x = apply(emitter, "add", x, biases[0]) if biases else x
    recurrent = emitter.apply(Transpose((1, 0)), args.r)

    def iteration(_: relax.Expr, element: relax.Expr, states: list[relax.Expr]) -> tuple[list[Operand], list[Operand]]:
        product = emitter.apply(MatMul(), states[0], recurrent)
        product = apply(emitter, "add", product, biases[1]) if biases else product
        made = _gru_step(context, element, product, states[0], hidden)
        return [made], [made]

    elements = emitter.apply(Transpose((1, 0, 2)), x)
    if shape_of(elements)[0] == 1:
        (last,), _ = iteration(
            emitter.expr(elements),
            emitter.expr(emitter.reshaped(elements, shape_of(elements)[1:])),
            [emitter.expr(start)],
        )
        sequence = emitter.apply(Unsqueeze((1,)), last)
    else:
        (last,), (stacked,) = emitter.scan(iteration, emitter.expr(elements), [start], backwards=args.chunk < 0)
        sequence = emitter.apply(Transpose((1, 0, 2)), stacked)
    if kept is not None:
        emitter.update(kept, last)
    return sequence, emitter.apply(Unsqueeze((1,)), last)
