"""How far a graph's results may be from float64, by what the graph computes.

Each result may differ by the errors of the step that makes it: a few units in the last place of the result, or,
where terms are added up, of the sum of the terms' magnitudes, which the same step gives for the magnitudes of its
inputs. Numbers of float16 and bfloat16 are computed with as float32, and rounded where they are kept; so are those that
products in a narrow precision multiply.

What is within that needs no more; for the others the graph is evaluated in float64 several times. In each, every step's
floats are moved by random errors of that size, or by a part of it to the same side. How far the results move tells how
the graph carries errors on; a result that jumps (of a rounding, a comparison, a choice of the largest) may be any value
that was seen, so nothing is asked of it.

Source: the CESTAC method of stochastic arithmetic, J. Vignes, 1993.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from graph import Graph
from onnx import helper
from steps import Rejected, Step, evaluate

__all__ = ["Bounds", "bounds_of"]

Array = npt.NDArray[np.float64]
Anything = npt.NDArray[np.generic]

UNIT = 2.0**-24
_UNITS = {np.dtype(np.float64): 2.0**-52}
"""Of float64 the double: the reference errs, too."""
_HALF, _BRAIN = 2.0**-11, 2.0**-8
_PRECISIONS = {"": 0.0, "bf16": _BRAIN, "fp16": _HALF, "tf32": _HALF}
"""The unit of what products of a precision multiply, by its name; 0 for numbers as they are."""
_KEPT = {np.dtype(np.float16): _HALF, np.dtype(ml_dtypes.bfloat16): _BRAIN}
"""Of what is kept in a 16-bit float."""
_SMALLEST_HALF = 2.0**-24
"""The smallest number of float16."""
_SAMPLES = (*(16 * (None,)), 1 / 8, -1 / 8)
"""The errors of each evaluation, in those of one step; None for random ones, of which a choice between two elements
that errors alone make may look the same some times.

Those of one sign find every jump right compared with an exact value, as that of a rounding: random ones may all miss
it.
"""
_STEP_UNITS = 48.0
"""Errors of one step, in units of float32: of elementary functions, of the order of sums, of Winograd's transforms."""
_SPREAD = 4.0
"""How many times the largest movement seen results may move: samples do not meet the worst case."""

