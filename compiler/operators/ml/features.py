"""Feature preprocessing of ai.onnx.ml: scaling, imputation, encoding, concatenation.

Samples are rows; a vector is one sample where an operator says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from tvm import relax, tirx

from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, check_size, dtype_of, rank_of, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.statements import T, checking, report
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.padding import Pad
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import is_known
from nnefc.symbolic.unification import unify_dims

__all__ = ["FeatureVectors", "Imputed", "Normalized", "OneHotCategories", "Scaled", "as_samples"]


def as_samples(ctx: Emitter, x: Operand) -> Operand:
    """Samples `[samples, features]`, or one as a vector, as a matrix of float64 if they are, else of float32.

    Raises:
        CompileError: they are neither, or there are no features.
    """
    if rank_of(x) == 1:
        x = ctx.reshaped(x, (1, *shape_of(x)))
    if rank_of(x) != 2 or 0 in shape_of(x):
        raise CompileError(f"the input {list(shape_of(x))} is not a matrix of samples and features")
    made: Operand = ctx.apply(Cast("float64" if dtype_of(x) == "float64" else "float32"), x)
    return made


def _by_feature(values: Array, x: Shape, what: str) -> None:
    """Check that there is one value, or one for each feature.

    Raises:
        CompileError: there is another number.
    """
    if not x or (len(values) != 1 and not unify_dims(x[-1], len(values))):
        raise CompileError(f"there are {len(values)} {what} for the features of {list(x)}")


@dataclass(frozen=True, eq=False)
class Scaled(Operator):
    """`(x - offset) * scale`, float32. ai.onnx.ml `Scaler`.

    Attributes:
        offset, scale: one value, or one for each feature, which is the last dimension.
    """

    offset: Array
    scale: Array

    def shape(self, x: Shape) -> Shape:
        """Return the shape of the operand."""
        _by_feature(self.offset, x, "offsets")
        _by_feature(self.scale, x, "factors")
        return x

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        self.shape(shape_of(x))
        work = "float64" if dtype_of(x) == "float64" else "float32"
        data = ctx.expr(ctx.apply(Cast(work), x))
        moved = ctx.emit(relax.op.subtract(data, ctx.expr(self.offset.astype(work))))
        return Cast("float32").lower(ctx, ctx.emit(relax.op.multiply(moved, ctx.expr(self.scale.astype(work)))))


@dataclass(frozen=True)
class Normalized(Operator):
    """Samples divided by their norms, unless these are 0; float32. ai.onnx.ml `Normalizer`.

    Attributes:
        norm: the largest element (not its magnitude), the sum of magnitudes, or the root of the sum of squares.
    """

    norm: Literal["MAX", "L1", "L2"]

    def shape(self, x: Shape) -> Shape:
        """Return the shape of the operand, a matrix, or a vector, which is one sample."""
        if len(x) not in (1, 2):
            raise CompileError(f"the input {list(x)} is not a matrix of samples and features")
        return x

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        axes = [len(self.shape(shape_of(x))) - 1]
        work = "float64" if dtype_of(x) == "float64" else "float32"
        data = ctx.expr(ctx.apply(Cast(work), x))
        match self.norm:
            case "MAX":
                norm = relax.op.max(data, axes, keepdims=True)
            case "L1":
                norm = relax.op.sum(ctx.emit(relax.op.abs(data)), axes, keepdims=True)
            case "L2":
                norm = relax.op.sqrt(
                    ctx.emit(relax.op.sum(ctx.emit(relax.op.multiply(data, data)), axes, keepdims=True))
                )
            case _:
                raise CompileError(f"the norm '{self.norm}' is unknown")
        norm = ctx.emit(norm)
        zero, one = (ctx.expr(ctx.number(value, data)) for value in (0, 1))
        some = ctx.emit(relax.op.where(ctx.emit(relax.op.equal(norm, zero)), one, norm))
        return Cast("float32").lower(ctx, ctx.emit(relax.op.divide(data, some)))


@dataclass(frozen=True, eq=False)
class Imputed(Operator):
    """`x`, and another value where it is a certain one. ai.onnx.ml `Imputer`.

    Attributes:
        replaced: what is replaced; NaN stands for all that are not numbers.
        values: what replaces it: one, or one for each feature, which is the last dimension.
    """

    replaced: float | int
    values: Array

    def shape(self, x: Shape) -> Shape:
        """Return the shape of the operand."""
        _by_feature(self.values, x, "values")
        return x

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        shape, dtype = self.shape(shape_of(x)), dtype_of(x)
        many = len(self.values) > 1

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            value = tensors[0](*index)
            found = tirx.isnan(value) if math.isnan(self.replaced) else value == tirx.const(self.replaced, dtype)
            return tirx.Select(found, tensors[1](index[-1] if many else 0), value)

        return ctx.elements(shape, element, x, self.values.astype(ctx.number(0, x).dtype), name="impute")


@dataclass(frozen=True, eq=False)
class OneHotCategories(Operator):
    """Rows with 1 in the column of the element's category, and 0 elsewhere; float32. ai.onnx.ml `OneHotEncoder`.

    Attributes:
        categories: integers, one for each column; elements are rounded towards zero.
        zeros: whether an element of no category has zeros alone; else the run fails.
    """

    categories: Array
    zeros: bool

    def shape(self, x: Shape) -> Shape:
        """Return the shape with a new last dimension of the categories."""
        return check_size((*x, len(self.categories)))

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        shape = self.shape(shape_of(x))
        elements: Operand = ctx.apply(Cast("int64"), x)
        if not self.zeros:
            elements = self._checked(ctx, elements)

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            return (tensors[0](*index[:-1]) == tensors[1](index[-1])).astype("float32")

        return ctx.elements(shape, element, elements, self.categories, name="one_hot")

    def _checked(self, ctx: Emitter, elements: Operand) -> Operand:
        """The elements; one of no category fails the run."""
        count, columns = math.prod(shape_of(elements)), len(self.categories)

        def write(needed: list[Any], source: Any, categories: Any, out: Any, found: Any) -> None:
            with T.serial(0, count) as position:
                out[position] = source[position]
                found[0] = tirx.const(0, "int32")
                with T.serial(0, columns) as column, T.If(source[position] == categories[column]), T.Then():
                    found[0] = tirx.const(1, "int32")
                with T.If(found[0] == 0), T.Then():
                    report("OneHotEncoder: an element is of no category", needed)

        results = [(shape_of(elements), "int64"), ((1,), "int32")]
        return checking(ctx, write, [elements, self.categories], results, "check_categories")[0]


@dataclass(frozen=True)
class FeatureVectors(Operator):
    """Features of several tensors next to each other, float32 `[samples, features]`. ai.onnx.ml `FeatureVectorizer`.

    Attributes:
        widths: how many features each tensor `[samples, features]` gives; those behind are cut off, missing ones are 0.
            A dynamic number of features is this one. A vector has one feature of each sample.
    """

    widths: tuple[int, ...]

    def lower(self, ctx: Emitter, *parts: Operand) -> Operand:
        if len(parts) != len(self.widths) or any(width < 0 for width in self.widths):
            raise CompileError(f"there are {len(self.widths)} numbers of features for {len(parts)} inputs")
        columns = [self._part(ctx, part, width) for part, width in zip(parts, self.widths, strict=True) if width]
        if not columns:
            raise CompileError("its inputs give no features")
        return columns[0] if len(columns) == 1 else Concat(1).lower(ctx, *columns)

    def _part(self, ctx: Emitter, part: Operand, width: int) -> Operand:
        if rank_of(part) == 1:
            part = ctx.reshaped(part, (*shape_of(part), 1))
        if rank_of(part) != 2 or not (is_known(shape_of(part)[1]) or unify_dims(shape_of(part)[1], width)):
            raise CompileError(f"the input {list(shape_of(part))} is not a matrix of samples and features")
        part = ctx.apply(Cast("float32"), part)
        given = shape_of(part)[1]
        if given > width:
            part = ctx.apply(Gather(1), part, np.arange(width))
        elif given < width:
            part = ctx.apply(Pad(((0, 0), (0, width - given))), part)
        return part
