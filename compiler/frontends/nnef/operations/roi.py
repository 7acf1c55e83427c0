"""Regions of interest: `rois [n, 4]` are boxes (x1, y1, x2, y2) in elements of the input, the end excluded.

A box stands for the part of the input that slicing by it would give; `batch_index [n]` says of which batch element. The
standard leaves open how boxes between elements are meant: pooling rounds them to whole elements and takes at least one;
resampling keeps them real.
"""

from __future__ import annotations

from nnefc.frontends.nnef.declarations import Arguments, Dialect, Shape, ShapeError, operation, shape_of
from nnefc.frontends.nnef.operations.broadcasting import spell_shape
from nnefc.frontends.nnef.operations.lowering import Lowering, Operand, by_definition
from nnefc.operators.vision.detection import RoiResample
from nnefc.operators.vision.regions import RoiPool

__all__: list[str] = []

_METHODS = ("symmetric", "asymmetric", "aligned")
_TENSORS = "input: tensor<scalar>, rois: tensor<scalar>, batch_index: tensor<integer>, output_size: integer[]"
_FINAL = (Dialect.FINAL,)


def _roi_shape(args: Arguments) -> Shape:
    x, rois, batch = shape_of(args.input), shape_of(args.rois), shape_of(args.batch_index)
    if len(x) != 4:
        raise ShapeError(f"the input {spell_shape(x)} must have rank 4: boxes have two dimensions", "input")
    if len(rois) != 2 or rois[1] != 4:
        raise ShapeError(f"'rois' {spell_shape(rois)} must be of the shape [n, 4]", "rois")
    if batch != rois[:1]:
        raise ShapeError(
            f"'batch_index' {spell_shape(batch)} must have one element for each of the {rois[0]} boxes", "batch_index"
        )
    for parameter in ("output_size", "sampling_rate"):
        if parameter in args and (len(args[parameter]) != 2 or any(size < 1 for size in args[parameter])):
            raise ShapeError(f"'{parameter}' {spell_shape(args[parameter])} needs two positive elements", parameter)
    for parameter in ("method", "resize_method"):
        if parameter in args and args[parameter] not in _METHODS:
            hint = f"known are {', '.join(_METHODS)}"
            raise ShapeError(f"unknown method '{args[parameter]}'", parameter, hint=hint)
    return (rois[0], x[1], *args.output_size)


def _operands(lowering: Lowering, args: Arguments) -> list[Operand]:
    return lowering.operands((args.input, args.rois, args.batch_index))


for _name, _average in (("avg_roi_pool", True), ("max_roi_pool", False)):

    @operation(
        f"fragment {_name}({_TENSORS}) -> (output: tensor<scalar>)",
        shape=_roi_shape,
        dialects=_FINAL,
        target="TE",
        limits="rank 4; boxes are rounded to whole elements, at least one",
    )
    def _pooled(lowering: Lowering, args: Arguments, average: bool = _average) -> Operand:
        return RoiPool(tuple(args.output_size), average).lower(lowering, *_operands(lowering, args))


@operation(
    f"fragment roi_resample({_TENSORS}, method: string = 'symmetric') -> (output: tensor<scalar>)",
    shape=_roi_shape,
    dialects=_FINAL,
    target="TE",
    limits="rank 4; beyond the input its border goes on",
)
def _roi_resample(lowering: Lowering, args: Arguments) -> Operand:
    return RoiResample(tuple(args.output_size), args.method).lower(lowering, *_operands(lowering, args))


for _name, _pool in (("avg_roi_align", "avg_pool"), ("max_roi_align", "max_pool")):
    operation(
        f"fragment {_name}({_TENSORS}, sampling_rate: integer[], resize_method: string = 'symmetric') "
        "-> (output: tensor<scalar>)",
        shape=_roi_shape,
        dialects=_FINAL,
        # The standard's pool names the spatial dimensions only; a pool's window covers batch and channel too.
        definition=f"""
            size = [for i in range_of(output_size) yield output_size[i] * sampling_rate[i]];
            resized = roi_resample(input, rois, batch_index, output_size = size, method = resize_method);
            output = {_pool}(resized, size = [1,1] + sampling_rate, stride = [1,1] + sampling_rate,
                             padding = [(0,0)] * 4);
        """,
    )(by_definition)