# fmt: off
_SUMS = frozenset((
    "Add", "Sub", "Sum", "Mean", "MatMul", "BlockProduct", "Gemm", "Einsum", "Conv", "ConvTranspose", "AveragePool",
    "GlobalAveragePool", "LpPool", "ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "CumSum",
    "ScatterElements", "ScatterND", "Resize", "AttentionProducts", "AttentionMask", "AttentionValues",
    "CausalSums", "Col2Im", "FusedProducts", "WithBias", "DFT", "STFT", "DeformedSums", "NegativeLogLikelihoodLoss",
    "ExpertProducts", "ExpertSums", "Irfft", "Rfft",
))
# fmt: on
"""What adds terms up, and gives for the magnitudes of its inputs the sum of the terms' magnitudes."""
# fmt: off
_EXACT = frozenset((
    "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Concat", "Split", "Slice", "Pad",
    "Tile", "Expand", "DepthToSpace", "SpaceToDepth", "Trilu", "CenterCropPad", "ReverseSequence", "Gather",
    "GatherElements", "GatherND", "Compress", "Where", "Clip", "Relu", "Abs", "Neg", "Max", "Min", "MaxPool",
    "GlobalMaxPool", "ReduceMax", "ReduceMin", "TopK", "OneHot", "ConstantOfShape", "EyeLike", "Cast", "Sign",
    "Ceil", "Floor", "Round", "Hardmax", "Part", "Stack", "AttentionHeads", "AttentionMerged", "AttentionSeen",
    "BitCast", "CastLike", "CausalItems", "CausalState", "Dropout", "MaxUnpool", "TensorScatter", "Unique",
    "MaxRoiPool", "Values", "ChannelsFirst", "ChannelsLast", "Half", "Third", "PaddingMask", "Padded", "Unpadded",
    "Crop", "ExpandDims", "Constant", "Rows",
))
# fmt: on
"""What computes no new floats."""
_NORMALIZATIONS = frozenset(
    ("GroupNormalization", "InstanceNormalization", "LayerNormalization", "MeanVarianceNormalization")
)
_CANCELLING = frozenset(
    ("Gelu", "Mish", "HardSwish", "Softplus", "Celu", "Elu", "Selu", "Log", "Acosh", "Asinh", "Atanh")
)
"""What subtracts numbers as large as its inputs, or as one, to give small results."""
_TERMS: Mapping[str, Callable[..., Anything]] = {
    "AffineGrid": lambda theta, _: np.abs(theta).sum(-1).max(initial=0),
    **dict.fromkeys(
        ("CropAndResize", "DeformedColumns", "GridSample", "RoiAlign"),
        lambda x, *_: (1 + max(x.shape[2:])) * np.abs(x).max(initial=0),
    ),
    **dict.fromkeys(
        ("ComplexMul", "ComplexMulConj"), lambda a, b: 2 * np.abs(a).max(initial=0) * np.abs(b).max(initial=0)
    ),
    "SquaredDistances": lambda a, b: sum(np.square(each).sum(-1).max(initial=0) for each in (a, b)),
    "Det": lambda x: np.abs(x).sum(-1).prod(-1),
    "Inverse": lambda x: np.abs(np.linalg.inv(x)) @ np.abs(x) @ np.abs(np.linalg.inv(x)),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), lambda _: np.ones(1)),
    "RealQGemm": lambda a, a_scale, a_zero, b, b_scale, b_zero, *_: (
        max(a.shape)
        * np.abs((a.astype(float) - a_zero) * a_scale).max(initial=0)
        * np.abs((b.astype(float) - b_zero) * b_scale).max(initial=0)
    ),
    **dict.fromkeys(
        ("Adagrad", "Adam", "Momentum"), lambda *inputs: 4 * sum(np.abs(x).max(initial=0) for x in inputs[2:])
    ),
    "RotaryEmbedding": lambda x, cos, sin, *_: (
        np.abs(x).max(initial=0) * (np.abs(cos).max(initial=0) + np.abs(sin).max(initial=0))
    ),
}
"""How large what is added up inside may be, where magnitudes of the inputs do not tell; of numbers of images'
positions, errors move the location."""
_DEQUANTIZED = frozenset(("RealQGemm",))
"""Products of what integers stand for, which are rounded as other factors are where nothing computes in integers."""
_FEW_DIGITS = {"RealQLinearSigmoid": 64.0}
"""How much less exact is what is rounded to a byte at once."""
_MAX_LANES = 16
"""Parts of a sum at most whose terms are each added one after the other."""
_INNER = {"LSTM": 8.0, "GRU": 8.0, "RNN": 8.0, "LinearAttention": 4.0}
"""How large the sums inside are, where results are bounded by activations, or states are carried on."""
_MOVED = {"LinearAttention": 6}
"""How many of its inputs a recurrence adds up, if not the first alone."""
_DIGITS = 1 / (2 * 32639 * UNIT)
"""Half a step of the numbers of 16 bits that rows are rounded to before a product with blocks, over their largest."""
_SUBNORMAL = 2.0**-126
"""What is smaller may be taken for 0."""


@dataclass(frozen=True)
class Bounds:
    """What one output may be.

    Attributes:
        name: the output's.
        exact: the result in float64, or the integers.
        own: how far each element may be from it for the errors of the last step alone.
        moved: gives how far each element of each output was seen to move by the errors of all steps; infinite where it
            jumped. None: no step is before the last.
    """

    name: str
    exact: Anything
    own: Array
    moved: Callable[[], Mapping[str, Array]] | None = None

    @cached_property
    def allowed(self) -> Array:
        """How far each element may be from the exact one; infinite where nothing is asked."""
        return self.own if self.moved is None else _SPREAD * self.moved()[self.name] + self.own


