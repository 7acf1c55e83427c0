"""Makes convolutions and matrix products multiply 16-bit floats, and stores in 16 bits what only they and moves read.

    y = conv2d(x, W)              h = astype(x, "float16")
    z = relu(y)             →     y = conv2d(h, half W, out_dtype="float32")
    u = conv2d(z, V)              z = relu(astype(y, "float16"))
                                  u = conv2d(z, half V, out_dtype="float32")

Sums stay in single precision, and so does everything that is neither a contraction nor only moves its operand's values:
softmax, normalizations, sums. What they need of a tensor of 16-bit floats is converted, in the kernel that reads it.
The trained values are converted here, at compile time; inputs, outputs and states keep their types.

A machine that does not multiply 16-bit floats faster only stores the weights in them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from enum import Enum, auto
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import tvm
from tvm import relax

from nnefc.ir.attributes import DEQUANTIZES_BLOCKS
from nnefc.ir.dataflow import bindings_of, variables_read
from nnefc.passes.graph.precision.largest_of_blocks import largest_of_blocks
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, operands, shape_of
from nnefc.passes.graph.stored_weights import CONVOLUTIONS, weights_of
from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.cpu.target import KEPT_WIDE

__all__ = [
    "MOVES",
    "SUMS_OF_LANES",
    "SUMS_OF_PAIRS",
    "Chooser",
    "Float16Sums",
    "Use",
    "at_the_ends",
    "check_names",
    "narrowable",
    "powers_for",
    "summing_in_single",
    "use_16bit_floats",
]

MOVES = (
    "broadcast_to",
    "concat",
    "expand_dims",
    "flatten",
    "nn.max_pool1d",
    "nn.max_pool2d",
    "nn.max_pool3d",
    "nn.relu",
    "permute_dims",
    "reshape",
    "squeeze",
    "strided_slice",
    "take",
)
"""Operators whose results are values of their operands, or zero, so that they can be converted before or after."""

_TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
_LARGEST = {"float16": 65504.0, "bfloat16": (2 - 2**-7) * 2.0**127}


class Use(Enum):
    """The way in which a contraction uses 16-bit floats."""

    NONE = auto()
    STORED = auto()  # its weights are stored in them
    READ = auto()  # its data are
    MULTIPLIED = auto()
    SUMMED = auto()  # multiplied, and summed up in them for a while


Chooser = Callable[[relax.Call, np.ndarray | None], Use]
"""Decides how a float32 contraction uses 16-bit floats, given its weights if they are constant."""


def _everywhere(_call: relax.Call, _weights: np.ndarray | None) -> Use:
    return Use.MULTIPLIED


def use_16bit_floats(
    mod: tvm.IRModule,
    dtype: str,
    use: Chooser = _everywhere,
    moves: Sequence[str] = MOVES,
    keep_wide: Collection[str] = (),
    sums: Float16Sums | None = None,
) -> tvm.IRModule:
    """Converts operands of contractions to 16-bit floats.

    Args:
        dtype: the 16-bit float.
        use: which contractions.
        moves: operators that move 16-bit floats.
        keep_wide: `first` for contractions that no other one's result goes into, `last` for those whose results go
            into no other one, and patterns of names: these stay as they are.
        sums: of contractions that sum up in 16-bit floats.
    """
    rewriter = _Narrower(mod, dtype, use, moves, frozenset(keep_wide), sums or SUMS_OF_PAIRS)
    return relax.transform.DeadCodeElimination()(rewriter.transform())


class _Narrower(Rewriter):
    """Rebuilds a function.

    Attributes:
        uses: what contractions do with 16-bit floats, by the variables of their results in the old function.
        narrow: variables of the old function that are kept in 16-bit floats.
        half: what holds the same in 16-bit floats, by variables of the new function.
    """

    def __init__(
        self,
        mod: tvm.IRModule,
        dtype: str,
        use: Chooser,
        moves: Sequence[str],
        keep_wide: Collection[str],
        sums: Float16Sums,
    ) -> None:
        super().__init__(mod)
        self._dtype = dtype
        self._sums = sums
        self._moves = moves
        self._bindings = bindings_of(self.old)
        self._definitions = {binding.var: binding.value for binding in self._bindings}
        convertible = narrowable(self._bindings, keep_wide)
        self.uses = {b.var: use(b.value, self._weights(b.value)) for b in convertible if self._fits(b.value)}
        self.narrow = self._read_as_float16()
        self.half: dict[relax.Var, relax.Var] = {}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if is_call(call, "astype") and {str(var.ty.dtype), str(call.args[0].ty.dtype)} == {"float32", self._dtype}:
            is_wider = str(var.ty.dtype) == "float32"
            return self._in_float32(call.args[0]) if is_wider else self._as_float16(call.args[0])
        match self.uses.get(var, Use.NONE):
            case Use.MULTIPLIED:
                weights = self._weights(self._definitions[var])
                right = self._as_float16(call.args[1]) if weights is None else self._converted(weights)
                made: relax.Expr = summing_in_single([self._as_float16(call.args[0]), right], call)
            case Use.SUMMED:
                made = self._summed(var, call)
            case Use.READ:
                data = self._in_float32(self._as_float16(call.args[0]))
                made = relax.Call(call.op, [data, call.args[1]], call.attrs, call.ty_args, call.span)
            case Use.STORED:
                made = self._with_stored_weights(var, call)
            case _ if var in self.narrow and is_call(call, *self._moves) and self._fits(self._definitions[var]):
                return self._in_float32(self.builder.emit(self._moved(call)))
            case _:
                made = call
        if var not in self.narrow:
            return made
        return self._in_float32(self.builder.emit(relax.op.astype(self.builder.emit(made), self._dtype)))

    def _summed(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        """Scales weights by powers of two so that short sums stay in the range of the 16-bit float."""
        weights = self._weights(self._definitions[var])
        assert weights is not None
        channels = weights.ndim - 1 if is_call(call, "matmul") else 0
        scale = powers_for(np.moveaxis(weights, channels, 0).reshape(weights.shape[channels], -1), self._sums)
        along = [-1 if axis == channels else 1 for axis in range(weights.ndim)]
        right = self._converted(weights.astype(np.float32) * scale.reshape(along))
        made = summing_in_single([self._as_float16(call.args[0]), right], call)
        if np.all(scale == 1):
            return made
        shape = [1] * len(shape_of(var))
        shape[-1 if is_call(call, "matmul") else 1] = -1
        return relax.op.multiply(self.builder.emit(made), constant((1 / scale).reshape(shape)))

    def _with_stored_weights(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        weights = self._weights(self._definitions[var])
        if weights is None:
            return call
        wide = self.builder.emit(relax.op.astype(self._converted(weights), "float32"))
        return relax.Call(call.op, [call.args[0], wide], call.attrs, call.ty_args, call.span)

    def _weights(self, call: relax.Call) -> np.ndarray | None:
        """Returns the right operand of a contraction of the old function, if it is known; of one matrix, its two
        dimensions.
        """
        found = weights_of(call.args[1], self._defined)
        if found is None or not is_call(call, "matmul") or found.ndim > len(shape_of(call.args[0])):
            return found
        return found.reshape(found.shape[-2:]) if all(size == 1 for size in found.shape[:-2]) else found

    def _defined(self, expr: relax.Expr) -> relax.Expr | None:
        return self._definitions.get(expr) if isinstance(expr, relax.Var) else expr

    def _fits(self, call: Any) -> bool:
        """Whether the 16-bit float holds all numbers in constant operands."""
        known = [array_of(arg) for arg in operands(call) if is_constant(arg) and _is_single(arg)]
        if is_call(call, "clip"):
            known += [np.asarray(float(bound.value)) for bound in call.args[1:]]
        if _is_contraction(call) and (weights := self._weights(call)) is not None:
            known.append(weights)
        largest = [float(np.max(np.abs(a), initial=0, where=np.isfinite(a))) for a in known]
        largest += [self._largest_of_blocks(arg) for arg in operands(call)]
        return all(number <= _LARGEST[self._dtype] for number in largest)

    def _largest_of_blocks(self, expr: relax.Expr) -> float:
        """Returns a bound of the elements of a constant in blocks, also where it is moved; 0 for what is none."""
        source = self._defined(expr)
        while is_call(source, "astype", "permute_dims", "reshape"):
            source = self._defined(source.args[0])
        if not is_call(source, "call_tir") or not all(map(is_constant, source.args[1].fields)):
            return 0.0
        attributes = self.builder.get()[source.args[0]].attrs or {}
        is_in_blocks = DEQUANTIZES_BLOCKS in attributes
        return largest_of_blocks(attributes, [*map(array_of, source.args[1].fields)]) if is_in_blocks else 0.0

    def _read_as_float16(self) -> set[relax.Var]:
        """Returns the variables that contractions read, also through moves."""
        found: set[relax.Var] = set()
        for binding in reversed(self._bindings):
            call = binding.value
            moved = binding.var in found and is_call(call, *self._moves) and self._fits(call)
            if moved or self.uses.get(binding.var) in (Use.MULTIPLIED, Use.SUMMED, Use.READ):
                found.update(arg for arg in operands(call) if isinstance(arg, relax.Var) and _is_single(arg))
        return found

    def _in_float32(self, half: relax.Var) -> relax.Var:
        """Returns the float32 form of a 16-bit variable; removed at the end if it has no use."""
        wide = self.builder.emit(relax.op.astype(half, "float32"))
        self.half[wide] = half
        return wide

    def _as_float16(self, expr: relax.Expr) -> relax.Expr:
        if is_constant(expr):
            return self._converted(array_of(expr))
        if expr not in self.half:
            self.half[expr] = self.builder.emit(relax.op.astype(expr, self._dtype))
        return self.half[expr]

    def _converted(self, array: np.ndarray) -> relax.Expr:
        return constant(array.astype(_TYPES[self._dtype]))

    def _moved(self, call: relax.Call) -> relax.Call:
        def moved(arg: relax.Expr) -> relax.Expr:
            if isinstance(arg, relax.Tuple):
                return relax.Tuple([moved(field) for field in arg.fields])
            return self._as_float16(arg) if _is_single(arg) else arg

        return relax.Call(call.op, [moved(arg) for arg in call.args], call.attrs)


class Float16Sums(NamedTuple):
    """The condition on weights for 16-bit accumulators: sums are finite while data stay below the largest 16-bit float
    divided by `maximum`.

    Attributes:
        terms: the max number in one sum.
        minimum, maximum: bounds of the sum of a channel's largest `terms` weights; channels beyond them are scaled.
    """

    terms: int
    minimum: float
    maximum: float


SUMS_OF_PAIRS = Float16Sums(64, 8.0, 8.0)
"""The limits of `half_pairs`, which sums up 32 pairs: all first elements, and all second ones."""

SUMS_OF_LANES = Float16Sums(4096, 0.125, 32.0)
"""The limits of `half_product`: see `passes/schedule/cpu/fp16_accumulators.py`."""


def powers_for(columns: np.ndarray, sums: Float16Sums) -> np.ndarray:
    """Returns a power of two for each row of `columns` that brings the sum of its largest weights to `sums.maximum` or
    half of it; 1 for rows whose sum is within the limits.
    """
    sizes = np.abs(columns.astype(np.float32))
    count = min(sums.terms, sizes.shape[1])
    largest = np.partition(sizes, sizes.shape[1] - count, axis=1)[:, -count:].sum(axis=1)
    usual = np.isfinite(largest) & (largest > 0)
    usual &= (largest < sums.minimum) | (largest > sums.maximum)
    exponent = np.floor(np.log2(sums.maximum / np.where(usual, largest, sums.maximum)))
    scale: np.ndarray = np.exp2(np.clip(exponent, -100, 100)).astype(np.float32)
    return scale


def check_names(modules: Sequence[tvm.IRModule], keep_wide: Collection[str]) -> None:
    """Checks that a network has contractions of these names.

    Raises:
        CompileError: a pattern is no contraction's.
    """
    found = [binding.var for mod in modules for binding in bindings_of(mod["main"]) if _is_contraction(binding.value)]
    for name in keep_wide:
        if name not in KEPT_WIDE and not any(_is_called(var, [name]) for var in found):
            known = ", ".join(str(var.name) for var in found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
            raise CompileError(
                f"no convolution or matrix product is called {name!r}, to keep it wide",
                hint=f"say first, last, or names, with * for any letters: {known}",
            )


_SHOWN = 8


def narrowable(bindings: Sequence[Any], keep_wide: Collection[str]) -> list[Any]:
    """Returns the bindings of float32 contractions that may use 16-bit floats."""
    contractions = [binding for binding in bindings if _is_contraction(binding.value)]
    wide = at_the_ends(bindings, {binding.var for binding in contractions}, keep_wide)
    return [b for b in contractions if b.var not in wide and not _is_called(b.var, keep_wide)]


def _is_called(var: relax.Var, patterns: Collection[str]) -> bool:
    """Whether a result has one of these names, compared as Relax spells them: identifiers only."""
    own = re.sub(r"\W", "_", str(var.name))
    return any(fnmatchcase(own, re.sub(r"[^\w*?]", "_", name)) for name in patterns if name not in KEPT_WIDE)


def at_the_ends(bindings: Sequence[Any], contractions: Collection[relax.Var], ends: Collection[str]) -> set[relax.Var]:
    """Returns the first contractions, or the last, or both."""
    found: set[relax.Var] = set()
    if "first" in ends:
        after: set[relax.Var] = set()  # what a contraction went into
        for binding in bindings:
            if any(read in after for read in variables_read(binding.value)):
                after.add(binding.var)
            elif binding.var in contractions:
                found.add(binding.var)
                after.add(binding.var)
    if "last" in ends:
        before: set[relax.Var] = set()  # what goes into a contraction
        for binding in reversed(bindings):
            if binding.var in contractions and binding.var not in before:
                found.add(binding.var)
            if binding.var in contractions or binding.var in before:
                before.update(variables_read(binding.value))
    return found


def _is_contraction(call: relax.Expr) -> bool:
    """Whether a call multiplies tensors of single precision."""
    if not is_call(call, *CONVOLUTIONS, "matmul") or not all(map(_is_single, call.args)):
        return False
    return min(len(shape_of(arg)) for arg in call.args) > 1


def _is_single(expr: relax.Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType) and str(expr.ty.dtype) == "float32"


def summing_in_single(args: list[relax.Expr], call: Any) -> relax.Call:
    """Returns the contraction of other operands, with a float32 result."""
    if is_call(call, "matmul"):
        return relax.op.matmul(*args, out_dtype="float32")
    attrs = call.attrs
    names = ("strides", "padding", "output_padding", "dilation", "groups", "data_layout", "kernel_layout", "out_layout")
    keywords = {name: getattr(attrs, name) for name in names if hasattr(attrs, name)}
    return getattr(relax.op.nn, call.op.name.rpartition(".")[2])(*args, **keywords, out_dtype="float32")
