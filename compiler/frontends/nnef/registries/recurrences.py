"""`tract_transformers`: step-by-step recurrences of linear attention, whose states the document passes on.

(y, after) = tract_transformers_causal_conv1d_update(x, w, before);                   [b, C, S], [b, C, k]
(y, after) = tract_transformers_gdn_recurrent(q, k, v, log_decay, beta, before);      [b, S, h, w], [b, h, w, w]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import relax

from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.dynamic.values import Value
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.base import Operand, dtype_of, rank_of, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import apply
from nnefc.operators.math.matrix import MatMul
from nnefc.operators.math.reduction import Sum
from nnefc.operators.nn.activation import Silu
from nnefc.operators.nn.convolution import Convolution
from nnefc.operators.nn.window import Window
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.shape import RepeatElements, Slice, Squeeze, Transpose, Unsqueeze
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []

_TRANSFORMERS = registry("tract_transformers")
_SMALLEST = 1e-6
"""The epsilon of the normalization of queries and keys."""


def _alike(name: str) -> None:
    """The name that the operator of one family of models had before."""
    old = f"tract_qwen35_{name}"
    _TRANSFORMERS.operators[old] = _TRANSFORMERS.operators[f"tract_transformers_{name}"]


@_TRANSFORMERS.operator(
    "fragment tract_transformers_causal_conv1d_update(input: tensor<scalar>, weight: tensor<scalar>, "
    "initial_state: tensor<scalar>) -> (output: tensor<scalar>, final_state: tensor<scalar>)",
    sizes=True,
)
def _causal_conv1d_update(context: ExtensionContext, args: Arguments) -> tuple[Operand, Operand]:
    """A convolution of each channel over the last `k` elements up to each, then `x sigmoid(x)`.

    The state `[b, C, k]` is the elements before the input `[b, C, S]`; afterwards it has the last `k` of both.
    """
    emitter = context.emitter
    (x, weight, before), types = _reals(context, args.input, args.weight, args.initial_state)
    taps = shape_of(weight)[-1]
    if rank_of(x) != 3 or shape_of(before) != (*shape_of(x)[:2], taps):
        raise CompileError(
            f"a state {list(shape_of(before))} does not fit the input {list(shape_of(x))} and {taps} taps"
        )
    channels, size = shape_of(x)[1:]
    elements = emitter.apply(Concat(2), before, x)
    window = Window.of((taps,))
    made = emitter.apply(
        Convolution(window, groups=channels),
        emitter.apply(Slice({2: (1, size + taps - 1, 1)}), elements),
        emitter.reshaped(weight, (channels, 1, taps)),
    )
    after = emitter.apply(Slice({2: (size, taps, 1)}), elements)
    return emitter.apply(Cast(types[0]), emitter.apply(Silu(), made)), emitter.apply(Cast(types[2]), after)


_alike("causal_conv1d_update")


@_TRANSFORMERS.operator(
    "fragment tract_transformers_gdn_recurrent(query: tensor<scalar>, key: tensor<scalar>, value: tensor<scalar>, "
    "log_decay: tensor<scalar>, beta: tensor<scalar>, initial_state: tensor<scalar>) "
    "-> (output: tensor<scalar>, final_state: tensor<scalar>)",
    sizes=True,
)
def _gdn_recurrent(context: ExtensionContext, args: Arguments) -> tuple[Operand, Operand]:
    """The gated delta rule, for each head and one step after the other, with `q` and `k` of length 1, `q` over `√w`:

        s = exp(g) s;  s = s + kᵀ (v - k s) beta;  y = q s

    Queries and keys are `[b, S, h, w]`, values `[b, S, n h, w]`: each head of these has one of `h`.
    """
    emitter = context.emitter
    given = [args[name] for name in ("query", "key", "value", "log_decay", "beta", "initial_state")]
    (query, key, value, decay, beta, before), types = _reals(context, *given)
    batch, steps, heads, width = _checked(query, key, value, before)
    query, key = (_of_length_one(context, x, heads // shape_of(x)[2]) for x in (query, key))
    query = apply(emitter, "multiply", query, emitter.number(1 / math.sqrt(width), query))
    gates = [emitter.reshaped(x, (batch, steps, heads, 1)) for x in (apply(emitter, "exp", decay), beta)]
    # A loop goes over one tensor: [steps, b, heads, 1, 3 w + 2].
    packed = emitter.apply(Concat(3), query, key, value, *gates)
    elements = emitter.apply(Unsqueeze((3,)), emitter.apply(Transpose((1, 0, 2, 3)), packed))
    if isinstance(steps, int) and steps == 1:
        after, made = _step(context, emitter.apply(Squeeze((0,)), elements), before, width)
        stacked = emitter.apply(Unsqueeze((0,)), made)
    else:

        def iteration(
            _: relax.Expr, element: relax.Expr, states: list[relax.Expr]
        ) -> tuple[list[Operand], list[Operand]]:
            after, made = _step(context, element, states[0], width)
            return [after], [made]

        (after,), (stacked,) = emitter.scan(iteration, emitter.expr(elements), [before])
    result = emitter.apply(Transpose((1, 0, 2, 3)), emitter.apply(Squeeze((3,)), stacked))
    return emitter.apply(Cast(types[0]), result), emitter.apply(Cast(types[5]), after)


_alike("gdn_recurrent")


def _checked(query: Operand, key: Operand, value: Operand, state: Operand) -> tuple[int, ...]:
    """Batch, steps, heads of values, and width."""
    shapes = [shape_of(x) for x in (query, key, value, state)]
    if any(len(shape) != 4 for shape in shapes):
        raise CompileError(f"tensors of four dimensions are needed, the shapes are {[list(s) for s in shapes]}")
    batch, steps, heads, width = shapes[2]
    own = shapes[0][2]
    fits = shapes[0] == shapes[1] == (batch, steps, own, width) and heads % own == 0
    if not fits or shapes[3] != (batch, heads, width, width):
        raise CompileError(f"queries, keys, values and state of {[list(s) for s in shapes]} do not fit each other")
    return shapes[2]


def _of_length_one(context: ExtensionContext, x: Operand, count: int) -> Operand:
    """Emit each head `count` times, normalized to length one."""
    emitter = context.emitter
    squares = emitter.apply(Sum((3,), True), apply(emitter, "square", x))
    lengths = apply(emitter, "sqrt", apply(emitter, "add", squares, emitter.number(_SMALLEST, squares)))
    return emitter.apply(RepeatElements(count, 2), apply(emitter, "divide", x, lengths))


def _step(context: ExtensionContext, element: Operand, state: Operand, width: int) -> tuple[Operand, Operand]:
    """The state `[b, h, w, w]` after one step, and its result `[b, h, 1, w]`."""
    emitter = context.emitter
    starts = (0, width, 2 * width, 3 * width, 3 * width + 1)
    sizes = (width, width, width, 1, 1)
    query, key, value, decay, beta = (
        emitter.apply(Slice({3: (start, size, 1)}), element) for start, size in zip(starts, sizes, strict=True)
    )
    state = apply(emitter, "multiply", state, decay)
    wrong = apply(emitter, "subtract", value, emitter.apply(MatMul(), key, state))
    change = apply(
        emitter, "multiply", emitter.apply(Transpose((0, 1, 3, 2)), key), apply(emitter, "multiply", wrong, beta)
    )
    after = apply(emitter, "add", state, change)
    return after, emitter.apply(MatMul(), query, after)


def _reals(context: ExtensionContext, *values: Value) -> tuple[list[Operand], Sequence[str]]:
    """Tensors in float32, and the element types that they had."""
    emitter = context.emitter
    tensors = [emitter.tensor(value, "float32") for value in values]
    return [emitter.apply(Cast("float32"), tensor) for tensor in tensors], [dtype_of(tensor) for tensor in tensors]