@dataclass(frozen=True)
class _Rounding:
    """What is rounded next to the errors of float32, or of float64.

    Attributes:
        unit: the largest error of a number that is computed with, over it.
        kept: the largest error of one that is kept in a 16-bit float, over it; 0 if none is.
        multiplied: the largest error of one that products multiply, over it; 0 if they multiply them as they are.
    """

    unit: float = UNIT
    kept: float = 0.0
    multiplied: float = 0.0

    @classmethod
    def of(cls, floats: npt.DTypeLike, precision: str) -> _Rounding:
        """That of graphs of this type whose products are computed in a precision."""
        kept = _KEPT.get(np.dtype(floats), 0.0)
        multiplied = _PRECISIONS[precision]
        return cls(_UNITS.get(np.dtype(floats), UNIT), max(kept, multiplied), multiplied)

    def errors(self, value: Array, scale: Array | None, of_sums: bool = False) -> Array:
        """How far a value may be from the exact one for one step.

        Args:
            scale: the magnitude that its errors are relative to; None if the step makes no new numbers.
            of_sums: whether that is one of products, or of what else is added up.
        """
        found = np.zeros(value.shape) if scale is None else _STEP_UNITS * self.unit * scale
        if self.kept:
            found = found + self.kept * np.abs(value) + _SMALLEST_HALF
        if self.multiplied and of_sums and scale is not None:
            found = found + 2 * self.multiplied * scale
        return found

    @property
    def min_distance(self) -> float:
        """How far numbers are apart that no errors make equal, over them."""
        return max(_STEP_UNITS * self.unit, 2 * self.kept)

    @property
    def jump(self) -> float:
        """What moves a value further than this, over it, is no rounding."""
        return max(0.02, 64 * self.kept)


def bounds_of(graph: Graph, precision: str = "") -> dict[str, Bounds]:
    """The bounds of each output, by its name.

    Args:
        precision: the 16-bit float that products multiply; "" if they multiply the graph's own numbers.
    """
    rounding = _Rounding.of(graph.floats, precision)
    exact: dict[str, Anything] = {name: tensor.exact for name, tensor in graph.tensors.items()}
    for step in graph.steps:
        if step.written_out != (step,):
            exact |= step.inside([exact[name] if name else None for name in step.inputs])
    steps = [written_out for step in graph.steps for written_out in step.written_out]
    makers = {name: step for step in steps for name in step.node.output}
    errors: dict[str, Array] = {}
    for step in {id(makers[t.name]): makers[t.name] for t in graph.outputs}.values():
        errors |= _step_errors(step, exact, rounding)
    moved = cache(lambda: _moved(graph, steps, exact, rounding))
    return {t.name: Bounds(t.name, t.exact, _own(t.exact, errors.get(t.name), rounding), moved) for t in graph.outputs}


def _own(exact: Anything, errors: Array | None, rounding: _Rounding) -> Array:
    if exact.dtype.kind != "f":
        return np.zeros(exact.shape)
    return rounding.unit * 4 * np.abs(exact) + (errors if errors is not None else 0) + 1e-30


def _moved(graph: Graph, steps: Sequence[Step], exact: Mapping[str, Anything], rounding: _Rounding) -> dict[str, Array]:
    """How far the elements of each output move, by its name."""
    rng = np.random.default_rng(graph.seed)
    errors: dict[str, Array] = {}
    if rounding.multiplied:  # inputs are kept as products take them
        errors |= {t.name: rounding.errors(t.exact, None) for t in graph.inputs if t.is_float}
    for step in steps:
        errors |= _step_errors(step, exact, rounding)
    moved: dict[str, Array] = {t.name: np.zeros(t.shape) for t in graph.outputs}
    for share in _SAMPLES:
        sample = _sample(
            graph, steps, errors, rounding.min_distance, lambda shape, share=share: _shares(shape, share, rng)
        )
        for name in moved:
            value = sample.get(name)
            if value is None or value.shape != exact[name].shape:
                moved[name][...] = np.inf
                continue
            apart = np.abs(value.astype(np.float64) - exact[name].astype(np.float64))
            moved[name] = np.maximum(moved[name], np.nan_to_num(apart, nan=np.inf))
    return {name: np.where(_jumped(exact[name], apart, rounding.jump), np.inf, apart) for name, apart in moved.items()}


def _jumped(exact: Anything, moved: Array, maximum: float) -> npt.NDArray[np.bool_]:
    if exact.dtype.kind != "f":
        return moved > 0
    sizes = np.abs(exact.astype(np.float64))
    return moved > maximum * np.maximum(sizes, sizes.max(initial=0) * 0.05)


