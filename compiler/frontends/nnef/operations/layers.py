"""Layers of the provisional dialect: operations that declare their own variables under a `scope`."""

from __future__ import annotations

from nnefc.frontends.nnef.declarations import STANDARD, Arguments, Dialect, Shape, ShapeError, operation, shape_of
from nnefc.frontends.nnef.operations.broadcasting import spell_shape
from nnefc.frontends.nnef.operations.lowering import by_definition
from nnefc.frontends.nnef.values import Tensor

__all__: list[str] = []

_WINDOW = (
    "size: extent[], border: string = 'constant', padding: (extent,extent)[] = [], "
    "stride: extent[] = [], dilation: extent[] = []"
)
_FORWARDED = "border = border, padding = padding, stride = stride, dilation = dilation"


def _shape(name: str, args: Arguments, **changed: object) -> Shape:
    """The shape that another operation of the dialect gives, with some arguments replaced."""
    operation_ = STANDARD.lookup(name, Dialect.PROVISIONAL)
    assert operation_ is not None
    shape = operation_.shape(Arguments({**args, **changed}))  # type: ignore[dict-item]
    assert isinstance(shape, tuple)
    return shape


def _channels(args: Arguments) -> int:
    shape = shape_of(args.input)
    if len(shape) < 2:
        raise ShapeError(f"the input {spell_shape(shape)} has no channels", "input")
    return shape[1]


def _variable(args: Arguments, shape: Shape) -> Tensor:
    """A variable that the layer declares, for the shape rules only."""
    if any(size < 1 for size in shape):
        raise ShapeError(f"a variable of the layer would have the shape {spell_shape(shape)}", "input")
    return Tensor("", "scalar", shape, args.input.location)


def _filter(args: Arguments, size: Shape) -> Tensor:
    groups = args.get("groups", 1)
    if groups < 0:
        raise ShapeError(f"'groups' must not be negative, it is {groups}", "groups")
    return _variable(args, (args.channels, _channels(args) // (groups or _channels(args)), *size))


def _linear_shape(args: Arguments) -> Shape:
    return _shape("linear", args, filter=_filter(args, ()), bias=0.0)


def _conv_shape(args: Arguments) -> Shape:
    return _shape("conv", args, filter=_filter(args, tuple(args.size)), bias=0.0)


def _deconv_shape(args: Arguments) -> Shape:
    return _shape("deconv", args, filter=_filter(args, tuple(args.size)), bias=0.0)


def _pool_shape(args: Arguments) -> Shape:
    before = {name: [1, 1, *args[name]] for name in ("size", "stride", "dilation")}
    padding = [(0, 0), (0, 0), *args.padding] if args.padding else []
    return _shape("box", args, padding=padding, normalize=True, **before)


def _batch_normalization_shape(args: Arguments) -> Shape:
    _variable(args, (1, _channels(args)))
    if args.epsilon < 0:
        raise ShapeError(f"'epsilon' must not be negative, it is {args.epsilon}", "epsilon")
    return shape_of(args.input)


def _declare(signature: str, shape: object, definition: str) -> None:
    operation(
        f"fragment {signature} -> (output: tensor)",
        shape=shape,  # type: ignore[arg-type]
        dialects=(Dialect.PROVISIONAL,),
        definition=definition,
    )(by_definition)


_declare(
    "linear_layer(input: tensor, channels: extent, use_bias: logical = true, scope: string)",
    _linear_shape,
    """
        filter = variable(label = scope + '/filter', shape = [channels, shape_of(input)[1]]);
        bias = variable(label = scope + '/bias', shape = [1, channels]) if use_bias else 0.0;
        output = linear(input, filter, bias);
    """,
)
for _name, _rule in (("conv", _conv_shape), ("deconv", _deconv_shape)):
    _declare(
        f"{_name}_layer(input: tensor, channels: extent, {_WINDOW}, groups: extent = 1, use_bias: logical = true, "
        "scope: string)",
        _rule,
        f"""
            depth = shape_of(input)[1] / groups if groups != 0 else 1;
            filter = variable(label = scope + '/filter', shape = [channels, depth] + size);
            bias = variable(label = scope + '/bias', shape = [1, channels]) if use_bias else 0.0;
            output = {_name}(input, filter, bias, {_FORWARDED}, groups = groups);
        """,
    )
for _name in ("max_pool", "avg_pool"):
    _declare(
        f"{_name}_layer(input: tensor, {_WINDOW})",
        _pool_shape,
        f"""
            explicit = [(0,0), (0,0)] + padding if length_of(padding) > 0 else [];
            output = {_name}(input, size = [1,1] + size, border = border, padding = explicit,
                             stride = [1,1] + stride, dilation = [1,1] + dilation);
        """,
    )
_declare(
    "batch_normalization_layer(input: tensor, center: logical = true, scale: logical = true, epsilon: scalar, "
    "scope: string)",
    _batch_normalization_shape,
    """
        shape = [1, shape_of(input)[1]];
        gamma = variable(label = scope + '/gamma', shape = shape) if scale else 1.0;
        beta = variable(label = scope + '/beta', shape = shape) if center else 0.0;
        mean = variable(label = scope + '/mean', shape = shape);
        variance = variable(label = scope + '/variance', shape = shape);
        output = batch_normalization(input, mean, variance, beta, gamma, epsilon = epsilon);
    """,
)
