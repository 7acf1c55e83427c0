"""Recurrent layers: LSTM, GRU and RNN, of any number of layers, in one or both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnefc.frontends.pnnx.lowering import Array, Lowering, Shape, Tensor, dtype_of, shape_of
from nnefc.frontends.pnnx.operators.declaration import Result, Weights, operator
from nnefc.operators.nn import recurrent
from nnefc.operators.nn.recurrent import Activation, Cell, Gru, Lstm, Recurrence, Rnn
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.shape import Slice, Transpose
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []

_SIGMOID, _TANH = Activation("sigmoid"), Activation("tanh")
_LSTM = Lstm(_SIGMOID, _TANH, _TANH)
_GRU = Gru(_SIGMOID, _TANH, reset_after=True)
_NONLINEARITIES = ("tanh", "relu")

_GATES = {Lstm: (0, 3, 1, 2), Gru: (1, 0, 2), Rnn: (0,)}
"""The position of each gate of the cells in PyTorch's order (i, f, g, o; r, z, n)."""


def _weights(
    given: Weights, cell: Cell, inputs: int, hidden: int, projected: int, suffix: str, bias: bool
) -> recurrent.RecurrentWeights:
    """The tensors of one direction of one layer, with the gates in the order of the cell."""

    def gates(name: str, *columns: int) -> Array:
        taken = given.take(f"{name}_{suffix}", (cell.gates * hidden, *columns))
        return taken.reshape(cell.gates, hidden, *columns)[list(_GATES[type(cell)])].reshape(taken.shape)

    projection = given.take(f"weight_hr_{suffix}", (projected, hidden)).T if projected else None
    return recurrent.RecurrentWeights(
        gates("weight_ih", inputs).T,
        gates("weight_hh", projected or hidden).T,
        gates("bias_ih") if bias else None,
        gates("bias_hh") if bias else None,
        projection=projection,
    )


def _recurrent(
    ctx: Lowering,
    cell: Cell,
    input: Tensor,
    initial: Sequence[Tensor],
    weights: Weights,
    input_size: int,
    hidden: int,
    layers: int,
    bias: bool,
    batch_first: bool,
    bidirectional: bool,
    projected: int = 0,
) -> Result:
    shape = shape_of(input)
    if len(shape) not in (2, 3) or shape[-1] != input_size or dtype_of(input) != "float32" or 0 in shape:
        raise CompileError(f"the input {list(shape)} of {dtype_of(input)} does not fit 'input_size' {input_size}")
    if not (1 <= layers <= 256 and 1 <= hidden < 1 << 24 and 0 <= projected < hidden):
        raise CompileError(
            f"'num_layers' is {layers}, 'hidden_size' {hidden} and 'proj_size' {projected}: there can be 1 to 256 "
            "layers of 1 to 16,777,215 elements, and fewer projected ones"
        )
    batched = len(shape) == 3
    x: Tensor = ctx.reshaped(input, (shape[0], 1, shape[1])) if not batched else input
    if batched and batch_first:
        x = ctx.apply(Transpose((1, 0, 2)), x)
    steps, batch, _ = shape_of(x)
    directions = 2 if bidirectional else 1
    sizes = [projected or hidden, hidden][: cell.states]
    first = [_initial(ctx, initial, i, (layers * directions, batch, size), batched) for i, size in enumerate(sizes)]
    last: list[Sequence[Tensor]] = []
    for number in range(layers):
        outputs = []
        for backwards in (False, True)[:directions]:
            suffix = f"l{number}{'_reverse' if backwards else ''}"
            own = _weights(weights, cell, shape_of(x)[2], hidden, projected, suffix, bias)
            states = [ctx.reshaped(ctx.apply(Slice({0: (len(last), 1, 1)}), s), shape_of(s)[1:]) for s in first]
            result, *after = Recurrence(cell, backwards).lower(ctx, x, own, states)
            outputs.append(result)
            last.append(after)
        x = ctx.apply(Concat(2), *outputs)
    if not batched:
        x = ctx.reshaped(x, (steps, sizes[0] * directions))
    elif batch_first:
        x = ctx.apply(Transpose((1, 0, 2)), x)
    if ctx.results == 1:
        return x
    ends = [
        ctx.apply(Concat(0), *[ctx.reshaped(state, (1, *shape_of(state))) for state in kind])
        for kind in zip(*last, strict=True)
    ]
    if not batched:
        ends = [ctx.reshaped(state, (len(last), shape_of(state)[2])) for state in ends]
    return (x, *ends) if ctx.results == 1 + cell.states else (x, tuple(ends))


def _initial(ctx: Lowering, given: Sequence[Tensor], index: int, shape: Shape, batched: bool) -> Tensor:
    if not given:
        return np.zeros(shape, np.float32)
    expected = shape if batched else (shape[0], shape[2])
    if index >= len(given) or shape_of(given[index]) != expected or dtype_of(given[index]) != "float32":
        raise CompileError(f"the initial state should have {list(expected)} real elements")
    return ctx.reshaped(given[index], shape)


def _states(*tensors: Any) -> list[Tensor]:
    """The initial states: none, one by one or as a tuple."""
    found: list[Tensor] = []
    for tensor in tensors:
        if tensor is not None:
            found += list(tensor) if isinstance(tensor, tuple) else [tensor]
    return found


@operator("nn.LSTM")
def _lstm(
    ctx: Lowering,
    input: Tensor,
    weights: Weights,
    input_size: int,
    hidden_size: int,
    hx: Tensor | None = None,
    cx: Tensor | None = None,
    num_layers: int = 1,
    bias: bool = True,
    batch_first: bool = False,
    bidirectional: bool = False,
    proj_size: int = 0,
    dropout: float = 0.0,
) -> Result:
    return _recurrent(
        ctx, _LSTM, input, _states(hx, cx), weights, input_size, hidden_size, num_layers, bias, batch_first,
        bidirectional, proj_size,
    )  # fmt: skip


@operator("nn.GRU")
def _gru(
    ctx: Lowering,
    input: Tensor,
    weights: Weights,
    input_size: int,
    hidden_size: int,
    hx: Tensor | None = None,
    num_layers: int = 1,
    bias: bool = True,
    batch_first: bool = False,
    bidirectional: bool = False,
    dropout: float = 0.0,
) -> Result:
    return _recurrent(
        ctx, _GRU, input, _states(hx), weights, input_size, hidden_size, num_layers, bias, batch_first, bidirectional
    )


@operator("nn.RNN")
def _rnn(
    ctx: Lowering,
    input: Tensor,
    weights: Weights,
    input_size: int,
    hidden_size: int,
    hx: Tensor | None = None,
    num_layers: int = 1,
    nonlinearity: str = "tanh",
    bias: bool = True,
    batch_first: bool = False,
    bidirectional: bool = False,
    dropout: float = 0.0,
) -> Result:
    if nonlinearity not in _NONLINEARITIES:
        raise CompileError(f"there is no nonlinearity '{nonlinearity}': there are {', '.join(_NONLINEARITIES)}")
    cell = Rnn(Activation(nonlinearity))
    return _recurrent(
        ctx, cell, input, _states(hx), weights, input_size, hidden_size, num_layers, bias, batch_first, bidirectional
    )