def _step_errors(step: Step, exact: Mapping[str, Anything], rounding: _Rounding) -> dict[str, Array]:
    """How far the floats that a step makes may be from the exact ones, by name; not those that it only moves."""
    kind = step.node.op_type
    scales = _scales(step, exact)
    return {
        name: rounding.errors(exact[name], scales.get(name), kind in _SUMS or kind in _INNER or kind in _DEQUANTIZED)
        for name in step.node.output
        if exact[name].dtype.kind == "f" and (name in scales or rounding.kept)
    }


def _scales(step: Step, exact: Mapping[str, Anything]) -> dict[str, Array]:
    """The magnitude that a step's errors are relative to, by result."""
    kind = step.node.op_type
    if kind in _EXACT:
        return {}
    values: Sequence[Any | None] = [exact[name] if name else None for name in step.inputs]
    found = {}
    magnitudes: list[Anything] | None = None
    if kind in _SUMS:
        try:
            magnitudes = evaluate(step, [np.abs(v) if v is not None and v.dtype == np.float64 else v for v in values])
        except Rejected:
            magnitudes = None
    units = _serial_units(_terms(step, values))
    for k, name in enumerate(step.node.output):
        value = exact[name]
        if value.dtype.kind != "f":
            continue
        size = np.abs(value.astype(np.float64))
        if magnitudes is not None and magnitudes[k].shape == value.shape:
            # Transforms of a full tile share its largest terms.
            size = np.maximum(np.abs(magnitudes[k]), 0.2 * np.abs(magnitudes[k]).max(initial=0))
        else:
            size = np.maximum(size, 0.05 * size.max(initial=0)) + _INNER.get(kind, 0.0)
            if kind in _INNER:
                size = size + _carried_on(step, values, k)
            if kind in _TERMS:
                size = size + _TERMS[kind](*values)
            if kind in _CANCELLING:
                size = size + 0.25 * np.abs(values[0]) + 0.1
        size = size * _FEW_DIGITS.get(kind, 1.0)
        if kind == "BlockProduct":
            size = size + _lost_to_digits(step, values) / _STEP_UNITS
        if kind in _NORMALIZATIONS and k == 0:
            size = size + _lost_to_means(step, values)
        found[name] = size * (1 + units / _STEP_UNITS)
    return found


def _carried_on(step: Step, values: Sequence[Any], result: int) -> Array:
    """How far results of a recurrence move, in units of what all of its inputs do: steps carry on the errors of others.

    Args:
        result: which of them.
    """
    rng = np.random.default_rng(values[0].size)
    exact = evaluate(step, values)[result]
    maximum = np.zeros(exact.shape)
    for _ in range(2):
        moved = [
            x if x is None else x + _STEP_UNITS * UNIT * (1 + np.abs(x)) * rng.uniform(-1, 1, x.shape)
            for x in values[: _MOVED.get(step.node.op_type, 1)]
        ]
        apart = np.abs(evaluate(step, [*moved, *values[len(moved) :]])[result] - exact) / (_STEP_UNITS * UNIT)
        maximum = np.maximum(maximum, apart)
    return np.maximum(2 * maximum, 0.1 * maximum.max(initial=0))


def _lost_to_means(step: Step, values: Sequence[Any]) -> Array:
    """How large the mean that is subtracted from each element is, over the deviation that the difference is divided
    by."""
    x, *others = values
    terms = _terms(step, values)
    indices = _terms(step, [np.arange(x.size, dtype=np.float64).reshape(x.shape), *others])
    lost = np.zeros(x.shape)
    if terms is None or indices is None:
        return lost
    given = {a.name: helper.get_attribute_value(a) for a in step.node.attribute}
    if step.node.op_type == "MeanVarianceNormalization":
        means = np.abs(terms).mean(1) / (np.sqrt(terms.var(1)) + 1e-9)
    else:
        means = np.abs(terms).mean(1) / np.sqrt(terms.var(1) + given.get("epsilon", 1e-5))
    factor = np.abs(others[0]).max(initial=0) if others and others[0] is not None else 1.0
    lost.reshape(-1)[indices.astype(int)] = factor * means[:, None]
    return lost


