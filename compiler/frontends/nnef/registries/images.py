"""`tract_core` and `tract_onnx`: resizing, sampling and normalization of images, as ONNX defines them."""

from __future__ import annotations

from typing import Literal

from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.dynamic.values import Value, integers, number
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.base import Operand, shape_of
from nnefc.operators.nn.normalization import LocalResponse
from nnefc.operators.vision.detection import GridSample
from nnefc.operators.vision.interpolation import COORDINATES, ROUNDINGS, AxisScaling, Interpolation
from nnefc.operators.vision.resize import Resize
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import scaled

__all__: list[str] = []

_CORE, _ONNX = registry("tract_core"), registry("tract_onnx")


@_CORE.operator(
    "fragment tract_core_resize<?>(input: tensor<scalar>, scales: tensor<?> = 0, sizes: tensor<?> = 0, "
    "coord_transformer: string = 'half_pixel', interpolator: string = 'linear', nearest_mode: string = 'floor') "
    "-> (output: tensor<scalar>)",
    sizes=True,
)
def _resize(context: ExtensionContext, args: Arguments) -> Operand:
    return _resized(context, args, Interpolation(*_modes(args)))


@_ONNX.operator(
    "fragment tract_onnx_resize<?>(input: tensor<scalar>, scales: tensor<?> = 0, roi: tensor<?> = 0, "
    "sizes: tensor<?> = 0, coord_transformer: string = 'half_pixel', interpolator: string = 'linear', "
    "nearest_mode: string = 'floor', cubic_coeff_a: scalar = -0.75, exclude_outside: logical = false, "
    "antialias: logical = false, extrapolation_value: scalar = 0.0) -> (output: tensor<scalar>)",
    sizes=True,
    limits="no roi",
)
def _onnx_resize(context: ExtensionContext, args: Arguments) -> Operand:
    mode, coordinates, rounding = _modes(args)
    edge = "exclude" if args.exclude_outside else "edge"
    interpolation = Interpolation(
        mode, coordinates, rounding, edge, args.cubic_coeff_a, args.antialias, args.extrapolation_value
    )
    return _resized(context, args, interpolation)


def _modes(args: Arguments) -> tuple[str, str, str]:
    mode, coordinates, rounding = args.interpolator, args.coord_transformer, args.nearest_mode
    if coordinates not in COORDINATES or mode not in ("nearest", "linear", "cubic") or rounding not in ROUNDINGS:
        raise CompileError(f"one of the modes '{coordinates}', '{mode}' and '{rounding}' is not supported")
    return mode, coordinates, rounding


def _resized(context: ExtensionContext, args: Arguments, interpolation: Interpolation) -> Operand:
    emitter = context.emitter
    x = emitter.tensor(args.input)
    shape, given = shape_of(x), {name: emitter.known(args[name]) for name in ("scales", "sizes")}
    if not isinstance(given["scales"], int):
        factors = [number(factor) for factor in _elements(given["scales"])]
        sizes = [scaled(size, factor) for size, factor in zip(shape, factors, strict=True)]
    elif not isinstance(given["sizes"], int):
        sizes, factors = integers(given["sizes"]), [None] * len(shape)  # type: ignore[list-item]
    else:
        raise CompileError("either 'scales' or 'sizes' is needed")
    if len(sizes) != len(shape):
        raise CompileError(f"{len(sizes)} sizes are given for {len(shape)} dimensions")
    between = (
        AxisScaling.between(size, wanted) if factor is None else AxisScaling(size, wanted, factor)
        for size, wanted, factor in zip(shape, sizes, factors, strict=True)
    )
    changed = tuple((axis, each) for axis, each in enumerate(between) if not each.keeps_positions)
    return emitter.apply(Resize(changed, interpolation), x)


def _elements(value: Value) -> list[Value]:
    return list(value) if isinstance(value, list) else list(value.reshape(-1))


_GRID = (
    "(input: tensor<scalar>, grid: tensor<scalar>, mode: string = 'bilinear', padding_mode: string = 'zeros', "
    "align_corners: logical = false) -> (output: tensor<scalar>)"
)
_GRID_MODES: dict[str, Literal["nearest", "linear", "cubic"]] = {
    **dict.fromkeys(("bilinear", "linear"), "linear"),
    "nearest": "nearest",
    **dict.fromkeys(("bicubic", "cubic"), "cubic"),
}


@_ONNX.operator(f"fragment tract_onnx_grid_sample{_GRID}")
@_CORE.operator(f"fragment tract_core_grid_sample{_GRID}")
def _grid_sample(context: ExtensionContext, args: Arguments) -> Operand:
    if args.mode not in _GRID_MODES or args.padding_mode not in ("zeros", "border", "reflection"):
        raise CompileError(f"the mode '{args.mode}' or the padding '{args.padding_mode}' is not supported")
    operator = GridSample(_GRID_MODES[args.mode], args.padding_mode, args.align_corners)
    return context.emitter.apply(operator, args.input, args.grid)


@_ONNX.operator(
    "fragment tract_onnx_lrn(input: tensor<scalar>, alpha: scalar = 0.0001, beta: scalar = 0.75, bias: scalar = 1.0, "
    "size: integer) -> (output: tensor<scalar>)"
)
def _lrn(context: ExtensionContext, args: Arguments) -> Operand:
    operator = LocalResponse((args.size - 1) // 2, args.size // 2, args.alpha, args.beta, args.bias)
    return context.emitter.apply(operator, args.input)