def _lost_to_digits(step: Step, values: Sequence[Any]) -> Array:
    """The errors of products with blocks, in units: the largest element of each block of a row says how it is
    rounded."""
    x, weights = np.abs(values[0]), np.abs(values[1])
    (size,) = (helper.get_attribute_value(a) for a in step.node.attribute)
    largest = np.empty_like(x)
    for start in range(0, x.shape[-1], size):
        block = x[..., start : start + size]
        largest[..., start : start + size] = block.max(-1, keepdims=True)
    found: Array = _DIGITS * np.matmul(largest, weights)
    return found


def _serial_units(terms: Array | None) -> float:
    """The errors of sums whose terms are added one after the other, in units of the sum of the terms' magnitudes.

    They are those that float32 makes of these terms: few if these are random, but each addition of a number to a sum
    of the same ones is rounded to the same side.

    Args:
        terms: [sums, terms of one]; None if there are but few.
    """
    if terms is None or not terms.size:
        return 0.0
    count = terms.shape[1]
    lengths = np.arange(1, count + 1)
    maximum = 0.0
    for elements in (terms, np.abs(terms), terms * terms):  # of sums, of magnitudes, of squares
        rounded = elements.astype(np.float32)
        apart = np.abs(np.cumsum(rounded, 1, dtype=np.float32) - np.cumsum(rounded, 1, dtype=np.float64))
        # A lane has made the errors of its terms when it ends, and there are as many lanes as it is shorter.
        errors = (apart * (count / lengths))[:, count // _MAX_LANES :].max(1)
        maximum = max(maximum, float((errors / np.maximum(np.abs(elements).sum(1), 1e-30)).max()))
    return maximum / UNIT


def _terms(step: Step, values: Sequence[Any | None]) -> Array | None:
    """What is added up for each of the sums or means of a step, [sums, terms of one]; None if it has none of these."""
    x = values[0]
    kind = step.node.op_type
    if x is None or x.dtype.kind != "f" or not x.ndim:
        return None
    given = {a.name: helper.get_attribute_value(a) for a in step.node.attribute}
    match kind:
        case "LayerNormalization":
            axes = range(given.get("axis", -1) % x.ndim, x.ndim)
        case "GroupNormalization":
            return np.asarray(x.reshape(x.shape[0] * given["num_groups"], -1))
        case "InstanceNormalization":
            axes = range(2, x.ndim)
        case "MeanVarianceNormalization":
            axes = given.get("axes", (0, 2, 3))
        case _ if kind.startswith("Reduce"):
            declared = values[1] if len(values) > 1 and values[1] is not None else given.get("axes", ())
            axes = np.asarray(declared, int).reshape(-1)
            if not len(axes):
                axes = () if given.get("noop_with_empty_axes") else range(x.ndim)
        case _:
            return None
    last = sorted(int(axis) % x.ndim for axis in axes)
    count = int(np.prod([x.shape[axis] for axis in last]))
    return np.asarray(np.moveaxis(x, last, range(-len(last), 0)).reshape(-1, count)) if last and count else None


def _shares(shape: Sequence[int], share: float | None, rng: np.random.Generator) -> Array:
    return rng.uniform(-1, 1, shape) if share is None else np.full(shape, share)


def _sample(
    graph: Graph,
    steps: Sequence[Step],
    errors: Mapping[str, Array],
    min_distance: float,
    shares: Callable[[Sequence[int]], Array],
) -> dict[str, Anything]:
    """One evaluation with shares of the errors of each step; results that follow from a refused step are missing."""
    values: dict[str, Anything] = {}

    def keep(name: str, value: Anything) -> None:
        error = errors.get(name)
        if error is not None and error.shape == value.shape:
            value = value + error * shares(value.shape)
        values[name] = _flushed(value)

    for tensor in (*graph.inputs, *graph.constants):
        keep(tensor.name, tensor.exact)
    for step in steps:
        if any(name and name not in values for name in step.inputs):
            continue
        try:
            found = evaluate(step, [values[name] if name else None for name in step.inputs])
        except Rejected:
            continue
        if step.node.op_type == "Equal":  # which no error makes equal by chance
            apart = {"rtol": min_distance, "atol": min_distance / _STEP_UNITS}
            found = [np.isclose(*(values[name] for name in step.inputs), **apart)]
        for name, value in zip(step.node.output, found, strict=True):
            keep(name, value)
    return values


def _flushed(value: Anything) -> Anything:
    return np.where(np.abs(value) < _SUBNORMAL, 0.0, value) if value.dtype.kind == "f" else value
